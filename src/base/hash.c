/* SPDX-License-Identifier: Apache-2.0 */
/* See hash.h. */
#include "base/hash_inl.h"

#include <errno.h>
#include <sys/random.h>

int hash_secret_fill(struct hash_secret *secret)
{
    size_t filled = 0;
    while (filled < sizeof(secret->bytes)) {
        const ssize_t got = getrandom(secret->bytes + filled, sizeof(secret->bytes) - filled, 0);
        if (got < 0) {
            if (errno == EINTR) {
                continue;
            }
            return -errno;
        }
        filled += (size_t) got;
    }
    return 0;
}

uint64_t hash_keyed(const struct hash_secret *secret, const void *data, size_t length)
{
    return XXH3_64bits_withSecret(length != 0 ? data : "", length, secret->bytes, sizeof(secret->bytes));
}

void hash_shared(const void *data, size_t length, uint64_t out[2])
{
    const XXH128_hash_t hash = XXH3_128bits(length != 0 ? data : "", length);
    out[0] = hash.low64;
    out[1] = hash.high64;
}
