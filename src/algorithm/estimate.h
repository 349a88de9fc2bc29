/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet estimate: what of a key's headroom a node leaves to the others between two answers of the fleet. Pure
 * arithmetic; the derivation is in estimate.c.
 */
#ifndef WEIR_ALGORITHM_ESTIMATE_H
#define WEIR_ALGORITHM_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

/* Rates are in 1/65536 units a second; parts of a whole in 1/2^32. */
#define RATE_BITS      16
#define FRACTION_WHOLE (UINT64_C(1) << 32)

/* No rate is above this, so that sums of two are in range. */
#define RATE_MOST (UINT64_C(1) << 61)

/* What checks need of it: the others' demand, their part of the demand for the key, and since when they are unseen. */
struct estimate {
    uint64_t remote_rate;
    uint32_t remote_fraction;
    uint64_t since_ns; /* fleet time; on average what the others did later is not known */
    uint32_t dither;   /* 0 to 65535: decides what becomes of a fraction of a unit until the next answer */
};

/* Both demands, smoothed over the answers. */
struct demand_rates {
    uint64_t local_rate, remote_rate;
    bool known;
};

/*
 * Units that the others are taken to have let pass since e->since_ns, beside `own` ones here; in 1/65536 units. Of a
 * whole (remote_fraction 0) none.
 */
uint64_t estimate_remote(const struct estimate *e, uint64_t own, uint64_t now_ns);

/* Units that may pass of `headroom`, of which `unseen` have passed here since `since_ns`; at most `headroom`. */
uint64_t estimate_left(const struct estimate *e, uint64_t headroom, uint64_t unseen, uint64_t now_ns);

/* Units over a time, as a rate. */
uint64_t estimate_rate(uint64_t units, uint64_t span_ns);

/* Takes in the rates asked during `span_ns`, which is some intervals. */
void rates_update(struct demand_rates *rates, uint64_t own, uint64_t remote, uint64_t span_ns, uint64_t interval_ns);

/* The others' part of the demand; a node asks for at least one unit per interval. */
uint32_t rates_remote_fraction(const struct demand_rates *rates, uint64_t interval_ns);

/*
 * How many of `count` units that passed in the `span_ns` before an answer the others' news, which is `age_ns` old on
 * average, covers as well.
 * `from_start`: the span began with the window. Else it began with the answer before.
 */
uint64_t estimate_seen(uint64_t count, uint64_t span_ns, uint64_t age_ns, bool from_start);

#endif
