/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read-copy-update: readers of the policy set, and when a set may be freed. A read section is a few plain stores, so
 * that a slow pass may have one. The counters lie beside the table, where other readers than threads of this process
 * may have theirs.
 *
 * A thread with a handle counts in the handle (thread_shared.rcu_count): an odd count means that the thread is in a
 * section. Callers without a handle count in lanes that several of them may share.
 *
 * Ordering
 *   [R1] The reader's count, then what it reads: rcu_enter against rcu_synchronize, which publishes first and looks at
 *        the counts then. The asymmetric barrier stands between the two (barrier.h), or a fence of the reader where
 *        this kernel has none. So the reader sees what was published, or its count is seen.
 *   [R2] The end of a section: rcu_leave stores the count with release, rcu_synchronize loads it with acquire.
 *
 * Progress: rcu_enter and rcu_leave are wait-free. rcu_synchronize blocks for as long as the longest section lasts.
 */
#ifndef WEIR_THREAD_RCU_H
#define WEIR_THREAD_RCU_H

#include "base/atomics.h"
#include "thread/limiter.h"
#include "thread/thread.h"

/* A read section of a thread with a handle; sections may be nested. */
static inline void rcu_enter(struct weir_thread *t)
{
    if (t->shared->rcu_depth++ != 0) {
        return;
    }
    counter_add(&t->shared->rcu_count, 1);
    if (unlikely(!t->limiter->grants)) {
        fence_seq_cst(); /* [R1] no asymmetric barrier here */
    }
    fence_compiler(); /* [R1] */
}

static inline void rcu_leave(struct weir_thread *t)
{
    if (--t->shared->rcu_depth == 0) {
        store_release(&t->shared->rcu_count, load_relaxed(&t->shared->rcu_count) + 1); /* [R2] */
    }
}

/* A read section of a caller without a handle. Returns what ends it; sections may be nested. */
unsigned rcu_enter_lane(struct limiter *limiter);
void rcu_leave_lane(struct limiter *limiter, unsigned lane);

/* Returns when all read sections that were open at the call have ended. Blocks; not to be called within a section. */
void rcu_synchronize(struct limiter *limiter);

/* The sections of a process that has died have ended: of a handle of that process, and of its callers without one. */
void rcu_end_dead(struct weir_thread *t);
void rcu_end_dead_lanes(struct limiter *limiter, uint32_t process);

#endif
