/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's slots: its private account of a key each. The life of a slot is in slot.c. */
#ifndef WEIR_THREAD_SLOT_H
#define WEIR_THREAD_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"
#include "thread/thread.h"

/* Most units in one grant: `end` and `used` are told apart by their low 32 bits. */
#define GRANT_MAX (UINT64_C(1) << 20)

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
    /* What a grant is answered by, or a denial. */
    union {
        _Atomic uint64_t credit; /* remaining = credit - used */
        _Atomic uint64_t denied; /* units denied from this slot, cumulative; see slot_denied */
    };
    union {
        uint64_t reset; /* the key is as if never used at (reset - remaining * unit) / 64, in ns of fleet time */
        uint64_t reset_after_ns; /* of a denial, as it was found: what is answered may be one tick old */
    };
    union {
        uint64_t unit;           /* bucket: time one unit takes to refill, 1/64 ns; else 0 */
        uint64_t retry_after_ns; /* likewise; UINT64_MAX: never */
    };
    uint64_t limit;
    _Atomic uint64_t about; /* SLOT_*. Changed under `lock` */
};

_Static_assert(sizeof(struct slot) == CACHE_LINE, "a hit touches one line of its own");

/*
 * A slot in a word, so that a verdict's first word is this one's with a mask over it (verdict_head). From the lowest:
 * where its policy's tally lies (16 bits), the index of the limit, flags, the basis (at 32), and the cost from which on
 * requests were denied in the grant's epoch (at 34; 0: none were).
 */
#define SLOT_TALLY     UINT64_C(0xffff)
#define SLOT_LIMIT_AT  16
#define SLOT_LIMIT     (UINT64_C(3) << SLOT_LIMIT_AT)
#define SLOT_SHADOW    (UINT64_C(1) << 18)
#define SLOT_SET       (UINT64_C(1) << 19) /* the parity of the policy set its grant is by: see check_all.c */
#define SLOT_DENIES    (UINT64_C(1) << 20) /* a denial like most: not in shadow mode, not for good, with no units left */
#define SLOT_BASIS_AT  32
#define SLOT_BASIS     (UINT64_C(3) << SLOT_BASIS_AT)
#define SLOT_COST_AT   34
#define SLOT_COST_MOST (UINT64_MAX >> SLOT_COST_AT)

_Static_assert(WEIR_MAX_LIMITS <= 4 && WEIR_BASIS_OUTAGE < 4, "they have two bits each");

_Static_assert(WEIR_MAX_POLICIES * sizeof(struct tally) <= SLOT_TALLY, "a slot has room for where it lies");

/* What settling needs of a slot. All under `lock` but where marked. */
struct slot_account {
    _Alignas(CACHE_LINE) _Atomic uint32_t lock; /* 1: someone settles it. Never waited for */
    uint32_t limit_count;                       /* cells pinned; 0: none */
    /* Atomic so that the background thread can see without the lock whether there is anything to settle. */
    _Atomic uint64_t accounted;      /* of `used`: charged to the cells */
    _Atomic uint64_t granted;        /* units that the cells' `held` counts for this slot */
    _Atomic uint64_t denied;         /* units denied, cumulative, where the slot does not say; see slot_denied */
    _Atomic uint64_t denied_counted; /* of `denied`: added to the notes */
    uint32_t cells[WEIR_MAX_LIMITS];
    uint64_t granted_ns;                /* fleet time of the last grant */
    struct rule rules[WEIR_MAX_LIMITS]; /* of the last grant */
    bool fleet;                         /* the cells have something to tell the fleet */
    /* The owner's alone. */
    uint32_t grant_epoch, deny_epoch; /* of the last grant, of the last denial */
    uint64_t size;                    /* units of the last grant that was asked for */
    uint64_t direct;                  /* units charged to the table in grant_epoch, beside grants */
    uint64_t used_before;             /* `used` when grant_epoch began for this slot */
    uint64_t denied_remaining;        /* of the denial */
    uint32_t touched;                 /* epoch of the last slow use, for replacement */
};

#define SLOT_NONE SIZE_MAX

/* The first slot of the set a hash belongs to. */
static inline size_t slot_set(const struct weir_thread *t, uint64_t hash)
{
    return (size_t) (hash * SLOT_WAYS) & t->slot_mask;
}

/*
 * Of the hash of each way's slot sixteen bits stand in one word per set, of the first way the lowest, of the next one
 * the next: so a key that has no slot is told from those that have by one load, of memory that stays in the first
 * cache. (The lowest eight are the same for all hashes of a set.) The owner's alone.
 */
#define TAG_BITS 16
#define TAG_MASK UINT64_C(0xffff)
#define TAG_LOW  UINT64_C(0x0001000100010001)
#define TAG_HIGH UINT64_C(0x8000800080008000)

_Static_assert(SLOT_WAYS *TAG_BITS == 64, "a set's tags are one word");

/* Whether a hash may have a slot: true where it has one, and of some 200 other hashes of a full set for one. */
static inline bool slot_may_have(const struct weir_thread *t, uint64_t hash)
{
    const uint64_t zero_where_same = t->fingerprints[slot_set(t, hash) / SLOT_WAYS] ^ hash;
    return ((zero_where_same - TAG_LOW) & ~zero_where_same & TAG_HIGH) != 0;
}

/* Makes a slot a hash's (0: nobody's). Its owner alone, who has locked it. */
static inline void slot_set_hash(struct weir_thread *t, size_t index, uint64_t hash)
{
    const uint64_t mask = TAG_MASK << index % SLOT_WAYS * TAG_BITS;
    uint64_t *tags = &t->fingerprints[index / SLOT_WAYS];
    *tags = (*tags & ~mask) | (hash & mask);
    store_release(&t->slots[index].hash, hash); /* pairs with nothing: others look again under the lock */
}

/* Where a thread remembers that a key without a slot has come. */
static inline uint32_t *recent_key(const struct weir_thread *t, uint64_t hash)
{
    return &t->recent_keys[(hash >> 40) % RECENT_COUNT];
}

/* What a thread remembers of a key that has come in an epoch. */
static inline uint32_t recent_fingerprint(uint64_t hash, uint32_t epoch)
{
    return (uint32_t) (hash >> 8) ^ epoch * UINT32_C(0x9e3779b1);
}

/* Whether a key without a slot comes a second time within an epoch; else it is remembered as the first. */
static inline bool slot_is_recent(struct weir_thread *t, uint64_t hash, uint32_t epoch)
{
    uint32_t *seen = recent_key(t, hash);
    const uint32_t print = recent_fingerprint(hash, epoch);
    if (*seen == print) {
        return true;
    }
    *seen = print;
    return false;
}

/* An epoch in which all slots that a hash could have were of use. */
static inline uint32_t *set_busy_epoch(const struct weir_thread *t, uint64_t hash)
{
    return &t->set_busy_epochs[slot_set(t, hash) / SLOT_WAYS];
}

/* The cost from which on requests are denied while the grant's epoch lasts; 0: none are. */
static inline uint64_t slot_denies_from(const struct slot *slot)
{
    return load_relaxed(&slot->about) >> SLOT_COST_AT;
}

/* The tally of a slot's policy. */
static inline struct tally *slot_tally(const struct weir_thread *t, uint64_t about)
{
    return (struct tally *) ((unsigned char *) t->tallies + (about & SLOT_TALLY));
}

/*
 * Units denied from a slot, cumulative: while it denies they stand in the slot, whose one line is then all that a
 * denial writes. Under the lock; without it, a hint. Relaxed: statistics.
 */
static inline uint64_t slot_denied(const struct slot *slot, const struct slot_account *account)
{
    return slot_denies_from(slot) != 0 ? load_relaxed(&slot->denied) : load_relaxed(&account->denied);
}

/* The slot of a hash. False: it has none. Relaxed: the owner reads its own stores, others look again under the lock. */
static inline bool slot_get(const struct weir_thread *t, uint64_t hash, struct slot **slot)
{
    struct slot *set = &t->slots[slot_set(t, hash)];
    /* Mostly the first. Said, as it lays a hit out in one piece: one cycle of twelve (hot/weir). */
    if (__builtin_expect(load_relaxed(&set->hash) == hash, 1)) {
        *slot = set;
        return true;
    }
    for (size_t way = 1; way < SLOT_WAYS; way++) {
        if (load_relaxed(&set[way].hash) == hash) {
            *slot = &set[way];
            return true;
        }
    }
    return false;
}

static inline size_t slot_find(const struct weir_thread *t, uint64_t hash)
{
    struct slot *slot;
    return slot_get(t, hash, &slot) ? (size_t) (slot - t->slots) : SLOT_NONE;
}

/*
 * The key's slot, locked, settled and without a grant; SLOT_NONE: it has none, and is charged straight to the table.
 * `epoch` EPOCH_ASLEEP gives no new ones.
 */
size_t slot_take(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint32_t epoch,
                 uint64_t now_ns);
/* Gives a key that has no slot one, locked; SLOT_NONE: there is none to be had. */
size_t slot_give(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint32_t epoch,
                 uint64_t now_ns);
/*
 * Units worth granting to a slot beside a request. `direct_cost`: what the request costs, where it can be charged
 * straight to the table (renew_grant.c); 0: it cannot.
 */
uint64_t slot_grant_size(const struct weir_thread *t, size_t index, uint32_t epoch, uint64_t direct_cost);
/* What a grant rests on. */
struct slot_terms {
    uint64_t now_ns;
    uint64_t granted;
    uint64_t limit;
    uint64_t left; /* units that may pass now, what was granted among them */
    uint64_t reset_after_ns;
    uint8_t limit_index; /* of the limit with the least left; its rule is in the slot's back */
    uint64_t about;      /* slot_meta */
};

/* What a slot says of a policy, in `about`. */
static inline uint64_t slot_meta(const struct policy *policy)
{
    /* Relaxed: a number that stands for itself. */
    return policy->id * sizeof(struct tally) | (uint64_t) load_relaxed(&policy->basis) << SLOT_BASIS_AT |
           (policy->odd_set ? SLOT_SET : 0);
}

/* Gives a locked, settled slot a grant that the cells hold already. */
void slot_publish(struct weir_thread *t, size_t index, uint32_t epoch, const struct slot_terms *terms);

static inline uint64_t grant_make(uint32_t epoch, uint64_t end)
{
    return (uint64_t) epoch << 32 | (uint32_t) end;
}

#endif
