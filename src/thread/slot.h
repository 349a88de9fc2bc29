/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's slots: its private account of a key each. The life of a slot is in slot.c. */
#ifndef WEIR_THREAD_SLOT_H
#define WEIR_THREAD_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"
#include "thread/slot_word.h"
#include "thread/thread.h"

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

/* Whether a slot denies: the cost from which on it does; 0: it does not. */
static inline uint64_t slot_denies_from(const struct slot *slot)
{
    return slot_meta_unpack(load_relaxed(&slot->meta)).denies_from;
}

/*
 * Units denied from a slot, cumulative: while it denies they stand in the slot, whose one line is then all that a
 * denial writes. Under the lock; without it, a hint. Relaxed: statistics.
 */
static inline uint64_t slot_denied(const struct slot *slot, const struct slot_account *account)
{
    return slot_denies_from(slot) != 0 ? load_relaxed(&slot->denied) : load_relaxed(&account->denied);
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
    uint64_t meta;       /* meta word */
};

/* Gives a locked, settled slot a grant that the cells hold already. */
void slot_publish(struct weir_thread *t, size_t index, uint32_t epoch, const struct slot_terms *terms);

#endif
