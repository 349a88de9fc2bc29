/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See rcu.h. The lanes follow McKenney's sleepable RCU: each has one count for either phase. A reader counts in the
 * present phase. A writer turns the phase and waits until nobody counts in the old one. A reader may have read the
 * phase long before it counts, so a writer does so twice.
 *
 * Invariant: one thread at a time is between the first and the last line of rcu_synchronize.
 *
 * Ordering
 *   [R3] A lane's count, then what is read: rcu_enter_lane against rcu_synchronize, with a fence on both sides.
 *   [R4] The end of a section in a lane: released by rcu_leave_lane, acquired by rcu_synchronize.
 */
#include "thread/rcu.h"

#include <time.h>

#include "base/barrier.h"
#include "base/hash.h"
#include "base/spin.h"

/* A reader that still is in its section after so many looks was preempted, most likely. */
#define LOOKS_BEFORE_NAP (2 * SPIN_LIMIT)
#define NAP_NS           50000

/* Its address tells threads apart. */
static _Thread_local char here;

unsigned rcu_enter_lane(struct limiter *limiter)
{
    /* Relaxed: a stale phase is as good, as rcu_synchronize waits for both. */
    const unsigned phase = load_relaxed(&limiter->shared->rcu.phase) & 1;
    const unsigned lane = (unsigned) (hash_mix((uintptr_t) &here) % RCU_LANES);
    (void) add_seq_cst(&limiter->shared->rcu.lanes[lane].inside[phase], 1);
    fence_seq_cst(); /* [R3] */
    return lane * 2 + phase;
}

void rcu_leave_lane(struct limiter *limiter, unsigned lane)
{
    (void) add_release(&limiter->shared->rcu.lanes[lane / 2].inside[lane & 1], (uint32_t) -1); /* [R4] */
}

static void wait_a_moment(unsigned *looks)
{
    if ((*looks)++ < LOOKS_BEFORE_NAP) {
        spin_wait(*looks);
    } else {
        const struct timespec nap = {.tv_nsec = NAP_NS};
        (void) nanosleep(&nap, NULL);
    }
}

static void wait_for_thread(const struct weir_thread *t)
{
    unsigned looks = 0;
    const uint64_t count = load_acquire(&t->shared->rcu_count); /* [R2] */
    while (count % 2 != 0 && load_acquire(&t->shared->rcu_count) == count) {
        wait_a_moment(&looks);
    }
}

/* Waits for the readers of the present phase. New readers come in the other one, from soon on. */
static void drain_lanes(struct rcu *rcu)
{
    const uint32_t phase = load_relaxed(&rcu->phase); /* written under the lock */
    store_relaxed(&rcu->phase, phase ^ 1);
    fence_seq_cst(); /* [R3] */
    for (unsigned lane = 0; lane < RCU_LANES; lane++) {
        for (unsigned looks = 0; load_acquire(&rcu->lanes[lane].inside[phase]) != 0;) { /* [R4] */
            wait_a_moment(&looks);
        }
    }
}

void rcu_synchronize(struct limiter *limiter)
{
    for (unsigned looks = 0; !spin_trylock(&limiter->shared->rcu.lock);) {
        wait_a_moment(&looks);
    }
    if (limiter->grants) {
        barrier_all_threads(limiter->reach); /* [R1] */
    } else {
        fence_seq_cst(); /* [R1] */
    }
    const uint32_t high = load_acquire(&limiter->shared->thread_high); /* pairs with thread_attach */
    for (uint32_t i = 0; i < high; i++) {
        wait_for_thread(&limiter->threads[i]);
    }
    drain_lanes(&limiter->shared->rcu);
    drain_lanes(&limiter->shared->rcu);
    spin_unlock(&limiter->shared->rcu.lock);
}
