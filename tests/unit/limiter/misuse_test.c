/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that weir.h does not allow, under WEIR_DEBUG=1: each kind is told once, by the name of the call. And a change
 * of policies from a signal handler that interrupts a check, which is refused without WEIR_DEBUG, too.
 *
 * Guards: src/thread/misuse.c, src/thread/misuse.h, src/limiter/policy_readers.c, src/limiter/weir_open.c,
 * src/limiter/weir.c, src/limiter/background.c
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"
#include "thread/rcu.h"

struct host {
    weir *w;
    weir_thread *t;
    weir_key key;
    int lines;
    char line[600];
};

static void note_line(void *arg, weir_log_level level, const char *message)
{
    struct host *host = arg;
    if (level == WEIR_LOG_ERROR) {
        host->lines++;
        (void) snprintf(host->line, sizeof(host->line), "%s", message);
    }
}

static void host_open(struct host *host, const char *debug)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.log = note_line;
    options.log_arg = host;
    memset(host, 0, sizeof(*host));
    assert_int_equal(setenv("WEIR_DEBUG", debug, 1), 0);
    host->w = open_or_fail(&options);
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 5, .period_ns = HOUR};
    (void) set_one_policy(host->w, &limit, 1, WEIR_SCOPE_FLEET);
    host->t = weir_attach(host->w);
    host->key = weir_make_key(host->w, weir_find_policy(host->w, "p"), "k", 1);
}

static const char *const calls[] = {
    "weir_check",   "weir_check_all", "weir_check_burst",  "weir_peek",   "weir_charge",        "weir_refund",
    "weir_reserve", "weir_set_time",  "weir_count_denied", "weir_unbind", "weir_find_override", "weir_detach",
};

static void call(const struct host *host, size_t number)
{
    const weir_key keys[] = {host->key, host->key};
    uint64_t bits;
    switch (number) {
    case 0:
        (void) weir_check(host->t, &host->key, 1, NULL);
        break;
    case 1:
        (void) weir_check_all(host->t, keys, NULL, 2, NULL);
        break;
    case 2:
        (void) weir_check_burst(host->t, keys, NULL, 2, &bits);
        break;
    case 3:
        (void) weir_peek(host->t, &host->key, 1, NULL);
        break;
    case 4:
        weir_charge(host->t, &host->key, 1);
        break;
    case 5:
        weir_refund(host->t, &host->key, 1);
        break;
    case 6:
        (void) weir_reserve(host->t, &host->key, 1, 0, NULL);
        break;
    case 7:
        weir_set_time(host->t, 0);
        break;
    case 8:
        weir_count_denied(host->t, &host->key, 1, 1);
        break;
    case 9:
        weir_unbind(host->t);
        break;
    case 10:
        (void) weir_find_override(host->t, "abcd", 4, NULL);
        break;
    default:
        weir_detach(host->t);
        break;
    }
}

#define CALLS (sizeof(calls) / sizeof(calls[0]))

static void expect_told(struct host *host, const char *name, const char *what)
{
    char begin[100];
    (void) snprintf(begin, sizeof(begin), "%s was called ", name);
    if (host->lines != 1 || strncmp(host->line, begin, strlen(begin)) != 0 || strstr(host->line, what) == NULL) {
        fail_msg("%s %s: %d lines, the last one: %s", name, what, host->lines, host->line);
    }
}

static void test_right_calls_are_not_told(void **state)
{
    (void) state;
    struct host host;
    host_open(&host, "1");
    for (int times = 0; times < 50; times++) {
        for (size_t i = 0; i < CALLS; i++) {
            call(&host, i);
        }
        host.t = weir_attach(host.w);
    }
    assert_int_equal(host.lines, 0);
    weir_close(host.w);
    assert_int_equal(host.lines, 0);
}

static void test_a_detached_handle(void **state)
{
    (void) state;
    for (size_t i = 0; i < CALLS; i++) {
        struct host host;
        host_open(&host, "1");
        weir_detach(host.t);
        call(&host, i);
        call(&host, i);
        expect_told(&host, calls[i], "detached");
        weir_close(host.w);
    }
}

static void *attach_there(void *arg)
{
    struct host *host = arg;
    host->t = weir_attach(host->w);
    weir_unbind(host->t); /* else it is detached when the thread ends */
    return NULL;
}

static void *use_there(void *arg)
{
    struct host *const *hosts = arg;
    for (size_t i = 0; i < CALLS; i++) {
        call(hosts[i], i);
    }
    return NULL;
}

static void test_another_threads_handle(void **state)
{
    (void) state;
    struct host hosts[CALLS];
    struct host *all[CALLS];
    pthread_t thread;
    for (size_t i = 0; i < CALLS; i++) {
        host_open(&hosts[i], "yes");
        all[i] = &hosts[i];
    }
    assert_int_equal(pthread_create(&thread, NULL, use_there, all), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (size_t i = 0; i < CALLS; i++) {
        expect_told(&hosts[i], calls[i], "another thread's");
        weir_close(hosts[i].w);
    }
    struct host host;
    host_open(&host, "1");
    assert_int_equal(pthread_create(&thread, NULL, attach_there, &host), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    call(&host, 0); /* one that was given away */
    assert_int_equal(host.lines, 0);
    weir_close(host.w);
}

static void test_a_closed_weir(void **state)
{
    (void) state;
    static struct host host; /* the log's argument, as long as calls may come */
    for (size_t i = 0; i < CALLS + 5; i++) {
        host_open(&host, "1");
        weir_close(host.w);
        const char *const others[] = {"weir_attach", "weir_sync", "weir_poll", "weir_leave", "weir_close"};
        if (i < CALLS) {
            call(&host, i);
        } else if (i == CALLS) {
            assert_null(weir_attach(host.w));
        } else if (i == CALLS + 1) {
            assert_true(weir_sync(host.w, 1) < 0);
        } else if (i == CALLS + 2) {
            assert_true(weir_poll(host.w) < 0);
        } else if (i == CALLS + 3) {
            assert_true(weir_leave(host.w) < 0);
        } else {
            weir_close(host.w);
        }
        expect_told(&host, i < CALLS ? calls[i] : others[i - CALLS], "weir_close");
    }
}

static void test_a_call_within_a_call(void **state)
{
    (void) state;
    for (size_t i = 0; i < CALLS - 1; i++) { /* weir_detach would wait for the section */
        struct host host;
        host_open(&host, "1");
        rcu_enter(host.t); /* as amid a check */
        call(&host, i);
        rcu_leave(host.t);
        expect_told(&host, calls[i], "within another call");
        weir_close(host.w);
    }
}

static struct host *interrupted;
static int reload_result;
static weir_error reload_error;

static void reload(int signal_number)
{
    (void) signal_number;
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 9, .period_ns = HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    reload_result = weir_set_policies(interrupted->w, &policy, 1, &reload_error);
}

static void test_a_change_of_policies_in_a_signal_handler_is_refused(void **state)
{
    (void) state;
    for (int debug = 0; debug < 2; debug++) {
        struct host host;
        host_open(&host, debug == 0 ? "0" : "1");
        interrupted = &host;
        void (*before)(int) = signal(SIGUSR1, reload);
        rcu_enter(host.t);
        assert_int_equal(raise(SIGUSR1), 0);
        rcu_leave(host.t);
        assert_int_equal(reload_result, -EDEADLK);
        assert_non_null(strstr(reload_error.message, "signal handler"));
        assert_int_equal(raise(SIGUSR1), 0); /* outside of a check nothing is waited for */
        assert_int_equal(reload_result, 0);
        assert_int_equal(weir_set_override(host.w, "p:k", "deny", &reload_error), 0);
        rcu_enter(host.t);
        assert_int_equal(weir_set_override(host.w, "p:k", NULL, &reload_error), -EDEADLK);
        rcu_leave(host.t);
        (void) signal(SIGUSR1, before);
        weir_close(host.w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_calls_are_not_told),
        cmocka_unit_test(test_a_detached_handle),
        cmocka_unit_test(test_another_threads_handle),
        cmocka_unit_test(test_a_closed_weir),
        cmocka_unit_test(test_a_call_within_a_call),
        cmocka_unit_test(test_a_change_of_policies_in_a_signal_handler_is_refused),
    };
    return cmocka_run_group_tests_name("tests", tests, NULL, NULL);
}
