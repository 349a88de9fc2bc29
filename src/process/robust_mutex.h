/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mutex in memory that processes share. When its owner dies, the next owner gets the mutex and is told, so that it
 * can repair what the mutex guards. POSIX calls such a mutex robust.
 */
#ifndef WEIR_BASE_ROBUST_MUTEX_H
#define WEIR_BASE_ROBUST_MUTEX_H

#include <pthread.h>

enum robust_lock {
    ROBUST_BUSY,  /* another thread has the mutex: of robust_mutex_trylock() alone */
    ROBUST_TAKEN, /* the caller has the mutex */
    ROBUST_DIED,  /* the caller has the mutex, and its last owner died with it: what it guards may be half changed */
};

/* 0, or as pthread_mutex_init, negative. */
int robust_mutex_init(pthread_mutex_t *mutex);

enum robust_lock robust_mutex_lock(pthread_mutex_t *mutex);
enum robust_lock robust_mutex_trylock(pthread_mutex_t *mutex);

#endif
