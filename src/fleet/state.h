/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct fleet: the private state of the fleet layer, a part for each module, declared in that module's header.
 *
 * Everything but forms, sync_calls, stats and agreement.changed belongs to the background thread, or to the thread in
 * weir_poll.
 */
#ifndef WEIR_FLEET_STATE_H
#define WEIR_FLEET_STATE_H

#include "fleet/agreement.h"
#include "fleet/clock_shift.h"
#include "fleet/fleet.h"
#include "fleet/fleet_clock.h"
#include "fleet/fleet_stats.h"
#include "fleet/keys/full_sync.h"
#include "fleet/keys/gather.h"
#include "fleet/keys/merge.h"
#include "fleet/keys/record.h"
#include "fleet/keys/report.h"
#include "fleet/keys/waive.h"
#include "fleet/link_health.h"
#include "fleet/membership.h"
#include "fleet/outage.h"
#include "fleet/round.h"
#include "transport/transport.h"

struct limiter;
struct process;
struct tick_line;

/* A node id: 12 digits, and its terminator. */
#define NODE_ID_SIZE 16

struct fleet {
    struct limiter *limiter; /* for the functions of tick.h and settle.h alone */
    struct process *process;
    struct tick_line *line;
    const weir_clock *node_clock; /* NULL: the system's */
    struct transport *transport;
    weir_log_fn log;
    void *log_arg;
    void (*nap)(void); /* lets the threads run that share the processor; NULL: the thread is the host's own */
    char prefix[PREFIX_MAX + 1];
    char node[NODE_ID_SIZE]; /* random, hexadecimal: the author of this node's reports */
    uint32_t part;           /* of the fleet, to which this node belongs for good: 1 and up; 0: not known yet */
    char name[64];           /* for people */
    uint32_t interval_ms;
    uint32_t expected_nodes; /* as configured */
    uint64_t opened_ns;      /* monotonic */
    bool leaves;             /* this node is about to close */
    struct round round;      /* the exchange under way, as the transport sees it */
    struct round_schedule schedule;
    struct round_news news;
    struct record_forms *forms;
    struct report_batch batch;
    struct gather_cursors gather;
    struct full_sync full_sync;
    struct merge_result merge;
    struct waive waive;
    struct clock_shift clock_shift;
    struct fleet_clock clock;
    struct membership membership;
    struct outage_state outage;
    struct link_health link_health;
    struct round_overrides overrides;
    struct agreement agreement;
    struct full_sync_calls sync_calls;
    struct fleet_stats stats;
};

#endif
