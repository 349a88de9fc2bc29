/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of the sliding logs: how much of it a log takes, when a log gets none, and what is kept of a log that
 * goes.
 *
 * Guards: src/process/history_store.c
 */
#include "algorithm/history.h"
#include "base/memory/segment.h"
#include "base/pages.h"
#include "process/evict.h"
#include "support/bare_process.h"

#define LIMIT  100
#define NOW_NS BARE_NOW_NS
#define AT     5
#define HASH   77

struct subject {
    struct process process;
    struct policy policy;
    struct rule rule;
};

/* The cell of a key, which has no log yet. */
static void subject_open(struct subject *s, bool fleet)
{
    bare_process_open(&s->process, 1000, fleet);
    bare_policy_init(&s->policy, WEIR_SLIDING_LOG, LIMIT);
    s->rule = s->policy.limits[0].rule;
    bare_occupy(&s->process, &s->policy, AT, HASH, (struct state){0, 0});
}

static void subject_close(struct subject *s)
{
    process_close(&s->process);
}

static bool charge(struct subject *s, uint32_t at, uint64_t now_ns, uint64_t units)
{
    history_store_lock(&s->process, at);
    const bool counted = history_store_charge(&s->process, at, &s->rule, now_ns, units);
    history_store_unlock(&s->process, at);
    return counted;
}

static void expect_state(const struct subject *s, uint32_t at, uint64_t until_ns, uint64_t units)
{
    const struct state is = cell_state(dwcas_read(&s->process.table.cells[at].state));
    assert_int_equal(history_state_until(is), until_ns);
    assert_int_equal(history_state_count(is), units);
}

static size_t bytes_used(const struct subject *s)
{
    return s->process.histories.shared->blocks.used;
}

/* The bytes of the block for so many: 256 or more, a power of two. */
static size_t block_of(size_t size)
{
    size_t block = 256;
    while (block < size) {
        block *= 2;
    }
    return block;
}

static void test_a_log_has_room_for_eight_units_and_then_twice_as_many_up_to_its_limit(void **state)
{
    (void) state;
    static const struct {
        uint64_t history_max, units;
        uint32_t capacity;
        uint64_t kept; /* the units in it */
    } rows[] = {{0, 1, 8, 1},         {0, 8, 8, 8},
                {0, 9, 16, 9},        {0, 64, 64, 64},
                {0, 65, 128, 65},     {0, 100, 128, 100},
                {0, 1000, 128, 128},  {300, 1000, 512, 512},
                {200, 129, 256, 129}, {0, WEIR_MAX_UNITS, 128, 128}};
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(rows[0]); i++) {
        const bool fleet = i % 2 != 0;
        struct subject s;
        subject_open(&s, fleet);
        s.rule.history_max = rows[i / 2].history_max;
        assert_null(history_store_get(&s.process, AT));
        assert_int_equal(bytes_used(&s), 0);
        assert_true(charge(&s, AT, NOW_NS, rows[i / 2].units));
        const struct history *history = history_store_get(&s.process, AT);
        assert_int_equal(history->capacity, rows[i / 2].capacity);
        assert_int_equal(history->end - history->first, rows[i / 2].kept);
        const uint32_t groups = fleet ? (rows[i / 2].capacity < 64 ? rows[i / 2].capacity : 64) : 0;
        assert_int_equal(history->group_capacity, groups);
        expect_state(&s, AT, NOW_NS + 10 * SECOND, rows[i / 2].units);
        assert_int_equal(bytes_used(&s), block_of(64 + 16 * groups + 8 * rows[i / 2].capacity));
        subject_close(&s);
    }
}

static void test_a_log_that_grows_keeps_its_units_and_gives_its_block_back(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, true);
    uint32_t capacity = 8;
    for (uint64_t n = 0; n < 100; n++) {
        assert_true(charge(&s, AT, NOW_NS + n * MILLISECOND, 1));
        struct history *history = history_store_get(&s.process, AT);
        capacity = n == capacity ? 2 * capacity : capacity;
        assert_int_equal(history->capacity, capacity);
        assert_int_equal(bytes_used(&s), block_of(64 + 16 * (capacity < 64 ? capacity : 64) + 8 * (size_t) capacity));
        for (uint64_t i = 0; i <= n; i++) {
            assert_int_equal(*history_time(history, i), NOW_NS + i * MILLISECOND);
        }
        expect_state(&s, AT, NOW_NS + n * MILLISECOND + 10 * SECOND, n + 1);
    }
    /* Units that have left make room. */
    assert_true(charge(&s, AT, NOW_NS + 10 * SECOND + 89 * MILLISECOND, 50));
    expect_state(&s, AT, NOW_NS + 20 * SECOND + 89 * MILLISECOND, 10 + 50);
    assert_int_equal(history_store_get(&s.process, AT)->capacity, 128);
    subject_close(&s);
}

static void test_a_look_drops_what_has_left_the_window_of_the_key_that_is_there(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, false);
    history_store_lock(&s.process, AT);
    assert_true(history_store_refresh(&s.process, AT, HASH, &s.rule, NOW_NS)); /* it has no log */
    history_store_publish(&s.process, AT, &s.rule);
    expect_state(&s, AT, 0, 0);
    history_store_unlock(&s.process, AT);
    assert_true(charge(&s, AT, NOW_NS, 3));
    assert_true(charge(&s, AT, NOW_NS + SECOND, 4));
    history_store_lock(&s.process, AT);
    assert_false(history_store_refresh(&s.process, AT, HASH + 1, &s.rule, NOW_NS + 10 * SECOND));
    expect_state(&s, AT, NOW_NS + 11 * SECOND, 7);
    assert_true(history_store_refresh(&s.process, AT, HASH, &s.rule, NOW_NS + 10 * SECOND - 1));
    expect_state(&s, AT, NOW_NS + 11 * SECOND, 7);
    assert_true(history_store_refresh(&s.process, AT, HASH, &s.rule, NOW_NS + 10 * SECOND));
    expect_state(&s, AT, NOW_NS + 11 * SECOND, 4);
    bare_set_state(&s.process, AT, (struct state){1, 2});
    history_store_publish(&s.process, AT, &s.rule);
    expect_state(&s, AT, NOW_NS + 11 * SECOND, 4);
    history_store_unlock(&s.process, AT);
    subject_close(&s);
}

static void test_a_state_without_a_log_gets_one_whose_units_leave_together(void **state)
{
    (void) state;
    for (int fleet = 0; fleet < 2; fleet++) {
        struct subject s;
        subject_open(&s, fleet != 0);
        bare_set_state(&s.process, AT, (struct state){NOW_NS + 4 * SECOND, 30});
        history_store_resume(&s.process, AT, &s.rule, NOW_NS + 4 * SECOND); /* they have left */
        assert_null(history_store_get(&s.process, AT));
        struct policy window;
        bare_policy_init(&window, WEIR_FIXED_WINDOW, LIMIT);
        history_store_resume(&s.process, AT, &window.limits[0].rule, NOW_NS);
        assert_null(history_store_get(&s.process, AT));
        history_store_resume(&s.process, AT, &s.rule, NOW_NS);
        const struct history *history = history_store_get(&s.process, AT);
        assert_int_equal(history->capacity, 8);
        assert_int_equal(history->group_capacity, fleet != 0 ? 8 : 1);
        assert_int_equal(history_units(history), 30);
        assert_int_equal(load_relaxed(&s.process.histories.places[AT].lock), 0);
        assert_true(charge(&s, AT, NOW_NS, 2));
        expect_state(&s, AT, NOW_NS + 10 * SECOND, 32);
        assert_true(charge(&s, AT, NOW_NS, 60)); /* a greater block has them too */
        expect_state(&s, AT, NOW_NS + 10 * SECOND, 92);
        history_store_lock(&s.process, AT);
        assert_true(history_store_refresh(&s.process, AT, HASH, &s.rule, NOW_NS + 4 * SECOND - 1));
        expect_state(&s, AT, NOW_NS + 10 * SECOND, 92);
        assert_true(history_store_refresh(&s.process, AT, HASH, &s.rule, NOW_NS + 4 * SECOND));
        expect_state(&s, AT, NOW_NS + 10 * SECOND, 62);
        history_store_unlock(&s.process, AT);
        subject_close(&s);
    }
}

/* An evicted log's report has its latest 16 units of those that are not reported. */
static void test_an_evicted_log_tells_its_latest_units_and_how_many_are_lost(void **state)
{
    (void) state;
    static const struct {
        uint64_t units, counts; /* pushed, and reported of them */
        uint32_t renumbered;
        uint64_t told, first, lost;
    } rows[] = {{0, 0, 0, 0, 0, 0},    {5, 0, 0, 5, 0, 0},       {5, 3, 0, 2, 3, 0},      {5, 5, 0, 0, 5, 0},
                {16, 0, 0, 16, 0, 0},  {17, 0, 0, 16, 1, 1},     {40, 10, 0, 16, 24, 14}, {40, 25, 3, 15, 22, 0},
                {40, 50, 0, 0, 40, 0}, {300, 0, 0, 16, 284, 112} /* 128 are kept */};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct subject s;
        subject_open(&s, false);
        for (uint64_t n = 0; n < rows[i].units; n++) {
            assert_true(charge(&s, AT, NOW_NS + n * MILLISECOND, 1));
        }
        struct history *history = history_store_get(&s.process, AT);
        if (history != NULL) {
            history->counts = rows[i].counts;
            history->renumbered = rows[i].renumbered;
        }
        struct evicted_report report = {.time_count = 99};
        assert_int_equal(history_store_evict(&s.process, AT, &report), rows[i].lost);
        assert_int_equal(report.time_count, rows[i].told);
        for (uint64_t n = 0; n < rows[i].told; n++) {
            assert_int_equal(report.times[n], NOW_NS + (rows[i].units - rows[i].told + n) * MILLISECOND);
        }
        if (history != NULL) {
            assert_int_equal(report.first, rows[i].first);
        }
        assert_null(history_store_get(&s.process, AT));
        assert_int_equal(bytes_used(&s), 0);
        assert_int_equal(load_relaxed(&s.process.histories.places[AT].lock), 0);
        subject_close(&s);
    }
}

/* One region of 1 MiB, with room for 512 logs of this limit. */
static void fill_memory(struct subject *s, uint64_t now_ns)
{
    subject_open(s, false);
    uint32_t logs = 0;
    for (uint32_t at = AT; s->process.histories.shared->blocks.used < 1048576; at++, logs++) {
        if (at != AT) {
            bare_occupy(&s->process, &s->policy, at, HASH + at, (struct state){0, 0});
        }
        assert_true(charge(s, at, now_ns, 100));
    }
    assert_int_equal(logs, 512);
    bare_occupy(&s->process, &s->policy, 1, HASH + 1, (struct state){0, 0});
}

static void test_without_memory_a_log_gets_the_block_of_one_whose_units_have_all_left(void **state)
{
    (void) state;
    enum { ALL_IN_USE, ONE_EMPTY, ONE_EMPTY_HELD, ONE_EMPTY_LOCKED, ONE_EMPTY_OF_NO_LOG, OTHERS_BLOCK, OWN, CASES };
    for (int which = 0; which < CASES; which++) {
        struct subject s;
        fill_memory(&s, NOW_NS);
        const uint32_t empty = AT + 300;
        bare_set_state(&s.process, empty, (struct state){NOW_NS + (which == ALL_IN_USE ? 1 : 0), 100});
        struct history_place *place = &s.process.histories.places[empty];
        struct cell *cell = &s.process.table.cells[empty];
        if (which == ONE_EMPTY_HELD) {
            (void) cell_hold(cell, 3);
        } else if (which == ONE_EMPTY_LOCKED) {
            store_relaxed(&place->lock, 9);
        } else if (which == ONE_EMPTY_OF_NO_LOG) {
            store_relaxed(&s.process.table.metas[empty].flags, 0);
        } else if (which == OTHERS_BLOCK) {
            /* A moment ago the block of the next log was this one's. */
            uint32_t *metas = s.process.histories.metas;
            metas[s.process.histories.places[empty + 1].block - 1] = empty;
            metas[place->block - 1] = empty + 1;
        } else if (which == ONE_EMPTY) {
            (void) cell_hold(cell, HELD_PIN); /* a pin is no promise */
        }
        if (which == OWN) {
            /* A log takes no block from itself: its newest units replace the oldest. */
            s.rule.limit = 200;
            assert_true(charge(&s, AT, NOW_NS, 50));
            assert_null(history_store_get(&s.process, empty));
            assert_int_equal(history_store_get(&s.process, AT)->capacity, 128);
            expect_state(&s, AT, NOW_NS + 10 * SECOND, 150);
        } else {
            assert_int_equal(charge(&s, 1, NOW_NS, 100), which == ONE_EMPTY);
            assert_int_equal(history_store_get(&s.process, 1) != NULL, which == ONE_EMPTY);
            assert_int_equal(history_store_get(&s.process, empty) == NULL, which == ONE_EMPTY);
            assert_int_equal(load_relaxed(&place->lock), which == ONE_EMPTY_LOCKED ? 9 : 0);
        }
        /* The logs that are there have room, and a smaller request fits where a block was split. */
        assert_true(charge(&s, AT + 1, NOW_NS + 1, 28));
        subject_close(&s);
    }
}

/* Freed by the first of many logs, in turn: each search begins where the last one ended. */
static void test_empty_logs_are_reclaimed_in_turn(void **state)
{
    (void) state;
    struct subject s;
    fill_memory(&s, NOW_NS);
    const uint64_t later_ns = NOW_NS + 10 * SECOND;
    for (uint32_t at = AT + 512; at < AT + 512 + 100; at++) {
        bare_occupy(&s.process, &s.policy, at, HASH + at, (struct state){0, 0});
        assert_true(charge(&s, at, later_ns, 100));
    }
    uint32_t freed = 0;
    for (uint32_t at = AT; at < AT + 512; at++) {
        freed += history_store_get(&s.process, at) == NULL;
        expect_state(&s, at, later_ns, 100); /* the state still says when its units left */
    }
    assert_int_equal(freed, 100);
    assert_int_equal(bytes_used(&s), 1048576);
    /* What is larger than any block is not to be had. */
    s.rule.limit = WEIR_MAX_LOG_UNITS;
    assert_false(charge(&s, 1, later_ns, WEIR_MAX_LOG_UNITS));
    subject_close(&s);
}

/* What is had present, in a segment. The linker's --wrap leads the call here (tests/meson.build). */
static struct {
    const void *at[3];
    size_t size[3];
    unsigned count;
    unsigned fails_at; /* of the calls for a piece the one that finds no room; 0: none does */
} commits;

int __wrap_segment_commit(struct segment *segment, const void *at, size_t size);

int __wrap_segment_commit(struct segment *segment, const void *at, size_t size)
{
    assert_non_null(segment);
    commits.at[commits.count % 3] = at;
    commits.size[commits.count % 3] = size;
    commits.count++;
    return commits.fails_at != 0 && commits.count % commits.fails_at == 0 ? -28 : 0;
}

/* A piece of 1 MiB has room for 512 logs of this limit. */
static void test_logs_of_a_segment_have_pieces_of_their_memory_present_as_they_need_them(void **state)
{
    (void) state;
    enum { PIECES = 2, LOGS = 512, PIECE = 1048576 };
    for (unsigned fails_at = 0; fails_at <= 3; fails_at++) {
        struct subject s;
        memset(&s, 0, sizeof(s));
        const struct process_options options = {.max_keys = 1000, .max_log_units = 200000, .origin_ns = BARE_ORIGIN_NS};
        assert_int_equal(process_open(&s.process, &options), 0);
        bare_policy_init(&s.policy, WEIR_SLIDING_LOG, LIMIT);
        s.rule = s.policy.limits[0].rule;
        struct buddy *blocks = &s.process.histories.blocks;
        assert_int_equal(blocks->size, PIECES * PIECE);
        blocks->shared->present = 0;
        struct segment segment = {.at = NULL};
        struct pages_owner owner = {.segment = &segment};
        s.process.pages = &owner;
        memset(&commits, 0, sizeof(commits));
        for (uint32_t at = 0; at <= PIECES * LOGS; at++) {
            bare_occupy(&s.process, &s.policy, at, HASH + at, (struct state){0, 0});
            const size_t piece = at / LOGS;
            commits.count = 0;
            if (at % LOGS == 0 && piece < PIECES && fails_at != 0) {
                commits.fails_at = fails_at;
                assert_false(charge(&s, at, NOW_NS, 100));
                assert_int_equal(commits.count % fails_at, 0); /* again for each log that might have been empty */
                assert_true(commits.count != 0);
                assert_int_equal(blocks->shared->present, piece * PIECE);
                commits.count = commits.fails_at = 0;
            }
            assert_int_equal(charge(&s, at, NOW_NS, 100), piece < PIECES);
            assert_int_equal(commits.count, at % LOGS == 0 && piece < PIECES ? 3 : 0);
            assert_int_equal(blocks->shared->present, (piece < PIECES ? piece + 1 : PIECES) * PIECE);
            if (commits.count != 0) {
                const size_t first = piece * PIECE / BUDDY_SMALLEST;
                assert_ptr_equal(commits.at[0], blocks->region + piece * PIECE);
                assert_int_equal(commits.size[0], PIECE);
                assert_ptr_equal(commits.at[1], &s.process.histories.metas[first]);
                assert_int_equal(commits.size[1], PIECE / BUDDY_SMALLEST * sizeof(uint32_t));
                assert_ptr_equal(commits.at[2], &blocks->orders[first]);
                assert_int_equal(commits.size[2], PIECE / BUDDY_SMALLEST);
            }
        }
        s.process.pages = NULL;
        subject_close(&s);
    }
}

static void test_the_end_of_a_log_is_told_to_checks_when_it_is_unlocked(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, true);
    struct sync_full *sync = &s.process.syncs.pool[AT];
    assert_true(charge(&s, AT, NOW_NS, 3)); /* without a full state nobody is told */
    assert_int_equal(load_relaxed(&sync->history_end), 0);
    store_relaxed(&s.process.syncs.compacts[AT].sync, COMPACT_HAS_FULL | AT);
    history_store_lock(&s.process, AT);
    assert_true(history_store_charge(&s.process, AT, &s.rule, NOW_NS, 4));
    assert_int_equal(load_relaxed(&sync->history_end), 0);
    history_store_unlock(&s.process, AT);
    assert_int_equal(load_relaxed(&sync->history_end), 7);
    subject_close(&s);
}

/* While another process is alone with the table no call waits for the blocks. */
static void test_during_a_halt_no_block_is_taken_and_one_that_is_given_back_is_counted_anew(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, false);
    assert_true(charge(&s, AT, NOW_NS, 3));
    store_relaxed(&s.process.shared->halted_by, 2);
    bare_occupy(&s.process, &s.policy, AT + 1, HASH + 1, (struct state){0, 0});
    assert_false(charge(&s, AT + 1, NOW_NS, 3));
    assert_int_equal(load_relaxed(&s.process.histories.shared->lost), 0);
    struct evicted_report report;
    (void) history_store_evict(&s.process, AT, &report);
    assert_null(history_store_get(&s.process, AT));
    assert_int_equal(load_relaxed(&s.process.histories.shared->lost), 1);
    assert_int_equal(bytes_used(&s), 256);
    store_relaxed(&s.process.shared->halted_by, 0);
    const bool dead[2] = {false, false};
    history_store_mend_blocks(&s.process, dead);
    assert_int_equal(load_relaxed(&s.process.histories.shared->lost), 0);
    assert_int_equal(bytes_used(&s), 0);
    assert_true(charge(&s, AT + 1, NOW_NS, 3));
    subject_close(&s);
}

static void test_a_log_that_a_dead_process_was_changing_is_ended_and_unlocked(void **state)
{
    (void) state;
    for (int which = 0; which < 3; which++) { /* a dead process's lock, a living one's, and none */
        struct subject s;
        subject_open(&s, false);
        assert_true(charge(&s, AT, NOW_NS, 100));
        struct history *history = history_store_get(&s.process, AT);
        history->end += 100; /* and the first did not move */
        const bool dead[3] = {false, which == 0, false};
        struct history_place *place = &s.process.histories.places[AT];
        store_relaxed(&place->lock, which < 2 ? 2 : 0);
        history_store_mend_log(&s.process, AT, dead);
        assert_int_equal(load_relaxed(&place->lock), which == 1 ? 2 : 0);
        assert_int_equal(history->end - history->first, which == 0 ? 128 : 200);
        assert_int_equal(load_relaxed(&s.process.histories.shared->lost), which == 0);
        /* Without a log it is unlocked, too. */
        store_relaxed(&s.process.histories.places[AT + 1].lock, which < 2 ? 2 : 0);
        history_store_mend_log(&s.process, AT + 1, dead);
        assert_int_equal(load_relaxed(&s.process.histories.places[AT + 1].lock), which == 1 ? 2 : 0);
        subject_close(&s);
    }
}

static void test_after_a_repair_the_blocks_in_use_are_those_that_keys_have(void **state)
{
    (void) state;
    static const struct {
        uint32_t lock; /* of the blocks: of the process of this number */
        bool lost, mends;
    } rows[] = {{0, false, false}, {1, false, false}, {0, true, true}, {2, false, true}, {2, true, true}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct subject s;
        subject_open(&s, false);
        for (uint32_t at = AT + 1; at < AT + 10; at++) {
            bare_occupy(&s.process, &s.policy, at, HASH + at, (struct state){0, 0});
            assert_true(charge(&s, at, NOW_NS, at % 3 == 0 ? 100 : 3));
        }
        const size_t before = bytes_used(&s);
        assert_int_equal(before, 6 * 256 + 3 * 2048);
        /* Three are nobody's: a cell without a log, one without a key, and one of another algorithm. */
        s.process.histories.places[AT + 1].block = 0;
        store_relaxed(&s.process.table.cells[AT + 2].hash, 0);
        store_relaxed(&s.process.table.metas[AT + 3].flags, 0);
        uint32_t *meta = &s.process.histories.metas[s.process.histories.places[AT + 4].block - 1];
        *meta = 1;
        struct history_store_shared *shared = s.process.histories.shared;
        store_relaxed(&shared->lock, rows[i].lock);
        store_relaxed(&shared->lost, rows[i].lost);
        const bool dead[2] = {false, true};
        history_store_mend_blocks(&s.process, dead);
        const size_t lost = 256 * ((AT + 1) % 3 != 0) + 2048 * ((AT + 1) % 3 == 0) + 256 * ((AT + 2) % 3 != 0) +
                            2048 * ((AT + 2) % 3 == 0) + 256 * ((AT + 3) % 3 != 0) + 2048 * ((AT + 3) % 3 == 0);
        assert_int_equal(bytes_used(&s), rows[i].mends ? before - lost : before);
        assert_int_equal(load_relaxed(&shared->lock), rows[i].mends ? 0 : rows[i].lock);
        assert_int_equal(load_relaxed(&shared->lost), 0);
        assert_int_equal(*meta, rows[i].mends ? AT + 4 : 1);
        if (rows[i].mends) {
            /* No block is handed out twice. */
            for (uint32_t at = AT + 20; at < AT + 40; at++) {
                bare_occupy(&s.process, &s.policy, at, HASH + at, (struct state){0, 0});
                assert_true(charge(&s, at, NOW_NS, 5));
            }
            for (uint32_t at = AT + 4; at < AT + 40; at++) {
                const struct history *history = history_store_get(&s.process, at);
                assert_true(history == NULL || history->end == (at >= AT + 20 ? 5 : at % 3 == 0 ? 100 : 3));
            }
        }
        subject_close(&s);
    }
}

static void test_memory_for_logs_is_what_was_asked_for_in_whole_regions(void **state)
{
    (void) state;
    static const struct {
        size_t units, size;
    } rows[] = {{1, 1 << 20}, {1 << 17, 1 << 20}, {(1 << 17) + 1, 2 << 20}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct history_store store = {.shared = NULL};
        assert_int_equal(history_store_open(&store, rows[i].units, 100, NULL), 0);
        assert_int_equal(store.blocks.size, rows[i].size);
        assert_int_equal(store.shared->blocks.present, rows[i].size);
        store.places[99].block = 7;
        if (rows[i].size != 0) {
            store.metas[rows[i].size / 256 - 1] = 8;
            store.blocks.orders[rows[i].size / 256 - 1] = 9;
            assert_int_equal(store.metas[rows[i].size / 256 - 1], 8);
            assert_int_equal(store.places[99].block, 7);
        }
        history_store_close(&store, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_log_has_room_for_eight_units_and_then_twice_as_many_up_to_its_limit),
        cmocka_unit_test(test_a_log_that_grows_keeps_its_units_and_gives_its_block_back),
        cmocka_unit_test(test_a_look_drops_what_has_left_the_window_of_the_key_that_is_there),
        cmocka_unit_test(test_a_state_without_a_log_gets_one_whose_units_leave_together),
        cmocka_unit_test(test_an_evicted_log_tells_its_latest_units_and_how_many_are_lost),
        cmocka_unit_test(test_without_memory_a_log_gets_the_block_of_one_whose_units_have_all_left),
        cmocka_unit_test(test_empty_logs_are_reclaimed_in_turn),
        cmocka_unit_test(test_logs_of_a_segment_have_pieces_of_their_memory_present_as_they_need_them),
        cmocka_unit_test(test_the_end_of_a_log_is_told_to_checks_when_it_is_unlocked),
        cmocka_unit_test(test_during_a_halt_no_block_is_taken_and_one_that_is_given_back_is_counted_anew),
        cmocka_unit_test(test_a_log_that_a_dead_process_was_changing_is_ended_and_unlocked),
        cmocka_unit_test(test_after_a_repair_the_blocks_in_use_are_those_that_keys_have),
        cmocka_unit_test(test_memory_for_logs_is_what_was_asked_for_in_whole_regions),
    };
    return cmocka_run_group_tests_name("unit/process/history_store", tests, NULL, NULL);
}
