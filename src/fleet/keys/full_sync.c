/* SPDX-License-Identifier: Apache-2.0 */
/* See full_sync.h. Ordering: [F1] and [F2], in round.c. */
#include "fleet/keys/full_sync.h"

#include "fleet/state.h"

uint64_t full_sync_call_begin(struct fleet *fleet)
{
    (void) add_relaxed(&fleet->sync_calls.waiters, 1);
    return add_seq_cst(&fleet->sync_calls.requests, 1) + 1; /* [F1] */
}

void full_sync_call_end(struct fleet *fleet)
{
    (void) add_relaxed(&fleet->sync_calls.waiters, (uint32_t) -1);
}

bool full_sync_wanted(const struct fleet *fleet)
{
    /* Acquire: [F1]. Relaxed: the background thread's own store; to any other thread a hint. */
    return load_acquire(&fleet->sync_calls.requests) != load_relaxed(&fleet->sync_calls.served);
}

void full_sync_restart(struct fleet *fleet)
{
    if (load_relaxed(&fleet->sync_calls.waiters) == 0) {
        return; /* what was not reported waits for a regular round: else round would follow round until it was */
    }
    /* The next walk serves every call that waits by then. */
    fleet->full_sync = (struct full_sync){.restarts = fleet->full_sync.request, .urgent = fleet->full_sync.urgent};
}
