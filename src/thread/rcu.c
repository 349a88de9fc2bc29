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
 *   [Q2] What was changed while all waited: released by rcu_halt_end, acquired by process_is_halted, rcu_wait_resumed.
 *   [R4] The end of a section in a lane: released by rcu_leave_lane, acquired by rcu_synchronize.
 */
#include "thread/rcu.h"

#include <time.h>

#include "base/barrier.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "base/spin.h"
#include "thread/joined.h"

/* A reader that still is in its section after so many looks was preempted, most likely. */
#define LOOKS_BEFORE_NAP (2 * SPIN_LIMIT)
#define NAP_NS           50000

/*
 * How long a process waits for others at most. A thread that was stopped in its section may take as long as it likes;
 * but where the memory is damaged, a section may have no end.
 */
#define PATIENCE_NS (10 * NS_PER_S)

/* A wait for others, and its end; UINT64_MAX: it has none. */
struct wait {
    uint64_t until_ns;
    unsigned looks;
    bool over; /* it has ended, though what was waited for has not come */
};

/*
 * Waits for a thread of another process, maybe. False: that process has died, and nobody is to be waited for; or the
 * wait is over.
 */
static bool wait_a_moment(const struct limiter *limiter, uint32_t process, struct wait *wait)
{
    if (wait->over) {
        return false;
    }
    if (wait->looks++ < LOOKS_BEFORE_NAP) {
        spin_wait(wait->looks);
        return true;
    }
    if (process != limiter->joined_as && joined_is_dead(limiter, process)) {
        return false;
    }
    if (wait->until_ns != UINT64_MAX && clock_monotonic_ns(NULL) >= wait->until_ns) {
        wait->over = true;
        return false;
    }
    const struct timespec nap = {.tv_nsec = NAP_NS};
    (void) nanosleep(&nap, NULL);
    return true;
}

void rcu_wait_resumed(struct limiter *limiter)
{
    struct wait wait = {.until_ns = UINT64_MAX};
    uint32_t by;
    while ((by = load_acquire(&limiter->process.shared->halted_by)) != 0) { /* [Q2] */
        if (!wait_a_moment(limiter, by - 1, &wait)) {
            (void) cas_acquire(&limiter->process.shared->halted_by, &by, 0);
        }
    }
}

void rcu_wait_halted(struct weir_thread *t)
{
    while (process_is_halted(t->process)) {
        store_release(&t->shared->rcu_count, load_relaxed(&t->shared->rcu_count) + 1); /* [R2] */
        rcu_wait_resumed(t->limiter);
        counter_add(&t->shared->rcu_count, 1);
        if (!t->limiter->grants) {
            fence_seq_cst(); /* [R1] [Q1] no asymmetric barrier here */
        }
        fence_compiler(); /* [R1] [Q1] */
    }
}

static void wait_for_thread(const struct weir_thread *t, struct wait *wait)
{
    wait->looks = 0;
    const uint64_t count = load_acquire(&t->shared->rcu_count); /* [R2] */
    const uint64_t owner = load_acquire(&t->shared->owner);     /* pairs with thread_attach() */
    while (owner != HANDLE_FREE && count % 2 != 0 && load_acquire(&t->shared->rcu_count) == count &&
           wait_a_moment(t->limiter, handle_process(owner), wait)) {
    }
}

/* Waits for the readers of the present phase. New readers come in the other one, from soon on. */
static void drain_lanes(struct limiter *limiter, struct wait *wait)
{
    struct rcu *rcu = &limiter->shared->rcu;
    const uint32_t phase = load_relaxed(&rcu->phase); /* written under the lock */
    store_relaxed(&rcu->phase, phase ^ 1);
    fence_seq_cst(); /* [R3] */
    for (uint32_t lane = 0; lane < joined_high(limiter) * RCU_LANES; lane++) {
        const uint32_t process = lane / RCU_LANES;
        wait->looks = 0;
        while (load_relaxed(&limiter->joined[process].pid) != 0 &&
               load_acquire(&limiter->lanes[lane].inside[phase & 1]) != 0 && /* [R4] */
               wait_a_moment(limiter, process, wait)) {
        }
    }
}

/* Takes the lock, also from a process that has died with it. False: the wait is over. */
static bool lock_rcu(struct limiter *limiter, struct wait *wait)
{
    _Atomic uint32_t *lock = &limiter->shared->rcu.lock;
    uint32_t owner = 0;
    while (!cas_acquire(lock, &owner, limiter->joined_as + 1)) {
        /* Of the dead: the exchange fails where another process was faster. */
        if (owner == 0 || wait_a_moment(limiter, owner - 1, wait)) {
            owner = 0;
        } else if (wait->over) {
            return false;
        }
    }
    return true;
}

bool rcu_synchronize(struct limiter *limiter)
{
    return rcu_synchronize_within(limiter, PATIENCE_NS);
}

bool rcu_synchronize_within(struct limiter *limiter, uint64_t patience_ns)
{
    const bool bounded = limiter->max_processes > 1;
    struct wait wait = {.until_ns = bounded ? clock_monotonic_ns(NULL) + patience_ns : UINT64_MAX};
    if (!lock_rcu(limiter, &wait)) {
        return false;
    }
    if (limiter->grants) {
        barrier_all_threads(limiter->reach); /* [R1] */
    } else {
        fence_seq_cst(); /* [R1] */
    }
    const uint32_t high = limiter_thread_high(limiter);
    for (uint32_t i = 0; i < high; i++) {
        wait_for_thread(&limiter->threads[i], &wait);
    }
    drain_lanes(limiter, &wait);
    drain_lanes(limiter, &wait);
    store_release(&limiter->shared->rcu.lock, 0); /* pairs with lock_rcu() */
    return !wait.over;
}
