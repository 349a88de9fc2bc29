/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New keys in a full table: a key that comes once gets no cell of another key, and what it used is remembered; a key
 * that comes again gets one.
 *
 * Guards: src/process/admission.c, src/process/evicted_sketch.c
 */
#include <string.h>

#include "limiter/weir_private.h"
#include "support/support.h"
#include "thread/rcu.h"

#define MAX_KEYS 1000
#define LIMIT    8
#define FILLERS  (4 * MAX_KEYS)
#define SOME     200
#define NEW      (UINT64_C(1) << 32)

struct subject {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
    weir_policy_id policy;
};

static weir_key named(const struct subject *s, const uint64_t *name)
{
    return weir_make_key(s->w, s->policy, name, sizeof(*name));
}

static bool is_held(const struct subject *s, uint64_t name)
{
    rcu_enter(s->t);
    const struct policy_set *set = process_policies(&s->w->limiter.process);
    const weir_key key = named(s, &name);
    const bool held =
        table_find(&s->w->limiter.process.table, cell_hash(policy_set_by_id(set, s->policy), &key, 0)) != TABLE_NONE;
    rcu_leave(s->t);
    return held;
}

static bool check(const struct subject *s, uint64_t name, uint64_t cost)
{
    const weir_key key = named(s, &name);
    return weir_check(s->t, &key, cost, NULL);
}

/* A table of which every cell has a key that used a unit of its limit. */
static void subject_open(struct subject *s, weir_algorithm algorithm)
{
    memset(s, 0, sizeof(*s));
    fake_clock_init(&s->clock, 1760000000 * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = MAX_KEYS;
    options.max_threads = 1;
    options.clock = &s->clock.clock;
    s->w = open_or_fail(&options);
    s->t = weir_attach(s->w);
    const weir_limit limit = {.algorithm = algorithm, .limit = LIMIT, .period_ns = HOUR};
    s->policy = set_one_policy(s->w, &limit, 1, WEIR_SCOPE_PROCESS);
    for (uint64_t name = 0; name < FILLERS; name++) {
        (void) check(s, name, 1);
    }
    weir_detach(s->t); /* its slots hold keys */
    s->t = weir_attach(s->w);
}

static uint64_t count_held(const struct subject *s, uint64_t first, uint64_t count)
{
    uint64_t held = 0;
    for (uint64_t name = first; name < first + count; name++) {
        held += is_held(s, name);
    }
    return held;
}

static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};

#define ALGORITHMS (sizeof(algorithms) / sizeof(algorithms[0]))

/* By weir_check, or by bursts. */
static void check_once(struct subject *s, bool burst)
{
    uint64_t denied = 0;
    for (uint64_t first = 0; first < SOME; first += 10) {
        uint64_t names[10];
        weir_key keys[10];
        for (uint64_t i = 0; i < 10; i++) {
            names[i] = NEW + first + i;
            keys[i] = named(s, &names[i]);
        }
        if (burst) {
            denied += 10 - weir_check_burst(s->t, keys, NULL, 10, NULL);
        }
        for (uint64_t i = 0; i < 10 && !burst; i++) {
            denied += !weir_check(s->t, &keys[i], 1, NULL);
        }
    }
    assert_int_equal(denied, 0);
}

static void test_a_key_that_comes_once_evicts_no_key(void **state)
{
    (void) state;
    for (size_t a = 0; a < 2 * ALGORITHMS; a++) {
        struct subject s;
        subject_open(&s, algorithms[a / 2]);
        const uint64_t before = count_held(&s, 0, FILLERS);
        check_once(&s, a % 2 != 0);
        /* One in six hundred finds a fingerprint like its own, and gets a cell at once. */
        assert_in_range(count_held(&s, NEW, SOME), 0, 4);
        assert_in_range(count_held(&s, 0, FILLERS), before - 4, before);
        weir_close(s.w);
    }
}

static void test_a_key_that_comes_again_gets_a_cell_and_owes_what_it_used(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        struct subject s;
        subject_open(&s, algorithms[a]);
        uint64_t held_after_one = 0;
        uint64_t held_after_two = 0;
        uint64_t passed = 0;
        for (uint64_t name = NEW; name < NEW + SOME; name++) {
            passed += check(&s, name, 1);
            held_after_one += is_held(&s, name);
            passed += check(&s, name, LIMIT - 2);
            held_after_two += is_held(&s, name);
            passed += check(&s, name, 1);
            assert_false(check(&s, name, 1)); /* the unit of the first time counts */
        }
        assert_in_range(passed, 3 * SOME - 4, 3 * SOME); /* less where a key finds another key's record */
        assert_in_range(held_after_one, 0, 4);
        assert_int_equal(held_after_two, SOME);
        weir_close(s.w);
    }
}

static void test_a_key_that_was_unused_for_a_minute_gives_way_to_a_key_that_comes_once(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        struct subject s;
        subject_open(&s, algorithms[a]);
        fake_clock_advance(&s.clock, 5 * HOUR);
        (void) weir_poll(s.w);
        check_once(&s, false);
        assert_in_range(count_held(&s, NEW, SOME), SOME * 9 / 10, SOME);
        weir_stats stats;
        weir_get_stats(s.w, &stats);
        assert_true(stats.evicted_unused_count >= SOME * 8 / 10);
        weir_close(s.w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_that_comes_once_evicts_no_key),
        cmocka_unit_test(test_a_key_that_comes_again_gets_a_cell_and_owes_what_it_used),
        cmocka_unit_test(test_a_key_that_was_unused_for_a_minute_gives_way_to_a_key_that_comes_once),
    };
    return cmocka_run_group_tests_name("unit/process/admission", tests, NULL, NULL);
}
