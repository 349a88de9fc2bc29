/* SPDX-License-Identifier: Apache-2.0 */
/* See rcu_halt.h. Ordering: [R2], [Q1] of rcu.h; [Q2], [R4] of rcu.c. */
#include "thread/rcu_halt.h"

#include "base/barrier.h"
#include "base/clock.h"
#include "base/spin.h"
#include "thread/limiter.h"
#include "thread/thread.h"

/* A thread that was preempted within a section runs again in some milliseconds; meanwhile all others wait. */
#define HALT_PATIENCE_NS (2 * NS_PER_MS)

/* How many threads are in a section, but for the dead. */
static uint32_t count_inside(const struct limiter *limiter, const bool *dead)
{
    uint32_t inside = 0;
    const uint32_t high = limiter_thread_high(limiter);
    for (uint32_t i = 0; i < high; i++) {
        const struct thread_shared *shared = limiter->threads[i].shared;
        const uint64_t owner = load_acquire(&shared->owner);
        inside += owner != HANDLE_FREE && load_acquire(&shared->rcu_count) % 2 != 0 &&
                  !process_is_dead_word(dead, handle_process(owner) + 1); /* [R2] */
    }
    for (uint32_t lane = 0; lane < joined_high(limiter) * RCU_LANES; lane++) {
        if (!dead[lane / RCU_LANES] && load_relaxed(&limiter->joined[lane / RCU_LANES].pid) != 0) {
            inside += load_acquire(&limiter->lanes[lane].inside[0]) + load_acquire(&limiter->lanes[lane].inside[1]);
        }
    }
    return inside;
}

bool rcu_halt(struct limiter *limiter, const bool *dead)
{
    _Atomic uint32_t *by = &limiter->process.shared->halted_by;
    uint32_t last = load_relaxed(by);
    if ((last != 0 && !process_is_dead_word(dead, last)) || !cas_seq_cst(by, &last, limiter->joined_as + 1)) {
        return false;
    }
    if (limiter->grants) {
        barrier_all_threads(limiter->reach); /* [Q1] */
    } else {
        fence_seq_cst(); /* [Q1] */
    }
    const uint64_t until_ns = clock_monotonic_ns(NULL) + HALT_PATIENCE_NS;
    for (unsigned looks = 1; count_inside(limiter, dead) != 0; looks++) {
        if (clock_monotonic_ns(NULL) > until_ns) {
            rcu_halt_end(limiter);
            return false;
        }
        spin_wait(looks);
    }
    return true;
}

void rcu_halt_end(struct limiter *limiter)
{
    store_release(&limiter->process.shared->halted_by, 0); /* [Q2] */
}

void rcu_halt_forget(struct weir_thread *t)
{
    t->shared->rcu_depth = 0;
    store_release(&t->shared->rcu_count, (load_relaxed(&t->shared->rcu_count) + 1) & ~UINT64_C(1)); /* [R2] */
}

void rcu_halt_forget_lanes(struct limiter *limiter, uint32_t process)
{
    for (uint32_t lane = process * RCU_LANES; lane < (process + 1) * RCU_LANES; lane++) {
        store_release(&limiter->lanes[lane].inside[0], 0); /* [R4] */
        store_release(&limiter->lanes[lane].inside[1], 0); /* [R4] */
    }
    uint32_t owner = process + 1;
    (void) cas_acquire(&limiter->shared->rcu.lock, &owner, 0); /* before another process has this index */
}
