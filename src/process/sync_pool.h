/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sync states of all cells: the memory, the pool of full states, and how a sync state follows its key.
 *
 * The background thread promotes a key (gives it a full state) when the key has something to report or to ask. It takes
 * that state from the key that was inspected longest ago, of a few (sampled LRU, as Redis evicts), and demotes it.
 *
 * Invariants and ordering: sync_state.h.
 *
 * Names: sync_, syncs_.
 */
#ifndef WEIR_PROCESS_SYNC_POOL_H
#define WEIR_PROCESS_SYNC_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "process/process.h"
#include "process/sync_state.h"

struct pages_owner;

/* 0 or -ENOMEM. */
int syncs_open(struct sync_states *syncs, size_t cell_count, struct pages_owner *pages);
void syncs_close(struct sync_states *syncs, const struct pages_owner *pages);

/* Bytes of the arrays for so many cells, without what is only present where it is used. */
size_t syncs_size(size_t cell_count);

/* Counts denied units, as a part of the key's demand. Any thread, without a pin. */
void sync_add_denied(const struct sync_states *syncs, uint32_t cell, uint64_t units);

/*
 * Of a locked cell: a new key's compact state, and its full state in a table whose cells all have one. `restored`: the
 * key's state was restored so, and counts as remote units; NULL: it was not.
 */
void sync_begin(struct process *process, uint32_t cell, const struct policy *policy, const struct rule *rule,
                const weir_key *key, const struct state *restored, uint64_t now_ns);

/* Of a locked cell: the key is evicted. Copies the last full state to `out` (NULL: not needed), and frees it. */
void sync_evict(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                struct sync_full *out);

/* Of two locked cells: the key moves with all its state. */
void sync_move(struct process *process, uint32_t from, uint32_t to);

/*
 * Of a pinned cell, by the background thread: the full state; or *room, which the compact state is expanded to. Takes
 * the denied units out of the compact state.
 */
struct sync_full *sync_load(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                            struct sync_full *room);

/*
 * Gives a pinned cell a full state with the contents of *room, from sync_load. NULL: all states that were looked at
 * are in use. States inspected in `round` stay with their keys.
 */
struct sync_full *sync_promote(struct process *process, uint32_t cell, const struct sync_full *room, uint32_t round);

/* Writes *room, from sync_load, back to the compact state of a pinned cell; nothing, if it is the full state. */
void sync_store(struct process *process, uint32_t cell, const struct sync_full *sync);

/* Takes a full state of the pool away from its key. False: the key's cell is locked, or the state is in use. */
bool sync_demote(struct process *process, uint32_t index);

/* Prefetches all of a cell but its full sync state, for the background thread. */
static inline void sync_prefetch_cell(const struct process *process, uint32_t cell)
{
    prefetch_line(&process->table.cells[cell]);
    prefetch_line(&process->table.metas[cell]);
    prefetch_line(&process->syncs.compacts[cell]);
}

/* Prefetches the full state of a cell whose compact state is cached. */
static inline void sync_prefetch(const struct sync_states *syncs, uint32_t cell)
{
    const struct sync_full *sync = sync_of(syncs, cell);
    for (size_t at = 0; sync != NULL && at < sizeof(*sync); at += CACHE_LINE) {
        prefetch_line((const char *) sync + at);
    }
}

/* Writes the state of a locked cell that gets no key. */
void sync_blank(struct process *process, uint32_t cell);

/* Alone: each full state is of one cell, and each number that is followed is in range. */
void syncs_salvage(struct process *process);

/* Frees the full states that no cell has; while no call is at the table. */
void sync_mend(struct sync_states *syncs, size_t cell_count);

#endif
