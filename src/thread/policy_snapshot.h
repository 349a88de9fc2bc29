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
struct cold {
    const struct policy *policy; /* within the RCU section it was found in */
    uint64_t mix;                /* a key's hash, with this, is its cell's: see cell_hash */
    uint64_t now_ns;             /* fleet time */
    uint64_t allowed;            /* requests counted so far, for who collects them */
    bool fleet;
    uint64_t about; /* slot_about */
    weir_policy_id id;
    uint32_t epoch;       /* of what a thread keeps: see cold_keep; 0: nothing */
    struct moment moment; /* of no kind: its keys do not go this way */
    struct rule rule;
};

struct cold cold_of(const struct process *process, const struct policy *policy, uint64_t now_ns);

/*
 * A thread keeps what its last slow passes worked out, for as long as the epoch stays: as a grant, by [S4], what was
 * made by an old set of policies has an old epoch. So it may be used outside of an RCU section, but for `policy`.
 */
#define COLD_KEPT 4 /* policies: a power of two */

static inline struct cold *cold_place(const struct weir_thread *t, weir_policy_id id)
{
    return &t->colds[id % COLD_KEPT];
}

/* Keeps it, where all keys of the policy have it: none has an entry of its own, and no other node uses them. */
static inline void cold_keep(struct weir_thread *t, const struct policy_set *set, const struct cold *cold,
                             uint32_t epoch)
{
    /* Relaxed: whether there are any. */
    if (epoch != EPOCH_ASLEEP && cold->moment.kind != MOMENT_NONE && !cold->fleet && !cold->policy->fine_clock &&
        load_relaxed(&set->overrides) == NULL) {
        struct cold *place = cold_place(t, cold->policy->id);
        *place = *cold;
        place->epoch = epoch;
    }
}

#endif
