/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process layer: the table of keys, with everything that is kept of a key. It calls no thread and no fleet.
 */
#ifndef WEIR_PROCESS_PROCESS_H
#define WEIR_PROCESS_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/reference.h"
#include "base/spin.h"
#include "policy/policy_set.h"
#include "process/evicted_sketch.h"
#include "process/history_store.h"
#include "process/sync_states.h"
#include "process/table.h"
#include "process/top_denied.h"

struct evicted_report;
struct hash_secret;
struct pages_owner;
struct record_hash;

/* The last reports of evicted keys, until the background thread takes them (evict.h). */
struct evicted_reports {
    _Atomic uint32_t lock;
    uint64_t taken, put; /* so far; process.evicted_ring has those between. Each changes by one store */
    /* Shared keys whose eviction has begun (counted before the cell is vacated) and ended (after the report is here).
     */
    _Atomic uint64_t begun, ended;
};

/*
 * What changes of a process beside the table and the keys' states. It has no pointers, so it may lie in memory that two
 * processes see at different addresses.
 */
struct process_shared {
    struct reference policies; /* struct policy_set: see process_policies() */
    /* The process that wants to be alone with the table, by its lock_word; 0: none (rcu_halt). */
    _Atomic uint32_t halted_by;
    _Atomic uint32_t stalled; /* 1: a lock was waited for so long that its holder may have died */
    uint64_t origin_ns;       /* of the buckets' times; see struct rule. Under the lock of policy changes */
    _Atomic uint32_t nodes;   /* live nodes that share the limits; at least 1 */
    _Atomic uint64_t news_ns; /* fleet time of the last good sync; 0: none yet */
    /* Written by many threads from here on; the fields above are mostly read. */
    _Alignas(CACHE_LINE) struct evicted_reports evicted_reports;
    _Alignas(
        CACHE_LINE) _Atomic uint32_t oversized; /* lock of the one request that may hold more than HOLD_MOST units */
    _Atomic uint32_t urgent;                    /* 1: table.urgent is not empty */
    _Alignas(CACHE_LINE) _Atomic uint64_t evicted_unused_count, evicted_used_count, lost_report_count,
        evicted_restored_count, evicted_unrecorded_count;
};

/* The most processes that can be joined: the words of owners have ten bits for them. */
#define PROCESSES_MOST 1024

struct process {
    struct process_shared *shared;
    uint32_t lock_word; /* what the locks have that this process holds: not 0, and no other joined process's */
    uint64_t ticket;    /* what its mutexes have (robust_mutex.h): not 0, and never another process's */
    struct table table;
    struct sync_states syncs; /* where there is a fleet */
    struct sketch sketch;
    const struct hash_secret *secret;      /* of the hashes of keys; the caller's */
    const struct record_hash *record_hash; /* of keys that Redis knows by a hash; the caller's */
    bool fleet;                            /* this process is a node of a fleet */
    uint64_t interval_ns;                  /* between two syncs */
    struct evicted_report *evicted_ring;   /* EVICTED_COUNT of them: see evicted_reports */
    struct history_store histories;
    struct top_denied top_denied;
    void *memory;
    size_t memory_size;
    struct pages_owner *pages; /* NULL: this process alone has the memory */
    /* Frees locks that dead processes have and calls wait for (repair.h); true: there are dead. NULL: none is joined.
     */
    bool (*free_locks)(void *arg);
    bool (*has_died)(void *arg, uint64_t ticket); /* of its process, or there is none. NULL: as above */
    void *free_arg;                               /* of both */
};

/* The policies in force, for readers within a read section (thread/rcu.h), and for the thread that changes policies. */
static inline struct policy_set *process_policies(const struct process *process)
{
    return reference_get(&process->shared->policies);
}

/*
 * Whether a lock is that of a dead process: dead[i] tells of the one whose lock_word is i + 1. A word that no process
 * has is a dead one's, too: the memory is damaged.
 */
static inline bool process_is_dead_word(const bool *dead, uint32_t word)
{
    return word > PROCESSES_MOST || (word != 0 && dead[word - 1]);
}

/*
 * Whether another process waits until no call is at the table. A call that waits for a lock, or tries again, gives up
 * then: the lock may be that of a dead process.
 */
static inline bool process_is_halted(const struct process *process)
{
    return load_acquire(&process->shared->halted_by) != 0; /* [Q1]; [Q2] what the last halt mended */
}

/* Waits for a lock, of which the later ones yield the processor, after which its holder may have died: some ms. */
#define PROCESS_STALLED_AFTER (2 * SPIN_LIMIT)

/*
 * Waits a moment for a lock; `waits`: how often the caller has waited before. A lock of a dead process is freed by
 * another process, or, where none is alive, by a caller that waits. False: a dead process may have a lock that only a
 * repair frees, and nobody else may be there to repair.
 */
static inline bool process_wait(struct process *process, unsigned waits)
{
    bool dead = false;
    if (waits % PROCESS_STALLED_AFTER == 0 && waits != 0) {
        store_relaxed(&process->shared->stalled, 1); /* a hint to those that repair */
        if (waits != PROCESS_STALLED_AFTER && process->free_locks != NULL) {
            dead = process->free_locks(process->free_arg);
        }
    }
    spin_wait(waits);
    return !dead;
}

/* Takes one of the locks that a repair frees while calls wait for it (mend_locks). */
static inline void process_lock(struct process *process, _Atomic uint32_t *lock)
{
    for (unsigned waits = 0; !spin_trylock(lock, process->lock_word); waits++) {
        (void) process_wait(process, waits);
    }
}

/* Whether the fleet shares a policy's limits. */
static inline bool process_shares(const struct process *process, const struct policy *policy)
{
    return process->fleet && policy->scope == WEIR_SCOPE_FLEET;
}

/* What process_open() takes. */
struct process_options {
    size_t max_keys, max_log_units;
    bool fleet;
    uint64_t origin_ns;
    struct pages_owner *pages; /* of joined processes, which use the table too; NULL: there are none */
};

/* 0; -ENOMEM. Takes zeroed memory. Whatever came of it, process_close() is called once. */
int process_open(struct process *process, const struct process_options *options);
void process_close(struct process *process);

/* Bytes of reserved address space. */
size_t process_reserved(const struct process *process);

/* Bytes that grow with the keys: most of what process_open takes. */
size_t process_size(size_t max_keys, bool fleet);

#endif
