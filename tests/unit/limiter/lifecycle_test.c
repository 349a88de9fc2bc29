/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opening, closing, attaching and forking leave nothing behind.
 *
 * Guards: src/limiter/weir.c, src/limiter/weir_open.c, src/limiter/options.c, src/limiter/background.c,
 * src/thread/limiter.c, src/thread/thread.c, src/limiter/stats.c
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/support.h"

#define ROUNDS 300

static const weir_limit ten = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};

static void test_hundreds_of_rounds_leave_no_thread_and_no_descriptor(void **state)
{
    (void) state;
    weir_close(open_or_fail(NULL)); /* what the first thread of a process makes is not the library's */
    const size_t threads = count_threads();
    const size_t descriptors = count_descriptors();
    for (int round = 0; round < ROUNDS; round++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.max_keys = 1000;
        options.max_threads = 2;
        options.redis_timeout_ms = 10;
        options.redis_url = round % 3 == 0 ? "redis://127.0.0.1:1" : NULL;
        weir *w = open_or_fail(&options);
        const weir_policy_id policy = set_one_policy(w, &ten, 1, WEIR_SCOPE_FLEET);
        weir_thread *t = weir_attach(w);
        const weir_key key = weir_make_key(w, policy, "k", 1);
        assert_true(weir_check(t, &key, 1, NULL));
        if (round % 2 == 0) {
            weir_detach(t); /* else weir_close detaches it */
        }
        weir_close(w);
    }
    expect_no_more_threads(threads);
    assert_int_equal(count_descriptors(), descriptors);
}

static void test_threads_are_refused_beyond_the_maximum_and_places_come_back(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_threads = 2;
    weir *w = open_or_fail(&options);
    weir_thread *a = weir_attach(w);
    weir_thread *b = weir_attach(w);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(weir_attach(w));
    weir_detach(a);
    assert_non_null(weir_attach(w));
    weir_detach(NULL);
    weir_close(w);
    weir_close(NULL);
}

static void test_a_forked_child_may_close_its_copy_and_the_parent_goes_on(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    const weir_policy_id policy = set_one_policy(w, &ten, 1, WEIR_SCOPE_FLEET);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, policy, "k", 1);
    assert_true(weir_check(t, &key, 4, NULL));
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        weir_close(w); /* would hang if weir_close joined a thread that the child lacks */
        _exit(7);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_true(weir_check(t, &key, 6, NULL));
    assert_false(weir_check(t, &key, 1, NULL));
    weir_close(w);
}

/* Each malformed option is refused with a sentence that names it. */
static void refused(const weir_options *options, const char *names)
{
    weir *w = (weir *) (uintptr_t) 1;
    weir_error error;
    assert_int_equal(weir_open(options, &w, &error), -EINVAL);
    assert_int_equal(error.code, -EINVAL);
    assert_null(w);
    if (strstr(error.message, names) == NULL) {
        fail_msg("\"%s\" does not name %s", error.message, names);
    }
}

static void test_malformed_options_are_refused_by_name(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 999;
    refused(&options, "max_keys");
    options = (weir_options) WEIR_OPTIONS_INIT;
    options.max_threads = 1025;
    refused(&options, "max_threads");
    options = (weir_options) WEIR_OPTIONS_INIT;
    options.sync_interval_ms = 9;
    refused(&options, "sync_interval_ms");
    options = (weir_options) WEIR_OPTIONS_INIT;
    options.redis_timeout_ms = 60001;
    refused(&options, "redis_timeout_ms");
    options = (weir_options) WEIR_OPTIONS_INIT;
    options.tick_us = 99;
    refused(&options, "tick_us");
    options = (weir_options) WEIR_OPTIONS_INIT;
    options.prefix = "a{b";
    refused(&options, "prefix");
    options = (weir_options) WEIR_OPTIONS_INIT;
    options.prefix = "";
    refused(&options, "prefix");
    options = (weir_options) WEIR_OPTIONS_INIT;
    options.redis_url = "http://127.0.0.1";
    refused(&options, "redis_url");
    const weir_clock half = {.monotonic_ns = NULL};
    options = (weir_options) WEIR_OPTIONS_INIT;
    options.max_processes = 2;
    refused(&options, "max_processes is 2 without shared");
    options.shared = true;
    options.max_processes = 1;
    refused(&options, "max_processes is 1; give 2 to 1024");
    options.max_processes = 1025;
    refused(&options, "max_processes is 1025; give 2 to 1024");
    options = (weir_options) WEIR_OPTIONS_INIT;
    options.clock = &half;
    refused(&options, "clock");
    options = (weir_options) WEIR_OPTIONS_INIT;
    options.size = 0;
    refused(&options, "size");
    struct {
        weir_options known;
        char later;
    } newer = {WEIR_OPTIONS_INIT, 1};
    newer.known.size = sizeof(newer);
    refused(&newer.known, "does not know");
}

static void test_zeroed_options_mean_defaults(void **state)
{
    (void) state;
    const weir_options options = {.size = sizeof(options)};
    weir *w = open_or_fail(&options);
    assert_int_equal(weir_poll(w), -EINVAL); /* the weir has a thread of its own */
    assert_int_equal(weir_sync(w, 10), -ENOTCONN);
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_int_equal(stats.link, WEIR_LINK_NONE);
    assert_true(stats.key_capacity >= 65536);
    weir_close(w);
}

static void test_checks_against_no_policy_pass_and_are_counted(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    weir_thread *t = weir_attach(w);
    assert_int_equal(weir_find_policy(w, "p"), WEIR_NO_POLICY);
    assert_int_equal(weir_find_policy(w, NULL), WEIR_NO_POLICY);
    const weir_key keys[] = {weir_make_key(w, WEIR_NO_POLICY, "k", 1), weir_make_key(w, 500, "k", 1),
                             weir_make_key(w, UINT32_MAX, "k", 1)};
    for (size_t i = 0; i < 3; i++) {
        weir_verdict v;
        assert_true(weir_check(t, &keys[i], 1, &v));
        assert_true(v.allowed);
    }
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_int_equal(stats.unknown_policy_count, 3);
    weir_close(w);
}

static void test_metrics_say_how_much_room_they_need(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    const weir_policy_id policy = set_one_policy(w, &ten, 1, WEIR_SCOPE_PROCESS);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, policy, "k", 1);
    for (int i = 0; i < 15; i++) {
        (void) weir_check(t, &key, 1, NULL);
    }
    const int needed = weir_write_metrics(w, NULL, 0);
    assert_true(needed > 500);
    char small[64];
    assert_int_equal(weir_write_metrics(w, small, sizeof(small)), needed);
    assert_int_equal(small[sizeof(small) - 1], '\0');
    static char all[65536];
    assert_int_equal(weir_write_metrics(w, all, sizeof(all)), needed);
    assert_int_equal(strlen(all), needed);
    assert_non_null(strstr(all, "weir_checks_total{policy=\"p\",answer=\"allowed\"} 10\n"));
    assert_non_null(strstr(all, "weir_checks_total{policy=\"p\",answer=\"denied\"} 5\n"));
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hundreds_of_rounds_leave_no_thread_and_no_descriptor),
        cmocka_unit_test(test_threads_are_refused_beyond_the_maximum_and_places_come_back),
        cmocka_unit_test(test_a_forked_child_may_close_its_copy_and_the_parent_goes_on),
        cmocka_unit_test(test_malformed_options_are_refused_by_name),
        cmocka_unit_test(test_zeroed_options_mean_defaults),
        cmocka_unit_test(test_checks_against_no_policy_pass_and_are_counted),
        cmocka_unit_test(test_metrics_say_how_much_room_they_need),
    };
    return cmocka_run_group_tests_name("unit/limiter/lifecycle", tests, NULL, NULL);
}
