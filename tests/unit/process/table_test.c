/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of keys: a small one against a plain search, and one that is filled. There max_keys keys have room, and no
 * key loses units when it moves for another. (One key in some millions has no room: slots pin all the keys that could
 * move.)
 *
 * Guards: src/process/table.c, src/process/table.h, src/process/cell.c, src/process/cell.h, src/process/insert.c,
 * src/base/hash.c, src/base/hash_inl.h, src/base/pages.h, src/limiter/stats.c
 */
#include <errno.h>
#include <stdlib.h>

#include "process/table.h"
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

/* A small table, and by cell the hash that it has. */
struct model {
    struct table table;
    uint64_t *hashes;
    uint64_t keys;
};

static void model_open(struct model *m, size_t max_keys)
{
    assert_int_equal(table_open(&m->table, max_keys, false, NULL), 0);
    m->hashes = calloc(m->table.cell_count, sizeof(*m->hashes));
    assert_non_null(m->hashes);
    m->keys = 0;
}

static void model_close(struct model *m)
{
    free(m->hashes);
    table_close(&m->table, NULL);
}

/* The cell among `count` that has a hash (0: that is empty), or TABLE_NONE. */
static uint32_t model_among(const struct model *m, size_t first, size_t count, uint64_t hash)
{
    for (size_t at = first; at < first + count; at++) {
        if (m->hashes[at] == hash) {
            return (uint32_t) at;
        }
    }
    return TABLE_NONE;
}

/* A search ends at a pair that has an empty cell; in two full pairs it goes on to both sets. */
static uint32_t model_find(const struct model *m, uint64_t hash)
{
    const size_t pairs[2] = {table_pair(&m->table, hash), table_second_pair(&m->table, hash)};
    for (size_t i = 0; i < 2; i++) {
        const uint32_t at = model_among(m, pairs[i], PAIR_CELLS, hash);
        if (at != TABLE_NONE || model_among(m, pairs[i], PAIR_CELLS, 0) != TABLE_NONE) {
            return at;
        }
    }
    const uint32_t at = model_among(m, table_first_set(&m->table, hash) * SET_CELLS, SET_CELLS, hash);
    return at != TABLE_NONE ? at : model_among(m, table_other_set(&m->table, hash), SET_CELLS, hash);
}

/* Where a hash may live: in its pairs, and anywhere in its sets. */
static uint32_t some_place(const struct model *m, uint64_t hash, uint64_t *rng)
{
    const uint64_t which = random_below(rng, 4);
    const uint64_t in_pair = random_below(rng, PAIR_CELLS);
    const uint64_t in_set = random_below(rng, SET_CELLS);
    return (uint32_t) (which == 0   ? table_pair(&m->table, hash) + in_pair
                       : which == 1 ? table_second_pair(&m->table, hash) + in_pair
                       : which == 2 ? table_first_set(&m->table, hash) * SET_CELLS + in_set
                                    : table_other_set(&m->table, hash) + in_set);
}

static struct state random_state(uint64_t *rng)
{
    return (struct state){random_next(rng), random_next(rng) & STATE_B_MASK};
}

static void expect_state(const struct model *m, uint32_t at, struct state is, uint64_t generation)
{
    const struct dwcas_value value = dwcas_read(&m->table.cells[at].state);
    assert_int_equal(value.a, is.a);
    assert_int_equal(value.b, generation | is.b);
}

/* Gives a cell another hash, or none, and checks all that the table says of it. */
static void model_change(struct model *m, uint32_t at, uint64_t hash, uint64_t *rng)
{
    struct cell *cell = &m->table.cells[at];
    const struct state before = random_state(rng);
    const struct state after = hash != 0 ? random_state(rng) : (struct state){0, 0};
    const uint64_t generation = dwcas_read(&cell->state).b & ~STATE_B_MASK;
    const uint64_t next = (generation + GENERATION_ONE) & ~CELL_MARK;
    assert_true(cell_lock(cell));
    store_relaxed(&cell->state.a, before.a);
    store_relaxed(&cell->state.b, before.b | generation);
    if (m->hashes[at] == 0) {
        table_occupy(&m->table, at, hash, after);
        expect_state(m, at, after, generation);
    } else {
        const struct state was = hash != 0 ? table_replace(&m->table, at, hash, after) : table_vacate(&m->table, at);
        assert_int_equal(was.a, before.a);
        assert_int_equal(was.b, before.b);
        expect_state(m, at, after, next);
    }
    cell_unlock(cell);
    m->keys = m->keys + (hash != 0) - (m->hashes[at] != 0);
    m->hashes[at] = hash;
    assert_int_equal(load_relaxed(&cell->hash), hash);
    assert_int_equal(load_relaxed(&m->table.shared->key_count), m->keys);
}

/* Far keys, of which a search goes beyond the pairs, are counted by the first set and the class of the hash. */
static void expect_far_counts(const struct model *m)
{
    for (size_t set = 0; set < m->table.set_count; set++) {
        unsigned counts[FAR_CLASSES] = {0};
        for (size_t at = 0; at < m->table.cell_count; at++) {
            const uint64_t hash = m->hashes[at];
            const size_t pair = at - at % PAIR_CELLS;
            if (hash != 0 && table_first_set(&m->table, hash) == set && pair != table_pair(&m->table, hash) &&
                pair != table_second_pair(&m->table, hash)) {
                counts[(hash & UINT32_MAX) * FAR_CLASSES >> 32]++;
            }
        }
        for (unsigned class = 0; class < FAR_CLASSES; class ++) {
            const unsigned both = load_relaxed(&m->table.guards[set].far_counts[class / 2]);
            assert_int_equal(class % 2 == 0 ? both & 15 : both >> 4, counts[class]);
        }
    }
}

static void expect_place(const struct model *m, uint64_t hash)
{
    const struct table_place place = table_place(&m->table, hash);
    uint32_t at = TABLE_NONE;
    uint32_t empty = TABLE_NONE;
    const size_t pairs[2] = {table_pair(&m->table, hash), table_second_pair(&m->table, hash)};
    for (size_t i = 0; i < 2 && at == TABLE_NONE && empty == TABLE_NONE; i++) {
        at = model_among(m, pairs[i], PAIR_CELLS, hash);
        empty = at == TABLE_NONE ? model_among(m, pairs[i], PAIR_CELLS, 0) : TABLE_NONE;
    }
    assert_int_equal(place.at, at);
    assert_int_equal(place.empty, empty);
    const struct cell *guess = table_guess(table_pairs_of(&m->table, hash), hash);
    const bool in_pairs = model_among(m, pairs[0], PAIR_CELLS, hash) != TABLE_NONE ||
                          model_among(m, pairs[1], PAIR_CELLS, hash) != TABLE_NONE;
    assert_int_equal(load_relaxed(&guess->hash) == hash, in_pairs);
    const bool first_is_full = model_among(m, pairs[0], PAIR_CELLS, 0) == TABLE_NONE;
    assert_int_equal(table_last_pair(&m->table, hash), pairs[first_is_full]);
}

static void test_any_order_of_keys_that_come_and_go_is_found_as_a_plain_search_finds_it(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t round = 0; round < 20; round++) {
        struct model m;
        model_open(&m, 10 + 10 * round);
        for (unsigned i = 0; i < test_draws(3000); i++) {
            const uint64_t hash = random_next(&rng) | 1;
            const uint32_t at = some_place(&m, hash, &rng);
            assert_in_range(at, 0, m.table.cell_count - 1);
            model_change(&m, at, m.hashes[at] != 0 && draw_once_in(&rng, 4) ? 0 : hash, &rng);
            const uint32_t any = (uint32_t) random_below(&rng, m.table.cell_count);
            const uint64_t other = m.hashes[any] != 0 ? m.hashes[any] : hash;
            assert_int_equal(table_find(&m.table, other), model_find(&m, other));
            assert_int_equal(table_find(&m.table, other + 2), model_find(&m, other + 2));
            expect_place(&m, other);
            expect_place(&m, other + 2);
            const uint32_t in_first = model_among(&m, table_first_set(&m.table, other) * SET_CELLS, SET_CELLS, other);
            assert_int_equal(table_find_in_sets(&m.table, other),
                             in_first != TABLE_NONE
                                 ? in_first
                                 : model_among(&m, table_other_set(&m.table, other), SET_CELLS, other));
        }
        expect_far_counts(&m);
        model_close(&m);
    }
}

static void test_a_count_of_far_keys_that_was_full_once_stays_so(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    struct model m;
    model_open(&m, 10);
    assert_int_equal(m.table.set_count, 3);
    /* 16 far keys of one set and one class: the count has room for 15. */
    uint32_t cells[16];
    size_t count = 0;
    while (count < 16) {
        const uint64_t hash = random_next(&rng) | 1;
        const uint32_t at = (uint32_t) random_below(&rng, m.table.cell_count);
        const uint32_t pair = at & ~(uint32_t) 1;
        if (table_first_set(&m.table, hash) == 1 && (hash & UINT32_MAX) >> 30 == 0 && (hash & UINT32_MAX) < 700000000 &&
            m.hashes[at] == 0 && pair != table_pair(&m.table, hash) && pair != table_second_pair(&m.table, hash)) {
            model_change(&m, at, hash, &rng);
            cells[count++] = at;
            assert_int_equal(load_relaxed(&m.table.guards[1].far_counts[0]), count < 15 ? count : 15);
        }
    }
    for (size_t i = 0; i < 16; i++) {
        model_change(&m, cells[i], 0, &rng);
    }
    assert_int_equal(load_relaxed(&m.table.guards[1].far_counts[0]), 15);
    model_close(&m);
}

static void test_the_places_of_a_hash_are_apart_and_in_the_table(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t max_keys = 10; max_keys < 2000; max_keys += 37) {
        struct table table;
        assert_int_equal(table_open(&table, max_keys, false, NULL), 0);
        for (int i = 0; i < 300; i++) {
            const uint64_t hash = random_next(&rng);
            const size_t first = table_pair(&table, hash);
            const size_t second = table_second_pair(&table, hash);
            const size_t page = (size_t) PAGE_PAIRS * PAIR_CELLS;
            assert_int_equal(first / SET_CELLS, table_first_set(&table, hash));
            assert_int_equal(first % PAIR_CELLS, 0);
            assert_int_equal(second % PAIR_CELLS, 0);
            assert_int_not_equal(second, first);
            assert_int_equal(second / page, first / page);
            assert_in_range(second, 0, table.cell_count - PAIR_CELLS);
            assert_int_not_equal(table_other_set(&table, hash), table_first_set(&table, hash) * SET_CELLS);
            assert_in_range(table_other_set(&table, hash), 0, table.cell_count - SET_CELLS);
            assert_int_equal(table_other_set(&table, hash) % SET_CELLS, 0);
        }
        table_close(&table, NULL);
    }
}

/* A quarter more cells than keys, in a fleet a fifth, and two sets; the parts lie one behind the other. */
static void test_a_table_has_the_cells_and_the_memory_that_it_says(void **state)
{
    (void) state;
    static const struct {
        size_t max_keys, cells, fleet_cells;
    } rows[] = {{1, 16, 16}, {10, 24, 24}, {1000, 1264, 1216}, {1000000, 1250016, 1200016}};
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        const bool fleet = i % 2 != 0;
        const size_t cells = fleet ? rows[i / 2].fleet_cells : rows[i / 2].cells;
        struct table table;
        assert_int_equal(table_cells(rows[i / 2].max_keys, fleet), cells);
        assert_int_equal(table_open(&table, rows[i / 2].max_keys, fleet, NULL), 0);
        assert_int_equal(table.cell_count, cells);
        assert_int_equal(table.set_count, cells / SET_CELLS);
        assert_int_equal(table.max_keys, rows[i / 2].max_keys);
        assert_int_equal(table.memory_size, table_size(rows[i / 2].max_keys, fleet));
        const size_t bits = fleet ? bitmap_size(cells) * sizeof(uint64_t) : 0;
        const struct {
            const void *at;
            size_t size;
        } parts[] = {{table.cells, cells * sizeof(struct cell)},
                     {table.metas, cells * sizeof(struct cell_meta)},
                     {table.guards, table.set_count * sizeof(struct set_guard)},
                     {table.shared, sizeof(struct table_shared)},
                     {(const void *) table.dirty.words, bits},
                     {(const void *) table.urgent.words, bits},
                     {(const void *) table.deferred.words, bits}};
        const unsigned char *end = table.memory;
        for (size_t part = 0; part < sizeof(parts) / sizeof(parts[0]) && parts[part].size != 0; part++) {
            assert_ptr_equal(parts[part].at, end);
            end += (parts[part].size + 63) / 64 * 64;
        }
        assert_int_equal((size_t) (end - (unsigned char *) table.memory), table.memory_size);
        table_close(&table, NULL);
    }
    struct table table;
    assert_int_equal(table_open(&table, SIZE_MAX / 64, false, NULL), -ENOMEM);
    table_close(&table, NULL);
}

static void test_a_set_has_one_lock(void **state)
{
    (void) state;
    struct model m;
    model_open(&m, 10);
    assert_true(table_trylock(&m.table, 1));
    assert_false(table_trylock(&m.table, 1));
    assert_false(table_lock_fast(&m.table, 1));
    assert_true(table_trylock(&m.table, 2));
    table_unlock(&m.table, 1);
    assert_false(table_trylock(&m.table, 2));
    assert_true(table_lock_fast(&m.table, 1));
    assert_false(table_trylock(&m.table, 1));
    model_close(&m);
}

static void test_a_cell_is_locked_while_nobody_uses_it_and_changes_its_version_each_time(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    struct model m;
    model_open(&m, 10);
    struct cell *cell = &m.table.cells[3];
    uint64_t version = 0;
    assert_true(table_lock_empty(&m.table, 3));
    assert_false(table_lock_empty(&m.table, 3));
    assert_int_equal(load_relaxed(&cell->held), ++version * HELD_VERSION | HELD_LOCKED);
    assert_false(cell_lock(cell));
    assert_false(cell_pin(cell, 0)); /* a cell that is locked is nobody's */
    version += 2;
    assert_int_equal(load_relaxed(&cell->held), version * HELD_VERSION | HELD_LOCKED);
    cell_unlock(cell);
    assert_int_equal(load_relaxed(&cell->held), ++version * HELD_VERSION);
    model_change(&m, 3, 99, &rng);
    version += 2;
    assert_false(table_lock_empty(&m.table, 3)); /* it has a key */
    version += 2;
    assert_int_equal(load_relaxed(&cell->held), version * HELD_VERSION);
    assert_false(cell_pin(cell, 98));
    version += 2;
    assert_int_equal(load_relaxed(&cell->held), version * HELD_VERSION);
    assert_true(cell_pin(cell, 99));
    assert_true(cell_pin(cell, 99));
    version += 2;
    assert_int_equal(load_relaxed(&cell->held), version * HELD_VERSION + 2 * HELD_PIN);
    assert_false(cell_lock(cell));
    cell_unpin(cell);
    assert_false(cell_lock(cell));
    cell_unpin(cell);
    version += 2;
    assert_int_equal(cell_hold(cell, 5), version * HELD_VERSION);
    assert_false(cell_lock(cell)); /* units may still pass */
    assert_int_equal(cell_hold(cell, (uint64_t) -5), (version + 1) * HELD_VERSION + 5);
    assert_true(cell_lock(cell));
    cell_unlock(cell);
    model_close(&m);
}

static void test_what_a_cell_says_of_its_key_is_written_recorded_and_copied(void **state)
{
    (void) state;
    struct cell_meta meta = {.events = EVENT_DENIED};
    struct cell_meta copy = {.limit_tag = 0};
    static const uint8_t flags[] = {0, CELL_HISTORY, CELL_BUCKET};
    static const enum rule_kind kinds[] = {RULE_WINDOW, RULE_HISTORY, RULE_BUCKET};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(cell_kind_flag(kinds[i]), flags[i]);
        cell_meta_write(&meta, 0x12345678, 0x9abc, (uint8_t) (CELL_SHARED | flags[i]));
        assert_int_equal(cell_meta_kind(&meta), kinds[i]);
        assert_int_equal(load_relaxed(&meta.limit_tag), 0x12345678);
        assert_int_equal(load_relaxed(&meta.group), 0x9abc);
        assert_true(cell_meta_is(&meta, CELL_SHARED));
        assert_int_equal(load_relaxed(&meta.events), 0);
        cell_meta_record(&meta, EVENT_REFUSED);
        cell_meta_record(&meta, EVENT_REFUNDED);
        cell_meta_record(&meta, EVENT_REFUSED);
        assert_true(cell_meta_had(&meta, EVENT_REFUSED) && cell_meta_had(&meta, EVENT_REFUNDED));
        assert_false(cell_meta_had(&meta, EVENT_DENIED));
        cell_meta_copy(&copy, &meta);
        assert_memory_equal(&copy, &meta, sizeof(copy));
    }
    assert_int_equal(cell_hash_salted(5, 3), 6);
    assert_int_equal(cell_hash_salted(5, 5), 1); /* 0 is no key's */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order_of_keys_that_come_and_go_is_found_as_a_plain_search_finds_it),
        cmocka_unit_test(test_a_count_of_far_keys_that_was_full_once_stays_so),
        cmocka_unit_test(test_the_places_of_a_hash_are_apart_and_in_the_table),
        cmocka_unit_test(test_a_table_has_the_cells_and_the_memory_that_it_says),
        cmocka_unit_test(test_a_set_has_one_lock),
        cmocka_unit_test(test_a_cell_is_locked_while_nobody_uses_it_and_changes_its_version_each_time),
        cmocka_unit_test(test_what_a_cell_says_of_its_key_is_written_recorded_and_copied),
        cmocka_unit_test(test_the_count_of_keys_is_never_below_none),
        cmocka_unit_test(test_as_many_keys_as_asked_for_have_room),
        cmocka_unit_test(test_most_keys_are_in_their_lines),
        cmocka_unit_test(test_a_denied_key_that_moves_stays_denied_and_listed),
        cmocka_unit_test(test_what_keys_that_move_have_told_counts_once),
    };
    return cmocka_run_group_tests_name("unit/process/table", tests, NULL, NULL);
}
