/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mutex in memory that processes share, for work that may take long. It has the ticket of its holder's process, which
 * no other process ever has. When that process dies, the next holder gets the mutex and is told, so that it can repair
 * what the mutex guards. Zeros are free.
 *
 * A word that is no joined process's ticket is a dead one's, too: the mutex of damaged memory is taken, and not waited
 * for.
 */
#ifndef WEIR_PROCESS_ROBUST_MUTEX_H
#define WEIR_PROCESS_ROBUST_MUTEX_H

#include <stdbool.h>
#include <stdint.h>

struct process;

struct robust_mutex {
    _Atomic uint64_t word; /* process.ticket of its holder; 0: free */
};

enum robust_lock {
    ROBUST_BUSY,  /* another thread has the mutex: of robust_mutex_trylock() alone */
    ROBUST_TAKEN, /* the caller has the mutex */
    ROBUST_DIED,  /* the caller has the mutex, and its last holder died with it: what it guards may be half changed */
};

enum robust_lock robust_mutex_lock(const struct process *process, struct robust_mutex *mutex);
enum robust_lock robust_mutex_trylock(const struct process *process, struct robust_mutex *mutex);
void robust_mutex_unlock(struct robust_mutex *mutex);

#endif
