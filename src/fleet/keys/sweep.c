/* SPDX-License-Identifier: Apache-2.0 */
/* See sweep.h. A slice is bounded in time: a sweep begins in the very step in which the ticks must not be delayed. */
#include <string.h>

#include "base/clock.h"
#include "fleet/keys/sweep.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/sync_pool.h"

/* Pins a cell and visits it, if its policy is one of those asked for. */
static void visit_cell(const struct sweep *sweep, uint32_t at, sweep_visit visit)
{
    struct process *process = sweep->fleet->process;
    struct cell *cell = &process->table.cells[at];
    const struct cell_meta *meta = &process->table.metas[at];
    const uint64_t hash = load_acquire(&cell->hash); /* [T1] */
    if (hash == 0 || (sweep->groups != NULL && !sweep->groups[load_relaxed(&meta->group)]) || !cell_pin(cell, hash)) {
        return;
    }
    const struct policy *policy = NULL;
    const struct policy_limit *limit =
        policy_set_limit(sweep->set, load_relaxed(&meta->group), load_relaxed(&meta->limit_tag), &policy);
    if (limit != NULL) {
        struct sync_full room;
        struct sync_full *sync = sync_load(process, at, &limit->rule, sweep->now_ns, &room);
        visit(sweep, at, sync, &limit->rule);
        sync_store(process, at, sync);
    }
    cell_unpin(cell);
}

/* Goes on from *cursor, for as long as it may. True: that was the last of the table. */
bool sweep_slice(const struct sweep *sweep, uint32_t *cursor, sweep_visit visit)
{
    const struct fleet *fleet = sweep->fleet;
    const uint64_t cell_count = fleet->process->table.cell_count;
    if (*cursor == cell_count) {
        return true;
    }
    const uint64_t until_ns = clock_monotonic_ns(fleet->node_clock) + SWEEP_SLICE_NS;
    do {
        visit_cell(sweep, *cursor, visit);
    } while (++*cursor < cell_count &&
             (*cursor % CLOCK_EVERY_CELLS != 0 || clock_monotonic_ns(fleet->node_clock) < until_ns));
    return *cursor == cell_count;
}
