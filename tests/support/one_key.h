/* SPDX-License-Identifier: Apache-2.0 */
/* One thread that checks one key of a weir, under a clock that the test moves. */
#ifndef WEIR_TESTS_ONE_KEY_H
#define WEIR_TESTS_ONE_KEY_H

#include "support/support.h"

#define MINUTE (60 * SECOND)
#define DAY    (24 * HOUR)
#define NEVER  UINT64_MAX

/* 2026-01-01, which is a multiple of every period here. */
#define START_NS (UINT64_C(1767225600) * SECOND)

struct one_key {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
    weir_key key;
    uint64_t start_ns;
};

static inline void one_key_open(struct one_key *b, const weir_limit *limits, size_t count, uint64_t wall_ns)
{
    fake_clock_init(&b->clock, wall_ns);
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = 1;
    options.max_log_units = 100000;
    options.clock = &b->clock.clock;
    b->w = open_or_fail(&options);
    b->t = weir_attach(b->w);
    assert_non_null(b->t);
    b->key = weir_make_key(b->w, set_one_policy(b->w, limits, count, WEIR_SCOPE_PROCESS), "k", 1);
    b->start_ns = wall_ns;
}

static inline void one_key_pass(struct one_key *b, uint64_t ns)
{
    fake_clock_advance(&b->clock, ns);
    assert_true(weir_poll(b->w) >= 0);
}

/* Moves the clock to this time after the start. */
static inline void one_key_to(struct one_key *b, uint64_t ns)
{
    assert_true(b->start_ns + ns >= b->clock.wall_ns);
    one_key_pass(b, b->start_ns + ns - b->clock.wall_ns);
}

/* Asks for single units until one is denied, and says how many passed. */
static inline uint64_t one_key_drain(struct one_key *b, uint64_t most)
{
    uint64_t passed = 0;
    for (; passed < most && weir_check(b->t, &b->key, 1, NULL); passed++) {
    }
    return passed;
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#endif
