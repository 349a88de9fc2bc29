/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Half of the nodes are cut off from Redis and come back, together or the last one later. No second has less than 0.9
 * of what is asked, up to the limit. No second has more than 1.05 of the limit beside what a bucket had left of its
 * burst, while the nodes are silent and afterwards.
 *
 * Drawn from the seed: the limit, bursts of a tenth of the limit to ten limits, 2 to 8 nodes, which half of the nodes,
 * for how long, and how. Nothing arrives; or the answers alone do not arrive; or a path is dead, and what was sent
 * first arrives at the end. A bucket begins full, so the seconds that use the burst up do not count. An outage ends
 * before a silent node counts as failed (docs/outages.md: a node that is killed).
 *
 * A log frees at once what passed at once, so its bounds are a little wider.
 *
 * WEIR_FLEET_SEEDS: so many seeds, and a line for each.
 *
 * Guards: src/fleet/keys/demand_learn.c, src/fleet/keys/presumed.c, src/fleet/keys/report_bucket.c
 */
#include <math.h>

#include "runs.h"

/*
 * The limit is fixed, so that a unit is a small part of what a second is bounded by. What is drawn is what
 * docs/outages.md tells the bounds of; wider ranges would need wider bounds. The seeds below stand for cases of these
 * ranges.
 */
#define SEEDS      30
#define MOST       1.05
#define LEAST_PART 0.9

/* Of a log: the worst of 300 seeds is 1.053, and 0.885. */
#define MOST_OF_LOG  1.06
#define LEAST_OF_LOG 0.88

/*
 * A dead path delivers an old report at its end, and the silent nodes seem to have spoken: 1.147 where one node of two
 * is silent, 1.106 where the last of three comes back later.
 */
#define SEED_OF_OLD_REPORT  278
#define SEED_OF_OLD_REPORTS 156

/* Where silent nodes are presumed to have had room that older units still took, a second has 0.877. */
#define SEED_OF_KEPT_UNITS 202

#define LATER_NS (2 * SECOND)
#define AFTER_NS (8 * SECOND)

struct half {
    uint64_t limit, burst;
    double demand;
    struct sim_fault faults[2];
    size_t fault_count;
    unsigned nodes;
    uint64_t first; /* second that counts */
    uint64_t until_ns;
};

/* Half of the time the last of several nodes comes back by itself, later than the other ones. */
static void split(struct half *half, uint64_t later_ns)
{
    struct sim_fault *first = &half->faults[0];
    if (first->first < first->last && later_ns < LATER_NS) {
        half->faults[1] = *first;
        half->faults[1].first = first->last--;
        half->until_ns = half->faults[1].until_ns += later_ns;
        half->fault_count = 2;
    }
}

static struct half draw(uint64_t seed, weir_algorithm algorithm)
{
    static const enum sim_fault_kind kinds[] = {SIM_CUT, SIM_DEAF, SIM_STUCK};
    static const uint64_t lengths_ns[] = {SECOND, 3 * SECOND, 6 * SECOND};
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);
    struct half half = {.demand = random_below(&random, 4) == 0 ? 0.9 : 3.0, .fault_count = 1};
    const double bursts = pow(10, (double) random_below(&random, 2001) / 1000 - 1);
    half.nodes = 2 + (unsigned) random_below(&random, 7);
    const bool last = random_below(&random, 2) != 0;
    struct sim_fault *fault = &half.faults[0];
    fault->kind = kinds[random_below(&random, 3)];
    fault->first = last ? half.nodes - half.nodes / 2 : 0;
    fault->last = fault->first + half.nodes / 2 - 1;
    /* Three times the limit uses two bursts up in the time in which one refills. */
    const uint64_t full = algorithm == WEIR_TOKEN_BUCKET ? (uint64_t) bursts / 2 : 0;
    half.first = 2 + (half.demand > 1 ? full + 1 : 0);
    fault->from_ns = (half.first + 1) * SECOND + random_below(&random, SECOND);
    half.until_ns = fault->until_ns = fault->from_ns + lengths_ns[random_below(&random, 3)];
    half.limit = random_below(&random, 2) != 0 ? 1000 : 2000;
    half.burst = (uint64_t) ((double) half.limit * bursts);
    split(&half, random_below(&random, 2 * LATER_NS));
    return half;
}

static bool check(uint64_t seed, weir_algorithm algorithm)
{
    const struct half half = draw(seed, algorithm);
    struct seconds_run run;
    seconds_run_init(&run, seed, algorithm, half.limit, half.burst);
    run.options.nodes = half.nodes;
    run.options.demand = half.demand;
    run.options.length_ns = (half.until_ns + AFTER_NS) / SECOND * SECOND;
    run.options.faults = half.faults;
    run.options.fault_count = half.fault_count;
    struct sim_audit audit;
    const struct run_seconds seconds = run_seconds(&run, half.first, NULL, NULL, &audit);
    const bool log = algorithm == WEIR_SLIDING_LOG;
    const bool holds =
        seconds.least >= (log ? LEAST_OF_LOG : LEAST_PART) && seconds.over <= (log ? MOST_OF_LOG : MOST) && audit.good;
    print_seconds(&run, &seconds, &audit, holds);
    return holds;
}

static void test_half_of_the_nodes_of_a_bucket_come_back(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_TOKEN_BUCKET, SEEDS);
}

static void test_half_of_the_nodes_of_a_fixed_window_come_back(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_FIXED_WINDOW, SEEDS);
}

static void test_half_of_the_nodes_of_a_sliding_window_come_back(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_SLIDING_WINDOW, SEEDS);
}

static void test_half_of_the_nodes_of_a_log_come_back(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_SLIDING_LOG, SEEDS);
}

static void test_an_old_report_of_a_silent_node_is_no_demand_of_the_others(void **state)
{
    (void) state;
    assert_true(check(SEED_OF_OLD_REPORT, WEIR_SLIDING_LOG));
    assert_true(check(SEED_OF_OLD_REPORTS, WEIR_SLIDING_LOG));
}

static void test_silent_nodes_have_no_room_that_older_units_take(void **state)
{
    (void) state;
    assert_true(check(SEED_OF_KEPT_UNITS, WEIR_SLIDING_LOG));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_of_the_nodes_of_a_bucket_come_back),
        cmocka_unit_test(test_half_of_the_nodes_of_a_fixed_window_come_back),
        cmocka_unit_test(test_half_of_the_nodes_of_a_sliding_window_come_back),
        cmocka_unit_test(test_half_of_the_nodes_of_a_log_come_back),
        cmocka_unit_test(test_an_old_report_of_a_silent_node_is_no_demand_of_the_others),
        cmocka_unit_test(test_silent_nodes_have_no_room_that_older_units_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
