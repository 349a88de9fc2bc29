/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See robust_mutex.h.
 *
 * Ordering
 *   [M1] Taken with acquire, given back with release: what the mutex guards. A dead process's word is exchanged with
 *        acquire as well: a process that dies leaves what its instructions have stored.
 *   [M2] A holder's entry among the joined processes, then its word. Partner: the fence of count_joined().
 */
#include "process/robust_mutex.h"

#include <time.h>

#include "base/clock.h"
#include "base/spin.h"
#include "process/process.h"

/* A waiter spins as long as a holder needs that has little to do. Then it naps, and looks for the holder's death. */
#define LOOKS_BEFORE_NAP SPIN_LIMIT
#define NAP_NS           (100 * NS_PER_US)
#define NAPS_BEFORE_LOOK 10

static bool is_of_dead(const struct process *process, uint64_t word)
{
    return word != process->ticket && process->has_died != NULL && process->has_died(process->free_arg, word);
}

/* `looks`: also takes the mutex of a dead process. */
static enum robust_lock try(const struct process *process, struct robust_mutex *mutex, bool looks)
{
    uint64_t word = 0;
    if (cas_acquire(&mutex->word, &word, process->ticket)) { /* [M1] */
        return ROBUST_TAKEN;
    }
    word = looks ? load_acquire(&mutex->word) : 0; /* [M2] */
    if (word != 0 && is_of_dead(process, word) &&
        cas_acquire(&mutex->word, &word, process->ticket)) { /* [M1] fails where another was faster */
        return ROBUST_DIED;
    }
    return ROBUST_BUSY;
}

enum robust_lock robust_mutex_lock(const struct process *process, struct robust_mutex *mutex)
{
    const struct timespec nap = {.tv_nsec = NAP_NS};
    enum robust_lock how = try(process, mutex, false);
    for (unsigned looks = 0; how == ROBUST_BUSY; looks++) {
        const bool naps = looks >= LOOKS_BEFORE_NAP;
        if (naps) {
            (void) nanosleep(&nap, NULL);
        } else {
            spin_wait(looks);
        }
        how = try(process, mutex, naps && looks % NAPS_BEFORE_LOOK == 0);
    }
    return how;
}

enum robust_lock robust_mutex_trylock(const struct process *process, struct robust_mutex *mutex)
{
    return try(process, mutex, true);
}

void robust_mutex_unlock(struct robust_mutex *mutex)
{
    store_release(&mutex->word, 0); /* [M1] */
}
