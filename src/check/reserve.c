/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reservations: a place in the queue of a leaky bucket, or units of a token bucket that have yet to refill.
 *
 * A request is heard by all limits of its policy; the longest wait counts, and where that is not too long all are
 * charged at once: the bucket's theoretical arrival time moves on, and whoever comes later queues behind. Limits
 * without a queue must have room now.
 *
 * Units that others hold (of grants, or of requests under way) may yet pass before this request, so they stand before
 * it in the queue. That would leave gaps where they are given back; so they are first taken back, as before a denial.
 *
 * Progress: as decide.c.
 */
#include <sched.h>

#include "base/numbers.h"
#include "base/rcu.h"
#include "base/spin.h"
#include "check/check.h"
#include "check/decide.h"
#include "check/request.h"
#include "check/reserve.h"
#include "process/insert.h"
#include "thread/limiter.h"
#include "thread/settle.h"
#include "thread/slot.h"

/* What a request hears. */
struct place {
    uint64_t wait_ns;
    bool refused; /* and then the wait is until it could go at once, by all limits */
    bool others;  /* somebody else holds units, so that the wait may be shorter in a moment */
};

/* Hears all limits; `mine`: what this request holds in each cell. */
static bool hear_queue(struct request *r, uint64_t mine, uint64_t max_wait_ns, struct place *out)
{
    struct claim *claim = &r->claims[0];
    *out = (struct place){0, false, false};
    if (!claim_read(r, claim, mine)) {
        return false;
    }
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        const struct limit_reading *reading = &claim->readings[i];
        const uint64_t ahead = saturating_sub(reading->held & HELD_UNITS, mine);
        uint64_t wait_ns = 0;
        if (rule_queue(&claim->rules[i], reading->level, r->now_ns, claim->cost != 0 ? claim->cost : 1, ahead,
                       max_wait_ns, &wait_ns)) {
            /* It waits with those that refuse, too. */
            out->wait_ns = max_u64(out->wait_ns, wait_ns);
        } else {
            out->refused = true;
            wait_ns = rule_has_history(&claim->rules[i]) ? denial_retry_after(r, claim, i) : wait_ns;
            out->wait_ns = max_u64(out->wait_ns, max_u64(wait_ns, 1));
        }
        out->others = out->others || ahead != 0;
    }
    return true;
}

/* One step, for one cell: nobody else changed it since it was heard. */
static enum charge charge_plain(struct request *r)
{
    struct claim *claim = &r->claims[0];
    struct cell *cell = &r->t->process->table.cells[claim->cells[0]];
    struct dwcas_value value;
    if (!cell_read(cell, cell_hash(claim->policy, claim->key, 0), &value)) {
        return CHARGE_LOST;
    }
    const struct state state = cell_state(value);
    /* [P1] held after the state: who holds units has looked at it already, and will charge them. */
    const uint64_t held = load_acquire(&cell->held) & HELD_UNITS;
    if (state.a != claim->readings[0].state.a || state.b != claim->readings[0].state.b ||
        held != (claim->readings[0].held & HELD_UNITS)) {
        return CHARGE_NO_ROOM;
    }
    const struct state charged = rule_charge(&claim->rules[0], claim_charge_base(r, claim, 0), r->now_ns, claim->cost);
    return dwcas_swap(&cell->state, &value, cell_value(charged, value)) ? CHARGE_DONE : CHARGE_NO_ROOM;
}

/* Holds, hears again, and charges or lets go. */
static enum charge charge_held(struct request *r, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    struct claim *claim = &r->claims[0];
    struct place place = {0, false, false};
    enum charge result = CHARGE_DONE;
    const bool giant = claim->cost > HOLD_MOST;
    if (giant) {
        spin_lock(&r->t->process->oversized);
    }
    claim_hold(r, claim, claim->cost);
    for (size_t i = 0; i < claim->policy->limit_count && result == CHARGE_DONE; i++) {
        const uint64_t wanted = rule_is_bucket(&claim->rules[i]) ? 0 : claim->cost;
        result = claim_charge_cell(r, claim, i, 0, claim->cost, wanted, GENERATION_ONE); /* [P1] */
    }
    if (result == CHARGE_DONE && (!hear_queue(r, claim->cost, max_wait_ns, &place) || place.refused || place.others)) {
        result = CHARGE_NO_ROOM;
    }
    for (size_t i = 0; i < claim->policy->limit_count && result == CHARGE_DONE; i++) {
        result = claim_charge_cell(r, claim, i, claim->cost, claim->cost, 0, 0);
        *wait_ns = place.wait_ns;
    }
    claim_hold(r, claim, (uint64_t) 0 - claim->cost);
    if (giant) {
        spin_unlock(&r->t->process->oversized);
    }
    return result;
}

/* Until it has a place, or is refused. False: a cell was given to another key on the way. */
static bool decide(struct request *r, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    struct claim *claim = &r->claims[0];
    unsigned fruitless = 0;
    for (;;) {
        struct place place;
        if (!hear_queue(r, 0, max_wait_ns, &place)) {
            return false;
        }
        if (place.others && decide_wait(r, claim, &fruitless)) {
            continue;
        }
        const bool plain = claim->policy->limit_count == 1 && !rule_has_history(&claim->rules[0]);
        if (place.others && !plain) {
            /* Who holds does not run, and what stands before this request is not known. */
            place.refused = true;
            place.wait_ns = max_u64(place.wait_ns, NS_PER_MS);
        }
        *wait_ns = place.wait_ns;
        r->out->allowed = !place.refused;
        if (place.refused || claim->cost == 0) {
            for (size_t i = 0; place.refused && claim->cost != 0 && i < claim->policy->limit_count; i++) {
                cell_meta_record(&r->t->process->table.metas[claim->cells[i]], EVENT_REFUSED);
            }
            return true;
        }
        /* A log is charged where it has room, by the way of several cells. */
        const enum charge result = plain ? charge_plain(r) : charge_held(r, max_wait_ns, wait_ns);
        if (result == CHARGE_DONE) {
            claim_set_dirty(r, claim);
            return true;
        }
        if (result == CHARGE_LOST) {
            return false;
        }
        if (result == CHARGE_NO_MEMORY) {
            *r->out = (struct decision){.untracked = true};
            *wait_ns = NS_PER_S;
            return true;
        }
        if (!plain) {
            (void) sched_yield(); /* to whom it is that holds */
        }
    }
}

void queue_decide(struct request *r, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    struct claim *claim = &r->claims[0];
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        claim->rules[i] = policy_rule(&claim->policy->limits[i]);
        claim->before[i] = 0;
    }
    *r->out = (struct decision){.allowed = false};
    bool done = false;
    while (!done) {
        if (!claim->pinned && !insert_pin(r->t->process, claim->policy, claim->key, r->now_ns, claim->cells)) {
            r->out->untracked = true;
            *wait_ns = NS_PER_S;
            return;
        }
        done = decide(r, max_wait_ns, wait_ns);
        if (!claim->pinned) {
            insert_unpin(r->t->process, claim->policy, claim->cells);
        }
    }
}

bool weir_reserve(weir_thread *t, const weir_key *key, uint64_t cost, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    uint64_t ignored = 0;
    uint64_t *wait = wait_ns != NULL ? wait_ns : &ignored;
    *wait = 0;
    if (t == NULL) {
        return true;
    }
    counter_add(&t->slow_count, 1);
    rcu_enter();
    const struct policy *policy = check_policy(load_acquire(&t->process->policies), key);
    bool pass = true;
    if (policy == NULL) {
        (void) check_allow_unknown(t, NULL);
    } else if (policy->override != OVERRIDE_NONE) {
        const bool allowed = policy->override == OVERRIDE_ALLOW;
        check_tally(t, policy, allowed);
        pass = allowed || policy->mode == WEIR_SHADOW;
        *wait = pass ? 0 : UINT64_MAX;
    } else {
        struct decision decision = {.allowed = false};
        uint32_t cells[WEIR_MAX_LIMITS];
        struct claim claim = {.policy = policy, .key = key, .cost = cost, .cells = cells};
        struct request r = {.t = t, .claims = &claim, .count = 1, .now_ns = limiter_time(t->limiter), .out = &decision};
        /* Its own grant would stand before it in the queue. */
        const size_t index = slot_take(t, policy, key, EPOCH_ASLEEP, r.now_ns);
        if (index != SLOT_NONE) {
            claim.cells = t->accounts[index].cells;
            claim.pinned = true;
        }
        queue_decide(&r, max_wait_ns, wait);
        if (!decision.allowed && !decision.untracked && *wait != UINT64_MAX) {
            top_denied_name(t->process, policy, key, claim.cells[0]);
            top_denied_add(t->process, claim.cells[0], cost != 0 ? cost : 1);
        }
        if (index != SLOT_NONE) {
            slot_unlock(&t->accounts[index]);
        }
        counter_add(&t->untracked_count, decision.untracked);
        check_tally(t, policy, decision.allowed);
        pass = decision.allowed || policy->mode == WEIR_SHADOW;
        *wait = decision.allowed || policy->mode != WEIR_SHADOW ? *wait : 0;
    }
    rcu_leave();
    return pass;
}
