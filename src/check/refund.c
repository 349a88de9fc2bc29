/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_refund: units given back. It tries these in order:
 *
 *   slot_give_back        At least so many units passed on this thread's grant, which is of the present (slot.h).
 *                         The units go back into the grant, and are counted nowhere.
 *   refund_beside_grant   Fewer units passed on such a grant. The rest is taken out of the cells, and the slot keeps
 *                         its grant: else each pair of a check and a refund would take the grant back.
 *   refund_in_table       The slot is settled. Then the cells are refunded, at last with what other threads hold.
 *
 * Refunded units are not taken out of the count of admitted units that is reported to the fleet: that count never
 * decreases. They are counted beside it, in struct refund_ledger, and reported as a second count that never decreases.
 * So both can be reported any number of times.
 *
 * Ordering
 *   [A1] refunds: the state is lowered first (dwcas_swap, a full barrier), then `refunds` is raised with release. The
 *        background thread (report.c) reads `refunds` with acquire, then the state. It may read units as admitted
 *        whose refund it does not know yet, but never a state that is higher than the real one. So it never reports
 *        units that did not pass.
 *   [A2] merged units of a window: the background thread (merge.c) writes what lowers them (remote_refunds, restored),
 *        then the state (dwcas_swap, a full barrier), then what raises them (remote) with release. When the state has
 *        moved to the next window, account.c writes the counts of that window, then its number with release; where the
 *        key has no full sync state, compact_write does. A refund reads the state, then number and counts with acquire,
 *        and confirms the state (dwcas_swap). Amid a merge it may take units of other nodes for local ones, but never
 *        local ones for theirs. So every unit comes back.
 *
 * Also [S5] of settle.c. Progress: lock-free, but for logs and settle_key.
 */
#include "check/refund.h"

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "check/check.h"
#include "check/subject.h"
#include "process/allowance.h"
#include "process/process.h"
#include "process/refund_ledger.h"
#include "process/sync_state.h"
#include "thread/misuse.h"
#include "thread/rcu.h"
#include "thread/settle.h"
#include "thread/slot.h"

/*
 * The local units of the window of a state, and of the window before: the most that can be refunded to each. `shared`:
 * remote units are counted in the state.
 */
static void local_counts(const struct process *process, uint32_t at, bool shared, struct state state, uint64_t *now,
                         uint64_t *before)
{
    *now = window_count(state);
    *before = window_previous(state);
    if (!shared) {
        return;
    }
    /* Too few in the middle of a merge; never too many, if the state has not changed since it was read [A2]. */
    const struct merged_counts merged = sync_state_merged(process, at);
    const uint32_t behind = (window_seq(state) - merged.seq) & WINDOW_SEQ_MASK;
    if (behind == 0) {
        *now = saturating_sub(*now, merged.now);
        *before = saturating_sub(*before, merged.before);
    } else if (behind == 1) {
        *before = saturating_sub(*before, merged.now);
    }
}

/* The ledger of a cell that is shared with the fleet, made before the state is lowered [A1]; NULL: it is not shared. */
static struct refund_ledger *ledger_if_shared(struct process *process, uint32_t at)
{
    const bool shared = process->fleet && cell_meta_is(&process->table.metas[at], CELL_SHARED);
    return shared ? refund_ledger_make(process, at) : NULL;
}

static uint64_t refund_log(struct process *process, uint32_t at, const struct rule *rule, uint64_t units,
                           uint64_t now_ns, enum refund_scope scope)
{
    uint64_t refunded = 0;
    if (scope == REFUND_NOW && (load_acquire(&process->table.cells[at].held) & HELD_UNITS) != 0) {
        return 0; /* what has passed on grants is later than the log, and must be in the log first */
    }
    history_store_lock(process, at);
    struct history *history = history_store_get(process, at);
    if (history != NULL) {
        history_expire(history, rule, now_ns);
        refunded = history_pop(history, units);
        history_store_publish(process, at, rule);
    }
    history_store_unlock(process, at);
    return refunded;
}

static uint64_t refund_bucket(struct process *process, uint32_t at, const struct rule *rule, uint64_t units,
                              uint64_t now_ns, enum refund_scope scope)
{
    struct cell *cell = &process->table.cells[at];
    struct refund_ledger *ledger = ledger_if_shared(process, at);
    struct dwcas_value value = dwcas_read(&cell->state);
    struct state next;
    struct refund refund;
    do {
        const struct state state = cell_state(value);
        /* The last fraction of a unit is refunded once all that was used is known to be in the state. */
        const uint64_t most = scope == REFUND_NOW ? min_u64(units, bucket_owed(rule, state, now_ns)) : units;
        refund = (struct refund){.units = most, .current_max = UINT64_MAX, .previous_max = UINT64_MAX};
        next = rule_refund(rule, state, now_ns, &refund);
    } while (refund.refunded != 0 && !dwcas_swap(&cell->state, &value, cell_value(next, value)));
    if (scope == REFUND_RESET && ledger != NULL) {
        /* Units that were served in part took more time than they are worth. */
        refund.refunded = min_u64(refund.refunded, sync_state_bucket_units(process, at, next));
    }
    if (refund.refunded != 0 && ledger != NULL) {
        allowance_refund(process, at, rule, refund.refunded);
        (void) add_release(&ledger->refunds[0], refund.refunded); /* [A1] */
    }
    return refund.refunded;
}

static uint64_t refund_window(struct process *process, uint32_t at, const struct rule *rule, uint64_t units,
                              uint64_t now_ns, enum refund_scope scope)
{
    struct cell *cell = &process->table.cells[at];
    struct refund_ledger *ledger = ledger_if_shared(process, at);
    struct dwcas_value value = dwcas_read(&cell->state);
    struct state state;
    struct state next;
    struct refund refund;
    do {
        uint64_t into_ns;
        refund = (struct refund){.units = units, .current_max = UINT64_MAX, .previous_max = UINT64_MAX};
        state = window_roll(rule, cell_state(value), now_ns, &into_ns);
        if (scope < REFUND_ALL) {
            local_counts(process, at, ledger != NULL, state, &refund.current_max, &refund.previous_max);
        }
        if (scope == REFUND_NOW) {
            refund.units = min_u64(units, min_u64(refund.current_max, window_count(state)));
        }
        next = rule_refund(rule, state, now_ns, &refund);
        /* [A2] The state is confirmed even where it gives back nothing. After REFUND_NOW the rest is tried again. */
    } while ((refund.refunded != 0 || scope == REFUND_LOCAL) &&
             !dwcas_swap(&cell->state, &value, cell_value(next, value)));
    if (ledger != NULL && refund.refunded != refund.refunded_previous) {
        refund_ledger_add_window(ledger, window_seq(state), refund.refunded - refund.refunded_previous); /* [A1] */
    }
    if (ledger != NULL && refund.refunded_previous != 0) {
        refund_ledger_add_window(ledger, window_seq(state) - 1, refund.refunded_previous); /* [A1] */
    }
    return refund.refunded;
}

uint64_t refund_cell(struct process *process, uint32_t at, const struct rule *rule, uint64_t units, uint64_t now_ns,
                     enum refund_scope scope)
{
    uint64_t refunded = 0;
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        refunded = refund_window(process, at, rule, units, now_ns, scope);
        break;
    case RULE_HISTORY:
        refunded = refund_log(process, at, rule, units, now_ns, scope);
        break;
    case RULE_BUCKET:
        refunded = refund_bucket(process, at, rule, units, now_ns, scope);
        break;
    }
    return refunded;
}

/* What may be refunded beside a slot's grant. Where no other thread holds units of a log, the log has the latest ones.
 */
static enum refund_scope scope_beside_grant(const struct process *process, const struct slot_account *account,
                                            const struct rule *rule, uint32_t at)
{
    const uint64_t held = load_acquire(&process->table.cells[at].held) & HELD_UNITS;
    const bool alone = held == load_relaxed(&account->granted);
    return rule_has_history(rule) && alone ? REFUND_LOCAL : REFUND_NOW;
}

/*
 * Refunds a key whose slot is locked and has a grant, which stays. What passed on the grant is given back first, then
 * units of the cells. refunded[i]: units, by limit. True: all limits have `cost` units back.
 */
static bool refund_around_grant(struct weir_thread *t, const struct policy *policy, struct slot *slot, uint64_t cost,
                                uint64_t refunded[WEIR_MAX_LIMITS])
{
    const struct slot_account *account = &t->accounts[slot - t->slots];
    const uint64_t now_ns = tick_now(t, policy);
    const uint64_t passed = min_u64(cost, slot_passed(slot, account));
    const uint64_t rest = cost - passed;
    const uint64_t used = load_relaxed(&slot->used) - passed;
    bool whole = true;
    store_release(&slot->used, used); /* [S5] */
    for (size_t i = 0; i < policy->limit_count; i++) {
        const struct rule rule = policy_rule(&policy->limits[i]);
        const uint64_t units = refund_cell(t->process, account->cells[i], &rule, rest, now_ns,
                                           scope_beside_grant(t->process, account, &rule, account->cells[i]));
        if (units != 0) {
            subject_set_dirty(t->process, policy, account->cells[i]);
        }
        refunded[i] = passed + units;
        whole = whole && units == rest;
    }
    if (whole) {
        const uint64_t remaining = load_relaxed(&slot->remaining_base) - used;
        store_relaxed(&slot->remaining_base, used + min_u64(saturating_add(remaining, rest), slot->limit));
        slot_note_reset(t, slot, now_ns);
    }
    return whole;
}

/* Refunds a key whose slot has a grant, and leaves it the grant. False: the rest is for the table. */
static bool refund_beside_grant(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint64_t cost,
                                uint64_t refunded[WEIR_MAX_LIMITS])
{
    struct slot *slot;
    if (!slot_get(t, key->hash, &slot) || !slot_is_live(t, slot)) {
        return false;
    }
    struct slot_account *account = &t->accounts[slot - t->slots];
    /* Between the publication of a policy set and its epoch a grant may be of the set before. */
    if (!slot_fits(t, account, policy, key) || !slot_account_trylock(t, account)) {
        return false;
    }
    const bool whole = slot_grant_is_present(t, slot, account) && refund_around_grant(t, policy, slot, cost, refunded);
    slot_account_unlock(account);
    return whole;
}

/* Refunds a key in the table; refunded[i]: units that the limits have back already. */
static void refund_in_table(struct weir_thread *t, const struct policy_set *set, const struct policy *policy,
                            const weir_key *key, uint64_t cost, const uint64_t refunded[WEIR_MAX_LIMITS])
{
    struct subject s;
    if (!subject_pin(&s, t, policy, key)) {
        return;
    }
    for (size_t i = 0; i < policy->limit_count; i++) {
        const struct rule rule = policy_rule(&policy->limits[i]);
        const uint64_t wanted = cost - refunded[i];
        uint64_t units = refund_cell(s.process, s.cells[i], &rule, wanted, s.now_ns, REFUND_NOW);
        if (units < wanted) {
            subject_settle(t->limiter, s.slot != SLOT_NONE ? t : NULL, set, policy, key, s.cells[i]);
            units += refund_cell(s.process, s.cells[i], &rule, wanted - units, s.now_ns, REFUND_LOCAL);
        }
        if (units != 0) {
            subject_set_dirty(s.process, policy, s.cells[i]);
        }
    }
    subject_unpin(&s);
}

/* Refunds a key of a policy with limits; within an RCU section. */
static void refund_key(struct weir_thread *t, const struct policy_set *set, const struct policy *policy,
                       const weir_key *key, uint64_t cost)
{
    uint64_t refunded[WEIR_MAX_LIMITS] = {0};
    if (!refund_beside_grant(t, policy, key, cost, refunded)) {
        refund_in_table(t, set, policy, key, cost, refunded);
    }
    settle_denials(t->limiter, set, policy, key);
}

static __attribute__((noinline)) void refund_slow(struct weir_thread *t, const weir_key *key, uint64_t cost)
{
    counter_add(&t->shared->slow_count, 1);
    rcu_enter(t);
    const struct policy_set *set = process_policies(t->process);
    const struct policy *policy = check_policy(t->process, set, key);
    if (policy != NULL && policy->override == OVERRIDE_NONE && cost != 0) {
        refund_key(t, set, policy, key, cost);
    }
    rcu_leave(t);
}

void weir_refund(weir_thread *t, const weir_key *key, uint64_t cost)
{
    struct slot *slot;
    if (t != NULL && !(slot_get(t, key->hash, &slot) && slot_give_back(t, slot, cost)) &&
        misuse_begin(t, "weir_refund")) {
        refund_slow(t, key, cost);
    }
}
