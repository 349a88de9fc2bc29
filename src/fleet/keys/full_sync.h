/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weir_sync waits for: one walk over the whole table that reports everything, over as many rounds as it takes.
 *
 * Units used behind the walk are not waited for: with keys in use the walk would never end.
 */
#ifndef WEIR_FLEET_KEYS_FULL_SYNC_H
#define WEIR_FLEET_KEYS_FULL_SYNC_H

#include <stdbool.h>
#include <stdint.h>

struct fleet;

/* The walk under way. */
struct full_sync {
    uint64_t request;                       /* the newest weir_sync that the walk serves; 0: none is under way */
    uint64_t restarts;                      /* the request of the walk that this one begins anew; 0: it is the first */
    uint32_t dirty_cursor, deferred_cursor; /* the walk has passed the cells below, of each bitmap */
    uint32_t evicted_reported;              /* evicted keys reported since both cursors reached the end */
    uint32_t history_cell;                  /* a sliding log that has more units than one round holds */
    uint64_t history_end;                   /* the walk waits for the units of that log below this number */
    bool urgent;                            /* the round before this one was an urgent one */
    bool done;                              /* the round under way holds the last of it */
};

/* Calls of weir_sync, by any thread. */
struct full_sync_calls {
    _Atomic uint64_t requests; /* calls so far */
    _Atomic uint64_t served;   /* the newest call whose walk was answered to the end */
    _Atomic uint64_t refused;  /* the newest call since which every server has refused */
    uint64_t retried;          /* background thread: the newest call for which the servers were tried again */
    _Atomic uint32_t waiters;  /* calls that have not given up */
};

/* A call begins; returns its number. Any thread. */
uint64_t full_sync_call_begin(struct fleet *fleet);
/* A call ends, served or given up. Any thread. */
void full_sync_call_end(struct fleet *fleet);
/* Whether a call is not served yet. A call that was given up is still served once. */
bool full_sync_wanted(const struct fleet *fleet);

/* Ahead of a step of the transport: has servers tried at once that a new call waits for. True: there is one. */
bool full_sync_retry(struct fleet *fleet, uint64_t monotonic_ns);
/* Behind a step: calls wait in vain where every server has refused since they began. */
void full_sync_note_refused(struct fleet *fleet);

/* The walk begins anew if any call still waits: some of what it reported has to be reported again. */
void full_sync_restart(struct fleet *fleet);

#endif
