/* SPDX-License-Identifier: Apache-2.0 */
/* See limit_snapshot.h. */
#include "algorithm/limit_snapshot.h"

/* A sliding window is fresh after two windows; one more. */
#define WINDOWS_TO_IDLE 3

static struct limit_snapshot snapshot_of_bucket(const struct rule *rule, uint64_t now_ns)
{
    const uint64_t now = bucket_time(rule, now_ns);
    const uint64_t idle = LIMIT_SNAPSHOT_IDLE_NS << BUCKET_FRACTION_BITS;
    if (rule_is_queue(rule) || rule->unit == 0 || now >= UINT64_MAX - rule->tolerance) {
        return (struct limit_snapshot){.kind = LIMIT_SNAPSHOT_NONE};
    }
    return (struct limit_snapshot){.kind = LIMIT_SNAPSHOT_BUCKET,
                                   .empty = {0, (uint64_t) rule->rate_id << BUCKET_TOTAL_BITS},
                                   .limit = rule->limit,
                                   .now = now,
                                   .now_ns = now_ns,
                                   .unit = rule->unit,
                                   .latest = now + rule->tolerance,
                                   .idle = saturating_sub(now, max_u64(rule->tolerance, idle))};
}

static struct limit_snapshot snapshot_of_window(const struct rule *rule, uint64_t now_ns)
{
    const struct window_span span = window_span_at(rule, now_ns);
    const uint32_t seq = (uint32_t) span.number & WINDOW_SEQ_MASK;
    const uint64_t idle = LIMIT_SNAPSHOT_IDLE_NS / rule->period_ns + 2;
    return (struct limit_snapshot){.kind = rule_slides(rule) ? LIMIT_SNAPSHOT_SLIDING : LIMIT_SNAPSHOT_FIXED,
                                   .seq = seq,
                                   .empty = window_state(seq, 0, 0),
                                   .limit = rule->limit,
                                   .period_ns = rule->period_ns,
                                   .left_ns = rule->period_ns - (now_ns - span.start_ns),
                                   .idle = max_u64(idle, WINDOWS_TO_IDLE),
                                   .now_ns = now_ns,
                                   .until_ns = span.end_ns + (rule_slides(rule) ? rule->period_ns : 0)};
}

struct limit_snapshot limit_snapshot_of(const struct rule *rule, uint64_t now_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return snapshot_of_window(rule, now_ns);
    case RULE_BUCKET:
        return snapshot_of_bucket(rule, now_ns);
    case RULE_HISTORY:
        break;
    }
    return (struct limit_snapshot){.kind = LIMIT_SNAPSHOT_NONE};
}
