/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dead processes leave in a table, written by hand, and what a repair makes of it. (With processes that die:
 * stress/deaths_test.c.)
 *
 * Guards: src/process/mend.c, src/process/process.h, src/process/bitmap.c, src/process/top_denied.c,
 * src/process/robust_mutex.c, src/process/insert.c, src/process/history_store.c
 */
#include <pthread.h>
#include <sched.h>

#include "base/pages.h"
#include "process/evict.h"
#include "process/insert.h"
#include "process/mend.h"
#include "process/robust_mutex.h"
#include "support/bare_process.h"
#include "support/commits.h"

#define LIMIT 100
#define DEAD  2 /* the lock word of a dead process; 1 and 3 are of living ones */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const bool dead[3] = {false, true, false};

struct subject {
    struct process process;
    struct policy policy;
};

static void subject_open(struct subject *s, bool fleet)
{
    bare_process_open(&s->process, 1000, fleet);
    bare_policy_init(&s->policy, WEIR_FIXED_WINDOW, LIMIT);
}

static uint64_t held(const struct subject *s, uint32_t at)
{
    return load_relaxed(&s->process.table.cells[at].held);
}

static void mend_all(struct subject *s, const struct mend *mend)
{
    mend_cells(mend, &s->process, dead);
}

static void test_what_a_cell_holds_is_what_slots_account_for_and_no_more(void **state)
{
    (void) state;
    static const struct {
        uint64_t pins, units;    /* that the cell counts */
        uint64_t slots, granted; /* that slots account for */
    } rows[] = {{2, 0, 0, 0}, {2, 9, 1, 9}, {3, 9, 3, 2}, {1, 5, 1, 5}, {0, 7, 0, 0}, {1, 0, 1, 0}};
    struct subject s;
    subject_open(&s, false);
    for (uint32_t i = 0; i < COUNT_OF(rows); i++) {
        bare_occupy(&s.process, &s.policy, 10 * i, 1000 + i, (struct state){i, i});
        (void) cell_hold(&s.process.table.cells[10 * i], rows[i].pins * HELD_PIN + rows[i].units);
    }
    bare_occupy(&s.process, &s.policy, 5, 7, (struct state){0, 0}); /* not in use when the repair looks */
    (void) cell_hold(&s.process.table.cells[97], HELD_PIN);         /* empty: a search had pinned it */
    struct mend mend;
    assert_int_equal(mend_find(&mend, &s.process), 0);
    assert_int_equal(mend.count, COUNT_OF(rows) + 1);
    (void) cell_hold(&s.process.table.cells[5], HELD_PIN + 4);
    uint64_t before[COUNT_OF(rows)];
    for (uint32_t i = 0; i < COUNT_OF(rows); i++) {
        assert_int_equal(mend.cells[i].at, 10 * i);
        before[i] = held(&s, 10 * i);
        for (uint64_t slot = 0; slot < rows[i].slots; slot++) {
            mend_count(&mend, 10 * i, slot == 0 ? rows[i].granted : 0);
        }
    }
    mend_count(&mend, 5, 4);
    mend_all(&s, &mend);
    for (uint32_t i = 0; i < COUNT_OF(rows); i++) {
        const uint64_t expected = rows[i].slots * HELD_PIN + rows[i].granted;
        assert_int_equal(held(&s, 10 * i) & HELD_IN_USE, expected);
        /* What is right stays, with its version. */
        const bool right = (before[i] & HELD_IN_USE) == expected;
        assert_int_equal(held(&s, 10 * i) / HELD_VERSION, before[i] / HELD_VERSION + !right);
        assert_int_equal(load_relaxed(&s.process.table.cells[10 * i].hash), 1000 + i);
    }
    assert_int_equal(held(&s, 5) & HELD_IN_USE, HELD_PIN + 4);
    assert_int_equal(held(&s, 97) & HELD_IN_USE, 0);
    assert_int_equal(load_relaxed(&s.process.table.cells[97].hash), 0);
    mend_end(&mend);
    assert_null(mend.cells);
    process_close(&s.process);
}

/* A cell between two keys must not become empty: it gets a key that nobody asks for. */
static void test_a_cell_that_was_left_between_two_keys_gets_one_of_no_use(void **state)
{
    (void) state;
    for (int fleet = 0; fleet < 2; fleet++) {
        struct subject s;
        subject_open(&s, fleet != 0);
        struct table *table = &s.process.table;
        const uint32_t count = (uint32_t) table->cell_count;
        struct dwcas_value *begun = calloc(count, sizeof(*begun));
        assert_non_null(begun);
        for (uint32_t at = 0; at < count; at++) {
            assert_true(cell_lock(&table->cells[at]));
            cell_meta_write(&table->metas[at], 1, 1, at % 2 == 0 ? CELL_HISTORY : CELL_SHARED);
            cell_meta_record(&table->metas[at], EVENT_DENIED);
            store_relaxed(&s.process.top_denied.entries[at].units, 1);
            s.process.histories.places[at].block = at % 2 == 0 ? 1 : 0;
            store_relaxed(&table->cells[at].state.a, 5);
            begun[at] = dwcas_read(&table->cells[at].state);
            if (fleet != 0) {
                s.process.syncs.compacts[at].key_length = 4;
            }
        }
        store_relaxed(&table->cells[3].hash, 4711); /* locked, and not yet vacated: it keeps its key */
        struct mend mend;
        assert_int_equal(mend_find(&mend, &s.process), 0);
        assert_int_equal(mend.count, count);
        mend_all(&s, &mend);
        for (uint32_t at = 0; at < count; at++) {
            const uint64_t hash = load_relaxed(&table->cells[at].hash);
            assert_int_equal(held(&s, at) & HELD_IN_USE, 0);
            if (at == 3) {
                assert_int_equal(hash, 4711);
                continue;
            }
            assert_int_not_equal(hash, 0);
            assert_int_equal(table_pair(table, hash), at - at % PAIR_CELLS);
            for (uint32_t other = at - at % SET_CELLS; other < at; other++) {
                assert_true(load_relaxed(&table->cells[other].hash) != hash);
            }
            assert_int_equal(load_relaxed(&table->metas[at].group), 0);
            assert_int_equal(load_relaxed(&table->metas[at].limit_tag), 0);
            assert_int_equal(load_relaxed(&table->metas[at].flags), 0);
            assert_int_equal(load_relaxed(&table->metas[at].events), 0);
            assert_int_equal(s.process.histories.places[at].block, 0);
            const struct dwcas_value value = dwcas_read(&table->cells[at].state);
            assert_int_equal(cell_state(value).a, 0);
            assert_int_equal(value.b, cell_next_generation(begun[at]).b); /* no swap from before succeeds */
            assert_int_equal(load_relaxed(&s.process.top_denied.entries[at].units), 0);
            if (fleet != 0) {
                assert_int_equal(s.process.syncs.compacts[at].key_length, 0);
                assert_int_not_equal(load_relaxed(&s.process.syncs.compacts[at].residency), 0);
            }
        }
        assert_int_equal(load_relaxed(&table->shared->key_count), count - 1);
        assert_int_equal(load_relaxed(&s.process.top_denied.shared->evicted_denied_units), count - 1);
        assert_int_equal(load_relaxed(&s.process.histories.shared->lost), 0); /* mended with the rest */
        free(begun);
        mend_end(&mend);
        process_close(&s.process);
    }
}

static void test_the_mark_of_a_dead_settler_goes_and_so_does_a_name_that_was_begun(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, false);
    bare_occupy(&s.process, &s.policy, 5, 77, (struct state){11, 12});
    struct cell *cell = &s.process.table.cells[5];
    store_relaxed(&cell->state.b, 12 | CELL_MARK | 3 * GENERATION_ONE);
    store_relaxed(&s.process.top_denied.entries[5].naming, NAMING_BEGUN);
    (void) cell_hold(cell, HELD_PIN);
    struct mend mend;
    assert_int_equal(mend_find(&mend, &s.process), 0);
    mend_all(&s, &mend);
    assert_int_equal(load_relaxed(&cell->state.a), 11);
    assert_int_equal(load_relaxed(&cell->state.b), 12 | 4 * GENERATION_ONE);
    assert_int_equal(load_relaxed(&s.process.top_denied.entries[5].naming), NAMING_NONE);
    mend_end(&mend);
    store_relaxed(&s.process.top_denied.entries[5].naming, NAMING_DONE);
    top_denied_mend(&s.process, 5);
    assert_int_equal(load_relaxed(&s.process.top_denied.entries[5].naming), NAMING_DONE);
    process_close(&s.process);
}

static void test_locks_of_the_dead_are_freed_and_those_of_the_living_stay(void **state)
{
    (void) state;
    for (uint32_t word = 0; word <= 3; word++) {
        struct subject s;
        subject_open(&s, false);
        struct process_shared *shared = s.process.shared;
        const uint32_t after = word == DEAD ? 0 : word;
        store_relaxed(&shared->oversized, word);
        store_relaxed(&shared->evicted_reports.lock, word);
        cell_meta_write(&s.process.table.metas[s.process.table.cell_count - 1], 1, 1, CELL_HISTORY);
        store_relaxed(&s.process.histories.places[s.process.table.cell_count - 1].lock, word);
        store_relaxed(&s.process.histories.places[4].lock, word); /* of no log: the lock is nobody's */
        mend_locks(&s.process, dead);
        assert_int_equal(load_relaxed(&shared->oversized), after);
        assert_int_equal(load_relaxed(&shared->evicted_reports.lock), after);
        assert_int_equal(load_relaxed(&s.process.histories.places[s.process.table.cell_count - 1].lock), after);
        assert_int_equal(load_relaxed(&s.process.histories.places[4].lock), word);
        process_close(&s.process);
    }
}

/* A set's lock has no word: nobody is at the table, so it is a dead process's. */
static void test_sets_are_unlocked_and_cells_that_were_being_set_are_found(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, true);
    struct table *table = &s.process.table;
    const uint32_t last = (uint32_t) table->cell_count - 1;
    struct bitmap *const bitmaps[] = {&table->dirty, &table->urgent, &table->deferred, &s.process.top_denied.denied};
    for (size_t i = 0; i < COUNT_OF(bitmaps); i++) {
        (void) or_seq_cst(&bitmaps[i]->words[last / 64], UINT64_C(1) << last % 64); /* and not yet its summary */
    }
    assert_true(table_trylock(table, 0));
    assert_true(table_trylock(table, table->set_count - 1));
    struct mend mend = {.count = 0};
    mend_all(&s, &mend);
    for (size_t i = 0; i < COUNT_OF(bitmaps); i++) {
        uint32_t cursor = 0;
        assert_int_equal(bitmap_count(bitmaps[i]), 1);
        assert_int_equal(bitmap_next(bitmaps[i], &cursor, last + 1), last);
    }
    assert_true(table_trylock(table, 0));
    assert_true(table_trylock(table, table->set_count - 1));
    process_close(&s.process);
}

static void test_a_set_of_cells_says_how_many_and_which_is_probably_next(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    static const uint32_t sizes[] = {1, 64, 65, 4097, 9000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        const uint32_t size = sizes[i];
        assert_int_equal(bitmap_size(size), (size + 63) / 64 + ((size + 63) / 64 + 63) / 64);
        struct bitmap bitmap;
        _Atomic uint64_t *memory = calloc(bitmap_size(size), sizeof(*memory));
        bool *model = calloc(size, sizeof(*model));
        assert_true(memory != NULL && model != NULL);
        bitmap_init(&bitmap, memory, size);
        size_t count = 0;
        for (int n = 0; n < 200; n++) {
            const uint32_t cell = (uint32_t) random_below(&rng, size);
            if (draw_once_in(&rng, 3)) {
                bitmap_clear(&bitmap, cell);
                count -= model[cell];
                model[cell] = false;
            } else {
                bitmap_set(&bitmap, cell);
                count += !model[cell];
                model[cell] = true;
            }
            assert_int_equal(bitmap_count(&bitmap), count);
            const uint32_t from = (uint32_t) random_below(&rng, size);
            uint32_t next = from;
            /* It looks at the word of the cursor, and at the one behind that. */
            const uint32_t end = (from / 64 + 2) * 64 < size ? (from / 64 + 2) * 64 : size;
            while (next < end && !model[next]) {
                next++;
            }
            assert_int_equal(bitmap_ahead(&bitmap, from), next < end ? next : BITMAP_NONE);
        }
        for (size_t word = 0; word < (bitmap.word_count + 63) / 64; word++) {
            store_relaxed(&bitmap.summary[word], 0);
        }
        assert_int_equal(bitmap_count(&bitmap), 0);
        bitmap_mend(&bitmap);
        assert_int_equal(bitmap_count(&bitmap), count);
        for (size_t word = 0; word < bitmap.word_count; word++) {
            const bool summed = (load_relaxed(&bitmap.summary[word / 64]) >> word % 64 & 1) != 0;
            assert_int_equal(summed, load_relaxed(&bitmap.words[word]) != 0);
        }
        free((void *) memory);
        free(model);
    }
}

/* The processes with these tickets have died. */
static bool has_died(void *arg, uint64_t ticket)
{
    return ticket < 8 && (*(const unsigned *) arg >> ticket & 1) != 0;
}

static void test_a_mutex_of_a_dead_process_is_taken_and_its_death_is_told_once(void **state)
{
    (void) state;
    unsigned died = 0;
    struct robust_mutex mutex = {0};
    struct process of[3] = {{.ticket = 1}, {.ticket = 2}, {.ticket = UINT64_MAX}};
    for (size_t i = 0; i < COUNT_OF(of); i++) {
        of[i].has_died = has_died;
        of[i].free_arg = &died;
    }
    assert_int_equal(robust_mutex_lock(&of[0], &mutex), ROBUST_TAKEN);
    robust_mutex_unlock(&mutex);
    for (int tries = 0; tries < 2; tries++) {
        died = 0;
        assert_int_equal(robust_mutex_lock(&of[1], &mutex), ROBUST_TAKEN);
        assert_int_equal(robust_mutex_trylock(&of[0], &mutex), ROBUST_BUSY);
        assert_int_equal(robust_mutex_trylock(&of[1], &mutex), ROBUST_BUSY); /* another thread of the process */
        died = 1U << 2;
        assert_int_equal(tries == 0 ? robust_mutex_lock(&of[0], &mutex) : robust_mutex_trylock(&of[0], &mutex),
                         ROBUST_DIED);
        assert_int_equal(robust_mutex_trylock(&of[2], &mutex), ROBUST_BUSY);
        robust_mutex_unlock(&mutex);
        assert_int_equal(robust_mutex_trylock(&of[2], &mutex), ROBUST_TAKEN);
        robust_mutex_unlock(&mutex);
    }
}

/* Has the mutex for longer than a waiter waits before it looks again. */
struct holder {
    const struct process *process;
    struct robust_mutex *mutex;
    _Atomic uint64_t ready;
    _Atomic uint32_t released;
};

static void *holds(void *arg)
{
    struct holder *holder = arg;
    assert_int_equal(robust_mutex_lock(holder->process, holder->mutex), ROBUST_TAKEN);
    (void) threads_meet(&holder->ready, 2);
    nap_ms(30);
    store_relaxed(&holder->released, 1);
    robust_mutex_unlock(holder->mutex);
    return NULL;
}

static void test_a_mutex_is_waited_for_however_long_another_thread_has_it(void **state)
{
    (void) state;
    static const struct process process = {.ticket = 1};
    struct robust_mutex mutex = {0};
    struct holder holder = {.process = &process, .mutex = &mutex};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, holds, &holder), 0);
    (void) threads_meet(&holder.ready, 2);
    assert_int_equal(robust_mutex_lock(&process, &mutex), ROBUST_TAKEN);
    assert_int_equal(load_relaxed(&holder.released), 1);
    robust_mutex_unlock(&mutex);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static bool frees(void *arg)
{
    unsigned *calls = arg;
    return ++*calls == 2;
}

/* A lock that is waited for longer than a running thread has it: first a hint, and then the caller frees it. */
static void test_who_waits_for_a_lock_for_long_says_so_and_then_frees_the_locks_of_the_dead(void **state)
{
    (void) state;
    static const struct {
        unsigned waits;
        bool stalled;
        unsigned calls;
        bool goes_on;
    } rows[] = {{0, false, 0, true},   {3999, false, 0, true}, {4000, true, 0, true},   {4001, false, 0, true},
                {8000, true, 1, true}, {8001, false, 1, true}, {12000, true, 2, false}, {16000, true, 3, true}};
    struct subject s;
    subject_open(&s, false);
    unsigned calls = 0;
    assert_true(process_wait(&s.process, 8000)); /* there is nobody to ask */
    s.process.free_locks = frees;
    s.process.free_arg = &calls;
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        store_relaxed(&s.process.shared->stalled, 0);
        assert_int_equal(process_wait(&s.process, rows[i].waits), rows[i].goes_on);
        assert_int_equal(load_relaxed(&s.process.shared->stalled), rows[i].stalled);
        assert_int_equal(calls, rows[i].calls);
    }
    process_lock(&s.process, &s.process.shared->oversized);
    assert_int_equal(load_relaxed(&s.process.shared->oversized), s.process.lock_word);
    assert_false(process_is_halted(&s.process));
    store_relaxed(&s.process.shared->halted_by, 1);
    assert_true(process_is_halted(&s.process));
    process_close(&s.process);
}

/*
 * Yields of who waits; at the first one another thread gives the cell that it has locked to a key. The linker's --wrap
 * leads the call here (tests/meson.build).
 */
static unsigned yields;
static struct {
    struct table *table; /* NULL: nothing happens */
    uint64_t hash;
    uint32_t at;
} fills;

int __real_sched_yield(void);
int __wrap_sched_yield(void);

int __wrap_sched_yield(void)
{
    yields++;
    if (fills.table != NULL) {
        table_occupy(fills.table, fills.at, fills.hash, (struct state){0, 0});
        cell_unlock(&fills.table->cells[fills.at]);
        fills.table = NULL;
    }
    return __real_sched_yield();
}

/* A lock that stays, and what is heard of its waiter. */
struct stuck {
    _Atomic uint32_t *lock; /* freed in the end; NULL: only a repair would free it */
    unsigned calls, yields;
};

static bool finds_dead(void *arg)
{
    struct stuck *stuck = arg;
    stuck->calls++;
    stuck->yields = yields;
    if (stuck->lock != NULL) {
        store_relaxed(stuck->lock, 0);
    }
    return true;
}

static const weir_key wanted_key = {.data = "k", .length = 1, .hash = UINT64_C(0x1111000022220000)};

/* Opens a subject whose waiters tell `stuck`. Returns the empty cell that the key would get. */
static uint32_t open_stuck(struct subject *s, struct stuck *stuck)
{
    subject_open(s, false);
    *stuck = (struct stuck){.calls = 0};
    s->process.free_locks = finds_dead;
    s->process.free_arg = stuck;
    return table_place(&s->process.table, cell_hash(&s->policy, &wanted_key, 0)).empty;
}

/* Of 8,000 looks the first 2,000 only spin. */
static void test_each_lock_is_waited_for_until_its_holder_is_known_to_be_dead(void **state)
{
    (void) state;
    enum { SET, EMPTY_CELL, PINNED_CELL, BLOCKS, OVERSIZED, REPORTS, CASES };
    for (int which = 0; which < CASES; which++) {
        struct subject s;
        struct stuck stuck;
        const uint32_t at = open_stuck(&s, &stuck);
        struct table *table = &s.process.table;
        const uint64_t hash = cell_hash(&s.policy, &wanted_key, 0);
        uint32_t cells[WEIR_MAX_LIMITS];
        struct evicted_report report;
        yields = 0;
        switch (which) {
        case SET:
            assert_true(table_trylock(table, table_first_set(table, hash)));
            assert_int_equal(insert_key(&s.process, &s.policy, 0, &wanted_key, BARE_NOW_NS), TABLE_NONE);
            break;
        case EMPTY_CELL:
            assert_true(cell_lock(&table->cells[at]));
            assert_int_equal(insert_key(&s.process, &s.policy, 0, &wanted_key, BARE_NOW_NS), TABLE_NONE);
            assert_true(table_trylock(table, table_first_set(table, hash)));
            break;
        case PINNED_CELL:
            bare_occupy(&s.process, &s.policy, at, hash, (struct state){0, 0});
            assert_true(cell_lock(&table->cells[at]));
            assert_false(insert_pin(&s.process, &s.policy, &wanted_key, BARE_NOW_NS, cells));
            break;
        case BLOCKS:
            bare_policy_init(&s.policy, WEIR_SLIDING_LOG, LIMIT);
            bare_occupy(&s.process, &s.policy, at, hash, (struct state){0, 0});
            store_relaxed(&s.process.histories.shared->lock, DEAD);
            assert_false(history_store_charge(&s.process, at, &s.policy.limits[0].rule, BARE_NOW_NS, 1));
            assert_int_equal(load_relaxed(&s.process.histories.shared->lock), DEAD);
            break;
        case OVERSIZED:
            stuck.lock = &s.process.shared->oversized;
            store_relaxed(stuck.lock, DEAD);
            process_lock(&s.process, stuck.lock);
            assert_int_equal(load_relaxed(stuck.lock), s.process.lock_word);
            break;
        default:
            stuck.lock = &s.process.shared->evicted_reports.lock;
            store_relaxed(stuck.lock, DEAD);
            assert_false(evict_take_report(&s.process, &report));
            assert_int_equal(load_relaxed(stuck.lock), 0);
            break;
        }
        assert_int_equal(stuck.calls, which == BLOCKS ? 2 : 1); /* a log looks for room, and for an empty log */
        assert_int_equal(stuck.yields, stuck.calls * 6000 + stuck.calls - 1);
        process_close(&s.process);
    }
}

static void test_who_waits_for_a_cell_that_goes_to_a_key_looks_again(void **state)
{
    (void) state;
    for (uint64_t other = 0; other < 2; other++) { /* the key itself, or another one */
        struct subject s;
        struct stuck stuck;
        const uint32_t at = open_stuck(&s, &stuck);
        struct table *table = &s.process.table;
        const uint64_t hash = cell_hash(&s.policy, &wanted_key, 0);
        assert_true(cell_lock(&table->cells[at]));
        fills.at = at;
        fills.hash = hash + other;
        fills.table = table;
        assert_int_equal(insert_key(&s.process, &s.policy, 0, &wanted_key, BARE_NOW_NS), at + other);
        assert_int_equal(stuck.calls, 0);
        assert_int_equal(load_relaxed(&table->cells[at + other].hash), hash);
        assert_int_equal(load_relaxed(&table->shared->key_count), 1 + other);
        assert_int_equal(held(&s, at) & HELD_IN_USE, 0);
        process_close(&s.process);
    }
}

/* A key that is denied, by the functions alone. */
static void name_cell(struct subject *s, uint32_t at, const char *name)
{
    const weir_key key = {.data = name, .length = (uint32_t) strlen(name), .hash = UINT64_C(0x1111000022220000) + at};
    bare_occupy(&s->process, &s->policy, at, cell_hash(&s->policy, &key, 0), (struct state){0, 0});
    top_denied_name(&s->process, &s->policy, &key, at);
}

static void test_denied_units_go_with_a_key_that_moves_and_are_dropped_with_one_that_goes(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, false);
    struct top_denied *denied = &s.process.top_denied;
    name_cell(&s, 5, "a");
    assert_true(top_denied_has_name(denied, 5));
    assert_false(top_denied_has_name(denied, 6));
    assert_int_equal(held(&s, 5) & HELD_IN_USE, 0);
    top_denied_add(&s.process, 5, 3);
    top_denied_add(&s.process, 5, UINT64_MAX);
    assert_int_equal(load_relaxed(&denied->entries[5].units), UINT32_MAX);
    assert_int_equal(bitmap_count(&denied->denied), 1);
    assert_int_equal(load_relaxed(&denied->shared->any), 1);
    store_relaxed(&denied->entries[5].units, 7);
    top_denied_move(&s.process, 5, 9);
    assert_int_equal(load_relaxed(&denied->entries[5].units), 0);
    assert_int_equal(load_relaxed(&denied->entries[9].units), 7);
    assert_true(top_denied_has_name(denied, 9));
    assert_int_equal(denied->entries[9].key.length, 1);
    assert_int_equal(denied->entries[9].key.bytes[0], 'a');
    assert_int_equal(bitmap_count(&denied->denied), 2);
    cell_meta_record(&s.process.table.metas[9], EVENT_DENIED);
    top_denied_move(&s.process, 12, 9); /* a key that was never denied has nothing to move */
    assert_int_equal(load_relaxed(&denied->entries[9].units), 7);
    top_denied_evict(&s.process, 9);
    assert_int_equal(load_relaxed(&denied->entries[9].units), 0);
    assert_false(top_denied_has_name(denied, 9));
    assert_int_equal(load_relaxed(&denied->shared->evicted_denied_units), 7);
    store_relaxed(&denied->entries[12].units, 8);
    top_denied_evict(&s.process, 12); /* by its events it was not denied */
    assert_int_equal(load_relaxed(&denied->entries[12].units), 8);
    /* The cell has another key. */
    const weir_key other = {.data = "b", .length = 1, .hash = 9};
    top_denied_name(&s.process, &s.policy, &other, 5);
    assert_int_equal(denied->entries[5].key.bytes[0], 'a');
    process_close(&s.process);
}

static void test_denials_are_collected_when_due_and_halved_each_minute_that_passed(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, false);
    struct top_denied *denied = &s.process.top_denied;
    static struct top_k list;
    name_cell(&s, 5, "a");
    top_denied_add(&s.process, 5, 1000);
    assert_int_equal(top_denied_next_ns(denied), 0);
    top_denied_step(&s.process, SECOND);
    top_denied_read(&s.process, 1, &list);
    assert_int_equal(list.total, 1000);
    assert_int_equal(denied->shared->next_ns, SECOND + 32 * MILLISECOND);
    assert_true(top_denied_next_ns(denied) == UINT64_MAX);
    assert_int_equal(load_relaxed(&denied->shared->denied_units), 1000);
    assert_false(top_denied_is_due(denied, SECOND + 32 * MILLISECOND - 1));
    assert_true(top_denied_is_due(denied, SECOND + 32 * MILLISECOND));
    top_denied_add(&s.process, 5, 8);
    assert_int_equal(top_denied_next_ns(denied), SECOND + 32 * MILLISECOND);
    top_denied_step(&s.process, SECOND + 32 * MILLISECOND - 1);
    top_denied_read(&s.process, 1, &list);
    assert_int_equal(list.total, 1000);
    /* A minute after the first step; then three at once. */
    top_denied_step(&s.process, 61 * SECOND - 1);
    top_denied_read(&s.process, 1, &list);
    assert_int_equal(list.total, 1008);
    top_denied_step(&s.process, 61 * SECOND + 31 * MILLISECOND);
    top_denied_step(&s.process, 62 * SECOND);
    top_denied_read(&s.process, 1, &list);
    assert_int_equal(list.total, 504);
    top_denied_step(&s.process, 241 * SECOND);
    top_denied_read(&s.process, 1, &list);
    assert_int_equal(list.total, 63);
    top_denied_step(&s.process, 301 * SECOND - 1);
    top_denied_read(&s.process, 1, &list);
    assert_int_equal(list.total, 63);
    /* While a reader has the lists, the next piece is tried in a millisecond. */
    top_denied_add(&s.process, 5, 1);
    assert_int_equal(robust_mutex_trylock(&s.process, &denied->shared->lock), ROBUST_TAKEN);
    top_denied_step(&s.process, 302 * SECOND);
    robust_mutex_unlock(&denied->shared->lock);
    assert_int_equal(denied->shared->next_ns, 302 * SECOND + MILLISECOND);
    assert_int_equal(load_relaxed(&denied->entries[5].units), 1);
    /* Of a cell that is locked later; of one without a key, or without a name, never. */
    assert_true(cell_lock(&s.process.table.cells[5]));
    top_denied_step(&s.process, 303 * SECOND);
    assert_int_equal(load_relaxed(&denied->entries[5].units), 1);
    assert_int_equal(bitmap_count(&denied->denied), 1);
    cell_unlock(&s.process.table.cells[5]);
    top_denied_step(&s.process, 304 * SECOND);
    assert_int_equal(load_relaxed(&denied->shared->denied_units), 1009);
    top_denied_add(&s.process, 20, 4);
    name_cell(&s, 21, "b");
    store_relaxed(&denied->entries[21].naming, NAMING_NONE);
    top_denied_add(&s.process, 21, 5);
    top_denied_step(&s.process, 305 * SECOND);
    assert_int_equal(load_relaxed(&denied->shared->evicted_denied_units), 9);
    assert_int_equal(load_relaxed(&denied->shared->denied_units), 1009);
    top_denied_read(&s.process, 2, &list); /* a group without denials has an empty list */
    assert_int_equal(list.total, 0);
    process_close(&s.process);
}

/* A piece that comes late stands for those that did not come, up to 2,048 cells; the next one begins behind it. */
static void test_denials_are_collected_in_turn_by_pieces_that_are_bounded(void **state)
{
    (void) state;
    enum { KEYS = 5000, DENIED = 3000 };
    static const struct {
        uint64_t at_ns, collected; /* by then */
        uint64_t next_ns;
    } rows[] = {{SECOND, 2048, SECOND + MILLISECOND},
                {SECOND + MILLISECOND, 2112, SECOND + 2 * MILLISECOND},
                {SECOND + 5 * MILLISECOND - 1, 2112 + 3 * 64, SECOND + 6 * MILLISECOND - 1},
                {SECOND + 16 * MILLISECOND, DENIED + 1, SECOND + 48 * MILLISECOND},
                {SECOND + 48 * MILLISECOND, DENIED + 1, SECOND + 80 * MILLISECOND}};
    struct subject s;
    bare_process_open(&s.process, KEYS, false);
    bare_policy_init(&s.policy, WEIR_FIXED_WINDOW, LIMIT);
    struct top_denied *denied = &s.process.top_denied;
    for (uint32_t at = 0; at < DENIED; at++) {
        name_cell(&s, at, "a");
        top_denied_add(&s.process, at, 1);
    }
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        top_denied_step(&s.process, rows[i].at_ns);
        assert_int_equal(load_relaxed(&denied->shared->denied_units), rows[i].collected);
        assert_int_equal(denied->shared->next_ns, rows[i].next_ns);
        const bool some = rows[i].collected <= DENIED;
        assert_int_equal(bitmap_count(&denied->denied), DENIED + 1 - rows[i].collected - (some && i == 0));
        assert_int_equal(load_relaxed(&denied->shared->any), some);
        if (i == 0) {
            top_denied_add(&s.process, 7, 1); /* its turn comes after the others' */
        }
    }
    process_close(&s.process);
}

static void test_a_list_that_gets_no_memory_is_empty_and_is_tried_again(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, false);
    struct top_denied *denied = &s.process.top_denied;
    struct segment segment = {.at = NULL};
    struct pages_owner owner = {.segment = &segment};
    static struct top_k list;
    s.policy.group = 7;
    name_cell(&s, 5, "a");
    s.process.pages = &owner;
    for (unsigned step = 1; step <= 4; step++) { /* there is room from the third one on */
        commits.result = step < 3 ? -1 : 0;
        top_denied_add(&s.process, 5, 10);
        top_denied_step(&s.process, step * SECOND);
        assert_int_equal(commits.count, step < 3 ? step : 3);
        assert_ptr_equal(commits.at, &denied->lists[7]);
        assert_int_equal(commits.size, sizeof(struct top_k));
        top_denied_read(&s.process, 7, &list);
        assert_int_equal(list.total, step < 3 ? 0 : 10 * (step - 2));
        assert_int_equal(load_relaxed(&denied->shared->denied_units), list.total);
        assert_int_equal(load_relaxed(&denied->shared->evicted_denied_units), step < 3 ? 10 * step : 20);
    }
    s.process.pages = NULL;
    process_close(&s.process);
}

/* A list may be half changed then. Whether a reader finds out first, or the background thread. */
static void test_all_lists_are_empty_after_a_death_and_filled_anew(void **state)
{
    (void) state;
    static const uint32_t groups[] = {1, WEIR_MAX_POLICIES / 2, WEIR_MAX_POLICIES};
    static struct top_k list;
    for (int reads = 0; reads < 2; reads++) {
        struct subject s;
        subject_open(&s, false);
        struct top_denied *denied = &s.process.top_denied;
        for (uint32_t i = 0; i < COUNT_OF(groups); i++) {
            s.policy.group = groups[i];
            name_cell(&s, i, "a");
            top_denied_add(&s.process, i, 10 + i);
        }
        top_denied_step(&s.process, SECOND);
        for (uint32_t i = 0; i < COUNT_OF(groups); i++) {
            top_denied_read(&s.process, groups[i], &list);
            assert_int_equal(list.total, 10 + i);
        }
        unsigned died = 1U << DEAD;
        const struct process other = {.ticket = DEAD};
        s.process.has_died = has_died;
        s.process.free_arg = &died;
        assert_int_equal(robust_mutex_lock(&other, &denied->shared->lock), ROBUST_TAKEN);
        top_denied_add(&s.process, 2, 5);
        if (reads != 0) {
            top_denied_read(&s.process, groups[0], &list);
            assert_int_equal(list.total + list.used, 0);
        } else {
            top_denied_step(&s.process, 2 * SECOND);
        }
        top_denied_step(&s.process, 3 * SECOND);
        for (uint32_t i = 0; i < COUNT_OF(groups); i++) {
            top_denied_read(&s.process, groups[i], &list);
            assert_int_equal(list.total, i == 2 ? 5 : 0);
        }
        process_close(&s.process);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_cell_holds_is_what_slots_account_for_and_no_more),
        cmocka_unit_test(test_a_cell_that_was_left_between_two_keys_gets_one_of_no_use),
        cmocka_unit_test(test_the_mark_of_a_dead_settler_goes_and_so_does_a_name_that_was_begun),
        cmocka_unit_test(test_locks_of_the_dead_are_freed_and_those_of_the_living_stay),
        cmocka_unit_test(test_sets_are_unlocked_and_cells_that_were_being_set_are_found),
        cmocka_unit_test(test_a_set_of_cells_says_how_many_and_which_is_probably_next),
        cmocka_unit_test(test_a_mutex_of_a_dead_process_is_taken_and_its_death_is_told_once),
        cmocka_unit_test(test_a_mutex_is_waited_for_however_long_another_thread_has_it),
        cmocka_unit_test(test_who_waits_for_a_lock_for_long_says_so_and_then_frees_the_locks_of_the_dead),
        cmocka_unit_test(test_each_lock_is_waited_for_until_its_holder_is_known_to_be_dead),
        cmocka_unit_test(test_who_waits_for_a_cell_that_goes_to_a_key_looks_again),
        cmocka_unit_test(test_denied_units_go_with_a_key_that_moves_and_are_dropped_with_one_that_goes),
        cmocka_unit_test(test_denials_are_collected_when_due_and_halved_each_minute_that_passed),
        cmocka_unit_test(test_denials_are_collected_in_turn_by_pieces_that_are_bounded),
        cmocka_unit_test(test_a_list_that_gets_no_memory_is_empty_and_is_tried_again),
        cmocka_unit_test(test_all_lists_are_empty_after_a_death_and_filled_anew),
    };
    return cmocka_run_group_tests_name("unit/process/mend", tests, NULL, NULL);
}
