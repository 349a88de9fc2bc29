/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token bucket, as the generic cell rate algorithm (ITU-T I.371, virtual scheduling form): pure arithmetic on
 * plain values.
 *
 * A bucket of `burst` units that refills one unit every T is kept as one time, its theoretical arrival time (tat): when
 * it will be full again. Now it lacks (tat - now) / T units. `cost` units fit when
 *
 *     max(tat, now) + cost * T - now <= burst * T
 *
 * Times are in 1/64 ns from the rule's origin; T is a whole number of them, so n single units cost exactly what one
 * request of n does.
 *
 * Units that passed some time ago and are charged now (those of a grant) are charged as of then: max(tat, then) + units
 * * T. If the bucket was found full in between, some of them had refilled already, and the bucket is a little emptier
 * than it ought to be: never fuller. Its debt is never more than all the units charged since it was last full.
 *
 * b holds the units charged since the key was first seen (modulo 2^44): what this node tells the fleet.
 */
#ifndef WEIR_ALGORITHM_BUCKET_H
#define WEIR_ALGORITHM_BUCKET_H

#include "algorithm/rule.h"

#define BUCKET_TOTAL_MASK STATE_B_MASK

static inline uint64_t bucket_total(struct state s)
{
    return s.b & BUCKET_TOTAL_MASK;
}

/* Fleet time to a bucket's time and back. */
static inline uint64_t bucket_time(const struct rule *rule, uint64_t ns)
{
    return ns <= rule->origin_ns ? 0 : (ns - rule->origin_ns) << BUCKET_FRACTION_BITS;
}

static inline uint64_t bucket_time_ns(const struct rule *rule, uint64_t time)
{
    return rule->origin_ns + (time >> BUCKET_FRACTION_BITS);
}

struct state bucket_fresh(const struct rule *rule, uint64_t now_ns);
uint64_t bucket_headroom(const struct rule *rule, struct state s, uint64_t now_ns);
struct state bucket_charge(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units);
uint64_t bucket_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost);
uint64_t bucket_reset_after(const struct rule *rule, struct state s, uint64_t now_ns);

/*
 * The state when the fleet says its bucket will be full at `tat_ns` (fleet time), which covers all this node has
 * charged but `unseen` units. Never a fuller bucket than before: what the fleet has lost is no amnesty.
 */
struct state bucket_merge(const struct rule *rule, struct state s, uint64_t tat_ns, uint64_t unseen);

#endif
