/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host whose clock is an hour wrong meets the fleet while its threads check: no key is denied for that hour.
 *
 * Guards: src/fleet/fleet_clock.c, src/fleet/clock_shift.c, src/thread/tick.c
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "limiter/weir_open.h"
#include "limiter/weir_private.h"
#include "support/support.h"
#include "transport/loopback/loopback.h"

#define THREADS 4
#define KEYS    UINT64_C(5000)
#define STEPS   20000
#define APART   (3600 * (int64_t) SECOND)

struct meeting {
    weir *w;
    weir_policy_id policy;
    int64_t apart_ns; /* the fleet's clock is ahead by that */
    _Atomic bool stop;
    _Atomic uint64_t checks, threads;
};

static uint64_t fleet_wall(void *arg)
{
    const struct meeting *meeting = arg;
    struct timespec now;
    (void) clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t) now.tv_sec * SECOND + (uint64_t) now.tv_nsec + (uint64_t) meeting->apart_ns;
}

static weir_key key_of(const struct meeting *meeting, uint64_t name)
{
    return weir_make_key(meeting->w, meeting->policy, &name, sizeof(name));
}

static void *check_main(void *arg)
{
    struct meeting *meeting = arg;
    uint64_t random = atomic_fetch_add(&meeting->threads, 1) + 1;
    weir_thread *t = weir_attach(meeting->w);
    while (!atomic_load(&meeting->stop)) {
        const weir_key key = key_of(meeting, random_below(&random, KEYS));
        (void) weir_check(t, &key, 1, NULL);
        (void) atomic_fetch_add(&meeting->checks, 1);
    }
    weir_detach(t);
    return NULL;
}

static void await_checks(struct meeting *meeting, uint64_t count)
{
    const uint64_t until = atomic_load(&meeting->checks) + count;
    while (atomic_load(&meeting->checks) < until) {
        (void) nanosleep(&(struct timespec){.tv_nsec = (long) MILLISECOND}, NULL);
    }
}

static void meet(weir_algorithm algorithm, int64_t apart_ns)
{
    struct meeting meeting = {.apart_ns = apart_ns};
    struct loopback_fleet *fleet = loopback_fleet_new(fleet_wall, &meeting);
    assert_non_null(fleet);
    loopback_fleet_set_down(fleet, true);
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 2 * KEYS;
    options.sync_interval_ms = 50;
    const struct transport_config config = {.timeout_ms = 1000};
    struct transport *transport = NULL;
    assert_int_equal(loopback_transport_open(fleet, &config, &transport, NULL), 0);
    assert_int_equal(weir_open_on(&options, transport, &meeting.w, NULL), 0);
    const weir_limit limit = {.algorithm = algorithm,
                              .limit = 1000000,
                              .period_ns = 600 * SECOND,
                              .delay = algorithm == WEIR_LEAKY_BUCKET ? 1000000 : 0};
    meeting.policy = set_one_policy(meeting.w, &limit, 1, WEIR_SCOPE_FLEET);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, check_main, &meeting), 0);
    }
    await_checks(&meeting, 10 * KEYS); /* all units, before the node knows fleet time */
    loopback_fleet_set_down(fleet, false);
    assert_int_equal(weir_sync(meeting.w, 60000), 0); /* everything is reported, after the keys have moved */
    atomic_store(&meeting.stop, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    weir_thread *t = weir_attach(meeting.w);
    for (uint64_t name = 0; name < KEYS; name++) {
        const weir_key key = key_of(&meeting, name);
        weir_verdict verdict;
        if (!weir_check(t, &key, 1, &verdict)) {
            fail_msg("algorithm %d, %lld s apart: key %llu is denied for %llu ms", (int) algorithm,
                     (long long) apart_ns / (long long) SECOND, (unsigned long long) name,
                     (unsigned long long) (verdict.retry_after_ns / MILLISECOND));
        }
    }
    weir_detach(t);
    weir_close(meeting.w);
    loopback_fleet_free(fleet);
}

static void test_no_key_is_denied_for_as_long_as_a_clock_was_wrong(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_TOKEN_BUCKET, WEIR_LEAKY_BUCKET};
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
        for (int times = 0; times < (SLOWED ? 1 : 2); times++) {
            meet(algorithms[a], APART);
            meet(algorithms[a], -APART);
        }
    }
}

/* A thread that ticks while the time is stepped back and on, and does nothing else. */
struct ticking {
    struct limiter limiter;
    _Atomic bool stop;
    _Atomic uint64_t ticks;
};

static void *tick_main(void *arg)
{
    struct ticking *ticking = arg;
    while (!atomic_load(&ticking->stop)) {
        tick_raise(&ticking->limiter, real_ns());
        (void) atomic_fetch_add(&ticking->ticks, 1);
    }
    return NULL;
}

/* What it had begun has ended. */
static void await_tick(struct ticking *ticking)
{
    const uint64_t until = atomic_load(&ticking->ticks) + 2;
    for (unsigned looks = 0; atomic_load(&ticking->ticks) < until; looks++) {
        if (looks > 1000) {
            (void) sched_yield(); /* it may have no processor */
        }
    }
}

static void test_a_ticker_that_a_step_back_overtakes_brings_no_old_time_back(void **state)
{
    (void) state;
    static struct limiter_shared shared;
    static struct process_shared process;
    static struct ticking ticking = {.limiter = {.shared = &shared, .process = {.shared = &process}}};
    tick_start(&ticking.limiter, real_ns(), HOUR);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, tick_main, &ticking), 0);
    const uint64_t until_ns = real_ns() + 10 * SECOND; /* where other processes have the processors */
    for (int times = 0; times < STEPS && (times < 100 || real_ns() < until_ns); times++) {
        tick_set_offset(&ticking.limiter, real_ns(), HOUR, true);
        await_tick(&ticking);
        tick_set_offset(&ticking.limiter, real_ns(), 0, true);
        await_tick(&ticking);
        assert_in_range(load_relaxed(&ticking.limiter.shared->line.now_ns), 0,
                        real_ns() + SECOND); /* and no hour more */
    }
    atomic_store(&ticking.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_key_is_denied_for_as_long_as_a_clock_was_wrong),
        cmocka_unit_test(test_a_ticker_that_a_step_back_overtakes_brings_no_old_time_back),
    };
    return cmocka_run_group_tests_name("stress/step", tests, NULL, NULL);
}
