/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deciding in the table.
 *
 * A request has one or more claims, each a key of a policy; a claim has a cell for every limit of its policy. The
 * request asks all its cells, and passes when all have room.
 *
 * With one cell and no grant it is charged in one step, by a compare-and-swap that fails if the room is gone. Else it
 * first holds what it wants in all cells: cost + extra, where extra, the grant, is at most headroom / (4 * threads) of
 * the claim's tightest limit, so that what all threads can hold at once is a quarter of what is left. Then it looks at
 * every cell again, with a compare-and-swap that changes nothing but the cell's generation, so that nobody can charge
 * on a state from before the hold [P1]; where one has no room, all that is held is let go [P2], and nothing was
 * counted. At last every cell is charged and the cost is let go; the grant stays held.
 *
 * The denial rule. Units that another thread was granted and has not used are no reason to deny. So a request is denied
 * only if a limit had no room for it, and that cell's `held` counted no units and was the same word (it has a version)
 * before the state was read and after: then no grant was live, given or given back in between, and all that is charged
 * has been used. Otherwise what the others hold is taken back (settle_key), and the request tries again.
 *
 * The exception: what a thread holds cannot be taken back while it stands between raising `held` and publishing its
 * grant, or while another thread settles it. That is some ten nanoseconds, or one barrier; but that thread may be
 * preempted just there. The request then yields the processor, and at last naps, so that it runs; and is denied all the
 * same after some 10 ms (settle_wait). So long a check waits only for units that are there,
 * and whose holder does not run.
 *
 * A queue (leaky bucket) has room for a request when its turn has come, not for a number of units; so while another
 * request holds any, it has none, and the two decide one after the other.
 *
 * Units held at once must not overflow `held`: of requests for more than HOLD_MOST units only one at a time holds any.
 *
 * Progress: with one cell lock-free, but for logs: a retry means that another thread has charged, settled or been
 * granted. With several, two requests for the last units can make each other let go; they yield the processor and try
 * again.
 */
#include <sched.h>

#include "algorithm/bucket.h"
#include "base/numbers.h"
#include "base/spin.h"
#include "check/decide.h"
#include "check/denial.h"
#include "check/request.h"
#include "process/insert.h"
#include "thread/limiter.h"
#include "thread/settle.h"
#include "thread/slot.h"

static struct cell *cell_of(const struct request *r, const struct claim *claim, size_t i)
{
    return &r->t->process->table.cells[claim->cells[i]];
}

/* A bucket that was last charged by another rate, of another tier or an earlier policy, goes over to this one. */
static void take_over(const struct request *r, const struct claim *claim, size_t i)
{
    const struct rule *rule = &claim->rules[i];
    struct cell *cell = cell_of(r, claim, i);
    struct dwcas_value value;
    while (cell_read(cell, cell_hash(claim->policy, claim->key, i), &value) &&
           bucket_rate_id(cell_state(value)) != rule->rate_id && value.a != 0) {
        const struct state state = bucket_convert_rate(rule, cell_state(value), r->now_ns);
        if (dwcas_swap(&cell->state, &value, cell_value(state, value))) {
            return;
        }
    }
}

/* Reads one cell, whose log (if it has one) has been brought up to date. */
static bool hear(struct request *r, struct claim *claim, size_t i, uint64_t mine, struct dwcas_value *value)
{
    const struct cell *cell = cell_of(r, claim, i);
    struct limit_reading *reading = &claim->readings[i];
    reading->held = load_acquire(&cell->held); /* [T3] before the state, for the denial rule */
    if (!cell_read(cell, cell_hash(claim->policy, claim->key, i), value)) {
        return false;
    }
    reading->state = cell_state(*value);
    reading->level = reading->state;
    struct process *process = r->t->process;
    const uint32_t at = claim->cells[i];
    const uint64_t asked = claim_asked(claim);
    const bool mirrored = process_shares(process, claim->policy);
    if (mirrored) {
        claim->rules[i] = allowance_rule(process, claim->policy, i, at, asked);
        reading->level = allowance_level(process, claim->policy, &claim->rules[i], at, reading->state, r->now_ns);
    }
    const uint64_t others = (load_acquire(&cell->held) & HELD_UNITS) - mine; /* [P1] after the state */
    reading->left = saturating_sub(rule_headroom(&claim->rules[i], reading->level, r->now_ns), others);
    if (mirrored) {
        reading->left = allowance_left(process, &(struct allowance_query){.policy = claim->policy,
                                                                          .rule = &claim->rules[i],
                                                                          .state = reading->state,
                                                                          .headroom = reading->left,
                                                                          .held = others,
                                                                          .asked = asked,
                                                                          .now_ns = r->now_ns,
                                                                          .cell = at});
    }
    if (others != 0 && rule_is_queue(&claim->rules[i])) {
        reading->left = 0;
    }
    return true;
}

/* Hears one limit. `mine`: units of those held there that are this request's own. False: the cell is another key's. */
static bool ask_one(struct request *r, struct claim *claim, size_t i, uint64_t mine, struct dwcas_value *value)
{
    if (rule_has_history(&claim->rules[i])) {
        struct process *process = r->t->process;
        history_store_lock(process, claim->cells[i]);
        const bool there = history_store_refresh(process, claim->cells[i], cell_hash(claim->policy, claim->key, i),
                                                 &claim->rules[i], r->now_ns);
        history_store_unlock(process, claim->cells[i]);
        if (!there) {
            return false;
        }
    } else if (rule_is_bucket(&claim->rules[i])) {
        take_over(r, claim, i);
    }
    return hear(r, claim, i, mine, value);
}

bool claim_read(struct request *r, struct claim *claim, uint64_t mine)
{
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        struct dwcas_value value;
        if (!ask_one(r, claim, i, mine, &value)) {
            return false;
        }
        claim->readings[i].left = saturating_sub(claim->readings[i].left, claim->before[i]);
    }
    return true;
}

/* Where a claim has the least left; *denied: how many of its limits have less than it asks for. */
static size_t tightest(const struct claim *claim, size_t *denied)
{
    size_t least = 0;
    *denied = 0;
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        *denied += claim->readings[i].left < claim_asked(claim);
        if (claim->readings[i].left < claim->readings[least].left) {
            least = i;
        }
    }
    return least;
}

/* The denial rule. */
static bool denial_is_sure(const struct request *r, const struct claim *claim)
{
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        const uint64_t held = claim->readings[i].held;
        /* [T3] after the state, which was read with acquire. */
        if (claim->readings[i].left < claim_asked(claim) && (held & HELD_UNITS) == 0 &&
            load_acquire(&cell_of(r, claim, i)->held) == held) {
            return true;
        }
    }
    return false;
}

/* Fills in a denial: by the limit that will be the last to let the request pass. */
static void deny(struct request *r)
{
    struct decision strictest = {.allowed = false};
    for (size_t c = 0; c < r->count; c++) {
        struct decision one;
        if (!r->claims[c].short_of || r->claims[c].optional) {
            continue;
        }
        denial_of_claim(r, &r->claims[c], &one);
        if (one.retry_after_ns > strictest.retry_after_ns) {
            strictest = one;
            strictest.key_index = (uint8_t) c;
        }
    }
    *r->out = strictest;
}

/* Remembers who was refused: of a forgotten key it is the most important thing to know (evicted_sketch.c). */
static void mark_refused(struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        const struct claim *claim = &r->claims[c];
        for (size_t i = 0; claim->short_of && !claim->placeless && i < claim->policy->limit_count; i++) {
            if (claim->readings[i].left < claim_asked(claim)) {
                cell_meta_record(&r->t->process->table.metas[claim->cells[i]], EVENT_REFUSED);
            }
        }
    }
}

struct state claim_charge_base(const struct request *r, const struct claim *claim, size_t i)
{
    const struct limit_reading *reading = &claim->readings[i];
    const struct rule *rule = &claim->rules[i];
    /* In parts every unit takes the time of those that pass elsewhere, from the level on. */
    const bool in_parts = rule_is_bucket(rule) && process_shares(r->t->process, claim->policy) &&
                          load_relaxed(&claim->policy->outage_mode) == OUTAGE_MODE_SHARE;
    return in_parts ? reading->level : reading->state;
}

enum charge claim_charge_cell(struct request *r, struct claim *claim, size_t i, uint64_t cost, uint64_t mine,
                              uint64_t wanted, uint64_t add)
{
    struct process *process = r->t->process;
    struct cell *cell = cell_of(r, claim, i);
    const struct rule *rule = &claim->rules[i];
    struct limit_reading *reading = &claim->readings[i];
    const bool is_log = rule_has_history(rule);
    const uint32_t at = claim->cells[i];
    enum charge result;
    if (is_log) {
        history_store_lock(process, at);
    }
    for (;;) {
        struct dwcas_value value;
        if ((is_log && !history_store_refresh(process, at, cell_hash(claim->policy, claim->key, i), rule, r->now_ns)) ||
            !hear(r, claim, i, mine, &value)) {
            result = CHARGE_LOST;
            break;
        }
        if (reading->left < wanted) {
            result = CHARGE_NO_ROOM;
            break;
        }
        struct state charged = claim_charge_base(r, claim, i);
        if (is_log) {
            /* Beside what others have been promised by the same word. */
            const uint64_t others = wanted != 0 ? (load_acquire(&cell->held) & HELD_UNITS) - mine : 0;
            struct history *history =
                history_store_room(process, at, rule, saturating_add(max_u64(cost, wanted), others), r->now_ns);
            history = history == NULL && wanted == 0 ? history_store_get(process, at)
                                                     : history; /* it was promised: the oldest give way */
            if (history == NULL) {
                result = CHARGE_NO_MEMORY;
                break;
            }
            history_push(history, r->now_ns, cost);
            charged = history_summary(history, rule);
        } else if (cost != 0) {
            charged = rule_charge(rule, charged, r->now_ns, cost);
        }
        struct dwcas_value next = cell_value(charged, value);
        next.b += add;
        if (dwcas_swap(&cell->state, &value, next)) {
            reading->state = reading->level = charged;
            reading->left -= min_u64(cost, reading->left);
            if (rule_is_queue(rule)) {
                reading->left = rule_headroom(rule, charged, r->now_ns);
            }
            result = CHARGE_DONE;
            break;
        }
        if (is_log) {
            (void) history_pop(history_store_get(process, at),
                               cost); /* there was room for them, so nothing was pushed out */
        }
    }
    if (is_log) {
        history_store_unlock(process, at);
    }
    return result;
}

void claim_hold(struct request *r, const struct claim *claim, uint64_t delta)
{
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        (void) cell_hold(cell_of(r, claim, i), delta);
    }
}

/* Whether a claim takes part in the charging. */
static bool takes(const struct claim *claim)
{
    return claim->cost != 0 && !claim->placeless && !(claim->optional && claim->short_of);
}

/* Holds, or with `back` lets go, what all claims want. */
static void hold_all(struct request *r, bool account)
{
    for (size_t c = 0; c < r->count; c++) {
        struct claim *claim = &r->claims[c];
        if (takes(claim)) {
            const uint64_t all = claim->cost + claim->granted;
            claim_hold(r, claim, account ? (uint64_t) 0 - all : all);
        }
    }
}

/* Units that the first `count` claims of this request hold in a cell: more than one's, where a key is named twice. */
static uint64_t held_in(const struct request *r, size_t count, uint32_t cell)
{
    uint64_t units = 0;
    for (size_t c = 0; c < count; c++) {
        const struct claim *claim = &r->claims[c];
        for (size_t i = 0; takes(claim) && i < claim->policy->limit_count; i++) {
            units += claim->cells[i] == cell ? claim->cost + claim->granted : 0;
        }
    }
    return units;
}

/* Looks again at all that is held. */
static enum charge look_all(struct request *r, struct claim **placeless)
{
    *placeless = NULL;
    for (size_t c = 0; c < r->count; c++) {
        struct claim *claim = &r->claims[c];
        for (size_t i = 0; i < claim->policy->limit_count && takes(claim); i++) {
            /* As when it was asked: a claim wants room for itself and the ones before it, by its own limits. */
            const uint64_t mine = held_in(r, r->count, claim->cells[i]);
            const uint64_t wanted = held_in(r, c + 1, claim->cells[i]);
            /* Nothing is charged yet: what changes is the generation [P1]. */
            const enum charge seen = claim_charge_cell(r, claim, i, 0, mine, wanted, GENERATION_ONE);
            if (seen != CHARGE_DONE) {
                *placeless = seen == CHARGE_NO_MEMORY && claim->optional ? claim : NULL;
                return seen;
            }
        }
    }
    return CHARGE_DONE;
}

/* Holds, looks, and charges or lets go. All cells are pinned. */
static enum charge charge_held(struct request *r)
{
    bool giant = false;
    for (size_t c = 0; c < r->count; c++) {
        giant = giant || r->claims[c].cost > HOLD_MOST - GRANT_MAX;
    }
    if (giant) {
        spin_lock(&r->t->process->oversized);
    }
    hold_all(r, false); /* [P2] */
    struct claim *placeless;
    enum charge seen = look_all(r, &placeless);
    if (seen != CHARGE_DONE) {
        hold_all(r, true);
    }
    if (placeless != NULL) {
        placeless->placeless = true; /* the others go on without it */
        seen = CHARGE_NO_ROOM;
    }
    for (size_t c = 0; c < r->count && seen == CHARGE_DONE; c++) {
        struct claim *claim = &r->claims[c];
        for (size_t i = 0; i < claim->policy->limit_count && takes(claim); i++) {
            /* A log has made room when it was looked at. */
            (void) claim_charge_cell(r, claim, i, claim->cost, claim->cost + claim->granted, 0, 0);
            (void) cell_hold(cell_of(r, claim, i), (uint64_t) 0 - claim->cost); /* I4: after it was charged */
            claim->readings[i].left -= min_u64(claim->granted, claim->readings[i].left);
        }
    }
    if (giant) {
        spin_unlock(&r->t->process->oversized);
    }
    return seen;
}

void claim_set_dirty(const struct request *r, const struct claim *claim)
{
    if (claim->policy->scope != WEIR_SCOPE_FLEET || !r->t->process->fleet) {
        return;
    }
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        table_set_dirty(&r->t->process->table, claim->cells[i]);
    }
}

/* Charges all cells or none. */
static enum charge charge_all(struct request *r)
{
    struct claim *first = &r->claims[0];
    const bool plain = r->count == 1 && first->granted == 0 && first->policy->limit_count == 1;
    const enum charge result = plain ? claim_charge_cell(r, first, 0, first->cost, 0, first->cost, 0) : charge_held(r);
    for (size_t c = 0; c < r->count && result == CHARGE_DONE; c++) {
        if (takes(&r->claims[c])) {
            claim_set_dirty(r, &r->claims[c]);
        }
    }
    return result;
}

/* Units of a cell that this request was granted: they can be spent. */
static uint64_t granted_in(const struct request *r, uint32_t cell)
{
    uint64_t units = 0;
    for (size_t c = 0; c < r->count; c++) {
        for (size_t i = 0; !r->claims[c].placeless && i < r->claims[c].policy->limit_count; i++) {
            units += r->claims[c].cells[i] == cell ? r->claims[c].granted : 0;
        }
    }
    return units;
}

/* Fills in what is left: of the limit with the least. */
static void allow(struct request *r)
{
    struct decision *out = r->out;
    *out = (struct decision){.allowed = true, .remaining = UINT64_MAX};
    for (size_t c = 0; c < r->count; c++) {
        const struct claim *claim = &r->claims[c];
        if (claim->optional && claim->short_of) {
            out->left_out = true;
            continue;
        }
        size_t denied;
        const size_t least = tightest(claim, &denied);
        const uint64_t limit = claim->policy->limits[least].rule.limit;
        const uint64_t left = min_u64(claim->readings[least].left + granted_in(r, claim->cells[least]), limit);
        if (left < out->remaining || out->limit == 0) {
            out->key_index = (uint8_t) c;
            out->limit_index = (uint8_t) least;
            out->limit = limit;
            out->remaining = left;
            out->reset_after_ns = rule_reset_after(&claim->rules[least], claim->readings[least].level, r->now_ns);
        }
    }
    if (out->limit == 0) {
        out->limit = r->claims[0].policy->limits[0].rule.limit; /* all were left out */
        out->remaining = 0;
    }
    out->remaining = min_u64(out->remaining, out->limit);
}

bool decide_wait(struct request *r, const struct claim *claim, unsigned *fruitless)
{
    return settle_key(r->t->limiter, r->t, claim->policy, claim->key) || settle_wait(fruitless);
}

/* What asking everybody comes to. */
enum answer { ANSWER_ROOM, ANSWER_DENIED, ANSWER_AGAIN, ANSWER_LOST };

/* What earlier claims of a request take from the cells of this one. */
static void count_before(struct request *r, size_t c)
{
    struct claim *claim = &r->claims[c];
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        claim->before[i] = 0;
        for (size_t other = 0; other < c; other++) {
            const struct claim *earlier = &r->claims[other];
            for (size_t j = 0; takes(earlier) && j < earlier->policy->limit_count; j++) {
                claim->before[i] += earlier->cells[j] == claim->cells[i] ? earlier->cost : 0;
            }
        }
    }
}

static enum answer ask_all(struct request *r, unsigned *fruitless)
{
    enum answer answer = ANSWER_ROOM;
    for (size_t c = 0; c < r->count; c++) {
        struct claim *claim = &r->claims[c];
        size_t denied;
        if (claim->placeless) {
            claim->short_of = true;
            continue;
        }
        count_before(r, c);
        if (!claim_read(r, claim, 0)) {
            return ANSWER_LOST;
        }
        const size_t least = tightest(claim, &denied);
        claim->short_of = denied != 0;
        claim->granted = 0;
        if (claim->short_of) {
            if (!denial_is_sure(r, claim) && decide_wait(r, claim, fruitless)) {
                return ANSWER_AGAIN;
            }
            answer = claim->optional ? answer : ANSWER_DENIED;
        } else if (claim->want != 0 && claim->cost != 0 && claim->policy->grants) {
            const uint64_t left = claim->readings[least].left;
            claim->granted = min_u64(claim->want, decide_grant_share(r->t, left - claim->cost));
        }
    }
    return answer;
}

static void want_nothing(struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        r->claims[c].want = 0;
    }
}

static bool takes_any(const struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        if (takes(&r->claims[c])) {
            return true;
        }
    }
    return false;
}

/*
 * Whether a denial is to be looked at again, at a later time. A thread that was interrupted, or goes by the tick, may
 * be behind the time at which a bucket was charged by another; what has refilled in between is then missing.
 */
static bool renew_time(struct request *r)
{
    const struct decision *out = r->out;
    const struct claim *claim = &r->claims[out->key_index];
    const struct limiter *limiter = r->t->limiter;
    if (!rule_is_bucket(&claim->rules[out->limit_index]) || out->retry_after_ns > limiter->tick_ns) {
        return false;
    }
    const uint64_t now_ns = limiter_time(limiter);
    const bool later = now_ns > r->now_ns;
    r->now_ns = later ? now_ns : r->now_ns;
    return later;
}

/* Until it is decided. False: a cell was given to another key on the way. */
static bool decide(struct request *r, bool take)
{
    unsigned fruitless = 0;
    unsigned rounds = 0;
    bool renewed = false;
    for (;;) {
        const enum answer answer = ask_all(r, &fruitless);
        if (answer == ANSWER_LOST) {
            return false;
        }
        if (answer == ANSWER_AGAIN) {
            want_nothing(r);
            continue;
        }
        if (answer == ANSWER_DENIED) {
            deny(r);
            if (!renewed && renew_time(r)) {
                renewed = true;
                continue;
            }
            if (take) {
                mark_refused(r);
            }
            return true;
        }
        if (!take || !takes_any(r)) {
            allow(r);
            return true;
        }
        switch (charge_all(r)) {
        case CHARGE_DONE:
            allow(r);
            return true;
        case CHARGE_LOST:
            return false;
        case CHARGE_NO_MEMORY:
            *r->out =
                (struct decision){.untracked = true, .limit = r->claims[0].rules[0].limit, .retry_after_ns = NS_PER_S};
            return true;
        case CHARGE_NO_ROOM:
            if (rounds++ != 0 && (r->count > 1 || r->claims[0].policy->limit_count > 1)) {
                (void) sched_yield(); /* to whom it is that holds */
            }
            want_nothing(r); /* others are at it: take only what is needed */
            break;
        }
    }
}

/* Lets go the cells of the first `count` claims that were pinned here. */
static void unpin_all(struct request *r, size_t count)
{
    for (size_t c = 0; c < count; c++) {
        const struct claim *claim = &r->claims[c];
        if (!claim->pinned && !claim->unplaced) {
            insert_unpin(r->t->process, claim->policy, claim->cells);
        }
    }
}

/* Finds the cells of claims that have none, and pins them if there are several. False: there is no room for one. */
static bool find_all(struct request *r, bool pin)
{
    for (size_t c = 0; c < r->count; c++) {
        struct claim *claim = &r->claims[c];
        if (claim->pinned) {
            continue;
        }
        const bool found = pin ? insert_pin(r->t->process, claim->policy, claim->key, r->now_ns, claim->cells)
                               : insert_locate(r->t->process, claim->policy, claim->key, r->now_ns, claim->cells);
        claim->unplaced = !found;
        claim->placeless = claim->placeless || !found;
        if (!found && !claim->optional) {
            if (pin) {
                unpin_all(r, c);
            }
            return false;
        }
    }
    return true;
}

void decide_request(struct request *r, bool take)
{
    for (size_t c = 0; c < r->count; c++) {
        struct claim *claim = &r->claims[c];
        claim->short_of = claim->placeless = claim->unplaced = false;
        claim->granted = 0;
        for (size_t i = 0; i < claim->policy->limit_count; i++) {
            claim->rules[i] = policy_rule(&claim->policy->limits[i]);
        }
    }
    /* One cell is charged in one step; several must all be there until the last is charged. */
    const bool pin = r->count > 1 || r->claims[0].policy->limit_count > 1;
    bool done = false;
    while (!done) {
        if (!find_all(r, pin)) {
            for (size_t c = 0; c < r->count; c++) {
                r->claims[c].short_of = false; /* nobody was asked at last */
            }
            *r->out =
                (struct decision){.untracked = true, .limit = r->claims[0].rules[0].limit, .retry_after_ns = NS_PER_S};
            return;
        }
        done = decide(r, take);
        if (pin) {
            unpin_all(r, r->count);
        }
    }
}
