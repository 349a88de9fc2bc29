/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See process_salvage.h. A key whose cell is not where a search looks for the key is lost. Its cell gets a key that
 * nobody asks for, as one that was left between two keys (mend.c): a cell that had a key must not become empty (I6 of
 * table.h).
 */
#include "process/process_salvage.h"

#include "base/numbers.h"
#include "process/evict.h"
#include "process/history_store.h"
#include "process/mend.h"
#include "process/process.h"
#include "process/sync_pool.h"

static void salvage_reports(struct process *process)
{
    struct process_shared *shared = process->shared;
    struct evicted_reports *reports = &shared->evicted_reports;
    store_relaxed(&reports->lock, 0);
    store_relaxed(&reports->begun, load_relaxed(&reports->ended));
    if (reports->put - reports->taken > EVICTED_COUNT) {
        reports->taken = reports->put;
        (void) add_relaxed(&shared->lost_report_count, 1); /* how many there were is not known */
    }
    for (uint64_t i = reports->taken; i != reports->put; i++) {
        evict_salvage_report(&process->evicted_ring[i % EVICTED_COUNT]);
    }
}

/* Sets the meta word of a key to what it can be. False: no key has it. */
static bool salvage_meta(const struct process *process, const struct policy_set *set, uint32_t at)
{
    struct cell_meta *meta = &process->table.metas[at];
    const struct policy *policy;
    const uint16_t group = load_relaxed(&meta->group);
    unsigned flags = load_relaxed(&meta->flags) & (CELL_SHARED | CELL_HISTORY | CELL_BUCKET);
    if (group > WEIR_MAX_POLICIES) {
        return false;
    }
    const struct policy_limit *limit = policy_set_limit(set, group, load_relaxed(&meta->limit_tag), &policy);
    if (limit != NULL) {
        flags = (flags & CELL_SHARED) | cell_kind_flag(rule_kind(&limit->rule));
    } else if ((flags & CELL_BUCKET) != 0) {
        flags &= ~(unsigned) CELL_HISTORY;
    }
    flags &= process->fleet ? ~0U : ~(unsigned) CELL_SHARED;
    store_relaxed(&meta->flags, (uint8_t) flags);
    return true;
}

/* A cell without a key never had one, or gets that of nobody. */
static void salvage_empty(struct process *process, uint32_t at)
{
    struct cell_meta *meta = &process->table.metas[at];
    const struct cell *cell = &process->table.cells[at];
    if (load_relaxed(&cell->hash) != 0) {
        return;
    }
    if ((load_relaxed(&cell->held) & HELD_LOCKED) != 0 || load_relaxed(&meta->limit_tag) != 0 ||
        load_relaxed(&meta->group) != 0) {
        mend_occupy_by_none(process, at);
    } else {
        cell_meta_write(meta, 0, 0, 0);
    }
}

/* A key that a search does not find is lost. The search goes by what all cells have. */
static void salvage_key(struct process *process, const struct policy_set *set, uint32_t at)
{
    const uint64_t hash = load_relaxed(&process->table.cells[at].hash);
    if (hash != 0 && (table_find(&process->table, hash) != at || !salvage_meta(process, set, at))) {
        mend_occupy_by_none(process, at);
    }
    if (cell_meta_had(&process->table.metas[at], EVENT_DENIED)) {
        top_denied_mend(process, at);
    }
}

void process_salvage(struct process *process, const struct policy_set *set, uint64_t now_ns, uint64_t monotonic_ns)
{
    struct process_shared *shared = process->shared;
    store_relaxed(&shared->stalled, 0);
    store_relaxed(&shared->oversized, 0);
    store_relaxed(&shared->urgent, 1);
    store_relaxed(&shared->news_ns, min_u64(load_relaxed(&shared->news_ns), now_ns));
    salvage_reports(process);
    table_salvage(&process->table);
    if (process->fleet) {
        bitmap_salvage(&process->table.dirty, process->table.cell_count);
        bitmap_salvage(&process->table.urgent, process->table.cell_count);
        bitmap_salvage(&process->table.deferred, process->table.cell_count);
        syncs_salvage(process);
    }
    for (uint32_t at = 0; at < process->table.cell_count; at++) {
        salvage_empty(process, at);
    }
    for (uint32_t at = 0; at < process->table.cell_count; at++) {
        salvage_key(process, set, at);
    }
    history_store_salvage(process, now_ns);
    top_denied_salvage(process, monotonic_ns);
}

void process_salvage_held(struct process *process)
{
    for (uint32_t at = 0; at < process->table.cell_count; at++) {
        struct cell *cell = &process->table.cells[at];
        if ((load_relaxed(&cell->state.b) & CELL_MARK) !=
            0) { /* a locked read of each cell would take most of the time */
            struct dwcas_value value = dwcas_read(&cell->state);
            while (!dwcas_swap(&cell->state, &value, cell_next_generation(value))) {
            }
        }
        const uint64_t held = load_relaxed(&cell->held);
        if ((held & HELD_IN_USE) != 0) {
            store_release(&cell->held, (held | HELD_IN_USE) + 1); /* [T3] the next version */
        }
        history_store_free_lock(process, at);
    }
}
