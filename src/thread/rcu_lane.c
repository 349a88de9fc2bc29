/* SPDX-License-Identifier: Apache-2.0 */
/* See rcu_lane.h. Ordering: [R3] and [R4] of rcu.c, [Q1] of rcu.h. */
#include "thread/rcu_lane.h"

#include "base/hash.h"
#include "thread/rcu.h"

/* Its address tells threads apart. */
static _Thread_local char here;

unsigned rcu_enter_lane(struct limiter *limiter)
{
    /* Relaxed: a stale phase is as good, as rcu_synchronize waits for both. */
    const unsigned phase = load_relaxed(&limiter->shared->rcu.phase) & 1;
    const unsigned lane = limiter->joined_as * RCU_LANES + (unsigned) (hash_mix((uintptr_t) &here) % RCU_LANES);
    (void) add_seq_cst(&limiter->lanes[lane].inside[phase], 1);
    fence_seq_cst(); /* [R3] [Q1] */
    while (process_is_halted(&limiter->process)) {
        (void) add_release(&limiter->lanes[lane].inside[phase], (uint32_t) -1); /* [R4] */
        rcu_wait_resumed(limiter);
        (void) add_seq_cst(&limiter->lanes[lane].inside[phase], 1);
        fence_seq_cst(); /* [R3] [Q1] */
    }
    return lane * 2 + phase;
}

void rcu_leave_lane(struct limiter *limiter, unsigned lane)
{
    (void) add_release(&limiter->lanes[lane / 2].inside[lane & 1], (uint32_t) -1); /* [R4] */
}
