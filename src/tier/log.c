/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of the sliding logs.
 *
 * A log lies outside the table, in a block that is taken when its key is first counted, grows with the units in the
 * window up to what its limit needs, and is given back when the key is forgotten or, when memory runs out, when nothing
 * is left in its window. The cell's state is the log's summary, so that whoever only wants to know whether a key can be
 * forgotten need not look here.
 *
 * Invariants
 *   G1  a log and its cell's state are changed under the note's log_lock, and agree when it is given up
 *   G2  a cell that is changing hands has no block: it is freed, under the lock, after the cell was vacated
 *
 * Progress: a lock per key, held for some 50 ns and one store per unit; the lock of the blocks within it.
 */
#include <string.h>

#include "base/numbers.h"
#include "base/spin.h"
#include "tier/tier.h"

/* A ring begins with as many units. */
#define FIRST_CAPACITY 8

/* Cells looked at for logs that are over, when there is no memory for a new one. */
#define RECLAIM_CELLS 4096

static struct note *note_of(struct tier *tier, uint32_t cell)
{
    return &tier->table.notes[cell];
}

void logs_lock(struct tier *tier, uint32_t cell)
{
    spin_lock(&note_of(tier, cell)->log_lock);
}

void logs_unlock(struct tier *tier, uint32_t cell)
{
    spin_unlock(&note_of(tier, cell)->log_lock);
}

struct log *logs_get(struct tier *tier, uint32_t cell)
{
    const uint32_t block = note_of(tier, cell)->log;
    return block != 0 ? buddy_at(&tier->logs.blocks, block) : NULL;
}

static uint32_t block_take(struct tier *tier, size_t size)
{
    spin_lock(&tier->logs.lock);
    const uint32_t block = buddy_take(&tier->logs.blocks, size);
    spin_unlock(&tier->logs.lock);
    return block;
}

static void block_give(struct tier *tier, uint32_t block)
{
    spin_lock(&tier->logs.lock);
    buddy_give(&tier->logs.blocks, block);
    spin_unlock(&tier->logs.lock);
}

/* Gives back the memory of some logs whose window is empty; all but that of `mine`, whose lock the caller has. */
static void reclaim(struct tier *tier, uint32_t mine, uint64_t now_ns)
{
    struct table *table = &tier->table;
    spin_lock(&tier->logs.lock);
    const uint32_t first = tier->logs.cursor;
    tier->logs.cursor = (uint32_t) ((first + (size_t) RECLAIM_CELLS) % table->cell_count);
    spin_unlock(&tier->logs.lock);
    for (size_t i = 0; i < RECLAIM_CELLS && i < table->cell_count; i++) {
        const uint32_t at = (uint32_t) ((first + i) % table->cell_count);
        struct note *note = note_of(tier, at);
        if (at == mine || !spin_trylock(&note->log_lock)) {
            continue;
        }
        /* Only a log's cell has a block, and only under the lock its state changes. */
        if (note->log != 0 && load_relaxed(&table->cells[at].state.a) <= now_ns) {
            block_give(tier, note->log);
            note->log = 0;
        }
        spin_unlock(&note->log_lock);
    }
}

static uint32_t ring_for(const struct rule *rule, uint64_t units)
{
    const uint64_t wanted = min_u64(units, min_u64(rule->limit, WEIR_MAX_LOG_UNITS));
    uint32_t capacity = FIRST_CAPACITY;
    while (capacity < wanted) {
        capacity *= 2;
    }
    return capacity;
}

struct log *logs_room(struct tier *tier, uint32_t cell, const struct rule *rule, uint64_t units, uint64_t now_ns)
{
    struct note *note = note_of(tier, cell);
    struct log *log = logs_get(tier, cell);
    const uint64_t own = log != NULL ? log->end - log->first : 0;
    const uint32_t capacity = ring_for(rule, saturating_add(own, units));
    if (log != NULL && log->capacity >= capacity) {
        return log;
    }
    const uint32_t groups = tier->fleet ? (uint32_t) min_u64(capacity, LOG_GROUPS) : 0;
    const size_t size = log_size(capacity, groups);
    uint32_t block = block_take(tier, size);
    if (block == 0) {
        reclaim(tier, cell, now_ns);
        block = block_take(tier, size);
    }
    if (block == 0) {
        return NULL;
    }
    struct log *grown = buddy_at(&tier->logs.blocks, block);
    log_init(grown, capacity, groups);
    if (log != NULL) {
        log_copy(grown, log);
        block_give(tier, note->log);
    }
    note->log = block;
    return grown;
}

/* The state becomes the log's summary. False: the cell is not this hash's (0: it is pinned). */
static bool publish(struct tier *tier, uint32_t at, uint64_t hash, struct log *log, const struct rule *rule)
{
    struct cell *cell = &tier->table.cells[at];
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

bool logs_refresh(struct tier *tier, uint32_t cell, uint64_t hash, const struct rule *rule, uint64_t now_ns)
{
    /* [T1] the lock's acquire: who vacated the cell before is seen here; who does after waits with the block. */
    if (load_acquire(&tier->table.cells[cell].hash) != hash) {
        return false;
    }
    struct log *log = logs_get(tier, cell);
    if (log == NULL) {
        return true;
    }
    log_expire(log, rule, now_ns);
    return publish(tier, cell, hash, log, rule);
}

void logs_publish(struct tier *tier, uint32_t cell, const struct rule *rule)
{
    struct log *log = logs_get(tier, cell);
    if (log != NULL) {
        (void) publish(tier, cell, 0, log, rule);
    }
}

void logs_charge(struct tier *tier, uint32_t cell, const struct rule *rule, uint64_t now_ns, uint64_t units)
{
    logs_lock(tier, cell);
    struct log *log = logs_get(tier, cell);
    if (log != NULL) {
        log_expire(log, rule, now_ns);
    }
    struct log *room = logs_room(tier, cell, rule, units, now_ns);
    log = room != NULL ? room : log; /* no memory: the oldest units give way */
    if (log != NULL) {
        log_push(log, now_ns, units);
        (void) publish(tier, cell, 0, log, rule);
    }
    logs_unlock(tier, cell);
}

uint64_t logs_forget(struct tier *tier, uint32_t cell, struct orphan *orphan)
{
    struct note *note = note_of(tier, cell);
    uint64_t lost = 0;
    logs_lock(tier, cell);
    struct log *log = logs_get(tier, cell);
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
        block_give(tier, note->log);
        note->log = 0; /* G2 */
    }
    logs_unlock(tier, cell);
    return lost;
}
