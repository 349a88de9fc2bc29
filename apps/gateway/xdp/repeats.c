/* SPDX-License-Identifier: Apache-2.0 */
/* See repeats.h. */
#include "repeats.h"

#include <stddef.h>

static struct repeats_entry *entry_of(struct repeats *repeats, uint64_t hash, uint32_t now)
{
    struct repeats_entry *set = &repeats->entries[(hash & (REPEATS_ENTRIES / REPEATS_WAYS - 1)) * REPEATS_WAYS];
    struct repeats_entry *least = set;
    uint32_t least_count = UINT32_MAX;
    for (size_t i = 0; i < REPEATS_WAYS; i++) {
        const uint32_t count = now - set[i].second <= REPEATS_SECONDS ? set[i].count : 0;
        if (set[i].hash == hash) {
            return &set[i];
        }
        if (count < least_count) {
            least = &set[i];
            least_count = count;
        }
    }
    *least = (struct repeats_entry){.hash = hash, .second = now};
    return least;
}

bool repeats_count(struct repeats *repeats, uint64_t hash, uint32_t now)
{
    struct repeats_entry *entry = entry_of(repeats, hash, now);
    if (entry->second != now) {
        /* A key that was held lately repeats from its first denial on. */
        const bool goes_on = now - entry->second <= REPEATS_SECONDS && entry->count >= REPEATS_LEAST;
        entry->second = now;
        entry->count = goes_on ? REPEATS_LEAST - 1 : 0;
    }
    return ++entry->count >= REPEATS_LEAST;
}
