/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See weir_salvage.h. Mutexes first, and the time. Then what the policies in force were compiled from, which tells what
 * the keys are; the fleet; and the table with what threads held of it.
 */
#include "limiter/weir_salvage.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/numbers.h"
#include "fleet/fleet_salvage.h"
#include "limiter/leader.h"
#include "limiter/set_policies.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_parts.h"
#include "limiter/weir_private.h"
#include "thread/joined.h"
#include "thread/limiter_salvage.h"

/* Fleet time is at least so far behind the origin of the buckets' times, and at most. */
#define AGE_LEAST_NS NS_PER_S
#define AGE_MOST_NS  (UINT64_C(1) << 57)

static bool is_origin(uint64_t origin_ns, uint64_t now_ns)
{
    return origin_ns <= saturating_sub(now_ns, AGE_LEAST_NS) && now_ns - origin_ns <= AGE_MOST_NS;
}

/*
 * Fleet time goes on, if it can be right. Its origin is there twice. Where neither leads to a time that can be, the
 * times of all keys are as good as lost, and begin anew.
 */
static uint64_t salvage_time(weir *w, uint64_t monotonic_ns)
{
    struct process *process = &w->limiter.process;
    _Atomic uint64_t *sketch_ns = &process->sketch.shared->origin_ns;
    uint64_t offset_ns = load_relaxed(&w->limiter.shared->line.offset_ns);
    uint64_t now_ns = monotonic_ns + offset_ns;
    if (!is_origin(process->shared->origin_ns, now_ns) && !is_origin(load_relaxed(sketch_ns), now_ns)) {
        now_ns = clock_wall_ns(w->limiter.clock);
        offset_ns = now_ns - monotonic_ns;
    }
    if (!is_origin(process->shared->origin_ns, now_ns)) {
        process->shared->origin_ns = load_relaxed(sketch_ns);
    }
    if (!is_origin(process->shared->origin_ns, now_ns)) {
        process->shared->origin_ns = parts_origin_ns(now_ns);
    }
    if (!is_origin(load_relaxed(sketch_ns), now_ns)) {
        store_relaxed(sketch_ns, process->shared->origin_ns);
    }
    tick_start(&w->limiter, monotonic_ns, offset_ns);
    return now_ns;
}

/* No lock is held, and nobody leads. */
static void salvage_shared(weir *w)
{
    struct weir_shared *shared = w->shared;
    shared->policy_lock = shared->work_lock = (struct robust_mutex){0};
    store_relaxed(&shared->half_changed, 0);
    store_relaxed(&shared->leader, JOINED_NONE);
    store_relaxed(&shared->worked_ns, 0);
}

static int salvage_rates(const weir *w)
{
    struct rate_list *rates = w->names.rates;
    rates->count = rates->count <= RATE_LISTS ? rates->count : 0;
    rates->segment = w->named.segment.id;
    return pages_commit(&w->pages, rates, rate_list_size(rates, 0));
}

static int salvage_fleet(weir *w, uint64_t monotonic_ns, uint64_t now_ns)
{
    if (!w->has_fleet) {
        store_relaxed(&w->limiter.process.shared->nodes, 1);
        fleet_salvage_alone(w->fleet, w->options.node_name, monotonic_ns);
        return 0;
    }
    const struct fleet_parts parts = leader_parts(w);
    return fleet_salvage(w->fleet, &parts, &w->options, monotonic_ns, now_ns);
}

static int cannot_repair(const weir *w, int result, weir_error *error)
{
    return result == -ENOSPC
               ? error_set(error, result, "\"%.40s\": there is no room in /dev/shm; make that file system larger",
                           w->named.name)
               : error_set(error, result, "\"%.40s\" cannot be repaired: %s", w->named.name, strerror(-result));
}

static int salvage(weir *w, weir_error *error)
{
    const uint64_t monotonic_ns = clock_monotonic_ns(w->limiter.clock);
    salvage_shared(w);
    const uint64_t now_ns = salvage_time(w, monotonic_ns);
    int result = salvage_rates(w);
    result = result != 0 ? result : shared_policies_load(w);
    result = result != 0 ? result : salvage_fleet(w, monotonic_ns, now_ns);
    if (result != 0) {
        return cannot_repair(w, result, error);
    }
    result = policies_salvage(w, error);
    if (result != 0) {
        return result;
    }
    result = limiter_salvage(&w->limiter, process_policies(&w->limiter.process), now_ns, monotonic_ns);
    return result != 0 ? cannot_repair(w, result, error) : 0;
}

int weir_salvage(weir *w, weir_error *error)
{
    const int result = salvage(w, error);
    limiter_salvage_end(&w->limiter);
    if (result != 0) {
        joined_leave(&w->limiter, w->limiter.joined_as);
    }
    return result;
}
