/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The estimate of the other nodes' usage: how much of a key's headroom this node leaves to them between two answers of
 * the fleet. Pure arithmetic; estimate.c has the derivation. Names: estimate_, rates_.
 */
#ifndef WEIR_ALGORITHM_ESTIMATE_H
#define WEIR_ALGORITHM_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

/* Rates are in 1/65536 units a second; fractions in 1/2^32. */
#define RATE_BITS      16
#define FRACTION_WHOLE (UINT64_C(1) << 32)

/* No rate is above this, so that sums of two are in range. */
#define RATE_MOST (UINT64_C(1) << 61)

/* What checks read: the remote demand, its fraction of the whole demand, and the time since which remote usage is
 * unknown. */
struct estimate {
    uint64_t remote_rate;
    uint32_t remote_fraction;
    uint64_t since_ns; /* fleet time; the mean time of the remote nodes' last reports */
    uint32_t dither; /* 0 to 65535: added before a fraction of a unit is rounded down; constant until the next answer */
};

/* Both demands, smoothed over the answers. */
struct demand_rates {
    uint64_t local_rate, remote_rate;
    bool known;
};

/*
 * The units that remote nodes are estimated to have admitted since e->since_ns, while this node admitted `own`; in
 * 1/65536 units. 0 where remote_fraction is 0.
 */
uint64_t estimate_remote(const struct estimate *e, uint64_t own, uint64_t now_ns);

/* Units that may pass of `headroom`, of which `unseen` have passed here since `since_ns`; at most `headroom`. */
uint64_t estimate_left(const struct estimate *e, uint64_t headroom, uint64_t unseen, uint64_t now_ns);

/* The rate of `units` over `span_ns`. */
uint64_t estimate_rate(uint64_t units, uint64_t span_ns);

/* Smooths in the rates of the demand during `span_ns`, which is some intervals. */
void rates_update(struct demand_rates *rates, uint64_t own, uint64_t remote, uint64_t span_ns, uint64_t interval_ns);

/* The remote fraction of the demand. The local demand counts as at least one unit per interval. */
uint32_t rates_remote_fraction(const struct demand_rates *rates, uint64_t interval_ns);

/*
 * Of `count` units that passed in the `span_ns` before an answer, the number that passed before the remote reports in
 * the answer were made; those are `age_ns` old on average. `from_start`: the span began with the window. Otherwise the
 * span began with the answer before.
 */
uint64_t estimate_seen(uint64_t count, uint64_t span_ns, uint64_t age_ns, bool from_start);

#endif
