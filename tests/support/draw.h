/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests draw at random: limits, periods, bursts, costs, nodes, intervals, starts. The ranges are those of what
 * people write, up to what weir accepts, and what most people write is drawn most of the time. A test that needs a
 * number of its own fixes it, and says why.
 */
#ifndef WEIR_TESTS_DRAW_H
#define WEIR_TESTS_DRAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

/*
 * How many random cases a test runs that usually runs so many: WEIR_DRAWS percent of them, at least one. WEIR_DRAWS=200
 * looks for longer, WEIR_DRAWS=10 is quick.
 */
unsigned test_draws(unsigned usual);

/* The next number of a generator; `rng` is its state, and any number begins it. */
uint64_t random_next(uint64_t *rng);
/* 0 to bound - 1, each as likely. */
uint64_t random_below(uint64_t *rng, uint64_t bound);

/* One of the elements of an array, each as likely. What is to come often is in the array more than once. */
#define draw_one_of(rng, array) ((array)[random_below((rng), sizeof(array) / sizeof((array)[0]))])

/* True once in so many times. */
bool draw_once_in(uint64_t *rng, uint64_t times);

/* `least` to `most`, each as likely. */
uint64_t draw_between(uint64_t *rng, uint64_t least, uint64_t most);

/* `least` (at least 1) to `most`, each order of magnitude as likely as another. */
uint64_t draw_magnitude(uint64_t *rng, uint64_t least, uint64_t most);

/* 0 to 1; and from `least` to `most`, each order of magnitude as likely as another. */
double draw_fraction(uint64_t *rng);
double draw_spread(uint64_t *rng, double least, double most);

/* All five, each as likely. */
weir_algorithm draw_algorithm(uint64_t *rng);

/*
 * 1 ms to 366 days. Often a second or a minute; 10 s, an hour, a day; now and then 100 ms, 7 s, 90 s, 30 days; at times
 * any other, and the least and the greatest.
 */
uint64_t draw_period_ns(uint64_t *rng);

/*
 * 1 to WEIR_MAX_UNITS. Often 100, 10 and 1000; 1, 2, 3, 5, 60, 500, 10000, 1000000; at times any other, and the
 * greatest.
 */
uint64_t draw_limit(uint64_t *rng);

/* 0 to WEIR_MAX_UNITS. Half of the time 0, which is `limit`; the limit, a half of it, 1, ten times as many; any. */
uint64_t draw_burst(uint64_t *rng, uint64_t limit);

/*
 * 1 to a little more than passes at once. Mostly 1; now and then 2 to 5, or the size of a packet in bytes, 40 to 1500;
 * at times any up to `at_once`, all of it, or one or two more, which never pass.
 */
uint64_t draw_cost(uint64_t *rng, uint64_t at_once);

/* 1 to 32: seven of eight times 1 to 8. */
unsigned draw_nodes(uint64_t *rng);

/* 10 to 5000 ms. Half of the time 200, the default; often 100 and 250; else any. */
uint32_t draw_interval_ms(uint64_t *rng);

/*
 * What is asked for of what the limits let pass: a twentieth to ten times as much. Often three times as much, or nine
 * tenths.
 */
double draw_demand(uint64_t *rng);

/*
 * The moment at which a test begins: of the years 2025 to 2034. Half of the time any; else a border of a window of this
 * period (0: of a day), of a day, a month or a year, or up to a millisecond before it or after it.
 */
uint64_t draw_start_ns(uint64_t *rng, uint64_t period_ns);

/*
 * A whole limit that weir accepts, with a limit, a burst and a delay as above. A period of 0 is drawn. One of eight
 * fixed windows goes by the calendar, and then has no period. A log has at most WEIR_MAX_LOG_UNITS, a bucket what its
 * rate and the time to fill it allow.
 */
weir_limit draw_weir_limit(uint64_t *rng, weir_algorithm algorithm, uint64_t period_ns);

/* Lowers what is too much for weir: a limit, a burst or a delay that a test has changed. */
void draw_make_valid(weir_limit *limit);

#endif
