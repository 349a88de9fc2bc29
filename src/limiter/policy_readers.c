/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_readers.h. */
#include "limiter/policy_readers.h"

#include <errno.h>

#include "limiter/weir_private.h"
#include "thread/misuse.h"
#include "thread/rcu.h"

void policy_readers_drain(weir *w)
{
    struct limiter *limiter = &w->limiter;
    /* Under the policy lock. Those that were waited for once are not waited for again at each call. */
    const bool over =
        load_relaxed(&w->shared->readers_left) != 0 ? rcu_synchronize_within(limiter, 0) : rcu_synchronize(limiter);
    store_relaxed(&w->shared->readers_left, !over);
}

int policy_readers_wait(weir *w)
{
    if (misuse_is_within_call(&w->limiter)) {
        return -EDEADLK; /* as from a signal handler: this call would wait for the one that it interrupts */
    }
    if (load_relaxed(&w->shared->readers_left) != 0) {
        policy_readers_drain(w);
    }
    return load_relaxed(&w->shared->readers_left) != 0 ? -EBUSY : 0;
}
