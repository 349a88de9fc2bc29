/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that stays in its read section: a change of policies waits for it for ten seconds, and no change after that
 * writes over what it reads. Weirs of one name in one process stand for the processes. Time passes only where a call
 * naps.
 *
 * Guards: src/limiter/policy_readers.c, src/thread/rcu.c, src/limiter/set_policies.c, src/limiter/key_overrides.c,
 * src/limiter/shared_policies.c
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "limiter/weir_private.h"
#include "support/independent.h"
#include "support/support.h"
#include "thread/rcu.h"
#include "thread/rcu_lane.h"

#define PATIENCE_NS (10 * SECOND)

static uint64_t slept_ns; /* in naps */

int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    if (clock != CLOCK_MONOTONIC) {
        return __real_clock_gettime(clock, out);
    }
    *out = (struct timespec){.tv_sec = 1000 + (time_t) (slept_ns / SECOND), .tv_nsec = (long) (slept_ns % SECOND)};
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *rest)
{
    (void) rest;
    slept_ns += (uint64_t) time->tv_sec * SECOND + (uint64_t) time->tv_nsec;
    return 0;
}

static char name[SEGMENT_NAME_SIZE];

/* Puts one policy in force. Returns what came of it, and how long it took in *waited_ns. */
static int change(weir *w, uint64_t limit, uint64_t *waited_ns, weir_error *error)
{
    const weir_limit one = {.algorithm = WEIR_FIXED_WINDOW, .limit = limit, .period_ns = SECOND};
    const weir_policy policy = {.name = "p", .limits = &one, .limit_count = 1};
    const uint64_t before = slept_ns;
    const int result = weir_set_policies(w, &policy, 1, error);
    *waited_ns = slept_ns - before;
    return result;
}

static uint64_t limit_in_force(const weir *w)
{
    return process_policies(&w->limiter.process)->policies[0].limits[0].rule.limit;
}

/* `of_a_lane`: the reader has no handle. */
static void stays_in_its_section(bool of_a_lane)
{
    weir_options options = WEIR_OPTIONS_INIT;
    struct fake_clock clock;
    fake_clock_init(&clock, 1000 * SECOND);
    options.clock = &clock.clock;
    options.max_keys = 1000;
    options.max_threads = 2;
    options.max_processes = 3;
    options.no_thread = true;
    weir *one = open_named(name, &options);
    weir *other = open_named(name, &options);
    weir_thread *t = weir_attach(other);
    weir_unbind(t); /* of another thread, as far as the library knows: one's own is not waited for */
    weir_error error;
    uint64_t waited_ns;
    assert_int_equal(change(one, 1, &waited_ns, &error), 0);
    assert_int_equal(waited_ns, 0);

    unsigned lane = 0;
    if (of_a_lane) {
        lane = rcu_enter_lane(&other->limiter);
    } else {
        rcu_enter(t);
    }
    const struct policy_set *read = process_policies(&other->limiter.process);
    struct policy_set *copy = malloc(read->size);
    assert_non_null(copy);
    memcpy((void *) copy, (const void *) read, read->size);
    assert_int_equal(change(one, 2, &waited_ns, &error), 0);
    assert_in_range(waited_ns, PATIENCE_NS, PATIENCE_NS + SECOND);
    for (int i = 0; i < 4; i++) { /* by the process that has changed them, and by another one */
        weir *w = i % 2 == 0 ? one : other;
        const uint64_t before = slept_ns;
        const int result = i < 2 ? change(w, 3, &waited_ns, &error) : weir_set_override(w, "p:k", "7", &error);
        assert_int_equal(result, -EBUSY);
        assert_int_equal(error.code, -EBUSY);
        assert_non_null(strstr(error.message, "has read the policies for ten seconds"));
        assert_in_range(slept_ns - before, 0, MILLISECOND); /* it was waited for once */
        assert_int_equal(limit_in_force(one), 2);
        assert_int_equal(limit_in_force(other), 2);
    }
    assert_memory_equal(copy, read, read->size);
    free(copy);
    if (of_a_lane) {
        rcu_leave_lane(&other->limiter, lane);
    } else {
        rcu_leave(t);
    }

    assert_int_equal(change(other, 3, &waited_ns, &error), 0);
    assert_int_equal(waited_ns, 0);
    assert_int_equal(limit_in_force(one), 3);
    assert_int_equal(weir_set_override(one, "p:k", "7", &error), 0);
    weir_close(one);
    weir_close(other);
    (void) weir_unlink(name);
}

static void test_a_thread_that_stays_in_its_section_keeps_what_it_reads(void **state)
{
    (void) state;
    stays_in_its_section(false);
}

static void test_a_call_without_a_handle_that_stays_in_its_section_keeps_what_it_reads(void **state)
{
    (void) state;
    stays_in_its_section(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_thread_that_stays_in_its_section_keeps_what_it_reads),
        cmocka_unit_test(test_a_call_without_a_handle_that_stays_in_its_section_keeps_what_it_reads),
    };
    segment_name(name, "readers");
    return cmocka_run_group_tests_name("unit/limiter/policy_readers", tests, NULL, NULL);
}
