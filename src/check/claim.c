/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading, reserving and charging the cells of one claim; see claim.h.
 *
 * Ordering: [P1] and [P2] of decide.c, [T2] and [T3] of cell.h.
 * Progress: lock-free, but for logs, each of which has a lock.
 */
#include "check/claim.h"

#include "algorithm/bucket.h"
#include "base/numbers.h"
#include "base/spin.h"
#include "process/allowance.h"

/*
 * A bucket of another rate, of another tier or an earlier policy, is converted to this one. From here on the bucket
 * refills at this rate; in the fleet from the next report on, by which the charge or the denial is told.
 */
static void convert_rate(const struct request *r, const struct claim *claim, size_t i)
{
    const struct rule *rule = &claim->rules[i];
    struct cell *cell = claim_cell(r, claim, i);
    struct dwcas_value value;
    while (cell_read(cell, cell_hash(claim->policy, claim->key, i), &value) &&
           bucket_rate_id(cell_state(value)) != rule->rate_id && value.a != 0) {
        const struct state state = bucket_convert_rate(rule, cell_state(value), r->now_ns);
        if (dwcas_swap(&cell->state, &value, cell_value(state, value))) {
            return;
        }
    }
}

/* Reads one cell, whose log (if it has one) is up to date. False: the cell has become another key's. */
static bool read_cell_state(struct request *r, struct claim *claim, size_t i, uint64_t own, struct dwcas_value *value)
{
    const struct cell *cell = claim_cell(r, claim, i);
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
    const bool shared = process_shares(process, claim->policy);
    if (shared) {
        claim->rules[i] = allowance_rule(process, claim->policy, i, at, asked);
        reading->level = allowance_level(process, claim->policy, &claim->rules[i], at, reading->state, r->now_ns);
    }
    const uint64_t others = (load_acquire(&cell->held) & HELD_UNITS) - own; /* [P1] after the state */
    reading->left = saturating_sub(rule_headroom(&claim->rules[i], reading->level, r->now_ns), others);
    if (shared) {
        reading->left =
            allowance_left(process, &(struct allowance_query){.outage_mode = allowance_outage_mode(claim->policy),
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

/* Brings the log of a limit up to date. False: the cell has become another key's. */
static bool refresh_log(struct request *r, const struct claim *claim, size_t i)
{
    struct process *process = r->t->process;
    history_store_lock(process, claim->cells[i]);
    const bool there = history_store_refresh(process, claim->cells[i], cell_hash(claim->policy, claim->key, i),
                                             &claim->rules[i], r->now_ns);
    history_store_unlock(process, claim->cells[i]);
    return there;
}

static bool read_one_limit(struct request *r, struct claim *claim, size_t i, uint64_t own)
{
    struct dwcas_value value;
    bool there = true;
    switch (rule_kind(&claim->rules[i])) {
    case RULE_WINDOW:
        break;
    case RULE_HISTORY:
        there = refresh_log(r, claim, i);
        break;
    case RULE_BUCKET:
        if (!r->peeks) {
            convert_rate(r, claim, i);
        }
        break;
    }
    return there && read_cell_state(r, claim, i, own, &value);
}

bool claim_read_limits(struct request *r, struct claim *claim, uint64_t own)
{
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        if (!read_one_limit(r, claim, i, own)) {
            return false;
        }
        claim->readings[i].left = saturating_sub(claim->readings[i].left, claim->before[i]);
    }
    return true;
}

struct state claim_base(const struct request *r, const struct claim *claim, size_t i)
{
    const struct limit_reading *reading = &claim->readings[i];
    /* Under an equal share a unit takes the time of those that pass on other nodes too, counted from the level. */
    const bool shares = rule_is_bucket(&claim->rules[i]) && process_shares(r->t->process, claim->policy) &&
                        load_relaxed(&claim->policy->outage_mode) == OUTAGE_MODE_SHARE;
    return shares ? reading->level : reading->state;
}

/* What is to happen to one cell. */
struct change {
    uint64_t cost;   /* units charged */
    uint64_t own;    /* units that the cell holds for this request */
    uint64_t wanted; /* units that must be left; 0: the cost was promised before */
    bool reserves;   /* the generation changes [P2] */
};

/* What a limit reads after a charge. */
static void update_reading(const struct request *r, struct claim *claim, size_t i, struct state charged, uint64_t cost)
{
    struct limit_reading *reading = &claim->readings[i];
    reading->state = reading->level = charged;
    reading->left -= min_u64(cost, reading->left);
    if (rule_is_queue(&claim->rules[i])) {
        reading->left = rule_headroom(&claim->rules[i], charged, r->now_ns);
    }
}

static enum charge change_state(struct request *r, struct claim *claim, size_t i, const struct change *change)
{
    struct dwcas_value value;
    struct dwcas_value next;
    struct state charged;
    unsigned waits = 0;
    bool marked = false;
    bool dead = false;
    do {
        if (!read_cell_state(r, claim, i, change->own, &value)) {
            return CHARGE_LOST;
        }
        /* A mark goes soon, or its settler has died. */
        marked = change->reserves && cell_is_marked(value);
        if (claim->readings[i].left < change->wanted || (marked && (dead || process_is_halted(r->t->process)))) {
            return CHARGE_NO_ROOM;
        }
        charged = claim_base(r, claim, i);
        /* Without a cost too: the state becomes that of the present window, in which a grant's units are charged later.
         */
        if (!change->reserves) {
            charged = rule_charge(&claim->rules[i], charged, r->now_ns, change->cost);
        }
        next = cell_value(charged, value);
        next = change->reserves ? cell_next_generation(next) : next;
        if (marked) {
            dead = !process_wait(r->t->process, waits++);
        }
    } while (marked || !dwcas_swap(&claim_cell(r, claim, i)->state, &value, next));
    update_reading(r, claim, i, charged, change->cost);
    return CHARGE_DONE;
}

/* The log of a limit with room for a change; NULL: there is no memory for it. The log is locked. */
static struct history *log_with_room(struct request *r, const struct claim *claim, size_t i,
                                     const struct change *change)
{
    struct process *process = r->t->process;
    const uint32_t at = claim->cells[i];
    /* Room is made beside what others have been promised by the same word. */
    const uint64_t held = load_acquire(&claim_cell(r, claim, i)->held) & HELD_UNITS;
    const uint64_t others = change->wanted != 0 ? held - change->own : 0;
    const uint64_t units = saturating_add(max_u64(change->cost, change->wanted), others);
    struct history *history = history_store_room(process, at, &claim->rules[i], units, r->now_ns);
    /* What was promised is charged all the same: the oldest units make room. */
    return history != NULL || change->wanted != 0 ? history : history_store_get(process, at);
}

/* change_state() for a limit with a log, which is locked. */
static enum charge change_log(struct request *r, struct claim *claim, size_t i, const struct change *change)
{
    struct process *process = r->t->process;
    const struct rule *rule = &claim->rules[i];
    const uint32_t at = claim->cells[i];
    for (;;) {
        struct dwcas_value value;
        if (!history_store_refresh(process, at, cell_hash(claim->policy, claim->key, i), rule, r->now_ns) ||
            !read_cell_state(r, claim, i, change->own, &value)) {
            return CHARGE_LOST;
        }
        if (claim->readings[i].left < change->wanted) {
            return CHARGE_NO_ROOM;
        }
        struct history *history = log_with_room(r, claim, i, change);
        if (history == NULL) {
            return CHARGE_NO_MEMORY;
        }
        history_push(history, r->now_ns, change->cost);
        const struct state charged = history_summary(history, rule);
        const struct dwcas_value next = cell_value(charged, value);
        if (dwcas_swap(&claim_cell(r, claim, i)->state, &value, change->reserves ? cell_next_generation(next) : next)) {
            update_reading(r, claim, i, charged, change->cost);
            return CHARGE_DONE;
        }
        /* There was room for the units, so none were pushed out. */
        (void) history_pop(history_store_get(process, at), change->cost);
    }
}

static enum charge change_cell(struct request *r, struct claim *claim, size_t i, const struct change *change)
{
    enum charge result = CHARGE_NO_ROOM;
    switch (rule_kind(&claim->rules[i])) {
    case RULE_WINDOW:
    case RULE_BUCKET:
        result = change_state(r, claim, i, change);
        break;
    case RULE_HISTORY:
        history_store_lock(r->t->process, claim->cells[i]);
        result = change_log(r, claim, i, change);
        history_store_unlock(r->t->process, claim->cells[i]);
        break;
    }
    return result;
}

enum charge claim_charge_cell(struct request *r, struct claim *claim, size_t i)
{
    return change_cell(r, claim, i, &(struct change){.cost = claim->cost, .wanted = claim->cost});
}

enum charge claim_verify_cell(struct request *r, struct claim *claim, size_t i, uint64_t own, uint64_t wanted)
{
    return change_cell(r, claim, i, &(struct change){.own = own, .wanted = wanted, .reserves = true});
}

enum charge claim_commit_cell(struct request *r, struct claim *claim, size_t i, uint64_t own)
{
    return change_cell(r, claim, i, &(struct change){.cost = claim->cost, .own = own});
}

void claim_reserve(struct request *r, const struct claim *claim, uint64_t units)
{
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        (void) cell_hold(claim_cell(r, claim, i), units); /* [P2] */
    }
}

void claim_release(struct request *r, const struct claim *claim, uint64_t units)
{
    claim_reserve(r, claim, (uint64_t) 0 - units);
}

void claim_set_dirty(const struct request *r, const struct claim *claim)
{
    if (!process_shares(r->t->process, claim->policy)) {
        return;
    }
    for (size_t i = 0; i < claim->policy->limit_count; i++) {
        table_set_dirty(&r->t->process->table, claim->cells[i]);
    }
}
