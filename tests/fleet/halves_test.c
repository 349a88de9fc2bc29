/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token buckets while half of the nodes are cut off from Redis and come back. No second has less than 0.9 of what is
 * asked, up to the limit. No second has more than 1.05 of the limit, while the nodes are silent and afterwards.
 *
 * Drawn from the seed: bursts of a tenth of the limit to ten limits, 2 to 8 nodes, which half of the nodes, for how
 * long, and how. Nothing arrives; or the answers alone do not arrive; or a path is dead, and what was sent first
 * arrives at the end. A bucket begins full, so the seconds that use the burst up do not count. An outage ends before a
 * silent node counts as failed (docs/outages.md: a node that is killed).
 *
 * WEIR_FLEET_SEEDS: so many seeds, and a line for each.
 *
 * Guards: src/fleet/keys/demand_learn.c, src/fleet/keys/report_bucket.c, src/transport/loopback/records.c
 */
#include <math.h>

#include "runs.h"

#define LIMIT      2000
#define SEEDS      60
#define MOST       1.05
#define LEAST_PART 0.9
#define AFTER_NS   (8 * SECOND)

struct half {
    uint64_t seed, burst;
    double demand;
    struct sim_fault fault;
    unsigned nodes;
    uint64_t first; /* second that counts */
};

static struct half draw(uint64_t seed)
{
    static const enum sim_fault_kind kinds[] = {SIM_CUT, SIM_DEAF, SIM_STUCK};
    static const uint64_t lengths_ns[] = {SECOND, 3 * SECOND, 6 * SECOND};
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);
    struct half half = {.seed = seed, .demand = random_below(&random, 4) == 0 ? 0.9 : 3.0};
    half.burst = (uint64_t) (LIMIT * pow(10, (double) random_below(&random, 2001) / 1000 - 1));
    half.nodes = 2 + (unsigned) random_below(&random, 7);
    const bool last = random_below(&random, 2) != 0;
    half.fault.kind = kinds[random_below(&random, 3)];
    half.fault.first = last ? half.nodes - half.nodes / 2 : 0;
    half.fault.last = half.fault.first + half.nodes / 2 - 1;
    /* Three times the limit uses two bursts up in the time in which one refills. */
    half.first = 2 + (half.demand > 1 ? half.burst / LIMIT / 2 + 1 : 0);
    half.fault.from_ns = (half.first + 1) * SECOND + random_below(&random, SECOND);
    half.fault.until_ns = half.fault.from_ns + lengths_ns[random_below(&random, 3)];
    return half;
}

static bool check(uint64_t seed)
{
    const struct half half = draw(seed);
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = LIMIT, .period_ns = SECOND, .burst = half.burst};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    struct sim_options options;
    sim_options_init(&options);
    options.seed = seed;
    options.policies = &policy;
    options.policy_count = 1;
    options.nodes = half.nodes;
    options.demand = half.demand;
    options.length_ns = (half.fault.until_ns + AFTER_NS) / SECOND * SECOND;
    options.faults = &half.fault;
    options.fault_count = 1;
    options.link.delay_min_ns = MILLISECOND / 10;
    options.link.delay_max_ns = 3 * MILLISECOND / 10;
    struct sim *sim = NULL;
    weir_error error;
    if (sim_open(&options, &sim, &error) != 0) {
        fail_msg("%s", error.message);
    }
    sim_run(sim);
    double least = 1e9;
    double most = 0;
    size_t least_at = 0;
    size_t most_at = 0;
    size_t high = 0;
    for (size_t i = half.first; i < sim_second_count(sim); i++) {
        const struct sim_second second = sim_get_second(sim, i);
        const double fraction = second.admitted / (second.asked < 1 ? second.asked : 1);
        least_at = fraction < least ? i : least_at;
        least = fraction < least ? fraction : least;
        most_at = second.admitted > most ? i : most_at;
        most = second.admitted > most ? second.admitted : most;
        high += second.admitted > MOST;
    }
    struct sim_audit audit;
    sim_audit(sim, &audit);
    sim_close(sim);
    const bool holds = least >= LEAST_PART && high == 0 && audit.good;
    if (!holds || getenv("WEIR_FLEET_SEEDS") != NULL) {
        char command[1200];
        describe(&options, command, sizeof(command));
        print_message("# %s%.3f in second %zu to %.3f in second %zu%s; --limit bucket:%d/1s:%llu %s\n",
                      holds ? "" : "WRONG: ", least, least_at, most, most_at, audit.good ? "" : audit.wrong, LIMIT,
                      (unsigned long long) half.burst, command);
    }
    return holds;
}

static void test_half_of_the_nodes_come_back(void **state)
{
    (void) state;
    size_t bad = 0;
    for (uint64_t i = 0; i < seed_count(SEEDS); i++) {
        bad += !check(first_seed() + i);
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_half_of_the_nodes_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
