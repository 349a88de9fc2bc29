/* SPDX-License-Identifier: Apache-2.0 */
/* See robust_mutex.h. */
#include "process/robust_mutex.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/numbers.h"

/* The most that a waiter loses where nobody wakes it. */
#define LOOK_AGAIN_NS (10 * NS_PER_MS)

int robust_mutex_init(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t shared;
    int result = pthread_mutexattr_init(&shared);
    if (result != 0) {
        return -result;
    }
    (void) pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    (void) pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    result = pthread_mutex_init(mutex, &shared);
    (void) pthread_mutexattr_destroy(&shared);
    return -result;
}

static enum robust_lock taken(pthread_mutex_t *mutex, int result)
{
    if (result == EOWNERDEAD) {
        (void) pthread_mutex_consistent(mutex);
        return ROBUST_DIED;
    }
    return result == 0 ? ROBUST_TAKEN : ROBUST_BUSY;
}

/*
 * A process that is killed while it gives a mutex back may have freed the mutex and woken nobody. If another thread
 * takes the mutex before the system buries the process, the system wakes nobody either. So a waiter wakes by itself.
 */
enum robust_lock robust_mutex_lock(pthread_mutex_t *mutex)
{
    int result;
    do {
        const uint64_t until_ns = clock_wall_ns(NULL) + LOOK_AGAIN_NS; /* the clock that the call goes by */
        const struct timespec until = {.tv_sec = (time_t) (until_ns / NS_PER_S),
                                       .tv_nsec = (long) (until_ns % NS_PER_S)};
        result = pthread_mutex_timedlock(mutex, &until);
    } while (result == ETIMEDOUT);
    return taken(mutex, result);
}

enum robust_lock robust_mutex_trylock(pthread_mutex_t *mutex)
{
    return taken(mutex, pthread_mutex_trylock(mutex));
}
