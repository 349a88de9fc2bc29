/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_requests and weir_check_all_burst: many requests of several keys each, such as packets with their address
 * and prefixes.
 *
 * The cells of some requests' keys are prefetched, then those requests are decided in order, each as by weir_check_all.
 * Slots stay in a cache. A key without a slot costs a miss, and all misses of a part overlap.
 *
 * Ordering: none of its own. Progress: as weir_check.
 */
#include "base/numbers.h"
#include "check/check_all.h"
#include "check/check_burst.h"
#include "process/process.h"
#include "thread/misuse.h"
#include "thread/rcu.h"
#include "thread/thread.h"

/* Keys of one part: as many lines stay in a first cache of 32 KiB, and more misses than a core has under way. */
#define AHEAD 64

static void prefetch_part(struct weir_thread *t, const weir_key *keys, size_t count)
{
    rcu_enter(t);
    const struct policy_set *set = process_policies(t->process); /* a hint: each check loads it again */
    for (size_t i = 0; i < count; i++) {
        burst_prefetch_cells(t, set, &keys[i]);
    }
    rcu_leave(t);
}

/* Checks request `i`. */
static bool check_request(struct weir_thread *t, const weir_requests *requests, size_t i)
{
    uint8_t denied_by = WEIR_NO_KEY;
    bool allowed = t == NULL || requests->keys_per_request == 0;
    if (!allowed && requests->keys_per_request <= WEIR_MAX_KEYS_AT_ONCE) {
        allowed = check_all_requested(t, requests, i, &denied_by);
    }
    if (requests->denied_by != NULL) {
        requests->denied_by[i] = allowed ? WEIR_NO_KEY : denied_by;
    }
    return allowed;
}

/* Checks up to 64 requests from `first` on. Returns a bit per request: it is allowed. */
static uint64_t check_some(struct weir_thread *t, const weir_requests *requests, size_t first, size_t count)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < count; i++) {
        bits |= (uint64_t) check_request(t, requests, first + i) << i;
    }
    return bits;
}

size_t weir_check_requests(weir_thread *t, const weir_requests *requests)
{
    const size_t width = requests->keys_per_request;
    t = t != NULL && misuse_begin(t, "weir_check_requests") ? t : NULL;
    const bool prefetches = t != NULL && width != 0 && width <= WEIR_MAX_KEYS_AT_ONCE;
    size_t part = 64; /* requests of a part: a power of two, so that no part has bits of two words */
    while (prefetches && part * width > AHEAD) {
        part /= 2;
    }
    size_t allowed = 0;
    uint64_t word = 0;
    for (size_t first = 0; first < requests->count; first += part) {
        const size_t count = min_u64(requests->count - first, part);
        if (prefetches) {
            prefetch_part(t, requests->keys + first * width, count * width);
        }
        const uint64_t bits = check_some(t, requests, first, count);
        allowed += (size_t) __builtin_popcountll(bits);
        word |= bits << (first % 64);
        if ((first + count) % 64 == 0 || first + count == requests->count) {
            if (requests->allowed_bits != NULL) {
                requests->allowed_bits[first / 64] = word;
            }
            word = 0;
        }
    }
    return allowed;
}

size_t weir_check_all_burst(weir_thread *t, const weir_key *keys, size_t keys_per_request, size_t requests,
                            const uint64_t *costs, uint64_t *allowed_bits)
{
    const weir_requests all = {.keys = keys,
                               .costs = costs,
                               .keys_per_request = keys_per_request,
                               .count = requests,
                               .allowed_bits = allowed_bits};
    return weir_check_requests(t, &all);
}
