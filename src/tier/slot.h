/* SPDX-License-Identifier: Apache-2.0 */
/* Finding a key's slot in a thread's cache. */
#ifndef WEIR_TIER_SLOT_H
#define WEIR_TIER_SLOT_H

#include "tier/tier.h"

#define SLOT_NONE SIZE_MAX

/* The first slot of the set a hash belongs to. */
static inline size_t slot_set(const struct weir_thread *t, uint64_t hash)
{
    return (size_t) (hash * SLOT_WAYS) & t->slot_mask;
}

/* Where a thread remembers that a key without a slot has come. */
static inline uint32_t *slot_seen(const struct weir_thread *t, uint64_t hash)
{
    return &t->seen[(hash >> 40) % SEEN_COUNT];
}

/* Relaxed throughout: the owner reads its own stores, others look again under the slot's lock. */
static inline size_t slot_find(const struct weir_thread *t, uint64_t hash)
{
    const size_t set = slot_set(t, hash);
    for (size_t way = 0; way < SLOT_WAYS; way++) {
        if (load_relaxed(&t->slots[set + way].hash) == hash) {
            return set + way;
        }
    }
    return SLOT_NONE;
}

#endif
