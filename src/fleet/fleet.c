/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/numbers.h"
#include "base/pages.h"
#include "base/rcu.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "thread/settle.h"

int fleet_open(struct fleet *fleet, struct limiter *limiter, struct transport *transport, const weir_options *options,
               uint64_t monotonic_ns)
{
    fleet->limiter = limiter;
    fleet->process = &limiter->process;
    fleet->log = options->log;
    fleet->log_arg = options->log_arg;
    fleet->interval_ms = options->sync_interval_ms;
    limiter->process.interval_ns = options->sync_interval_ms * NS_PER_MS;
    fleet->gather.resync_cursor = fleet->gather.resync_end = fleet->gather.deferred_cursor =
        fleet->gather.deferred_end = (uint32_t) limiter->process.table.cell_count;
    fleet->waive.cells_done = fleet->clock_shift.cells_done = (uint32_t) limiter->process.table.cell_count;
    fleet->expected_nodes = options->expected_nodes;
    membership_open(&fleet->membership, options->expected_nodes, limiter->process.interval_ns,
                    options->redis_timeout_ms * NS_PER_MS);
    store_relaxed(&limiter->process.nodes, membership_nodes(&fleet->membership));
    fleet->opened_ns = monotonic_ns;
    fleet->schedule.next_ns = monotonic_ns;
    fleet->schedule.extra_ns = UINT64_MAX;
    (void) snprintf(fleet->prefix, sizeof(fleet->prefix), "%s", options->prefix);
    if (options->node_name != NULL) {
        (void) snprintf(fleet->name, sizeof(fleet->name), "%s", options->node_name);
    } else if (gethostname(fleet->name, sizeof(fleet->name) - 1) != 0) {
        (void) snprintf(fleet->name, sizeof(fleet->name), "unnamed");
    }
    for (char *c = fleet->name; *c != '\0'; c++) {
        /* It stands in a log line, and between quotes in the metrics. */
        *c = (unsigned char) *c < ' ' || (unsigned char) *c >= 0x7f || *c == '"' || *c == '\\' ? '_' : *c;
    }
    unsigned char id[6];
    if (getrandom(id, sizeof(id), 0) != (ssize_t) sizeof(id)) {
        return -errno;
    }
    for (size_t i = 0; i < sizeof(id); i++) {
        (void) snprintf(fleet->node + 2 * i, 3, "%02x", id[i]);
    }
    fleet->batch.memory_size = ROUND_REPORTS * (sizeof(*fleet->batch.reports) + sizeof(*fleet->batch.sources)) +
                               ROUND_EVICTED * sizeof(*fleet->batch.evicted) +
                               ROUND_HISTORIES * sizeof(*fleet->batch.histories);
    unsigned char *memory = pages_reserve(fleet->batch.memory_size, true);
    if (memory == NULL) {
        return -ENOMEM;
    }
    fleet->batch.reports = (struct report *) (void *) memory;
    fleet->batch.sources = (struct report_source *) (void *) (memory + ROUND_REPORTS * sizeof(*fleet->batch.reports));
    fleet->batch.evicted = (struct evicted_report *) (void *) ((unsigned char *) fleet->batch.sources +
                                                               ROUND_REPORTS * sizeof(*fleet->batch.sources));
    fleet->batch.histories = (struct history_report *) (void *) (fleet->batch.evicted + ROUND_EVICTED);
    fleet->transport = transport;
    store_relaxed(&fleet->stats.link, WEIR_LINK_DOWN);
    return 0;
}

void fleet_close(struct fleet *fleet)
{
    if (fleet->transport != NULL) {
        fleet->transport->ops->close(fleet->transport);
        fleet->transport = NULL;
    }
    pages_release(fleet->batch.reports, fleet->batch.memory_size);
    overrides_drop(fleet->overrides.texts, fleet->overrides.count);
    fleet->overrides.texts = NULL;
    fleet->batch.reports = NULL;
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

void fleet_step(struct fleet *fleet, uint64_t monotonic_ns, bool idle, bool ready)
{
    const struct transport_ops *ops = fleet->transport->ops;
    /* Most steps are ticks, and each of the transport's costs calls of the system. */
    const bool steps = ready || monotonic_ns >= min_u64(fleet->schedule.transport_due_ns,
                                                        fleet->schedule.transport_stepped_ns + TRANSPORT_STEP_NS);
    fleet->schedule.transport_stepped_ns = steps ? monotonic_ns : fleet->schedule.transport_stepped_ns;
    const enum transport_event event = steps ? ops->step(fleet->transport, monotonic_ns) : TRANSPORT_NOTHING;
    fleet_clock_slew(fleet,
                     fleet->schedule.stepped_ns != 0 ? saturating_sub(monotonic_ns, fleet->schedule.stepped_ns) : 0);
    fleet->schedule.stepped_ns = monotonic_ns;

    rcu_enter();
    /* Acquire: pairs with the publication in weir_set_policies. */
    const struct policy_set *set = load_acquire(&fleet->process->policies);
    if (event == TRANSPORT_ROUND_DONE) {
        round_finish(fleet, set, monotonic_ns);
    } else if (event == TRANSPORT_ROUND_FAILED) {
        round_fail(fleet);
    }
    fleet->news.failed =
        fleet->news.failed || event == TRANSPORT_ROUND_FAILED || ops->state(fleet->transport) == TRANSPORT_DOWN;
    link_health_check(fleet, event == TRANSPORT_ROUND_FAILED, monotonic_ns);
    if (outage_update(fleet, set, monotonic_ns)) {
        tick_epoch(fleet->limiter);
    }
    if (fleet->clock.step_ns == 0) {
        waive_step(fleet, set);
    }
    enum round_kind kind;
    if (!fleet->schedule.under_way && fleet->clock.step_ns == 0 && round_due(fleet, monotonic_ns, &kind) &&
        ops->state(fleet->transport) == TRANSPORT_READY) {
        if (monotonic_ns >= fleet->schedule.extra_ns) {
            fleet->schedule.extra_ns = UINT64_MAX;
        }
        if (kind == ROUND_INTERVAL && monotonic_ns >= fleet->schedule.next_ns) {
            const uint64_t interval_ms = (uint64_t) fleet->interval_ms * (idle ? IDLE_INTERVALS : 1);
            fleet->schedule.next_ns = monotonic_ns + interval_ms * NS_PER_MS;
        }
        round_begin(fleet, set, kind, monotonic_ns);
    }
    rcu_leave();
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
