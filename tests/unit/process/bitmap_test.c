/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of cells against an array of bools: whole, in parts, and with threads that set while one takes.
 *
 * Guards: src/process/bitmap.c
 */
#include <stdlib.h>

#include "base/atomics.h"
#include "base/numbers.h"
#include "process/bitmap.h"
#include "support/support.h"

/* Sizes around the borders of words, and of words of the summary. */
static const uint32_t sizes[] = {1, 63, 64, 65, 4095, 4096, 4097, 3 * 4096 + 777};

#define SIZE_COUNT (sizeof(sizes) / sizeof(sizes[0]))

/* A word that lies behind the set. If it were counted, the count would be too great; set_close() sees if it changed. */
#define BEHIND UINT64_C(0xaaaaaaaaaaaaaaaa)

struct set {
    struct bitmap bitmap;
    _Atomic uint64_t *memory;
    bool *model;
    uint32_t size;
};

static void set_open(struct set *set, uint32_t size)
{
    set->size = size;
    set->memory = calloc(bitmap_size(size) + 1, sizeof(*set->memory));
    set->model = calloc(size, sizeof(*set->model));
    assert_non_null(set->memory);
    assert_non_null(set->model);
    bitmap_init(&set->bitmap, set->memory, size);
    set->memory[bitmap_size(size)] = BEHIND;
}

static void set_close(struct set *set)
{
    assert_true(load_relaxed(&set->memory[bitmap_size(set->size)]) == BEHIND);
    free((void *) set->memory);
    free(set->model);
}

static void put(struct set *set, uint32_t cell)
{
    bitmap_set(&set->bitmap, cell);
    set->model[cell] = true;
}

/* Takes the next cell, which must be the model's. False: there is none. */
static bool take(struct set *set, uint32_t *cursor, uint32_t end)
{
    uint32_t next = *cursor;
    while (next < end && !set->model[next]) {
        next++;
    }
    const uint32_t got = bitmap_next(&set->bitmap, cursor, end);
    if (next == end) {
        assert_int_equal(got, BITMAP_NONE);
        assert_int_equal(*cursor, end);
        return false;
    }
    assert_int_equal(got, next);
    assert_int_equal(*cursor, next + 1);
    set->model[next] = false;
    return true;
}

static void expect_counted(const struct set *set)
{
    size_t count = 0;
    for (uint32_t cell = 0; cell < set->size; cell++) {
        count += set->model[cell];
    }
    assert_int_equal(bitmap_count(&set->bitmap), count);
}

static void expect_empty(struct set *set)
{
    uint32_t cursor = 0;
    assert_int_equal(bitmap_next(&set->bitmap, &cursor, set->size), BITMAP_NONE);
    for (size_t i = 0; i < set->bitmap.word_count; i++) {
        assert_int_equal(load_relaxed(&set->bitmap.words[i]), 0);
    }
}

static void test_any_order_of_sets_clears_and_takes(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t s = 0; s < SIZE_COUNT; s++) {
        struct set set;
        set_open(&set, sizes[s]);
        for (int i = 0; i < 20000; i++) {
            const uint32_t cell = (uint32_t) random_below(&rng, set.size);
            const uint64_t what = random_below(&rng, 8);
            if (what < 4) {
                put(&set, cell);
            } else if (what == 4) {
                bitmap_clear(&set.bitmap, cell);
                set.model[cell] = false;
            } else {
                uint32_t cursor = what == 5 ? 0 : cell;
                const uint32_t end =
                    what == 6 ? set.size : cursor + (uint32_t) random_below(&rng, set.size - cursor + 1);
                while (take(&set, &cursor, end) && random_below(&rng, 4) != 0) {
                }
            }
        }
        expect_counted(&set);
        uint32_t cursor = 0;
        while (take(&set, &cursor, set.size)) {
        }
        expect_empty(&set);
        set_close(&set);
    }
}

static void test_parts_one_behind_the_other_hold_every_cell_once(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t s = 0; s < SIZE_COUNT; s++) {
        struct set set;
        set_open(&set, sizes[s]);
        for (uint32_t fraction = 1; fraction <= set.size; fraction = fraction * 3 + (uint32_t) random_below(&rng, 2)) {
            for (uint32_t cell = 0; cell < set.size; cell++) {
                put(&set, cell);
            }
            uint32_t taken = 0;
            for (uint32_t from = 0; from < set.size; from += fraction) {
                const uint32_t end = (uint32_t) min_u64((uint64_t) from + fraction, set.size);
                uint32_t cursor = from;
                while (take(&set, &cursor, end)) {
                    taken++;
                }
                if (end < set.size) {
                    put(&set, end); /* the cell is set already, and later cells stay */
                }
            }
            assert_int_equal(taken, set.size);
            expect_empty(&set);
        }
        set_close(&set);
    }
}

static void test_an_empty_set_is_passed_over_by_its_summary(void **state)
{
    (void) state;
    struct set set;
    set_open(&set, sizes[SIZE_COUNT - 1]);
    put(&set, set.size - 1);
    put(&set, 4096);
    uint32_t cursor = 0;
    assert_true(take(&set, &cursor, set.size));
    assert_true(take(&set, &cursor, set.size));
    cursor = 0;
    assert_false(take(&set, &cursor, set.size));
    assert_int_equal(load_relaxed(&set.bitmap.summary[1]), 0); /* the cursor has passed this cell */
    set_close(&set);
}

/* Threads: two change numbers and set their bits, one takes the bits and reads the numbers. */

#define STRESS_CELLS  (2 * 4096 + 100)
#define STRESS_ROUNDS 300000
#define SETTERS       2

struct stress {
    struct set set;
    _Atomic uint64_t ready, done;
    _Atomic uint64_t changes[STRESS_CELLS];
    uint64_t seen[STRESS_CELLS]; /* of the thread that takes */
    uint64_t taken;
    uint64_t seed;
};

static void see(struct stress *s, uint32_t from, uint32_t end)
{
    for (uint32_t cursor = from;;) {
        const uint32_t cell = bitmap_next(&s->set.bitmap, &cursor, end);
        if (cell == BITMAP_NONE) {
            return;
        }
        s->seen[cell] = load_acquire(&s->changes[cell]);
        s->taken++;
    }
}

static void *set_or_take(void *arg)
{
    struct stress *s = arg;
    const uint64_t number = threads_meet(&s->ready, SETTERS + 1);
    uint64_t rng = s->seed + number;
    if (number != SETTERS) {
        for (int i = 0; i < STRESS_ROUNDS; i++) {
            /* Often the same few words, so that the threads meet. */
            const uint32_t cell = (uint32_t) random_below(&rng, random_below(&rng, 4) == 0 ? STRESS_CELLS : 130);
            (void) add_seq_cst(&s->changes[cell], 1);
            bitmap_set(&s->set.bitmap, cell);
        }
        (void) add_seq_cst(&s->done, 1);
        return NULL;
    }
    while (load_acquire(&s->done) < SETTERS) {
        const uint32_t from = (uint32_t) random_below(&rng, random_below(&rng, 2) == 0 ? 130 : STRESS_CELLS);
        see(s, from, from + (uint32_t) random_below(&rng, STRESS_CELLS - from + 1)); /* a part of the cells */
        see(s, 0, STRESS_CELLS);
    }
    return NULL;
}

static void test_nothing_that_is_set_while_another_thread_takes_is_lost(void **state)
{
    (void) state;
    static struct stress s;
    s.seed = test_seed();
    set_open(&s.set, STRESS_CELLS);
    run_threads(SETTERS + 1, set_or_take, &s);
    see(&s, 0, STRESS_CELLS);
    for (uint32_t cell = 0; cell < STRESS_CELLS; cell++) {
        assert_int_equal(s.seen[cell], load_relaxed(&s.changes[cell]));
    }
    assert_true(s.taken <= (uint64_t) SETTERS * STRESS_ROUNDS); /* at most once for each time it was set */
    expect_empty(&s.set);
    set_close(&s.set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_order_of_sets_clears_and_takes),
        cmocka_unit_test(test_parts_one_behind_the_other_hold_every_cell_once),
        cmocka_unit_test(test_an_empty_set_is_passed_over_by_its_summary),
        cmocka_unit_test(test_nothing_that_is_set_while_another_thread_takes_is_lost),
    };
    return cmocka_run_group_tests_name("unit/process/bitmap", tests, NULL, NULL);
}
