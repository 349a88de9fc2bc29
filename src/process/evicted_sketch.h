/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The usage of evicted keys, in fixed memory: eight bytes for each key of the table. See evicted_sketch.c.
 * Names: sketch_.
 *
 * Threads: any function, any thread. Progress: lock-free. Allocates: nothing after open.
 */
#ifndef WEIR_PROCESS_EVICTED_SKETCH_H
#define WEIR_PROCESS_EVICTED_SKETCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/rule.h"

/* How much is lost with a record, least first. */
enum sketch_priority {
    SKETCH_RETURNED,   /* nothing: the key is in the table again */
    SKETCH_UNDER_HALF, /* less than half of its limit was used */
    SKETCH_HALF,       /* half of its limit was used, or more */
    SKETCH_REFUSED,    /* half of it or more, and a request asked for more than there was room for */
};

/* What changes beside the words. It has no pointers, as struct process_shared. */
struct sketch_shared {
    _Atomic uint64_t origin_ns; /* of the times in the words; fleet time */
    _Atomic uint32_t used;      /* 1: there may be a record */
};

struct sketch {
    struct sketch_shared *shared;
    _Atomic uint64_t *words;
    size_t row_count;
    void *memory;
    size_t memory_size;
};

struct pages_owner;

/* 0 or -ENOMEM. Holds a record for each of `max_keys` keys, less what the overflow takes.
 */
int sketch_open(struct sketch *sketch, size_t max_keys, uint64_t origin_ns, struct pages_owner *pages);
void sketch_close(struct sketch *sketch, const struct pages_owner *pages);

/*
 * Keeps a usage record of a cell's hash. False: there was no room, and the record of the least priority (this one or
 * another) was dropped. A SKETCH_REFUSED record never is.
 */
bool sketch_record(struct sketch *sketch, uint64_t hash, struct usage usage, enum sketch_priority priority,
                   uint64_t now_ns);

/* What sketch_record_first() did. */
enum sketch_first {
    SKETCH_NOT_RECORDED, /* nothing: the hash may have had a record before, or all records of the row are greater */
    SKETCH_RECORDED,
    SKETCH_DROPPED_OTHER, /* recorded; a record of less priority was dropped */
};

/* Keeps the first usage record of a hash, of a key that is not in the table. */
enum sketch_first sketch_record_first(struct sketch *sketch, uint64_t hash, struct usage usage,
                                      enum sketch_priority priority, uint64_t now_ns);

/* Prefetches the row of a hash. */
void sketch_prefetch(const struct sketch *sketch, uint64_t hash);

/* At least the usage recorded of a hash, if it still counts and was not dropped; units 0: none. `limit`: the rule's. */
struct usage sketch_find(const struct sketch *sketch, uint64_t hash, uint64_t limit, uint64_t now_ns);

/* As sketch_find, for a key that is in the table again: its record gives way first from now on. */
struct usage sketch_find_returned(struct sketch *sketch, uint64_t hash, uint64_t limit, uint64_t now_ns);

/* Erases a hash's own record, and one in some ten thousand of other hashes' records. */
void sketch_erase(struct sketch *sketch, uint64_t hash);

/* Moves all times when fleet time is stepped, in constant time. */
void sketch_shift(struct sketch *sketch, int64_t delta_ns);

#endif
