/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The token bucket, as the generic cell rate algorithm (ITU-T I.371, virtual scheduling form): pure arithmetic on
 * plain values.
 *
 * A bucket of `burst` units that refills one unit every T is stored as one time, the theoretical arrival time (tat):
 * the time at which the bucket will be full. At present the bucket lacks (tat - now) / T units. `cost` units fit when
 *
 *     max(tat, now) + cost * T - now <= burst * T
 *
 * Times are in 1/64 ns from the rule's origin. T is a whole number of 1/64 ns, so n requests of one unit cost exactly
 * as much as one request of n units.
 *
 * Units of a grant are charged later than they passed, as of the time at which they passed: max(tat, then) + units * T.
 * If the bucket was full in between, some of these units had refilled already; the bucket is then a little emptier than
 * it should be, and never fuller. The debt is at most all the units charged since the bucket was last full.
 *
 * b holds the units charged since the key was first seen (modulo 2^44), which this node reports to the fleet. The bits
 * above hold the rate_id: the rate by which the bucket was last checked or charged. Debt is a time, and the same time
 * is another number of units under another rate. So the debt is converted, and the units owed stay, when a policy
 * changes its rate or a key its tier. After 255 rates of one limit since weir_open a new rate has rate_id 0; the time
 * owed then stays.
 *
 * The leaky bucket uses the same state. tat - now is the time that the queue takes to be served. A request may go when
 * all but `ahead` of the units before it have been served.
 */
#ifndef WEIR_ALGORITHM_BUCKET_H
#define WEIR_ALGORITHM_BUCKET_H

#include "algorithm/rule.h"
#include "base/numbers.h"

#define BUCKET_TOTAL_BITS 44
#define BUCKET_TOTAL_MASK ((UINT64_C(1) << BUCKET_TOTAL_BITS) - 1)

static inline uint64_t bucket_total(struct state s)
{
    return s.b & BUCKET_TOTAL_MASK;
}

static inline uint64_t bucket_tat(struct state s)
{
    return s.a;
}

static inline struct state bucket_with_tat(struct state s, uint64_t tat)
{
    return (struct state){tat, s.b};
}

static inline uint8_t bucket_rate_id(struct state s)
{
    return (uint8_t) (s.b >> BUCKET_TOTAL_BITS);
}

/* Fleet time in ns to a bucket's time in 1/64 ns, saturating, and back. */
static inline uint64_t bucket_time(const struct rule *rule, uint64_t ns)
{
    const uint64_t most_ns = UINT64_MAX >> BUCKET_FRACTION_BITS;
    const uint64_t since_ns = ns <= rule->origin_ns ? 0 : ns - rule->origin_ns;
    return since_ns > most_ns ? UINT64_MAX : since_ns << BUCKET_FRACTION_BITS;
}

/* 1/64 ns to ns, rounded up: a request that waits this long has waited enough. */
static inline uint64_t bucket_wait_ns(uint64_t time)
{
    return (time >> BUCKET_FRACTION_BITS) + ((time & ((1U << BUCKET_FRACTION_BITS) - 1)) != 0);
}

/* Of a leaky bucket: the time that the units ahead of their turn take to refill. */
static inline uint64_t bucket_ahead_time(const struct rule *rule)
{
    return min_u64(saturating_mul(rule->ahead, rule->unit), rule->tolerance);
}

static inline uint64_t bucket_time_ns(const struct rule *rule, uint64_t time)
{
    return rule->origin_ns + (time >> BUCKET_FRACTION_BITS);
}

/*
 * The state with the same units owed, at this rule's rate. The bucket refills at the new rate from the conversion on.
 */
struct state bucket_convert_rate(const struct rule *rule, struct state s, uint64_t now_ns);

struct state bucket_fresh(void);
uint64_t bucket_headroom(const struct rule *rule, struct state s, uint64_t now_ns);
struct state bucket_charge(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units);
/* Charges units that passed earlier, by the rate that the state has by now. */
struct state bucket_charge_late(const struct rule *rule, struct state s, uint64_t then_ns, uint64_t units);
/* The whole units that the bucket lacks, rounded down or up. */
uint64_t bucket_owed(const struct rule *rule, struct state s, uint64_t now_ns);
uint64_t bucket_owed_up(const struct rule *rule, struct state s, uint64_t now_ns);
/* Refunds at most the units owed. *given: how many. */
struct state bucket_refund(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units, uint64_t *given);
/* See rule_queue. */
bool bucket_queue(const struct rule *rule, struct state s, uint64_t now_ns, const struct queue_request *request,
                  uint64_t *wait_ns);
uint64_t bucket_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost);
uint64_t bucket_reset_after(const struct rule *rule, struct state s, uint64_t now_ns);

/* See rule.h. */
struct usage bucket_usage(const struct rule *rule, struct state s, uint64_t now_ns);
struct state bucket_resume(const struct rule *rule, struct usage usage, uint64_t now_ns);

/* The fleet's answer for a bucket, at this rule's rate. */
struct bucket_news {
    uint64_t
        tat_ns; /* when the bucket will be full; fleet time. The answer covers all that this node has charged but:  */
    uint64_t unseen;          /* so many units, */
    uint64_t unseen_returned; /* and all that this node refunded but so many */
    uint64_t more;            /* the most units that other nodes can have charged and this node's state does not hold */
    uint64_t returned;        /* units refunded at other nodes */
};

/* The tat by the answer alone. */
uint64_t bucket_news_time(const struct rule *rule, const struct bucket_news *news);

/*
 * The state with the answer merged. The bucket gets fuller by refunds alone, so state that Redis has lost waives no
 * debt. The bucket gets emptier at most by the other nodes' units, charged one after the other from now on.
 */
struct state bucket_merge(const struct rule *rule, struct state s, uint64_t now_ns, const struct bucket_news *news);

#endif
