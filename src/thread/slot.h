/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a key's slot in a thread's cache. */
#ifndef WEIR_THREAD_SLOT_H
#define WEIR_THREAD_SLOT_H

#include "thread/limiter.h"

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
static inline bool slot_maybe(const struct weir_thread *t, uint64_t hash)
{
    const uint64_t zero_where_same = t->tags[slot_set(t, hash) / SLOT_WAYS] ^ hash;
    return ((zero_where_same - TAG_LOW) & ~zero_where_same & TAG_HIGH) != 0;
}

/* Makes a slot a hash's (0: nobody's). Its owner alone, who has locked it. */
static inline void slot_name(struct weir_thread *t, size_t index, uint64_t hash)
{
    const uint64_t mask = TAG_MASK << index % SLOT_WAYS * TAG_BITS;
    uint64_t *tags = &t->tags[index / SLOT_WAYS];
    *tags = (*tags & ~mask) | (hash & mask);
    store_release(&t->slots[index].hash, hash); /* pairs with nothing: others look again under the lock */
}

/* Where a thread remembers that a key without a slot has come. */
static inline uint32_t *slot_seen(const struct weir_thread *t, uint64_t hash)
{
    return &t->seen[(hash >> 40) % SEEN_COUNT];
}

/* What a thread remembers of a key that has come in an epoch. */
static inline uint32_t slot_print(uint64_t hash, uint32_t epoch)
{
    return (uint32_t) (hash >> 8) ^ epoch * UINT32_C(0x9e3779b1);
}

/* Whether a key without a slot comes a second time within an epoch; else it is remembered as the first. */
static inline bool slot_seen_before(struct weir_thread *t, uint64_t hash, uint32_t epoch)
{
    uint32_t *seen = slot_seen(t, hash);
    const uint32_t print = slot_print(hash, epoch);
    if (*seen == print) {
        return true;
    }
    *seen = print;
    return false;
}

/* An epoch in which all slots that a hash could have were of use. */
static inline uint32_t *slot_full(const struct weir_thread *t, uint64_t hash)
{
    return &t->full[slot_set(t, hash) / SLOT_WAYS];
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
static inline uint64_t slot_denied(const struct slot *slot, const struct slot_back *back)
{
    return slot_denies_from(slot) != 0 ? load_relaxed(&slot->denied) : load_relaxed(&back->denied);
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

#endif
