/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys whose denials repeat: REPEATS_LEAST of them within a second. Each worker counts for itself.
 *
 * There are as many entries as keys can be held, in sets of REPEATS_WAYS by hash. A key that has none takes the entry
 * of its set that counts least, so keys that repeat keep theirs beside others that do not. Where more keys are denied
 * between two denials of one than there are entries, none repeats; a flood of so many sources is for the policy of
 * their network.
 */
#ifndef WEIR_GATEWAY_XDP_REPEATS_H
#define WEIR_GATEWAY_XDP_REPEATS_H

#include <stdbool.h>
#include <stdint.h>

/* Denials of a key within a second from which on the kernel is told. */
#define REPEATS_LEAST 8

/* For so long after its last denial a key keeps its entry, and repeats if it did: longer than it can have been held. */
#define REPEATS_SECONDS 2

/* Both powers of two; a set is a cache line. */
#define REPEATS_ENTRIES 65536
#define REPEATS_WAYS    4

/* All zero: no key was denied. Memory of entries that no key has come to is not touched. */
struct repeats {
    struct repeats_entry {
        uint64_t hash;
        uint32_t second, count;
    } entries[REPEATS_ENTRIES];
};

/* Counts a denial. Whether the key repeats. `now`: in seconds. */
bool repeats_count(struct repeats *repeats, uint64_t hash, uint32_t now);

#endif
