/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fleets that change, fleets whose clocks are wrong, and large ones.
 *
 * Guards: src/fleet/membership.c, src/fleet/fleet_clock.c, src/fleet/keys/presumed.c, apps/fleetsim/sim.c
 */
#include "runs.h"

static const weir_limit second_limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 2000, .period_ns = SECOND},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 2000, .period_ns = SECOND},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 2000, .period_ns = SECOND},
};

/* No window ends within a run. */
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
            options.demand = 360 * 0.8; /* units pass to the end */
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
        options.link.delay_min_ns = options.link.delay_max_ns =
            150 * MILLISECOND; /* the node must wait for its first answer */
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

/*
 * Redis's clock goes back, at once or to where it was before it was set; and two nodes join. No window of ten seconds
 * lets more pass than the limit (a bucket: and a burst), and no later second does.
 */
static void test_a_redis_whose_clock_goes_back_gives_no_second_window(void **state)
{
    (void) state;
    static const weir_limit limits[] = {
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = 10 * SECOND},
        {.algorithm = WEIR_SLIDING_WINDOW, .limit = 1000, .period_ns = 10 * SECOND},
        {.algorithm = WEIR_SLIDING_LOG, .limit = 1000, .period_ns = 10 * SECOND},
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = 10 * SECOND},
    };
    static const int64_t by_s[] = {-2, -25, -3000};
    for (size_t i = 0; i < 4 * 2 * sizeof(by_s) / sizeof(by_s[0]); i++) {
        const int64_t by_ns = by_s[i / 8] * (int64_t) SECOND;
        const bool spike = i / 4 % 2 != 0;
        const weir_policy policy = {.name = "p", .limits = &limits[i % 4], .limit_count = 1};
        struct sim_options options = options_of(&policy, first_seed());
        const struct sim_fault faults[] = {
            {.kind = SIM_JOIN, .first = 2, .last = 2, .from_ns = 18 * SECOND},
            {.kind = SIM_JOIN, .first = 3, .last = 3, .from_ns = 31 * SECOND},
            {.kind = SIM_FLEET_CLOCK, .from_ns = 15 * SECOND, .by_ns = by_ns},
            {.kind = SIM_FLEET_CLOCK, .from_ns = 5 * SECOND, .by_ns = -by_ns},
        };
        options.nodes = 4;
        options.length_ns = 60 * SECOND;
        options.faults = faults;
        options.fault_count = spike ? 4 : 3;
        options.demand = 3;
        struct sim *sim = NULL;
        struct sim_audit audit;
        weir_error error;
        assert_int_equal(sim_open(&options, &sim, &error), 0);
        sim_run(sim);
        sim_audit(sim, &audit);
        expect_good(&options, &audit);
        /* Counted from the step on, in windows that end by fleet time. */
        const double burst = limits[i % 4].algorithm == WEIR_TOKEN_BUCKET ? 10 : 0;
        double worst = 0;
        for (size_t from = 20; from + 20 <= 59; from++) {
            double admitted = 0;
            for (size_t at = from; at < from + 20; at++) {
                admitted += sim_get_second(sim, at).admitted;
            }
            worst = admitted > worst ? admitted : worst;
        }
        sim_close(sim);
        /* Of fixed windows there are two whole ones in 20 s, or parts of three. */
        const double most = limits[i % 4].algorithm == WEIR_FIXED_WINDOW ? 30.5 : 20.5 + burst;
        if (worst > most) {
            fail_msg("limit %zu, %lld s: %.2f of 20 in 20 s", i % 4, (long long) by_s[i / 8], worst);
        }
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
        cmocka_unit_test(test_a_redis_whose_clock_goes_back_gives_no_second_window),
        cmocka_unit_test(test_two_hundred_nodes_share_a_limit),
        cmocka_unit_test(test_a_limit_smaller_than_the_fleet_lets_something_pass),
        cmocka_unit_test(test_many_keys_are_all_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
