/* SPDX-License-Identifier: Apache-2.0 */
/* What one weir is to its threads: the table of keys, the threads that check, and their clock. */
#ifndef WEIR_THREAD_LIMITER_H
#define WEIR_THREAD_LIMITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/barrier.h"
#include "process/process.h"
#include "thread/fork_mark.h"
#include "thread/joined.h"
#include "thread/thread.h"
#include "thread/tick.h"

/* Read sections of a process's callers without a handle (rcu.c). Lanes keep such callers from writing one line. */
#define RCU_LANES 8

struct rcu_lane {
    _Alignas(CACHE_LINE) _Atomic uint32_t inside[2]; /* callers in a section, by the phase they found */
};

struct rcu {
    _Alignas(CACHE_LINE) _Atomic uint32_t lock; /* of the one caller that waits for readers: joined_as + 1; 0: free */
    _Atomic uint32_t phase;
};

/* Why a thread got no handle. */
enum attach_failure {
    ATTACH_FULL,    /* max_threads are attached */
    ATTACH_NO_ROOM, /* the file system of the segment has no room for the handle's memory */
    ATTACH_FAILURES,
};

/* What changes of a limiter. It has no pointers, as struct process_shared. */
struct limiter_shared {
    struct tick_line line;
    struct rcu rcu;
    _Atomic uint32_t thread_high;    /* threads[] in use lie below */
    _Atomic uint32_t joined_high;    /* joined[] that were ever in use lie below */
    _Atomic uint32_t joined_count;   /* processes that have entered, and not begun to leave */
    _Atomic uint64_t repair_from_ns; /* no repair begins before, monotonic: a halt has failed */
    _Atomic uint32_t repairing;      /* joined_as + 1 of the process that repairs, or 0; above: a count (repair.c) */
    _Atomic uint64_t attach_failures[ATTACH_FAILURES]; /* calls that gave no handle */
};

struct limiter {
    struct limiter_shared *shared;
    struct process process;
    struct weir_thread *threads; /* max_threads of them; this process's own, as they have pointers */
    size_t threads_size;
    uint32_t max_threads;
    struct joined_process *joined; /* max_processes of them */
    uint32_t max_processes;
    uint64_t pid_namespace; /* of the process that has opened; joined_pid_namespace() */
    uint32_t joined_as;     /* the index of this process among them */
    struct fork_mark mark;  /* of the process that has opened or joined. Another one has a copy, and no index */
    struct rcu_lane *lanes; /* RCU_LANES for each of these processes */
    enum barrier_reach reach;
    const weir_clock *clock;
    uint64_t tick_ns;
    bool host_time;       /* time moves only in weir_poll */
    bool may_stand_still; /* it has no thread that ticks: see tick.c */
    bool grants;          /* false: no asymmetric barrier here, everything is decided in the table */
    /* Repairs what dead processes left (repair.h); outside of read sections. NULL: no process is joined. */
    void (*repair)(struct limiter *limiter);
    /* See misuse.h. A sentence about a call; NULL: nobody is told. */
    void (*misused)(struct limiter *limiter, const char *sentence);
    bool is_watched;
    _Atomic uint32_t is_closed, misuses; /* of one that is watched; the kinds that were told */
    /* A thread that checks looks at the clock, where there may be no other one that ticks. NULL: nobody is told. */
    void (*looked)(struct limiter *limiter, uint64_t monotonic_ns);
    void *memory; /* of all that is shared but the threads' own */
    size_t memory_size;
    void *slots; /* of each thread in turn: its slots, and what else is its own. Present from the first attach on */
    size_t slots_size, thread_size;
    struct limiter *watched_next; /* list of handle.c */
};

/*
 * Handles in use lie below this. In memory that is damaged the number may be any, so it is bounded. Acquire: pairs with
 * thread_attach(), which raises it before the handle has an owner.
 */
static inline uint32_t limiter_thread_high(const struct limiter *limiter)
{
    const uint32_t high = load_acquire(&limiter->shared->thread_high);
    return high < limiter->max_threads ? high : limiter->max_threads;
}

/* What limiter_open() takes. */
struct limiter_options {
    struct process_options process;
    uint32_t max_threads;
    uint32_t max_processes; /* 1: the limiter is not shared */
};

/*
 * 0; -ENOMEM. Takes zeroed memory. Whatever came of it, limiter_close() is called once. In a segment that another
 * process has made this process is not joined yet.
 */
int limiter_open(struct limiter *limiter, const struct limiter_options *options);
void limiter_close(struct limiter *limiter);

/* Zeros the memory of a handle that is present, but for its counters: none of its slots is a key's. */
void limiter_clear_thread(const struct limiter *limiter, uint32_t index);

/* Makes this process the joined one of that index, until it ends or limiter_forget(). A forked child is not joined. */
void limiter_join(struct limiter *limiter, uint32_t index);
void limiter_forget(struct limiter *limiter);

/* Whether this process has a handle: it takes part in what is done at the table. */
bool limiter_has_handles(const struct limiter *limiter);

#endif
