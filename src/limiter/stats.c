/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_get_stats: the counters of all threads, of the process and of the fleet. weir_get_policy_stats: those of one
 * policy.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "limiter/status/readings.h"
#include "limiter/weir_private.h"
#include "thread/rcu_lane.h"

/* Sums of counters with one writer each: relaxed, and right as soon as the writers are quiet. */
static void sum_threads(const struct limiter *limiter, weir_stats *stats)
{
    uint64_t more_keys = 0;
    for (uint32_t i = 0; i < limiter_thread_high(limiter); i++) {
        const struct weir_thread *t = &limiter->threads[i];
        stats->slow_count += load_relaxed(&t->shared->slow_count);
        more_keys += load_relaxed(&t->shared->more_keys);
        stats->unknown_policy_count += load_relaxed(&t->shared->unknown_count);
        stats->untracked_count += load_relaxed(&t->shared->untracked_count);
        stats->stalled_denied_count += load_relaxed(&t->shared->stalled_denied_count);
        stats->evicted_used_count += load_relaxed(&t->shared->admissions.recorded);
        stats->evicted_unrecorded_count += load_relaxed(&t->shared->admissions.records_dropped);
        stats->evicted_unused_count += load_relaxed(&t->shared->admissions.idle_replaced);
        stats->late_units += load_relaxed(&t->shared->late_units);
        for (size_t id = 1; id <= WEIR_MAX_POLICIES; id++) {
            stats->allowed_count += load_relaxed(&t->tallies[id].allowed);
            stats->denied_count += load_relaxed(&t->tallies[id].denied);
            stats->would_deny_count += load_relaxed(&t->tallies[id].would_deny);
        }
    }
    stats->allowed_count = saturating_sub(stats->allowed_count + stats->unknown_policy_count, more_keys);
}

static void get_stats(const weir *w, weir_stats *stats)
{
    const struct limiter *limiter = &w->limiter;
    const struct fleet_stats *fleet = &w->fleet->stats;
    memset(stats, 0, sizeof(*stats));
    sum_threads(limiter, stats);
    stats->key_capacity = limiter->process.table.cell_count;
    /* A key may be evicted before the burst that has added it counts it: the count may be below 0 meanwhile. */
    const uint64_t keys = load_relaxed(&limiter->process.table.shared->key_count);
    stats->key_count = keys <= stats->key_capacity ? keys : 0;
    stats->evicted_unused_count += load_relaxed(&limiter->process.shared->evicted_unused_count);
    stats->evicted_used_count += load_relaxed(&limiter->process.shared->evicted_used_count);
    stats->lost_report_count = load_relaxed(&limiter->process.shared->lost_report_count);
    stats->evicted_restored_count = load_relaxed(&limiter->process.shared->evicted_restored_count);
    stats->evicted_unrecorded_count += load_relaxed(&limiter->process.shared->evicted_unrecorded_count);
    stats->thread_count = load_relaxed(&limiter->shared->line.thread_count);
    stats->process_count = load_relaxed(&limiter->shared->joined_count);
    for (size_t why = 0; why < ATTACH_FAILURES; why++) {
        stats->attach_error_count += load_relaxed(&limiter->shared->attach_failures[why]);
    }
    stats->live_nodes = (uint32_t) load_relaxed(&fleet->live_nodes);
    const uint32_t link = load_relaxed(&fleet->link);
    stats->link = link <= WEIR_LINK_UP ? (weir_link) link : WEIR_LINK_DOWN; /* memory may be damaged */
    const uint64_t news_ns = load_relaxed(&limiter->process.shared->news_ns);
    stats->fleet_age_ns = news_ns == 0 ? UINT64_MAX : saturating_sub(tick_time(limiter), news_ns);
    stats->round_trip_ns = load_relaxed(&fleet->round_trip_ns);
    stats->sync_count = load_relaxed(&fleet->sync_count);
    stats->sync_error_count = load_relaxed(&fleet->sync_error_count);
    stats->connection_count = load_relaxed(&fleet->connection_count);
    stats->connection_attempt_count = load_relaxed(&fleet->connection_attempt_count);
    stats->redis_lost_state_count = load_relaxed(&fleet->redis_lost_state_count);
    stats->report_count = load_relaxed(&fleet->report_count);
    stats->rejected_report_count = load_relaxed(&fleet->rejected_report_count);
    stats->override_count = load_relaxed(&w->shared->override_count);
    stats->dropped_policy_count = dropped_policies_count(&w->shared->dropped);
    stats->unlimited_count = load_relaxed(&w->shared->unlimited_count);
    stats->deferred_report_count = load_relaxed(&fleet->deferred_report_count);
    stats->urgent_sync_count = load_relaxed(&fleet->urgent_sync_count);
    stats->report_retry_count = load_relaxed(&fleet->report_retry_count);
    stats->pending_key_count = bitmap_count(&limiter->process.table.dirty);
    stats->deferred_key_count = bitmap_count(&limiter->process.table.deferred);
    stats->denied_units = load_relaxed(&limiter->process.top_denied.shared->denied_units);
    stats->evicted_denied_units = load_relaxed(&limiter->process.top_denied.shared->evicted_denied_units);
    stats->memory_size = limiter->memory_size + limiter->slots_size + process_reserved(&limiter->process) +
                         w->denials.memory_size + (w->has_fleet ? fleet_batch_size() : 0) + sizeof(*w) +
                         sizeof(*w->fleet);
}

/* What programs had room for that were compiled before the size was passed. */
#define FIRST_STATS_SIZE (offsetof(weir_stats, evicted_unrecorded_count) + sizeof(uint64_t))

void weir_get_stats_sized(const weir *w, weir_stats *stats, size_t size)
{
    weir_stats all;
    get_stats(w, &all);
    memset((void *) stats, 0, size);
    memcpy((void *) stats, (const void *) &all, min_u64(size, sizeof(all)));
}

void(weir_get_stats)(const weir *w, weir_stats *stats)
{
    weir_get_stats_sized(w, stats, FIRST_STATS_SIZE);
}

static weir_limit limit_of(const struct policy_limit *limit)
{
    return (weir_limit){.algorithm = limit->rule.algorithm,
                        .limit = limit->per_period,
                        .period_ns = limit->rule.period_ns,
                        .burst = limit->rule.limit,
                        .calendar = limit->rule.calendar,
                        .delay = limit->rule.ahead};
}

static void get_policy(const struct policy *policy, weir_policy_stats *stats)
{
    const unsigned outage_mode = load_relaxed(&policy->outage_mode); /* one byte: any value of it is whole */
    stats->in_outage = outage_mode != OUTAGE_MODE_NONE && outage_mode <= OUTAGE_MODE_CLOSED;
    stats->outage_mode = stats->in_outage ? (weir_outage) (outage_mode - OUTAGE_MODE_SHARE) : policy->on_outage;
    stats->limit_count = min_u64(policy->limit_count, WEIR_MAX_LIMITS); /* memory may be damaged */
    for (size_t i = 0; i < stats->limit_count; i++) {
        stats->limits[i] = limit_of(&policy->limits[i]);
    }
}

int weir_get_policy_stats(const weir *w, weir_policy_id policy, weir_policy_stats *out, size_t size)
{
    struct limiter *limiter = (struct limiter *) &w->limiter; /* only its readers are counted */
    weir_policy_stats all;
    if (out == NULL) {
        return -EINVAL;
    }
    memset((void *) &all, 0, sizeof(all));
    const unsigned lane = rcu_enter_lane(limiter);
    /* Acquire: pairs with the publication in weir_set_policies. */
    const struct policy *found = policy_set_by_id(process_policies(&limiter->process), policy);
    if (found != NULL) {
        get_policy(found, &all);
    }
    rcu_leave_lane(limiter, lane);
    if (policy != WEIR_NO_POLICY && policy <= WEIR_MAX_POLICIES) {
        const struct policy_sums sums = policy_sums_read(limiter, policy);
        all.allowed_count = sums.allowed;
        all.denied_count = sums.denied;
        all.would_deny_count = sums.would_deny;
    }
    memset((void *) out, 0, size);
    memcpy((void *) out, (const void *) &all, min_u64(size, sizeof(all)));
    return found != NULL ? 0 : -ENOENT;
}
