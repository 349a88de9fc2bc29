/* SPDX-License-Identifier: Apache-2.0 */
/* See robust_mutex.h. */
#include "process/robust_mutex.h"

#include <errno.h>

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

enum robust_lock robust_mutex_lock(pthread_mutex_t *mutex)
{
    return taken(mutex, pthread_mutex_lock(mutex));
}

enum robust_lock robust_mutex_trylock(pthread_mutex_t *mutex)
{
    return taken(mutex, pthread_mutex_trylock(mutex));
}
