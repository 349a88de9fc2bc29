/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * The memory of the sliding logs.
 *
 * A log lies outside the table, in a block. The block is taken when the key's first unit is counted, and grows with the
 * units in the window up to what the limit needs. It is freed when the key is evicted; or, when memory runs out, when
 * no unit is left in the window. A key that returns after an eviction has a log of one group: its units leave together.
 * The cell's state is the log's summary, so evictions read the state alone.
 *
 * Invariants
 *   G1  A log and its cell's state change under the lock of the log's place. They agree when the lock is released.
 *   G2  A cell without a key has no block: the block is freed, under the lock, after the cell was vacated.
 *
 * Progress: a lock per key, held for some 50 ns and one store per unit; the lock of the blocks is taken within it.
 */
/* clang-format on */
#include "process/history_store.h"

#include <errno.h>

#include "base/numbers.h"
#include "base/pages.h"
#include "base/spin.h"
#include "process/evict.h"
#include "process/process.h"

/* Units of a new ring. More would waste memory of keys with few units; fewer mean more copies of growing rings. */
#define FIRST_CAPACITY 8

/* Blocks inspected for empty logs when there is no memory for a new one: some 0.1 ms. */
#define RECLAIM_BLOCKS 4096

/* Memory for logs is reserved, and becomes present where it is used. */
int history_store_open(struct history_store *histories, size_t max_units, size_t cell_count, struct pages_owner *pages)
{
    const size_t wanted = max_units * sizeof(uint64_t);
    const size_t size = (wanted + BUDDY_LARGEST - 1) / BUDDY_LARGEST * BUDDY_LARGEST;
    const size_t metas_size = size / BUDDY_SMALLEST * sizeof(uint32_t);
    const size_t shared_size = arena_padded(sizeof(struct history_store_shared));
    const size_t places_size = cell_count * sizeof(*histories->places);
    histories->memory_size = size + arena_padded(metas_size) + arena_padded(buddy_overhead(size));
    histories->memory = pages_take(pages, histories->memory_size, PAGES_LATER);
    histories->places_size = shared_size + places_size;
    histories->places_memory = pages_take(pages, histories->places_size, PAGES_SPARSE);
    if (histories->memory == NULL || histories->places_memory == NULL) {
        return -ENOMEM;
    }
    unsigned char *next = histories->places_memory;
    histories->shared = arena_carve(&next, shared_size);
    histories->places = arena_carve(&next, places_size);
    next = histories->memory;
    void *region = arena_carve(&next, size);
    histories->metas = arena_carve(&next, metas_size);
    void *orders = arena_carve(&next, buddy_overhead(size));
    buddy_init(&histories->blocks, &histories->shared->blocks, region, size, orders);
    if (pages_are_fresh(pages)) {
        histories->shared->blocks.present = pages_come_later(pages) ? 0 : size;
    }
    return 0;
}

void history_store_close(struct history_store *histories, const struct pages_owner *pages)
{
    pages_give(pages, histories->memory, histories->memory_size);
    pages_give(pages, histories->places_memory, histories->places_size);
}

static struct history_place *history_place_of(struct process *process, uint32_t cell)
{
    return &process->histories.places[cell];
}

void history_store_lock(struct process *process, uint32_t cell)
{
    process_lock(process, &history_place_of(process, cell)->lock);
}

void history_store_unlock(struct process *process, uint32_t cell)
{
    const struct history *history = process->fleet ? history_store_get(process, cell) : NULL;
    struct sync_full *sync = history != NULL ? sync_of(&process->syncs, cell) : NULL;
    if (sync != NULL) {
        store_relaxed(&sync->history_end, history->end);
    }
    spin_unlock(&history_place_of(process, cell)->lock);
}

struct history *history_store_get(struct process *process, uint32_t cell)
{
    const uint32_t block = history_place_of(process, cell)->block;
    return block != 0 ? buddy_at(&process->histories.blocks, block) : NULL;
}

/* Locks the blocks. False: another process wants to be alone with the table, or the holder may have died. */
static bool lock_blocks(struct process *process)
{
    bool locked = false;
    bool waits = true;
    for (unsigned spins = 0; !locked && waits; spins++) {
        locked = !process_is_halted(process) && spin_trylock(&process->histories.shared->lock, process->lock_word);
        waits = locked || (!process_is_halted(process) && process_wait(process, spins));
    }
    return locked;
}

/* Has more of the region present, under the lock. False: all of it is, or there is no room. */
static bool grow(struct process *process)
{
    const struct history_store *histories = &process->histories;
    struct buddy_shared *shared = histories->blocks.shared;
    const size_t first = shared->present / BUDDY_SMALLEST;
    const size_t more = BUDDY_LARGEST / BUDDY_SMALLEST;
    if (shared->present == histories->blocks.size ||
        pages_commit(process->pages, histories->blocks.region + shared->present, BUDDY_LARGEST) != 0 ||
        pages_commit(process->pages, &histories->metas[first], more * sizeof(histories->metas[0])) != 0 ||
        pages_commit(process->pages, &histories->blocks.orders[first], more) != 0) {
        return false;
    }
    shared->present += BUDDY_LARGEST;
    return true;
}

static uint32_t block_take(struct process *process, uint32_t cell, size_t size)
{
    if (!lock_blocks(process)) {
        return 0;
    }
    uint32_t block = buddy_take(&process->histories.blocks, size);
    if (block == 0 && size <= BUDDY_LARGEST && grow(process)) {
        block = buddy_take(&process->histories.blocks, size);
    }
    if (block != 0) {
        process->histories.metas[block - 1] = cell;
    }
    spin_unlock(&process->histories.shared->lock);
    return block;
}

static void block_give(struct process *process, uint32_t block)
{
    if (!lock_blocks(process)) {
        store_relaxed(&process->histories.shared->lost, 1); /* the blocks are counted anew soon */
        return;
    }
    buddy_give(&process->histories.blocks, block);
    spin_unlock(&process->histories.shared->lock);
}

/* The next block in use after the last search, and its cell; 0: none. */
static uint32_t block_next(struct process *process, uint32_t *meta)
{
    struct history_store *histories = &process->histories;
    if (!lock_blocks(process)) {
        return 0;
    }
    uint32_t block = buddy_next(&histories->blocks, histories->shared->cursor + 1);
    block = block != 0 ? block : buddy_next(&histories->blocks, 1);
    histories->shared->cursor = block;
    *meta = block != 0 ? histories->metas[block - 1] : 0;
    spin_unlock(&histories->shared->lock);
    return block;
}

/* When the last unit of a log's cell leaves the window. Relaxed: stable under the lock of the log, else a guess. */
static uint64_t cell_until(const struct cell *cell)
{
    return history_state_until((struct state){load_relaxed(&cell->state.a), 0});
}

/* Frees the block of a log, if no unit is left in its window. */
static void block_reclaim(struct process *process, uint32_t block, uint32_t meta, uint64_t now_ns)
{
    const struct cell *cell = &process->table.cells[meta];
    struct history_place *place = history_place_of(process, meta);
    /* The cell of a block that was a log's a moment ago. Repairs look for locks at the cells of logs. */
    if (!cell_meta_is(&process->table.metas[meta], CELL_HISTORY) || !spin_trylock(&place->lock, process->lock_word)) {
        return;
    }
    /*
     * Only a log's cell has a block, and its state changes only under the lock. A thread that holds units of it was
     * promised room. Acquire: the hold came before the promise, which was made under this lock.
     */
    if (place->block == block && cell_until(cell) <= now_ns && (load_acquire(&cell->held) & HELD_UNITS) == 0) {
        place->block = 0;
        fence_compiler(); /* a process that dies in between loses a block, and leaves none to two logs */
        block_give(process, block);
    }
    spin_unlock(&place->lock);
}

/* A block for a cell, if needed from empty logs; 0: none. The caller has locked the cell's log. */
static uint32_t block_find(struct process *process, uint32_t cell, size_t size, uint64_t now_ns)
{
    uint32_t block = block_take(process, cell, size);
    uint32_t first = 0;
    for (unsigned i = 0; i < RECLAIM_BLOCKS && block == 0; i++) {
        uint32_t meta;
        const uint32_t other = block_next(process, &meta);
        if (other == 0 || other == first) {
            break; /* once around */
        }
        first = first != 0 ? first : other;
        if (meta != cell) {
            block_reclaim(process, other, meta, now_ns);
            block = block_take(process, cell, size);
        }
    }
    return block;
}

static uint32_t ring_for(const struct rule *rule, uint64_t units)
{
    const uint64_t wanted = min_u64(units, min_u64(max_u64(rule->limit, rule->history_max), WEIR_MAX_LOG_UNITS));
    uint32_t capacity = FIRST_CAPACITY;
    while (capacity < wanted) {
        capacity *= 2;
    }
    return capacity;
}

struct history *history_store_room(struct process *process, uint32_t cell, const struct rule *rule, uint64_t units,
                                   uint64_t now_ns)
{
    struct history_place *place = history_place_of(process, cell);
    struct history *history = history_store_get(process, cell);
    const uint64_t own = history != NULL ? history->end - history->first : 0;
    const uint32_t capacity = ring_for(rule, saturating_add(own, units));
    if (history != NULL && history->capacity >= capacity) {
        return history;
    }
    const struct state state = cell_state(dwcas_read(&process->table.cells[cell].state));
    const bool resumed = history == NULL && history_state_until(state) > now_ns; /* a state without a log */
    uint32_t groups = history != NULL ? history->group_capacity : resumed;
    if (process->fleet) {
        groups = (uint32_t) min_u64(capacity, HISTORY_GROUPS);
    }
    const size_t size = history_size(capacity, groups);
    const uint32_t block = block_find(process, cell, size, now_ns);
    if (block == 0) {
        return NULL;
    }
    struct history *grown = buddy_at(&process->histories.blocks, block);
    history_init(grown, capacity, groups);
    if (history != NULL) {
        history_copy(grown, history);
    }
    if (resumed) {
        /* The time of each unit is not known: all leave together, when the last one would. */
        const struct history_group all = {.time_ns = saturating_sub(history_state_until(state), rule->period_ns),
                                          .units = history_state_count(state)};
        history_set_remote(grown, &all, 1);
    }
    const uint32_t last = place->block;
    fence_compiler(); /* in this order, whenever the process dies */
    place->block = block;
    fence_compiler();
    if (last != 0) {
        block_give(process, last);
    }
    return grown;
}

void history_store_resume(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns)
{
    if (rule_has_history(rule) && cell_until(&process->table.cells[cell]) > now_ns) {
        history_store_lock(process, cell);
        (void) history_store_room(process, cell, rule, 1, now_ns);
        history_store_unlock(process, cell);
    }
}

/* Writes the log's summary to the state. `hash` 0: the cell is pinned. False: the cell is not this hash's. */
static bool publish_summary(struct process *process, uint32_t at, uint64_t hash, struct history *history,
                            const struct rule *rule)
{
    struct cell *cell = &process->table.cells[at];
    const struct state summary = history_summary(history, rule);
    struct dwcas_value value;
    do {
        if (!cell_read(cell, hash, &value) && hash != 0) {
            return false;
        }
        const struct state now = cell_state(value);
        if (now.a == summary.a && now.b == summary.b) {
            return true;
        }
    } while (!dwcas_swap(&cell->state, &value, cell_value(summary, value)));
    return true;
}

bool history_store_refresh(struct process *process, uint32_t cell, uint64_t hash, const struct rule *rule,
                           uint64_t now_ns)
{
    /* [T1] A thread that vacated the cell before is seen by the lock's acquire; a later one waits to free the block. */
    if (load_acquire(&process->table.cells[cell].hash) != hash) {
        return false;
    }
    struct history *history = history_store_get(process, cell);
    if (history == NULL) {
        return true;
    }
    history_expire(history, rule, now_ns);
    return publish_summary(process, cell, hash, history, rule);
}

void history_store_publish(struct process *process, uint32_t cell, const struct rule *rule)
{
    struct history *history = history_store_get(process, cell);
    if (history != NULL) {
        (void) publish_summary(process, cell, 0, history, rule);
    }
}

bool history_store_charge(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                          uint64_t units)
{
    struct history *history = history_store_get(process, cell);
    if (history != NULL) {
        history_expire(history, rule, now_ns);
    }
    struct history *room = history_store_room(process, cell, rule, units, now_ns);
    history = room != NULL ? room : history; /* no memory: the new units replace the oldest */
    if (history != NULL) {
        history_push(history, now_ns, units);
        (void) publish_summary(process, cell, 0, history, rule);
    }
    return history != NULL;
}

uint64_t history_store_evict(struct process *process, uint32_t cell, struct evicted_report *evicted)
{
    struct history_place *place = history_place_of(process, cell);
    uint64_t lost = 0;
    history_store_lock(process, cell);
    struct history *history = history_store_get(process, cell);
    evicted->time_count = 0;
    if (history != NULL) {
        const uint64_t from = max_u64(history->first, history->counts);
        const uint64_t count = min_u64(saturating_sub(history->end, from), EVICTED_TIMES);
        const uint64_t first = history->end - count;
        evicted->first = history_fleet_number(history, first);
        evicted->time_count = (uint32_t) count;
        for (uint32_t i = 0; i < count; i++) {
            evicted->times[i] = *history_time(history, first + i);
        }
        lost = saturating_sub(history->end, from) - count;
        const uint32_t block = place->block;
        place->block = 0; /* G2 */
        fence_compiler(); /* as in block_reclaim() */
        block_give(process, block);
    }
    history_store_unlock(process, cell);
    return lost;
}

void history_store_mend_log(struct process *process, uint32_t cell, const bool *dead)
{
    struct history_place *place = history_place_of(process, cell);
    uint32_t word = load_relaxed(&place->lock);
    /* Acquire: what the dead process wrote. */
    if (!process_is_dead_word(dead, word) || !cas_acquire(&place->lock, &word, process->lock_word)) {
        return;
    }
    struct history *history = history_store_get(process, cell);
    if (history != NULL) {
        history_mend(history); /* the next call brings the state of the cell up to date */
    }
    store_relaxed(&process->histories.shared->lost, 1); /* a block, maybe: taken and not yet the log's, or no longer */
    history_store_unlock(process, cell);
}

void history_store_mend_blocks(struct process *process, const bool *dead)
{
    struct history_store *histories = &process->histories;
    const uint32_t word = load_acquire(&histories->shared->lock);
    if (!process_is_dead_word(dead, word) && load_relaxed(&histories->shared->lost) == 0) {
        return;
    }
    store_relaxed(&histories->shared->lost, 1);                  /* until all is done */
    store_relaxed(&histories->shared->lock, process->lock_word); /* where this process dies, the next one goes on */
    fence_compiler();
    buddy_clear(&histories->blocks);
    for (uint32_t cell = 0; cell < process->table.cell_count; cell++) {
        if (load_relaxed(&process->table.cells[cell].hash) != 0 &&
            cell_meta_is(&process->table.metas[cell], CELL_HISTORY) && histories->places[cell].block != 0) {
            const struct history *history = history_store_get(process, cell);
            buddy_restore(&histories->blocks, histories->places[cell].block,
                          history_size(history->capacity, history->group_capacity));
            histories->metas[histories->places[cell].block - 1] = cell;
        }
    }
    buddy_restore_free(&histories->blocks);
    store_relaxed(&histories->shared->lost, 0);
    store_release(&histories->shared->lock, 0); /* pairs with spin_trylock() */
}

/* Whether a block that a cell names has a log of the cell, which no other log overlaps; then it is in use. */
static bool salvage_log(struct process *process, uint32_t cell, uint64_t now_ns)
{
    struct history_store *histories = &process->histories;
    const uint32_t block = histories->places[cell].block;
    if (block > histories->blocks.shared->present / BUDDY_SMALLEST || histories->metas[block - 1] != cell) {
        return false;
    }
    struct history *history = buddy_at(&histories->blocks, block);
    const uint32_t capacity = history->capacity;
    if (capacity < FIRST_CAPACITY || (capacity & (capacity - 1)) != 0 || history->group_capacity > HISTORY_GROUPS) {
        return false;
    }
    const size_t size = history_size(capacity, history->group_capacity);
    if (!buddy_may_restore(&histories->blocks, block, size) || !history_salvage(history, now_ns)) {
        return false;
    }
    buddy_restore(&histories->blocks, block, size);
    return true;
}

/* Has present what is said to be present. Nothing is, where that cannot be so. */
static void salvage_present(struct process *process)
{
    const struct history_store *histories = &process->histories;
    struct buddy_shared *shared = histories->blocks.shared;
    const size_t blocks = shared->present / BUDDY_SMALLEST;
    if (shared->present > histories->blocks.size || shared->present % BUDDY_LARGEST != 0 ||
        pages_commit(process->pages, histories->blocks.region, shared->present) != 0 ||
        pages_commit(process->pages, histories->metas, blocks * sizeof(histories->metas[0])) != 0 ||
        pages_commit(process->pages, histories->blocks.orders, blocks) != 0) {
        shared->present = 0;
    }
    shared->fresh = shared->present;
}

void history_store_salvage(struct process *process, uint64_t now_ns)
{
    struct history_store *histories = &process->histories;
    store_relaxed(&histories->shared->lock, 0);
    store_relaxed(&histories->shared->lost, 0);
    histories->shared->cursor = 0;
    salvage_present(process);
    buddy_clear(&histories->blocks);
    for (uint32_t cell = 0; cell < process->table.cell_count; cell++) {
        struct history_place *place = &histories->places[cell];
        const bool is_log = load_relaxed(&process->table.cells[cell].hash) != 0 &&
                            cell_meta_is(&process->table.metas[cell], CELL_HISTORY);
        if (place->block != 0 && (!is_log || !salvage_log(process, cell, now_ns))) {
            place->block = 0;
        }
    }
    buddy_restore_free(&histories->blocks);
}

void history_store_free_lock(struct process *process, uint32_t cell)
{
    struct history_place *place = history_place_of(process, cell);
    if (load_relaxed(&place->lock) != 0) {
        store_release(&place->lock, 0); /* pairs with spin_trylock() */
    }
}
