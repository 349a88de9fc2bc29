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

#define LIMIT        2000
#define SEEDS        40
#define SEEDS_WINDOW 20
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

/* What the seconds of a run show. */
struct seconds {
    double over;  /* the most that a second had above the limit and what the bucket had left */
    double least; /* of what the living nodes are due */
    size_t over_at, least_at;
};

/* What a second should have at the least, of what is asked, up to the limit. */
static double least_of(const struct death *death, size_t second)
{
    const uint64_t at_ns = second * SECOND;
    if (at_ns >= death->killed_ns + FAILED_NS && at_ns >= death->back_ns + WAITED_NS) {
        return LEAST_PART;
    }
    return fmin(LEAST_SHARE * (death->nodes - death->killed) / death->nodes, LEAST_PART);
}

static struct seconds look(const struct sim *sim, const struct death *death, double burst)
{
    struct seconds seconds = {.least = 1e9, .over = -1e9};
    double left = burst;
    for (size_t i = 0; i < sim_second_count(sim); i++) {
        const struct sim_second second = sim_get_second(sim, i);
        const double fraction = second.admitted / fmin(second.asked, 1) / least_of(death, i);
        const double over = second.admitted - left;
        left = fmin(burst, fmax(0, left + 1 - second.admitted));
        if (i >= death->first && fraction < seconds.least) {
            seconds.least = fraction;
            seconds.least_at = i;
        }
        if (i >= death->first && over > seconds.over) {
            seconds.over = over;
            seconds.over_at = i;
        }
    }
    return seconds;
}

static bool check(uint64_t seed, weir_algorithm algorithm)
{
    const struct death death = draw(seed);
    const bool bucket = algorithm == WEIR_TOKEN_BUCKET;
    const weir_limit limit = {
        .algorithm = algorithm, .limit = LIMIT, .period_ns = SECOND, .burst = bucket ? death.burst : 0};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    struct sim_options options;
    sim_options_init(&options);
    options.seed = seed;
    options.policies = &policy;
    options.policy_count = 1;
    options.nodes = death.nodes;
    options.demand = death.demand;
    options.length_ns = (death.back_ns + AFTER_NS) / SECOND * SECOND;
    options.faults = death.faults;
    options.fault_count = death.fault_count;
    options.link.delay_min_ns = MILLISECOND / 10;
    options.link.delay_max_ns = 3 * MILLISECOND / 10;
    struct sim *sim = NULL;
    weir_error error;
    if (sim_open(&options, &sim, &error) != 0) {
        fail_msg("%s", error.message);
    }
    sim_run(sim);
    const struct seconds seconds = look(sim, &death, bucket ? (double) death.burst / LIMIT : 0);
    struct sim_audit audit;
    sim_audit(sim, &audit);
    sim_close(sim);
    const double highest = MOST + (algorithm == WEIR_SLIDING_LOG ? MORE_OF_LOG : 0);
    const bool holds = seconds.least >= 1 && seconds.over <= highest && audit.good;
    if (!holds || getenv("WEIR_FLEET_SEEDS") != NULL) {
        char command[1200];
        describe(&options, command, sizeof(command));
        print_message("# %s%.3f of the least in second %zu, %.3f beside what was left in second %zu%s; algorithm %d, "
                      "burst %llu %s\n",
                      holds ? "" : "WRONG: ", seconds.least, seconds.least_at, seconds.over, seconds.over_at,
                      audit.good ? "" : audit.wrong, (int) algorithm, (unsigned long long) limit.burst, command);
    }
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
