/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The requests of one trace whose times can be so.
 *
 * A time is judged by the requests around it. Where one is far ahead of those before it, the next ones decide: if most
 * are back where it was, that one time is wrong, else time has passed. So it is with the first one, as of a machine
 * whose clock was not set yet. Where the next ones are all far behind and go on from there, the clock was set back, as
 * local times are in autumn: they are late until they have passed the time that was reached.
 *
 * What has come more than the window behind what was reached is late. Late requests and those of wrong times are
 * counted, and left out.
 */
#ifndef WEIR_TRACE_TIMED_H
#define WEIR_TRACE_TIMED_H

#include "trace.h"

/* So many requests decide about a time. */
#define TIMED_AHEAD 64

/* A request that was read before its turn. */
struct held {
    struct record record;
    char key[KEY_MOST + 1];
};

struct timed {
    struct trace *trace;
    uint64_t window_ms;
    struct record head; /* what timed_next has read; its key is valid until the next call */
    bool ahead;         /* the head's time is ahead of where the trace is, by less than the window */
    bool begun, ended;
    uint64_t newest_ms;      /* where the trace is */
    uint64_t set_back_to_ms; /* requests up to this time are late; 0: the clock was not set back */
    unsigned unjudged;       /* so many requests are not judged for that again */
    uint64_t set_back;       /* of the late ones, those since the clock was set back */
    uint64_t late, leaps;    /* left out for being late, and for a wrong time */
    struct held *held;       /* a ring of TIMED_AHEAD + 1; NULL before it was needed */
    size_t first, count;     /* of what is held */
};

void timed_open(struct timed *t, struct trace *trace, uint64_t window_ms);
void timed_close(struct timed *t);

/* Reads the next request to `head`. False: there is none, see trace_next(). */
bool timed_next(struct timed *t);

#endif
