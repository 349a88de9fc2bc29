/* SPDX-License-Identifier: Apache-2.0 */
/* A token bucket as textbooks have it, for use under a mutex. */
#ifndef WEIR_BENCH_BUCKET_H
#define WEIR_BENCH_BUCKET_H

#include "peers/peer.h"

struct bucket_rule {
    double rate; /* tokens per nanosecond */
    double burst;
};

struct bucket {
    double tokens;
    uint64_t filled_ns; /* 0: never, so full at first use */
};

static inline struct bucket_rule bucket_rule_of(const struct peer_limit *limit)
{
    return (struct bucket_rule){.rate = (double) limit->units / (double) limit->period_ns,
                                .burst = (double) limit->burst};
}

static inline bool bucket_take(struct bucket *bucket, const struct bucket_rule *rule, uint64_t now_ns)
{
    double tokens = rule->burst;
    if (bucket->filled_ns != 0) {
        tokens = bucket->tokens + (double) (now_ns - bucket->filled_ns) * rule->rate;
        tokens = tokens > rule->burst ? rule->burst : tokens;
    }
    const bool allowed = tokens >= 1;
    bucket->tokens = allowed ? tokens - 1 : tokens;
    bucket->filled_ns = now_ns;
    return allowed;
}

#endif
