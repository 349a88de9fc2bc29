/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leader: of the processes that share a weir, the one that does the background work. The others look every
 * LEADER_LOOK_NS or LEADER_ASLEEP_LOOK_NS whether there is a leader still. A process alone always leads.
 *
 * Invariant: background work is done under weir_shared.work_lock, by the process that `leader` names. So a leader that
 * was stopped for long finds, when it goes on, that another process leads.
 */
#ifndef WEIR_LIMITER_LEADER_H
#define WEIR_LIMITER_LEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/numbers.h"
#include "fleet/fleet.h"
#include "weir/weir.h"

/* A call that waits for a dead process's lock is helped by the next look. Without checks there is no hurry. */
#define LEADER_LOOK_NS        (4 * NS_PER_MS)
#define LEADER_ASLEEP_LOOK_NS (40 * NS_PER_MS)

/*
 * Whether the background work has left nothing half changed. A process's own weir is whole, and so is the copy of a
 * child that was forked while its parent's background thread waited. fork() gives the child what each thread of the
 * parent had written up to some moment, so a child that finds is_at_work 0 has all that was written before it.
 */
bool leader_is_whole(const weir *w);

/* Drops the transport, if there is one; of a copy that is not whole, its descriptors alone. */
void leader_drop_transport(weir *w);

/* What the fleet needs of this process. */
struct fleet_parts leader_parts(weir *w);

enum leader {
    LEADER_OTHER, /* another process leads */
    LEADER_NEW,   /* this process leads from now on */
    LEADER_STILL, /* this process leads, and did at the last call */
};

/* Where this process leads, the caller does what is due, and then calls leader_end(). */
enum leader leader_begin(weir *w, uint64_t monotonic_ns);
void leader_end(weir *w);

/* This process leads no more, if it does: another one may at once. */
void leader_leave(weir *w);

#endif
