/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weirs that nobody ticks, by the system's clock: opened with no_thread and not polled, not polled any more, and in a
 * child that was forked after weir_open. A client that was denied is let through again, and the log says once what is
 * wrong.
 *
 * Guards: src/thread/tick.c, src/thread/tick.h, src/thread/thread.h, src/thread/handle.c, src/check/check.c,
 * src/check/slot_learn.c, src/limiter/background.c, src/limiter/weir.c
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/support.h"
#include "thread/thread.h"

#define PATIENCE_NS (60 * SECOND)

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
    if (level != WEIR_LOG_INFO && strstr(message, "denie") == NULL) {
        host->lines++;
        (void) snprintf(host->line, sizeof(host->line), "%s", message);
    }
}

static void host_attach(struct host *host)
{
    host->t = weir_attach(host->w);
    host->key = weir_make_key(host->w, weir_find_policy(host->w, "p"), "k", 1);
}

static void host_open(struct host *host, bool no_thread, weir_algorithm algorithm, uint64_t period_ns)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = no_thread;
    options.log = note_line;
    options.log_arg = host;
    memset(host, 0, sizeof(*host));
    host->w = open_or_fail(&options);
    const weir_limit limit = {.algorithm = algorithm, .limit = 10, .period_ns = period_ns};
    (void) set_one_policy(host->w, &limit, 1, WEIR_SCOPE_FLEET);
    host_attach(host);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * SECOND + (uint64_t) now.tv_nsec;
}

/* One request, by the call of this number. */
static bool request(const struct host *host, int call)
{
    const weir_key keys[] = {host->key, host->key};
    uint64_t bits;
    weir_verdict v;
    switch (call % 4) {
    case 0:
        return weir_check(host->t, &host->key, 1, NULL);
    case 1:
        return weir_check(host->t, &host->key, 1, &v);
    case 2:
        return weir_check_all(host->t, keys, NULL, 1, NULL);
    default:
        return weir_check_burst(host->t, keys, NULL, 1, &bits) == 1;
    }
}

/* Asks until so many requests have passed, with pauses. False: they do not in a minute. */
static bool passes(const struct host *host, int call, int wanted)
{
    const uint64_t until_ns = now_ns() + PATIENCE_NS;
    int passed = 0;
    while (passed < wanted && now_ns() < until_ns) {
        passed += request(host, call);
        (void) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return passed == wanted;
}

/* Asks until the log has a line: it is there a second after the last poll, and with some request after that. */
static bool is_told(const struct host *host, int call)
{
    const uint64_t until_ns = now_ns() + PATIENCE_NS;
    while (host->lines == 0 && now_ns() < until_ns) {
        (void) request(host, call);
        (void) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    return host->lines == 1;
}

static const weir_algorithm algorithms[] = {WEIR_TOKEN_BUCKET, WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW,
                                            WEIR_SLIDING_LOG};

static void test_a_client_passes_again_where_nobody_polls(void **state)
{
    (void) state;
    for (int call = 0; call < 4; call++) {
        struct host host;
        host_open(&host, true, algorithms[call], SECOND);
        assert_true(passes(&host, call, 22)); /* more than two limits */
        assert_true(is_told(&host, call));
        assert_non_null(strstr(host.line, "weir_poll"));
        weir_close(host.w);
    }
}

static void test_a_client_passes_again_where_polling_stops(void **state)
{
    (void) state;
    struct host host;
    host_open(&host, true, WEIR_TOKEN_BUCKET, SECOND);
    for (int i = 0; i < 30; i++) {
        assert_true(weir_poll(host.w) >= 0);
        (void) request(&host, i);
        (void) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    assert_int_equal(host.lines, 0);
    assert_true(passes(&host, 0, 22));
    assert_true(is_told(&host, 0));
    /* Polled again it has grants again: hits are no slow checks. */
    const weir_limit wide = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = HOUR};
    (void) set_one_policy(host.w, &wide, 1, WEIR_SCOPE_FLEET);
    const uint64_t until_ns = now_ns() + PATIENCE_NS;
    uint64_t hits = 0;
    while (hits < 500 && now_ns() < until_ns) {
        assert_true(weir_poll(host.w) >= 0);
        const uint64_t slow = load_relaxed(&host.t->shared->slow_count);
        for (int i = 0; i < 1000; i++) {
            assert_true(request(&host, 0));
        }
        hits = 1000 - (load_relaxed(&host.t->shared->slow_count) - slow);
    }
    assert_true(hits >= 500);
    weir_close(host.w);
}

static void test_a_client_passes_again_in_a_child(void **state)
{
    (void) state;
    for (int call = 0; call < 4; call++) {
        struct host host;
        host_open(&host, call == 3, algorithms[call], 100 * MILLISECOND);
        for (int i = 0; i < 30; i++) {
            (void) request(&host, call); /* the child's copy has denials and grants */
        }
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            const weir_thread *before = host.t;
            if (call % 2 == 0) {
                host_attach(&host); /* or by the parent's handle, as behind daemon() */
            }
            const bool is_told =
                host.t == before || (host.lines == 1 && strstr(host.line, "forked after weir_open") != NULL);
            _exit(!passes(&host, call, 25) || !is_told);
        }
        int status = 1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_true(call == 3 || passes(&host, call, 25)); /* the parent goes on as before */
        assert_int_equal(host.lines, 0);
        weir_close(host.w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_client_passes_again_where_nobody_polls),
        cmocka_unit_test(test_a_client_passes_again_where_polling_stops),
        cmocka_unit_test(test_a_client_passes_again_in_a_child),
    };
    return cmocka_run_group_tests_name("tests", tests, NULL, NULL);
}
