/* SPDX-License-Identifier: Apache-2.0 */
/* Requests by time, in fixed memory: steps become longer when there are too many. */
#ifndef WEIR_SIMULATE_TIMELINE_H
#define WEIR_SIMULATE_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TIMELINE_STEPS 720

struct step {
    uint64_t requests, denied, denied_old;
};

struct timeline {
    uint64_t step_s;  /* a step's length */
    uint64_t first_s; /* a multiple of it; UINT64_MAX: there are no steps */
    uint64_t last_s;  /* of the last request */
    size_t last;      /* the step of that second; valid when there are steps */
    size_t count;
    struct step steps[TIMELINE_STEPS];
};

void timeline_init(struct timeline *t);

/* Counts a request. Times do not go back. */
void timeline_add(struct timeline *t, uint64_t time_ms, bool denied, bool denied_old);

/* Makes steps longer until there are at most `most`. */
void timeline_fit(struct timeline *t, size_t most);

#endif
