/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which limit would have let nearly all pass: round limits are tried beside the one of the policy, all at once, in one
 * pass. For each client and each candidate there is the state of the policy's algorithm, in single precision. The
 * candidates are CANDIDATES round numbers about the limit. A bucket's burst is scaled with its limit.
 *
 * Each limit of a policy is tried by itself. A fixed or sliding window and a bucket are counted as the library counts
 * them, but for the precision of 24 bits. A sliding log is counted as a sliding window of two counters, whose error
 * docs/choosing.md has. A candidate is of one limiter: the nodes of a fleet are one.
 *
 * Of a bucket a client's deepest level is kept too: the burst with which the present rate would have let all pass.
 */
#ifndef WEIR_SIMULATE_CANDIDATES_H
#define WEIR_SIMULATE_CANDIDATES_H

#include <weir/weir.h>

/* A power of two, as loops over them are vectorized. */
#define CANDIDATES 32

/* What is kept of a client for one limit. All zero: a client that has not come yet. */
struct candidate_row {
    _Alignas(64) uint64_t last; /* bucket: milliseconds of the last request; window: its number + 1 */
    uint32_t denied;            /* bit: the candidate has denied a request of the client */
    float level, most;          /* bucket: level at the policy's own rate, and the deepest one */
    float counts[CANDIDATES];
    float previous[CANDIDATES]; /* sliding windows: of the window before */
};

/* One limit's candidates, and how many requests each denied. */
struct candidates {
    weir_limit limit;
    uint64_t period_ms;
    bool bucket, slides;
    float own_rate; /* units a millisecond */
    float rates[CANDIDATES];
    float depths[CANDIDATES]; /* the most units at once, with what rounding may add */
    uint64_t numbers[CANDIDATES], bursts[CANDIDATES];
    uint64_t offered; /* requests */
    uint64_t denied[CANDIDATES];
    int64_t day, month; /* calendar: the last day that was asked for, and its month */
};

/* `limit` has its defaults filled in. */
void candidates_init(struct candidates *c, const weir_limit *limit);

/* Counts a request of a client. */
void candidates_offer(struct candidates *c, struct candidate_row *row, uint64_t time_ms, uint64_t cost);

#endif
