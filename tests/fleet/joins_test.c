/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that join a running fleet. No second has more than 1.05 of the limit and, of a bucket, what the bucket had left
 * of its burst; none has less than 0.9 of what is asked, up to the limit.
 *
 * A node that joins does not know what the other nodes use, and the other nodes do not know of the node. Both learn of
 * each other an interval later.
 *
 * Drawn from the seed: 1 to 8 running nodes, one to three that join, at once or one by one, when they do; the number
 * of nodes that each is told to expect (none, the right one, a wrong one), bursts of a thirtieth of the limit to three
 * limits, the interval, and the demand.
 *
 * WEIR_FLEET_SEEDS: so many seeds, and a line for each.
 *
 * Guards: src/fleet/membership.c, src/fleet/keys/demand_learn.c, src/fleet/keys/publish.c, src/process/allowance.c
 */
#include <math.h>

#include "runs.h"

/*
 * The limit is fixed, so that a unit is a small part of what a second is bounded by. What is drawn is what
 * docs/outages.md tells the bounds of; wider ranges would need wider bounds. The seeds below stand for cases of these
 * ranges.
 */
#define LIMIT       2000
#define SEEDS       30
#define MOST        1.05
#define MORE_OF_LOG 0.02 /* units that passed at once leave a log at once, and then all nodes find equal room */
#define LEAST_PART  0.9
#define JOINING     3 /* nodes at the most */
#define AFTER_NS    (5 * SECOND)

/* Where first rates are learned at once, a second has 1.164; else 1.088. */
#define SEED_OF_FIRST_RATES 506
#define MORE_OF_FIRST_RATES 0.05

/* Where a new node goes by the room it finds, a second of a log has 1.149, and one of a sliding window 1.071. */
#define SEED_OF_UNAWARE_LOG   367
#define SEED_OF_UNAWARE_SLIDE 305

/* Where a new node takes its part of a log that the others keep full, between bursts: 1.090, 1.085 and 1.084. */
static const uint64_t seeds_of_full_log[] = {145, 256};

/* Where a guess takes the other nodes' news for new, a second of a fixed window has 1.052. */
#define SEED_OF_GUESS 553

struct joins {
    uint64_t burst;
    double demand;
    struct sim_fault faults[JOINING];
    unsigned running, joining;
    uint32_t interval_ms, expected_nodes;
    uint64_t first; /* second that counts */
    uint64_t last_ns;
};

static struct joins draw(uint64_t seed)
{
    static const uint32_t intervals_ms[] = {50, 100, 200, 200};
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15);
    struct joins joins = {.demand = random_below(&random, 3) == 0 ? 0.9 : 3.0};
    joins.burst = (uint64_t) (LIMIT * pow(10, (double) random_below(&random, 2001) / 1000 - 1.5));
    joins.running = 1 + (unsigned) random_below(&random, 8);
    joins.joining = 1 + (unsigned) random_below(&random, JOINING);
    joins.interval_ms = intervals_ms[random_below(&random, 4)];
    const uint32_t expected[] = {0, joins.running + joins.joining, 1 + (uint32_t) random_below(&random, 16)};
    joins.expected_nodes = expected[random_below(&random, 3)];
    joins.first = 2 + (joins.demand > 1 ? joins.burst / LIMIT / 2 + 1 : 0);
    const bool at_once = random_below(&random, 2) == 0;
    joins.last_ns = (joins.first + 1) * SECOND + random_below(&random, SECOND);
    for (unsigned i = 0; i < joins.joining; i++) {
        joins.last_ns += i != 0 && !at_once ? random_below(&random, 1500) * MILLISECOND : 0;
        joins.faults[i] = (struct sim_fault){
            .kind = SIM_JOIN, .first = joins.running + i, .last = joins.running + i, .from_ns = joins.last_ns};
    }
    return joins;
}

/* `more`: what a second may have above MOST. */
static bool holds_to(uint64_t seed, weir_algorithm algorithm, double more)
{
    const struct joins joins = draw(seed);
    struct seconds_run run;
    seconds_run_init(&run, seed, algorithm, LIMIT, joins.burst);
    run.options.nodes = joins.running + joins.joining;
    run.options.interval_ms = joins.interval_ms;
    run.options.expected_nodes = joins.expected_nodes;
    run.options.demand = joins.demand;
    run.options.length_ns = (joins.last_ns + AFTER_NS) / SECOND * SECOND;
    run.options.faults = joins.faults;
    run.options.fault_count = joins.joining;
    struct sim_audit audit;
    const struct run_seconds seconds = run_seconds(&run, joins.first, NULL, NULL, &audit);
    const bool holds = seconds.least >= LEAST_PART && seconds.over <= MOST + more && audit.good;
    print_seconds(&run, &seconds, &audit, holds);
    return holds;
}

static bool check(uint64_t seed, weir_algorithm algorithm)
{
    return holds_to(seed, algorithm, algorithm == WEIR_SLIDING_LOG ? MORE_OF_LOG : 0);
}

static void test_nodes_that_join_take_no_more_of_a_bucket_than_it_has(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_TOKEN_BUCKET, SEEDS);
}

static void test_nodes_that_join_take_no_more_of_a_window_than_it_has(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_FIXED_WINDOW, SEEDS);
}

static void test_nodes_that_join_take_no_more_of_a_window_that_slides_than_it_has(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_SLIDING_WINDOW, SEEDS);
}

static void test_nodes_that_join_take_no_more_of_a_log_than_it_has(void **state)
{
    (void) state;
    expect_all_hold(check, WEIR_SLIDING_LOG, SEEDS);
}

/* Two nodes join one. A new node learns its first rates after every node has reported. */
static void test_a_new_node_learns_no_rate_of_a_log_before_all_have_reported(void **state)
{
    (void) state;
    assert_true(holds_to(SEED_OF_FIRST_RATES, WEIR_SLIDING_LOG, MORE_OF_FIRST_RATES));
}

/* A node joins one or two that ask for more than the limit, and that hear of the new node an interval later. */
static void test_a_new_node_leaves_unaware_nodes_the_room(void **state)
{
    (void) state;
    assert_true(check(SEED_OF_UNAWARE_LOG, WEIR_SLIDING_LOG));
    assert_true(check(SEED_OF_UNAWARE_SLIDE, WEIR_SLIDING_WINDOW));
}

/* Between two bursts little becomes free, and the other nodes take all of that until they hear of the new node. */
static void test_a_new_node_leaves_a_full_log_to_unaware_nodes(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(seeds_of_full_log) / sizeof(seeds_of_full_log[0]); i++) {
        assert_true(check(seeds_of_full_log[i], WEIR_SLIDING_LOG));
    }
}

/* A node joins two within a window. Its first rates are guessed by the window's age. */
static void test_a_new_node_guesses_rates_by_when_the_news_was_new(void **state)
{
    (void) state;
    assert_true(check(SEED_OF_GUESS, WEIR_FIXED_WINDOW));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_that_join_take_no_more_of_a_bucket_than_it_has),
        cmocka_unit_test(test_nodes_that_join_take_no_more_of_a_window_than_it_has),
        cmocka_unit_test(test_nodes_that_join_take_no_more_of_a_window_that_slides_than_it_has),
        cmocka_unit_test(test_nodes_that_join_take_no_more_of_a_log_than_it_has),
        cmocka_unit_test(test_a_new_node_learns_no_rate_of_a_log_before_all_have_reported),
        cmocka_unit_test(test_a_new_node_leaves_unaware_nodes_the_room),
        cmocka_unit_test(test_a_new_node_leaves_a_full_log_to_unaware_nodes),
        cmocka_unit_test(test_a_new_node_guesses_rates_by_when_the_news_was_new),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
