/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several traces as one, in the order of time.
 *
 * Logs are written when requests end, so they are not in order. Requests wait until no earlier one is expected: until
 * one has come that is a window later. What comes later than that is late, and is left out, as is what has a wrong
 * time: see timed.h. Where a trace has whole seconds alone, the n requests of one second are spread over it evenly, in
 * the order in which they came: the i-th, from 0, is at i / n of the second. Times are whole milliseconds, rounded
 * down.
 *
 * Memory: at most MERGE_MOST requests wait. Beyond that the earliest second goes before its time, and the window is
 * shorter. Where the window is down to some seconds, more of a second may come when some of it went; those are spread
 * over half of what is left of it.
 */
#ifndef WEIR_TRACE_MERGE_H
#define WEIR_TRACE_MERGE_H

#include "trace.h"

/* The window, in seconds, and the greatest that there may be. */
#define MERGE_WAIT_S    900
#define MERGE_WAIT_MOST 86400
#define MERGE_MOST      (1 << 20)

/* A request whose time has come. `key` is valid until the call returns. */
struct request {
    uint64_t time_ms, cost;
    const char *key;
    uint32_t length;
    unsigned char kind;
    bool address; /* see struct record */
};

/* Takes requests in the order of time, at most MERGE_BATCH at once. */
#define MERGE_BATCH 64
typedef void (*merge_fn)(void *arg, const struct request *requests, size_t count);

/* Called now and then between requests. False: no more is read. */
typedef bool (*merge_pause_fn)(void *arg);

struct merge_counts {
    uint64_t reordered;   /* came after one of a later second, and were put in order */
    uint64_t late;        /* came too late for that, and were left out */
    uint64_t set_back;    /* of the late ones, those since the clock was set back */
    uint64_t leaps;       /* had times that most of the others contradict, and were left out */
    uint64_t shortened_s; /* the shortest window there was for want of room; 0: there was room */
};

/* What a merge gives its requests to. */
struct merge_taker {
    merge_fn each;
    merge_pause_fn pause;
    void *arg;
};

/* Reads all traces to their end. `window_s`: up to MERGE_WAIT_MOST. False: out of memory. */
bool merge_run(struct trace *traces, size_t count, unsigned window_s, const struct merge_taker *taker,
               struct merge_counts *counts);

#endif
