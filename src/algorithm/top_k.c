/* SPDX-License-Identifier: Apache-2.0 */
/* See top_k.h. */
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
static uint32_t find_counter(const struct top_k *top_k, uint32_t print, const void *key, size_t length)
{
    for (uint32_t i = 0; i < top_k->used; i++) {
        if (top_k->prints[i] == print && top_k->keys[i].length == length &&
            (length == 0 || memcmp(top_k->keys[i].bytes, key, length) == 0)) {
            return i;
        }
    }
    return top_k->used;
}

static uint32_t least_counter(const struct top_k *top_k)
{
    uint32_t at = 0;
    for (uint32_t i = 1; i < top_k->used; i++) {
        at = top_k->counts[i] < top_k->counts[at] ? i : at;
    }
    return at;
}

void top_k_add(struct top_k *top_k, const void *key, size_t length, uint64_t weight)
{
    const uint32_t print = print_of(key, length);
    uint32_t at = find_counter(top_k, print, key, length);
    top_k->total = saturating_add(top_k->total, weight);
    if (at == top_k->used) {
        if (top_k->used < TOP_K_COUNT) {
            top_k->counts[top_k->used++] = 0;
        } else {
            at = least_counter(top_k); /* H2: what it stands at is the most that the new key can have had */
        }
        top_k->sure[at] = 0;
        top_k->prints[at] = print;
        top_k->keys[at].length = (uint8_t) length;
        if (length != 0) {
            memcpy(top_k->keys[at].bytes, key, length);
        }
    }
    top_k->counts[at] = saturating_add(top_k->counts[at], weight);
    top_k->sure[at] = saturating_add(top_k->sure[at], weight);
}

static uint64_t halved(uint64_t value, uint64_t times)
{
    return times < 64 ? value >> times : 0;
}

void top_k_halve(struct top_k *top_k, uint64_t times)
{
    uint32_t kept = 0;
    top_k->total = halved(top_k->total, times);
    for (uint32_t i = 0; i < top_k->used; i++) {
        const uint64_t count = halved(top_k->counts[i], times);
        if (count == 0) {
            continue; /* H2: the least was no more, so keys without a counter have nothing left */
        }
        top_k->counts[kept] = count;
        top_k->sure[kept] = halved(top_k->sure[i], times);
        top_k->prints[kept] = top_k->prints[i];
        if (kept != i) {
            top_k->keys[kept] = top_k->keys[i];
        }
        kept++;
    }
    top_k->used = kept;
}

/* Whether counter `a` stands before `b`: the higher count, and of equal ones the surer. */
static bool before(const struct top_k *top_k, uint32_t a, uint32_t b)
{
    return top_k->counts[a] != top_k->counts[b] ? top_k->counts[a] > top_k->counts[b] : top_k->sure[a] > top_k->sure[b];
}

size_t top_k_top(const struct top_k *top_k, uint8_t *out, size_t most)
{
    size_t count = 0;
    for (uint32_t i = 0; i < top_k->used; i++) {
        size_t at = count;
        while (at != 0 && before(top_k, i, out[at - 1])) {
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
