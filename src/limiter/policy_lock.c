/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_lock.h. */
#include "limiter/policy_lock.h"

#include "limiter/policy_readers.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"

static void after_lock(weir *w, enum robust_lock how)
{
    if (how == ROBUST_DIED) {
        policy_readers_drain(w); /* the set before the last one may have readers still */
        store_relaxed(&w->shared->half_changed, 1);
    }
    (void) shared_policies_load(w); /* what cannot be read is not changed: shared_policies_prepare() */
}

void policy_lock_take(weir *w)
{
    after_lock(w, robust_mutex_lock(&w->limiter.process, &w->shared->policy_lock));
}

bool policy_lock_try(weir *w)
{
    const enum robust_lock how = robust_mutex_trylock(&w->limiter.process, &w->shared->policy_lock);
    if (how != ROBUST_BUSY) {
        after_lock(w, how);
    }
    return how != ROBUST_BUSY;
}

void policy_lock_release(weir *w)
{
    robust_mutex_unlock(&w->shared->policy_lock);
}
