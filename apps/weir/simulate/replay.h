/* SPDX-License-Identifier: Apache-2.0 */
/* Plays requests through the engines, and counts what became of them. */
#ifndef WEIR_SIMULATE_REPLAY_H
#define WEIR_SIMULATE_REPLAY_H

#include <stdio.h>

#include "../../gateway/kinds/packet_kind.h"
#include "candidates.h"
#include "choices.h"
#include "clients.h"
#include "progress.h"
#include "timeline.h"

/* The policy that is asked, and the one that it is compared with. */
enum { SIDE_NEW, SIDE_OLD, SIDES };

struct side {
    struct engine_options options;
    struct tried_file file;
    const weir_policy *policy; /* in the file */
    struct engine *engine;     /* NULL before the first request */
    uint64_t denied, delayed, denied_units;
};

struct replay {
    const struct choices *choices;
    struct side sides[SIDES];
    size_t side_count; /* 1: nothing is compared */
    struct clients clients;
    struct candidates candidates[WEIR_MAX_LIMITS];
    struct timeline timeline;
    struct progress progress;
    FILE *decisions; /* NULL: not wanted */
    uint64_t requests, units, first_ms, last_ms;
    uint64_t denied_both;
    bool gateway;              /* the files are played as weir-gateway plays them */
    struct packet_kinds kinds; /* for the gateway */
    bool failed, interrupted;
    weir_error error; /* where it failed */
};

/* Reads the policy files and makes the tables; choices of traces that follow from the files are made. Returns an exit
 * code; where it is not CODE_GOOD a sentence is told. */
int replay_open(struct replay *r, struct choices *choices, struct output *out);
void replay_close(struct replay *r);

/* merge_fn and merge_pause_fn, with a struct replay. */
void replay_take(void *arg, const struct request *requests, size_t count);
bool replay_pause(void *arg);

/* From now on SIGINT ends the reading. */
void replay_catch_interrupt(void);

#endif
