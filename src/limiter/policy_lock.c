/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_lock.h. */
#include "limiter/policy_lock.h"

#include "base/robust_mutex.h"
#include "limiter/set_policies.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"
#include "thread/rcu.h"

/* After the lock was taken. */
static void take_over(weir *w, enum robust_lock how)
{
    shared_policies_load(w);
    if (how == ROBUST_DIED) {
        /* The set before may have readers still, and the set in force may be older than the sources. */
        rcu_synchronize(&w->limiter);
        (void) policies_publish_again(w, NULL);
    }
}

void policy_lock(weir *w)
{
    take_over(w, robust_mutex_lock(&w->shared->policy_lock));
}

bool policy_trylock(weir *w)
{
    const enum robust_lock how = robust_mutex_trylock(&w->shared->policy_lock);
    if (how != ROBUST_BUSY) {
        take_over(w, how);
    }
    return how != ROBUST_BUSY;
}

void policy_unlock(weir *w)
{
    (void) pthread_mutex_unlock(&w->shared->policy_lock);
}
