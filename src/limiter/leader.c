/* SPDX-License-Identifier: Apache-2.0 */
/* See leader.h. */
#include "limiter/leader.h"

#include <time.h>

#include "base/probe.h"
#include "fleet/state.h"
#include "limiter/bucket_origin.h"
#include "limiter/weir_private.h"
#include "thread/fork_mark.h"
#include "thread/joined.h"
#include "transport/redis/redis.h"

/*
 * A leader works every 100 ms at least (background.c). One that has not for so long is stopped, or its host no longer
 * calls weir_poll.
 */
#define LEADER_IDLE_NS (500 * NS_PER_MS)

/* A leader that has worked within this time is not looked at: with checks under way it works every tick. */
#define LEADER_LATE_NS (20 * NS_PER_MS)

/*
 * The background thread gathers by pieces of some 100 us. A server's thread that shares the processor runs between two
 * of them. Any sleep gives the processor up; this one is as short as the kernel's timer slack lets it.
 */
#define NAP_NS 50000

static void nap(void)
{
    const struct timespec time = {.tv_nsec = NAP_NS};
    (void) nanosleep(&time, NULL);
}

struct fleet_parts leader_parts(weir *w)
{
    return (struct fleet_parts){.limiter = &w->limiter,
                                .process = &w->limiter.process,
                                .line = &w->limiter.shared->line,
                                .clock = w->limiter.clock,
                                .forms = &w->forms,
                                .transport = w->transport,
                                .log = w->options.log,
                                .log_arg = w->options.log_arg,
                                .nap = w->options.no_thread ? NULL : nap,
                                .move_origin = bucket_origin_move,
                                .move_arg = w,
                                .batch = w->batch};
}

bool leader_is_whole(const weir *w)
{
    return fork_mark_is_own(w->limiter.mark) || load_acquire(&w->is_at_work) == 0;
}

void leader_drop_transport(weir *w)
{
    struct transport *const transport = w->transport;
    w->transport = NULL;
    if (transport != NULL && leader_is_whole(w)) {
        transport->ops->close(transport);
    } else if (transport != NULL) {
        transport->ops->abandon(transport);
    }
}

/* Steps the fleet from now on. False: there is no memory for a transport. */
static bool adopt_fleet(weir *w, uint64_t monotonic_ns)
{
    leader_drop_transport(w);
    w->transport_config.now_ns = monotonic_ns;
    if (redis_transport_open(&w->transport_config, &w->transport, NULL) != 0) {
        return false;
    }
    const struct fleet_parts parts = leader_parts(w);
    fleet_adopt(w->fleet, &parts);
    return true;
}

/* Whether a leader of this index works no more. One that leaves gives up the lead first: a free place is a dead one's.
 */
static bool is_gone(const struct limiter *limiter, uint32_t leader)
{
    return joined_is_dead(limiter, leader) || load_relaxed(&limiter->joined[leader].pid) == 0;
}

/* Whether the present leader has to be replaced; `died`: the last thread that worked died with the lock. */
static bool is_free(const weir *w, bool died, uint64_t monotonic_ns)
{
    const struct weir_shared *shared = w->shared;
    const uint32_t leader = load_relaxed(&shared->leader);
    /* This process may have got the index of a leader that died. */
    return died || leader == JOINED_NONE || leader == w->limiter.joined_as ||
           monotonic_ns >= load_relaxed(&shared->worked_ns) + LEADER_IDLE_NS || is_gone(&w->limiter, leader);
}

enum leader leader_begin(weir *w, uint64_t monotonic_ns)
{
    struct weir_shared *shared = w->shared;
    if (w->limiter.max_processes == 1) {
        store_relaxed(&shared->worked_ns, monotonic_ns);
        return LEADER_STILL;
    }
    if (load_relaxed(&w->leads) == 0 && monotonic_ns - load_relaxed(&shared->worked_ns) < LEADER_LATE_NS) {
        return LEADER_OTHER; /* most looks end here; so the leader does not wait for the lock */
    }
    const enum robust_lock how = robust_mutex_trylock(&w->limiter.process, &shared->work_lock);
    if (how == ROBUST_BUSY) {
        return LEADER_OTHER; /* another process is at work */
    }
    const bool led =
        load_relaxed(&w->leads) != 0 && load_relaxed(&shared->leader) == w->limiter.joined_as && how == ROBUST_TAKEN;
    store_relaxed(&w->leads, led);
    if (!led) {
        leader_drop_transport(w); /* this process led until it was stopped for long */
        if (!is_free(w, how == ROBUST_DIED, monotonic_ns) || (w->has_fleet && !adopt_fleet(w, monotonic_ns))) {
            leader_end(w);
            return LEADER_OTHER;
        }
        probe_leader(w->limiter.joined_as, load_relaxed(&shared->leader), how == ROBUST_DIED);
        store_relaxed(&shared->leader, w->limiter.joined_as);
        store_relaxed(&w->leads, 1);
    }
    store_relaxed(&shared->worked_ns, monotonic_ns);
    return led ? LEADER_STILL : LEADER_NEW;
}

void leader_end(weir *w)
{
    if (w->limiter.max_processes > 1) {
        robust_mutex_unlock(&w->shared->work_lock);
    }
}

void leader_leave(weir *w)
{
    if (w->limiter.max_processes == 1 || load_relaxed(&w->leads) == 0) {
        return; /* the leader may stand still in its work, with the lock */
    }
    (void) robust_mutex_lock(&w->limiter.process, &w->shared->work_lock);
    if (load_relaxed(&w->leads) != 0 && load_relaxed(&w->shared->leader) == w->limiter.joined_as) {
        if (w->has_fleet) {
            fleet_leave(w->fleet);
        }
        store_relaxed(&w->shared->leader, JOINED_NONE);
    }
    leader_end(w);
}
