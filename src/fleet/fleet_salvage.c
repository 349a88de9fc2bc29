/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See fleet_salvage.h. All of it is as new that is not kept here. What is kept is in range: a time is not in the
 * future, or not far in it, and a number of cells or nodes is one that there can be.
 */
#include "fleet/fleet_salvage.h"

#include <string.h>

#include "base/compiler.h"
#include "base/numbers.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/evict.h"
#include "process/process.h"

/* More nodes than any fleet has; and longer than nodes are awaited. */
#define NODES_MOST (UINT32_C(1) << 20)
#define AWAIT_MOST (600 * NS_PER_S)

/* Years by which fleet time may be stepped: the clock of a host that has lost its battery says 1970. */
#define STEP_MOST_NS ((int64_t) 100 * 366 * 86400 * (int64_t) NS_PER_S)

#define ID_DIGITS 12

static void keep_node(struct fleet *fleet, const struct fleet *old)
{
    if (strnlen(old->node, sizeof(old->node)) == ID_DIGITS && strspn(old->node, "0123456789abcdef") == ID_DIGITS) {
        memcpy(fleet->node, old->node, sizeof(fleet->node));
        fleet->part = old->part <= NODES_MOST ? old->part : 0;
    }
}

static void keep_news(struct fleet *fleet, const struct round_news *old, uint64_t monotonic_ns)
{
    if (old->good_ns > monotonic_ns || old->begun_ns > old->good_ns || old->failed_ns > monotonic_ns) {
        return;
    }
    fleet->news = (struct round_news){.good_ns = old->good_ns,
                                      .begun_ns = old->begun_ns,
                                      .failed_ns = old->failed_ns,
                                      .age_ns = min_u64(old->age_ns, AWAIT_MOST),
                                      .slow = bool_of_byte(&old->slow),
                                      .awaits_peers = bool_of_byte(&old->awaits_peers),
                                      .peers_resume = bool_of_byte(&old->peers_resume)};
}

static void keep_membership(struct membership *membership, const struct membership *old, uint64_t monotonic_ns,
                            uint64_t now_ns)
{
    const uint32_t numbers[] = {old->live, old->suspect, old->expected, old->most, old->joined};
    const uint64_t later[] = {old->await_until_ns, old->await_most_ns, old->resume_until_ns, old->regular_from_ns};
    bool sound = old->expected != 0 && old->most_ns <= monotonic_ns && old->joined_ns <= monotonic_ns &&
                 old->complete_ns <= monotonic_ns && old->watermark_ns <= now_ns && old->spoken_ns <= now_ns &&
                 old->gone_ns <= now_ns && (old->await_live <= NODES_MOST || old->await_live == UINT32_MAX);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        sound = sound && numbers[i] <= NODES_MOST;
    }
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
        sound = sound && later[i] <= monotonic_ns + AWAIT_MOST;
    }
    if (!sound) {
        return;
    }
    const struct membership fresh = *membership;
    *membership = *old;
    membership->failed = bool_of_byte(&old->failed);
    membership->interval_ns = fresh.interval_ns;
    membership->await_ns = fresh.await_ns;
    membership->settle_ns = fresh.settle_ns;
    membership->tell_ns = fresh.tell_ns;
}

/* A step of fleet time goes on where it had come to. */
static void keep_clock(struct fleet *fleet, const struct fleet *old)
{
    const int64_t step_ns = old->clock.step_ns;
    const uint32_t cells = (uint32_t) fleet->process->table.cell_count;
    fleet->clock.known = bool_of_byte(&old->clock.known);
    if (old->clock_shift.cells_done <= cells && step_ns >= -STEP_MOST_NS && step_ns <= STEP_MOST_NS) {
        fleet->clock.step_ns = step_ns;
        fleet->clock.readers_drained = bool_of_byte(&old->clock.readers_drained);
        fleet->clock_shift.cells_done = old->clock_shift.cells_done;
    }
}

static void keep_waive(struct waive *waive, const struct waive *old, uint32_t cells)
{
    if (old->cells_done < cells) {
        waive->cells_done = old->cells_done;
        for (size_t group = 0; group <= WEIR_MAX_POLICIES; group++) {
            waive->groups[group] = bool_of_byte(&old->groups[group]);
        }
    }
}

/* Evicted keys that are not reported yet. */
static void keep_evicted(struct report_batch *batch, const struct report_batch *old)
{
    batch->evicted_count = old->evicted_count <= ROUND_EVICTED ? old->evicted_count : 0;
    for (size_t i = 0; i < batch->evicted_count; i++) {
        evict_salvage_report(&batch->evicted[i]);
    }
}

static void keep_cursors(struct gather_cursors *gather, const struct gather_cursors *old, uint64_t now_ns)
{
    gather->number = old->number;
    gather->now_ns = min_u64(old->now_ns, now_ns);
    gather->before_ns = min_u64(old->before_ns, now_ns);
    gather->interval_count = old->interval_count;
    gather->resynced_at = min_u64(old->resynced_at, old->interval_count);
}

static void keep_stats(struct fleet_stats *stats, const struct fleet_stats *old)
{
    memcpy((void *) stats, (const void *) old, sizeof(*stats));
    store_relaxed(&stats->link, WEIR_LINK_DOWN);
}

int fleet_salvage(struct fleet *fleet, const struct fleet_parts *parts, const weir_options *options,
                  uint64_t monotonic_ns, uint64_t now_ns)
{
    struct fleet fresh;
    memset((void *) &fresh, 0, sizeof(fresh));
    const int result = fleet_open(&fresh, parts, options, monotonic_ns);
    if (result != 0) {
        return result;
    }
    fresh.opened_ns = min_u64(fleet->opened_ns, monotonic_ns);
    keep_node(&fresh, fleet);
    keep_news(&fresh, &fleet->news, monotonic_ns);
    keep_membership(&fresh.membership, &fleet->membership, monotonic_ns, now_ns);
    keep_clock(&fresh, fleet);
    keep_waive(&fresh.waive, &fleet->waive, (uint32_t) parts->process->table.cell_count);
    keep_evicted(&fresh.batch, &fleet->batch);
    keep_cursors(&fresh.gather, &fleet->gather, now_ns);
    keep_stats(&fresh.stats, &fleet->stats);
    fresh.outage.began = bool_of_byte(&fleet->outage.began);
    fresh.outage.back_ns = fleet->outage.back_ns <= monotonic_ns ? fleet->outage.back_ns : 0;
    if (memchr(fleet->overrides.version, '\0', sizeof(fleet->overrides.version)) != NULL) {
        memcpy(fresh.overrides.version, fleet->overrides.version, sizeof(fresh.overrides.version));
    }
    if (bool_of_byte(&fleet->schedule.under_way)) {
        gather_resync(&fresh);
    }
    store_relaxed(&parts->process->shared->nodes, membership_nodes(&fresh.membership));
    memcpy((void *) fleet, (const void *) &fresh,
           sizeof(fresh)); /* at last: an opener that dies before leaves the id */
    return 0;
}

void fleet_salvage_alone(struct fleet *fleet, const char *node_name, uint64_t monotonic_ns)
{
    const uint64_t opened_ns = min_u64(fleet->opened_ns, monotonic_ns);
    memset((void *) fleet, 0, sizeof(*fleet));
    fleet_open_alone(fleet, node_name, opened_ns);
}
