/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hashes. Adapter to xxHash: XXH3 with a random secret for everything that stays in the process (nobody outside can
 * aim at one set of the table), and without one for names that all nodes must agree on.
 */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_SECRET_SIZE 192 /* XXH3 asks for at least 136 */

struct hash_secret {
    unsigned char bytes[HASH_SECRET_SIZE];
};

/* Fills the secret from the kernel's random numbers. 0, or a negative errno value. */
int hash_secret_fill(struct hash_secret *secret);

uint64_t hash_keyed(const struct hash_secret *secret, const void *data, size_t length);

/* The same on every node; 128 bits in two words. */
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
