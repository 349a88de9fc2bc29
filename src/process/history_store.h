/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the sliding logs; see history_store.c. */
#ifndef WEIR_PROCESS_HISTORY_STORE_H
#define WEIR_PROCESS_HISTORY_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/history.h"
#include "algorithm/rule.h"
#include "base/atomics.h"
#include "base/buddy.h"

/* Where a cell's log is. */
struct history_place {
    _Atomic uint32_t lock;
    uint32_t block; /* 0: none. Under the lock */
};

/* The memory of the sliding logs. */
struct history_store {
    _Atomic uint32_t lock;        /* guards the blocks; a log itself is guarded by its place's */
    struct history_place *places; /* by cell; touched under limits that are logs alone */
    size_t places_size;
    struct buddy blocks;
    uint32_t *metas; /* by block: its cell */
    uint32_t cursor; /* where the last search for logs that are over ended */
    void *memory;
    size_t memory_size;
};

struct process;
struct evicted_report;

/* 0 or -ENOMEM; history_store_close may be called whatever came of it. */
int history_store_open(struct history_store *histories, size_t max_units, size_t cell_count);
void history_store_close(struct history_store *histories);

/* A log is looked at, and its cell's state changed, under its lock. */
void history_store_lock(struct process *process, uint32_t cell);
void history_store_unlock(struct process *process, uint32_t cell);
/* NULL: nothing was ever counted there. */
struct history *history_store_get(struct process *process, uint32_t cell);
/* The log with room for so many more units; NULL: no memory. */
struct history *history_store_room(struct process *process, uint32_t cell, const struct rule *rule, uint64_t units,
                                   uint64_t now_ns);
/* Gives a cell that begins with what its key is remembered to have used its log, if there is room. */
void history_store_resume(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns);
/* Drops what has left the window, and brings the state up to date. False: the cell is not this hash's. */
bool history_store_refresh(struct process *process, uint32_t cell, uint64_t hash, const struct rule *rule,
                           uint64_t now_ns);
/* Brings the state of a pinned cell up to date with its log. */
void history_store_publish(struct process *process, uint32_t cell, const struct rule *rule);
/* Charges a pinned cell, whether there is room or not. False: there was no memory to count it in. */
bool history_store_charge(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                          uint64_t units);
/* Frees the log of a claimed, vacant cell; keeps what the fleet has not had. Returns how many units that lost. */
uint64_t history_store_evict(struct process *process, uint32_t cell, struct evicted_report *evicted);

#endif
