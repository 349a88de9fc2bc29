/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash_keyed of short keys, inlined where keys are made: there a call costs as much as the hash itself. Part of the
 * adapter to xxHash. Names: hash_.
 */
#ifndef WEIR_BASE_HASH_INL_H
#define WEIR_BASE_HASH_INL_H

#include "base/hash.h"

/* Inlined: a call through the shared library costs as much as hashing a short key does. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Bytes of a key whose hash is a few multiplications. */
#define HASH_SHORT 16

/* As hash_keyed, of up to HASH_SHORT bytes. */
static inline uint64_t hash_short(const struct hash_secret *secret, const void *data, size_t length)
{
    if (length > HASH_SHORT) {
        __builtin_unreachable(); /* so that no more of XXH3 is inlined */
    }
    return XXH3_64bits_withSecret(length != 0 ? data : "", length, secret->bytes, sizeof(secret->bytes));
}

#endif
