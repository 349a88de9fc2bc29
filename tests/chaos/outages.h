/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to Redis or to a node while four processes share five limits of 2000 units a second, and what they let
 * pass meanwhile, second by second.
 *
 * Something begins to happen 5 s after the nodes begin to work, and a part of a second that depends on the seed. Nodes
 * begin to work with a second of the wall clock. A node that was not scheduled for long does not offer what it missed,
 * as that would be of another second: so what is offered is counted as well.
 */
#ifndef WEIR_TESTS_OUTAGES_H
#define WEIR_TESTS_OUTAGES_H

#include <stdbool.h>
#include <stdint.h>

#define OUTAGE_LIMIT   2000 /* units a second */
#define OUTAGE_LIMITS  5
#define OUTAGE_NOT_LOG 0xfu /* mask: all but the sliding log */
#define OUTAGE_SECONDS 340  /* of a run, at most */
#define OUTAGE_EVENTS  22

struct outage_run;

struct outage_event {
    const char *name, *text;
    void (*happens)(const struct outage_run *run);
    uint32_t for_ms;
    uint32_t proxied; /* mask of the nodes that reach Redis through the proxy */
    bool goes;        /* the last node stops to work when it happens, and the others take over */
    bool comes;       /* another node comes, and is offered its part from then on */
    bool in_test;
    bool long_one; /* only where it is asked for */
};

extern const struct outage_event outage_events[OUTAGE_EVENTS];
extern const char *const outage_limits[OUTAGE_LIMITS];

struct outage_result {
    uint32_t seconds; /* whole ones */
    double began;     /* what happened, in seconds of the run */
    /* late_ms: the longest that a thread of a node did not run */
    uint32_t offered[OUTAGE_LIMITS][OUTAGE_SECONDS], admitted[OUTAGE_LIMITS][OUTAGE_SECONDS], late_ms[OUTAGE_SECONDS];
};

/* Ends the process where there is none. */
const struct outage_event *outage_event_named(const char *name);

/* One run, in this process. `demand`: as a multiple of the limit. `limits`: a mask. Without a Redis it ends the
 * process. */
void outage_measure(const struct outage_event *event, double rates, uint64_t seed, uint32_t limits,
                    struct outage_result *out);

#endif
