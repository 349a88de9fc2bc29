/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's handle: its slots, its tallies, and the line that all threads read. */
#ifndef WEIR_THREAD_THREAD_H
#define WEIR_THREAD_THREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "process/admission.h"
#include "thread/tick.h"
#include "weir/weir.h"

/* A thread's slots: sets of SLOT_WAYS, at most SLOT_MAX in all: 64 KiB of first lines, so they stay in a second cache.
 */
#define SLOT_WAYS 4
#define SLOT_MAX  1024

/* The most threads of a weir. */
#define THREADS_MOST 1024

/* Fingerprints of keys that were checked without a slot: 8 KiB, twice as many as there are slots. */
#define RECENT_COUNT 2048

/* Units of the largest grant: far below 2^32, as the low 32 bits of its end are enough (slot_word.h). */
#define GRANT_MAX (UINT64_C(1) << 20)

/* Checks of one policy by one thread. */
struct tally {
    _Atomic uint64_t allowed, denied;
    _Atomic uint64_t would_deny; /* of `allowed`: in shadow mode */
};

/*
 * The low bits of thread_shared.owner are one of these, or the token of the thread that the handle is bound to
 * (handle.h). The bits from HANDLE_PROCESS_SHIFT on are the index of the process that has the handle (joined.h).
 */
#define HANDLE_FREE    UINT64_C(0) /* the place can be attached to; the whole word is 0 */
#define HANDLE_UNBOUND UINT64_C(1) /* attached, and bound to no thread: weir_unbind */
#define HANDLE_LEAVING UINT64_C(2) /* being detached, by the thread that set this */

#define HANDLE_PROCESS_SHIFT 48 /* 1,024 processes need ten bits; tokens have the others, some 2^46 of them */
#define HANDLE_STATE_MASK    ((UINT64_C(1) << HANDLE_PROCESS_SHIFT) - 1)

/* The process that has the handle; only where the handle is not free. */
static inline uint32_t handle_process(uint64_t owner)
{
    return (uint32_t) (owner >> HANDLE_PROCESS_SHIFT);
}

struct process;
struct slot;
struct slot_account;
struct tick_line;
struct policy_snapshot;
struct policy_queue;
struct limiter;

/*
 * What changes of a handle, beside its slots and tallies. Other threads than the owner read it. It has no pointers, so
 * it may lie in memory that two processes see at different addresses. A struct weir_thread does not change after open,
 * but for `is_own` and `may_stand_still`.
 */
struct thread_shared {
    _Alignas(CACHE_LINE) _Atomic uint64_t owner; /* HANDLE_FREE; or HANDLE_* or a token, with a process */
    /* Counters of the owner. */
    _Atomic uint64_t slow_count;
    _Atomic uint64_t
        more_keys;         /* that were counted as allowed, beside the one for which a request that passed counts */
    uint64_t looked_count; /* slow_count when it last looked at the clock */
    _Atomic uint64_t rcu_count; /* odd: in a read section (rcu.h) */
    uint64_t rcu_depth;         /* sections that are open, one within the other */
    uint64_t time_ns;           /* of weir_set_time: the owner's monotonic time; 0: none, or the host has a clock */
    _Atomic uint64_t unknown_count, untracked_count, stalled_denied_count;
    struct admission_counts admissions;
    _Atomic uint64_t late_units;                /* added to by settlers */
    _Atomic uint32_t present;                   /* 1: the memory of the slots may be touched */
    _Atomic uint64_t slots_used[SLOT_MAX / 64]; /* a bit per slot that was ever used */
};

struct weir_thread {
    struct limiter *limiter;
    struct process *process; /* the limiter's */
    struct tick_line *line;
    struct slot *slots;
    struct slot_account *accounts;
    size_t slot_count;     /* a power of two */
    size_t slot_mask;      /* of the first slot of a set: slot_count - SLOT_WAYS */
    struct tally *tallies; /* by policy id */
    uint32_t *recent_keys;
    uint64_t *fingerprints;            /* by set of slots: see slot.h */
    uint32_t *set_busy_epochs;         /* by set of slots: an epoch in which all were in use */
    struct policy_snapshot *snapshots; /* by policy: see policy_snapshot.h */
    struct policy_queue *queues;       /* by policy, for weir_reserve */
    uint32_t index;
    bool is_watched;                  /* the limiter's */
    _Atomic uint32_t may_stand_still; /* 1: there may be no thread that ticks; see tick.c */
    uint32_t lock_word; /* what a lock of a slot has while this process has the lock: limiter.joined_as + 1 */
    /* 1: this process has attached it, whatever the shared part says where that is damaged. */
    _Atomic uint32_t is_own;
    struct thread_shared *shared;
};

/*
 * Every so many slow passes, some 10 us, a thread looks at the clock itself: far below a tick, and the look (20 ns) is
 * nothing beside 64 passes.
 */
#define CLOCK_EVERY 64

/* Whether nobody but slow passes may move the time, which is rare. */
static inline bool thread_may_stand_still(const struct weir_thread *t)
{
    return unlikely(load_relaxed(&t->may_stand_still) != 0);
}

static inline bool thread_wants_look(const struct weir_thread *t)
{
    return load_relaxed(&t->shared->slow_count) - t->shared->looked_count >= CLOCK_EVERY ||
           (thread_may_stand_still(t) && tick_stands_still(t->line, clock_read(CLOCK_MONOTONIC_COARSE)));
}

/*
 * A handle for the calling thread, with this owner: its token, or HANDLE_UNBOUND. NULL: all are in use, or there is no
 * room for its memory; that is counted.
 */
struct weir_thread *thread_attach(struct limiter *limiter, uint64_t owner);
/* Detaches a handle of this process; does nothing where it is not attached, or another thread is detaching it. */
void thread_detach(struct weir_thread *t);
/* Detaches a handle that is bound to the calling thread, by its token; does nothing where the handle is not. */
void thread_detach_bound(struct weir_thread *t, uint64_t token);
/* Frees a handle whose slots are free: the owner's, by HANDLE_LEAVING, or of a process that has died. */
void thread_free(struct weir_thread *t);
/* Sets the number of attached handles (tick_line.thread_count). Also where a process died as it did so. */
void thread_count(struct limiter *limiter);
/* Binds a handle to no thread. */
void thread_unbind(struct weir_thread *t);

#endif
