/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of the sliding logs; see history_store.c. */
#ifndef WEIR_PROCESS_HISTORY_STORE_H
#define WEIR_PROCESS_HISTORY_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/history.h"
#include "algorithm/rule.h"
#include "base/memory/buddy.h"

/* The place of a cell's log. */
struct history_place {
    _Atomic uint32_t lock;
    uint32_t block; /* 0: none. Guarded by the lock */
};

/* What changes beside the logs. It has no pointers, as struct process_shared. */
struct history_store_shared {
    _Atomic uint32_t lock; /* guards the blocks; a log is guarded by the lock of its place */
    _Atomic uint32_t lost; /* 1: a block may be in use by no log */
    uint32_t cursor;       /* where the last search for empty logs ended */
    struct buddy_shared blocks;
};

/* The memory of the sliding logs. */
struct history_store {
    struct history_store_shared *shared;
    struct history_place *places; /* by cell; touched only for limits that are sliding logs */
    void *places_memory;          /* with what is shared */
    size_t places_size;
    struct buddy blocks;
    uint32_t *metas; /* by block: its cell */
    void *memory;
    size_t memory_size;
};

struct process;
struct evicted_report;

struct pages_owner;

/* 0 or -ENOMEM. history_store_close may be called whatever came of it. */
int history_store_open(struct history_store *histories, size_t max_units, size_t cell_count, struct pages_owner *pages);
void history_store_close(struct history_store *histories, const struct pages_owner *pages);

/* A log is read, and its cell's state changed, under this lock. Unlocking publishes the log's end to checks. */
void history_store_lock(struct process *process, uint32_t cell);
void history_store_unlock(struct process *process, uint32_t cell);

/* The log of a cell, under its lock; NULL: none. */
struct history *history_store_get(struct process *process, uint32_t cell);

/* The log with room for `units` more, under its lock; NULL: no memory. */
struct history *history_store_room(struct process *process, uint32_t cell, const struct rule *rule, uint64_t units,
                                   uint64_t now_ns);

/* Gives a locked cell with a restored state a log, if there is memory. */
void history_store_resume(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns);

/* Drops units that have left the window, and updates the state; under the lock. False: the cell is not this hash's. */
bool history_store_refresh(struct process *process, uint32_t cell, uint64_t hash, const struct rule *rule,
                           uint64_t now_ns);

/* Updates the state of a pinned cell from its log, under the lock. */
void history_store_publish(struct process *process, uint32_t cell, const struct rule *rule);

/*
 * Charges a pinned cell, whether the units fit or not; under the lock. False: there was no memory to count them. The
 * log's end is by the units higher then, or by all that a log takes.
 */
bool history_store_charge(struct process *process, uint32_t cell, const struct rule *rule, uint64_t now_ns,
                          uint64_t units);

/* Frees the log of a locked, vacant cell; copies its unreported times. Returns how many unreported units are lost. */
uint64_t history_store_evict(struct process *process, uint32_t cell, struct evicted_report *evicted);

/*
 * Repairs what dead processes left; dead[i]: of the process whose lock_word is i + 1. The first ends their changes of
 * logs. By the second, which no call may overlap, only blocks that a log has are in use.
 */
void history_store_mend_log(struct process *process, uint32_t cell, const bool *dead);
void history_store_mend_blocks(struct process *process, const bool *dead);

/*
 * Alone: the lock of the blocks is free, and each log lies in a block of its own. A log that makes no sense is dropped:
 * the cell's state tells how much is in the window. The locks of the logs stay, until history_store_free_lock().
 */
void history_store_salvage(struct process *process, uint64_t now_ns);
void history_store_free_lock(struct process *process, uint32_t cell);

#endif
