/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_poll_fd without a Redis: the descriptor goes by the time alone; and what the call refuses.
 *
 * Guards: src/limiter/poll_set.c, src/limiter/background.c
 */
#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include "support/support.h"

#define PATIENCE_MS 30000
#define PATIENCE_NS (PATIENCE_MS * MILLISECOND)

static weir *open_without_thread(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_keys = 1000;
    options.max_threads = 2;
    return open_or_fail(&options);
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, timeout_ms) == 1;
}

static void test_a_weir_with_a_thread_has_none(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    assert_int_equal(weir_poll_fd(w), -EINVAL);
    weir_close(w);
}

static void test_it_is_always_the_same_and_gone_with_the_weir(void **state)
{
    (void) state;
    const size_t before = count_descriptors();
    weir *w = open_without_thread();
    assert_int_equal(count_descriptors(), before); /* without weir_poll_fd there is no descriptor */
    const int fd = weir_poll_fd(w);
    assert_true(fd >= 0);
    assert_true(readable(fd, 0)); /* the weir was never polled */
    (void) weir_poll(w);
    assert_int_equal(weir_poll_fd(w), fd);
    weir_close(w);
    assert_int_equal(count_descriptors(), before);
}

static void test_it_is_readable_when_the_time_has_come_and_not_before(void **state)
{
    (void) state;
    weir *w = open_without_thread();
    const int fd = weir_poll_fd(w);
    int early = 0;
    for (int i = 0; i < 100; i++) {
        const uint64_t before_ns = real_ns();
        const int wait_ms = weir_poll(w);
        assert_in_range(wait_ms, 0, 100);
        assert_true(readable(fd, PATIENCE_MS));
        /* wait_ms is rounded up. */
        early += real_ns() + MILLISECOND < before_ns + (uint64_t) wait_ms * MILLISECOND;
        assert_true(readable(fd, 0)); /* until the weir is polled */
    }
    assert_int_equal(early, 0);
    weir_close(w);
}

static void test_a_loop_that_waits_for_nothing_else_keeps_the_time(void **state)
{
    (void) state;
    weir *w = open_without_thread();
    const int fd = weir_poll_fd(w);
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = SECOND, .burst = 1};
    const weir_policy_id policy = set_one_policy(w, &limit, 1, WEIR_SCOPE_PROCESS);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, policy, "k", 1);
    const uint64_t begin_ns = real_ns();
    uint64_t passed = 0;
    while (passed < 20) {
        assert_true(readable(fd, PATIENCE_MS));
        (void) weir_poll(w);
        passed += weir_check(t, &key, 1, NULL);
        assert_true(real_ns() < begin_ns + PATIENCE_NS);
    }
    assert_true(real_ns() - begin_ns >= 188 * MILLISECOND);
    weir_detach(t);
    weir_close(w);
}

static void test_where_there_is_none_to_be_had_it_says_so_and_comes_later(void **state)
{
    (void) state;
    weir *w = open_without_thread();
    const size_t before = count_descriptors();
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    /* The lowest free descriptor; one is left for the set, and none for its timer. */
    const int next = dup(0);
    assert_true(next >= 0);
    (void) close(next);
    for (rlim_t more = 0; more < 2; more++) {
        const struct rlimit few = {.rlim_cur = (rlim_t) next + more, .rlim_max = limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
        const int result = weir_poll_fd(w);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_int_equal(result, -EMFILE);
        assert_int_equal(count_descriptors(), before);
        assert_in_range(weir_poll(w), 0, 100);
    }
    assert_true(weir_poll_fd(w) >= 0);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_weir_with_a_thread_has_none),
        cmocka_unit_test(test_it_is_always_the_same_and_gone_with_the_weir),
        cmocka_unit_test(test_it_is_readable_when_the_time_has_come_and_not_before),
        cmocka_unit_test(test_a_loop_that_waits_for_nothing_else_keeps_the_time),
        cmocka_unit_test(test_where_there_is_none_to_be_had_it_says_so_and_comes_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
