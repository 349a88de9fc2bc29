/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: it would join the entries of the list. */
/*
 * Read-copy-update: readers of the policy set, and when a set may be freed. A read section is a few plain stores, so
 * that a slow pass may have one. The counters lie beside the table, where other readers than threads of this process
 * may have theirs.
 *
 * Calls change the table within a section alone. So a process that waits until no section is open is alone with the
 * table (rcu_halt.h), and repairs what a dead process left. Sections that begin then wait.
 *
 * A thread with a handle counts in the handle (thread_shared.rcu_count): an odd count means that the thread is in a
 * section. Callers without a handle count in lanes (rcu_lane.h).
 *
 * Ordering
 *   [R1] The reader's count, then what it reads: rcu_enter against rcu_synchronize, which publishes first and looks at
 *        the counts then. The asymmetric barrier stands between the two (barrier.h), or a fence of the reader where
 *        this kernel has none. So the reader sees what was published, or its count is seen.
 *   [R2] The end of a section: rcu_leave stores the count with release, rcu_synchronize loads it with acquire.
 *   [Q1] A halt: rcu_halt() stores halted_by, passes the barrier, and looks at the counts. A reader counts, and
 *        then looks at halted_by. So the section is seen, or waits. Partner: rcu_enter and rcu_enter_lane.
 *
 * Progress: rcu_enter and rcu_leave are wait-free. rcu_synchronize blocks for as long as the longest section lasts, but
 * no longer than ten seconds where processes share the limiter.
 */
/* clang-format on */
#ifndef WEIR_THREAD_RCU_H
#define WEIR_THREAD_RCU_H

#include "base/atomics.h"
#include "thread/limiter.h"
#include "thread/thread.h"

/* Waits until no process is alone with the table. */
void rcu_wait_resumed(struct limiter *limiter);

/* Leaves the section that a thread has just entered, and enters it anew when no process is alone with the table. */
void rcu_wait_halted(struct weir_thread *t);

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
    fence_compiler(); /* [R1] [Q1] */
    if (unlikely(process_is_halted(t->process))) {
        rcu_wait_halted(t);
    }
}

static inline void rcu_leave(struct weir_thread *t)
{
    if (--t->shared->rcu_depth == 0) {
        store_release(&t->shared->rcu_count, load_relaxed(&t->shared->rcu_count) + 1); /* [R2] */
    }
}

/*
 * A section for a change of the table that reads no policies. In a weir of one process nothing is repaired, and there
 * is none. True: there is a section, for rcu_leave_to_change().
 */
static inline bool rcu_enter_to_change(struct weir_thread *t)
{
    const bool shared = t->limiter->max_processes > 1;
    if (unlikely(shared)) {
        rcu_enter(t);
    }
    return shared;
}

static inline void rcu_leave_to_change(struct weir_thread *t, bool entered)
{
    if (unlikely(entered)) {
        rcu_leave(t);
    }
}

/*
 * Waits until all read sections that were open at the call have ended. Not to be called within a section. False, where
 * processes share the limiter: some have not ended in ten seconds; what they may read must stay as it is.
 */
bool rcu_synchronize(struct limiter *limiter);

/* The same, with another patience than ten seconds. */
bool rcu_synchronize_within(struct limiter *limiter, uint64_t patience_ns);

#endif
