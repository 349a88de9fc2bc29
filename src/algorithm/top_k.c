/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithm/top_k.h"

#include <stdbool.h>
#include <string.h>

#include "base/hash.h"
#include "base/numbers.h"

static uint32_t print_of(const void *key, size_t length)
{
    uint64_t hash[2];
    hash_shared(key, length, hash);
    return (uint32_t) hash[0];
}

/* A key's counter; `used`: it has none. */
static uint32_t find(const struct heavy *heavy, uint32_t print, const void *key, size_t length)
{
    for (uint32_t i = 0; i < heavy->used; i++) {
        if (heavy->prints[i] == print && heavy->keys[i].length == length &&
            (length == 0 || memcmp(heavy->keys[i].bytes, key, length) == 0)) {
            return i;
        }
    }
    return heavy->used;
}

static uint32_t least(const struct heavy *heavy)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < heavy->used; i++) {
        at = heavy->counts[i] < heavy->counts[at] ? i : at;
    }
    return at;
}

void heavy_add(struct heavy *heavy, const void *key, size_t length, uint64_t weight)
{
    const uint32_t print = print_of(key, length);
    uint32_t at = find(heavy, print, key, length);
    heavy->total = saturating_add(heavy->total, weight);
    if (at == heavy->used) {
        if (heavy->used < HEAVY_COUNT) {
            heavy->counts[heavy->used++] = 0;
        } else {
            at = least(heavy); /* H2: what it stands at is the most that the new key can have had */
        }
        heavy->sure[at] = 0;
        heavy->prints[at] = print;
        heavy->keys[at].length = (uint8_t) length;
        if (length != 0) {
            memcpy(heavy->keys[at].bytes, key, length);
        }
    }
    heavy->counts[at] = saturating_add(heavy->counts[at], weight);
    heavy->sure[at] = saturating_add(heavy->sure[at], weight);
}

static uint64_t halved(uint64_t value, uint64_t times)
{
    return times < 64 ? value >> times : 0;
}

void heavy_halve(struct heavy *heavy, uint64_t times)
{
    uint32_t kept = 0;
    heavy->total = halved(heavy->total, times);
    for (uint32_t i = 0; i < heavy->used; i++) {
        const uint64_t count = halved(heavy->counts[i], times);
        if (count == 0) {
            continue; /* H2: the least was no more, so keys without a counter have nothing left */
        }
        heavy->counts[kept] = count;
        heavy->sure[kept] = halved(heavy->sure[i], times);
        heavy->prints[kept] = heavy->prints[i];
        if (kept != i) {
            heavy->keys[kept] = heavy->keys[i];
        }
        kept++;
    }
    heavy->used = kept;
}

/* Whether counter `a` stands before `b`: the higher count, and of equal ones the surer. */
static bool before(const struct heavy *heavy, uint32_t a, uint32_t b)
{
    return heavy->counts[a] != heavy->counts[b] ? heavy->counts[a] > heavy->counts[b] : heavy->sure[a] > heavy->sure[b];
}

size_t heavy_top(const struct heavy *heavy, uint8_t *out, size_t most)
{
    size_t count = 0;
    for (uint32_t i = 0; i < heavy->used; i++) {
        size_t at = count;
        while (at != 0 && before(heavy, i, out[at - 1])) {
            at--;
        }
        if (at >= most) {
            continue;
        }
        count += count < most;
        memmove(out + at + 1, out + at, count - 1 - at);
        out[at] = (uint8_t) i;
    }
    return count;
}
