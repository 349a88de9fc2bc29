/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of the sliding logs.
 *
 * A log lies outside the table, in a block that is taken when its key is first counted, grows with the units in the
 * window up to what its limit needs, and is given back when the key is forgotten or, when memory runs out, when nothing
 * is left in its window. A key that comes back after it was forgotten (place.c) has a log of one group, of units that
 * leave together. The cell's state is the log's summary, so that whoever only wants to know whether a key can be
 * forgotten need not look here.
 *
 * Invariants
 *   G1  a log and its cell's state are changed under the lock of its place, and agree when it is given up
 *   G2  a cell that is changing hands has no block: it is freed, under the lock, after the cell was vacated
 *
 * Progress: a lock per key, held for some 50 ns and one store per unit; the lock of the blocks within it.
 */
#include "process/history_store.h"

#include <errno.h>

#include "base/numbers.h"
#include "base/pages.h"
#include "base/spin.h"
#include "process/process.h"

/* A ring begins with as many units. */
#define FIRST_CAPACITY 8

/* Blocks looked at for logs that are over, when there is no memory for a new one: some 0.1 ms. */
#define RECLAIM_BLOCKS 4096

/* Memory for logs is reserved, and present only when it is used. */
int logs_open(struct logs *logs, size_t max_units, size_t cell_count)
{
    const size_t wanted = max_units * sizeof(uint64_t);
    const size_t size = (wanted + BUDDY_LARGEST - 1) / BUDDY_LARGEST * BUDDY_LARGEST;
    const size_t owners_size = size / BUDDY_SMALLEST * sizeof(uint32_t);
    logs->memory_size = size + owners_size + buddy_overhead(size);
    logs->memory = pages_reserve(logs->memory_size, false);
    logs->places_size = cell_count * sizeof(*logs->places);
    logs->places = pages_reserve_sparse(logs->places_size);
    if (logs->memory == NULL || logs->places == NULL) {
        return -ENOMEM;
    }
    logs->owners = (uint32_t *) (void *) ((unsigned char *) logs->memory + size);
    buddy_init(&logs->blocks, logs->memory, size, (unsigned char *) logs->memory + size + owners_size);
    return 0;
}

void logs_close(struct logs *logs)
{
    pages_release(logs->memory, logs->memory_size);
    pages_release(logs->places, logs->places_size);
    logs->memory = NULL;
    logs->places = NULL;
}

static struct log_place *place_of(struct process *process, uint32_t cell)
{
    return &process->logs.places[cell];
}

void logs_lock(struct process *process, uint32_t cell)
{
    spin_lock(&place_of(process, cell)->lock);
}

void logs_unlock(struct process *process, uint32_t cell)
{
    const struct log *log = process->fleet ? logs_get(process, cell) : NULL;
    struct note *note = log != NULL ? note_of(&process->notes, cell) : NULL;
    if (note != NULL) {
        store_relaxed(&note->log_end, log->end);
    }
    spin_unlock(&place_of(process, cell)->lock);
}

struct log *logs_get(struct process *process, uint32_t cell)
{
    const uint32_t block = place_of(process, cell)->block;
    return block != 0 ? buddy_at(&process->logs.blocks, block) : NULL;
}

static uint32_t block_take(struct process *process, uint32_t cell, size_t size)
{
    spin_lock(&process->logs.lock);
    const uint32_t block = buddy_take(&process->logs.blocks, size);
    if (block != 0) {
        process->logs.owners[block - 1] = cell;
    }
    spin_unlock(&process->logs.lock);
    return block;
}

static void block_give(struct process *process, uint32_t block)
{
    spin_lock(&process->logs.lock);
    buddy_give(&process->logs.blocks, block);
    spin_unlock(&process->logs.lock);
}

/* The next block in use from where the last search ended, and whose it is; 0: none. */
static uint32_t block_next(struct process *process, uint32_t *owner)
{
    struct logs *logs = &process->logs;
    spin_lock(&logs->lock);
    uint32_t block = buddy_next(&logs->blocks, logs->cursor + 1);
    block = block != 0 ? block : buddy_next(&logs->blocks, 1);
    logs->cursor = block;
    *owner = block != 0 ? logs->owners[block - 1] : 0;
    spin_unlock(&logs->lock);
    return block;
}

/* Gives back the memory of a log whose window is empty, if it is that still. */
static void block_reclaim(struct process *process, uint32_t block, uint32_t owner, uint64_t now_ns)
{
    const struct cell *cell = &process->table.cells[owner];
    struct log_place *place = place_of(process, owner);
    if (!spin_trylock(&place->lock)) {
        return;
    }
    /* Only a log's cell has a block, and only under the lock its state changes. Who holds units there has been promised
     * room (acquire: the hold came before the promise, which was made under this lock). */
    if (place->block == block && load_relaxed(&cell->state.a) <= now_ns &&
        (load_acquire(&cell->held) & HELD_UNITS) == 0) {
        block_give(process, block);
        place->block = 0;
    }
    spin_unlock(&place->lock);
}

/* A block for a cell, if need be from logs whose windows are empty; the caller has the lock of the cell's log. */
static uint32_t block_find(struct process *process, uint32_t cell, size_t size, uint64_t now_ns)
{
    uint32_t block = block_take(process, cell, size);
    uint32_t first = 0;
    for (unsigned i = 0; i < RECLAIM_BLOCKS && block == 0; i++) {
        uint32_t owner;
        const uint32_t other = block_next(process, &owner);
        if (other == 0 || other == first) {
            break; /* once around */
        }
        first = first != 0 ? first : other;
        if (owner != cell) {
            block_reclaim(process, other, owner, now_ns);
            block = block_take(process, cell, size);
        }
    }
    return block;
}

static uint32_t ring_for(const struct rule *rule, uint64_t units)
{
    const uint64_t wanted = min_u64(units, min_u64(max_u64(rule->limit, rule->log_most), WEIR_MAX_LOG_UNITS));
    uint32_t capacity = FIRST_CAPACITY;
    while (capacity < wanted) {
        capacity *= 2;
    }
    return capacity;
}

struct log *logs_room(struct process *process, uint32_t cell, const struct rule *rule, uint64_t units, uint64_t now_ns)
{
    struct log_place *place = place_of(process, cell);
    struct log *log = logs_get(process, cell);
    const uint64_t own = log != NULL ? log->end - log->first : 0;
    const uint32_t capacity = ring_for(rule, saturating_add(own, units));
    if (log != NULL && log->capacity >= capacity) {
        return log;
    }
    const struct state state = cell_state(pair_read(&process->table.cells[cell].state));
    const bool resumed = log == NULL && state.a > now_ns; /* only then is there a state without a log */
    const uint32_t own_groups = resumed ? 1 : log != NULL ? log->group_capacity : 0;
    const uint32_t groups = process->fleet ? (uint32_t) min_u64(capacity, LOG_GROUPS) : own_groups;
    const size_t size = log_size(capacity, groups);
    const uint32_t block = block_find(process, cell, size, now_ns);
    if (block == 0) {
        return NULL;
    }
    struct log *grown = buddy_at(&process->logs.blocks, block);
    log_init(grown, capacity, groups);
    if (log != NULL) {
        log_copy(grown, log);
        block_give(process, place->block);
    }
    if (resumed) {
        /* When each passed is not known: they leave together, when the last one would. */
        const struct log_group all = {.time_ns = saturating_sub(state.a, rule->period_ns), .units = state.b};
        log_set_others(grown, &all, 1);
    }
    place->block = block;
    return grown;
}

void logs_resume(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns)
{
    if (rule_is_log(rule) && load_relaxed(&process->table.cells[cell].state.a) > now_ns) {
        logs_lock(process, cell);
        (void) logs_room(process, cell, rule, 1, now_ns);
        logs_unlock(process, cell);
    }
}

/* The state becomes the log's summary. False: the cell is not this hash's (0: it is pinned). */
static bool publish(struct process *process, uint32_t at, uint64_t hash, struct log *log, const struct rule *rule)
{
    struct cell *cell = &process->table.cells[at];
    const struct state summary = log_summary(log, rule);
    struct pair_value value;
    do {
        if (!cell_read(cell, hash, &value) && hash != 0) {
            return false;
        }
        const struct state now = cell_state(value);
        if (now.a == summary.a && now.b == summary.b) {
            return true;
        }
    } while (!pair_cas(&cell->state, &value, cell_value(summary, value)));
    return true;
}

bool logs_refresh(struct process *process, uint32_t cell, uint64_t hash, const struct rule *rule, uint64_t now_ns)
{
    /* [T1] the lock's acquire: who vacated the cell before is seen here; who does after waits with the block. */
    if (load_acquire(&process->table.cells[cell].hash) != hash) {
        return false;
    }
    struct log *log = logs_get(process, cell);
    if (log == NULL) {
        return true;
    }
    log_expire(log, rule, now_ns);
    return publish(process, cell, hash, log, rule);
}

void logs_publish(struct process *process, uint32_t cell, const struct rule *rule)
{
    struct log *log = logs_get(process, cell);
    if (log != NULL) {
        (void) publish(process, cell, 0, log, rule);
    }
}

bool logs_charge(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns, uint64_t units)
{
    logs_lock(process, cell);
    struct log *log = logs_get(process, cell);
    if (log != NULL) {
        log_expire(log, rule, now_ns);
    }
    struct log *room = logs_room(process, cell, rule, units, now_ns);
    log = room != NULL ? room : log; /* no memory: the oldest units give way */
    if (log != NULL) {
        log_push(log, now_ns, units);
        (void) publish(process, cell, 0, log, rule);
    }
    logs_unlock(process, cell);
    return log != NULL;
}

uint64_t logs_forget(struct process *process, uint32_t cell, struct orphan *orphan)
{
    struct log_place *place = place_of(process, cell);
    uint64_t lost = 0;
    logs_lock(process, cell);
    struct log *log = logs_get(process, cell);
    orphan->time_count = 0;
    if (log != NULL) {
        const uint64_t from = max_u64(log->first, log->told);
        const uint64_t count = min_u64(saturating_sub(log->end, from), ORPHAN_TIMES);
        orphan->first = log->end - count;
        orphan->time_count = (uint32_t) count;
        for (uint32_t i = 0; i < count; i++) {
            orphan->times[i] = *log_time(log, orphan->first + i);
        }
        lost = saturating_sub(log->end, from) - count;
        block_give(process, place->block);
        place->block = 0; /* G2 */
    }
    logs_unlock(process, cell);
    return lost;
}
