/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_reset: a key is as if it had never been used, on all nodes. See reset.h.
 *
 * The fleet refunds all that a record counts, in this node's name, when the reset is reported. Where the fleet cannot
 * be reached, the state is emptied here, which is reported as any refund is; what is used from then on is no part of
 * the reset when that is reported. The reset of a log is a time, which is right whenever it is reported.
 *
 * Progress: lock-free, but for logs and settle_key.
 */
#include "check/reset.h"

#include <errno.h>

#include "base/clock.h"
#include "base/numbers.h"
#include "check/refund.h"
#include "check/subject.h"
#include "process/insert.h"
#include "process/refund_ledger.h"
#include "thread/limiter.h"
#include "thread/rcu_lane.h"
#include "thread/settle.h"

/* Refunds all that one pinned cell has counted. */
static void empty_cell(struct process *process, uint32_t at, const struct rule *rule, uint64_t now_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
    case RULE_BUCKET:
        (void) refund_cell(process, at, rule, UINT64_MAX, now_ns, REFUND_RESET);
        break;
    case RULE_HISTORY:
        history_store_lock(process, at);
        struct history *history = history_store_get(process, at);
        if (history != NULL) {
            history_clear(history, UINT64_MAX);
            history_store_publish(process, at, rule);
        }
        history_store_unlock(process, at);
        break;
    }
}

/* Resets one limit of a policy: empties its cell, or leaves that to the fleet. */
static void reset_cell(struct process *process, const struct policy *policy, size_t limit, uint32_t at, uint64_t now_ns,
                       bool reachable)
{
    const bool shared = process_shares(process, policy);
    const struct rule rule = policy_rule(&policy->limits[limit]);
    /* In an outage mode the fleet's answers are not merged. Relaxed: either mode gives a valid reset. */
    const bool fleet_empties = shared && reachable && load_relaxed(&policy->outage_mode) == OUTAGE_MODE_NONE;
    const bool empties = !fleet_empties || rule_has_history(&rule);
    if (empties) {
        empty_cell(process, at, &rule, now_ns);
    }
    if (shared) {
        struct refund_ledger *ledger = refund_ledger_make(process, at);
        store_relaxed(&ledger->reset_emptied, empties); /* published by the store of `reset` */
        /* Release: pairs with report.c, which reports the reset. */
        store_release(&ledger->reset, max_u64(now_ns, 1));
        table_set_dirty(&process->table, at);
    }
}

/* Resets a key under one policy of its group. */
static void reset_member(struct limiter *limiter, const struct policy_set *set, const struct policy *policy,
                         const weir_key *key, bool reachable)
{
    uint32_t cells[WEIR_MAX_LIMITS];
    for (size_t i = 0; i < policy->limit_count; i++) {
        /* Else the usage would be restored when the key is evicted and comes back. */
        sketch_erase(&limiter->process.sketch, cell_hash(policy, key, i));
    }
    if (!insert_pin(&limiter->process, policy, key, tick_time(limiter), cells)) {
        return; /* no room: the key cannot have been counted here */
    }
    for (size_t i = 0; i < policy->limit_count; i++) {
        subject_settle(limiter, NULL, set, policy, key, cells[i]);
    }
    /* After the settling: what passed on grants has been charged as of an earlier time. */
    const uint64_t now_ns = max_u64(tick_time(limiter), load_relaxed(&limiter->shared->line.now_ns));
    for (size_t i = 0; i < policy->limit_count; i++) {
        reset_cell(&limiter->process, policy, i, cells[i], now_ns, reachable);
    }
    insert_unpin(&limiter->process, policy, cells);
    settle_denials(limiter, set, policy, key);
}

int reset_key(struct limiter *limiter, const weir_key *key, bool reachable)
{
    const unsigned lane = rcu_enter_lane(limiter);
    const struct policy_set *set = process_policies(&limiter->process);
    const struct policy *policy = policy_set_by_id(set, key->policy);
    if (policy == NULL) {
        rcu_leave_lane(limiter, lane);
        return -ENOENT;
    }
    if (!limiter->host_time) {
        /* What is used from here on is later than the reset, by the tick as well. */
        tick_raise(limiter, clock_monotonic_ns(limiter->clock));
    }
    const struct policy *member = policy_set_group(set, policy->group);
    for (; member != NULL; member = policy_set_next(set, member)) {
        weir_key member_key = *key;
        member_key.hash ^= policy->group_key_mask ^ member->group_key_mask;
        reset_member(limiter, set, member, &member_key, reachable);
    }
    rcu_leave_lane(limiter, lane);
    return 0;
}
