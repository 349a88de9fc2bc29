/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One limit in the numbers the arithmetic wants, and the state of one key under it.
 */
#ifndef WEIR_ALGORITHM_RULE_H
#define WEIR_ALGORITHM_RULE_H

#include <stdint.h>

#include "weir/weir.h"

/*
 * A key's state under one limit: two words that change together. What they hold is the algorithm's; only the low
 * STATE_B_BITS of b are, the bits above belong to whoever stores it.
 */
struct state {
    uint64_t a, b;
};

#define STATE_B_BITS 44
#define STATE_B_MASK ((UINT64_C(1) << STATE_B_BITS) - 1)

/* A bucket's times are kept in 1/64 ns, so that the time one unit takes to refill is a whole number. */
#define BUCKET_FRACTION_BITS 6

struct rule {
    weir_algorithm algorithm;
    uint64_t limit; /* units at once: a window's limit, a bucket's burst */
    uint64_t period_ns;
    uint64_t origin_ns; /* bucket: times are kept from here; fleet time */
    uint64_t unit;      /* bucket: time one unit takes to refill, 1/64 ns; 0: units cost nothing (limit is off) */
    uint64_t tolerance; /* bucket: time the whole burst takes to refill, 1/64 ns: burst * unit */
};

/*
 * The rule of a valid limit. `origin_ns` is one for all of a process, at least as early as any time it will see, and at
 * most some years before.
 */
struct rule rule_make(const weir_limit *limit, uint64_t origin_ns);

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

/* Earliest wait after which `cost` fits if nobody else comes; 0: now; UINT64_MAX: never. */
uint64_t rule_retry_after(const struct rule *rule, struct state state, uint64_t now_ns, uint64_t cost);

/* The wait after which the state is as a fresh one. */
uint64_t rule_reset_after(const struct rule *rule, struct state state, uint64_t now_ns);

#endif
