/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts put right afterwards: units given back, units whose number was not known before, keys forgotten on purpose.
 *
 * What is given back is not taken out of what the fleet is told was admitted: that never decreases. It is counted
 * beside it, in struct refund_ledger, and told as a second count that never decreases; so saying both any number of
 * times is harmless.
 *
 * Ordering
 *   [A1] back: the state is lowered first (dwcas_swap, a full barrier), then `back` is raised with release. The
 *        background thread reads `back` with acquire, then the state: it may see units that it does not yet know to be
 *        given back, but never takes the state for higher than it is, and so never tells of units that did not pass.
 *
 * Progress: lock-free, but for logs and settle_key.
 */
#include <errno.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "base/rcu.h"
#include "check/check.h"
#include "check/reset.h"
#include "process/insert.h"
#include "thread/limiter.h"
#include "thread/settle.h"
#include "thread/slot.h"

/* One key whose cells are pinned. */
struct subject {
    struct process *process;
    struct weir_thread *t;
    const struct policy *policy;
    const weir_key *key;
    uint64_t now_ns;
    size_t slot; /* locked; SLOT_NONE: none */
    uint32_t own_cells[WEIR_MAX_LIMITS];
    uint32_t *cells;
};

/* How often units that others hold are taken back, or waited for, in all. */
#define SETTLE_ROUNDS 160

/* False: the table has no room for the key, so nothing can have been counted there. */
static bool subject_take(struct subject *s, struct weir_thread *t, const struct policy *policy, const weir_key *key)
{
    *s = (struct subject){.process = t->process, .t = t, .policy = policy, .key = key, .now_ns = tick_now(t, policy)};
    unsigned fruitless = 0;
    /* Where somebody else settles the slot, what this thread has just used is not in the state yet. */
    do {
        s->slot = slot_take(t, policy, key, EPOCH_ASLEEP, s->now_ns);
    } while (s->slot == SLOT_NONE && slot_find(t, key->hash) != SLOT_NONE && settle_wait(&fruitless));
    s->cells = s->slot != SLOT_NONE ? t->accounts[s->slot].cells : s->own_cells;
    return s->slot != SLOT_NONE || insert_pin(t->process, policy, key, s->now_ns, s->cells);
}

static void subject_leave(struct subject *s)
{
    if (s->slot != SLOT_NONE) {
        slot_unlock(&s->t->accounts[s->slot]);
    } else {
        insert_unpin(s->process, s->policy, s->cells);
    }
}

static void set_dirty(struct process *process, const struct policy *policy, uint32_t cell)
{
    if (process->fleet && policy->scope == WEIR_SCOPE_FLEET) {
        table_set_dirty(&process->table, cell);
    }
}

/* The most that the window of a state, and the one before, can give back of their own. `fleet`: others' are in it. */
static void own_of_both(const struct process *process, uint32_t at, bool fleet, struct state state, uint64_t *now,
                        uint64_t *before)
{
    *now = window_count(state);
    *before = window_previous(state);
    if (!fleet) {
        return;
    }
    /* A guess: it decides between two windows to give back to, and no more. */
    const struct merged_counts merged = sync_state_merged(process, at);
    const uint32_t behind = (window_seq(state) - merged.seq) & WINDOW_SEQ_MASK;
    if (behind == 0) {
        *now = saturating_sub(*now, merged.now);
        *before = saturating_sub(*before, merged.before);
    } else if (behind == 1) {
        *before = saturating_sub(*before, merged.now);
    }
}

/* Of which units some are given back. */
enum scope {
    SCOPE_NOW, /* of this window's own */
    SCOPE_OWN, /* and of those of the window before */
    SCOPE_ALL  /* and of the others' */
};

static uint64_t refund_log(struct process *process, uint32_t at, const struct rule *rule, uint64_t units,
                           uint64_t now_ns, enum scope scope)
{
    uint64_t given = 0;
    if (scope == SCOPE_NOW && (load_acquire(&process->table.cells[at].held) & HELD_UNITS) != 0) {
        return 0; /* what has passed on grants is later than what is in the log: first that must be there */
    }
    history_store_lock(process, at);
    struct history *history = history_store_get(process, at);
    if (history != NULL) {
        history_expire(history, rule, now_ns);
        given = history_pop(history, units);
        history_store_publish(process, at, rule);
    }
    history_store_unlock(process, at);
    return given;
}

/* Gives back up to `units` of one limit. Returns how many. */
static uint64_t refund_cell(struct process *process, uint32_t at, const struct rule *rule, uint64_t units,
                            uint64_t now_ns, enum scope scope)
{
    if (rule_has_history(rule)) {
        return refund_log(process, at, rule, units, now_ns, scope);
    }
    struct cell *cell = &process->table.cells[at];
    const bool fleet = process->fleet && cell_meta_is(&process->table.metas[at], CELL_SHARED);
    struct refund_ledger *refunds =
        fleet ? refund_ledger_make(process, at) : NULL; /* [A1] before the state is lowered */
    struct dwcas_value value = dwcas_read(&cell->state);
    struct state state;
    struct state next;
    uint64_t given;
    uint64_t before;
    do {
        uint64_t into_ns;
        state = rule_is_bucket(rule) ? cell_state(value) : window_roll(rule, cell_state(value), now_ns, &into_ns);
        uint64_t most_now = UINT64_MAX;
        uint64_t most_before = UINT64_MAX;
        if (scope != SCOPE_ALL && !rule_is_bucket(rule)) {
            own_of_both(process, at, fleet, state, &most_now, &most_before);
        }
        uint64_t most = units;
        if (scope == SCOPE_NOW) {
            /* The last part of a unit is given back when all that was used is known to be in the state. */
            most = min_u64(units, rule_is_bucket(rule) ? bucket_owed(rule, state, now_ns)
                                                       : min_u64(most_now, window_count(state)));
        }
        next = rule_refund(rule, state, now_ns, most, most_now, most_before, &given, &before);
    } while (given != 0 && !dwcas_swap(&cell->state, &value, cell_value(next, value)));
    if (given == 0 || !fleet) {
        return given;
    }
    if (rule_is_bucket(rule)) {
        allowance_refund(process, at, rule, given);
        (void) add_release(&refunds->refunds[0], given); /* [A1] */
        return given;
    }
    if (given != before) {
        refund_ledger_add_window(refunds, window_seq(state), given - before);
    }
    if (before != 0) {
        refund_ledger_add_window(refunds, window_seq(state) - 1, before);
    }
    return given;
}

/*
 * Brings what threads have used of their grants into the state: takes back what they hold, or waits for whoever is just
 * doing that. `but` has settled its own slot (NULL: nobody has).
 */
static void settle_held(struct limiter *limiter, const struct weir_thread *but, const struct policy *policy,
                        const weir_key *key, uint32_t at)
{
    const struct cell *cell = &limiter->process.table.cells[at];
    unsigned fruitless = 0;
    /* Other threads may be granted units again and again: what they use after the first time is not waited for. */
    for (unsigned round = 0; round < SETTLE_ROUNDS && (load_acquire(&cell->held) & HELD_UNITS) != 0; round++) {
        if (!settle_key(limiter, but, policy, key) && !settle_wait(&fruitless)) {
            break;
        }
    }
}

void weir_refund(weir_thread *t, const weir_key *key, uint64_t cost)
{
    struct subject s;
    if (t == NULL) {
        return;
    }
    counter_add(&t->slow_count, 1);
    rcu_enter();
    const struct policy *policy = check_policy(load_acquire(&t->process->policies), key);
    if (policy == NULL || policy->override != OVERRIDE_NONE || cost == 0 || !subject_take(&s, t, policy, key)) {
        rcu_leave();
        return;
    }
    for (size_t i = 0; i < policy->limit_count; i++) {
        const struct rule rule = policy_rule(&policy->limits[i]);
        uint64_t given = refund_cell(t->process, s.cells[i], &rule, cost, s.now_ns, SCOPE_NOW);
        if (given < cost) {
            settle_held(t->limiter, s.slot != SLOT_NONE ? t : NULL, policy, key, s.cells[i]);
            given += refund_cell(t->process, s.cells[i], &rule, cost - given, s.now_ns, SCOPE_OWN);
        }
        if (given != 0) {
            set_dirty(t->process, policy, s.cells[i]);
        }
    }
    subject_leave(&s);
    settle_denials(t->limiter, policy, key);
    rcu_leave();
}

void weir_charge(weir_thread *t, const weir_key *key, uint64_t cost)
{
    struct subject s;
    const uint64_t units = min_u64(cost, WEIR_MAX_UNITS);
    if (t == NULL) {
        return;
    }
    counter_add(&t->slow_count, 1);
    rcu_enter();
    const struct policy *policy = check_policy(load_acquire(&t->process->policies), key);
    if (policy == NULL || policy->override != OVERRIDE_NONE || units == 0) {
        rcu_leave();
        return;
    }
    if (!subject_take(&s, t, policy, key)) {
        counter_add(&t->untracked_count, 1);
        rcu_leave();
        return;
    }
    bool over = false;
    for (size_t i = 0; i < policy->limit_count; i++) {
        const struct rule rule = allowance_rule(t->process, policy, i, s.cells[i], 1);
        struct cell *cell = &t->process->table.cells[s.cells[i]];
        if (rule_has_history(&rule)) {
            const bool counted = history_store_charge(t->process, s.cells[i], &rule, s.now_ns, units);
            counter_add(&t->untracked_count, counted ? 0 : 1);
        } else {
            struct dwcas_value value = dwcas_read(&cell->state);
            struct state charged;
            do {
                charged = rule_charge(&rule, cell_state(value), s.now_ns, units);
            } while (!dwcas_swap(&cell->state, &value, cell_value(charged, value)));
        }
        const uint64_t left = rule_headroom(&rule, cell_state(dwcas_read(&cell->state)), s.now_ns);
        over = over || left < (load_acquire(&cell->held) & HELD_UNITS);
        set_dirty(t->process, policy, s.cells[i]);
    }
    if (over) {
        /* What other threads were granted is no longer there. */
        (void) settle_key(t->limiter, t, policy, key);
    }
    subject_leave(&s);
    rcu_leave();
}

/* Everything one pinned cell has counted is given back. */
static void forget_counts(struct process *process, uint32_t at, const struct rule *rule, uint64_t now_ns)
{
    if (!rule_has_history(rule)) {
        (void) refund_cell(process, at, rule, UINT64_MAX, now_ns, SCOPE_ALL);
        return;
    }
    history_store_lock(process, at);
    struct history *history = history_store_get(process, at);
    if (history != NULL) {
        history_clear(history, UINT64_MAX);
        history_store_publish(process, at, rule);
    }
    history_store_unlock(process, at);
}

/*
 * The fleet gives back all that a record counts, in this node's name, when it is told of the reset. Where it cannot be
 * told now, the state is emptied here, which it will hear of like of any refund; and what is used from then on is not
 * part of the reset when that is told. A log's reset is a time, which is right whenever it is told.
 */
static void reset_cell(struct process *process, const struct policy *policy, size_t limit, uint32_t at, uint64_t now_ns,
                       bool reachable)
{
    const bool fleet = process->fleet && policy->scope == WEIR_SCOPE_FLEET;
    const struct rule rule = policy_rule(&policy->limits[limit]);
    /* Off the fleet's rung its answers are not taken in; and of a log that is not safe to say at any time. */
    const bool empties =
        !fleet || !reachable || load_relaxed(&policy->outage_mode) != OUTAGE_MODE_NONE || rule_has_history(&rule);
    if (empties) {
        forget_counts(process, at, &rule, now_ns);
    }
    if (fleet) {
        struct refund_ledger *given = refund_ledger_make(process, at);
        store_relaxed(&given->reset_emptied, empties);
        /* Release: pairs with report.c, which tells the fleet. */
        store_release(&given->reset, max_u64(now_ns, 1));
        table_set_dirty(&process->table, at);
    }
}

int reset_key(struct limiter *limiter, const weir_key *key, bool reachable)
{
    rcu_enter();
    const struct policy_set *set = load_acquire(&limiter->process.policies);
    const struct policy *policy = key->policy <= WEIR_MAX_POLICIES ? set->by_id[key->policy] : NULL;
    if (policy == NULL) {
        rcu_leave();
        return -ENOENT;
    }
    if (!limiter->host_time) {
        /* What is used from here on is later than the reset, by the tick as well. */
        tick_raise(limiter, clock_monotonic_ns(limiter->clock));
    }
    for (size_t m = 0; m < policy->group->count; m++) {
        const struct policy *member = policy->group->members[m];
        /* The key as this tier knows it. */
        weir_key as = *key;
        as.hash ^= policy->share ^ member->share;
        as.policy = member->id;
        uint32_t cells[WEIR_MAX_LIMITS];
        for (size_t i = 0; i < member->limit_count; i++) {
            sketch_erase(&limiter->process.sketch,
                         cell_hash(member, &as, i)); /* else it comes back when the key is forgotten */
        }
        if (!insert_pin(&limiter->process, member, &as, limiter_time(limiter), cells)) {
            continue; /* no room: it cannot have been counted here */
        }
        for (size_t i = 0; i < member->limit_count; i++) {
            settle_held(limiter, NULL, member, &as, cells[i]);
        }
        /* What was granted has been written down at an earlier time. */
        const uint64_t now_ns = max_u64(limiter_time(limiter), load_relaxed(&limiter->line.now_ns));
        for (size_t i = 0; i < member->limit_count; i++) {
            reset_cell(&limiter->process, member, i, cells[i], now_ns, reachable);
        }
        insert_unpin(&limiter->process, member, cells);
        settle_denials(limiter, member, &as);
    }
    rcu_leave();
    return 0;
}
