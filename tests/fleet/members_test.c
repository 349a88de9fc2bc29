/* SPDX-License-Identifier: Apache-2.0 */
/* Fleets that change, fleets whose clocks are wrong, and large ones. */
#include "runs.h"

static const weir_limit second_limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 2000, .period_ns = SECOND},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 2000, .period_ns = SECOND},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 2000, .period_ns = SECOND},
};

/* Nothing is over within a run. */
static const weir_limit hour_limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 20000, .period_ns = HOUR},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 20000, .period_ns = HOUR},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 20000, .period_ns = HOUR},
};

static struct sim_options options_of(const weir_policy *policy, uint64_t seed)
{
    struct sim_options options;
    sim_options_init(&options);
    options.seed = seed;
    options.policies = policy;
    options.policy_count = 1;
    options.quiet_ns = SECOND;
    options.link.delay_min_ns = MILLISECOND;
    options.link.delay_max_ns = 5 * MILLISECOND;
    return options;
}

static void expect_good(const struct sim_options *options, const struct sim_audit *audit)
{
    if (!audit->good) {
        char command[1200];
        describe(options, command, sizeof(command));
        fail_msg("%s; %s", audit->wrong, command);
    }
}

static void test_what_the_dead_had_told_stays_and_nothing_is_made_up(void **state)
{
    (void) state;
    for (uint64_t seed = first_seed(); seed < first_seed() + seed_count(5); seed++) {
        for (size_t i = 0; i < 3; i++) {
            const weir_policy policy = {.name = "p", .limits = &hour_limits[i], .limit_count = 1};
            struct sim_options options = options_of(&policy, seed);
            const struct sim_fault faults[] = {
                {.kind = SIM_KILL, .first = 1, .last = 2, .from_ns = 3 * SECOND},
                {.kind = SIM_LEAVE, .first = 3, .last = 3, .from_ns = 4 * SECOND},
                {.kind = SIM_JOIN, .first = 6, .last = 7, .from_ns = 5 * SECOND},
                {.kind = SIM_KILL, .first = 6, .last = 6, .from_ns = 7 * SECOND},
            };
            struct sim_audit audit;
            options.nodes = 8;
            options.demand = 360 * 0.8; /* passes to the end */
            options.faults = faults;
            options.fault_count = 4;
            const struct sim_result result = run_sim(&options, &audit);
            expect_good(&options, &audit);
            assert_in_range(result.asked, 10000, 20000);
        }
    }
}

static void test_traffic_at_the_moment_of_a_join_counts_in_the_right_window(void **state)
{
    (void) state;
    static const int64_t wrong_s[] = {0, 3600, -3600, 300};
    for (size_t i = 0; i < 4; i++) {
        const weir_policy policy = {.name = "p", .limits = &hour_limits[0], .limit_count = 1};
        struct sim_options options = options_of(&policy, first_seed());
        const struct sim_fault faults[] = {
            {.kind = SIM_JOIN, .first = 2, .last = 3, .from_ns = 5 * SECOND},
            {.kind = SIM_CLOCK, .first = 2, .last = 3, .by_ns = wrong_s[i] * (int64_t) SECOND},
        };
        struct sim_audit audit;
        options.demand = 360 * 0.8;
        options.link.delay_min_ns = options.link.delay_max_ns = 150 * MILLISECOND; /* it must wait for its first news */
        options.faults = faults;
        options.fault_count = 2;
        (void) run_sim(&options, &audit);
        expect_good(&options, &audit);
    }
}

static void test_hosts_whose_clocks_are_wrong_by_an_hour_share_the_window(void **state)
{
    (void) state;
    const struct sim_fault faults[] = {
        {.kind = SIM_CLOCK, .first = 0, .last = 0, .by_ns = (int64_t) HOUR},
        {.kind = SIM_CLOCK, .first = 1, .last = 1, .by_ns = -(int64_t) HOUR},
    };
    for (size_t i = 0; i < 3; i++) {
        const weir_policy policy = {.name = "p", .limits = &second_limits[i], .limit_count = 1};
        struct sim_options right = options_of(&policy, first_seed());
        right.drift_ppm = 50;
        struct sim_options wrong = right;
        wrong.faults = faults;
        wrong.fault_count = 2;
        struct sim_audit audit;
        const double expected = run_sim(&right, &audit).mean;
        expect_good(&right, &audit);
        const struct sim_result result = run_sim(&wrong, &audit);
        expect_good(&wrong, &audit);
        assert_true(result.mean < expected + 0.01 && result.mean > expected - 0.01);
    }
}

static void test_a_redis_whose_clock_is_set_loses_nothing(void **state)
{
    (void) state;
    static const int64_t by_s[] = {-3600, -30, -2, 2, 30, 3600};
    for (size_t i = 0; i < 3 * sizeof(by_s) / sizeof(by_s[0]); i++) {
        const weir_policy policy = {.name = "p", .limits = &second_limits[i % 3], .limit_count = 1};
        struct sim_options options = options_of(&policy, first_seed());
        const struct sim_fault fault = {
            .kind = SIM_FLEET_CLOCK, .from_ns = 4 * SECOND, .by_ns = by_s[i / 3] * (int64_t) SECOND};
        struct sim_audit audit;
        options.faults = &fault;
        options.fault_count = 1;
        options.quiet_ns = 0;
        (void) run_sim(&options, &audit);
        expect_good(&options, &audit);
    }
}

static void test_two_hundred_nodes_share_a_limit(void **state)
{
    (void) state;
    for (size_t i = 0; i < 3; i++) {
        weir_limit limit = second_limits[i];
        limit.limit = 20000;
        const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
        struct sim_options options = options_of(&policy, first_seed());
        struct sim_audit audit;
        options.nodes = 200;
        options.step_ns = 2 * MILLISECOND;
        options.quiet_ns = 0;
        const struct sim_result result = run_sim(&options, &audit);
        expect_good(&options, &audit);
        print_message("# 200 nodes, limit %zu: %.3f, most %.3f, least %.3f; Jain %.4f\n", i, result.mean, result.most,
                      result.least, result.jain);
        assert_true(result.mean >= 0.97 && result.mean <= 1.02);
        assert_true(result.jain > 0.95);
    }
}

static void test_a_limit_smaller_than_the_fleet_lets_something_pass(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = SECOND};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    struct sim_options options = options_of(&policy, first_seed());
    struct sim_audit audit;
    options.nodes = 20;
    options.demand = 10;
    const struct sim_result result = run_sim(&options, &audit);
    expect_good(&options, &audit);
    assert_true(result.mean >= 0.8 && result.mean <= 2);
}

static void test_many_keys_are_all_told(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_WINDOW, .limit = 500, .period_ns = 10 * SECOND};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    struct sim_options options = options_of(&policy, first_seed());
    struct sim_audit audit;
    options.nodes = 6;
    options.keys = 3000;
    options.zipf = 1;
    options.demand = 20;
    options.link.requests_lost_ppm = options.link.answers_lost_ppm = 20000;
    (void) run_sim(&options, &audit);
    expect_good(&options, &audit);
    assert_true(audit.checked >= 6 * 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_the_dead_had_told_stays_and_nothing_is_made_up),
        cmocka_unit_test(test_traffic_at_the_moment_of_a_join_counts_in_the_right_window),
        cmocka_unit_test(test_hosts_whose_clocks_are_wrong_by_an_hour_share_the_window),
        cmocka_unit_test(test_a_redis_whose_clock_is_set_loses_nothing),
        cmocka_unit_test(test_two_hundred_nodes_share_a_limit),
        cmocka_unit_test(test_a_limit_smaller_than_the_fleet_lets_something_pass),
        cmocka_unit_test(test_many_keys_are_all_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
