/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is remembered of keys that were forgotten: fixed memory, eight bytes for each key asked for. See
 * evicted_sketch.c.
 *
 * Threads: any function, any thread. Progress: lock-free. Allocates: nothing after open.
 */
#ifndef WEIR_PROCESS_EVICTED_SKETCH_H
#define WEIR_PROCESS_EVICTED_SKETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "base/atomics.h"

/* How much is lost with a trace, least first. */
enum sketch_priority {
    SKETCH_RETURNED,   /* nothing: the key is in the table again */
    SKETCH_UNDER_HALF, /* less than half of its limit was used */
    SKETCH_HALF,       /* half of it or more */
    SKETCH_REFUSED     /* likewise, and more was asked for than there was room for */
};

struct sketch {
    _Atomic uint64_t *words;
    size_t line_count;
    _Atomic uint64_t origin_ns; /* times are kept from here; fleet time */
    _Atomic uint32_t used;      /* 1: there may be something in it */
    void *memory;
    size_t memory_size;
};

/* 0 or -ENOMEM. */
int sketch_open(struct sketch *sketch, size_t max_keys, uint64_t origin_ns);
void sketch_close(struct sketch *sketch);

/*
 * Remembers a trace of a cell's hash. False: there was no room, and what the key of least weight had used (this one's,
 * or another's) is forgiven. One that was refused never is.
 */
bool sketch_record(struct sketch *sketch, uint64_t hash, struct usage usage, enum sketch_priority weight,
                   uint64_t now_ns);

/* Asks for the line of a hash. */
void sketch_prefetch(const struct sketch *sketch, uint64_t hash);

/* At least what was put of a hash that is not over and was not forgiven; units 0: nothing. `limit`: of its rule. */
struct usage sketch_find(const struct sketch *sketch, uint64_t hash, uint64_t limit, uint64_t now_ns);

/* The same for a key that is in the table again: its trace is the first to give way from now on. */
struct usage sketch_find_returned(struct sketch *sketch, uint64_t hash, uint64_t limit, uint64_t now_ns);

/* Forgets a hash's own trace, and one in some ten thousand of others'. */
void sketch_erase(struct sketch *sketch, uint64_t hash);

/* Moves all times, when fleet time is stepped. As fast for many as for none. */
void sketch_shift(struct sketch *sketch, int64_t delta_ns);

#endif
