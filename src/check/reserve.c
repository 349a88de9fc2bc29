/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_reserve: a place in the queue of a leaky bucket, or units of a token bucket that have yet to refill.
 *
 * All limits of the policy are read. The longest wait counts, and where it is not too long all limits are charged at
 * once: the bucket's theoretical arrival time moves on, and whatever comes later queues behind. Limits without a queue
 * must have room now.
 *
 * Units that others hold (grants, requests under way) may pass before this request, so they are before it in the
 * queue. That would leave gaps where they are given back. So they are taken back first, as before a denial.
 *
 * One queue that no thread holds units of, and that no other node uses, is charged in one swap (ask_queue). A thread
 * caches the numbers of such queues for the epoch. So a key without a slot needs no RCU section, and its next refusals
 * need none either (reserve_cached).
 *
 * A policy without a queue has grants, whose units may go at once. So a grant that covers the cost is spent. Where
 * there is room for the cost, it is charged as that of a check (charge.h).
 *
 * Ordering: [P1] and [P2] of decide.c, [S1] in settle.c, [S4] in check.c. Progress: as decide.c.
 */
#include <sched.h>

#include "base/numbers.h"
#include "base/probe.h"
#include "base/spin.h"
#include "check/charge.h"
#include "check/check.h"
#include "check/claim.h"
#include "check/decide.h"
#include "check/denial.h"
#include "process/insert.h"
#include "thread/misuse.h"
#include "thread/policy_snapshot.h"
#include "thread/rcu.h"
#include "thread/slot.h"

/* Fleet time, by the time that the handle's owner has set, if any. */
static inline uint64_t reserve_time(const struct weir_thread *t)
{
    const uint64_t time_ns = t->shared->time_ns;
    return time_ns != 0 ? time_ns + load_relaxed(&t->line->offset_ns) : tick_time(t->limiter);
}

/* What all limits together read. */
struct queue_reading {
    uint64_t wait_ns; /* refused: until the request could go at once, by all limits */
    bool refused;
    bool others; /* another thread holds units, so the wait may be shorter in a moment */
};

/* Reads all limits; `own`: units that each cell holds for this request. */
static void read_queue(struct request *r, uint64_t own, uint64_t max_wait_ns, struct queue_reading *out)
{
    struct claim *claim = &r->claims[0];
    *out = (struct queue_reading){0, false, false};
    (void) claim_read_limits(r, claim, own); /* the cells are pinned: they are the key's */
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        const struct rule *rule = &claim->rules[i];
        const struct limit_reading *reading = &claim->readings[i];
        const struct queue_request request = {.cost = claim_asked(claim),
                                              .ahead = saturating_sub(reading->held & HELD_UNITS, own),
                                              .max_wait_ns = max_wait_ns};
        uint64_t wait_ns = 0;
        if (!rule_queue(rule, reading->level, r->now_ns, &request, &wait_ns)) {
            out->refused = true;
            wait_ns = max_u64(rule_has_history(rule) ? denial_retry_after(r, claim, i) : wait_ns, 1);
        }
        /* A limit that lets the request pass counts in the wait of a refusal too. */
        out->wait_ns = max_u64(out->wait_ns, wait_ns);
        out->others = out->others || request.ahead != 0;
    }
}

/* Charges one cell in one step, if it is as it was read. */
static enum charge charge_as_read(struct request *r)
{
    struct claim *claim = &r->claims[0];
    const struct limit_reading *reading = &claim->readings[0];
    struct cell *cell = claim_cell(r, claim, 0);
    struct dwcas_value value = dwcas_read(&cell->state);
    const struct state state = cell_state(value);
    /* [P1] held after the state: a holder has read the state before this, and will charge its units. */
    const uint64_t held = load_acquire(&cell->held) & HELD_UNITS;
    if (state.a != reading->state.a || state.b != reading->state.b || held != (reading->held & HELD_UNITS)) {
        return CHARGE_NO_ROOM;
    }
    const struct state charged = rule_charge(&claim->rules[0], claim_base(r, claim, 0), r->now_ns, claim->cost);
    return dwcas_swap(&cell->state, &value, cell_value(charged, value)) ? CHARGE_DONE : CHARGE_NO_ROOM;
}

/* Verifies every limit of a claim that is reserved, and reads the queue again. */
static enum charge verify_place(struct request *r, uint64_t max_wait_ns, struct queue_reading *queue)
{
    struct claim *claim = &r->claims[0];
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        /* A bucket need not have room now: the queue has. */
        const uint64_t wanted = rule_is_bucket(&claim->rules[i]) ? 0 : claim->cost;
        const enum charge result = claim_verify_cell(r, claim, i, claim->cost, wanted);
        if (result != CHARGE_DONE) {
            return result;
        }
    }
    read_queue(r, claim->cost, max_wait_ns, queue);
    return !queue->refused && !queue->others ? CHARGE_DONE : CHARGE_NO_ROOM;
}

/* Reserves, verifies, and commits or releases. */
static enum charge charge_place(struct request *r, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    struct claim *claim = &r->claims[0];
    struct queue_reading queue = {0, false, false};
    const bool oversized = claim->cost > HOLD_MOST;
    if (oversized) {
        process_lock(r->t->process, &r->t->process->shared->oversized);
    }
    claim_reserve(r, claim, claim->cost);
    enum charge result = verify_place(r, max_wait_ns, &queue);
    for (size_t i = 0; i < claim->policy->limit_count && result == CHARGE_DONE; i++) {
        result = claim_commit_cell(r, claim, i, claim->cost);
        *wait_ns = queue.wait_ns;
    }
    claim_release(r, claim, claim->cost);
    if (oversized) {
        spin_unlock(&r->t->process->shared->oversized);
    }
    return result;
}

static void mark_all_refused(const struct request *r)
{
    const struct claim *claim = &r->claims[0];
    for (size_t i = 0; claim->cost != 0 && i < claim->policy->limit_count; i++) {
        cell_meta_record(&r->t->process->table.metas[claim->cells[i]], EVENT_REFUSED);
    }
}

/* Tries until the request has a place, or is refused. */
static void find_place(struct request *r, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    struct claim *claim = &r->claims[0];
    unsigned stalled_tries = 0;
    for (;;) {
        struct queue_reading queue;
        read_queue(r, 0, max_wait_ns, &queue);
        if (queue.others && decide_wait(r, claim, &stalled_tries)) {
            continue;
        }
        /* A log is charged where it has room, in the steps of several cells. */
        const bool one_step = claim->policy->limit_count == 1 && !rule_has_history(&claim->rules[0]);
        if (queue.others && !one_step) {
            /* The thread holding units is preempted, so the place in the queue is unknown: refuse, retry in 1 ms. */
            queue.refused = true;
            queue.wait_ns = max_u64(queue.wait_ns, NS_PER_MS);
        }
        *wait_ns = queue.wait_ns;
        r->out->allowed = !queue.refused;
        if (queue.refused) {
            mark_all_refused(r);
            counter_add(&r->t->shared->stalled_denied_count,
                        queue.others && queue.wait_ns != UINT64_MAX && claim->policy->mode != WEIR_SHADOW);
            return;
        }
        if (claim->cost == 0) {
            return;
        }
        switch (one_step ? charge_as_read(r) : charge_place(r, max_wait_ns, wait_ns)) {
        case CHARGE_DONE:
            claim_set_dirty(r, claim);
            return;
        case CHARGE_NO_MEMORY:
            *r->out = (struct decision){.untracked = true};
            *wait_ns = NS_PER_S;
            return;
        case CHARGE_LOST: /* does not happen: the cells are pinned */
        case CHARGE_NO_ROOM:
            if (process_is_halted(r->t->process)) {
                *r->out = (struct decision){.untracked = true};
                *wait_ns = NS_PER_S;
                return;
            }
            if (!one_step) {
                (void) sched_yield(); /* let the holder run */
            }
            break;
        }
    }
}

/* Takes a place for the request's one claim. *wait_ns as weir_reserve(). */
static void reserve_place(struct request *r, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    struct claim *claim = &r->claims[0];
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        claim->rules[i] = policy_rule(&claim->policy->limits[i]);
        claim->before[i] = 0;
    }
    *r->out = (struct decision){.allowed = false};
    if (!claim->pinned && !insert_pin(r->t->process, claim->policy, claim->key, r->now_ns, claim->cells)) {
        r->out->untracked = true;
        *wait_ns = NS_PER_S;
        return;
    }
    find_place(r, max_wait_ns, wait_ns);
    if (!claim->pinned) {
        insert_unpin(r->t->process, claim->policy, claim->cells);
    }
}

/* Reserves for a key of a policy with limits; within an RCU section. */
static bool reserve_key(const struct check *c, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    struct weir_thread *t = c->t;
    const struct policy *policy = c->policy;
    struct decision decision = {.allowed = false};
    uint32_t cells[WEIR_MAX_LIMITS];
    struct claim claim = {.policy = policy, .key = c->key, .cost = c->cost, .cells = cells};
    struct request r = {
        .t = t, .set = c->set, .claims = &claim, .count = 1, .now_ns = reserve_time(t), .out = &decision};
    /* The key's own grant would be before the request in the queue: taking the slot settles it. */
    const size_t index = slot_take(t, policy, c->key, EPOCH_ASLEEP, r.now_ns);
    if (index != SLOT_NONE) {
        claim.cells = t->accounts[index].cells;
        claim.pinned = true;
    }
    reserve_place(&r, max_wait_ns, wait_ns);
    if (!decision.allowed && !decision.untracked && *wait_ns != UINT64_MAX) {
        top_denied_name(t->process, policy, c->key, claim.cells[0]);
        top_denied_add(t->process, claim.cells[0], claim_asked(&claim));
    }
    if (!decision.allowed && !decision.untracked && probe_is_traced(deny)) {
        denial_trace(policy, c->key, c->cost, 0, *wait_ns);
    }
    if (index != SLOT_NONE) {
        /* As a denial: the key goes to the table for this epoch and the next. */
        const bool no_room = !decision.allowed || *wait_ns != 0;
        t->accounts[index].deny_epoch = no_room ? load_relaxed(&t->line->epoch) : t->accounts[index].deny_epoch;
        slot_account_unlock(&t->accounts[index]);
    }
    counter_add(&t->shared->untracked_count, decision.untracked);
    check_tally(t, policy, decision.allowed);
    if (!decision.allowed && policy->mode == WEIR_SHADOW) {
        *wait_ns = 0;
    }
    return decision.allowed || policy->mode == WEIR_SHADOW;
}

/*
 * Asks one queue by its cell, and takes a place in one swap, without a pin. No other node uses the queue. Accepted: the
 * request was charged, but for a cost of 0. Refused: nothing was counted. Unknown: nothing was done, as a thread holds
 * units of the queue, or another thread was in between.
 */
static inline enum queue_answer ask_queue(const struct weir_thread *t, const struct policy_queue *queue,
                                          struct cell *cell, uint64_t hash, const struct queue_request *request,
                                          uint64_t *wait_ns)
{
    const uint64_t now_ns = reserve_time(t);
    uint64_t held = load_acquire(&cell->held); /* [T3] before the state, for the denial rule */
    struct dwcas_value value;
    const bool there = cell_read(cell, hash, &value);
    held |= load_acquire(&cell->held); /* [P1] after the state */
    struct state state = cell_state(value);
    if (!there || (held & HELD_UNITS) != 0) {
        return QUEUE_UNKNOWN;
    }
    uint64_t place_ns;
    const uint64_t asked = units_asked(request->cost);
    const enum queue_answer answer =
        queue_snapshot_ask(&queue->numbers, &state, now_ns, asked, request->max_wait_ns, &place_ns);
    if (answer == QUEUE_UNKNOWN || (answer == QUEUE_ACCEPTED && request->cost != 0 &&
                                    !dwcas_swap(&cell->state, &value, cell_value(state, value)))) {
        return QUEUE_UNKNOWN;
    }
    *wait_ns = place_ns;
    return answer;
}

/* Counts a refusal of a key that was refused before. False: it was not, or is traced, and nothing was counted. */
static bool count_refusal(const struct weir_thread *t, uint32_t at, uint64_t cost)
{
    struct process *process = t->process;
    if (probe_is_traced(deny) || !top_denied_has_name(&process->top_denied, at) ||
        (cost != 0 && !cell_meta_had(&process->table.metas[at], EVENT_REFUSED))) {
        return false;
    }
    top_denied_add(process, at, units_asked(cost));
    return true;
}

/* Asks the queue of a key without a slot, without an RCU section: all that is read is the thread's own or a cell. */
static inline enum queue_answer reserve_cached(const struct weir_thread *t, const weir_key *key, uint64_t cost,
                                               uint64_t max_wait_ns, uint64_t *wait_ns)
{
    const uint32_t epoch = load_acquire(&t->line->epoch); /* [S4] */
    const struct policy_queue *queue = policy_queue_place(t, key->policy);
    if (queue->epoch != epoch || queue->id != key->policy) {
        return QUEUE_UNKNOWN;
    }
    const struct table *table = &t->process->table;
    const uint64_t hash = cell_hash_salted(key->hash, queue->mix);
    struct cell *cell = table_guess(table_pairs_of(table, hash), hash);
    const struct queue_request request = {.cost = cost, .max_wait_ns = max_wait_ns};
    enum queue_answer answer = ask_queue(t, queue, cell, hash, &request, wait_ns);
    if (answer == QUEUE_REFUSED && !count_refusal(t, (uint32_t) (cell - table->cells), cost)) {
        answer = QUEUE_UNKNOWN;
    }
    if (answer != QUEUE_UNKNOWN) {
        struct tally *tally = &t->tallies[queue->id];
        counter_add(answer == QUEUE_ACCEPTED ? &tally->allowed : &tally->denied, 1);
        counter_add(&t->shared->slow_count, 1);
    }
    return answer;
}

/* Asks a queue, and caches its numbers for the next request. False: the request is for reserve_key(). */
static bool reserve_direct(const struct check *c, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    struct weir_thread *t = c->t;
    struct policy_queue queue;
    struct slot *slot;
    if (!policy_queue_of(t->process, c->policy, &queue)) {
        return false;
    }
    policy_queue_keep(t, c->set, c->policy, &queue, c->epoch);
    const uint64_t hash = cell_hash(c->policy, c->key, 0);
    const uint32_t at = table_find(&t->process->table, hash);
    if (at == TABLE_NONE || (slot_get(t, c->key->hash, &slot) && slot_is_live(t, slot))) {
        return false;
    }
    uint64_t place_ns;
    const struct queue_request request = {.cost = c->cost, .max_wait_ns = max_wait_ns};
    if (ask_queue(t, &queue, &t->process->table.cells[at], hash, &request, &place_ns) != QUEUE_ACCEPTED) {
        return false;
    }
    *wait_ns = place_ns;
    return true;
}

static __attribute__((noinline)) bool reserve_slow(struct weir_thread *t, const weir_key *key, uint64_t cost,
                                                   uint64_t max_wait_ns, uint64_t *wait_ns)
{
    counter_add(&t->shared->slow_count, 1);
    rcu_enter(t);
    struct check c = {.t = t, .key = key, .cost = cost, .commit = true, .epoch = load_acquire(&t->line->epoch)};
    c.set = process_policies(t->process); /* [S4] after the epoch */
    c.policy = check_policy(t->process, c.set, key);
    bool pass = true;
    if (c.policy == NULL) {
        (void) check_allow_unknown(t, NULL);
    } else if (c.policy->override != OVERRIDE_NONE) {
        const bool allowed = c.policy->override == OVERRIDE_ALLOW;
        denial_trace_entry(true, c.policy, key, cost);
        check_tally(t, c.policy, allowed);
        pass = allowed || c.policy->mode == WEIR_SHADOW;
        *wait_ns = pass ? 0 : UINT64_MAX;
    } else if (reserve_direct(&c, max_wait_ns, wait_ns) || charge_where_room(&c)) {
        check_tally(t, c.policy, true);
    } else {
        pass = reserve_key(&c, max_wait_ns, wait_ns);
    }
    rcu_leave(t);
    return pass;
}

bool weir_reserve(weir_thread *t, const weir_key *key, uint64_t cost, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    uint64_t ignored = 0;
    uint64_t *wait = wait_ns != NULL ? wait_ns : &ignored;
    *wait = 0;
    if (t == NULL || !misuse_begin(t, "weir_reserve")) {
        return true;
    }
    if (!slot_may_have(t, key->hash)) {
        const enum queue_answer answer = reserve_cached(t, key, cost, max_wait_ns, wait);
        return answer != QUEUE_UNKNOWN ? answer == QUEUE_ACCEPTED : reserve_slow(t, key, cost, max_wait_ns, wait);
    }
    struct slot *slot = slot_covering(t, key->hash, cost);
    if (slot != NULL) {
        (void) slot_spend(t, slot, load_relaxed(&slot->meta), load_relaxed(&slot->used), cost);
        return true;
    }
    return reserve_slow(t, key, cost, max_wait_ns, wait);
}
