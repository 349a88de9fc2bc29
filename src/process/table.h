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
 *   I1  A hash is in one cell at most: a thread that adds or moves a hash has locked the hash's first set.
 *   I5  A clear dirty bit means that the background thread has seen the cell's last change.
 *   I6  A pair that is full stays full: a cell is emptied only to be filled again at once. A key goes to its second
 *       pair, or further, only when its first pair was full. So a search may stop at a pair that has an empty cell.
 *   I7  Each far key, outside of its two pairs, is counted in its first set (struct set_guard): before the cell has the
 *       hash, and until after the cell has lost it. So a search goes beyond the pairs only where the count is not 0.
 *
 * Ordering: [T1] to [T3] of cell.h; [T4] of bitmap.h for the dirty bits.
 *
 * Progress: finding a key is lock-free. Adding a key takes the lock of a set, for some 50 ns.
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

/* Far keys are counted apart by so many classes of hashes: of a full table's keys one in sixteen shares a count. */
#define FAR_CLASSES 3

/* The lock of a set, and the far keys whose first set it is (I7). A count of UINT8_MAX stays. */
struct set_guard {
    _Atomic uint8_t lock;
    _Atomic uint8_t far_counts[FAR_CLASSES];
};

_Static_assert(sizeof(struct set_guard) == sizeof(uint32_t), "memory of every set");

struct table {
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
    /* Written for every new key alone: on a cache line of its own. An estimate for insert.c and statistics. */
    _Alignas(64) _Atomic uint64_t key_count;
};

/* 0 or -ENOMEM. At `max_keys` keys nearly every key finds a cell. `fleet`: with bitmaps. */
int table_open(struct table *table, size_t max_keys, bool fleet);
void table_close(struct table *table);

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

/* The first cell of the last pair in which a hash is looked for, in vain (I6). */
static inline size_t table_last_pair(const struct table *table, uint64_t hash)
{
    const size_t first = table_pair(table, hash);
    const bool full = load_relaxed(&table->cells[first].hash) != 0 && load_relaxed(&table->cells[first + 1].hash) != 0;
    return full ? table_second_pair(table, hash) : first;
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

/* The cell of a far key's hash, or TABLE_NONE; of a hash that was not found in its pairs. */
uint32_t table_find_far(const struct table *table, uint64_t hash);

/* Searches every cell that the hash may be in; to add a key, under the lock of its first set. */
uint32_t table_find_all(const struct table *table, uint64_t hash);

/*
 * Empties a locked cell: it has no key, its generation has changed, and no charge can reach it. Returns its last state.
 */
struct state table_vacate(struct table *table, uint32_t at);

/* Gives a vacant locked cell to a hash. The cell's sync state (sync_state.h) must be written before. */
void table_occupy(struct table *table, uint32_t at, uint64_t hash, struct state state);

/*
 * Gives a locked cell with a key to another hash: table_vacate() and table_occupy() in one swap, where nothing but the
 * state is kept of the keys. Returns the last state of the key before.
 */
struct state table_replace(struct table *table, uint32_t at, uint64_t hash, struct state state);

bool table_trylock(struct table *table, size_t set);
/* Blocks until table_trylock(): spins, then yields. */
void table_lock_slow(struct table *table, size_t set);

/* Blocks while another thread adds a key to the set. */
static inline void table_lock(struct table *table, size_t set)
{
    if (exchange_acquire(&table->guards[set].lock, 1) != 0) {
        table_lock_slow(table, set);
    }
}

static inline void table_unlock(struct table *table, size_t set)
{
    store_release(&table->guards[set].lock, 0); /* pairs with the exchange in table_lock */
}

/* [T4] Call after the change of the cell's state. */
static inline void table_set_dirty(struct table *table, uint32_t at)
{
    bitmap_set(&table->dirty, at);
}

/* The cells of a table for `max_keys` keys, and the bytes of all its arrays. */
size_t table_cells(size_t max_keys, bool fleet);
size_t table_size(size_t max_keys, bool fleet);

#endif
