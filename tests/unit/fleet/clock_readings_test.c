/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node makes of single readings of the fleet's clock. There is no fleet: the test gives the readings.
 *
 * Guards: src/fleet/fleet_clock.c
 */
#include "fleet/state.h"
#include "support/support.h"
#include "thread/tick.h"

/* A fleet clock that is fed with readings: round trips and errors in microseconds. */
struct reading_of_time {
    uint64_t rtt_us;
    int64_t error_us;
};

static void feed(struct fleet *fleet, struct reading_of_time reading)
{
    struct round *round = &fleet->round;
    round->sent_ns = 500 * SECOND;
    round->received_ns = round->sent_ns + reading.rtt_us * 1000;
    const uint64_t middle_ns = round->sent_ns + reading.rtt_us * 500;
    round->fleet_wall_ns = middle_ns + load_relaxed(&fleet->line->offset_ns) + (uint64_t) (reading.error_us * 1000);
    fleet_clock_sample(fleet, 501 * SECOND);
    assert_int_equal(load_relaxed(&fleet->stats.clock_skew_ns), reading.error_us * 1000);
}

static void test_of_eight_readings_the_one_with_the_least_round_trip_counts(void **state)
{
    (void) state;
    static const struct {
        struct reading_of_time first, best, other; /* the first of all, the fifth, and the rest */
        int64_t slew_us;
    } cases[] = {
        {{100, 0}, {100, 700}, {900, -5000}, 700},
        {{100, 0}, {300, 700}, {900, -5000}, 600}, /* 200 more than the least may all be on one way */
        {{100, 0}, {300, -700}, {900, 5000}, -600},
        {{100, 0}, {300, 99}, {900, -5000}, 0},
        {{300, 0}, {100, 700}, {900, -5000}, 700},
        {{100, 0}, {100, 900000}, {900, 0}, 900000},
        {{100, 0}, {100, -900000}, {900, 0}, -900000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tick_line line = {.offset_ns = 12345};
        struct fleet fleet = {.line = &line, .clock = {.known = true}};
        for (int series = 0; series < 2; series++) {
            /* The first series knows the shortest round trip of all. */
            const struct reading_of_time one = series == 0 ? cases[i].first : cases[i].best;
            for (int n = 0; n < 8; n++) {
                fleet.clock.slew_left_ns = 77;
                feed(&fleet, n == 4 ? one : cases[i].other);
                assert_int_equal(fleet.clock.samples, (n + 1) % 8);
                assert_true(n == 7 || fleet.clock.slew_left_ns == 77); /* the eighth decides */
            }
        }
        assert_int_equal(fleet.clock.slew_left_ns, cases[i].slew_us * 1000);
        assert_int_equal(load_relaxed(&line.offset_ns), 12345);
    }
}

static void test_a_first_reading_moves_a_guess_by_what_is_certain(void **state)
{
    (void) state;
    static const struct {
        struct reading_of_time reading;
        int64_t slew_us;
    } cases[] = {
        {{1000, 500}, 0}, {{1000, 501}, 1}, {{1000, -501}, -1}, {{1000, 20500}, 20000}, {{1000, -20500}, -20000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tick_line line = {.offset_ns = 12345};
        struct fleet fleet = {.line = &line};
        feed(&fleet, cases[i].reading);
        assert_true(fleet.clock.known);
        assert_int_equal(fleet.clock.slew_left_ns, cases[i].slew_us * 1000);
        assert_int_equal(fleet.clock.samples, 0);
    }
}

static void test_a_clock_is_moved_by_a_hundredth_of_the_time(void **state)
{
    (void) state;
    static const struct {
        int64_t left_ns;
        uint64_t elapsed_ns;
        int64_t by_ns;
    } cases[] = {{5000, 100000, 1000}, {-5000, 100000, -1000}, {900, 100000, 900},  {-900, 100000, -900},
                 {5000, 99, 0},        {0, 100000, 0},         {1000, 100000, 1000}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tick_line line = {.offset_ns = 12345};
        struct fleet fleet = {.line = &line, .clock = {.slew_left_ns = cases[i].left_ns}};
        fleet_clock_slew(&fleet, cases[i].elapsed_ns);
        assert_int_equal(fleet.clock.slew_left_ns, cases[i].left_ns - cases[i].by_ns);
        assert_int_equal(load_relaxed(&line.offset_ns), 12345 + cases[i].by_ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_of_eight_readings_the_one_with_the_least_round_trip_counts),
        cmocka_unit_test(test_a_first_reading_moves_a_guess_by_what_is_certain),
        cmocka_unit_test(test_a_clock_is_moved_by_a_hundredth_of_the_time),
    };
    return cmocka_run_group_tests_name("unit/fleet/clock_readings", tests, NULL, NULL);
}
