/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a named weir: a segment that is opened or made, filled, and entered. See
 * docs/decisions/023-named-segments.md for what an opener meets.
 *
 * named_open() waits until no other process opens the segment. The caller takes all parts from `pages`, always in one
 * order, and calls named_enter() and named_complete() or, after an error, named_close().
 */
#ifndef WEIR_NAMED_NAMED_H
#define WEIR_NAMED_NAMED_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/memory/segment.h"
#include "base/pages.h"
#include "weir/weir.h"

struct limiter;
struct segment_header;

/* Why there is a new segment in the place of an old one. */
enum named_replaced { REPLACED_NONE, REPLACED_HALF, REPLACED_BROKEN };

struct named {
    char name[NAME_MAX + 1]; /* empty: the weir has no name */
    struct segment segment;
    struct segment_header *header;
    bool making;                  /* the segment is fresh, and not complete */
    bool first;                   /* this process had no mapping of the segment before */
    enum named_replaced replaced; /* and the log has not had it */
};

/* 0, or -EINVAL with a sentence. */
int named_check(const char *name, weir_error *error);

/*
 * Opens or makes the segment of options->shared_name for `pages`, of which the first part is taken. `replaced`: why an
 * earlier attempt has removed one. 0, or a negative errno with a sentence: see weir_open.
 */
int named_open(struct named *named, struct pages_owner *pages, const weir_options *options,
               enum named_replaced replaced, weir_error *error);

/* How a process has entered. */
enum named_entry {
    NAMED_MADE,  /* the segment is new */
    NAMED_ALONE, /* no other process is joined */
    NAMED_JOINED,
};

/*
 * All parts are taken, and filled where the segment is fresh: enters. *entry NAMED_ALONE: the caller salvages what is
 * there (limiter_salvage_begin() was called). 0, or a negative errno with a sentence.
 */
int named_enter(struct named *named, struct limiter *limiter, enum named_entry *entry, weir_error *error);

/* All is as it is to be: the segment is complete, and other openers may go on. */
void named_complete(struct named *named, const weir_options *options);

/* What is there makes no sense: removes its name. named_close() follows. */
void named_discard(const struct named *named);

/* Whether the processes that have entered give no grants. A forked child may know less than its parent's segment. */
bool named_forbids_grants(const struct named *named);

/* A forked child is about to join: waits until no other process opens the segment. *lock_fd: -1: no lock is needed. */
int named_lock(const struct named *named, int *lock_fd);
void named_unlock(int lock_fd);

/* Gives up the mapping. A segment that is not complete is removed. Allowed on zeros. */
void named_close(struct named *named);

#endif
