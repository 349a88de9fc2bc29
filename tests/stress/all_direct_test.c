/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_all of keys without slots, from many threads over keys that overlap: all or nothing, to the unit. Each
 * request comes by a new handle, so no key gets a slot. A timer stops each thread again and again for a moment, so that
 * many stop between the plan and the swaps.
 *
 *   units that are given back at once: never more than the limit are out, and in the end none is
 *   units that are kept: every key has what was admitted, and nothing of what was refused
 *
 * Guards: src/check/all_direct.c
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "support/stops.h"
#include "support/support.h"

#define THREADS  6
#define STILL    (UINT64_C(366) * 24 * HOUR)
#define KEYS     8
#define POLICIES 3
#define REQUESTS (SLOWED ? 5000 : 20000)

static struct {
    weir *w;
    uint64_t names[KEYS]; /* the bytes of the keys */
    weir_key keys[KEYS];
    uint64_t limit;
    bool gives_back;
    _Atomic uint64_t out[KEYS]; /* units that were admitted and not given back; a lower bound while threads run */
    _Atomic uint64_t refused, passed, over, ready, seed;
} d;

static void open_world(uint64_t limit, bool gives_back)
{
    static const weir_algorithm algorithms[POLICIES] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    static const char *const names[POLICIES] = {"fixed", "sliding", "token"};
    weir_limit limits[POLICIES];
    weir_policy policies[POLICIES];
    d.limit = limit;
    d.gives_back = gives_back;
    for (size_t p = 0; p < POLICIES; p++) {
        limits[p] = (weir_limit){.algorithm = algorithms[p], .limit = limit, .period_ns = STILL};
        policies[p] = (weir_policy){.name = names[p], .limits = &limits[p], .limit_count = 1};
    }
    weir_options options = WEIR_OPTIONS_INIT;
    options.tick_us = 100; /* a key that comes again within a tick gets a slot */
    d.w = open_or_fail(&options);
    assert_int_equal(weir_set_policies(d.w, policies, POLICIES, NULL), 0);
    for (uint64_t i = 0; i < KEYS; i++) {
        d.names[i] = i;
        d.keys[i] = weir_make_key(d.w, weir_find_policy(d.w, names[i % POLICIES]), &d.names[i], sizeof(d.names[i]));
        atomic_store(&d.out[i], 0);
    }
    atomic_store(&d.ready, 0);
}

/* A random part of the keys, in a random order: the last is charged without being held. */
static size_t random_keys(uint64_t *rng, size_t at[KEYS], weir_key keys[KEYS])
{
    for (size_t i = 0; i < KEYS; i++) {
        const size_t j = random_below(rng, i + 1);
        at[i] = at[j];
        at[j] = i;
    }
    for (size_t i = 0; i < KEYS; i++) {
        keys[i] = d.keys[at[i]];
    }
    return 2 + random_below(rng, KEYS - 1);
}

static void take_and_give_back(weir_thread *t, const size_t *at, const weir_key *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (atomic_fetch_add(&d.out[at[i]], 1) >= d.limit) {
            atomic_fetch_add(&d.over, 1);
        }
    }
    for (size_t i = 0; i < count && d.gives_back; i++) {
        atomic_fetch_sub(&d.out[at[i]], 1);
        weir_refund(t, &keys[i], 1);
    }
}

static void *ask(void *arg)
{
    (void) arg;
    uint64_t rng = atomic_fetch_add(&d.seed, UINT64_C(0x9e3779b97f4a7c15));
    (void) threads_meet(&d.ready, THREADS);
    const timer_t timer = stops_start(500);
    for (int i = 0; i < REQUESTS; i++) {
        size_t at[KEYS];
        weir_key keys[KEYS];
        weir_thread *t = weir_attach(d.w);
        const size_t count = random_keys(&rng, at, keys);
        if (weir_check_all(t, keys, NULL, count, NULL)) {
            atomic_fetch_add(&d.passed, 1);
            take_and_give_back(t, at, keys, count);
        } else {
            atomic_fetch_add(&d.refused, 1);
        }
        weir_detach(t);
    }
    stops_end(timer);
    return NULL;
}

static void play(uint64_t limit, bool gives_back)
{
    stops_prepare();
    atomic_store(&d.refused, 0);
    atomic_store(&d.passed, 0);
    atomic_store(&d.over, 0);
    open_world(limit, gives_back);
    run_threads(THREADS, ask, NULL);
    print_message("# limit %" PRIu64 ": %" PRIu64 " passed, %" PRIu64 " refused\n", limit, atomic_load(&d.passed),
                  atomic_load(&d.refused));
    assert_int_equal(atomic_load(&d.over), 0);
    assert_true(atomic_load(&d.passed) > 0 && atomic_load(&d.refused) > 0);
    weir_thread *t = weir_attach(d.w);
    for (size_t i = 0; i < KEYS; i++) {
        const uint64_t left = d.limit - atomic_load(&d.out[i]);
        assert_int_equal(wait_for_units(t, &d.keys[i], left), left);
    }
    weir_close(d.w);
}

static void test_units_that_come_back_at_once_are_never_over_the_limit(void **state)
{
    (void) state;
    atomic_store(&d.seed, test_seed());
    play(2, true);
    play(3, true);
}

static void test_units_that_are_kept_are_what_was_admitted(void **state)
{
    (void) state;
    atomic_store(&d.seed, test_seed());
    play(40, false);
    play(REQUESTS, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units_that_come_back_at_once_are_never_over_the_limit),
        cmocka_unit_test(test_units_that_are_kept_are_what_was_admitted),
    };
    return cmocka_run_group_tests_name("stress/all_direct", tests, NULL, NULL);
}
