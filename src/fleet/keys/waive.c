/* SPDX-License-Identifier: Apache-2.0 */
/* See waive.h. Outage modes: outage.c. */
#include "fleet/keys/waive.h"

#include <string.h>

#include "algorithm/bucket.h"
#include "base/numbers.h"
#include "fleet/keys/reading.h"
#include "fleet/keys/sweep.h"
#include "fleet/state.h"
#include "process/process.h"
#include "process/sync_state.h"
#include "thread/tick.h"

/*
 * Writes to a cell that what its bucket has admitted so far is no debt to the fleet. What the bucket owed before is as
 * of the last answer: since the policy left OUTAGE_MODE_OPEN, units may have been charged in part.
 */
static void waive_cell(const struct sweep *sweep, uint32_t at, struct sync_full *sync, const struct rule *rule)
{
    if (!rule_is_bucket(rule)) {
        return;
    }
    const struct reading reading = reading_of(&sweep->fleet->process->table.cells[at], sync->ledger);
    const uint64_t now = bucket_time(rule, sweep->now_ns);
    struct demand_stats *demand = &sync->demand;
    const uint64_t owed = demand->learned_ns != 0 ? max_u64(demand->known_time, now) : now;
    demand->known_time = min_u64(reading.state.a, owed);
    demand->known_total = bucket_total(reading.state);
    demand->known_refunds = reading.refunds[0];
    demand->known_rate_id = bucket_rate_id(reading.state);
    sync->before.acked_refunds = demand->known_refunds;
    sync->before.acked = sync->now.acked + ((demand->known_total - sync->now.acked) & BUCKET_TOTAL_MASK);
}

void waive_debt(struct fleet *fleet, const struct policy *policy)
{
    fleet->waive.groups[policy->group] = true;
    fleet->waive.cells_done = 0;
}

bool waive_pending(const struct fleet *fleet, const struct policy *policy, uint32_t cell)
{
    return fleet->waive.groups[policy->group] && cell >= fleet->waive.cells_done;
}

void waive_step(struct fleet *fleet, const struct policy_set *set)
{
    const struct sweep sweep = {
        .fleet = fleet, .set = set, .groups = fleet->waive.groups, .now_ns = tick_time(fleet->limiter)};
    if (fleet->waive.cells_done != fleet->process->table.cell_count &&
        sweep_slice(&sweep, &fleet->waive.cells_done, waive_cell)) {
        memset(fleet->waive.groups, 0, sizeof(fleet->waive.groups));
    }
}

bool waive_under_way(const struct fleet *fleet)
{
    return fleet->waive.cells_done != fleet->process->table.cell_count;
}
