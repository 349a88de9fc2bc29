/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The thread and process tiers: everything a check touches.
 *
 *   thread.c    weir_check's fast path, and the slow path's order of events
 *   settle.c    settling slots: by their owner, by the background thread, by a thread that is about to deny
 *   process.c   deciding in the table: headroom, grants, all or nothing over a policy's limits
 *   place.c     giving a key a cell: adding, and forgetting another
 *   tick.c      the tick, time, falling asleep
 */
#ifndef WEIR_TIER_TIER_H
#define WEIR_TIER_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "policy/policy.h"
#include "tier/table.h"
#include "weir/weir.h"

#define CACHE_LINE 64

/* A thread's slots: sets of SLOT_WAYS, at most SLOT_MAX in all. */
#define SLOT_WAYS 4
#define SLOT_MAX  1024

/* Fingerprints of keys a thread has charged straight to the table in this tick. */
#define SEEN_COUNT 2048

/* Most units in one grant: `end` and `used` are told apart by their low 32 bits. */
#define GRANT_MAX (UINT64_C(1) << 20)

/*
 * What every hit reads and only a tick writes: one line, shared by all cores.
 *
 * epoch: changes with every tick and every change of policies; a grant holds in the epoch it was given in.
 */
#define EPOCH_ASLEEP UINT32_MAX /* the background thread sleeps, and nothing holds */

struct tick_line {
    _Alignas(CACHE_LINE) _Atomic uint32_t epoch;
    _Atomic uint32_t thread_count; /* attached */
    _Atomic uint64_t now_ns;       /* fleet time at the tick */
    _Atomic uint64_t next_ns;      /* monotonic time of the next tick */
    _Atomic uint64_t offset_ns;    /* fleet time = monotonic time + offset (modulo 2^64) */
    _Atomic uint64_t news_ns;      /* fleet time of the last good sync; 0: none yet */
    _Atomic uint32_t last_epoch;   /* the last one that was not EPOCH_ASLEEP */
};

_Static_assert(sizeof(struct tick_line) == CACHE_LINE, "one line");

/*
 * One thread's private account of one key.
 *
 * Invariants
 *   used is written by the owner alone and never decreases.
 *   What the key's cells have been charged for this slot is `accounted`, to the unit; used - accounted passed since.
 *   While a grant is live, `granted` of the cells' held units are its own, and used - accounted <= granted. What passes
 *   after another thread took the grant back is late: charged at the next settling.
 *
 * The first line is what a hit reads and writes; all of it but `grant` is written by the owner alone.
 */
struct slot {
    _Alignas(CACHE_LINE) _Atomic uint64_t hash; /* the key's; 0: free. Changed under `lock` */
    _Atomic uint64_t
        grant;             /* epoch << 32 | low 32 bits of the `used` at which it ends; 0: none. Changed under `lock` */
    _Atomic uint64_t used; /* units, cumulative */
    _Atomic uint64_t denied; /* units denied from this slot, cumulative */
    uint64_t credit;         /* remaining = credit - used */
    uint64_t reset_ns;       /* fleet time */
    uint64_t limit;
    uint32_t denies_from; /* costs from this on were denied in the grant's epoch; 0: none were */
    uint16_t policy;
    uint8_t limit_index;
    uint8_t flags; /* basis, SLOT_SHADOW */
};

_Static_assert(sizeof(struct slot) == CACHE_LINE, "a hit touches one line of its own");

#define SLOT_BASIS_MASK 3
#define SLOT_SHADOW     4

/* What settling needs of a slot. All under `lock` but where marked. */
struct slot_back {
    _Alignas(CACHE_LINE) _Atomic uint32_t lock; /* 1: someone settles it. Never waited for */
    uint32_t limit_count;                       /* cells pinned; 0: none */
    /* Atomic so that the background thread can see without the lock whether there is anything to settle. */
    _Atomic uint64_t accounted;   /* of `used`: charged to the cells */
    _Atomic uint64_t granted;     /* units that the cells' `held` counts for this slot */
    _Atomic uint64_t denied_told; /* of `denied`: added to the notes */
    uint32_t cells[WEIR_MAX_LIMITS];
    uint64_t granted_ns; /* fleet time of the last grant */
    struct {             /* of the last grant's rules, what charging it needs */
        weir_algorithm algorithm;
        uint64_t period_ns, unit;
    } rules[WEIR_MAX_LIMITS];
    bool fleet; /* the cells have something to tell the fleet */
    /* The owner's alone. */
    uint32_t grant_epoch, deny_epoch; /* of the last grant, of the last denial */
    uint64_t size;                    /* units of the last grant that was asked for */
    uint64_t used_before;             /* `used` when grant_epoch began for this slot */
    uint64_t retry_ns;                /* of the denial; fleet time */
    uint64_t denied_remaining;
    uint32_t touched; /* epoch of the last slow use, for replacement */
};

/* Checks of one policy by one thread. */
struct tally {
    _Atomic uint64_t allowed, denied;
    _Atomic uint64_t would_deny; /* of `allowed`: in shadow mode */
};

struct tier;

struct weir_thread {
    struct tier *tier;
    struct tick_line *line;
    struct slot *slots;
    struct slot_back *backs;
    size_t slot_count;
    struct tally *tallies; /* by policy id */
    uint32_t *seen;
    uint32_t index;
    _Atomic uint32_t attached;
    /* Counters of the owner. */
    _Alignas(CACHE_LINE) _Atomic uint64_t slow_count;
    _Atomic uint64_t unknown_count, untracked_count;
    _Atomic uint64_t late_units;                /* added to by whoever settles */
    _Atomic uint64_t slots_used[SLOT_MAX / 64]; /* a bit per slot that was ever used */
};

/* A key that was forgotten with something still to tell the fleet. */
struct orphan {
    struct note note;
    struct state state;
};

#define ORPHAN_COUNT 4096

struct orphans {
    _Atomic uint32_t lock;
    size_t first, count;
    struct orphan *ring;
};

struct tier {
    struct tick_line line;
    struct table table;
    struct weir_thread *threads; /* max_threads of them */
    uint32_t max_threads;
    _Atomic uint32_t thread_high; /* threads[] in use lie below */
    _Atomic(struct policy_set *) policies;
    const weir_clock *clock;
    uint64_t tick_ns;
    uint64_t origin_ns; /* of bucket times; see struct rule */
    bool host_time;     /* time moves only in weir_poll */
    bool grants;        /* false: no asymmetric barrier here, everything is decided in the table */
    bool fleet;         /* there is a fleet to tell */
    struct orphans orphans;
    _Atomic uint64_t evicted_fresh_count, evicted_used_count, lost_report_count;
    void *memory;
    size_t memory_size;
};

/* 0; -ENOMEM. The table is opened with it. */
int tier_open(struct tier *tier, size_t max_keys, uint32_t max_threads);
void tier_close(struct tier *tier);

/* thread.c */
struct weir_thread *thread_attach(struct tier *tier);
void thread_detach(struct weir_thread *t);

/* settle.c */
bool slot_trylock(struct slot_back *back);
void slot_unlock(struct slot_back *back);
/* Settles a locked slot whose grant is taken back, and whose owner is the caller or has passed a barrier since. */
void slot_settle(struct weir_thread *t, size_t index);
/* Takes a locked slot back from its key: settled, unpinned, free. By its owner. */
void slot_release_owner(struct weir_thread *t, size_t index);
/* Takes back what other threads hold of a key. True: something was given back. */
bool settle_key(struct weir_thread *asking, uint64_t key_hash);
/* Settles what has lapsed in all threads. Returns how many slots were not to be had. By the background thread. */
size_t settle_lapsed(struct tier *tier);

/* process.c */
struct decision {
    bool allowed;
    bool untracked; /* no cell was to be had */
    uint8_t limit_index;
    uint64_t granted; /* units beyond the cost, held */
    uint64_t limit, remaining, retry_after_ns, reset_after_ns;
    struct rule rules[WEIR_MAX_LIMITS];
};

/* Finds or makes the cells of a key, one per limit. False: the table has no room for it. */
bool process_locate(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                    uint32_t cells[WEIR_MAX_LIMITS]);

/*
 * Decides in the table, and counts `cost` and up to `want` units of grant where it allows; `take` false: counts
 * nothing. `pinned`: the cells are pinned by the caller. Within an RCU section.
 */
void process_decide(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint64_t cost,
                    uint64_t want, bool take, bool pinned, uint64_t now_ns, uint32_t cells[WEIR_MAX_LIMITS],
                    struct decision *out);

/* place.c */
uint32_t place_key(struct tier *tier, const struct policy *policy, size_t limit_index, const weir_key *key,
                   uint64_t now_ns);
bool orphans_take(struct tier *tier, struct orphan *out);

/* tick.c */
void tick_start(struct tier *tier, uint64_t monotonic_ns, uint64_t offset_ns);
/* A new epoch and time, if it is due. Any thread may. */
void tick_if_due(struct tier *tier, uint64_t monotonic_ns);
/* A new epoch now: every grant lapses. Any thread may. */
void tick_epoch(struct tier *tier);
void tick_sleep(struct tier *tier);
void tick_wake(struct tier *tier, uint64_t monotonic_ns);
/* Moves fleet time: offset is the background thread's. `step`: even backwards. */
void tick_set_offset(struct tier *tier, uint64_t monotonic_ns, uint64_t offset_ns, bool step);
/* Fleet time for a decision by this policy. */
uint64_t tick_now(struct weir_thread *t, const struct policy *policy);

static inline uint64_t grant_make(uint32_t epoch, uint64_t end)
{
    return (uint64_t) epoch << 32 | (uint32_t) end;
}

#endif
