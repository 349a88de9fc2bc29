/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_all_burst: many requests of several keys each, such as packets with their address and prefixes.
 *
 * The cells of some requests' keys are prefetched, then those requests are decided in order, each as by weir_check_all.
 * Slots stay in a cache. A key without a slot costs a miss, and all misses of a part overlap.
 *
 * Ordering: none of its own. Progress: as weir_check.
 */
#include "base/numbers.h"
#include "check/check_burst.h"
#include "process/process.h"
#include "thread/rcu.h"
#include "thread/thread.h"

/* Keys of one part: as many lines stay in a first cache of 32 KiB, and more misses than a core has under way. */
#define AHEAD 64

/* A part of a burst. */
struct all_burst {
    const weir_key *keys;
    const uint64_t *costs; /* NULL: 1 each */
    size_t keys_per_request;
};

static void prefetch_part(struct weir_thread *t, const weir_key *keys, size_t count)
{
    rcu_enter(t);
    const struct policy_set *set = process_policies(t->process); /* a hint: each check loads it again */
    for (size_t i = 0; i < count; i++) {
        burst_prefetch_cells(t, set, &keys[i]);
    }
    rcu_leave(t);
}

/* Checks up to 64 requests. Returns a bit per request: it is allowed. */
static uint64_t check_requests(struct weir_thread *t, const struct all_burst *burst, size_t count)
{
    uint64_t bits = 0;
    const size_t width = burst->keys_per_request;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *costs = burst->costs != NULL ? burst->costs + i * width : NULL;
        bits |= (uint64_t) weir_check_all(t, burst->keys + i * width, costs, width, NULL) << i;
    }
    return bits;
}

size_t weir_check_all_burst(weir_thread *t, const weir_key *keys, size_t keys_per_request, size_t requests,
                            const uint64_t *costs, uint64_t *allowed_bits)
{
    const bool prefetches = t != NULL && keys_per_request != 0 && keys_per_request <= WEIR_MAX_KEYS_AT_ONCE;
    size_t part = 64; /* requests of a part: a power of two, so that no part has bits of two words */
    while (prefetches && part * keys_per_request > AHEAD) {
        part /= 2;
    }
    size_t allowed = 0;
    uint64_t word = 0;
    for (size_t first = 0; first < requests; first += part) {
        const size_t count = min_u64(requests - first, part);
        const size_t at = first * keys_per_request;
        const struct all_burst burst = {keys + at, costs != NULL ? costs + at : NULL, keys_per_request};
        if (prefetches) {
            prefetch_part(t, burst.keys, count * keys_per_request);
        }
        const uint64_t bits = check_requests(t, &burst, count);
        allowed += (size_t) __builtin_popcountll(bits);
        word |= bits << (first % 64);
        if ((first + count) % 64 == 0 || first + count == requests) {
            if (allowed_bits != NULL) {
                allowed_bits[first / 64] = word;
            }
            word = 0;
        }
    }
    return allowed;
}
