/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * The table of keys: fixed memory, state inline, nothing allocated after open.
 *
 * A cell holds one limit of one key. Eight cells are a set; two neighbours of a set are a pair, and share a cache line.
 * A key's hash names three places, searched in this order:
 *
 *   first pair     a pair of the key's first set
 *   second pair    another pair in the same page, so that one address translation finds both pairs
 *   the two sets   all of the first set, and another set, anywhere in the table
 *
 * In a table as full as it is made for, 72% of the keys are in their first pair and 25% in their second. So most cells
 * are found with one cache miss, nearly all others with two that do not wait for each other. What only slow paths need
 * lies in parallel arrays: the key's policy (struct cell_meta) and, in a fleet, its sync state (sync_state.h).
 *
 * Invariants (I2 to I4: cell.h)
 *   I1  A hash is in one cell at most: a thread that moves a hash, or adds a hash of which both pairs are full, has
 *       locked the hash's first set. See I8 for other hashes.
 *   I5  A clear dirty bit means that the background thread has seen the cell's last change.
 *   I6  A cell that once had a key is empty only while it is locked, between two keys. So an empty cell that is not
 *       locked has never had a key, and a pair that is full stays full. A key goes to its second pair only when its
 *       first pair is full, or when its empty cells are locked to be filled. A key goes further only when both pairs are
 *       so. So a search may stop at a pair that has an empty cell; to add the key, I8 makes it wait for a locked one.
 *   I7  Each far key, outside of its two pairs, is counted in its first set (struct set_guard): before the cell has the
 *       hash, and until after the cell has lost it. So a search goes beyond the pairs only where the count is not 0.
 *   I8  A key that finds an empty cell in a pair goes to the first such cell of the first such pair, or nowhere: a thread
 *       that finds the cell locked waits, and searches again. So two threads that add one hash want one cell, and the
 *       cell's lock is enough for them. The lock of a set is for keys of which both pairs are full (I1).
 *
 * Ordering: [T1] to [T3] of cell.h; [T4] of bitmap.h for the dirty bits.
 *
 * Progress: finding a key is lock-free. Adding a key takes the lock of a cell or of a set, for some 50 ns.
 */
/* clang-format on */
#ifndef WEIR_PROCESS_TABLE_H
#define WEIR_PROCESS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/numbers.h"
#include "process/bitmap.h"
#include "process/cell.h"

#define TABLE_NONE UINT32_MAX

/* A pair is one cache line; a set is one eight-way bucket of the hash table. */
#define SET_CELLS  8
#define PAIR_CELLS 2
#define PAGE_PAIRS 64 /* of 4 KiB, the smallest unit of address translation */

/*
 * Far keys are counted apart by so many classes of hashes: of a full table's keys one in some 25 shares a count. Fewer
 * bits than four would be used up in time, as a count that is full stays.
 */
#define FAR_CLASSES    6
#define FAR_COUNT_BITS 4
#define FAR_COUNT_MASK ((1U << FAR_COUNT_BITS) - 1)

/* The lock of a set, and the far keys whose first set it is (I7), two counts in a byte. */
struct set_guard {
    _Atomic uint8_t lock;
    _Atomic uint8_t far_counts[FAR_CLASSES / 2];
};

_Static_assert(sizeof(struct set_guard) == sizeof(uint32_t), "memory of every set");

/* What changes of a table beside its arrays. It has no pointers, as struct process_shared. */
struct table_shared {
    /* Written for every new key alone: on a cache line of its own. An estimate for insert.c and statistics. */
    _Alignas(CACHE_LINE) _Atomic uint64_t key_count;
};

struct table {
    struct table_shared *shared;
    size_t set_count, cell_count;
    size_t max_keys; /* keys that have room */
    struct cell *cells;
    struct cell_meta *metas;
    struct set_guard *guards; /* one per set */
    struct bitmap dirty;      /* cells changed since the background thread last looked (I5) */
    struct bitmap urgent;     /* cells of which the fleet is asked at once */
    struct bitmap deferred;   /* cells with unreported units that can wait */
    void *memory;
    size_t memory_size;
};

struct pages_owner;

/* 0 or -ENOMEM. At `max_keys` keys nearly every key finds a cell. `fleet`: with bitmaps. */
int table_open(struct table *table, size_t max_keys, bool fleet, struct pages_owner *pages);
void table_close(struct table *table, const struct pages_owner *pages);

static inline size_t table_first_set(const struct table *table, uint64_t hash)
{
    return (size_t) (((wide_uint) hash * table->set_count) >> 64);
}

/* The first cell of a hash's first pair. */
static inline size_t table_pair(const struct table *table, uint64_t hash)
{
    return table_first_set(table, hash) * SET_CELLS + ((size_t) hash & (SET_CELLS - PAIR_CELLS));
}

/* The first cell of a hash's second pair. Pages begin at cell 0; a partial page at the end has its own rule. */
static inline size_t table_second_pair(const struct table *table, uint64_t hash)
{
    const size_t first = table_pair(table, hash);
    const size_t second = first ^ (((size_t) (hash >> 8) % PAGE_PAIRS | 1) * PAIR_CELLS);
    return second < table->cell_count ? second : first ^ PAIR_CELLS;
}

/* Whether no key can be added to a pair, by its first cell (I6). */
static inline bool table_pair_is_full(const struct cell *pair)
{
    return load_relaxed(&pair[0].hash) != 0 && load_relaxed(&pair[1].hash) != 0;
}

/* The first cell of the last pair in which a hash is looked for, in vain (I6). */
static inline size_t table_last_pair(const struct table *table, uint64_t hash)
{
    const size_t first = table_pair(table, hash);
    return table_pair_is_full(&table->cells[first]) ? table_second_pair(table, hash) : first;
}

/* The first cell of a hash's other set. */
static inline size_t table_other_set(const struct table *table, uint64_t hash)
{
    const size_t first = table_first_set(table, hash);
    const size_t other = table_first_set(table, hash * UINT64_C(0x9e3779b97f4a7c15));
    return (other != first ? other : (first + 1) % table->set_count) * SET_CELLS;
}

/* The cell of a hash, or TABLE_NONE. The cell may get another key at any time: see cell_read. */
uint32_t table_find(const struct table *table, uint64_t hash);

/* Both pairs of a hash, by their first cells. */
struct table_pairs {
    struct cell *first, *second;
};

static inline struct table_pairs table_pairs_of(const struct table *table, uint64_t hash)
{
    return (struct table_pairs){&table->cells[table_pair(table, hash)], &table->cells[table_second_pair(table, hash)]};
}

static inline void table_prefetch_pairs(struct table_pairs pairs)
{
    prefetch_line(pairs.first);
    prefetch_line(pairs.second);
}

static inline void table_prefetch(const struct table *table, uint64_t hash)
{
    table_prefetch_pairs(table_pairs_of(table, hash));
}

/* The cell of a hash where it is in one of its pairs; else any cell: the caller compares the hash. */
static inline struct cell *table_guess(struct table_pairs pairs, uint64_t hash)
{
    struct cell *cell = pairs.first;
    /* Relaxed: the caller's comparison is the one that is ordered. */
    if (load_relaxed(&cell->hash) != hash && load_relaxed(&(++cell)->hash) != hash) {
        cell = pairs.second;
        cell += load_relaxed(&cell->hash) != hash;
    }
    return cell;
}

/* The guard of a hash's first set. */
static inline struct set_guard *table_guard(const struct table *table, uint64_t hash)
{
    return &table->guards[table_first_set(table, hash)];
}

/* The byte with the count of a hash's far keys; *shift: of the count. */
static inline _Atomic uint8_t *table_far_count(const struct table *table, uint64_t hash, unsigned *shift)
{
    const unsigned class = (unsigned) ((hash & UINT32_MAX) * FAR_CLASSES >> 32);
    *shift = class % 2 * FAR_COUNT_BITS;
    return &table_guard(table, hash)->far_counts[class / 2];
}

/* The cell of a hash in its sets, or TABLE_NONE. */
uint32_t table_find_in_sets(const struct table *table, uint64_t hash);

/* The cell of a far key's hash, or TABLE_NONE; of a hash that was not found in its pairs. */
static inline uint32_t table_find_far(const struct table *table, uint64_t hash)
{
    unsigned shift;
    const _Atomic uint8_t *counts = table_far_count(table, hash, &shift);
    /* I7. Relaxed: a search under the set's lock sees all that were added under the lock. */
    const unsigned both = load_relaxed(counts);
    return (both >> shift & FAR_COUNT_MASK) == 0 ? TABLE_NONE : table_find_in_sets(table, hash);
}

/* The cells of a hash's pairs, each read once. */
struct table_place {
    uint32_t at;    /* the hash's cell; TABLE_NONE: it is not in its pairs */
    uint32_t empty; /* the cell that the hash is to go to (I8); TABLE_NONE: both pairs are full, or it has a cell */
};

/* By one pair, from its first cell. */
static inline struct table_place table_place_in(const struct table *table, size_t pair, uint64_t hash)
{
    /* [T1] acquire: what the cells hold is at least as new as their keys. */
    const uint64_t first = load_acquire(&table->cells[pair].hash);
    const uint64_t second = load_acquire(&table->cells[pair + 1].hash);
    struct table_place place = {TABLE_NONE, TABLE_NONE};
    if (first == hash || second == hash) {
        place.at = (uint32_t) pair + (first != hash);
    } else if (first == 0 || second == 0) {
        place.empty = (uint32_t) pair + (first != 0);
    }
    return place;
}

/* By the first pair, and where that is full, the second. */
static inline struct table_place table_place(const struct table *table, uint64_t hash)
{
    const struct table_place place = table_place_in(table, table_pair(table, hash), hash);
    return place.at != TABLE_NONE || place.empty != TABLE_NONE
               ? place
               : table_place_in(table, table_second_pair(table, hash), hash);
}

/* Locks a cell that was found empty. False: another thread has it, or it has a key. */
static inline bool table_lock_empty(struct table *table, uint32_t at)
{
    struct cell *cell = &table->cells[at];
    if (!cell_lock(cell)) {
        return false;
    }
    if (load_relaxed(&cell->hash) == 0) { /* locked: no other thread changes it */
        return true;
    }
    cell_unlock(cell);
    return false;
}

/*
 * Empties a locked cell: it has no key, its generation has changed, and no charge can reach it. Returns its last state.
 */
struct state table_vacate(struct table *table, uint32_t at);

/* Gives a vacant locked cell to a hash. The cell's sync state (sync_state.h) must be written before. */
void table_occupy(struct table *table, uint32_t at, uint64_t hash, struct state state);

/* Gives an empty locked cell of the hash's pairs to it. The caller counts the key (table_count_keys). */
static inline void table_fill(struct table *table, uint32_t at, uint64_t hash, struct state state)
{
    struct cell *cell = &table->cells[at];
    /* Relaxed, and no swap: of a vacant cell no other thread can swap the state, as none has read its generation. */
    const uint64_t generation = load_relaxed(&cell->state.b) & ~STATE_B_MASK;
    store_relaxed(&cell->state.a, state.a);
    store_relaxed(&cell->state.b, generation | state.b);
    store_release(&cell->hash, hash); /* [T1] */
}

/* Counts keys that table_fill() has added. Relaxed: statistics, and an estimate. */
static inline void table_count_keys(struct table *table, uint64_t count)
{
    (void) add_relaxed(&table->shared->key_count, count);
}

/*
 * Gives a locked cell with a key to another hash: table_vacate() and table_occupy() in one swap, where nothing but the
 * state is kept of the keys. Returns the last state of the key before.
 */
struct state table_replace(struct table *table, uint32_t at, uint64_t hash, struct state state);

bool table_trylock(struct table *table, size_t set);

/* Locks a set where no other thread adds a key to the set; else as table_trylock(). */
static inline bool table_lock_fast(struct table *table, size_t set)
{
    return exchange_acquire(&table->guards[set].lock, 1) == 0;
}

static inline void table_unlock(struct table *table, size_t set)
{
    store_release(&table->guards[set].lock, 0); /* pairs with the exchange in table_lock_fast */
}

/* [T4] Call after the change of the cell's state. */
static inline void table_set_dirty(struct table *table, uint32_t at)
{
    bitmap_set(&table->dirty, at);
}

/*
 * Alone: frees the locks of sets, and counts keys and far keys (I7) anew. A hash that is in none of its places is taken
 * out, so that the cell has none.
 */
void table_salvage(struct table *table);

/* The cells of a table for `max_keys` keys, and the bytes of all its arrays. */
size_t table_cells(size_t max_keys, bool fleet);
size_t table_size(size_t max_keys, bool fleet);

#endif
