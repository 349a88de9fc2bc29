/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet.h: open and close, and the order in which a step does what is due. */
#include "fleet/fleet.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/numbers.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/evict.h"
#include "process/process.h"
#include "thread/rcu_lane.h"
#include "thread/tick.h"
#include "transport/author.h"

/* Of the first byte: the first three are a number that an author's name has room for (author.h). */
#define ID_FIRST_END 0xee
_Static_assert(ID_FIRST_END << 16 <= AUTHOR_DIGITS, "the node of an author can be told from its name");

/* 12 random hexadecimal digits. */
static int make_node_id(struct fleet *fleet)
{
    unsigned char id[6];
    if (getrandom(id, sizeof(id), 0) != (ssize_t) sizeof(id)) {
        return -errno;
    }
    id[0] %= ID_FIRST_END;
    for (size_t i = 0; i < sizeof(id); i++) {
        (void) snprintf(fleet->node + 2 * i, 3, "%02x", id[i]);
    }
    return 0;
}

static void take_name(struct fleet *fleet, const char *node_name)
{
    if (node_name != NULL) {
        (void) snprintf(fleet->name, sizeof(fleet->name), "%s", node_name);
    } else if (gethostname(fleet->name, sizeof(fleet->name) - 1) != 0) {
        (void) snprintf(fleet->name, sizeof(fleet->name), "unnamed");
    }
    for (char *c = fleet->name; *c != '\0'; c++) {
        /* The name is printed in log lines, and between quotes in the metrics. */
        *c = (unsigned char) *c < ' ' || (unsigned char) *c >= 0x7f || *c == '"' || *c == '\\' ? '_' : *c;
    }
}

size_t fleet_batch_size(void)
{
    return ROUND_REPORTS * (sizeof(struct report) + sizeof(struct report_source)) +
           ROUND_EVICTED * sizeof(struct evicted_report) + ROUND_HISTORIES * sizeof(struct history_report);
}

/* Sets where the batch lies in this process. */
static void place_batch(struct report_batch *batch, unsigned char *memory)
{
    batch->reports = (struct report *) (void *) memory;
    batch->sources = (struct report_source *) (void *) (memory + ROUND_REPORTS * sizeof(*batch->reports));
    batch->evicted =
        (struct evicted_report *) (void *) ((unsigned char *) batch->sources + ROUND_REPORTS * sizeof(*batch->sources));
    batch->histories = (struct history_report *) (void *) (batch->evicted + ROUND_EVICTED);
}

/* Sets what is of this process. */
static void take_parts(struct fleet *fleet, const struct fleet_parts *parts)
{
    fleet->limiter = parts->limiter;
    fleet->process = parts->process;
    fleet->line = parts->line;
    fleet->node_clock = parts->clock;
    fleet->forms = parts->forms;
    fleet->transport = parts->transport;
    fleet->log = parts->log;
    fleet->log_arg = parts->log_arg;
    fleet->nap = parts->nap;
    fleet->clock.move_origin = parts->move_origin;
    fleet->clock.move_arg = parts->move_arg;
    place_batch(&fleet->batch, parts->batch);
}

int fleet_open(struct fleet *fleet, const struct fleet_parts *parts, const weir_options *options, uint64_t monotonic_ns)
{
    struct process *process = parts->process;
    const uint32_t cells = (uint32_t) process->table.cell_count;
    take_parts(fleet, parts);
    fleet->interval_ms = options->sync_interval_ms;
    process->interval_ns = options->sync_interval_ms * NS_PER_MS;
    fleet->gather.deferred_cursor = fleet->gather.deferred_end = cells;
    fleet->waive.cells_done = fleet->clock_shift.cells_done = cells;
    fleet->expected_nodes = options->expected_nodes;
    membership_open(&fleet->membership, options->expected_nodes, process->interval_ns,
                    options->redis_timeout_ms * NS_PER_MS);
    store_relaxed(&process->shared->nodes, membership_nodes(&fleet->membership));
    fleet->opened_ns = monotonic_ns;
    fleet->schedule.extra_ns = UINT64_MAX;
    (void) snprintf(fleet->prefix, sizeof(fleet->prefix), "%s", options->prefix);
    take_name(fleet, options->node_name);
    store_relaxed(&fleet->stats.link, WEIR_LINK_DOWN);
    return make_node_id(fleet);
}

void fleet_open_alone(struct fleet *fleet, const char *node_name, uint64_t monotonic_ns)
{
    fleet->opened_ns = monotonic_ns;
    take_name(fleet, node_name);
}

void fleet_enter(const struct fleet *fleet, struct process *process)
{
    process->interval_ns = fleet->interval_ms * NS_PER_MS;
}

void fleet_leave(struct fleet *fleet)
{
    overrides_drop(fleet->overrides.texts, fleet->overrides.count);
}

void fleet_adopt(struct fleet *fleet, const struct fleet_parts *parts)
{
    /* Texts that are here are another process's. */
    fleet->overrides = (struct round_overrides){.changed = false};
    fleet->round.overrides_new = fleet->round.limits.news = false;
    take_parts(fleet, parts);
    if (fleet->schedule.under_way) {
        round_fail(fleet);
    }
}

uint64_t fleet_wait_begin(struct fleet *fleet)
{
    return full_sync_call_begin(fleet);
}

void fleet_wait_end(struct fleet *fleet)
{
    full_sync_call_end(fleet);
}

bool fleet_wanted(const struct fleet *fleet)
{
    return full_sync_wanted(fleet);
}

/* Steps the transport if it is time to: most steps are ticks, and each of the transport's costs system calls. */
static enum transport_event step_transport(struct fleet *fleet, uint64_t monotonic_ns, bool ready)
{
    struct round_schedule *schedule = &fleet->schedule;
    if (!ready &&
        monotonic_ns < min_u64(schedule->transport_due_ns, schedule->transport_stepped_ns + TRANSPORT_STEP_NS)) {
        return TRANSPORT_NOTHING;
    }
    schedule->transport_stepped_ns = monotonic_ns;
    return fleet->transport->ops->step(fleet->transport, monotonic_ns);
}

/* Begins a round if one is due and the transport is ready. */
static void begin_if_due(struct fleet *fleet, const struct policy_set *set, uint64_t monotonic_ns, bool idle)
{
    struct round_schedule *schedule = &fleet->schedule;
    enum round_kind kind;
    if (schedule->under_way || fleet->clock.step_ns != 0 || !round_due(fleet, monotonic_ns, &kind) ||
        fleet->transport->ops->state(fleet->transport) != TRANSPORT_READY) {
        return;
    }
    if (monotonic_ns >= schedule->extra_ns) {
        schedule->extra_ns = UINT64_MAX;
    }
    const bool interval_is_over = monotonic_ns >= schedule->next_ns;
    schedule->regular = interval_is_over && !idle;
    if (interval_is_over) {
        const uint64_t interval_ns = fleet->process->interval_ns;
        schedule->phase_ns = schedule->begun_ns != 0 ? schedule->phase_ns : monotonic_ns;
        const uint64_t late_ns = (monotonic_ns - schedule->phase_ns) % interval_ns;
        schedule->next_ns =
            monotonic_ns + (idle ? IDLE_INTERVALS : 1) * interval_ns - min_u64(late_ns, interval_ns / PHASE_DIVISOR);
    }
    round_begin(fleet, set, kind, monotonic_ns);
}

void fleet_step(struct fleet *fleet, uint64_t monotonic_ns, bool idle, bool ready)
{
    const uint64_t stepped_ns = fleet->schedule.stepped_ns;
    const bool retries = full_sync_retry(fleet, monotonic_ns);
    const enum transport_event event = step_transport(fleet, monotonic_ns, ready || retries);
    full_sync_note_refused(fleet);
    fleet_clock_slew(fleet, stepped_ns != 0 ? saturating_sub(monotonic_ns, stepped_ns) : 0);
    fleet->schedule.stepped_ns = monotonic_ns;

    const unsigned lane = rcu_enter_lane(fleet->limiter);
    /* Acquire: pairs with the publication in weir_set_policies. */
    struct policy_set *set = process_policies(fleet->process);
    if (event == TRANSPORT_ROUND_DONE) {
        round_finish(fleet, set, monotonic_ns);
    } else if (event == TRANSPORT_ROUND_FAILED) {
        round_fail(fleet);
    }
    const bool down = fleet->transport->ops->state(fleet->transport) == TRANSPORT_DOWN;
    if (fleet->news.failed_ns == 0 && (event == TRANSPORT_ROUND_FAILED || down)) {
        fleet->news.failed_ns = monotonic_ns;
    }
    link_health_check(fleet, event == TRANSPORT_ROUND_FAILED, monotonic_ns);
    if (outage_update(fleet, set, monotonic_ns)) {
        tick_epoch(fleet->limiter);
    }
    if (fleet->clock.step_ns == 0) {
        waive_step(fleet, set);
    }
    begin_if_due(fleet, set, monotonic_ns, idle);
    rcu_leave_lane(fleet->limiter, lane);
    fleet_clock_step(fleet, monotonic_ns);
}

size_t fleet_wait_for(struct fleet *fleet, struct pollfd *fds, uint64_t *deadline_ns)
{
    if (!fleet->schedule.under_way && fleet->transport->ops->state(fleet->transport) == TRANSPORT_READY) {
        const uint64_t due_ns =
            min_u64(min_u64(fleet->schedule.next_ns, fleet->schedule.extra_ns), round_asks_at_ns(fleet));
        *deadline_ns = fleet->gather.has_rest || full_sync_wanted(fleet) ? 0 : min_u64(*deadline_ns, due_ns);
    }
    if (waive_under_way(fleet) || fleet->clock.step_ns != 0) {
        *deadline_ns = 0;
    }
    fleet->schedule.transport_due_ns = UINT64_MAX;
    const size_t count = fleet->transport->ops->wait_for(fleet->transport, fds, &fleet->schedule.transport_due_ns);
    *deadline_ns = min_u64(*deadline_ns, fleet->schedule.transport_due_ns);
    return count;
}
