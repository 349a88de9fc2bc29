/* SPDX-License-Identifier: Apache-2.0 */
/* Counters and gauges of the fleet layer, read by weir_get_stats and the metrics. */
#ifndef WEIR_FLEET_FLEET_STATS_H
#define WEIR_FLEET_FLEET_STATS_H

#include <stdint.h>

/*
 * How far the estimate was from what the other nodes turned out to have admitted, as parts of the limit: counts by the
 * upper bounds in estimate_bounds; the last bucket has no bound.
 */
#define ESTIMATE_BUCKETS 10
extern const int32_t estimate_bounds[ESTIMATE_BUCKETS - 1]; /* millionths of the limit */

#define LINK_ERROR_KINDS 15 /* the length of the table in link_health.c */

/* Written by the background thread alone, read by any thread; each word by itself. */
struct fleet_stats {
    _Atomic uint64_t link_error_counts[LINK_ERROR_KINDS];
    _Atomic uint64_t estimate_counts[ESTIMATE_BUCKETS];
    _Atomic int64_t estimate_sum; /* millionths of the limit */
    _Atomic uint64_t urgent_sync_count;
    _Atomic uint64_t live_nodes, suspect_nodes, awaiting_peers, round_trip_ns, sync_count, sync_error_count,
        connection_count, connection_attempt_count, redis_lost_state_count;
    _Atomic uint64_t report_count, rejected_report_count, report_retry_count, deferred_report_count, sent_size,
        overrides_left_out, limit_differences;
    _Atomic int64_t clock_skew_ns;
    _Atomic uint32_t link; /* weir_link */
};

#endif
