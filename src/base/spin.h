/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock for a few dozen instructions: spins, then yields to a holder that was preempted. The lock has a word of the
 * holder's process, not 0, by which the lock of a process that died is known.
 */
#ifndef WEIR_BASE_SPIN_H
#define WEIR_BASE_SPIN_H

#include <ck_pr.h>
#include <sched.h>

#include "base/atomics.h"

/* Spins before yielding: some microseconds, far longer than a running holder needs. */
#define SPIN_LIMIT 2000

/* Waits a moment for the holder of a lock; `spins`: how often the caller has waited before. */
static inline void spin_wait(unsigned spins)
{
    if (spins < SPIN_LIMIT) {
        ck_pr_stall();
    } else {
        (void) sched_yield();
    }
}

static inline bool spin_trylock(_Atomic uint32_t *lock, uint32_t word)
{
    uint32_t free = 0;
    return load_relaxed(lock) == 0 && cas_acquire(lock, &free, word);
}

static inline void spin_unlock(_Atomic uint32_t *lock)
{
    store_release(lock, 0); /* pairs with the compare-and-swap of spin_trylock */
}

#endif
