/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token buckets and windows while Redis comes and goes: it is there for a part of each second, four times. No second
 * has less than 0.9 of what is asked, up to the limit, and none has more than 1.05 of the limit (of a sliding
 * window 1.06).
 *
 * Some nodes find Redis gone for longer than their grace, others do not. Some report what they owe before Redis goes
 * again, others do not. The nodes that hold something back, and those that do not, share one bucket all the same.
 *
 * Drawn from the seed: bursts of a quarter of the limit to two limits, the demand, 1 to 8 nodes, how long Redis is gone
 * and there, and when it goes. A bucket begins full, so the seconds that use the burst up do not count.
 *
 * WEIR_FLEET_SEEDS: so many seeds, and a line for each.
 *
 * Guards: src/fleet/membership.c, src/fleet/round.c, src/fleet/keys/demand_learn.c, src/fleet/keys/demand.c,
 * src/fleet/keys/presumed.c, src/fleet/keys/account.c, src/process/unseen.c
 */
#include <math.h>

#include "runs.h"

/*
 * The limit is fixed, so that a unit is a small part of what a second is bounded by. What is drawn is what
 * docs/outages.md tells the bounds of; wider ranges would need wider bounds. The seeds below stand for cases of these
 * ranges.
 */
#define LIMIT        2000
#define SEEDS        60
#define SEEDS_WINDOW 40
#define MOST         1.05
#define MOST_SLIDING 1.06 /* a node that is back alone presumes too little of the others (seed 17: 1.052) */
#define LEAST_PART   0.9
#define TIMES        4
#define AFTER_NS     (6 * SECOND)

#define SEED_OF_FALL   135 /* where such a fall is believed, a second has 1.113 */
#define SEED_OF_LACK   208 /* where a rate is learned from such reports, a sliding window has 1.155 */
#define SEED_OF_LAST   104 /* and 1.063, of three nodes */
#define SEED_OF_MOMENT 154 /* where such a node goes by the fleet's counts at once, a second has 1.071 */

struct flapping {
    uint64_t burst;
    double demand;
    struct sim_fault faults[TIMES];
    unsigned nodes;
    uint64_t first; /* second that counts */
};

static struct flapping draw(uint64_t seed)
{
    static const uint64_t gone_ms[] = {300, 500, 700};
    static const uint64_t there_ms[] = {300, 500, 700};
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);
    struct flapping flapping = {.demand = random_below(&random, 4) == 0 ? 0.9 : 3.0};
    flapping.burst = (uint64_t) (LIMIT * pow(2, (double) random_below(&random, 3001) / 1000 - 2));
    flapping.nodes = 1 + (unsigned) random_below(&random, 8);
    /* Three times the limit uses two bursts up in the time in which one refills. */
    flapping.first = 2 + (flapping.demand > 1 ? flapping.burst / LIMIT / 2 + 1 : 0);
    const uint64_t gone_ns = gone_ms[random_below(&random, 3)] * MILLISECOND;
    const uint64_t there_ns = there_ms[random_below(&random, 3)] * MILLISECOND;
    uint64_t at_ns = (flapping.first + 1) * SECOND + random_below(&random, SECOND);
    for (size_t i = 0; i < TIMES; i++) {
        flapping.faults[i] = (struct sim_fault){.kind = SIM_DOWN, .from_ns = at_ns, .until_ns = at_ns + gone_ns};
        at_ns += gone_ns + there_ns;
    }
    return flapping;
}

static bool check(uint64_t seed, weir_algorithm algorithm)
{
    const struct flapping flapping = draw(seed);
    struct seconds_run run;
    seconds_run_init(&run, seed, algorithm, LIMIT, flapping.burst);
    run.options.nodes = flapping.nodes;
    run.options.demand = flapping.demand;
    run.options.length_ns = (flapping.faults[TIMES - 1].until_ns + AFTER_NS) / SECOND * SECOND;
    run.options.faults = flapping.faults;
    run.options.fault_count = TIMES;
    struct sim_audit audit;
    const struct run_seconds seconds = run_seconds(&run, flapping.first, NULL, NULL, &audit);
    const double highest = algorithm == WEIR_SLIDING_WINDOW ? MOST_SLIDING : MOST;
    const bool holds = seconds.least >= LEAST_PART && seconds.most <= highest && audit.good;
    print_seconds(&run, &seconds, &audit, holds);
    return holds;
}

static void test_no_second_of_flapping_is_far_from_the_limit_of_a_bucket(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_TOKEN_BUCKET, SEEDS);
}

/* A node in an outage mode for some milliseconds did not await the others, and found their debts missing. */
static void test_a_node_in_an_outage_mode_awaits_the_others(void **state)
{
    (void) state;
    assert_true(check(SEED_OF_MOMENT, WEIR_TOKEN_BUCKET));
}

static void test_no_second_of_flapping_is_far_from_the_limit_of_a_window(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_FIXED_WINDOW, SEEDS_WINDOW);
}

/* A node believed that half of the demand was gone, after reports that were less than an interval apart. */
static void test_reports_at_irregular_moments_tell_no_rate(void **state)
{
    (void) state;
    assert_true(check(SEED_OF_FALL, WEIR_FIXED_WINDOW));
    assert_true(check(SEED_OF_LACK, WEIR_SLIDING_WINDOW));
    assert_true(check(SEED_OF_LAST, WEIR_SLIDING_WINDOW));
}

static void test_no_second_of_flapping_is_far_from_the_limit_of_a_window_that_slides(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_SLIDING_WINDOW, SEEDS_WINDOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_second_of_flapping_is_far_from_the_limit_of_a_bucket),
        cmocka_unit_test(test_a_node_in_an_outage_mode_awaits_the_others),
        cmocka_unit_test(test_no_second_of_flapping_is_far_from_the_limit_of_a_window),
        cmocka_unit_test(test_no_second_of_flapping_is_far_from_the_limit_of_a_window_that_slides),
        cmocka_unit_test(test_reports_at_irregular_moments_tell_no_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
