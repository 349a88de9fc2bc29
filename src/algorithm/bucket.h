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
 * b holds the units charged since the key was first seen (modulo 2^44): what this node tells the fleet. Above them it
 * holds the scale: under which rate the bucket was last charged. Debt is time, and means another number of units under
 * another rate; so when a policy changes its rate, or a key its tier, the debt is converted and the units owed stay as
 * they were. (A limit that has seen more than 255 rates since open gives new ones scale 0: then the time owed stays.)
 *
 * The leaky bucket is the same state seen from the other side: tat - now is how long the queue takes to be served, and
 * a request may go when those before it have been, less `ahead` units.
 */
#ifndef WEIR_ALGORITHM_BUCKET_H
#define WEIR_ALGORITHM_BUCKET_H

#include "algorithm/rule.h"

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

/* Fleet time to a bucket's time (at most what it can hold) and back. */
static inline uint64_t bucket_time(const struct rule *rule, uint64_t ns)
{
    const uint64_t most_ns = UINT64_MAX >> BUCKET_FRACTION_BITS;
    const uint64_t since_ns = ns <= rule->origin_ns ? 0 : ns - rule->origin_ns;
    return since_ns > most_ns ? UINT64_MAX : since_ns << BUCKET_FRACTION_BITS;
}

static inline uint64_t bucket_time_ns(const struct rule *rule, uint64_t time)
{
    return rule->origin_ns + (time >> BUCKET_FRACTION_BITS);
}

/*
 * The same units owed, by this rule's rate. Whoever meets a state of another scale changes it to this: only then does
 * it refill at the new rate.
 */
struct state bucket_convert_rate(const struct rule *rule, struct state s, uint64_t now_ns);

struct state bucket_fresh(void);
uint64_t bucket_headroom(const struct rule *rule, struct state s, uint64_t now_ns);
struct state bucket_charge(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units);
/* The same for units that passed before: by the rate that the state has gone over to meanwhile. */
struct state bucket_charge_late(const struct rule *rule, struct state s, uint64_t then_ns, uint64_t units);
/* Whole units that it is from full, rounded down or up. */
uint64_t bucket_owed(const struct rule *rule, struct state s, uint64_t now_ns);
uint64_t bucket_owed_up(const struct rule *rule, struct state s, uint64_t now_ns);
/* Never fuller than full: *given is how many units were owed of those asked for. */
struct state bucket_refund(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units, uint64_t *given);
/* See rule_queue. */
bool bucket_queue(const struct rule *rule, struct state s, uint64_t now_ns, const struct queue_request *request,
                  uint64_t *wait_ns);
uint64_t bucket_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost);
uint64_t bucket_reset_after(const struct rule *rule, struct state s, uint64_t now_ns);

/* See rule.h. */
struct usage bucket_usage(const struct rule *rule, struct state s, uint64_t now_ns);
struct state bucket_resume(const struct rule *rule, struct usage usage, uint64_t now_ns);

/* What the fleet says of a bucket, at this rule's rate. */
struct bucket_news {
    uint64_t tat_ns;          /* when it will be full; fleet time. It covers all this node has charged but: */
    uint64_t unseen;          /* so many units, */
    uint64_t unseen_returned; /* and all it gave back but so many */
    uint64_t more;            /* the most units that others can have charged since this node's state counts them */
    uint64_t returned;        /* units that others have been given back */
};

/* The bucket's time by the news alone. */
uint64_t bucket_news_time(const struct rule *rule, const struct bucket_news *news);

/*
 * The state with the news in it. Never a fuller bucket than before but by what was given back: what the fleet has lost
 * is no amnesty. And never an emptier one than the others' units make it, one behind the other from now on.
 */
struct state bucket_merge(const struct rule *rule, struct state s, uint64_t now_ns, const struct bucket_news *news);

#endif
