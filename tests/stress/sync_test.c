/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_sync while threads use more keys than a round holds: the call ends, and what was counted before is reported.
 *
 * Guards: src/fleet/keys/gather.c, src/fleet/round.c, src/limiter/background.c, src/base/spin.h
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "limiter/weir_open.h"
#include "limiter/weir_private.h"
#include "support/support.h"
#include "transport/loopback/loopback.h"

#define THREADS 3
#define KEYS    ((uint64_t) (SLOWED ? 4000 : 10000))
#define SYNCS   5

struct crowd {
    weir *w;
    weir_policy_id policy;
    uint64_t keys; /* that are used at random */
    _Atomic bool stop;
    _Atomic uint64_t checks, threads;
};

static void *check_main(void *arg)
{
    struct crowd *crowd = arg;
    uint64_t random = atomic_fetch_add(&crowd->threads, 1) + 1;
    weir_thread *t = weir_attach(crowd->w);
    while (!atomic_load(&crowd->stop)) {
        const uint64_t name = random_below(&random, crowd->keys);
        const weir_key key = weir_make_key(crowd->w, crowd->policy, &name, sizeof(name));
        (void) weir_check(t, &key, 1, NULL);
        (void) atomic_fetch_add(&crowd->checks, 1);
    }
    weir_detach(t);
    return NULL;
}

/* `strict`: no key is evicted, so no unit can be lost. */
static void syncs_amid(size_t max_keys, uint64_t keys, bool strict)
{
    struct crowd crowd = {.keys = keys};
    struct loopback_fleet *fleet = loopback_fleet_new(real_wall_ns, NULL);
    assert_non_null(fleet);
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = max_keys;
    options.sync_interval_ms = 100;
    const struct transport_config config = {.timeout_ms = 1000};
    struct transport *transport = NULL;
    assert_int_equal(loopback_transport_open(fleet, &config, &transport, NULL), 0);
    assert_int_equal(weir_open_on(&options, transport, &crowd.w, NULL), 0);
    /* Some keys are urgent, others wait for the scan. */
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 200, .period_ns = 24 * HOUR};
    crowd.policy = set_one_policy(crowd.w, &limit, 1, WEIR_SCOPE_FLEET);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, check_main, &crowd), 0);
    }
    while (atomic_load(&crowd.checks) < 2 * KEYS) {
        (void) nanosleep(&(struct timespec){.tv_nsec = (long) MILLISECOND}, NULL);
    }
    weir_thread *t = weir_attach(crowd.w);
    for (uint64_t i = 0; i < SYNCS; i++) {
        char name[32];
        const int length = snprintf(name, sizeof(name), "own-%02" PRIu64 "-", i);
        const weir_key key = weir_make_key(crowd.w, crowd.policy, name, (size_t) length);
        for (uint64_t units = 0; units < 3 + i; units++) {
            assert_true(weir_check(t, &key, 1, NULL));
        }
        assert_int_equal(weir_sync(crowd.w, 30000), 0);
        if (strict) {
            assert_int_equal(loopback_fleet_sum(fleet, name), 3 + i);
        }
    }
    atomic_store(&crowd.stop, true);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(load_relaxed(&crowd.w->fleet->sync_calls.waiters), 0);
    weir_detach(t);
    weir_close(crowd.w);
    loopback_fleet_free(fleet);
}

static void test_whoever_waits_for_a_round_is_served_while_keys_are_in_use(void **state)
{
    (void) state;
    syncs_amid(2 * KEYS, KEYS, true);
}

static void test_and_while_keys_are_forgotten(void **state)
{
    (void) state;
    syncs_amid(KEYS, 4 * KEYS, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whoever_waits_for_a_round_is_served_while_keys_are_in_use),
        cmocka_unit_test(test_and_while_keys_are_forgotten),
    };
    return cmocka_run_group_tests_name("stress/sync", tests, NULL, NULL);
}
