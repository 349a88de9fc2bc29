/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A weir with two handles and the key "k" of its policy "p", under a clock that the test moves; and a limit of every
 * kind.
 */
#ifndef WEIR_TESTS_TWO_HANDLES_H
#define WEIR_TESTS_TWO_HANDLES_H

#include <string.h>

#include "support/support.h"

#define MINUTE   (60 * SECOND)
#define NEVER    UINT64_MAX
#define START_NS (UINT64_C(1767225610) * SECOND) /* 2026-01-01, ten seconds into a minute, a day, a month */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Every algorithm: 100 units pass at once, and a minute (a day, a month) brings 100 more. */
static const weir_limit kinds[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = MINUTE},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 100, .period_ns = MINUTE},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 100, .period_ns = MINUTE},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = MINUTE},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .period_ns = MINUTE, .delay = 100},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .calendar = WEIR_CALENDAR_DAY},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .calendar = WEIR_CALENDAR_MONTH},
};

static inline weir_limit of_units(weir_limit limit, uint64_t units)
{
    limit.limit = units;
    limit.delay = limit.delay != 0 ? units : 0;
    return limit;
}

/* What a test works with: a weir, two handles, and the key "k" of its policy "p" if there is one. */
static struct {
    struct fake_clock clock;
    weir *w;
    weir_thread *t, *u;
    weir_key key;
} d;

static inline weir_key key_of(const char *policy, const char *bytes)
{
    return weir_make_key(d.w, weir_find_policy(d.w, policy), bytes, strlen(bytes));
}

static inline void set_limits(const weir_limit *limits, size_t count)
{
    const weir_policy policy = {.name = "p", .limits = limits, .limit_count = count};
    assert_int_equal(weir_set_policies(d.w, &policy, 1, NULL), 0);
}

static inline int close_two_handles(void **state)
{
    (void) state;
    weir_close(d.w);
    d.w = NULL;
    return 0;
}

static inline void open_two_handles(const weir_policy *policies, size_t count)
{
    (void) close_two_handles(NULL);
    fake_clock_init(&d.clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    options.max_log_units = 200000;
    d.w = open_or_fail(&options);
    d.t = weir_attach(d.w);
    d.u = weir_attach(d.w);
    assert_int_equal(weir_set_policies(d.w, policies, count, NULL), 0);
    d.key = key_of("p", "k");
}

static inline void open_limits(const weir_limit *limits, size_t count)
{
    open_two_handles(&(weir_policy){.name = "p", .limits = limits, .limit_count = count}, 1);
}

/* Opens a new weir with the i-th kind of limit. False: there are no more. */
static inline bool next_kind(size_t i)
{
    if (i < COUNT_OF(kinds)) {
        open_limits(&kinds[i], 1);
    }
    return i < COUNT_OF(kinds);
}

static inline void pass_time(uint64_t ns)
{
    fake_clock_advance(&d.clock, ns);
    assert_true(weir_poll(d.w) >= 0);
}

/* Units that are left. A peek at the cost of all of them takes back the grants of the handles. */
static inline uint64_t left(const weir_key *key)
{
    weir_verdict v;
    (void) weir_peek(d.t, key, 1, &v);
    (void) weir_peek(d.t, key, v.limit, &v);
    assert_true(v.remaining <= v.limit);
    return v.remaining;
}

/* Single units that pass, of so many. */
static inline uint64_t take(weir_thread *t, const weir_key *key, uint64_t units)
{
    uint64_t passed = 0;
    for (weir_verdict v; units > 0; units--) {
        passed += weir_check(t, key, 1, &v);
        assert_true(v.remaining <= v.limit);
    }
    return passed;
}

static inline uint64_t take_both(uint64_t units_each)
{
    return take(d.t, &d.key, units_each) + take(d.u, &d.key, units_each);
}

#endif
