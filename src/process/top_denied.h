/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * The most denied keys of every policy and its tiers (struct weir_offender).
 *
 * A denial is counted where it leaves the fast path anyway: when a slot is settled, or when the table denies a key
 * without one. Each cell has a count for that, and a bit. The background thread collects both in turn, and adds the
 * units to the policy's list (top_k.h). A key's count is halved every TOP_DENIED_HALF_LIFE_NS. So a key that is denied
 * d units a minute stays between d and 2 d, and a key that has stopped soon falls below the others.
 *
 * Units are counted as in the demand that the fleet is told: without units that can never pass, and without denials by
 * an override of the key itself. In shadow mode, units that would have been denied count. A request that costs more
 * than one denied before in the same tick counts as many units as that one. Two losses: keys without a cell are not
 * counted, and an evicted key loses its count since the last collection. A key that was denied has used a part of its
 * limit, so others are evicted first.
 *
 * Invariants
 *   O1  A cell's units are those that its key was denied since the last collection; 0 after the cell got another key.
 *       (A denial without a slot pins no cell. If the cell gets another key meanwhile, the denial counts for that key.)
 *   O2  If a cell's units are not 0, the cell is in `denied`; but for three moments. The thread that raised the units
 *       from 0 is about to put the cell there. The background thread has taken the cell and is about to take the units.
 *       The cell gets another key, and the units are dropped. So only a thread that raises units from 0 sets the bit.
 *
 * Ordering
 *   [O3] Units before bit, as [T4] of bitmap.h: units are added by a seq_cst operation before the bit is looked at; the
 *        bit is cleared before the units are taken. `any` relates to the bits as the bits do to the units.
 *   [O4] A name is written by the thread that has pinned the cell and won naming; it is read when naming is done
 *        (acquire), with the cell pinned.
 *
 * Progress: top_denied_add is lock-free and allocates nothing. The background thread collects at most TOP_DENIED_MOST
 * cells at a time, and only tries the lock; readers of the lists take it. No check takes it.
 */
/* clang-format on */
#ifndef WEIR_PROCESS_TOP_DENIED_H
#define WEIR_PROCESS_TOP_DENIED_H

#include <stddef.h>
#include <stdint.h>

#include "algorithm/top_k.h"
#include "base/compiler.h"
#include "base/numbers.h"
#include "process/bitmap.h"
#include "process/key_name.h"
#include "process/robust_mutex.h"
#include "weir/weir.h"

/* weir.h promises this one. */
#define TOP_DENIED_HALF_LIFE_NS (60 * NS_PER_S)

/*
 * How often denials are collected. That is done in pieces: the time between two of them, and the cells of one. A piece
 * is 10 us of work, some 1% of a core: a server's thread that shares a processor with the background thread waits for
 * no more. A piece that comes late is as large as those that it stands for, up to TOP_DENIED_MOST cells.
 */
#define TOP_DENIED_EVERY_NS (32 * NS_PER_MS)
#define TOP_DENIED_PIECE_NS NS_PER_MS
#define TOP_DENIED_PIECE    64
#define TOP_DENIED_MOST     2048

/* The denials of a cell's key. */
struct denied_entry {
    _Atomic uint32_t units; /* denied since the last collection; saturates */
    _Atomic uint8_t naming; /* NAMING_* */
    struct key_name key;
};

enum { NAMING_NONE, NAMING_BEGUN, NAMING_DONE };

/* What changes beside the entries and the lists. It has no pointers, as struct process_shared. */
struct top_denied_shared {
    _Atomic uint32_t any;     /* 1: `denied` is not empty */
    struct robust_mutex lock; /* guards the lists */
    /* The background thread's own. */
    uint32_t cursor;
    uint64_t next_ns, halve_ns; /* monotonic; 0: it has not begun */
    /* Statistics. */
    _Atomic uint64_t denied_units;         /* in the lists; by the background thread */
    _Atomic uint64_t evicted_denied_units; /* of keys that were evicted first */
    /* By the group's id: lists that are present. The others are empty, and not touched. Under the lock. */
    unsigned char listed[WEIR_MAX_POLICIES + 1];
};

struct top_denied {
    struct top_denied_shared *shared;
    struct denied_entry *entries; /* by cell; touched only for keys that are denied */
    struct bitmap denied;         /* cells to be collected */
    uint32_t cell_count;
    struct top_k *lists;  /* by the group's id */
    struct top_k *recent; /* lists since the denial log last took them; the background thread's own. NULL: no log */
    void *memory;         /* with the bitmap and what is shared */
    size_t entries_size, lists_size, memory_size;
};

struct process;
struct policy;

struct pages_owner;

/* 0; -ENOMEM. Takes zeroed memory. top_denied_close may be called whatever came of it. */
int top_denied_open(struct top_denied *top_denied, size_t cell_count, struct pages_owner *pages);
void top_denied_close(struct top_denied *top_denied, const struct pages_owner *pages);

/* Writes the name of a key before it is denied; once for each stay. The cell is that of the policy's first limit. */
void top_denied_name(struct process *process, const struct policy *policy, const weir_key *key, uint32_t cell);

/* A cell's key was denied `units`; the cell is of its policy's first limit, so that each denial counts once. */
void top_denied_add(struct process *process, uint32_t cell, uint64_t units);

/* Whether the name is there that top_denied_name() would write. Relaxed: a hint, as the cell may get another key. */
static inline bool top_denied_has_name(const struct top_denied *top_denied, uint32_t cell)
{
    return load_relaxed(&top_denied->entries[cell].naming) == NAMING_DONE;
}

/* Prefetches a cell's count where a denial is likely, while the table decides. */
static inline void top_denied_prefetch(const struct top_denied *top_denied, uint32_t cell)
{
    prefetch_line(&top_denied->entries[cell]);
}

/* A key moves from one locked cell to another. */
void top_denied_move(struct process *process, uint32_t from, uint32_t to);

/* The thread that was about to name the cell's key has died; while no call is at the table. */
void top_denied_mend(struct process *process, uint32_t cell);

/* Alone: the lock is free, and the lists make sense. */
void top_denied_salvage(struct process *process, uint64_t monotonic_ns);

/* A locked cell is about to get another key. */
void top_denied_evict(struct process *process, uint32_t cell);

/* Whether top_denied_step() has something to do. By the background thread. */
static inline bool top_denied_is_due(const struct top_denied *top_denied, uint64_t monotonic_ns)
{
    return monotonic_ns >= top_denied->shared->next_ns;
}

/* When top_denied_step() has something to do again, where denials wait to be collected; else UINT64_MAX. */
uint64_t top_denied_next_ns(const struct top_denied *top_denied);

/* Collects and halves when due. By the background thread. */
void top_denied_step(struct process *process, uint64_t monotonic_ns);

/* A copy of a group's list. Any thread; takes the lock. */
void top_denied_read(struct process *process, weir_policy_id group, struct top_k *out);

/* The most denied keys of a list, most first: at most `most` and WEIR_TOP_OFFENDERS. Returns their number. */
size_t top_denied_list(const struct top_k *list, const weir_key_form *form, weir_offender *out, size_t most);

/* The least number of units that the first WEIR_TOP_OFFENDERS of a list were denied. */
uint64_t top_denied_sure(const struct top_k *list);

#endif
