/* SPDX-License-Identifier: Apache-2.0 */
#include "floor.h"

/* Inlined, as in src/base/hash.c. */
#define XXH_INLINE_ALL
#include <xxhash.h>

bool floor_check(struct floor_counter *counter, uint64_t cost)
{
    const uint64_t left = counter->left;
    if (left < cost) {
        return false;
    }
    counter->left = left - cost;
    return true;
}

uint64_t floor_hash(const unsigned char secret[FLOOR_SECRET_SIZE], const void *data, size_t length)
{
    return XXH3_64bits_withSecret(data, length, secret, FLOOR_SECRET_SIZE);
}
