/* SPDX-License-Identifier: Apache-2.0 */
/* See full_sync.h. Ordering: [F1] and [F2], in round.c. */
#include "fleet/keys/full_sync.h"

#include "fleet/state.h"
#include "transport/transport.h"

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

bool full_sync_retry(struct fleet *fleet, uint64_t monotonic_ns)
{
    struct full_sync_calls *calls = &fleet->sync_calls;
    const uint64_t requests = load_acquire(&calls->requests); /* [F1] */
    if (requests == calls->retried || load_relaxed(&calls->waiters) == 0) {
        return false;
    }
    calls->retried = requests;
    fleet->transport->ops->retry(fleet->transport, monotonic_ns);
    return true;
}

void full_sync_note_refused(struct fleet *fleet)
{
    struct full_sync_calls *calls = &fleet->sync_calls;
    const struct transport_ops *ops = fleet->transport->ops;
    if (load_relaxed(&calls->waiters) != 0 && load_relaxed(&calls->refused) != calls->retried &&
        full_sync_wanted(fleet) && ops->state(fleet->transport) == TRANSPORT_DOWN && ops->refused(fleet->transport)) {
        store_relaxed(&calls->refused, calls->retried); /* nothing is read that it would order */
    }
}

void full_sync_restart(struct fleet *fleet)
{
    if (load_relaxed(&fleet->sync_calls.waiters) == 0) {
        return; /* what was not reported waits for a regular round: else round would follow round until it was */
    }
    /* The next walk serves every call that waits by then. */
    fleet->full_sync = (struct full_sync){.restarts = fleet->full_sync.request, .urgent = fleet->full_sync.urgent};
}
