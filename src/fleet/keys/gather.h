/* SPDX-License-Identifier: Apache-2.0 */
/* Which cells a round reports, and in which order; see gather.c. */
#ifndef WEIR_FLEET_KEYS_GATHER_H
#define WEIR_FLEET_KEYS_GATHER_H

#include <stdbool.h>
#include <stdint.h>

struct fleet;
struct policy_set;

/* What a round is for. */
enum round_kind {
    ROUND_URGENT,    /* urgent cells, and no other */
    ROUND_INTERVAL,  /* the regular round of an interval */
    ROUND_REST,      /* what the round before it had no room for */
    ROUND_FULL_SYNC, /* the next slice of a full sync */
    ROUND_ASK,       /* no reports: which nodes are live? */
};

/* Cells are numbers in the table; a cursor equal to its end, or to the number of cells, has nothing left to do. */
struct gather_cursors {
    uint32_t dirty_cursor;                  /* where the next round begins to look for dirty cells */
    uint32_t deferred_cursor, deferred_end; /* the slice of the table whose deferred cells are scanned */
    uint32_t resync_cursor;                 /* the next cell that a resync reports again; after the last the first */
    uint32_t resync_left, resync_slice;     /* cells that are left of the resync, and of an interval's part of it */
    uint32_t resync_parts;                  /* in so many intervals the table is reported; 0: there was no resync */
    uint64_t resynced_at;                   /* interval_count when the pace of resyncs was chosen */
    uint64_t interval_count;                /* regular rounds so far */
    uint32_t number;                        /* rounds so far, of any kind; wraps */
    uint64_t now_ns;                        /* fleet time at which the round under way was gathered */
    uint64_t before_ns;                     /* fleet time of the round before it */
    bool has_rest;                          /* the last round had no room for all that was due */
    bool reports_all;                       /* for measurements: nothing is deferred */
};

/* Fills fleet->batch; sets fleet->gather.has_rest and fleet->full_sync.done. Within an RCU section. */
void gather_round(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns, enum round_kind kind);

/* Every key is reported again, over some intervals, because the fleet lost its counts: a resync begins, or goes around
 * once more from where it is. */
void gather_resync(struct fleet *fleet);

#endif
