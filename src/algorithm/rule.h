/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One limit in the numbers the arithmetic wants, and the state of one key under it.
 */
#ifndef WEIR_ALGORITHM_RULE_H
#define WEIR_ALGORITHM_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/algorithm.h"
#include "weir/weir.h"

/*
 * A key's state under one limit: two words that change together. What they hold is the algorithm's; only the low
 * STATE_B_BITS of b are, the bits above belong to whoever stores it.
 */
struct state {
    uint64_t a, b;
};

#define STATE_B_BITS 52
#define STATE_B_MASK ((UINT64_C(1) << STATE_B_BITS) - 1)

/* A bucket's times are kept in 1/64 ns, so that the time one unit takes to refill is a whole number. */
#define BUCKET_FRACTION_BITS 6

/*
 * Rates under which a limit's buckets have been charged; a bucket's state says by which it was last. One list for as
 * long as the weir is open, for all policies that share the limit: see bucket.h.
 */
#define RATE_COUNT 256

struct rate_table {
    uint64_t units[RATE_COUNT]; /* time one unit takes to refill, 1/64 ns; 0: not in use. [0] is never converted */
};

struct rule {
    weir_algorithm algorithm;
    weir_calendar calendar; /* window: the period is of the calendar */
    uint8_t rate_id;        /* bucket: which of `scales` is `unit`, as configured */
    uint64_t limit;         /* units at once: a window's limit, a bucket's burst */
    uint64_t period_ns;     /* a calendar month's: 31 days */
    uint64_t origin_ns;     /* bucket: times are kept from here; fleet time */
    uint64_t unit;          /* bucket: time one unit takes to refill, 1/64 ns; 0: units cost nothing (limit is off) */
    uint64_t tolerance;     /* bucket: time the whole burst takes to refill, 1/64 ns: burst * unit */
    uint64_t ahead;         /* leaky bucket: units that may pass ahead of their turn */
    uint64_t history_max;   /* log: the greatest limit of all that share it; more need not be remembered */
    const struct rate_table *rate_table; /* bucket; NULL: all one */
};

static inline enum rule_kind rule_kind(const struct rule *rule)
{
    return algorithm_kind(rule->algorithm);
}

static inline bool rule_is_bucket(const struct rule *rule)
{
    return rule_kind(rule) == RULE_BUCKET;
}

static inline bool rule_has_history(const struct rule *rule)
{
    return rule_kind(rule) == RULE_HISTORY;
}

static inline bool rule_is_queue(const struct rule *rule)
{
    return algorithm_is_queue(rule->algorithm);
}

static inline bool rule_slides(const struct rule *rule)
{
    return algorithm_slides(rule->algorithm);
}

/*
 * The rule of a valid limit. `origin_ns` is one for all of a process, at least as early as any time it will see, and at
 * most some years before.
 */
struct rule rule_make(const weir_limit *limit, uint64_t origin_ns);

/*
 * Of a log the state is a summary: the functions below answer for the time its log was last looked at
 * (algorithm/history.h), and charging and giving back are the log's own.
 */

/* A bucket's rule by the rate of this scale, where it is known; in what concerns time, not how much fits. */
void rule_convert_rate(struct rule *rule, uint8_t rate_id);

/* What a key that was never used has. */
struct state rule_fresh(const struct rule *rule, uint64_t now_ns);

/* Units that can pass now. */
uint64_t rule_headroom(const struct rule *rule, struct state state, uint64_t now_ns);

/* The state after `units` more, whether they fit or not. */
struct state rule_charge(const struct rule *rule, struct state state, uint64_t now_ns, uint64_t units);

/*
 * The state after `units` more that passed at `then_ns`, which may be before what the state has seen since. Needs of
 * the rule only algorithm, period, origin and unit.
 */
struct state rule_charge_late(const struct rule *rule, struct state state, uint64_t then_ns, uint64_t units);

/* A refund: what the caller asks for, and what rule_refund did. */
struct refund {
    uint64_t units;             /* at most so many */
    uint64_t current_max;       /* of a window: at most so many of the present window, */
    uint64_t previous_max;      /* and of the one before */
    uint64_t refunded;          /* result: so many were */
    uint64_t refunded_previous; /* result: of them in the window before */
};

/* The state after the refund. Of a history: unchanged, and nothing is refunded. */
struct state rule_refund(const struct rule *rule, struct state state, uint64_t now_ns, struct refund *refund);

/* A request that may wait. */
struct queue_request {
    uint64_t cost;
    uint64_t ahead; /* units promised before it that the state does not count */
    uint64_t max_wait_ns;
};

/*
 * True: the request is accepted, and may go after *wait_ns; 0: now. False: it is refused, and could be accepted after
 * *wait_ns; UINT64_MAX: never. An algorithm without a queue accepts only what may go now.
 */
bool rule_queue(const struct rule *rule, struct state state, uint64_t now_ns, const struct queue_request *request,
                uint64_t *wait_ns);

/* Earliest wait after which `cost` fits if nobody else comes; 0: now; UINT64_MAX: never. */
uint64_t rule_retry_after(const struct rule *rule, struct state state, uint64_t now_ns, uint64_t cost);

/* The wait after which the state is as a fresh one. */
uint64_t rule_reset_after(const struct rule *rule, struct state state, uint64_t now_ns);

/* What can be remembered of a state in little room: at most so many units were used, and from then on it is as a fresh
 * one. units 0: it is that already. */
struct usage {
    uint64_t units, until_ns;
};

struct usage rule_usage(const struct rule *rule, struct state state, uint64_t now_ns);

/*
 * The state a trace stands for, later: never fuller than the one it was of would be, had nothing come in between. A
 * greater trace has a state that is no fuller. (A bucket that goes over to another rate owes the same time.)
 */
struct state rule_resume(const struct rule *rule, struct usage usage, uint64_t now_ns);

#endif
