/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several traces as one, in the order of time.
 *
 * Requests wait until no earlier one is expected: until one has come that is MERGE_WAIT_S seconds later. What comes
 * later than that is late, and counts in the earliest second that still waits. Where a trace has whole seconds alone,
 * the n requests of one second are spread over it evenly, in the order in which they came: the i-th, from 0, is at i /
 * n of the second. Times are whole milliseconds, rounded down.
 *
 * Memory: at most MERGE_MOST requests wait. Beyond that the earliest second goes before its time. Requests of a second
 * of which some went already are spread over half of what is left of it.
 */
#ifndef WEIR_TRACE_MERGE_H
#define WEIR_TRACE_MERGE_H

#include "trace.h"

#define MERGE_WAIT_S 30
#define MERGE_MOST   (1 << 20)

/* A request whose time has come. `key` is valid until the call returns. */
struct request {
    uint64_t time_ms, cost;
    const char *key;
    uint32_t length;
    bool address; /* see struct record */
};

/* Takes requests in the order of time, at most MERGE_BATCH at once. */
#define MERGE_BATCH 64
typedef void (*merge_fn)(void *arg, const struct request *requests, size_t count);

/* Called now and then between requests. False: no more is read. */
typedef bool (*merge_pause_fn)(void *arg);

struct merge_counts {
    uint64_t reordered; /* came after one of a later second, and were put in order */
    uint64_t late;      /* came too late for that */
    uint64_t leaps;     /* were more than a year ahead of the others, and were left out */
};

/* Reads all traces to their end. False: out of memory. */
bool merge_run(struct trace *traces, size_t count, merge_fn each, merge_pause_fn pause, void *arg,
               struct merge_counts *counts);

#endif
