/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Floods of new keys, many more than the table holds: a refused key stays refused, a new key passes, and no memory is
 * taken. Two million keys and a table for two thousand; WEIR_FLOOD_KEYS=100000000 (meson test --suite soak) has a
 * table for 65,536, which is the default.
 *
 * Guards: src/process/evict.c, src/process/evicted_sketch.c
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "limiter/weir_private.h"
#include "process/insert.h"
#include "support/support.h"
#include "thread/rcu.h"

#define OFFENDERS 100

/* One thread, and a clock that stands still: all of it is in one window. */
struct flood {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
    weir_policy_id policy;
    uint64_t keys;
    uint64_t denied; /* of those keys, within their limit */
    weir_limit limit;
};

static uint64_t flood_keys(void)
{
    const char *given = getenv("WEIR_FLOOD_KEYS");
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
    const uint64_t keys = 50000; /* they make each take up to twenty times as long */
#else
    const uint64_t keys = 2000000;
#endif
    return given != NULL ? strtoull(given, NULL, 0) : keys;
}

static void flood_open(struct flood *f, weir_algorithm algorithm, uint64_t limit)
{
    memset(f, 0, sizeof(*f));
    f->keys = flood_keys();
    fake_clock_init(&f->clock, 1760000000 * SECOND + 1);
    f->limit = (weir_limit){.algorithm = algorithm, .limit = limit, .period_ns = HOUR};
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = f->keys > 2000000 ? 65536 : 2000;
    options.max_threads = 1;
    options.clock = &f->clock.clock;
    f->w = open_or_fail(&options);
    f->t = weir_attach(f->w);
    f->policy = set_one_policy(f->w, &f->limit, 1, WEIR_SCOPE_PROCESS);
}

static weir_key key_of(const struct flood *f, const uint64_t *name)
{
    return weir_make_key(f->w, f->policy, name, sizeof(*name));
}

/* Ends the thread's slots, so that no key stays because it is in use. */
static void let_go(struct flood *f)
{
    weir_detach(f->t);
    f->t = weir_attach(f->w);
}

static uint64_t offender(uint64_t i)
{
    return UINT64_MAX - i;
}

/* Uses all of the limit, and asks for more. */
static void offend(struct flood *f)
{
    for (uint64_t i = 0; i < OFFENDERS; i++) {
        const uint64_t name = offender(i);
        const weir_key key = key_of(f, &name);
        while (weir_check(f->t, &key, 1, NULL)) {
        }
    }
    let_go(f);
}

/* So many units of each new key. */
static void run_flood(struct flood *f, uint64_t each)
{
    for (uint64_t name = 0; name < f->keys; name++) {
        const weir_key key = key_of(f, &name);
        bool passed = true;
        for (uint64_t unit = 0; unit < each; unit++) {
            passed = weir_check(f->t, &key, 1, NULL) ? passed : passed && unit >= f->limit.limit;
        }
        f->denied += !passed;
    }
    let_go(f);
}

static bool is_there(const struct flood *f, uint64_t name)
{
    rcu_enter(f->t);
    const struct policy_set *set = process_policies(&f->w->limiter.process);
    const weir_key key = key_of(f, &name);
    const bool there =
        table_find(&f->w->limiter.process.table, cell_hash(policy_set_by_id(set, f->policy), &key, 0)) != TABLE_NONE;
    rcu_leave(f->t);
    return there;
}

/*
 * How many refused keys the table has evicted. All must be refused, except for one or two in a hundred whose usage
 * record went with another key of the same fingerprint (evicted_sketch.c).
 */
static uint64_t look_at_offenders(struct flood *f)
{
    uint64_t forgotten = 0;
    uint64_t lost = 0;
    for (uint64_t i = 0; i < OFFENDERS; i++) {
        const uint64_t name = offender(i);
        forgotten += !is_there(f, name);
        const weir_key key = key_of(f, &name);
        lost += weir_check(f->t, &key, 1, NULL);
    }
    assert_in_range(lost, 0, OFFENDERS / 50);
    return forgotten;
}

static weir_stats flood_stats(const struct flood *f)
{
    weir_stats stats;
    weir_get_stats(f->w, &stats);
    assert_true(stats.key_count <= stats.key_capacity);
    assert_true(stats.evicted_used_count + stats.key_capacity + f->denied > f->keys);
    return stats;
}

static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_SLIDING_LOG, WEIR_TOKEN_BUCKET,
                                            WEIR_LEAKY_BUCKET};

static void test_an_offender_stays_denied_while_new_keys_pass_by(void **state)
{
    (void) state;
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
        struct flood f;
        flood_open(&f, algorithms[a], 10);
        f.limit.delay = algorithms[a] == WEIR_LEAKY_BUCKET ? 10 : 0; /* all at once */
        f.policy = set_one_policy(f.w, &f.limit, 1, WEIR_SCOPE_PROCESS);
        weir_stats before;
        weir_get_stats(f.w, &before);
        f.keys /= a == 0 ? 1 : 10;
        offend(&f);
        run_flood(&f, 1);
        (void) look_at_offenders(&f);
        const weir_stats stats = flood_stats(&f);
        print_message("# algorithm %d: %" PRIu64 " of %" PRIu64 " new keys denied, %" PRIu64 " returned, %" PRIu64
                      " forgiven\n",
                      algorithms[a], f.denied, f.keys, stats.evicted_restored_count, stats.evicted_unrecorded_count);
        assert_true(f.denied <= f.keys / 1000);
        assert_int_equal(stats.memory_size, before.memory_size);
        /* The usage is remembered no longer than its time. */
        fake_clock_advance(&f.clock, 2 * HOUR);
        (void) weir_poll(f.w);
        const uint64_t name = offender(0);
        const weir_key key = key_of(&f, &name);
        assert_true(weir_check(f.t, &key, 10, NULL));
        weir_close(f.w);
    }
}

static void test_an_offender_stays_denied_among_offenders(void **state)
{
    (void) state;
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
        for (uint64_t more = 0; more < 2; more++) {
            struct flood f;
            flood_open(&f, algorithms[a], 3);
            f.limit.delay = algorithms[a] == WEIR_LEAKY_BUCKET ? 3 : 0;
            f.policy = set_one_policy(f.w, &f.limit, 1, WEIR_SCOPE_PROCESS);
            f.keys /= 20;
            offend(&f);
            run_flood(&f, 3 + more); /* their limit, and one more */
            const uint64_t forgotten = look_at_offenders(&f);
            const weir_stats stats = flood_stats(&f);
            print_message("# algorithm %d: %" PRIu64 " of %d offenders were forgotten, %" PRIu64 " of %" PRIu64
                          " new keys denied, %" PRIu64 " forgiven\n",
                          algorithms[a], forgotten, OFFENDERS, f.denied, f.keys, stats.evicted_unrecorded_count);
            assert_true(forgotten != 0);
            assert_true(more != 0 || f.denied <= f.keys / 100); /* these keys were never refused */
            weir_close(f.w);
        }
    }
}

static void test_new_keys_with_a_limit_of_one_are_let_pass(void **state)
{
    (void) state;
    struct flood f;
    flood_open(&f, WEIR_FIXED_WINDOW, 1);
    f.keys /= 10;
    offend(&f);
    run_flood(&f, 1);
    (void) look_at_offenders(&f);
    print_message("# %" PRIu64 " of %" PRIu64 " new keys denied\n", f.denied, f.keys);
    assert_true(f.denied <= f.keys / 100);
    weir_close(f.w);
}

static void test_a_key_that_was_reset_begins_anew_even_if_it_was_forgotten(void **state)
{
    (void) state;
    struct flood f;
    flood_open(&f, WEIR_FIXED_WINDOW, 3);
    f.keys /= 20;
    offend(&f);
    run_flood(&f, 4);
    uint64_t forgotten = 0;
    uint64_t anew = 0;
    for (uint64_t i = 0; i < OFFENDERS; i++) {
        const uint64_t name = offender(i);
        const weir_key key = key_of(&f, &name);
        forgotten += !is_there(&f, name);
        assert_int_equal(weir_reset(f.w, &key), 0);
        anew += weir_check(f.t, &key, 3, NULL);
    }
    assert_true(forgotten != 0);
    assert_int_equal(anew, OFFENDERS);
    weir_close(f.w);
}

#define THREADS 4
#define NAMES   6000
#if defined __SANITIZE_THREAD__ || defined EMULATED
#define CHECKS 20000
#else
#define CHECKS 100000
#endif
#define LIMIT 5

struct storm {
    weir *w;
    weir_policy_id policy;
    _Atomic uint64_t seed;
    _Atomic uint64_t admitted[NAMES];
};

static void *storm_main(void *arg)
{
    struct storm *storm = arg;
    weir_thread *t = weir_attach(storm->w);
    uint64_t rng = atomic_fetch_add(&storm->seed, 1);
    for (uint64_t i = 0; i < CHECKS; i++) {
        const uint64_t name = random_below(&rng, NAMES);
        const weir_key key = weir_make_key(storm->w, storm->policy, &name, sizeof(name));
        if (weir_check(t, &key, 1, NULL)) {
            (void) atomic_fetch_add(&storm->admitted[name], 1);
        }
    }
    weir_detach(t);
    return NULL;
}

/* Keys are evicted and come back all the time, in one window, from several threads. */
static void test_keys_that_come_back_have_no_fresh_budget(void **state)
{
    (void) state;
    const uint64_t seed = test_seed();
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
        struct storm *storm = calloc(1, sizeof(*storm));
        assert_non_null(storm);
        weir_options options = WEIR_OPTIONS_INIT;
        options.max_keys = 3000;
        options.max_threads = THREADS;
        storm->w = open_or_fail(&options);
        storm->seed = seed;
        const weir_limit limit = {.algorithm = algorithms[a],
                                  .limit = LIMIT,
                                  .period_ns = 366 * 24 * HOUR,
                                  .delay = algorithms[a] == WEIR_LEAKY_BUCKET ? LIMIT : 0};
        storm->policy = set_one_policy(storm->w, &limit, 1, WEIR_SCOPE_PROCESS);
        run_threads(THREADS, storm_main, storm);
        weir_stats stats;
        weir_get_stats(storm->w, &stats);
        assert_true(stats.evicted_restored_count > 1000);
        uint64_t over = 0;
        uint64_t used = 0;
        for (size_t i = 0; i < NAMES; i++) {
            over += saturating_sub(storm->admitted[i], LIMIT);
            used += storm->admitted[i];
        }
        print_message("# algorithm %d: %" PRIu64 " units over, of %d, %" PRIu64 " returned, %" PRIu64 " forgiven\n",
                      algorithms[a], over, LIMIT * NAMES, stats.evicted_restored_count, stats.evicted_unrecorded_count);
        /* A unit that was charged while its key was evicted; and evictions that are counted as unrecorded. */
        assert_true(over <= THREADS + LIMIT * stats.evicted_unrecorded_count);
        assert_true(used >= LIMIT * NAMES * 8 / 10);
        weir_close(storm->w);
        free(storm);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_offender_stays_denied_while_new_keys_pass_by),
        cmocka_unit_test(test_an_offender_stays_denied_among_offenders),
        cmocka_unit_test(test_new_keys_with_a_limit_of_one_are_let_pass),
        cmocka_unit_test(test_a_key_that_was_reset_begins_anew_even_if_it_was_forgotten),
        cmocka_unit_test(test_keys_that_come_back_have_no_fresh_budget),
    };
    return cmocka_run_group_tests_name("stress/flood", tests, NULL, NULL);
}
