/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The generic cell rate algorithm on one atomic word, the theoretical arrival time (ITU-T I.371): shared by the peers
 * that keep one for all keys and one per key. Relaxed throughout: the word is all there is to agree on.
 */
#ifndef WEIR_BENCH_GCRA_H
#define WEIR_BENCH_GCRA_H

#include <stdatomic.h>

#include "peers/peer.h"

struct gcra_rule {
    uint64_t interval_ns;  /* between units */
    uint64_t tolerance_ns; /* a burst's worth of intervals */
};

static inline struct gcra_rule gcra_rule_of(const struct peer_limit *limit)
{
    const uint64_t interval_ns = limit->period_ns / limit->units;
    return (struct gcra_rule){.interval_ns = interval_ns, .tolerance_ns = interval_ns * limit->burst};
}

static inline bool gcra_take(_Atomic uint64_t *tat, const struct gcra_rule *rule, uint64_t now_ns)
{
    uint64_t seen = atomic_load_explicit(tat, memory_order_relaxed);
    uint64_t next;
    do {
        next = (seen > now_ns ? seen : now_ns) + rule->interval_ns;
        if (next - now_ns > rule->tolerance_ns) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(tat, &seen, next, memory_order_relaxed, memory_order_relaxed));
    return true;
}

#endif
