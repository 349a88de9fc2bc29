/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The top offenders: of every policy and its tiers, the keys that were denied most units lately.
 *
 * A denial counts where it comes off the fast path anyway: when a slot is settled, or when the table denies a key
 * without one. Each cell has a count of its own for that, and a bit; the background thread takes both in turn, and adds
 * what it finds to the policy's list (top_k.h). A key's count is halved every TOP_DENIED_HALF_LIFE_NS, so one
 * that is denied d units a minute without end stands at d to 2 d, and one that has left is soon below the others.
 *
 * Counted are units as the fleet is told of the demand: not what can never pass, nor what an entry of the key's own
 * denies. In shadow mode, what would have been denied. Of a request that costs more than one that was denied before in
 * the same tick, as many as that one. Not counted are keys without a place in the table, and what a key was denied
 * since the last collection when it is forgotten: it has then used a part of its limit at least, so others go first.
 *
 * Invariants
 *   O1  A cell's units are what the key of that cell was denied since it was last collected; 0 after the cell has
 *       changed hands. (A denial without a slot pins no cell. One that is overtaken by another key counts for that.)
 *
 *   O2  Its units are not 0 -> the cell is in `denied`; or it is about to be, by who made it so; or the background
 *       thread has taken it from there, and is about to take the units; or the cell changes hands, and they are
 *       dropped. So only who finds 0 marks the cell.
 *
 * Ordering
 *   [O3] units before bit, as [T4] of bitmap.h: units are added by a seq_cst operation before the bit is looked at; the
 *        bit is cleared before they are taken. `any` stands above the bits as those above the units.
 *
 *   [O4] A name is written by whoever has the cell pinned and begins it; read, pinned, when it is done (acquire).
 *
 * Progress: top_denied_add is lock-free and allocates nothing. The background thread collects at most TOP_DENIED_MOST
 * cells at a time, and only tries the lock; what reads the lists takes it. No check does.
 */
#ifndef WEIR_PROCESS_TOP_DENIED_H
#define WEIR_PROCESS_TOP_DENIED_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/top_k.h"
#include "base/atomics.h"
#include "base/numbers.h"
#include "process/bitmap.h"
#include "process/key_name.h"
#include "weir/weir.h"

/* weir.h promises this one. */
#define TOP_DENIED_HALF_LIFE_NS (60 * NS_PER_S)

/* How often denials are collected, and cells at most: 0.3 ms of work, some 1% of a core. */
#define TOP_DENIED_EVERY_NS (32 * NS_PER_MS)
#define TOP_DENIED_MOST     2048

/* Of a cell's key. */
struct denied_entry {
    _Atomic uint32_t units; /* denied since the last collection; saturates */
    _Atomic uint8_t naming; /* NAMING_* */
    struct key_name key;
};

enum { NAMING_NONE, NAMING_BEGUN, NAMING_DONE };

struct top_denied {
    struct denied_entry *entries; /* by cell; touched for keys that are denied alone */
    struct bitmap denied;         /* cells to be collected */
    _Atomic uint32_t any;         /* 1: `denied` is not empty */
    uint32_t cell_count;
    pthread_mutex_t lock; /* guards the lists */
    struct top_k *lists;  /* by the group's id */
    struct top_k *recent; /* the same since the owner of this memory took it; no lock guards it. NULL: nobody asks */
    uint32_t highest;     /* id of which there was anything to list */
    /* The background thread's own. */
    uint32_t cursor;
    uint64_t next_ns, halve_ns; /* monotonic; 0: it has not begun */
    /* Statistics. */
    _Atomic uint64_t denied_units;         /* in the lists; by the background thread */
    _Atomic uint64_t evicted_denied_units; /* of keys that were forgotten first */
    void *lists_memory;
    size_t entries_size, lists_size;
};

struct process;
struct policy;

/* 0; -ENOMEM. Takes zeroed memory; top_denied_close may be called whatever came of it. */
int top_denied_open(struct top_denied *top_denied, size_t cell_count);
void top_denied_close(struct top_denied *top_denied);

/* What the key is called whose first limit this cell is, before it is denied; once for each stay of a key. */
void top_denied_name(struct process *process, const struct policy *policy, const weir_key *key, uint32_t cell);

/* A cell's key was denied `units`; the cell is of its policy's first limit, so that each denial counts once. */
void top_denied_add(struct process *process, uint32_t cell, uint64_t units);

/* Asks for the line of a cell's count, where a denial is likely: it comes while the table decides. */
static inline void top_denied_prefetch(const struct top_denied *top_denied, uint32_t cell)
{
    __builtin_prefetch((const void *) &top_denied->entries[cell], 1);
}

/* A key moves from one claimed cell to another. */
void top_denied_move(struct process *process, uint32_t from, uint32_t to);

/* A claimed cell is about to change hands. */
void top_denied_evict(struct process *process, uint32_t cell);

/* Collects, and halves, what is due. By the background thread. */
void top_denied_step(struct process *process, uint64_t monotonic_ns);

/* A copy of a group's list. Any thread; takes the lock. */
void top_denied_read(struct process *process, weir_policy_id group, struct top_k *out);

/* A list's top, most first; returns how many, at most `most` and WEIR_TOP_OFFENDERS. */
size_t top_denied_list(const struct top_k *list, const weir_key_form *form, weir_offender *out, size_t most);

/* Units that WEIR_TOP_OFFENDERS of a list were denied, at least. */
uint64_t top_denied_sure(const struct top_k *list);

#endif
