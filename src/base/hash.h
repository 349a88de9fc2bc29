/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes: the adapter to xxHash. What stays in the process is hashed by XXH3 with a random secret, so that no outsider
 * can aim at one set of the table. Names that all nodes must agree on are hashed without a secret.
 */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_SECRET_SIZE 192 /* bytes; XXH3 needs at least 136, and its own secret has 192 */

struct hash_secret {
    unsigned char bytes[HASH_SECRET_SIZE];
};

/* Fills the secret with the kernel's random numbers. 0, or a negative errno value. */
int hash_secret_fill(struct hash_secret *secret);

uint64_t hash_keyed(const struct hash_secret *secret, const void *data, size_t length);

/* 128 bits in two words, equal on every node. */
void hash_shared(const void *data, size_t length, uint64_t out[2]);

/* A bijection that spreads every bit over the word (the finalizer of MurmurHash3, in Stafford's variant 13). */
static inline uint64_t hash_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return x;
}

#endif
