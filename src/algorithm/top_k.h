/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Heavy hitters: of a stream of keys with weights, those with the most, in fixed memory.
 *
 * Space-Saving (A. Metwally, D. Agrawal, A. El Abbadi: Efficient Computation of Frequent and Top-k Elements in Data
 * Streams, ICDT 2005), with weights: a key that has a counter adds to it; one that has none takes the least counter
 * over, and its count, which is then too high by at most what that was. Instead of that error a counter keeps what its
 * key had for sure. All is halved now and then (top_k_halve), so that the list tells of what is recent.
 *
 * Invariants, where `truth` is a key's sum of weights, halved and rounded down whenever the list is
 *   H1  sure <= truth <= count, of every key that has a counter
 *   H2  truth <= the least count, of every key that has none; 0 where there are counters left
 *   H3  the sum of all counts <= total. So a key whose truth is more than total / TOP_K_COUNT has a counter.
 *
 * A walk over 64 counters per key, some 60 ns: it is meant for a thread that has time. Plain values: whoever shares a
 * list locks it.
 */
#ifndef WEIR_ALGORITHM_TOP_K_H
#define WEIR_ALGORITHM_TOP_K_H

#include <stddef.h>
#include <stdint.h>

#define TOP_K_COUNT    64
#define TOP_K_KEY_SIZE 39 /* bytes, at most */

struct heavy_key {
    uint8_t length;
    unsigned char bytes[TOP_K_KEY_SIZE];
};

struct top_k {
    uint64_t total;               /* of all keys; saturates, as all sums here */
    uint32_t used;                /* counters */
    uint32_t prints[TOP_K_COUNT]; /* of the keys' bytes, for a first look */
    uint64_t counts[TOP_K_COUNT];
    uint64_t sure[TOP_K_COUNT];
    struct heavy_key keys[TOP_K_COUNT];
};

/* All zero is an empty list. `length` is at most TOP_K_KEY_SIZE. */
void top_k_add(struct top_k *top_k, const void *key, size_t length, uint64_t weight);

/* Halves everything, so many times. */
void top_k_halve(struct top_k *top_k, uint64_t times);

/* The counters with the most, most first, as indexes; returns how many: at most `most`, which is at most TOP_K_COUNT.
 */
size_t top_k_top(const struct top_k *top_k, uint8_t *out, size_t most);

#endif
