/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cells a round reports, in this order:
 *
 *   urgent    cells that cannot wait (process/allowance.c); an urgent round of these alone may come URGENT_NS after the
 *             last round
 *   evicted   the last reports of keys that are no longer in the table; half of the time and half of the logs at most
 *   dirty     cells that changed since their last inspection: those that are due are reported, the others are deferred
 *   deferred  a slice of the table each interval: cells that have become due, or too old, are reported
 *   resync    after the fleet has lost counts: every cell, a slice of the table each interval. Where the fleet loses
 *             counts again and again, as a Redis does that evicts, reports of all cells are what makes it evict: each
 *             resync is slower than the one before, until there was a calm
 *
 * A round is bounded in reports and in time, so that cells that gathered during an outage delay neither the ticks nor
 * the urgent cells. What is left goes in the next round, which follows at once. A full sync (weir_sync) reports all of
 * these, due or not.
 */
#include "fleet/keys/gather.h"
#include "base/clock.h"
#include "base/numbers.h"
#include "fleet/keys/report.h"
#include "fleet/keys/report_history.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/evict.h"
#include "process/sync_pool.h"

/* The round that is being gathered. */
struct gathering {
    struct fleet *fleet;
    const struct policy_set *set;
    uint64_t now_ns;
    uint64_t until_ns; /* by the system's clock */
    unsigned looked;
    bool full; /* of reports or of logs; or without sync states or time left */
    uint32_t again[ROUND_HISTORIES];
    size_t again_count;
    uint32_t unreported; /* the first cell that has more than could be reported; TABLE_NONE: there is none */
};

/* Looks at the clock, and lets others run. The time that they take is not the round's. */
static void end_piece(struct gathering *g)
{
    const struct fleet *fleet = g->fleet;
    const uint64_t now_ns = clock_monotonic_ns(fleet->node_clock);
    g->full = now_ns >= g->until_ns;
    if (!g->full && fleet->nap != NULL) {
        fleet->nap();
        g->until_ns += clock_monotonic_ns(fleet->node_clock) - now_ns;
    }
}

static bool has_room(struct gathering *g)
{
    /* Room for two: a window's cell may have two reports. */
    g->full = g->full || g->fleet->batch.sync_missing || g->fleet->round.report_count + 2 > ROUND_REPORTS ||
              g->again_count == ROUND_HISTORIES;
    if (!g->full && ++g->looked % CLOCK_EVERY_CELLS == 0) {
        end_piece(g);
    }
    return !g->full;
}

static void take(struct gathering *g, uint32_t at, enum urge urge)
{
    const bool all = report_cell(g->fleet, g->set, at, g->now_ns, urge);
    if (!all) {
        g->again[g->again_count++] = at;
    }
    if (!all || g->fleet->batch.sync_missing) {
        g->unreported = at < g->unreported ? at : g->unreported;
    }
}

/* Reports all of a bitmap's cells between *cursor and `end`. */
static void take_all(struct gathering *g, struct bitmap *from, uint32_t *cursor, uint32_t end, enum urge urge)
{
    while (has_room(g)) {
        const uint32_t at = bitmap_next(from, cursor, end);
        if (at == BITMAP_NONE) {
            return;
        }
        /* Prefetches the full sync state of the next cell, which its compact one names; and the compact one after that.
         */
        const uint32_t next = bitmap_ahead(from, *cursor);
        const uint32_t after = next != BITMAP_NONE ? bitmap_ahead(from, next + 1) : BITMAP_NONE;
        if (after != BITMAP_NONE) {
            sync_prefetch_cell(g->fleet->process, after);
        }
        if (next != BITMAP_NONE) {
            sync_prefetch(&g->fleet->process->syncs, next);
        }
        take(g, at, urge);
    }
}

static void take_urgent(struct gathering *g)
{
    struct process *process = g->fleet->process;
    uint32_t cursor = 0;
    if (load_relaxed(&process->shared->urgent) != 0) {
        store_relaxed(&process->shared->urgent,
                      0); /* a cell that is marked after this is in this round or in the next */
        take_all(g, &process->table.urgent, &cursor, (uint32_t) process->table.cell_count, URGE_NOW);
        if (g->full) {
            store_relaxed(&process->shared->urgent, 1);
        }
    }
}

static void take_evicted(struct gathering *g)
{
    struct fleet *fleet = g->fleet;
    while (fleet->batch.evicted_count < ROUND_EVICTED &&
           evict_take_report(fleet->process, &fleet->batch.evicted[fleet->batch.evicted_count])) {
        fleet->batch.evicted_count++;
    }
    const bool full = g->full;
    const size_t histories = fleet->batch.history_count; /* of urgent cells */
    g->until_ns -= GATHER_SLICE_NS / 2;
    while (has_room(g) && fleet->batch.evicted_sent < fleet->batch.evicted_count &&
           fleet->batch.history_count - histories < ROUND_HISTORIES / 2 && report_evicted(fleet, g->set, g->now_ns)) {
        fleet->batch.evicted_sent++;
    }
    g->until_ns += GATHER_SLICE_NS / 2;
    g->full = full;
}

/* Begins where the last round ended, and goes once around: no key waits for ever behind busier keys. */
static void take_dirty(struct gathering *g)
{
    struct fleet *fleet = g->fleet;
    struct bitmap *dirty = &fleet->process->table.dirty;
    const uint32_t first = fleet->gather.dirty_cursor;
    take_all(g, dirty, &fleet->gather.dirty_cursor, (uint32_t) fleet->process->table.cell_count, URGE_IF_DUE);
    if (!g->full) {
        fleet->gather.dirty_cursor = 0;
        take_all(g, dirty, &fleet->gather.dirty_cursor, first, URGE_IF_DUE);
    }
}

/* The end of the slice of the table that begins at `from`, of `parts` slices. */
static uint32_t slice_end(const struct fleet *fleet, uint32_t from, uint32_t parts)
{
    const uint64_t cells = fleet->process->table.cell_count;
    const uint64_t fraction = (cells / parts / 64 + 1) * 64; /* whole words */
    return (uint32_t) min_u64(from + fraction, cells);
}

static void take_deferred(struct gathering *g, bool begins)
{
    struct fleet *fleet = g->fleet;
    const uint32_t cells = (uint32_t) fleet->process->table.cell_count;
    if (begins &&
        fleet->gather.deferred_cursor >= fleet->gather.deferred_end) { /* else the last slice is not done yet */
        fleet->gather.deferred_cursor = fleet->gather.deferred_end < cells ? fleet->gather.deferred_end : 0;
        fleet->gather.deferred_end = slice_end(fleet, fleet->gather.deferred_cursor, SCAN_INTERVALS);
    }
    take_all(g, &fleet->process->table.deferred, &fleet->gather.deferred_cursor, fleet->gather.deferred_end, URGE_SCAN);
}

static void take_resync(struct gathering *g, bool begins, bool all)
{
    struct gather_cursors *gather = &g->fleet->gather;
    const struct table *table = &g->fleet->process->table;
    const uint32_t cells = (uint32_t) table->cell_count;
    if (all) {
        gather->resync_slice = gather->resync_left;
    } else if (begins && gather->resync_left != 0) {
        gather->resync_slice = cells / gather->resync_parts + 1;
    }
    for (; gather->resync_left != 0 && gather->resync_slice != 0 && has_room(g); gather->resync_slice--) {
        if (load_relaxed(&table->cells[gather->resync_cursor].hash) != 0) {
            take(g, gather->resync_cursor, URGE_AGAIN);
        }
        gather->resync_cursor = (gather->resync_cursor + 1) % cells;
        gather->resync_left--;
    }
}

static bool evicted_done(const struct fleet *fleet)
{
    return fleet->batch.evicted_sent == fleet->batch.evicted_count && fleet->batch.evicted_count < ROUND_EVICTED;
}

/*
 * The full sync waits for the first cell that has more than could be reported. For a log that is used faster than
 * rounds can report, that would be for ever. Where new units are all that the log has, the full sync waits for the
 * units that the log held when that was first seen.
 */
static void wait_for_unreported(struct gathering *g)
{
    struct full_sync *full_sync = &g->fleet->full_sync;
    uint64_t counts;
    uint64_t end;
    if (g->unreported >= full_sync->dirty_cursor) {
        return;
    }
    full_sync->dirty_cursor = g->unreported;
    if (!report_history_outrun(g->fleet, g->unreported, &counts, &end)) {
        return;
    }
    if (full_sync->history_cell != g->unreported || end < full_sync->history_end || full_sync->history_end == 0) {
        full_sync->history_cell = g->unreported;
        full_sync->history_end = end;
    }
    full_sync->dirty_cursor += counts >= full_sync->history_end;
}

/*
 * Reports everything from where the full sync stands. `ended`: number of keys that had been evicted, and lay in the
 * ring, before the ring was read.
 */
static void take_full_sync(struct gathering *g, uint64_t ended)
{
    struct fleet *fleet = g->fleet;
    struct full_sync *full_sync = &fleet->full_sync;
    struct table *table = &fleet->process->table;
    const uint32_t cells = (uint32_t) table->cell_count;
    const bool swept = full_sync->dirty_cursor >= cells && full_sync->deferred_cursor >= cells;
    take_resync(g, false, true); /* the walks below get the room that is left */
    take_all(g, &table->dirty, &full_sync->dirty_cursor, cells, URGE_NOW);
    take_all(g, &table->deferred, &full_sync->deferred_cursor, cells, URGE_NOW);
    wait_for_unreported(g);
    full_sync->evicted_reported = swept ? full_sync->evicted_reported + (uint32_t) fleet->batch.evicted_sent : 0;
    /* A key that was there when the round began, and was evicted before the walk came to it, is reported in another
     * round. */
    const bool all_there = swept || evict_begun_count(fleet->process) == ended;
    /* The ring of evicted keys is in order: after so many, what is left was evicted meanwhile. */
    const bool evicted = evicted_done(fleet) || full_sync->evicted_reported >= EVICTED_COUNT + ROUND_EVICTED;
    full_sync->done = all_there && evicted && full_sync->dirty_cursor >= cells && full_sync->deferred_cursor >= cells;
}

void gather_round(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns, enum round_kind kind)
{
    if (fleet->nap != NULL) {
        fleet->nap(); /* the answers of the round before may have been merged just now */
    }
    struct gathering g = {.fleet = fleet,
                          .set = set,
                          .now_ns = now_ns,
                          .until_ns = clock_monotonic_ns(fleet->node_clock) + GATHER_SLICE_NS,
                          .unreported = TABLE_NONE};
    const bool begins = kind == ROUND_INTERVAL;
    fleet->round.report_count = 0;
    fleet->batch.history_count = 0;
    fleet->merge.refunded = fleet->merge.lost = fleet->merge.gone = fleet->batch.sync_missing = false;
    fleet->gather.before_ns = fleet->gather.now_ns;
    fleet->gather.now_ns = now_ns;
    fleet->gather.interval_count += begins;
    fleet->gather.number++;
    fleet->batch.evicted_sent = 0; /* of a round that failed as well */
    const uint64_t ended = evict_ended_count(fleet->process);
    if (kind != ROUND_FULL_SYNC) {
        take_urgent(&g);
    }
    if (kind != ROUND_URGENT) {
        take_evicted(&g);
    }
    if (kind == ROUND_FULL_SYNC) {
        take_full_sync(&g, ended);
    } else if (kind != ROUND_URGENT) {
        take_dirty(&g);
        take_deferred(&g, begins);
        take_resync(&g, begins, false);
        fleet->gather.has_rest = g.full || g.unreported != TABLE_NONE || !evicted_done(fleet);
    }
    /* Logs that had more units than fit are dirty again. Marked earlier, they would be met twice in this round. */
    for (size_t i = 0; i < g.again_count; i++) {
        table_set_dirty(&fleet->process->table, g.again[i]);
    }
}

void gather_resync(struct fleet *fleet)
{
    struct gather_cursors *gather = &fleet->gather;
    const uint64_t since = gather->interval_count - gather->resynced_at;
    gather->resync_left = (uint32_t) fleet->process->table.cell_count;
    if (gather->resync_parts == 0 || since >= RESYNC_CALM) {
        gather->resync_parts = RESYNC_INTERVALS;
    } else if (since >= gather->resync_parts) {
        gather->resync_parts = (uint32_t) min_u64((uint64_t) gather->resync_parts * RESYNC_SLOWER, RESYNC_MOST);
    } else {
        return;
    }
    gather->resynced_at = gather->interval_count;
}
