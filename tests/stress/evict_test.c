/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More keys than the table holds, from several threads: memory stays as it is, hot keys keep their place, nothing is
 * counted for another key, and no key is there twice. And the same keys, added by all threads at once.
 *
 * Guards: src/process/insert.c, src/process/admission.c, src/process/evict.c, src/process/table.c, src/base/spin.h
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "limiter/background.h"
#include "limiter/weir_private.h"
#include "support/support.h"

#define THREADS 4
#ifdef __SANITIZE_THREAD__
#define CHECKS 80000
#else
#define CHECKS 400000
#endif

struct flood {
    weir *w;
    weir_policy_id policy;
    _Atomic uint64_t seed;
    _Atomic uint64_t steady_admitted;
};

/* A flood of keys that hardly repeat; now and then one key that must not be evicted. */
static void *flood_main(void *arg)
{
    struct flood *flood = arg;
    weir_thread *t = weir_attach(flood->w);
    uint64_t rng = atomic_fetch_add(&flood->seed, 1);
    const weir_key steady = weir_make_key(flood->w, flood->policy, "steady", 6);
    uint64_t admitted = 0;
    for (uint64_t i = 0; i < CHECKS; i++) {
        const uint64_t name = random_below(&rng, 1000000);
        const weir_key key = weir_make_key(flood->w, flood->policy, &name, sizeof(name));
        (void) weir_check(t, &key, 1, NULL);
        if (i % 4 == 0) {
            admitted += weir_check(t, &steady, 1, NULL);
        }
    }
    (void) atomic_fetch_add(&flood->steady_admitted, admitted);
    weir_detach(t);
    return NULL;
}

/* Each set counts the far keys of which it is the first set (I7). */
static void assert_far_counts(const struct table *table)
{
    uint64_t *far = calloc(table->set_count, sizeof(*far));
    assert_non_null(far);
    for (size_t at = 0; at < table->cell_count; at++) {
        const uint64_t hash = load_acquire(&table->cells[at].hash);
        const size_t pair = at & ~(size_t) (PAIR_CELLS - 1);
        far[table_first_set(table, hash)] +=
            hash != 0 && pair != table_pair(table, hash) && pair != table_second_pair(table, hash);
    }
    uint64_t sum = 0;
    for (size_t set = 0; set < table->set_count; set++) {
        uint64_t counted = 0;
        for (size_t i = 0; i < FAR_CLASSES; i++) {
            const unsigned both = load_relaxed(&table->guards[set].far_counts[i / 2]);
            counted += both >> i % 2 * FAR_COUNT_BITS & FAR_COUNT_MASK;
        }
        assert_int_equal(counted, far[set]);
        sum += far[set];
    }
    assert_true(sum != 0);
    free(far);
}

/* No key is there twice, each is found at once (I1, I6), and no unit is held. Returns the number of keys. */
static uint64_t count_cells(const struct table *table)
{
    uint64_t found = 0;
    for (uint32_t at = 0; at < table->cell_count; at++) {
        const uint64_t hash = load_acquire(&table->cells[at].hash);
        assert_int_equal(load_acquire(&table->cells[at].held) & HELD_IN_USE, 0);
        if (hash != 0) {
            found++;
            assert_int_equal(table_find(table, hash), at);
        }
    }
    return found;
}

static void test_a_flood_of_keys_forgets_the_least_used_and_keeps_the_limits(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 4000;
    options.max_threads = THREADS;
    struct flood flood = {.w = open_or_fail(&options), .seed = test_seed()};
    weir_stats before;
    weir_get_stats(flood.w, &before);
    const weir_limit limit = {.algorithm = WEIR_SLIDING_WINDOW, .limit = 5000, .period_ns = 366 * (24 * HOUR)};
    flood.policy = set_one_policy(flood.w, &limit, 1, WEIR_SCOPE_FLEET);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, flood_main, &flood), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    /* The most used key of all is never the one with the least to lose. */
    assert_in_range(flood.steady_admitted, 5000, 5000 + THREADS);
    weir_stats after;
    weir_get_stats(flood.w, &after);
    assert_true(after.evicted_used_count > 100000);
    assert_true(after.key_count <= after.key_capacity);
    assert_int_equal(after.memory_size, before.memory_size);
    assert_int_equal(after.untracked_count, 0);
    background_stop(flood.w); /* it pins the cells of keys that were denied, when it lists them */
    const struct table *table = &flood.w->limiter.process.table;
    assert_int_equal(count_cells(table), after.key_count);
    assert_far_counts(table);
    weir_close(flood.w);
}

#define SAME_KEYS  1024
#define SAME_LIMIT 2 /* units of each key, below THREADS */
#ifdef __SANITIZE_THREAD__
#define SAME_ROUNDS 40
#else
#define SAME_ROUNDS 200
#endif

/* The same new keys of all threads. */
struct same_keys {
    uint64_t names[SAME_KEYS][2];
    weir_key keys[SAME_KEYS];
    pthread_barrier_t barrier;
    weir *w;
    _Atomic uint64_t admitted;
    _Atomic uint64_t number; /* of the next thread */
};

/* How a thread brings a key: by a peek before the check the general path adds it. */
enum way { BY_CHECK, BY_BURST, BY_PEEK, WAYS };

/* Each key once, in the same order as all threads. */
static void *same_main(void *arg)
{
    struct same_keys *same = arg;
    const enum way way = (enum way)(atomic_fetch_add(&same->number, 1) % WAYS);
    weir_thread *t = weir_attach(same->w);
    uint64_t admitted = 0;
    (void) pthread_barrier_wait(&same->barrier);
    for (size_t i = 0; i < SAME_KEYS && way == BY_BURST; i += 16) {
        admitted += weir_check_burst(t, &same->keys[i], NULL, 16, NULL);
    }
    for (size_t i = 0; i < SAME_KEYS && way != BY_BURST; i++) {
        if (way == BY_PEEK) {
            (void) weir_peek(t, &same->keys[i], 1, NULL);
        }
        admitted += weir_check(t, &same->keys[i], 1, NULL);
    }
    (void) atomic_fetch_add(&same->admitted, admitted);
    weir_detach(t);
    return NULL;
}

static void add_same_keys(struct same_keys *same, uint64_t round)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = SAME_KEYS; /* so that keys also go to second pairs, and move */
    options.max_threads = THREADS;
    same->w = open_or_fail(&options);
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = SAME_LIMIT, .period_ns = 366 * (24 * HOUR)};
    const weir_policy_id policy = set_one_policy(same->w, &limit, 1, WEIR_SCOPE_PROCESS);
    for (uint64_t i = 0; i < SAME_KEYS; i++) {
        same->names[i][0] = i;
        same->names[i][1] = round;
        same->keys[i] = weir_make_key(same->w, policy, same->names[i], sizeof(same->names[i]));
    }
    atomic_store(&same->admitted, 0);
    atomic_store(&same->number, round);
    pthread_t threads[THREADS];
    assert_int_equal(pthread_barrier_init(&same->barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, same_main, same), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(pthread_barrier_destroy(&same->barrier), 0);
    background_stop(same->w); /* it pins the cells of keys that were denied */
    weir_stats stats;
    weir_get_stats(same->w, &stats);
    assert_int_equal(stats.untracked_count, 0);
    assert_in_range(same->admitted, SAME_KEYS * SAME_LIMIT - stalled_denials(same->w), SAME_KEYS * SAME_LIMIT);
    assert_int_equal(count_cells(&same->w->limiter.process.table), SAME_KEYS);
    assert_int_equal(stats.key_count, SAME_KEYS);
    weir_close(same->w);
}

static void test_threads_that_add_the_same_keys_at_once_give_each_one_cell(void **state)
{
    (void) state;
    static struct same_keys same;
    for (uint64_t round = 0; round < SAME_ROUNDS; round++) {
        add_same_keys(&same, round);
    }
}

static void test_keys_with_nothing_to_lose_go_first(void **state)
{
    (void) state;
    struct fake_clock clock;
    fake_clock_init(&clock, 1760000000 * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = 1;
    options.clock = &clock.clock;
    weir *w = open_or_fail(&options);
    const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = SECOND},
                                 {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR}};
    const weir_policy policies[] = {{.name = "short", .limits = &limits[0], .limit_count = 1},
                                    {.name = "long", .limits = &limits[1], .limit_count = 1}};
    assert_int_equal(weir_set_policies(w, policies, 2, NULL), 0);
    const weir_policy_id brief = weir_find_policy(w, "short");
    const weir_policy_id lasting = weir_find_policy(w, "long");
    weir_thread *t = weir_attach(w);
    for (uint64_t name = 0; name < 400; name++) {
        const weir_key key = weir_make_key(w, lasting, &name, sizeof(name));
        assert_true(weir_check(t, &key, 10, NULL));
    }
    /* Ten times what fits, in windows that end. */
    for (uint64_t name = 0; name < 15000; name++) {
        const weir_key key = weir_make_key(w, brief, &name, sizeof(name));
        assert_true(weir_check(t, &key, 1, NULL));
        if (name % 200 == 0) {
            fake_clock_advance(&clock,
                               60 * SECOND); /* a key that comes once evicts keys that were unused for a minute */
            (void) weir_poll(w);
        }
    }
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_true(stats.evicted_unused_count > 10000);
    for (uint64_t name = 0; name < 400; name++) {
        const weir_key key = weir_make_key(w, lasting, &name, sizeof(name));
        assert_false(weir_check(t, &key, 1, NULL)); /* the usage is still remembered */
    }
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_flood_of_keys_forgets_the_least_used_and_keeps_the_limits),
        cmocka_unit_test(test_threads_that_add_the_same_keys_at_once_give_each_one_cell),
        cmocka_unit_test(test_keys_with_nothing_to_lose_go_first),
    };
    return cmocka_run_group_tests_name("stress/evict", tests, NULL, NULL);
}
