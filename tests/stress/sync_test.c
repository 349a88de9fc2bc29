/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_sync while threads use more keys than a round holds: the call ends, and what was counted before is reported. And
 * while a thread gives units back: an answer that is merged at that moment takes none of them away.
 *
 * Guards: src/fleet/keys/gather.c, src/fleet/keys/merge.c, src/fleet/keys/merge_bucket.c, src/fleet/keys/reading.c,
 * src/fleet/keys/report.c, src/fleet/keys/full_sync.c, src/fleet/keys/record.c, src/fleet/round.c, src/check/refund.c,
 * src/limiter/background.c, src/base/spin.h
 */
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "algorithm/window.h"
#include "limiter/weir_open.h"
#include "limiter/weir_private.h"
#include "support/support.h"
#include "transport/loopback/loopback.h"

#define THREADS 3
#define KEYS    ((uint64_t) (SLOWED ? 4000 : 10000))
#define SYNCS   5
#define MERGES  (SLOWED ? 60 : 120)
#define REFUNDS 2 /* while an answer is merged */

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
        assert_int_equal(weir_sync(crowd.w, 60000), 0);
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

/* Two nodes of a fleet that use one key. The rounds of both are those of the second one's thread. */
struct couple {
    struct loopback_fleet *fleet;
    weir *w[2];
    weir_key key[2];
    _Atomic bool stop;
    uint64_t used; /* by the second node */
};

/* Units that have come back so far. */
static _Atomic uint64_t refunds;

/* The thread that merges an answer stops once in the middle of it. */
static _Thread_local bool stops;

/* Names that the linker gives. */
struct state __real_window_discharge_seq(struct state s, uint32_t seq, uint64_t units);
struct state __wrap_window_discharge_seq(struct state s, uint32_t seq, uint64_t units);

/* A merge has computed the state, and is about to write it. */
struct state __wrap_window_discharge_seq(struct state s, uint32_t seq, uint64_t units)
{
    if (stops) {
        stops = false;
        const uint64_t least = atomic_load(&refunds) + REFUNDS;
        const uint64_t until_ns = real_ns() + 60 * SECOND;
        while (atomic_load(&refunds) < least) {
            assert_true(real_ns() < until_ns);
            (void) sched_yield();
        }
    }
    return __real_window_discharge_seq(s, seq, units);
}

static void couple_open(struct couple *couple, const weir_limit *limit)
{
    *couple = (struct couple){.fleet = loopback_fleet_new(real_wall_ns, NULL)};
    assert_non_null(couple->fleet);
    for (int i = 0; i < 2; i++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.max_keys = 1000;
        options.no_thread = true;
        const struct transport_config config = {.timeout_ms = 60000};
        struct transport *transport = NULL;
        assert_int_equal(loopback_transport_open(couple->fleet, &config, &transport, NULL), 0);
        assert_int_equal(weir_open_on(&options, transport, &couple->w[i], NULL), 0);
        const weir_policy policy = {.name = "p", .limits = limit, .limit_count = 1, .outage_grace_ms = 60000};
        assert_int_equal(weir_set_policies(couple->w[i], &policy, 1, NULL), 0);
        couple->key[i] = weir_make_key(couple->w[i], weir_find_policy(couple->w[i], "p"), "key", 3);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(weir_sync(couple->w[i % 2], 60000), 0);
    }
}

/* The second node uses units and gives some of them back. The first one is told of both, in a round of its own. */
static void *merge_main(void *arg)
{
    struct couple *couple = arg;
    weir_thread *t = weir_attach(couple->w[1]);
    for (int times = 0; times < MERGES; times++) {
        const bool back = times % 3 == 2;
        if (back) {
            weir_refund(t, &couple->key[1], 1);
        } else {
            weir_charge(t, &couple->key[1], 2);
        }
        couple->used += back ? UINT64_MAX : 2;
        assert_int_equal(weir_sync(couple->w[1], 60000), 0);
        stops = true;
        assert_int_equal(weir_sync(couple->w[0], 60000), 0);
        stops = false;
    }
    atomic_store(&couple->stop, true);
    weir_detach(t);
    return NULL;
}

/* Uses a unit and gives it back. Each call comes by a new handle, so that the unit is taken out of the table. */
static void use_and_give_back(const struct couple *couple)
{
    weir_thread *t = weir_attach(couple->w[0]);
    weir_charge(t, &couple->key[0], 1);
    weir_detach(t);
    t = weir_attach(couple->w[0]);
    weir_refund(t, &couple->key[0], 1);
    weir_detach(t);
}

static void test_a_unit_comes_back_while_an_answer_is_merged(void **state)
{
    (void) state;
    static const weir_algorithm windows[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW};
    for (size_t i = 0; i < 2; i++) {
        const weir_limit limit = {.algorithm = windows[i], .limit = 1000000000, .period_ns = 366 * 24 * HOUR};
        struct couple couple;
        couple_open(&couple, &limit);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, merge_main, &couple), 0);
        while (!atomic_load(&couple.stop)) {
            use_and_give_back(&couple);
            (void) atomic_fetch_add(&refunds, 1);
        }
        assert_int_equal(pthread_join(thread, NULL), 0);
        for (int times = 0; times < 4; times++) {
            assert_int_equal(weir_sync(couple.w[times % 2], 60000), 0);
        }
        const uint64_t sum = loopback_fleet_sum(couple.fleet, ":p:key");
        if (sum != couple.used) {
            fail_msg("of %" PRIu64 " units some did not come back: the fleet has %" PRIu64
                     ", the other node used %" PRIu64,
                     atomic_load(&refunds), sum, couple.used);
        }
        weir_close(couple.w[0]);
        weir_close(couple.w[1]);
        loopback_fleet_free(couple.fleet);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whoever_waits_for_a_round_is_served_while_keys_are_in_use),
        cmocka_unit_test(test_and_while_keys_are_forgotten),
        cmocka_unit_test(test_a_unit_comes_back_while_an_answer_is_merged),
    };
    return cmocka_run_group_tests_name("stress/sync", tests, NULL, NULL);
}
