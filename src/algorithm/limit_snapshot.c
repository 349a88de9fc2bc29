/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithm/limit_snapshot.h"

static struct limit_snapshot moment_of_bucket(const struct rule *rule, uint64_t now_ns)
{
    const uint64_t now = bucket_time(rule, now_ns);
    if (rule_is_queue(rule) || rule->unit == 0 || now >= UINT64_MAX - rule->tolerance) {
        return (struct limit_snapshot){.kind = LIMIT_SNAPSHOT_NONE};
    }
    return (struct limit_snapshot){.kind = LIMIT_SNAPSHOT_BUCKET,
                                   .empty = {0, (uint64_t) rule->rate_id << BUCKET_TOTAL_BITS},
                                   .limit = rule->limit,
                                   .now = now,
                                   .unit = rule->unit,
                                   .latest = now + rule->tolerance};
}

struct limit_snapshot limit_snapshot_of(const struct rule *rule, uint64_t now_ns)
{
    if (rule_is_bucket(rule)) {
        return moment_of_bucket(rule, now_ns);
    }
    if (rule_has_history(rule)) {
        return (struct limit_snapshot){.kind = LIMIT_SNAPSHOT_NONE};
    }
    const struct window_span span = window_span_at(rule, now_ns);
    const uint32_t seq = (uint32_t) span.number & WINDOW_SEQ_MASK;
    const bool slides = rule->algorithm == WEIR_SLIDING_WINDOW;
    return (struct limit_snapshot){.kind = slides ? LIMIT_SNAPSHOT_SLIDING : MOMENT_FIXED,
                                   .seq = seq,
                                   .empty = window_state(seq, 0, 0),
                                   .limit = rule->limit,
                                   .period_ns = rule->period_ns,
                                   .left_ns = rule->period_ns - (now_ns - span.start_ns)};
}
