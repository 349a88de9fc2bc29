/* SPDX-License-Identifier: Apache-2.0 */
/* Giving a key a cell, and pinning it; see insert.c. */
#ifndef WEIR_PROCESS_INSERT_H
#define WEIR_PROCESS_INSERT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process/process.h"
#include "weir/weir.h"

struct policy;

/*
 * Locks a vacant cell for a hash that is not in the table, whose pairs are full, and whose first set is locked. The
 * caller fills the cell (I6). `moves`: also if other keys must move for it. TABLE_NONE: there is none.
 */
uint32_t insert_lock_room(struct process *process, uint64_t hash, bool moves);

/* Locks a set. False: another process wants to be alone with the table (process_is_halted). */
bool insert_wait_for_set(struct process *process, size_t set);

static inline bool insert_lock_set(struct process *process, size_t set)
{
    return table_lock_fast(&process->table, set) || insert_wait_for_set(process, set);
}

/* Prefetches what insert_lock_room() reads first to move a key of the hash's pairs, which are full. */
void insert_prefetch_moves(const struct table *table, uint64_t hash);

/* The cell of a key under one limit, after inserting the key if needed. TABLE_NONE: the table has no room. */
uint32_t insert_key(struct process *process, const struct policy *policy, size_t limit_index, const weir_key *key,
                    uint64_t now_ns);

/* The cells of a key, one per limit; missing ones are inserted. False: the table has no room. */
bool insert_locate(struct process *process, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                   uint32_t cells[WEIR_MAX_LIMITS]);

/* As insert_locate, and pins the cells until insert_unpin. */
bool insert_pin(struct process *process, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                uint32_t cells[WEIR_MAX_LIMITS]);
void insert_unpin(struct process *process, const struct policy *policy, const uint32_t cells[WEIR_MAX_LIMITS]);

#endif
