/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a key is called where its bytes are not told: the first 128 bits of HMAC-SHA-256 (RFC 2104, FIPS 180-4) under
 * the fleet's secret. Nobody who chooses keys can make two of one name, or one of another key's name: that takes 2^64
 * and 2^128 tries. Who does not know the secret cannot try out either what a name stands for.
 */
#ifndef WEIR_BASE_RECORD_HASH_H
#define WEIR_BASE_RECORD_HASH_H

#include <nettle/hmac.h>
#include <stddef.h>

#define RECORD_HASH_SIZE 16

struct record_hash {
    struct hmac_sha256_ctx start; /* as it is after the secret */
};

/* `secret` NULL: there is none, and all that is left is that names are not made to collide. */
void record_hash_init(struct record_hash *hash, const char *secret);

/* Threads: any, at once. */
void record_hash_of(const struct record_hash *hash, const void *data, size_t length,
                    unsigned char out[RECORD_HASH_SIZE]);

#endif
