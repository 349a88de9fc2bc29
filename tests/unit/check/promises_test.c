/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each algorithm promises, compared with all that has passed: the most units in any span of a period, and that a
 * denied request passes after retry_after_ns and not earlier.
 *
 * Guards: src/algorithm/window.c, src/algorithm/bucket.c, src/algorithm/history.c, src/check/denial.c
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "support/one_key.h"

/* 100 units per 10 s, 100 at once: what passes of 300 requests just before a boundary and 300 at it. */
static void test_only_a_fixed_window_lets_a_second_burst_through_at_a_boundary(void **state)
{
    (void) state;
    static const struct {
        weir_limit limit;
        uint64_t before, at, second_later, period_later;
    } cases[] = {
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = 10 * SECOND}, 100, 100, 0, 100},
        {{.algorithm = WEIR_SLIDING_WINDOW, .limit = 100, .period_ns = 10 * SECOND}, 100, 0, 10, 90},
        {{.algorithm = WEIR_SLIDING_LOG, .limit = 100, .period_ns = 10 * SECOND}, 100, 0, 0, 100},
        {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = 10 * SECOND}, 100, 0, 10, 90},
        {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = 10 * SECOND, .burst = 20}, 20, 0, 10, 20},
        {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .period_ns = 10 * SECOND}, 1, 0, 1, 1},
        {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .period_ns = 10 * SECOND, .delay = 99}, 100, 0, 10, 90},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct one_key b;
        one_key_open(&b, &cases[i].limit, 1, START_NS);
        one_key_to(&b, 10 * SECOND - 1);
        assert_int_equal(one_key_drain(&b, 300), cases[i].before);
        one_key_to(&b, 10 * SECOND);
        assert_int_equal(one_key_drain(&b, 300), cases[i].at);
        one_key_to(&b, 11 * SECOND);
        assert_int_equal(one_key_drain(&b, 300), cases[i].second_later);
        one_key_to(&b, 20 * SECOND);
        assert_int_equal(one_key_drain(&b, 300), cases[i].period_later);
        weir_close(b.w);
    }
}

#define SPAN_MS 100 /* a period, in the test below */

/* The most units that passed in any span of `length` of these milliseconds, both ends counted. */
static uint64_t most_in_span(const uint64_t *passed, size_t count, size_t length)
{
    uint64_t sum = 0;
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++) {
        sum += passed[i];
        sum -= i > length ? passed[i - length - 1] : 0;
        most = sum > most ? sum : most;
    }
    return most;
}

/* docs/choosing.md, the most at once and in a span of a period: L, 2 L; L, just under 2 L, and L + L d / P within d; L,
 * L; B, B + L; delay + 1, L + delay + 1. Traffic: floods and silences. */
static void test_spans_hold_no_more_than_each_algorithm_promises(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        uint64_t burst, delay, at_once, in_period;
    } cases[] = {
        {WEIR_FIXED_WINDOW, 0, 0, 50, 100}, {WEIR_SLIDING_WINDOW, 0, 0, 50, 99}, {WEIR_SLIDING_LOG, 0, 0, 50, 50},
        {WEIR_TOKEN_BUCKET, 15, 0, 15, 65}, {WEIR_TOKEN_BUCKET, 90, 0, 90, 140}, {WEIR_LEAKY_BUCKET, 0, 0, 1, 51},
        {WEIR_LEAKY_BUCKET, 20, 6, 7, 57},
    };
    enum { STEPS = 20000 };
    static uint64_t passed[STEPS];
    uint64_t rng = test_seed();
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const weir_limit limit = {.algorithm = cases[i].algorithm,
                                  .limit = 50,
                                  .period_ns = SPAN_MS * MILLISECOND,
                                  .burst = cases[i].burst,
                                  .delay = cases[i].delay};
        struct one_key b;
        one_key_open(&b, &limit, 1, START_NS);
        bool flood = false;
        uint64_t left = 0;
        for (size_t ms = 0; ms < STEPS; ms++, one_key_pass(&b, MILLISECOND)) {
            flood = left == 0 ? !flood : flood;
            left = left == 0 ? random_below(&rng, 3 * SPAN_MS) : left - 1;
            passed[ms] = flood ? one_key_drain(&b, 200) : 0;
        }
        assert_int_equal(most_in_span(passed, STEPS, 0), cases[i].at_once);
        /* Units a period apart are within the span of a bucket, not of a window. */
        const uint64_t most = most_in_span(passed, STEPS, SPAN_MS - (limit.algorithm < WEIR_TOKEN_BUCKET));
        assert_true(most <= cases[i].in_period);
        const bool slides = limit.algorithm == WEIR_SLIDING_WINDOW;
        assert_true(slides || most == cases[i].in_period); /* and so many units do pass */
        for (size_t d = 0; d < SPAN_MS && slides; d++) {
            assert_true(most_in_span(passed, STEPS, d) <= 50 + 50 * d / SPAN_MS);
        }
        weir_close(b.w);
    }
}

/*
 * By brute force over all units that ever passed: no window of a period has more than the limit. A denied request had
 * no room; it has room at `retry_after_ns` and not before.
 */
static void test_a_sliding_log_is_exact(void **state)
{
    (void) state;
    enum { LIMIT = 37, STEPS = 30000 };
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = LIMIT, .period_ns = 1234567891};
    uint64_t *times = malloc(sizeof(uint64_t) * STEPS * 16);
    assert_non_null(times);
    size_t count = 0;
    uint64_t rng = test_seed();
    struct one_key b;
    one_key_open(&b, &limit, 1, START_NS + 1);
    for (int step = 0; step < STEPS; step++) {
        one_key_pass(&b, random_below(&rng, 3) == 0 ? 0 : random_below(&rng, limit.period_ns / 8));
        const uint64_t now_ns = b.clock.wall_ns;
        const uint64_t cost = random_below(&rng, 4) == 0 ? 1 + random_below(&rng, 16) : 1;
        size_t used = 0;
        while (used < count && times[count - 1 - used] + limit.period_ns > now_ns) {
            used++;
        }
        weir_verdict v;
        const bool passes = weir_check(b.t, &b.key, cost, &v);
        assert_int_equal(passes, used + cost <= LIMIT);
        if (!passes) { /* the oldest units must leave the window until there is room: this is the last of them */
            const size_t last = count + cost - LIMIT - 1;
            assert_int_equal(v.retry_after_ns, times[last] + limit.period_ns - now_ns);
        }
        for (uint64_t i = 0; i < cost && passes; i++) {
            times[count++] = now_ns;
        }
        assert_int_equal(v.remaining, LIMIT - used - (passes ? cost : 0));
        assert_int_equal(v.reset_after_ns, times[count - 1] + limit.period_ns - now_ns);
    }
    for (size_t i = LIMIT; i < count; i++) {
        assert_true(times[i] - times[i - LIMIT] >= limit.period_ns);
    }
    assert_true(count > STEPS / 4);
    free(times);
    weir_close(b.w);
}

/* A denied request is admitted after retry_after_ns, and not one nanosecond earlier. */
static void obey(const weir_limit *limits, size_t count, uint64_t cost_most, uint64_t pause_ns, uint64_t *rng)
{
    struct one_key b;
    one_key_open(&b, limits, count, START_NS + random_below(rng, 400 * DAY));
    int denied = 0;
    for (int i = 0; i < 3000; i++) {
        const uint64_t cost = 1 + random_below(rng, cost_most);
        weir_verdict v;
        if (!weir_check(b.t, &b.key, cost, &v)) {
            denied++;
            one_key_pass(&b, v.retry_after_ns - 1);
            const bool early = weir_check(b.t, &b.key, cost, &v);
            const uint64_t left_ns = v.retry_after_ns;
            one_key_pass(&b, 1);
            if (early || left_ns != 1 || !weir_check(b.t, &b.key, cost, &v)) {
                fail_msg("algorithm %d, cost %" PRIu64 ": 1 ns before it was time there were %" PRIu64 " ns to wait",
                         (int) limits[v.limit_index].algorithm, cost, left_ns);
            }
        }
        one_key_pass(&b, random_below(rng, 3) == 0 ? random_below(rng, pause_ns) : 0);
    }
    assert_true(denied > 100);
    weir_close(b.w);
}

static void test_who_waits_for_retry_after_is_admitted_and_one_ns_earlier_is_not(void **state)
{
    (void) state;
    static const weir_limit limits[] = {
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = MINUTE},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .calendar = WEIR_CALENDAR_DAY},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .calendar = WEIR_CALENDAR_MONTH},
        {.algorithm = WEIR_SLIDING_WINDOW, .limit = 10, .period_ns = MINUTE},
        {.algorithm = WEIR_SLIDING_WINDOW, .limit = 1013, .period_ns = 1234567891},
        {.algorithm = WEIR_SLIDING_LOG, .limit = 10, .period_ns = 7 * MILLISECOND},
        {.algorithm = WEIR_SLIDING_LOG, .limit = 100, .period_ns = 1234567891},
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = MINUTE},
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 7, .period_ns = 1234567891, .burst = 13},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = MINUTE},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 7, .period_ns = 1234567891, .burst = 12, .delay = 5},
    };
    uint64_t rng = test_seed();
    for (size_t i = 0; i < COUNT_OF(limits); i++) {
        const uint64_t most = limits[i].burst != 0 ? limits[i].burst : limits[i].limit;
        const uint64_t period_ns = limits[i].period_ns != 0 ? limits[i].period_ns : DAY;
        obey(&limits[i], 1, 1, 2 * period_ns / limits[i].limit, &rng);
        obey(&limits[i], 1, most, period_ns, &rng);
    }
    for (size_t i = 0; i + 3 <= COUNT_OF(limits); i++) {
        obey(limits + i, 3, 5, MINUTE, &rng); /* a policy of three of them */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_a_fixed_window_lets_a_second_burst_through_at_a_boundary),
        cmocka_unit_test(test_spans_hold_no_more_than_each_algorithm_promises),
        cmocka_unit_test(test_a_sliding_log_is_exact),
        cmocka_unit_test(test_who_waits_for_retry_after_is_admitted_and_one_ns_earlier_is_not),
    };
    return cmocka_run_group_tests_name("unit/check/promises", tests, NULL, NULL);
}
