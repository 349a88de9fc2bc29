/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy's numbers at one moment, worked out once for all of its keys.
 */
#ifndef WEIR_THREAD_POLICY_SNAPSHOT_H
#define WEIR_THREAD_POLICY_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/limit_snapshot.h"
#include "policy/policy.h"
#include "thread/thread.h"
#include "thread/tick.h"

/* A policy's keys at one moment. */
struct policy_snapshot {
    const struct policy *policy; /* within the RCU section it was found in */
    uint64_t mix;                /* a key's hash, with this, is its cell's: see cell_hash */
    uint64_t now_ns;             /* fleet time */
    uint64_t allowed;            /* requests counted so far, for who collects them */
    bool fleet;
    uint64_t meta; /* of a slot under the policy: slot_meta_of() */
    weir_policy_id id;
    uint32_t epoch;                 /* of what a thread keeps: see policy_snapshot_keep; 0: nothing */
    struct limit_snapshot limit_at; /* of no kind: its keys do not go this way */
    struct rule rule;
};

struct policy_snapshot policy_snapshot_of(const struct process *process, const struct policy *policy, uint64_t now_ns);

/*
 * A thread keeps what its last slow passes worked out, for as long as the epoch stays: as a grant, by [S4], what was
 * made by an old set of policies has an old epoch. So it may be used outside of an RCU section, but for `policy`.
 */
#define POLICY_SNAPSHOTS_KEPT 4 /* policies: a power of two */

static inline struct policy_snapshot *policy_snapshot_place(const struct weir_thread *t, weir_policy_id id)
{
    return &t->snapshots[id % POLICY_SNAPSHOTS_KEPT];
}

/* Keeps it, where all keys of the policy have it: none has an entry of its own, and no other node uses them. */
static inline void policy_snapshot_keep(struct weir_thread *t, const struct policy_set *set,
                                        const struct policy_snapshot *snapshot, uint32_t epoch)
{
    /* Relaxed: whether there are any. */
    if (epoch != EPOCH_ASLEEP && snapshot->limit_at.kind != LIMIT_SNAPSHOT_NONE && !snapshot->fleet &&
        !snapshot->policy->fine_clock && load_relaxed(&set->overrides) == NULL) {
        struct policy_snapshot *place = policy_snapshot_place(t, snapshot->policy->id);
        *place = *snapshot;
        place->epoch = epoch;
    }
}

#endif
