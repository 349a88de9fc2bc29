/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists of denied keys are read while threads are denied and policies change. Every copy is whole, no key has more
 * denied units than it can have, and when all is quiet every denied unit has been counted once.
 *
 * Guards: src/process/top_denied.c
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/support.h"

#define CHECKERS 4
#define READERS  2
#if defined __SANITIZE_THREAD__ || defined EMULATED
#define CHECKS 40000
#else
#define CHECKS 150000
#endif
#define KEYS 300
#define MANY 4000 /* several times what the smallest table holds */
/* One or two denials without a slot may count for keys that get the cells meanwhile: O1 of top_denied.h. */
#define STRAYS 8

struct crowd {
    weir *w;
    weir_policy_id policy;
    _Atomic bool stop;
    _Atomic uint64_t seed, reads, wrong;
    uint64_t keys;
    _Atomic uint64_t denied[MANY];
    pthread_t checkers[CHECKERS];
    pthread_t readers[READERS];
    int reader_count;
};

static uint64_t key_number(uint64_t *rng, uint64_t keys)
{
    const uint64_t spread = 1 + random_below(rng, keys); /* lower numbers come more often */
    return random_below(rng, spread);
}

static void *check_main(void *arg)
{
    struct crowd *crowd = arg;
    weir_thread *t = weir_attach(crowd->w);
    uint64_t rng = atomic_fetch_add(&crowd->seed, 1);
    for (int i = 0; i < CHECKS; i++) {
        const uint64_t number = key_number(&rng, crowd->keys);
        char name[16];
        const int length = snprintf(name, sizeof(name), "%d", (int) number);
        const weir_key key = weir_make_key(crowd->w, crowd->policy, name, (size_t) length);
        const uint64_t again = 1 + random_below(&rng, 8);
        for (uint64_t j = 0; j < again; j++) {
            /* Counted before the list is read: the list has no more than this. */
            (void) atomic_fetch_add(&crowd->denied[number], 1);
            if (weir_check(t, &key, 1, NULL)) {
                (void) atomic_fetch_sub(&crowd->denied[number], 1);
            }
        }
    }
    weir_detach(t);
    return NULL;
}

static void *read_main(void *arg)
{
    struct crowd *crowd = arg;
    static _Thread_local char text[65536];
    while (!atomic_load(&crowd->stop)) {
        weir_offender top[WEIR_TOP_OFFENDERS];
        const size_t count = weir_top_offenders(crowd->w, crowd->policy, top, WEIR_TOP_OFFENDERS);
        uint64_t wrong = 0;
        for (size_t i = 0; i < count; i++) {
            char *end = NULL;
            const unsigned long number = strtoul(top[i].key, &end, 10);
            wrong += end == top[i].key || *end != '\0' || number >= crowd->keys;
            wrong += top[i].error_units > top[i].denied_units;
            wrong += i != 0 && top[i].denied_units > top[i - 1].denied_units;
            wrong += number < crowd->keys &&
                     top[i].denied_units - top[i].error_units > atomic_load(&crowd->denied[number]) + STRAYS;
        }
        (void) atomic_fetch_add(&crowd->wrong, wrong);
        (void) weir_write_metrics(crowd->w, text, sizeof(text));
        (void) atomic_fetch_add(&crowd->reads, 1);
        const struct timespec nap = {.tv_nsec = 200000};
        (void) nanosleep(&nap, NULL);
    }
    return NULL;
}

static void crowd_start(struct crowd *crowd, int readers)
{
    crowd->reader_count = readers;
    for (int i = 0; i < CHECKERS; i++) {
        assert_int_equal(pthread_create(&crowd->checkers[i], NULL, check_main, crowd), 0);
    }
    for (int i = 0; i < readers; i++) {
        assert_int_equal(pthread_create(&crowd->readers[i], NULL, read_main, crowd), 0);
    }
}

/*
 * Waits until all threads are done, and all denied units are counted; returns their number. A key without a cell, since
 * slots pin every cell that it could have, is in no list: it counts as untracked.
 */
static uint64_t crowd_join(struct crowd *crowd, weir_stats *stats)
{
    for (int i = 0; i < CHECKERS; i++) {
        assert_int_equal(pthread_join(crowd->checkers[i], NULL), 0);
    }
    atomic_store(&crowd->stop, true);
    for (int i = 0; i < crowd->reader_count; i++) {
        assert_int_equal(pthread_join(crowd->readers[i], NULL), 0);
    }
    assert_int_equal(crowd->wrong, 0);
    uint64_t denied = 0;
    for (uint64_t i = 0; i < crowd->keys; i++) {
        denied += crowd->denied[i];
    }
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    do {
        weir_get_stats(crowd->w, stats);
    } while (stats->denied_units + stats->evicted_denied_units + stats->untracked_count < denied &&
             real_ns() < until_ns);
    return denied;
}

static void test_reading_while_threads_are_denied_sees_whole_lists_and_misses_nothing(void **state)
{
    (void) state;
    static struct crowd crowd;
    crowd.w = open_or_fail(NULL);
    crowd.seed = test_seed();
    crowd.keys = KEYS;
    const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 20, .period_ns = 366 * 24 * HOUR},
                                 {.algorithm = WEIR_TOKEN_BUCKET, .limit = 30, .period_ns = 366 * 24 * HOUR}};
    const uint64_t begun_ns = real_ns();
    crowd.policy = set_one_policy(crowd.w, limits, 1, WEIR_SCOPE_PROCESS);
    crowd_start(&crowd, READERS);
    for (size_t i = 0; i < 50; i++) {
        assert_int_equal(set_one_policy(crowd.w, limits, 1 + i % 2, WEIR_SCOPE_PROCESS), crowd.policy);
        const struct timespec nap = {.tv_nsec = 1000000};
        (void) nanosleep(&nap, NULL);
    }
    weir_stats stats;
    const uint64_t denied = crowd_join(&crowd, &stats);
    assert_true(crowd.reads > 10);
    assert_int_equal(stats.denied_count, denied);
    assert_int_equal(stats.denied_units, denied);
    assert_int_equal(stats.evicted_denied_units, 0);
    weir_offender top[WEIR_TOP_OFFENDERS];
    assert_int_equal(weir_top_offenders(crowd.w, crowd.policy, top, WEIR_TOP_OFFENDERS), WEIR_TOP_OFFENDERS);
    for (size_t i = 0; i < WEIR_TOP_OFFENDERS; i++) {
        const uint64_t truth = crowd.denied[strtoul(top[i].key, NULL, 10)];
        assert_true(top[i].denied_units - top[i].error_units <= truth);
        /* On a machine so slow that a minute has passed it may have been halved. */
        assert_true(truth <= top[i].denied_units || real_ns() - begun_ns >= 55 * SECOND);
    }
    weir_close(crowd.w);
}

/*
 * Keys are evicted and come back all the time, in the middle of denials. No list has one key's denials under another
 * key.
 */
static void test_what_forgotten_keys_were_denied_is_said_of_nobody_else(void **state)
{
    (void) state;
    static struct crowd crowd;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = CHECKERS;
    crowd.w = open_or_fail(&options);
    crowd.seed = test_seed();
    crowd.keys = MANY;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 366 * 24 * HOUR};
    crowd.policy = set_one_policy(crowd.w, &limit, 1, WEIR_SCOPE_PROCESS);
    crowd_start(&crowd, 1);
    weir_stats stats;
    const uint64_t denied = crowd_join(&crowd, &stats);
    assert_true(stats.evicted_used_count > 10000);
    assert_int_equal(stats.denied_units + stats.evicted_denied_units + stats.untracked_count, denied);
    assert_true(stats.untracked_count < denied / 10000); /* a handful, in a table of 1,000 with 250 of them pinned */
    weir_close(crowd.w);
}

/* A slot keeps its thread's denials until it is settled: here by the background thread alone. */
static void test_what_an_idle_thread_was_denied_is_listed_while_others_are_busy(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 366 * 24 * HOUR};
    const weir_policy_id policy = set_one_policy(w, &limit, 1, WEIR_SCOPE_PROCESS);
    weir_thread *idle = weir_attach(w);
    weir_thread *busy = weir_attach(w);
    const weir_key key = weir_make_key(w, policy, "idle", 4);
    for (int i = 0; i <= 20; i++) {
        assert_int_equal(weir_check(idle, &key, 1, NULL), i == 0);
    }
    weir_offender top[1] = {{.denied_units = 0}};
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    for (uint64_t name = 0; top[0].denied_units < 20 && real_ns() < until_ns; name++) {
        const weir_key other = weir_make_key(w, policy, &name, sizeof(name));
        (void) weir_check(busy, &other, 1, NULL); /* among millions of new keys some are taken for one that was there */
        (void) weir_top_offenders(w, policy, top, 1);
    }
    assert_string_equal(top[0].key, "idle");
    /* More, where so many others were denied that the list has an error. */
    assert_in_range(20, top[0].denied_units - top[0].error_units, top[0].denied_units);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_an_idle_thread_was_denied_is_listed_while_others_are_busy),
        cmocka_unit_test(test_reading_while_threads_are_denied_sees_whole_lists_and_misses_nothing),
        cmocka_unit_test(test_what_forgotten_keys_were_denied_is_said_of_nobody_else),
    };
    return cmocka_run_group_tests_name("stress/top_denied", tests, NULL, NULL);
}
