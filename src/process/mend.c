/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See mend.h. What leaks is in use from the death on. So a search finds all of it while calls go on. Calls wait while
 * the guards of sets and the bitmaps are read: some 20 MB for a table of 100 million keys. Where a block of a log is
 * lost, they wait while all cells are read.
 *
 * A cell that was locked between two keys must not become empty (I6 of table.h). It gets a key that nobody asks for,
 * with no usage, of no policy: the first to be evicted. What the evicted key had used is lost where the sketch did not
 * have it yet, as is what a key had used that was being moved.
 */
#include "process/mend.h"

#include <errno.h>
#include <stdlib.h>

#include "base/pages.h"
#include "process/history_store.h"
#include "process/process.h"
#include "process/sync_pool.h"

/* Frees a lock that a dead process has. The data under it changes by one store at a time. */
static void free_lock(_Atomic uint32_t *lock, const bool *dead)
{
    uint32_t word = load_relaxed(lock);
    if (process_is_dead_word(dead, word)) {
        (void) cas_acquire(lock, &word, 0); /* fails where another process did so */
    }
}

void mend_locks(struct process *process, const bool *dead)
{
    free_lock(&process->shared->oversized, dead);
    free_lock(&process->shared->evicted_reports.lock, dead);
    for (uint32_t at = 0; at < process->table.cell_count; at++) {
        if (cell_meta_is(&process->table.metas[at], CELL_HISTORY)) {
            history_store_mend_log(process, at, dead);
        }
    }
}

int mend_find(struct mend *mend, const struct process *process)
{
    mend->count = 0;
    mend->memory_size = process->table.cell_count * sizeof(*mend->cells);
    mend->cells = pages_reserve(mend->memory_size, PAGES_SPARSE);
    if (mend->cells == NULL) {
        return -ENOMEM;
    }
    for (uint32_t at = 0; at < process->table.cell_count; at++) {
        if ((load_relaxed(&process->table.cells[at].held) & HELD_IN_USE) != 0) {
            mend->cells[mend->count++].at = at;
        }
    }
    return 0;
}

void mend_end(struct mend *mend)
{
    pages_release(mend->cells, mend->memory_size);
    mend->cells = NULL;
}

static int compare_cells(const void *a, const void *b)
{
    const uint32_t first = ((const struct mend_cell *) a)->at;
    const uint32_t second = ((const struct mend_cell *) b)->at;
    return (first > second) - (first < second);
}

void mend_count(const struct mend *mend, uint32_t at, uint64_t units)
{
    const struct mend_cell key = {.at = at};
    struct mend_cell *found = bsearch(&key, mend->cells, mend->count, sizeof(key), compare_cells);
    if (found != NULL) { /* else the slot has pinned the cell since: what the cell counts is right */
        found->held += HELD_PIN + units;
    }
}

/* A hash that no key has, of which the first pair is the cell's. No two cells have the same. */
static uint64_t unused_hash(const struct table *table, uint32_t at)
{
    const uint64_t least = (uint64_t) (((wide_uint) (at / SET_CELLS) << 64) / table->set_count);
    return ((least | 15) + 17) | (at & 1) << 3 | (at & (SET_CELLS - PAIR_CELLS));
}

void mend_occupy_by_none(struct process *process, uint32_t at)
{
    struct table *table = &process->table;
    if (cell_meta_is(&table->metas[at], CELL_HISTORY)) {
        process->histories.places[at].block = 0; /* G2 */
        store_relaxed(&process->histories.shared->lost, 1);
    }
    top_denied_evict(process, at);
    cell_meta_write(&table->metas[at], 0, 0, 0);
    if (process->fleet) {
        sync_blank(process, at);
    }
    (void) table_vacate(table, at);
    table_occupy(table, at, unused_hash(table, at), (struct state){0, 0});
}

static void mend_cell(struct process *process, const struct mend_cell *mended)
{
    struct cell *cell = &process->table.cells[mended->at];
    struct dwcas_value value = dwcas_read(&cell->state);
    while (cell_is_marked(value) && !dwcas_swap(&cell->state, &value, cell_next_generation(value))) {
    }
    const uint64_t held = load_acquire(&cell->held); /* [T3] */
    if ((held & HELD_IN_USE) == mended->held) {
        return;
    }
    if ((held & HELD_LOCKED) != 0 && load_relaxed(&cell->hash) == 0) {
        mend_occupy_by_none(process, mended->at);
    }
    top_denied_mend(process, mended->at);
    store_release(&cell->held, ((held | HELD_IN_USE) + 1) | mended->held); /* the next version */
}

void mend_cells(const struct mend *mend, struct process *process, const bool *dead)
{
    for (size_t i = 0; i < mend->count; i++) {
        mend_cell(process, &mend->cells[i]);
    }
    for (size_t set = 0; set < process->table.set_count; set++) {
        if (load_relaxed(&process->table.guards[set].lock) != 0) {
            table_unlock(&process->table, set);
        }
    }
    bitmap_mend(&process->top_denied.denied);
    if (process->fleet) {
        bitmap_mend(&process->table.dirty);
        bitmap_mend(&process->table.urgent);
        bitmap_mend(&process->table.deferred);
        sync_mend(&process->syncs, process->table.cell_count);
    }
    history_store_mend_blocks(process, dead);
}
