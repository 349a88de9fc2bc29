/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy's numbers at one time, worked out once for all of its keys. A thread caches the snapshots of its last slow
 * passes for the epoch. Names: policy_snapshot_, policy_queue_.
 */
#ifndef WEIR_THREAD_POLICY_SNAPSHOT_H
#define WEIR_THREAD_POLICY_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/limit_snapshot.h"
#include "algorithm/queue_snapshot.h"
#include "policy/policy_set.h"
#include "process/cell.h"
#include "thread/thread.h"
#include "thread/tick.h"

struct process;

struct policy_snapshot {
    const struct policy *policy; /* valid within the RCU section it was found in */
    uint64_t mix;                /* a key's hash, xor this, is its cell's: see cell_hash() */
    uint64_t now_ns;             /* fleet time */
    uint64_t allowed;            /* requests counted so far: check_burst.c collects them */
    bool fleet;                  /* other nodes use the keys too */
    uint16_t group;              /* of struct cell_meta, as limit_tag */
    uint32_t limit_tag;
    uint64_t meta; /* of a slot under the policy: slot_meta_of() */
    weir_policy_id id;
    uint32_t epoch;                 /* of a cached snapshot: see policy_snapshot_keep(); 0: none */
    struct limit_snapshot limit_at; /* LIMIT_SNAPSHOT_NONE: the policy is not plain */
    struct rule rule;
};

struct policy_snapshot policy_snapshot_of(const struct process *process, const struct policy *policy, uint64_t now_ns);

/* Whether the policy has one limit, a window or a token bucket with its configured numbers, for all of its keys. */
static inline bool policy_snapshot_is_plain(const struct policy_snapshot *snapshot)
{
    return snapshot->limit_at.kind != LIMIT_SNAPSHOT_NONE;
}

/* The hash of a key's cell. */
static inline uint64_t policy_snapshot_hash(const struct policy_snapshot *snapshot, const weir_key *key)
{
    return cell_hash_salted(key->hash, snapshot->mix);
}

/*
 * Snapshots that a thread caches, a power of two: a thread that checks more policies in turn works them out again.
 *
 * A cached snapshot is valid while its epoch is the present one: by [S4] of check.c a snapshot of an old policy set has
 * an old epoch, as a grant has. So it may be used outside of an RCU section, all but `policy`. The fleet's outage mode
 * is in the snapshot in the same way: a plain snapshot is of no mode, and a change of mode is followed by a new epoch.
 * What else depends on the fleet is of a key, and is read at each check (allowance.c).
 */
#define POLICY_SNAPSHOTS_KEPT 8

static inline struct policy_snapshot *policy_snapshot_place(const struct weir_thread *t, weir_policy_id id)
{
    return &t->snapshots[id % POLICY_SNAPSHOTS_KEPT];
}

/*
 * What weir_reserve needs of a policy with one queue that no other node uses. A thread caches it as a snapshot, and
 * uses it outside of an RCU section. The numbers are of no time.
 */
struct policy_queue {
    uint64_t mix;   /* as in struct policy_snapshot */
    uint32_t epoch; /* 0: there is none */
    weir_policy_id id;
    struct queue_snapshot numbers;
};

/* False: the policy is another one. */
bool policy_queue_of(const struct process *process, const struct policy *policy, struct policy_queue *out);

static inline struct policy_queue *policy_queue_place(const struct weir_thread *t, weir_policy_id id)
{
    return &t->queues[id % POLICY_SNAPSHOTS_KEPT];
}

/* Caches what holds for all keys of its policy, and refuses where there is no room. */
static inline void policy_queue_keep(struct weir_thread *t, const struct policy_set *set, const struct policy *policy,
                                     const struct policy_queue *queue, uint32_t epoch)
{
    /* Relaxed: whether there are any entries. */
    if (epoch != EPOCH_ASLEEP && policy->mode != WEIR_SHADOW && policy_set_overrides(set) == NULL) {
        struct policy_queue *place = policy_queue_place(t, policy->id);
        *place = *queue;
        place->epoch = epoch;
    }
}

/* Drops all snapshots of a handle: those of another process name a policy at the address where that process sees it. */
static inline void policy_snapshot_drop(const struct weir_thread *t)
{
    for (size_t i = 0; i < POLICY_SNAPSHOTS_KEPT; i++) {
        t->snapshots[i].epoch = 0;
        t->queues[i].epoch = 0;
    }
}

/* Caches a snapshot that holds for all keys of its policy: no key has an entry of its own. */
static inline void policy_snapshot_keep(struct weir_thread *t, const struct policy_set *set,
                                        const struct policy_snapshot *snapshot, uint32_t epoch)
{
    /* Relaxed: whether there are any entries. */
    if (epoch != EPOCH_ASLEEP && snapshot->limit_at.kind != LIMIT_SNAPSHOT_NONE && !snapshot->policy->fine_clock &&
        policy_set_overrides(set) == NULL) {
        struct policy_snapshot *place = policy_snapshot_place(t, snapshot->policy->id);
        *place = *snapshot;
        place->epoch = epoch;
    }
}

#endif
