/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of cost 0: they are answered where those of cost 1 are, by slots and without the table, take nothing, and
 * leave nothing of a key that was never charged. Under a clock that stands still.
 *
 * Guards: src/check/check.c, src/check/check_all.c, src/check/claim.c, src/check/decide.c, src/check/direct_charge.c,
 * src/process/admission.c, src/thread/slot.c, src/thread/slot_word.h
 */
#include <string.h>

#include "support/nodes.h"

#define LIMIT  UINT64_C(1000)
#define ROUNDS 200

static const weir_algorithm algorithms[] = {WEIR_TOKEN_BUCKET, WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW,
                                            WEIR_SLIDING_LOG};

static uint64_t slow_count(const weir_thread *t)
{
    return load_relaxed(&t->shared->slow_count);
}

/* One policy of one or two limits, asked by calls of one kind. */
struct subject {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
    weir_key key, other;
};

static void subject_open(struct subject *s, const weir_limit *limits, size_t count)
{
    weir_options options = WEIR_OPTIONS_INIT;
    fake_clock_init(&s->clock, START_NS);
    options.clock = &s->clock.clock;
    s->w = open_or_fail(&options);
    s->t = weir_attach(s->w);
    const weir_policy policies[] = {{.name = "p", .limits = limits, .limit_count = count},
                                    {.name = "q", .limits = limits, .limit_count = count}};
    weir_error error;
    assert_int_equal(weir_set_policies(s->w, policies, 2, &error), 0);
    s->key = weir_make_key(s->w, weir_find_policy(s->w, "p"), "k", 1);
    s->other = weir_make_key(s->w, weir_find_policy(s->w, "q"), "k", 1);
}

static void subject_close(struct subject *s)
{
    weir_detach(s->t);
    weir_close(s->w);
}

static uint64_t left_of(const struct subject *s)
{
    weir_verdict v;
    (void) weir_peek(s->t, &s->key, 1, &v);
    return v.remaining;
}

/* One call: alone, of two keys, or of a burst. */
static bool ask_by(const struct subject *s, int call, weir_verdict *v)
{
    const weir_key keys[] = {s->other, s->key};
    uint64_t bit = 0;
    switch (call) {
    case 0:
        return weir_check(s->t, &s->key, 0, v);
    case 1:
        return weir_check_all(s->t, keys, (const uint64_t[]){1, 0}, 2, v);
    default:
        v->allowed = weir_check_burst(s->t, &s->key, (const uint64_t[]){0}, 1, &bit) == 1;
        return v->allowed;
    }
}

static void test_it_is_answered_by_slots(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        const weir_limit limits[] = {{.algorithm = algorithms[i], .limit = LIMIT, .period_ns = HOUR},
                                     {.algorithm = algorithms[i], .limit = 50 * LIMIT, .period_ns = 24 * HOUR}};
        for (int call = 0; call < 3; call++) {
            for (size_t count = 1; count <= 2; count++) {
                struct subject s;
                subject_open(&s, limits, count);
                for (int used = 0; used < 2; used++) { /* a key that was never charged, and one that was */
                    weir_charge(s.t, &s.key, used == 0 ? 0 : 7);
                    const uint64_t left = left_of(&s);
                    weir_verdict v;
                    for (int round = 0; round < ROUNDS / 10; round++) {
                        assert_true(ask_by(&s, call, &v) && v.allowed);
                    }
                    const uint64_t slow = slow_count(s.t);
                    for (int round = 0; round < ROUNDS; round++) {
                        assert_true(ask_by(&s, call, &v) && v.allowed);
                    }
                    assert_true(slow_count(s.t) - slow < ROUNDS / 10);
                    assert_int_equal(left_of(&s), left);
                }
                subject_close(&s);
            }
        }
    }
}

static void test_it_is_denied_where_no_unit_is_left_and_takes_nothing(void **state)
{
    (void) state;
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        const weir_limit limit = {.algorithm = algorithms[i], .limit = 10, .period_ns = HOUR};
        for (int call = 0; call < 3; call++) {
            struct subject s;
            subject_open(&s, &limit, 1);
            weir_verdict v = {.allowed = false};
            for (int used = 0; used < 10; used++) {
                for (int times = 0; times < 5; times++) {
                    assert_true(weir_check(s.t, &s.key, 0, &v));
                    assert_int_equal(v.remaining, 10 - used);
                }
                assert_true(weir_check(s.t, &s.key, 1, NULL));
            }
            for (int times = 0; times < ROUNDS; times++) {
                assert_false(ask_by(&s, call, &v));
            }
            weir_refund(s.t, &s.key, 1);
            assert_true(ask_by(&s, call, &v));
            subject_close(&s);
        }
    }
}

/* Keys that are only asked for, as by a flood of addresses, take no room from those that are used. */
static void test_keys_that_are_only_asked_for_take_no_room(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = HOUR};
    struct subject s;
    subject_open(&s, &limit, 1);
    assert_true(weir_check(s.t, &s.key, 1, NULL));
    weir_stats stats;
    weir_get_stats(s.w, &stats);
    const uint64_t keys = stats.key_count;
    for (uint64_t name = 0; name < 3000; name++) {
        const weir_key key = weir_make_key(s.w, weir_find_policy(s.w, "p"), &name, sizeof(name));
        weir_verdict v;
        uint64_t bit = 0;
        assert_true(weir_check(s.t, &key, 0, &v) && v.remaining == LIMIT);
        name++;
        const weir_key next = weir_make_key(s.w, weir_find_policy(s.w, "p"), &name, sizeof(name));
        assert_int_equal(weir_check_burst(s.t, &next, (const uint64_t[]){0}, 1, &bit), 1);
    }
    weir_get_stats(s.w, &stats);
    assert_int_equal(stats.key_count, keys);
    subject_close(&s);
}

/* A node that has used a key once and then only asks is told what the others use. */
static void test_a_node_that_asks_learns_what_others_use(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    nodes_start_with_new_key(&n, &policy, 1);
    assert_true(weir_check(n.node[0].t, &n.node[0].key, 1, NULL));
    pass(&n, 2 * TWO_INTERVALS);
    weir_charge(n.node[1].t, &n.node[1].key, 9);
    int intervals = 0;
    while (weir_check(n.node[0].t, &n.node[0].key, 0, NULL) && intervals < 200) {
        pass(&n, INTERVAL_MS);
        intervals++;
    }
    assert_true(intervals < 20);
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_answered_by_slots),
        cmocka_unit_test(test_it_is_denied_where_no_unit_is_left_and_takes_nothing),
        cmocka_unit_test(test_keys_that_are_only_asked_for_take_no_room),
        cmocka_unit_test(test_a_node_that_asks_learns_what_others_use),
    };
    return cmocka_run_group_tests_name("tests", tests, NULL, NULL);
}
