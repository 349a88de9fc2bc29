/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that are killed while Redis is gone. The other nodes cannot know of it before Redis is back, and then cannot
 * distinguish the killed nodes from nodes that are still cut off (docs/outages.md: a node that is killed).
 *
 * No second has more than 1.05 of the limit and, of a bucket, what the bucket had left of its burst. What the killed
 * nodes had for themselves refills unused, so the bucket may be full when the other nodes come back. No second has less
 * than the part of the limit that the living nodes had, and none less than 0.9 of what is asked, up to the limit, once
 * the killed nodes no longer count.
 *
 * Drawn from the seed: bursts of a thirtieth of the limit to three limits, the demand, 2 to 8 nodes, how many of them
 * are killed and when, for how long Redis is gone and how, and whether its data is lost.
 *
 * WEIR_FLEET_SEEDS: so many seeds, and a line for each.
 *
 * Guards: src/fleet/membership.c, src/fleet/round.c, src/fleet/fleet.c
 */
#include <math.h>

#include "runs.h"

/*
 * The limit is fixed, so that a unit is a small part of what a second is bounded by. What is drawn is what
 * docs/outages.md tells the bounds of; wider ranges would need wider bounds.
 */
#define LIMIT        2000
#define SEEDS        20
#define SEEDS_WINDOW 10
#define MOST         1.05
#define MORE_OF_LOG  0.08 /* units that passed at once leave a log at once, and then all nodes find equal room */
#define LEAST_PART   0.9
#define LEAST_SHARE  0.95          /* of the part of the nodes that are left */
#define FAILED_NS    (12 * SECOND) /* a killed node no longer counts: 10 s, and what is learned anew */
#define WAITED_NS    (10 * SECOND) /* the last node is back, and all have waited for the killed ones */
#define AFTER_NS     (22 * SECOND)

struct death {
    uint64_t burst;
    double demand;
    struct sim_fault faults[3];
    size_t fault_count;
    unsigned nodes, killed;
    uint64_t first; /* second that counts */
    uint64_t killed_ns, back_ns;
};

static struct death draw(uint64_t seed)
{
    static const enum sim_fault_kind kinds[] = {SIM_DOWN, SIM_HANG};
    static const uint64_t lengths_ns[] = {SECOND, 3 * SECOND, 10 * SECOND, 30 * SECOND};
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);
    struct death death = {.demand = random_below(&random, 4) == 0 ? 0.9 : 3.0};
    death.burst = (uint64_t) (LIMIT * pow(10, (double) random_below(&random, 2001) / 1000 - 1.5));
    death.nodes = 2 + (unsigned) random_below(&random, 7);
    death.killed = 1 + (unsigned) random_below(&random, death.nodes / 2);
    death.first = 2 + (death.demand > 1 ? death.burst / LIMIT / 2 + 1 : 0);
    const uint64_t from_ns = (death.first + 1) * SECOND + random_below(&random, SECOND);
    const uint64_t length_ns = lengths_ns[random_below(&random, 4)];
    death.back_ns = from_ns + length_ns;
    death.killed_ns = from_ns + random_below(&random, length_ns / MILLISECOND) * MILLISECOND;
    death.faults[0] =
        (struct sim_fault){.kind = kinds[random_below(&random, 2)], .from_ns = from_ns, .until_ns = death.back_ns};
    death.faults[1] = (struct sim_fault){
        .kind = SIM_KILL, .first = death.nodes - death.killed, .last = death.nodes - 1, .from_ns = death.killed_ns};
    death.faults[2] = (struct sim_fault){.kind = SIM_EMPTY, .from_ns = death.back_ns - 50 * MILLISECOND};
    death.fault_count = 2 + random_below(&random, 2);
    return death;
}

/* What a second should have at the least, of what is asked, up to the limit. */
static double least_of(const void *drawn, size_t second)
{
    const struct death *death = drawn;
    const uint64_t at_ns = second * SECOND;
    if (at_ns >= death->killed_ns + FAILED_NS && at_ns >= death->back_ns + WAITED_NS) {
        return LEAST_PART;
    }
    return fmin(LEAST_SHARE * (death->nodes - death->killed) / death->nodes, LEAST_PART);
}

static bool check(uint64_t seed, weir_algorithm algorithm)
{
    const struct death death = draw(seed);
    struct seconds_run run;
    seconds_run_init(&run, seed, algorithm, LIMIT, death.burst);
    run.options.nodes = death.nodes;
    run.options.demand = death.demand;
    run.options.length_ns = (death.back_ns + AFTER_NS) / SECOND * SECOND;
    run.options.faults = death.faults;
    run.options.fault_count = death.fault_count;
    struct sim_audit audit;
    const struct run_seconds seconds = run_seconds(&run, death.first, least_of, &death, &audit);
    const double highest = MOST + (algorithm == WEIR_SLIDING_LOG ? MORE_OF_LOG : 0);
    const bool holds = seconds.least >= 1 && seconds.over <= highest && audit.good;
    print_seconds(&run, &seconds, &audit, holds);
    return holds;
}

static void test_nodes_killed_in_an_outage_leave_no_bucket_with_more_than_it_had(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_TOKEN_BUCKET, SEEDS);
}

static void test_nodes_killed_in_an_outage_leave_no_window_with_more(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_FIXED_WINDOW, SEEDS_WINDOW);
}

static void test_nodes_killed_in_an_outage_leave_no_window_that_slides_with_more(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_SLIDING_WINDOW, SEEDS_WINDOW);
}

static void test_nodes_killed_in_an_outage_leave_no_log_with_more(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_SLIDING_LOG, SEEDS_WINDOW);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_killed_in_an_outage_leave_no_bucket_with_more_than_it_had),
        cmocka_unit_test(test_nodes_killed_in_an_outage_leave_no_window_with_more),
        cmocka_unit_test(test_nodes_killed_in_an_outage_leave_no_window_that_slides_with_more),
        cmocka_unit_test(test_nodes_killed_in_an_outage_leave_no_log_with_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
