/* SPDX-License-Identifier: Apache-2.0 */
/* Giving slots to keys, sizing and publishing grants; see slot.c. The slot itself is in slot_word.h. */
#ifndef WEIR_THREAD_SLOT_H
#define WEIR_THREAD_SLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "thread/slot_account.h"
#include "thread/slot_word.h"
#include "thread/thread.h"

struct policy;

#define SLOT_NONE SIZE_MAX

/*
 * Fingerprints: 16 bits of the hash of each way's slot, in one word per set, the first way's lowest. One load of memory
 * that stays in the first cache tells that a key has no slot. (The lowest eight bits are equal for all hashes of a
 * set.) Read and written by the owner alone.
 */
#define FINGERPRINT_BITS 16
#define FINGERPRINT_MASK UINT64_C(0xffff)
#define FINGERPRINT_LOW  UINT64_C(0x0001000100010001) /* the lowest bit of each */
#define FINGERPRINT_HIGH UINT64_C(0x8000800080008000) /* the highest bit of each */

_Static_assert(SLOT_WAYS *FINGERPRINT_BITS == 64, "a set's fingerprints are one word");

/* Whether a hash may have a slot. No false negatives; about 1 in 200 false positives when the set is full. */
static inline bool slot_may_have(const struct weir_thread *t, uint64_t hash)
{
    const uint64_t zero_where_same = t->fingerprints[slot_set(t, hash) / SLOT_WAYS] ^ hash;
    return ((zero_where_same - FINGERPRINT_LOW) & ~zero_where_same & FINGERPRINT_HIGH) != 0;
}

/* Gives a locked slot to a hash (0: frees it). By the owner alone. */
static inline void slot_set_hash(struct weir_thread *t, size_t index, uint64_t hash)
{
    const uint64_t mask = FINGERPRINT_MASK << index % SLOT_WAYS * FINGERPRINT_BITS;
    uint64_t *fingerprints = &t->fingerprints[index / SLOT_WAYS];
    *fingerprints = (*fingerprints & ~mask) | (hash & mask);
    store_release(&t->slots[index].hash, hash); /* no partner: others look again under the lock */
}

/* Where a thread remembers that a key without a slot was checked. */
static inline uint32_t *recent_key(const struct weir_thread *t, uint64_t hash)
{
    return &t->recent_keys[(hash >> 40) % RECENT_COUNT];
}

/* What a thread remembers of such a key: a fingerprint of the hash and the epoch. */
static inline uint32_t recent_fingerprint(uint64_t hash, uint32_t epoch)
{
    return (uint32_t) (hash >> 8) ^ epoch * UINT32_C(0x9e3779b1);
}

/* Whether a key without a slot is checked a second time within an epoch; the first time is remembered. */
static inline bool slot_is_recent(struct weir_thread *t, uint64_t hash, uint32_t epoch)
{
    uint32_t *recent = recent_key(t, hash);
    const uint32_t fingerprint = recent_fingerprint(hash, epoch);
    if (*recent == fingerprint) {
        return true;
    }
    *recent = fingerprint;
    return false;
}

/* An epoch in which all slots of a hash's set were in use. */
static inline uint32_t *set_busy_epoch(const struct weir_thread *t, uint64_t hash)
{
    return &t->set_busy_epochs[slot_set(t, hash) / SLOT_WAYS];
}

/* Whether a key without a slot is to get one now: it comes a second time, and a slot may be had. */
static inline bool slot_is_wanted(struct weir_thread *t, uint64_t hash, uint32_t epoch)
{
    return slot_is_recent(t, hash, epoch) && *set_busy_epoch(t, hash) != epoch;
}

/* Whether a slot denies: the cost from which on it does; 0: it does not. */
static inline uint64_t slot_denies_from(const struct slot *slot)
{
    return slot_meta_unpack(load_relaxed(&slot->meta)).denies_from;
}

/*
 * Units denied from a slot, cumulative. While the slot has a denial they are counted in the slot itself, so a denial
 * writes one line. Exact under the lock, a hint without it. Relaxed: statistics.
 */
static inline uint64_t slot_denied(const struct slot *slot, const struct slot_account *account)
{
    return slot_denies_from(slot) != 0 ? load_relaxed(&slot->denied) : load_relaxed(&account->denied);
}

/* Units that passed on the grant of a slot that is locked, or whose owner asks. */
static inline uint64_t slot_passed(const struct slot *slot, const struct slot_account *account)
{
    return load_relaxed(&slot->used) - load_relaxed(&account->accounted);
}

/*
 * Whether time has stood still, by the tick, since a slot's grant was made in this epoch. What passed on the grant then
 * belongs to the present window, and no bucket has refilled. Under a fine clock both hold as of the time of the grant,
 * by which units of a grant are counted. The slot is locked.
 */
static inline bool slot_grant_is_present(const struct weir_thread *t, const struct slot *slot,
                                         const struct slot_account *account)
{
    return slot_is_live(t, slot) && load_relaxed(&account->granted) != 0 &&
           load_relaxed(&t->line->now_ns) <= account->granted_ns; /* [C1] relaxed: by the tick */
}

/*
 * Gives units back to the grant on which they passed: they count nowhere, and may pass again. False: not so many passed
 * on it, or the grant is not of the present; nothing was done. By the owner.
 */
static inline bool slot_give_back(const struct weir_thread *t, struct slot *slot, uint64_t units)
{
    struct slot_account *account = &t->accounts[slot - t->slots];
    if (!slot_is_live(t, slot) || !slot_account_trylock(t, account)) {
        return false;
    }
    const bool done = slot_grant_is_present(t, slot, account) && units <= slot_passed(slot, account);
    if (done) {
        store_release(&slot->used, load_relaxed(&slot->used) - units); /* [S5] */
    }
    slot_account_unlock(account);
    return done;
}

/* Whether a key is at its limit: there was no room in this epoch or the last one. By the owner. */
static inline bool slot_denied_lately(const struct slot_account *account, uint32_t epoch)
{
    return account->deny_epoch == epoch || account->deny_epoch + 1 == epoch;
}

static inline size_t slot_find(const struct weir_thread *t, uint64_t hash)
{
    struct slot *slot;
    return slot_get(t, hash, &slot) ? (size_t) (slot - t->slots) : SLOT_NONE;
}

/* Whether a slot's cells are those of the policy's limits. */
bool slot_fits(const struct weir_thread *t, const struct slot_account *account, const struct policy *policy,
               const weir_key *key);
/*
 * The key's slot, locked, settled and without a grant. SLOT_NONE: the key has none, or it is locked. A key that comes a
 * second time within the epoch is given a slot; EPOCH_ASLEEP: it is not.
 */
size_t slot_take(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint32_t epoch,
                 uint64_t now_ns);
/* Gives a slot to a key without one, locked. SLOT_NONE: there is none to be had. */
size_t slot_give(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint32_t epoch,
                 uint64_t now_ns);
/*
 * Units worth granting to a slot beside a request; asked for once a request, as every call doubles them. `direct_cost`:
 * the cost of the request where it can be charged directly (renew_grant.c); 0: it cannot.
 */
uint64_t slot_grant_size(const struct weir_thread *t, size_t index, uint32_t epoch, uint64_t direct_cost);
/* What a grant is published by. */
struct slot_terms {
    uint64_t now_ns;
    uint64_t granted;
    uint64_t limit;
    uint64_t left;                /* units that may pass now, including the granted ones */
    uint64_t reset_after_ns;      /* as the key stands */
    uint64_t used_reset_after_ns; /* once a unit has passed on the grant: rule_used_reset_after() */
    uint8_t limit_index;          /* the limit with the least left, as in `meta`; its rule is in the account */
    uint64_t meta;                /* meta word */
};

/*
 * Answers a peek at a key by the key's slot: by a grant that covers the cost, or by a denial of this epoch. Counts
 * nothing. By the owner.
 */
enum slot_answer slot_peek(const struct weir_thread *t, uint64_t hash, uint64_t cost, weir_verdict *verdict);
/* Publishes a grant, which the cells hold already, in a locked and settled slot. */
void slot_publish(struct weir_thread *t, size_t index, uint32_t epoch, const struct slot_terms *terms);

#endif
