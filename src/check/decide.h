/* SPDX-License-Identifier: Apache-2.0 */
/* Deciding a request in the table; see decide.c. */
#ifndef WEIR_CHECK_DECIDE_H
#define WEIR_CHECK_DECIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/numbers.h"
#include "check/request.h"
#include "thread/thread.h"
#include "thread/tick.h"

struct weir_thread;

/* All threads together can hold at most 1 / GRANT_SPREAD of what is left: the rest is for keys without a grant. */
#define GRANT_SPREAD 4

/* The most units that a thread is granted where so many are left. */
static inline uint64_t decide_grant_share(const struct weir_thread *t, uint64_t left)
{
    /* Relaxed: the count of threads only sizes the grant. */
    const uint64_t threads = max_u64(load_relaxed(&t->line->thread_count), 1);
    return min_u64(left / (GRANT_SPREAD * threads), GRANT_MAX);
}

/* Decides. If the request is allowed and does not peek, counts every claim's cost and grant. */
void decide_request(struct request *r);

/* Takes back what other threads hold of a claim, or lets them run. False: that was done often enough. */
bool decide_wait(struct request *r, const struct claim *claim, unsigned *stalled_tries);

#endif
