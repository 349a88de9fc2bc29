/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys with the greatest weights in a stream, in fixed memory.
 *
 * Space-Saving (A. Metwally, D. Agrawal, A. El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data
 * Streams, ICDT 2005), with weights. A key that has a counter adds its weight to the counter. A key without one takes
 * over the least counter with its count, which is then too high by at most that count. Beside the count each counter
 * has `sure`, the weight that its key certainly had. top_k_halve halves all numbers, so that recent weights count more.
 *
 * Invariants, where `truth` is a key's sum of weights, halved and rounded down whenever the list is
 *   H1  sure <= truth <= count, of every key that has a counter
 *   H2  truth <= the least count, of every key that has none; 0 where there are counters left
 *   H3  the sum of all counts <= total. So a key whose truth is more than total / TOP_K_COUNT has a counter.
 *
 * Adding a key walks over 64 counters, some 60 ns, so it is done off the check path. Values are plain: threads that
 * share a list need a lock.
 */
#ifndef WEIR_ALGORITHM_TOP_K_H
#define WEIR_ALGORITHM_TOP_K_H

#include <stddef.h>
#include <stdint.h>

#define TOP_K_COUNT    64
#define TOP_K_KEY_SIZE 39 /* bytes, at most */

struct top_k_key {
    uint8_t length;
    unsigned char bytes[TOP_K_KEY_SIZE];
};

struct top_k {
    uint64_t total;               /* the weights of all keys; all sums saturate */
    uint32_t used;                /* counters */
    uint32_t prints[TOP_K_COUNT]; /* fingerprints of the keys' bytes, compared first */
    uint64_t counts[TOP_K_COUNT];
    uint64_t sure[TOP_K_COUNT];
    struct top_k_key keys[TOP_K_COUNT];
};

/* All zero is an empty list. `length` is at most TOP_K_KEY_SIZE. */
void top_k_add(struct top_k *top_k, const void *key, size_t length, uint64_t weight);

/* Halves all numbers `times` times. */
void top_k_halve(struct top_k *top_k, uint64_t times);

/* Writes the indexes of the greatest counters, greatest first. Returns how many: at most `most`, which is at most
 * TOP_K_COUNT.
 */
size_t top_k_top(const struct top_k *top_k, uint8_t *out, size_t most);

#endif
