/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts whose wall clock was years off at weir_open: from the first reading of fleet time on, every limit is as on
 * other hosts. And how long a weir without a fleet can run.
 *
 * Guards: src/limiter/bucket_origin.c
 */
#include "limiter/bucket_origin.h"
#include "limiter/policy_lock.h"
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT UINT64_C(100)
#define YEAR  (INT64_C(365) * 86400 * (int64_t) SECOND)

/* Whether there is no memory. The linker's --wrap leads calls of calloc here. */
static bool no_memory;

void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_calloc(size_t count, size_t size)
{
    return no_memory ? NULL : __real_calloc(count, size);
}

static const weir_algorithm kinds[] = {WEIR_TOKEN_BUCKET, WEIR_LEAKY_BUCKET, WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW,
                                       WEIR_SLIDING_LOG};
static const int64_t wrong_ns[] = {-55 * YEAR, -20 * YEAR,   -9 * YEAR, -7 * YEAR, -2 * YEAR,
                                   YEAR / 2,   YEAR * 3 / 2, 5 * YEAR,  20 * YEAR, 200 * YEAR};

static weir_limit second_limit(weir_algorithm kind)
{
    return (weir_limit){
        .algorithm = kind, .limit = LIMIT, .period_ns = SECOND, .delay = kind == WEIR_LEAKY_BUCKET ? LIMIT : 0};
}

/* Asks for more than there is, for some seconds: the rate passes, and a burst. */
static void expect_the_rate(struct nodes *n, struct node *node)
{
    uint64_t admitted = 0;
    for (int step = 0; step < 500; step++) {
        admitted += ask(node, 5);
        pass(n, STEP_MS);
    }
    assert_in_range(admitted, 5 * LIMIT - LIMIT / 4, 6 * LIMIT + LIMIT / 4);
}

static void test_a_wall_clock_that_was_years_off_at_open_changes_no_limit(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(wrong_ns) / sizeof(wrong_ns[0]); i++) {
        for (size_t a = 0; a < sizeof(kinds) / sizeof(kinds[0]); a++) {
            struct nodes n;
            const weir_limit limit = second_limit(kinds[a]);
            const weir_policy policy = policy_of(&limit);
            nodes_init(&n, &policy, 1);
            node_open(&n, 0, wrong_ns[i]);
            struct node *node = &n.node[0];
            assert_in_range(ask(node, 2 * LIMIT), LIMIT / 64, LIMIT); /* before the node knows fleet time */
            pass(&n, 3000);
            const uint64_t burst = ask(node, 50 * LIMIT);
            assert_in_range(burst, LIMIT - 1, LIMIT + 1);
            weir_verdict v;
            assert_false(weir_check(node->t, &node->key, 1, &v));
            assert_in_range(v.retry_after_ns, 1, SECOND + 10 * MILLISECOND);
            pass(&n, 2000);
            expect_the_rate(&n, node);
            nodes_stop(&n);
        }
    }
}

/* Policies and overrides of single keys that are set later go by fleet time as well. */
static void test_policies_and_entries_that_come_later_go_by_the_right_time(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(wrong_ns) / sizeof(wrong_ns[0]); i++) {
        for (size_t a = 0; a < 2; a++) {
            struct nodes n;
            const weir_limit limit = second_limit(kinds[a]);
            const weir_policy policy = policy_of(&limit);
            nodes_init(&n, &policy, 1);
            node_open(&n, 0, wrong_ns[i]);
            struct node *node = &n.node[0];
            (void) ask(node, LIMIT);
            pass(&n, 3000);
            /* Under another limit, and back. */
            weir_limit other = limit;
            other.limit = 2 * LIMIT;
            other.delay *= 2;
            const weir_policy changed = policy_of(&other);
            weir_error error;
            assert_int_equal(weir_set_policies(node->w, &changed, 1, &error), 0);
            pass(&n, 2000);
            assert_in_range(ask(node, 50 * LIMIT), 2 * LIMIT - 2, 2 * LIMIT + 2);
            assert_int_equal(weir_set_policies(node->w, &policy, 1, &error), 0);
            pass(&n, 3000);
            expect_the_rate(&n, node);
            loopback_fleet_set_override(n.fleet, "p:key", "50");
            pass(&n, 3000);
            assert_in_range(ask(node, 50 * LIMIT), 49, 51);
            nodes_stop(&n);
        }
    }
}

/* Units that were used before fleet time is known stay used, whatever the step. The bucket refills for ten minutes. */
static void test_what_was_used_before_the_time_is_known_stays_used(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(wrong_ns) / sizeof(wrong_ns[0]); i++) {
        for (size_t a = 0; a < 2; a++) {
            struct nodes n;
            const weir_limit limit = {
                .algorithm = kinds[a], .limit = 300, .period_ns = 600 * SECOND, .delay = a == 1 ? 300 : 0};
            const weir_policy policy = policy_of(&limit);
            nodes_init(&n, &policy, 1);
            node_open(&n, 0, 0);
            node_open(&n, 1, wrong_ns[i]);
            assert_int_equal(ask_freely(&n.node[1], 50), 50);
            pass(&n, 2000);
            assert_int_equal(ask_freely(&n.node[0], 50), 50);
            pass(&n, 1000);
            agree(&n);
            assert_in_range(room(&n.node[0]), 199, 202);
            assert_in_range(room(&n.node[1]), 199, 202);
            nodes_stop(&n);
        }
    }
}

/* weir.h: for eight years after weir_open. */
static void test_a_bucket_without_a_fleet_is_right_for_eight_years(void **state)
{
    (void) state;
    for (size_t a = 0; a < 2; a++) {
        struct fake_clock clock;
        fake_clock_init(&clock, START_NS);
        weir_options options = WEIR_OPTIONS_INIT;
        options.clock = &clock.clock;
        options.max_keys = 1000;
        weir *w = open_or_fail(&options);
        const weir_limit limit = second_limit(kinds[a]);
        const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
        weir_error error;
        assert_int_equal(weir_set_policies(w, &policy, 1, &error), 0);
        weir_thread *t = weir_attach(w);
        const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "key", 3);
        for (int month = 0; month < 97; month++) {
            for (int half = 0; half < 2; half++) {
                uint64_t admitted = 0;
                for (uint64_t i = 0; i < 10 * LIMIT; i++) {
                    admitted += weir_check(t, &key, 1, NULL);
                }
                assert_int_equal(admitted, half == 0 ? LIMIT : LIMIT / 2);
                fake_clock_advance(&clock, half == 0 ? SECOND / 2 : (uint64_t) YEAR / 12);
                assert_true(weir_poll(w) >= 0);
            }
        }
        fake_clock_advance(&clock, (uint64_t) YEAR * 5 / 4); /* after that time every request passes */
        assert_true(weir_poll(w) >= 0);
        for (uint64_t i = 0; i < 10 * LIMIT; i++) {
            assert_true(weir_check(t, &key, 1, NULL));
        }
        weir_close(w);
    }
}

/* While somebody changes the policies, and without memory, the origin and the rules both stay where they are. */
static void test_the_origin_moves_with_the_rules_of_all_policies(void **state)
{
    (void) state;
    struct fake_clock clock;
    fake_clock_init(&clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock.clock;
    weir *w = open_or_fail(&options);
    const weir_limit limits[] = {second_limit(WEIR_TOKEN_BUCKET), second_limit(WEIR_FIXED_WINDOW)};
    (void) set_one_policy(w, limits, 2, WEIR_SCOPE_FLEET);
    const uint64_t first_ns = w->limiter.process.shared->origin_ns;
    assert_int_equal(first_ns, START_NS - 366 * 24 * HOUR);
    static const int64_t moves[] = {5, -7, 0, YEAR, -YEAR, -200 * YEAR, 3};
    uint64_t expected_ns = first_ns;
    for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
        enum { BUSY, NO_MEMORY, MOVED };
        for (int turn = BUSY; turn <= MOVED; turn++) {
            if (turn == BUSY) {
                policy_lock_take(w);
            } else if (turn == MOVED) {
                expected_ns = i == 5 ? 0 : expected_ns + (uint64_t) moves[i]; /* not before 1970 */
            }
            no_memory = turn == NO_MEMORY;
            assert_int_equal(bucket_origin_move(w, moves[i]), turn == MOVED);
            no_memory = false;
            if (turn == BUSY) {
                policy_lock_release(w);
            }
            assert_int_equal(w->limiter.process.shared->origin_ns, expected_ns);
            const struct policy_set *set = process_policies(&w->limiter.process);
            for (size_t j = 0; j < 2; j++) {
                assert_int_equal(set->policies[0].limits[j].rule.origin_ns, expected_ns);
            }
        }
    }
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wall_clock_that_was_years_off_at_open_changes_no_limit),
        cmocka_unit_test(test_policies_and_entries_that_come_later_go_by_the_right_time),
        cmocka_unit_test(test_the_origin_moves_with_the_rules_of_all_policies),
        cmocka_unit_test(test_what_was_used_before_the_time_is_known_stays_used),
        cmocka_unit_test(test_a_bucket_without_a_fleet_is_right_for_eight_years),
    };
    return cmocka_run_group_tests_name("unit/limiter/bucket_origin", tests, NULL, NULL);
}
