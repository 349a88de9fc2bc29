/* SPDX-License-Identifier: Apache-2.0 */
/* See record_hash.h. */
#include "base/record_hash.h"

#include <string.h>

void record_hash_init(struct record_hash *hash, const char *secret)
{
    const char *key = secret != NULL ? secret : "weir";
    hmac_sha256_set_key(&hash->start, strlen(key), (const uint8_t *) key);
}

void record_hash_of(const struct record_hash *hash, const void *data, size_t length,
                    unsigned char out[RECORD_HASH_SIZE])
{
    struct hmac_sha256_ctx context = hash->start;
    hmac_sha256_update(&context, length, data);
    hmac_sha256_digest(&context, RECORD_HASH_SIZE, out);
}
