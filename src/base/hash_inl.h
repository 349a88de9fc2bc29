/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hash_keyed of short keys, for the one place where a call takes a good part of the hashing: making a key. Part of the
 * adapter to xxHash.
 */
#ifndef WEIR_BASE_HASH_INL_H
#define WEIR_BASE_HASH_INL_H

#include "base/hash.h"

/* Inlined: a call through the shared library costs as much as hashing a short key does. */
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Up to so many bytes a hash is a few multiplications. */
#define HASH_SHORT 16

/* As hash_keyed. */
static inline uint64_t hash_keyed_inline(const struct hash_secret *secret, const void *data, size_t length)
{
    return length <= HASH_SHORT
               ? XXH3_64bits_withSecret(length != 0 ? data : "", length, secret->bytes, sizeof(secret->bytes))
               : hash_keyed(secret, data, length);
}

#endif
