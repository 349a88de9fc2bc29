/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What only a counter would tell has a line of the log: at once, with the number and what to do, and then at most one
 * in a while.
 *
 * Guards: src/limiter/trouble_log.c, src/limiter/background.c
 */
#include <stdio.h>
#include <string.h>

#include "limiter/weir_private.h"
#include "support/support.h"

#define KEYS 1000

struct log {
    unsigned count;
    weir_log_level level;
    char last[512];
};

static struct {
    struct fake_clock clock;
    struct log log;
    weir *w;
    weir_thread *t;
    weir_policy_id policy;
} d;

static void keep_line(void *arg, weir_log_level level, const char *message)
{
    struct log *log = arg;
    log->count++;
    log->level = level;
    (void) snprintf(log->last, sizeof(log->last), "%s", message);
}

static int open_weir(void **state)
{
    (void) state;
    static const weir_limit window = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = HOUR};
    static const weir_policy policy = {.name = "api", .limits = &window, .limit_count = 1};
    memset(&d, 0, sizeof(d));
    fake_clock_init(&d.clock, 1000 * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    options.max_keys = KEYS;
    options.max_threads = 2;
    options.max_log_units = 1000;
    options.no_denial_log = true;
    options.log = keep_line;
    options.log_arg = &d.log;
    d.w = open_or_fail(&options);
    assert_int_equal(weir_set_policies(d.w, &policy, 1, NULL), 0);
    d.t = weir_attach(d.w);
    d.policy = weir_find_policy(d.w, "api");
    (void) weir_poll(d.w);
    return 0;
}

static int close_weir(void **state)
{
    (void) state;
    weir_close(d.w);
    return 0;
}

static void check(weir_policy_id policy, uint32_t key)
{
    const weir_key made = weir_make_key(d.w, policy, &key, sizeof(key));
    (void) weir_check(d.t, &made, 1, NULL);
}

static void pass(uint64_t ns)
{
    fake_clock_advance(&d.clock, ns);
    (void) weir_poll(d.w);
}

static void expect_line(unsigned count, weir_log_level level, const char *line)
{
    assert_int_equal(d.log.count, count);
    assert_string_equal(d.log.last, line);
    assert_int_equal(d.log.level, level);
}

static void test_checks_of_no_policy_are_told(void **state)
{
    (void) state;
    check(WEIR_NO_POLICY, 1);
    check(900, 1);
    assert_int_equal(d.log.count, 0); /* no check logs */
    pass(SECOND);
    expect_line(1, WEIR_LOG_ERROR,
                "2 checks asked for a policy that is not in force, and passed: look for a misspelt name in the program "
                "or in the policies; required_policies refuses policies that lack a name");
    check(WEIR_NO_POLICY, 1);
    pass(599 * SECOND);
    assert_int_equal(d.log.count, 1);
    pass(SECOND);
    assert_int_equal(d.log.count, 2);
    assert_memory_equal(d.log.last, "1 check asked for", 17);
    pass(HOUR);
    assert_int_equal(d.log.count, 2); /* nothing new */
}

/* 224,000 evictions had no line. A few, as of a part of the table that overflows early, have none. */
static void test_keys_in_use_that_are_evicted_are_told_once_with_their_number(void **state)
{
    (void) state;
    char line[300];
    weir_stats stats;
    for (uint32_t key = 0; key < 20 * KEYS; key++) {
        check(d.policy, key);
    }
    weir_get_stats(d.w, &stats);
    pass(SECOND);
    (void) snprintf(line, sizeof(line),
                    "%llu keys were evicted that had used a part of their limits, as there are more keys than max_keys "
                    "(1000), and some may begin anew: raise it, or limit by fewer keys, such as networks",
                    (unsigned long long) stats.evicted_used_count);
    assert_true(stats.evicted_used_count > 10 * KEYS);
    expect_line(1, WEIR_LOG_WARNING, line);
    for (uint32_t key = 0; key < 20 * KEYS; key++) {
        check(d.policy, key);
    }
    pass(598 * SECOND);
    assert_int_equal(d.log.count, 1);
    pass(2 * SECOND);
    assert_int_equal(d.log.count, 2);
}

static void test_a_few_evictions_are_no_line(void **state)
{
    (void) state;
    _Atomic uint64_t *const count = &d.w->limiter.process.shared->evicted_used_count;
    const uint64_t least = d.w->limiter.process.table.cell_count / 64;
    store_relaxed(count, least - 1);
    pass(HOUR);
    assert_int_equal(d.log.count, 0);
    store_relaxed(count, least);
    pass(SECOND);
    assert_int_equal(d.log.count, 1);
    store_relaxed(count, 2 * least - 1);
    pass(HOUR);
    assert_int_equal(d.log.count, 1);
}

static void test_checks_without_room_are_told(void **state)
{
    (void) state;
    store_relaxed(&d.t->shared->untracked_count, 7);
    pass(SECOND);
    expect_line(1, WEIR_LOG_WARNING,
                "7 checks were denied or not counted, as the table had no free entry or the sliding logs no room: "
                "raise max_keys (1000) or max_log_units (1000)");
}

static void test_lost_reports_are_told(void **state)
{
    (void) state;
    store_relaxed(&d.w->limiter.process.shared->lost_report_count, 1);
    pass(SECOND);
    expect_line(1, WEIR_LOG_WARNING,
                "1 evicted key could not be reported, so the other nodes do not count what was used: raise max_keys "
                "(1000)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_checks_of_no_policy_are_told, open_weir, close_weir),
        cmocka_unit_test_setup_teardown(test_keys_in_use_that_are_evicted_are_told_once_with_their_number, open_weir,
                                        close_weir),
        cmocka_unit_test_setup_teardown(test_a_few_evictions_are_no_line, open_weir, close_weir),
        cmocka_unit_test_setup_teardown(test_checks_without_room_are_told, open_weir, close_weir),
        cmocka_unit_test_setup_teardown(test_lost_reports_are_told, open_weir, close_weir),
    };
    return cmocka_run_group_tests_name("unit/limiter/trouble_log", tests, NULL, NULL);
}
