/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A leaky bucket, precomputed for all keys of its limit: one request asks in some forty instructions, without a call.
 * Pure arithmetic on plain values. It equals rule_queue and rule_charge, where no units are promised before the
 * request:
 *
 *     QUEUE_ACCEPTED  rule_queue() is true, *wait_ns is its wait, and s = rule_charge(rule, s, now, cost)
 *     QUEUE_REFUSED   rule_queue() is false, *wait_ns is its wait
 *
 * QUEUE_UNKNOWN says nothing: the general path decides. These are costs above the limit, times outside of what the
 * bucket's words hold, and debts by another rate.
 */
#ifndef WEIR_ALGORITHM_QUEUE_SNAPSHOT_H
#define WEIR_ALGORITHM_QUEUE_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/bucket.h"
#include "base/numbers.h"

struct queue_snapshot {
    uint64_t origin_ns; /* fleet time */
    uint64_t limit;     /* units */
    uint64_t unit;      /* 1/64 ns, as `tolerance` and `ahead` */
    uint64_t tolerance; /* limit * unit */
    uint64_t ahead;     /* the time of the units that may pass ahead of their turn */
    uint64_t rate;      /* the rate's bits of a state */
};

/* A time up to here, some four years after the origin, and a queue up to there can be added up without a carry. */
#define QUEUE_SNAPSHOT_MOST_TIME      (UINT64_MAX / 2)
#define QUEUE_SNAPSHOT_MOST_TOLERANCE (UINT64_MAX / 4)

enum queue_answer { QUEUE_UNKNOWN, QUEUE_REFUSED, QUEUE_ACCEPTED };

/* False: the rule has no queue, or no rate, or takes too long to refill. */
static inline bool queue_snapshot_of(const struct rule *rule, struct queue_snapshot *out)
{
    if (!rule_is_queue(rule) || rule->unit == 0 || rule->tolerance > QUEUE_SNAPSHOT_MOST_TOLERANCE) {
        return false;
    }
    *out = (struct queue_snapshot){.origin_ns = rule->origin_ns,
                                   .limit = rule->limit,
                                   .unit = rule->unit,
                                   .tolerance = rule->tolerance,
                                   .ahead = bucket_ahead_time(rule),
                                   .rate = (uint64_t) rule->rate_id << BUCKET_TOTAL_BITS};
    return true;
}

/* Asks for `cost` units, at least 1. *s is charged where the request is accepted, else as it was. */
static inline enum queue_answer queue_snapshot_ask(const struct queue_snapshot *queue, struct state *s, uint64_t now_ns,
                                                   uint64_t cost, uint64_t max_wait_ns, uint64_t *wait_ns)
{
    /* A time before the origin wraps, and is too late as well. */
    const uint64_t since_ns = now_ns - queue->origin_ns;
    if (cost > queue->limit || since_ns > QUEUE_SNAPSHOT_MOST_TIME >> BUCKET_FRACTION_BITS ||
        s->a > QUEUE_SNAPSHOT_MOST_TIME) {
        return QUEUE_UNKNOWN;
    }
    const uint64_t now = since_ns << BUCKET_FRACTION_BITS;
    const uint64_t owed = saturating_sub(s->a, now);
    if (owed != 0 && (s->b & ~BUCKET_TOTAL_MASK) != queue->rate) {
        return QUEUE_UNKNOWN;
    }
    const uint64_t time = cost * queue->unit;
    const uint64_t turn_ns = bucket_wait_ns(saturating_sub(owed, queue->ahead));
    if (owed + time > queue->tolerance || turn_ns > max_wait_ns) {
        *wait_ns = max_u64(turn_ns, bucket_wait_ns(saturating_sub(owed + time, queue->tolerance)));
        return QUEUE_REFUSED;
    }
    *wait_ns = turn_ns;
    *s = (struct state){now + owed + time, queue->rate | ((s->b + cost) & BUCKET_TOTAL_MASK)};
    return QUEUE_ACCEPTED;
}

#endif
