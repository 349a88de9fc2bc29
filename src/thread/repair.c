/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See repair.h. First the locks of slots are taken over, also those of other threads' slots, which a thread of the dead
 * process was settling. What had passed on such a grant may be charged a second time then, and is never lost. Then the
 * handles are detached as their threads would have done it: grants need no barrier, as their owner does not run.
 *
 * Invariant: the place of a dead process is free only after all of it is repaired. So no other process has its index
 * before, and a lock with the index is that of the dead one.
 */
#include "thread/repair.h"

#include "thread/joined.h"
#include "thread/limiter.h"
#include "thread/rcu.h"
#include "thread/settle.h"
#include "thread/thread.h"

static void repair_process(struct limiter *limiter, uint32_t process)
{
    const uint32_t high = load_acquire(&limiter->shared->thread_high); /* pairs with thread_attach() */
    for (uint32_t i = 0; i < high; i++) {
        settle_dead(&limiter->threads[i], process);
    }
    for (uint32_t i = 0; i < high; i++) {
        struct weir_thread *t = &limiter->threads[i];
        if (thread_is_of(t, process)) {
            rcu_end_dead(t);
            thread_detach_dead(t, process);
        }
    }
    rcu_end_dead_lanes(limiter, process);
    (void) joined_leave_begin(limiter);
    joined_leave(limiter, process);
}

static void repair_if_dead(struct limiter *limiter, uint32_t process)
{
    if (process != limiter->joined_as && joined_is_dead(limiter, process)) {
        repair_process(limiter, process);
    }
}

void repair_next(struct limiter *limiter, uint32_t *cursor)
{
    uint32_t looked = 0;
    do {
        *cursor = (*cursor + 1) % limiter->max_processes;
    } while (load_relaxed(&limiter->joined[*cursor].pid) == 0 && ++looked < limiter->max_processes);
    repair_if_dead(limiter, *cursor);
}

void repair_all(struct limiter *limiter)
{
    for (uint32_t process = 0; process < limiter->max_processes; process++) {
        repair_if_dead(limiter, process);
    }
}
