/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table that is filled: max_keys keys have room, and no key loses units when it moves for another. (One key in some
 * millions has no room: slots pin all the keys that could move.)
 *
 * Guards: src/process/table.c, src/process/cell.c, src/process/insert.c, src/base/hash.c, src/base/hash_inl.h,
 * src/base/pages.h, src/limiter/stats.c
 */
#include "support/nodes.h"

#define KEYS    20000
#define UNLUCKY 3

static weir_key numbered(const weir *w, weir_policy_id id, const uint32_t *number)
{
    return weir_make_key(w, id, number, sizeof(*number));
}

/* A table for KEYS keys, under a limit per hour. */
static weir *open_with_limit(struct fake_clock *clock, uint64_t units)
{
    fake_clock_init(clock, START_NS);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = units, .period_ns = 3600 * SECOND};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock->clock;
    options.max_keys = KEYS;
    options.no_thread = true;
    weir *w = NULL;
    assert_int_equal(weir_open(&options, &w, NULL), 0);
    assert_int_equal(weir_set_policies(w, &policy, 1, NULL), 0);
    return w;
}

/* Checks as many keys as there is room for, each once, or (`more`) up to ten times. */
static weir_thread *fill(weir *w, weir_policy_id id, bool more)
{
    weir_thread *t = weir_attach(w);
    for (uint32_t i = 0; i < KEYS; i++) {
        const weir_key key = numbered(w, id, &i);
        for (uint32_t times = 0; times <= (more ? i % 10 : 0); times++) {
            assert_true(weir_check(t, &key, 1, NULL));
        }
    }
    return t;
}

static void test_as_many_keys_as_asked_for_have_room(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_with_limit(&clock, 10);
    const weir_policy_id id = weir_find_policy(w, "p");
    weir_thread *t = fill(w, id, true);
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_in_range(stats.evicted_unused_count + stats.evicted_used_count, 0, UNLUCKY);
    assert_in_range(stats.key_count, KEYS - UNLUCKY, KEYS);
    uint64_t wrong = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        const weir_key key = numbered(w, id, &i);
        weir_verdict verdict;
        (void) weir_peek(t, &key, 1, &verdict);
        wrong += verdict.remaining != 9 - i % 10;
    }
    weir_get_stats(w, &stats);
    assert_in_range(wrong, 0, stats.evicted_unused_count + stats.evicted_used_count);
    assert_in_range(wrong, 0, 2 * UNLUCKY); /* a key that comes again takes the place of another */
    assert_in_range(stats.memory_size, 0, UINT64_C(200) << 20);
    weir_close(w);
}

/* What finding a key costs: see table.h. */
static void test_most_keys_are_in_their_lines(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_with_limit(&clock, 1);
    (void) fill(w, weir_find_policy(w, "p"), false);
    const struct table *table = &w->limiter.process.table;
    uint64_t first = 0;
    uint64_t second = 0;
    for (uint32_t at = 0; at < table->cell_count; at++) {
        const uint64_t hash = load_acquire(&table->cells[at].hash);
        if (hash != 0) {
            first += at / PAIR_CELLS == table_pair(table, hash) / PAIR_CELLS;
            second += at / PAIR_CELLS == table_second_pair(table, hash) / PAIR_CELLS;
            assert_int_equal(table_find(table, hash), at); /* I6 */
        }
    }
    assert_in_range(first, KEYS * 70 / 100, KEYS * 74 / 100);
    assert_in_range(first + second, KEYS * 96 / 100, KEYS);
    weir_close(w);
}

static void test_a_denied_key_that_moves_stays_denied_and_listed(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_with_limit(&clock, 1);
    weir_thread *t = weir_attach(w);
    const weir_policy_id id = weir_find_policy(w, "p");
    for (uint32_t i = 0; i < KEYS; i++) {
        const weir_key key = numbered(w, id, &i);
        assert_true(weir_check(t, &key, 1, NULL));
        assert_false(weir_check(t, &key, 1, NULL));
    }
    const struct table *table = &w->limiter.process.table;
    for (size_t at = 0; at < table->cell_count; at++) {
        if (load_relaxed(&table->cells[at].hash) != 0) {
            assert_int_equal(load_relaxed(&table->metas[at].events), EVENT_DENIED | EVENT_REFUSED);
        }
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        const weir_key key = numbered(w, id, &i);
        (void) weir_check(t, &key, 1, NULL);
    }
    for (int i = 0; i < 100; i++) {
        fake_clock_advance(&clock, 50 * MILLISECOND);
        (void) weir_poll(w);
    }
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_in_range(stats.evicted_used_count, 0, 2 * UNLUCKY);
    assert_in_range(stats.denied_units, 2 * KEYS - 4 * UNLUCKY, 2 * KEYS);
    assert_in_range(stats.evicted_denied_units, 0, 4 * UNLUCKY);
    weir_close(w);
}

/* Each node's table is filled while its rounds are under way. */
static void test_what_keys_that_move_have_told_counts_once(void **state)
{
    (void) state;
    enum { FEW = 1000 };
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = 3600 * SECOND};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    struct nodes n;
    nodes_start(&n, &policy, 1);
    uint64_t used = 0;
    const weir_policy_id id = weir_find_policy(n.node[0].w, "p");
    for (uint32_t i = 0; i < FEW - 2; i++) {
        for (int m = 0; m < NODES; m++) {
            const weir_key key = numbered(n.node[m].w, id, &i);
            used += weir_check(n.node[m].t, &key, 1 + i % 3, NULL) ? 1 + i % 3 : 0;
        }
        if (i % 16 == 0) {
            pass(&n, STEP_MS);
        }
    }
    for (int ms = 0; ms < 2 * SCAN_MS && loopback_fleet_sum(n.fleet, ":p:") != used; ms += RESYNC_MS) {
        pass(&n, RESYNC_MS);
    }
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), used); /* an evicted key was reported before */
    for (int m = 0; m < NODES; m++) {
        weir_stats stats;
        weir_get_stats(n.node[m].w, &stats);
        assert_in_range(stats.evicted_unused_count + stats.evicted_used_count, 0, UNLUCKY);
    }
    nodes_stop(&n);
}

static void test_the_count_of_keys_is_never_below_none(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    weir_stats stats;
    /* A key that a burst has added, and not yet counted, is evicted. */
    table_count_keys(&w->limiter.process.table, (uint64_t) -1);
    weir_get_stats(w, &stats);
    assert_int_equal(stats.key_count, 0);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_count_of_keys_is_never_below_none),
        cmocka_unit_test(test_as_many_keys_as_asked_for_have_room),
        cmocka_unit_test(test_most_keys_are_in_their_lines),
        cmocka_unit_test(test_a_denied_key_that_moves_stays_denied_and_listed),
        cmocka_unit_test(test_what_keys_that_move_have_told_counts_once),
    };
    return cmocka_run_group_tests_name("unit/process/table", tests, NULL, NULL);
}
