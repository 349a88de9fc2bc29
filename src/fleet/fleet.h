/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fleet layer: this node reports its units to the fleet's memory, and takes in what the other nodes reported.
 *
 * All of it runs in the background thread, or in weir_poll. No check ever waits for it. This header is the face that
 * the limiter calls; struct fleet is in state.h, and each module below has a header of its own.
 *
 *   fleet.c             open, close, one step of everything
 *   round.c             one exchange with the fleet: when one is due, how it begins, what its answer changes
 *   gather.c            which cells a round reports
 *   account.c           what a cell has not reported, and whether that is due
 *   report.c            the reports of one cell; report_history.c: those of a sliding log; record.c: names of records
 *   merge.c             answers into cells
 *   publish.c           answers into what checks read (process/allowance.h)
 *   demand.c            local demand of a key; demand_learn.c: demand of all nodes, from two answers
 *   presumed.c          what is presumed of nodes that fell silent
 *   bucket_level.c      the level of a bucket, with units that no node has reported yet
 *   sweep.c             a walk over the whole table, in slices; waive.c and clock_shift.c: two uses of it
 *   full_sync.c         calls of weir_sync: what is asked for, and what was served
 *   outage.c            the outage mode of each policy
 *   membership.c        how many nodes there are
 *   link_health.c       problems of the transport, for the log and the metrics
 *   fleet_clock.c       fleet time
 *   tuning.h            every constant that was chosen by measurement
 */
#ifndef WEIR_FLEET_FLEET_H
#define WEIR_FLEET_FLEET_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

/* Bytes of options.prefix, without the terminator. */
#define PREFIX_MAX 32

struct fleet;
struct limiter;
struct process;
struct record_forms;
struct tick_line;
struct transport;

/*
 * What lies in the memory of the process that steps the fleet. There are the limiter that the fleet belongs to, with
 * the parts that the fleet reads and writes, and what is the host's. The caller closes the transport.
 */
struct fleet_parts {
    struct limiter *limiter;
    struct process *process;
    struct tick_line *line;
    const weir_clock *clock;
    struct record_forms *forms; /* of keys */
    struct transport *transport;
    weir_log_fn log;
    void *log_arg;
    void (*nap)(void);                                /* see struct fleet */
    bool (*move_origin)(void *arg, int64_t delta_ns); /* see struct fleet_clock */
    void *move_arg;
    void *batch; /* fleet_batch_size() bytes that the processes share, where this process has them */
};

/* Bytes of the reports of a round. */
size_t fleet_batch_size(void);

/* 0; -errno where there is no random node id. The memory of both is zeroed. */
int fleet_open(struct fleet *fleet, const struct fleet_parts *parts, const weir_options *options,
               uint64_t monotonic_ns);
/* There is no fleet: what the status tells of the node alone. The memory is zeroed. */
void fleet_open_alone(struct fleet *fleet, const char *node_name, uint64_t monotonic_ns);
/* This process enters the limiter of a fleet that another process has opened, and does not step it yet. */
void fleet_enter(const struct fleet *fleet, struct process *process);

/* Another process begins to step the fleet, or this one on another transport: a round under way has failed. */
void fleet_adopt(struct fleet *fleet, const struct fleet_parts *parts);
/* This process no longer steps the fleet. Whoever is next calls fleet_adopt(), unless the fleet ends. */
void fleet_leave(struct fleet *fleet);

/*
 * Does what is due at `monotonic_ns`. `idle`: nothing has been checked for a while. `ready`: one of the descriptors
 * that fleet_wait_for gave is ready, or the caller does not know.
 */
void fleet_step(struct fleet *fleet, uint64_t monotonic_ns, bool idle, bool ready);

/* Fills in the descriptors to wait for and returns their number; lowers *deadline_ns. */
size_t fleet_wait_for(struct fleet *fleet, struct pollfd *fds, uint64_t *deadline_ns);

/* A call of weir_sync begins to wait. Returns its number: the call is over when fleet->sync_calls.served reaches it. */
uint64_t fleet_wait_begin(struct fleet *fleet);
/* The call ends, served or given up. */
void fleet_wait_end(struct fleet *fleet);

/* Whether a call of weir_sync is not served yet. A call that was given up is still served once, as far as possible. */
bool fleet_wanted(const struct fleet *fleet);

#endif
