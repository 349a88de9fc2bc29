/* SPDX-License-Identifier: Apache-2.0 */
/* weir_get_stats: the counters of all threads, of the process and of the fleet. */
#include <stddef.h>
#include <string.h>

#include "limiter/weir_private.h"

/* Sums of counters with one writer each: relaxed, and right as soon as the writers are quiet. */
static void sum_threads(const struct limiter *limiter, weir_stats *stats)
{
    uint64_t more_keys = 0;
    for (uint32_t i = 0; i < load_acquire(&limiter->shared->thread_high); i++) {
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
    stats->link = (weir_link) load_relaxed(&fleet->link);
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
