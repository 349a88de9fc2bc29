/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weir-fleetsim offers its nodes, what it holds them against, and what it makes of the counts: each worked out by
 * hand, or beside the plainest list.
 *
 * Guards: apps/fleetsim/demand.c, apps/fleetsim/truth.c, apps/fleetsim/result.c
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../apps/fleetsim/inside.h"
#include "support/support.h"

static struct sim sim;
static double fraction; /* what is drawn next */

double sim_fraction(struct sim *of)
{
    (void) of;
    return fraction;
}

uint64_t sim_fleet_wall(const struct sim *of)
{
    return of->now_ns + (uint64_t) of->fleet_wrong_ns;
}

static void test_a_pattern_says_which_nodes_are_asked_when(void **state)
{
    (void) state;
    static const struct {
        enum sim_pattern pattern;
        double at_s;
        unsigned living;
        double of[5]; /* what each node is offered, of 100 */
    } rows[] = {
        {SIM_EVEN, 5, 1, {100}},
        {SIM_EVEN, 5, 4, {25, 25, 25, 25}},
        {SIM_SKEW, 5, 1, {100}},
        {SIM_SKEW, 5, 2, {90, 10}},
        {SIM_SKEW, 5, 5, {90, 2.5, 2.5, 2.5, 2.5}},
        {SIM_ONOFF, 0, 5, {0}}, /* see below */
        {SIM_ONOFF, 1.6, 5, {0}},
        {SIM_ONOFF, 1.8, 2, {0}},
        {SIM_ONOFF, 5.2, 4, {0}},
        {SIM_MOVE, 3.2, 3, {100, 0, 0}},
        {SIM_MOVE, 3.4, 3, {0, 100, 0}},
        {SIM_MOVE, 9.8, 3, {0, 0, 100}},
        {SIM_MOVE, 10, 3, {100, 0, 0}},
        {SIM_JUMP, 6.99, 3, {100, 0, 0}},
        {SIM_JUMP, 7, 3, {0, 100, 0}},
        {SIM_JUMP, 7, 1, {100}},
        {SIM_TURNS, 0, 1, {100}},
        {SIM_TURNS, 2, 1, {100}},
        {SIM_TURNS, 1.6, 2, {100, 0}},
        {SIM_TURNS, 1.8, 2, {0, 100}},
        {SIM_TURNS, 3.5, 5, {100.0 / 3, 0, 100.0 / 3, 0, 100.0 / 3}},
        {SIM_TURNS, 1.8, 5, {0, 50, 0, 50, 0}},
        {SIM_BURST, 0.084, 4, {500, 500, 500, 500}},
        {SIM_BURST, 0.086, 4, {5, 5, 5, 5}},
        {SIM_BURST, 1.69, 1, {20}},
        {SIM_BURST, 1.75, 2, {1000, 1000}},
    };
    sim.rate = 100;
    sim.options.between = 0.2;
    sim.options.jump_ns = 7 * SECOND;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        sim.options.pattern = rows[i].pattern;
        for (unsigned rank = 0; rank < rows[i].living; rank++) {
            double wanted = rows[i].of[rank];
            if (rows[i].pattern == SIM_ONOFF) { /* on for 1.7 s and off for as long, each 0.37 of that later */
                wanted = fmod(rows[i].at_s + rank * 0.37 * 1.7, 3.4) < 1.7 ? 100.0 / rows[i].living : 0;
            }
            const double got = demand_at(&sim, rank, rows[i].living, (uint64_t) (rows[i].at_s * 1e9));
            if (fabs(got - wanted) > 1e-9) {
                fail_msg("row %zu, rank %u: %g, not %g", i, rank, got, wanted);
            }
        }
    }
}

static void test_keys_are_asked_for_by_zipfs_law(void **state)
{
    (void) state;
    static const double zipfs[] = {0, 1, 2};
    static const weir_limit limit = {.limit = 50, .period_ns = 2 * SECOND};
    static const weir_policy policy = {.limits = &limit, .limit_count = 1};
    for (size_t i = 0; i < 3; i++) {
        unsigned counts[7] = {0};
        double sum = 0;
        sim.options.zipf = zipfs[i];
        sim.options.keys = 7;
        sim.options.demand = 3;
        sim.policy = &policy;
        sim.rules[0].period_ns = 2 * SECOND;
        assert_true(demand_init(&sim));
        for (unsigned draw = 0; draw < 70000; draw++) {
            fraction = draw / 70000.0;
            counts[demand_key(&sim)]++;
        }
        for (unsigned key = 0; key < 7; key++) {
            sum += pow(key + 1, -zipfs[i]);
        }
        for (unsigned key = 0; key < 7; key++) {
            assert_true(fabs(counts[key] - 70000 * pow(key + 1, -zipfs[i]) / sum) <= 1);
        }
        /* So the busiest key is offered three times what its limit lets pass. */
        assert_true(fabs(sim.rate / sum - 75) < 1e-9);
        free(sim.shares);
    }
    sim.options.keys = 1;
    fraction = 0.999;
    assert_int_equal(demand_key(&sim), 0);
}

/* The requests are of several keys; some rows have a log and a window, of which both must have room. */
static void test_one_limiter_that_sees_every_request_counts_all_of_them(void **state)
{
    (void) state;
    enum { KEYS = 3, REQUESTS = 4000 };
    static struct {
        uint64_t at_ns, cost;
    } taken[KEYS][REQUESTS];
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < 10; round++) {
        size_t counts[KEYS] = {0};
        memset(&sim, 0, sizeof(sim));
        sim.options.keys = KEYS;
        sim.limits = 2;
        weir_limit limits[2] = {{.algorithm = WEIR_SLIDING_LOG, .limit = 10, .period_ns = 3 * SECOND},
                                {.algorithm = WEIR_FIXED_WINDOW, .limit = 25, .period_ns = 10 * SECOND}};
        for (size_t i = 0; i < 2; i++) {
            limits[i].burst = limits[i].limit;
            sim.rules[i] = rule_make(&limits[i], 0);
        }
        sim.truths = calloc(KEYS * sim.limits, sizeof(*sim.truths));
        sim.ones = calloc(KEYS * sim.limits, sizeof(*sim.ones));
        sim.now_ns = UINT64_C(1767225600) * SECOND;
        for (size_t i = 0; i < KEYS * sim.limits; i++) {
            sim.truths[i].state = rule_fresh(&sim.rules[i % 2], sim.now_ns - 200 * SECOND);
        }
        sim.fleet_wrong_ns = -(int64_t) (random_below(&rng, 100) * SECOND);
        for (unsigned i = 0; i < REQUESTS; i++) {
            const size_t key = random_below(&rng, KEYS);
            const uint64_t cost = 1 + random_below(&rng, 4), now_ns = sim_fleet_wall(&sim);
            uint64_t of_log = 0, of_window = 0;
            for (size_t n = 0; n < counts[key]; n++) {
                of_log += taken[key][n].at_ns + 3 * SECOND > now_ns ? taken[key][n].cost : 0;
                of_window += taken[key][n].at_ns / (10 * SECOND) == now_ns / (10 * SECOND) ? taken[key][n].cost : 0;
            }
            const bool room = of_log + cost <= 10 && of_window + cost <= 25;
            assert_int_equal(truth_has_room(&sim, sim.truths, key, cost), room);
            if (room || draw_once_in(&rng, 10)) { /* it counts what should not have been, too */
                truth_take(&sim, sim.truths, key, cost);
                taken[key][counts[key]].at_ns = now_ns;
                taken[key][counts[key]++].cost = cost;
            }
            sim.now_ns += random_below(&rng, 4) * 250 * MILLISECOND;
        }
        truth_free(&sim);
    }
}

static void test_the_result_tells_what_was_counted(void **state)
{
    (void) state;
    static const weir_limit limit = {.limit = 100, .period_ns = 4 * SECOND};
    static const weir_policy policy = {.limits = &limit, .limit_count = 1};
    struct sim_node nodes[4] = {
        {.asked = 100, .admitted = 50}, {.asked = 0}, {.asked = 10, .admitted = 10}, {.asked = 40, .admitted = 10}};
    uint64_t windows[] = {1000, 50, 130, 120, 1}, asked[] = {0, 10, 30, 20}, falsely[] = {0, 1, 6, 4};
    uint64_t busiest_asked[] = {0, 75}, busiest_admitted[] = {0, 25};
    struct sim_result result;
    memset(&sim, 0, sizeof(sim));
    sim.policy = &policy;
    sim.rules[0].period_ns = limit.period_ns;
    sim.nodes = nodes;
    sim.options.nodes = 4;
    sim.options.length_ns = 5500 * MILLISECOND;
    sim.window_units = windows;
    sim.stat_first = 1;
    sim.stat_end = 4;
    sim.worst = 1.25;
    sim.asked = 200;
    sim.admitted = 150;
    sim.denied = 50;
    sim.falsely = 11;
    sim.one_admitted = 120;
    sim.flow_admitted = 300;
    sim.seconds = 4;
    sim.second_asked = asked;
    sim.second_false = falsely;
    sim.busiest_asked = busiest_asked;
    sim.busiest_admitted = busiest_admitted;
    sim.counts_before.rounds = 11;
    sim.counts_after.rounds = 22;
    sim.counts_before.reports = 100;
    sim.counts_after.reports = 133;
    sim.counts_before.size = 1000;
    sim.counts_after.size = 6500;
    sim.digest = 99;
    sim_get_result(&sim, &result);
    assert_int_equal(result.windows, 3);
    assert_true(fabs(result.mean - 1) < 1e-9 && result.most == 1.3 && result.least == 0.5 && result.worst == 1.3);
    assert_true(result.asked == 200 && result.admitted == 150 && result.denied == 50 && result.falsely == 11);
    assert_true(result.of_one == 1.25 && result.of_flow == 0.5 && fabs(result.false_share - 0.055) < 1e-12);
    assert_true(result.false_worst == 0.2 && result.false_second == 2); /* the first of equal ones */
    assert_true(result.part_most == 1 && result.part_least == 0.25);
    assert_true(fabs(result.jain - 1.75 * 1.75 / (3 * (0.25 + 1 + 0.0625))) < 1e-12);
    assert_true(result.rounds_rate == 2 && result.reports_rate == 6 && result.size_rate == 1000);
    assert_true(result.recovered_s == 0 && result.digest == 99);
    assert_int_equal(sim_second_count(&sim), 5);
    assert_true(sim_get_second(&sim, 1).asked == 3 && sim_get_second(&sim, 1).admitted == 1);
    sim.worst = 1.5;
    sim.last_fault_ns = 3 * SECOND;
    sim_get_result(&sim, &result);
    assert_true(result.worst == 1.5 && result.recovered_s == -1);
    sim.recovered = true;
    sim.recovered_ns = 4500 * MILLISECOND;
    sim_get_result(&sim, &result);
    assert_true(result.recovered_s == 1.5);
    /* In a run in which nobody asked, nothing is divided by zero. */
    sim.stat_end = 1;
    sim.asked = sim.one_admitted = sim.seconds = 0;
    sim.flow_admitted = 0;
    sim.options.nodes = 0;
    sim_get_result(&sim, &result);
    assert_true(result.windows == 0 && result.mean == 0 && result.of_one == 1 && result.of_flow == 0);
    assert_true(result.false_share == 0 && result.jain == 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pattern_says_which_nodes_are_asked_when),
        cmocka_unit_test(test_keys_are_asked_for_by_zipfs_law),
        cmocka_unit_test(test_one_limiter_that_sees_every_request_counts_all_of_them),
        cmocka_unit_test(test_the_result_tells_what_was_counted),
    };
    return cmocka_run_group_tests_name("unit/apps/fleetsim_parts", tests, NULL, NULL);
}
