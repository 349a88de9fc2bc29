/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of keys: fixed memory, state inline, nothing allocated after open.
 *
 * One cell holds one limit of one key. Cells lie two to a cache line, and in groups of eight. A hash names a line in
 * one group, its first; a second line, for when that is full, in the same page, so that both are found with one address
 * translation; and another group. In a table as full as it is made for 72% of the keys are in their first line and 25%
 * in their second; the rest are elsewhere in the first one's group, or in the other group. So most cells are found with
 * one cache miss, nearly all others with two that need not wait for one another. What only slow paths need lies in
 * parallel arrays: who lives in a cell, and, where there is a fleet, what it has been told (sync_state.h).
 *
 * Invariants
 *   I1  A hash is in at most one cell: whoever adds or moves one holds the insertion lock of its first group.
 *   I2  A cell changes its key only while it is claimed, and it can be claimed only while nobody pins it or holds
 *       units of it: (held & HELD_IN_USE) == 0 -> HELD_LOCKED.
 *   I3  A cell's generation (top bits of state.b) changes with its key, and with every grant. A charge reads hash,
 *       state and hash again, and compare-and-swaps state with the generation in it: it cannot fall on another key, nor
 *       overlook a grant.
 *
 *   I4  State counts units that have passed; it never decreases but by time. held counts units that may yet pass: of
 *       grants that are not settled, and of requests under way. What may pass now is the state's headroom less held.
 *       held is raised before anyone is let pass on it, and lowered after what passed was charged; its version changes
 *       each time.
 *
 *   I5  A dirty bit that is clear means that the background thread has seen the cell's last change.
 *
 *   I6  A line that has room has always had: cells are given up to another key alone, that takes them at once. A key
 *       goes in its second line, or elsewhere, when those before were full; so it is not looked for beyond a line that
 *       has room.
 *
 * Ordering
 *   [T1] hash: published with release after state and stub were written; read with acquire.
 *   [T2] state: dwcas_swap is a full barrier. cell_read loads with acquire, so what it reads after (the hash again, I3)
 *        is no older than the state.
 *   [T3] held: seq_cst read-modify-writes, loads with acquire. Pairs with itself in the denial rule (decide.c).
 *   [T4] dirty: see bitmap.h.
 *
 * Progress: reading, charging, pinning: lock-free. Adding a key: a lock per group, held for some 50 ns.
 */
#ifndef WEIR_PROCESS_TABLE_H
#define WEIR_PROCESS_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "base/atomics.h"
#include "base/dwcas.h"
#include "base/numbers.h"
#include "process/bitmap.h"
#include "weir/weir.h"

#define TABLE_NONE UINT32_MAX

#define SET_CELLS  8
#define PAIR_CELLS 2
#define PAGE_PAIRS 64 /* of 4 KiB: the least that is translated at a time */

/*
 * held: version (8 bits), claimed (1), pins (12), units (43). Pins: one by a slot of every thread, one by what every
 * thread is just doing, one by the background thread: 2 * 1,024 + 1 at most. Units: every thread up to HOLD_MOST, and
 * one request at a time more than that, up to WEIR_MAX_UNITS (decide.c).
 */
#define HELD_VERSION (UINT64_C(1) << 56)
#define HELD_LOCKED  (UINT64_C(1) << 55)
#define HELD_PIN     (UINT64_C(1) << 43)
#define HOLD_MOST    (UINT64_C(1) << 30)
#define HELD_UNITS   (HELD_PIN - 1)
#define HELD_IN_USE  (HELD_VERSION - 1)

/* A cell's generation: the bits of state.b that the algorithms leave. */
#define GENERATION_ONE (UINT64_C(1) << STATE_B_BITS)

struct cell {
    _Atomic uint64_t hash; /* 0: empty, or changing hands */
    _Atomic uint64_t held;
    struct dwcas state;
};

_Static_assert(sizeof(struct cell) == 32, "two cells to a cache line");

/* Who lives in a cell. Written while it is claimed; read by anyone who looks for a key to forget. */
struct cell_meta {
    _Atomic uint32_t limit_tag; /* of the limit: POLICY_LIMIT_TAG of its salt */
    _Atomic uint16_t group;     /* of the policy and its tiers */
    _Atomic uint8_t flags;      /* OWNER_* */
    _Atomic uint8_t events;     /* EVENT_*; set by anyone (statistics) */
};

#define CELL_SHARED  1 /* has something to tell the fleet */
#define CELL_HISTORY 2 /* is under a sliding log */
#define CELL_BUCKET  4 /* is under a bucket */

#define EVENT_DENIED   1 /* there may be something of it in top_denied.h */
#define EVENT_REFUSED  2 /* more was asked for than there was room for */
#define EVENT_REFUNDED 4 /* there may be something of it in sync_state.h's struct refund_ledger */

static inline bool cell_meta_is(const struct cell_meta *meta, uint8_t flag)
{
    return (load_relaxed(&meta->flags) & flag) != 0;
}

/* Written once, so that a flood of denials is answered from reads. */
static inline void cell_meta_record(struct cell_meta *meta, uint8_t mark)
{
    if ((load_relaxed(&meta->events) & mark) == 0) {
        (void) or_seq_cst(&meta->events, mark);
    }
}

struct table {
    size_t set_count, cell_count;
    size_t max_keys; /* as many find room */
    struct cell *cells;
    struct cell_meta *metas;
    _Atomic uint32_t *locks; /* one per group */
    struct bitmap dirty;     /* changed since the background thread looked (I5) */
    struct bitmap urgent;    /* the fleet is to be asked at once */
    struct bitmap deferred;  /* has something to tell the fleet that can wait */
    void *memory;
    size_t memory_size;
    /* Written for every new key, and by nobody else: on a line of its own. A guess: the cells are what is true. */
    _Alignas(64) _Atomic uint64_t key_count;
};

/* 0 or -ENOMEM. Holds at least `max_keys` cells at a load that leaves nearly no set full. `fleet`: with bitmaps. */
int table_open(struct table *table, size_t max_keys, bool fleet);
void table_close(struct table *table);

/* A cell's hash for a key's: never 0. */
static inline uint64_t table_hash(uint64_t key_hash, uint64_t salt)
{
    const uint64_t hash = key_hash ^ salt;
    return hash != 0 ? hash : 1;
}

/* A hash's group before the others. */
static inline size_t table_first_set(const struct table *table, uint64_t hash)
{
    return (size_t) (((wide_uint) hash * table->set_count) >> 64);
}

/* The first cell of a hash's first line. */
static inline size_t table_pair(const struct table *table, uint64_t hash)
{
    return table_first_set(table, hash) * SET_CELLS + ((size_t) hash & (SET_CELLS - PAIR_CELLS));
}

/* The same of its second line: in the same page, 64 lines, but for those at the end of the table. */
static inline size_t table_second_pair(const struct table *table, uint64_t hash)
{
    const size_t first = table_pair(table, hash);
    const size_t second = first ^ (((size_t) (hash >> 8) % PAGE_PAIRS | 1) * PAIR_CELLS);
    return second < table->cell_count ? second : first ^ PAIR_CELLS;
}

/* The first cell of its other group. */
static inline size_t table_other_set(const struct table *table, uint64_t hash)
{
    const size_t first = table_first_set(table, hash);
    const size_t other = table_first_set(table, hash * UINT64_C(0x9e3779b97f4a7c15));
    return (other != first ? other : (first + 1) % table->set_count) * SET_CELLS;
}

/* The cell of a hash, or TABLE_NONE. It may change hands at any time: see cell_read. */
uint32_t table_find(const struct table *table, uint64_t hash);

/* Asks for both lines. */
static inline void table_prefetch(const struct table *table, uint64_t hash)
{
    __builtin_prefetch(&table->cells[table_pair(table, hash)], 1);
    __builtin_prefetch(&table->cells[table_second_pair(table, hash)], 1);
}

/* Asks for both groups: for one key in thirty, and for new ones. */
static inline void table_prefetch_far(const struct table *table, uint64_t hash)
{
    for (size_t line = 0; line < SET_CELLS; line += PAIR_CELLS) {
        __builtin_prefetch(&table->cells[table_pair(table, hash) ^ line], 1);
        __builtin_prefetch(&table->cells[table_other_set(table, hash) + line], 1);
    }
}

/* As table_find, looking everywhere; for adding keys, under the first group's lock. */
uint32_t table_find_all(const struct table *table, uint64_t hash);

/* The state, where the cell still is this hash's. False: it is not. */
static inline bool cell_read(const struct cell *cell, uint64_t hash, struct dwcas_value *value)
{
    *value = dwcas_read(&cell->state);
    /* Relaxed: ordered behind the state by [T2]. */
    return load_relaxed(&cell->hash) == hash;
}

static inline struct state cell_state(struct dwcas_value value)
{
    return (struct state){value.a, value.b & STATE_B_MASK};
}

static inline struct dwcas_value cell_value(struct state state, struct dwcas_value like)
{
    return (struct dwcas_value){state.a, (like.b & ~STATE_B_MASK) | (state.b & STATE_B_MASK)};
}

/* [T3] Changes held by `delta` (units, pins; may be negative) and its version; returns what it was. */
static inline uint64_t cell_hold(struct cell *cell, uint64_t delta)
{
    return add_seq_cst(&cell->held, delta + HELD_VERSION);
}

/* Keeps the cell this hash's until cell_unpin. False: it is not, and was not pinned. */
bool cell_pin(struct cell *cell, uint64_t hash);
void cell_unpin(struct cell *cell);

/* Claims the cell (I2). True: nobody else changes it until cell_unlock. */
bool cell_lock(struct cell *cell);
void cell_unlock(struct cell *cell);

/*
 * Empties a claimed cell: it is nobody's, its generation has changed, and no charge can reach it. Returns its last
 * state.
 */
struct state cell_vacate(struct table *table, struct cell *cell);

/* Gives a vacant claimed cell to a hash. The stub (sync_state.h) must be written before. */
void cell_occupy(struct table *table, struct cell *cell, uint64_t hash, struct state fresh);

/* Blocks (spins, then yields) while another thread adds a key to the group. */
void table_lock(struct table *table, size_t group);
void table_unlock(struct table *table, size_t group);
bool table_trylock(struct table *table, size_t group);

/* [T4] After a change of the cell's state. */
static inline void table_set_dirty(struct table *table, uint32_t cell)
{
    bitmap_set(&table->dirty, cell);
}

/* Cells of a table for so many keys, and the bytes that it takes in all. */
size_t table_cells(size_t max_keys, bool fleet);
size_t table_size(size_t max_keys, bool fleet);

#endif
