/* SPDX-License-Identifier: Apache-2.0 */
/* What a replay has shown, in numbers: for the tables, the JSON and the plots. */
#ifndef WEIR_SIMULATE_FINDINGS_H
#define WEIR_SIMULATE_FINDINGS_H

#include "replay.h"

#define PPM 1000000

/* Shares of the keys, in millionths, at which the peak rate is told; the last is the greatest of all. */
#define PEAK_COUNT 5
extern const unsigned peak_ppm[PEAK_COUNT];

/* What the candidates of one limit have shown. Parts are in millionths. */
struct limit_finding {
    unsigned keys_ppm[CANDIDATES];     /* of the keys, those that no request was denied of */
    unsigned requests_ppm[CANDIDATES]; /* of the requests, those admitted */
    int for_keys, for_requests;        /* the least candidate that lets enough through; -1: none */
    uint64_t burst;                    /* bucket: that lets enough keys through at the present rate; else 0 */
};

struct findings {
    const struct client **top; /* the keys that were denied most */
    size_t top_count;
    bool sampled;     /* there were more keys than the table has, and the counts of keys are estimates */
    uint64_t known;   /* keys that the figures rest on */
    uint64_t keys;    /* all keys */
    uint64_t limited; /* keys that the policy denied a request of */
    uint64_t limited_old, only_new, only_old;
    uint64_t known_requests, rare, rare_requests; /* of the known keys; of those that came once or twice */
    uint32_t peaks[PEAK_COUNT];                   /* requests in the busiest second */
    struct limit_finding limits[WEIR_MAX_LIMITS];
};

/* False: out of memory. The caller calls findings_free. The pointers lead into the replay. */
bool findings_make(struct findings *out, const struct replay *r);
void findings_free(struct findings *f);

/* `part` of `whole` in millionths, rounded down; 0 of nothing. */
unsigned findings_ppm(uint64_t part, uint64_t whole);

#endif
