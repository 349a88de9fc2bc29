/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hash that names a key whose bytes are secret or long: the first 128 bits of HMAC-SHA-256 (RFC 2104, FIPS 180-4)
 * under the fleet's secret. A user that chooses keys needs 2^64 tries to find two with one name, and 2^128 to hit
 * another key's name. Without the secret nobody can test which key a name stands for.
 */
#ifndef WEIR_BASE_RECORD_HASH_H
#define WEIR_BASE_RECORD_HASH_H

#include <nettle/hmac.h>
#include <stddef.h>

#define RECORD_HASH_SIZE 16 /* bytes */

struct record_hash {
    struct hmac_sha256_ctx start; /* the state after the secret */
};

/* `secret` NULL: a fixed one; then names can be tested, and only collisions stay hard to find. */
void record_hash_init(struct record_hash *hash, const char *secret);

/* Threads: any, also at the same time. */
void record_hash_of(const struct record_hash *hash, const void *data, size_t length,
                    unsigned char out[RECORD_HASH_SIZE]);

#endif
