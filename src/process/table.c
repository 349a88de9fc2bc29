/* SPDX-License-Identifier: Apache-2.0 */
/* See table.h. */
#include "process/table.h"

#include <errno.h>
#include <string.h>

#include "base/pages.h"
#include "base/spin.h"

/*
 * Cells per key asked for. In one process 5/4: of a full table's keys one in ten million finds no room, even after
 * moving others, and one in thirteen is in its other set. In a fleet, where a cell takes more memory, 6/5: there one
 * key in a million finds no room.
 */
#define PROCESS_CELLS 5
#define PROCESS_KEYS  4
#define FLEET_CELLS   6
#define FLEET_KEYS    5

/* The parts of a table's memory, in this order. */
enum { PART_CELLS, PART_METAS, PART_GUARDS, PART_SHARED, PART_DIRTY, PART_URGENT, PART_DEFERRED, PARTS };

static size_t sets_for(size_t max_keys, bool fleet)
{
    const size_t cells = fleet ? max_keys * FLEET_CELLS / FLEET_KEYS : max_keys * PROCESS_CELLS / PROCESS_KEYS;
    return cells / SET_CELLS + 2;
}

/* Writes the parts' sizes; returns the bytes of all parts. */
static size_t table_part_sizes(size_t set_count, bool fleet, size_t sizes[PARTS])
{
    const size_t cells = set_count * SET_CELLS;
    const size_t bitmap_bytes = fleet ? bitmap_size(cells) * sizeof(uint64_t) : 0;
    size_t sum = 0;
    sizes[PART_CELLS] = cells * sizeof(struct cell);
    sizes[PART_METAS] = cells * sizeof(struct cell_meta);
    sizes[PART_GUARDS] = set_count * sizeof(struct set_guard);
    sizes[PART_SHARED] = sizeof(struct table_shared);
    sizes[PART_DIRTY] = sizes[PART_URGENT] = sizes[PART_DEFERRED] = bitmap_bytes;
    for (size_t i = 0; i < PARTS; i++) {
        sum += arena_padded(sizes[i]);
    }
    return sum;
}

size_t table_cells(size_t max_keys, bool fleet)
{
    return sets_for(max_keys, fleet) * SET_CELLS;
}

size_t table_size(size_t max_keys, bool fleet)
{
    size_t sizes[PARTS];
    return table_part_sizes(sets_for(max_keys, fleet), fleet, sizes);
}

int table_open(struct table *table, size_t max_keys, bool fleet, struct pages_owner *pages)
{
    memset(table, 0, sizeof(*table));
    size_t sizes[PARTS];
    table->max_keys = max_keys;
    table->set_count = sets_for(max_keys, fleet);
    table->cell_count = table->set_count * SET_CELLS;
    table->memory_size = table_part_sizes(table->set_count, fleet, sizes);
    table->memory = pages_take(pages, table->memory_size, PAGES_PRESENT);
    if (table->memory == NULL) {
        return -ENOMEM;
    }
    unsigned char *next = table->memory;
    table->cells = arena_carve(&next, sizes[PART_CELLS]);
    table->metas = arena_carve(&next, sizes[PART_METAS]);
    table->guards = arena_carve(&next, sizes[PART_GUARDS]);
    table->shared = arena_carve(&next, sizes[PART_SHARED]);
    if (fleet) {
        bitmap_init(&table->dirty, arena_carve(&next, sizes[PART_DIRTY]), table->cell_count);
        bitmap_init(&table->urgent, arena_carve(&next, sizes[PART_URGENT]), table->cell_count);
        bitmap_init(&table->deferred, arena_carve(&next, sizes[PART_DEFERRED]), table->cell_count);
    }
    return 0;
}

void table_close(struct table *table, const struct pages_owner *pages)
{
    pages_give(pages, table->memory, table->memory_size);
}

/* The cell of a hash among `count` cells, or TABLE_NONE; *full: none of the cells is empty. */
static inline uint32_t find_among(const struct table *table, size_t first, size_t count, uint64_t hash, bool *full)
{
    bool all = true;
    for (size_t at = first; at < first + count; at++) {
        /* [T1] acquire: what the cell holds is at least as new as its key. */
        const uint64_t there = load_acquire(&table->cells[at].hash);
        if (there == hash) {
            return (uint32_t) at;
        }
        all = all && there != 0;
    }
    *full = all;
    return TABLE_NONE;
}

static bool is_far(const struct table *table, uint64_t hash, uint32_t at)
{
    const size_t pair = at & ~(size_t) (PAIR_CELLS - 1);
    return pair != table_pair(table, hash) && pair != table_second_pair(table, hash);
}

/* Counts a far key, or one less. Relaxed: a search under the set's lock sees all that were added under the lock. */
static void count_far(const struct table *table, uint64_t hash, int change)
{
    unsigned shift;
    _Atomic uint8_t *counts = table_far_count(table, hash, &shift);
    uint8_t was = load_relaxed(counts);
    while (((unsigned) was >> shift & FAR_COUNT_MASK) != FAR_COUNT_MASK &&
           !cas_relaxed(counts, &was, (uint8_t) (was + change * (1 << shift)))) {
    }
}

uint32_t table_find_in_sets(const struct table *table, uint64_t hash)
{
    bool full;
    const uint32_t at = find_among(table, table_first_set(table, hash) * SET_CELLS, SET_CELLS, hash, &full);
    return at != TABLE_NONE ? at : find_among(table, table_other_set(table, hash), SET_CELLS, hash, &full);
}

uint32_t table_find(const struct table *table, uint64_t hash)
{
    bool full = false;
    uint32_t at = find_among(table, table_pair(table, hash), PAIR_CELLS, hash, &full);
    if (at != TABLE_NONE || !full) {
        return at; /* I6. A cell between two keys looks empty: a key may be missed here, never where it is added (I8) */
    }
    at = find_among(table, table_second_pair(table, hash), PAIR_CELLS, hash, &full);
    return at != TABLE_NONE || !full ? at : table_find_far(table, hash);
}

struct state table_vacate(struct table *table, uint32_t at)
{
    struct cell *cell = &table->cells[at];
    const uint64_t hash = load_relaxed(&cell->hash);
    if (hash != 0) {
        (void) add_relaxed(&table->shared->key_count, (uint64_t) -1);
    }
    /* [T1][T2] before the generation: a thread that reads the new generation then finds the hash gone. */
    store_release(&cell->hash, 0);
    if (hash != 0 && is_far(table, hash, at)) {
        count_far(table, hash, -1); /* I7 */
    }
    struct dwcas_value last = dwcas_read(&cell->state);
    while (!dwcas_swap(&cell->state, &last, cell_next_generation(cell_value((struct state){0, 0}, last)))) {
    }
    return cell_state(last);
}

void table_occupy(struct table *table, uint32_t at, uint64_t hash, struct state state)
{
    table_count_keys(table, 1);
    if (is_far(table, hash, at)) {
        count_far(table, hash, 1); /* I7 */
    }
    table_fill(table, at, hash, state);
}

struct state table_replace(struct table *table, uint32_t at, uint64_t hash, struct state state)
{
    struct cell *cell = &table->cells[at];
    const uint64_t last_hash = load_relaxed(&cell->hash);
    store_release(&cell->hash, 0); /* as in table_vacate */
    struct dwcas_value last = dwcas_guess(&cell->state);
    struct dwcas_value next;
    do {
        next = cell_next_generation(cell_value(state, last));
    } while (!dwcas_swap(&cell->state, &last, next));
    if (is_far(table, last_hash, at)) {
        count_far(table, last_hash, -1); /* I7 */
    }
    if (is_far(table, hash, at)) {
        count_far(table, hash, 1); /* I7 */
    }
    store_release(&cell->hash, hash); /* [T1] */
    return cell_state(last);
}

bool table_trylock(struct table *table, size_t set)
{
    _Atomic uint8_t *lock = &table->guards[set].lock;
    return load_relaxed(lock) == 0 && exchange_acquire(lock, 1) == 0;
}

static bool is_in_sets(const struct table *table, uint64_t hash, uint32_t at)
{
    const size_t set = at / SET_CELLS;
    return set == table_first_set(table, hash) || set == table_other_set(table, hash) / SET_CELLS;
}

void table_salvage(struct table *table)
{
    uint64_t keys = 0;
    memset((void *) table->guards, 0, table->set_count * sizeof(*table->guards));
    for (uint32_t at = 0; at < table->cell_count; at++) {
        struct cell *cell = &table->cells[at];
        const uint64_t hash = load_relaxed(&cell->hash);
        const bool far = hash != 0 && is_far(table, hash, at);
        if (far && !is_in_sets(table, hash, at)) {
            store_relaxed(&cell->hash, 0);
            continue;
        }
        if (far) {
            count_far(table, hash, 1);
        }
        keys += hash != 0;
    }
    store_relaxed(&table->shared->key_count, keys);
}
