/* SPDX-License-Identifier: Apache-2.0 */
/* Local demand for a key: units admitted and units denied. Cells are pinned. */
#ifndef WEIR_FLEET_KEYS_DEMAND_H
#define WEIR_FLEET_KEYS_DEMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "process/sync_state.h"

struct report;
struct fleet;

/*
 * An inspection of a cell: demand_begin, demand_local for each window (or the bucket), then demand_denied. Of a
 * sliding log demand_units does all of that.
 */
void demand_begin(struct sync_full *sync);
/* `own`: local units of a window, or of a bucket, as counted so far. */
void demand_local(struct sync_full *sync, struct sync_counts *counts, uint64_t own);
/*
 * Returns the units denied since the last inspection. `into_ns`: time since the window began; `period_ns`: its length.
 * UINT64_MAX, 0: there are no windows.
 */
uint64_t demand_denied(const struct fleet *fleet, struct sync_full *sync, uint64_t into_ns, uint64_t period_ns,
                       uint64_t now_ns);
/* `end`: the number of units so far; `counts`: how many of them were reported. */
void demand_units(const struct fleet *fleet, struct sync_full *sync, uint64_t counts, uint64_t end, uint64_t now_ns);

/* A key has just been given a full sync state. `steady`: its use goes on; else this is a first contact. */
void demand_reset(struct sync_full *sync, uint64_t now_ns, uint64_t interval_ns, bool steady);

/* Demand elsewhere, by one record's answer. */
void demand_remote(struct sync_full *sync, struct sync_counts *counts, const struct report *report);

/*
 * Whether units may have been charged to a bucket in part since `since_ns`. A grant that was given before the fleet's
 * answer is charged by what was in force then, a tick later.
 */
static inline bool demand_in_parts(const struct sync_full *sync, uint64_t since_ns)
{
    return load_relaxed(&sync->allowance.fraction) != 0 || sync->demand.shared || sync->demand.fraction_ns > since_ns;
}

#endif
