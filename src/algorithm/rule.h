/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rule: one limit in the units of the arithmetic. A state: what one key has used of a rule. All functions are pure.
 */
#ifndef WEIR_ALGORITHM_RULE_H
#define WEIR_ALGORITHM_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/algorithm.h"
#include "algorithm/rate_table.h"
#include "weir/weir.h"

/*
 * The state of a key under one limit: two words that change together. The algorithm owns `a` and the low STATE_B_BITS
 * of `b`, and reads them through window_, bucket_ and history_ functions. The table of keys owns the bits above.
 */
struct state {
    uint64_t a, b;
};

#define STATE_B_BITS 52
#define STATE_B_MASK ((UINT64_C(1) << STATE_B_BITS) - 1)

/* A bucket's times are kept in 1/64 ns, so that the time one unit takes to refill is a whole number. */
#define BUCKET_FRACTION_BITS 6

/*
 * The units that a request needs room for. One of cost 0 asks whether one unit would pass, and takes none.
 */
static inline uint64_t units_asked(uint64_t cost)
{
    return cost + (cost == 0);
}

struct rule {
    weir_algorithm algorithm;
    weir_calendar calendar; /* window: the period is of the calendar */
    uint8_t rate_id;        /* bucket: the index of `unit` in the rate table */
    uint64_t limit;         /* units at once: a window's limit, a bucket's burst */
    uint64_t period_ns;     /* a calendar month's: 31 days */
    uint64_t origin_ns;     /* bucket: times are kept from here; fleet time */
    uint64_t unit;          /* bucket: time one unit takes to refill, 1/64 ns; 0: units cost nothing (limit is off) */
    uint64_t tolerance;     /* bucket: time the whole burst takes to refill, 1/64 ns: burst * unit */
    uint64_t ahead;         /* leaky bucket: units that may pass ahead of their turn */
    uint64_t history_max;   /* history: the greatest limit of all policies that share it; the most units stored */
    uint64_t rate_table;    /* bucket: the handle of the rates; 0: no rate is converted */
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

/* Sets the rule's rate to that of `rate_id`, where the table has one. `limit` and `tolerance` stay. */
static inline void rule_convert_rate(struct rule *rule, uint8_t rate_id)
{
    const bool other = rate_id != rule->rate_id && rate_id != 0;
    const uint64_t unit = other ? rate_table_unit(rule->rate_table, rate_id) : 0;
    if (unit != 0) {
        rule->rate_id = rate_id;
        rule->unit = unit;
    }
}

/*
 * The rule of a valid limit. `origin_ns` is the same for a whole process: no later than any time the process will see,
 * and at most some years earlier.
 */
struct rule rule_make(const weir_limit *limit, uint64_t origin_ns);

/*
 * The state of a history is a summary as of the last history_expire (history.h). The functions below that charge or
 * refund leave such a state as it is: history_push and history_pop change the history itself.
 */

/* The state of a key that was never used. */
struct state rule_fresh(const struct rule *rule, uint64_t now_ns);

/* The units that can pass now. */
uint64_t rule_headroom(const struct rule *rule, struct state state, uint64_t now_ns);

/* The state after `units` have passed at `now_ns`, whether they fit or not. */
struct state rule_charge(const struct rule *rule, struct state state, uint64_t now_ns, uint64_t units);

/*
 * The state after `units` that passed at `then_ns`; later charges may be in the state already. Uses the rule's
 * algorithm, period, origin and unit alone.
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

/* The least wait after which `cost` fits if no other request comes; 0: now; UINT64_MAX: never. */
uint64_t rule_retry_after(const struct rule *rule, struct state state, uint64_t now_ns, uint64_t cost);

/* The wait after which the state equals a fresh one. */
uint64_t rule_reset_after(const struct rule *rule, struct state state, uint64_t now_ns);
/* The same once a unit has passed at this time; of a bucket, whose reset follows from its units, before it has. */
uint64_t rule_used_reset_after(const struct rule *rule, struct state state, uint64_t now_ns);

/* The usage of an evicted key, in little room: at most `units` are in use, and none after `until_ns`. 0 units: the
 * state is as a fresh one. */
struct usage {
    uint64_t units, until_ns;
};

struct usage rule_usage(const struct rule *rule, struct state state, uint64_t now_ns);

/*
 * The state that a usage stands for, at a later time. Invariant: its headroom is at most that of the original state at
 * this time, and a greater usage has no more headroom. A bucket under another rate owes the same time.
 */
struct state rule_resume(const struct rule *rule, struct usage usage, uint64_t now_ns);

#endif
