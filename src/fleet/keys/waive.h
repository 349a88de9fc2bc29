/* SPDX-License-Identifier: Apache-2.0 */
/* Waives the debt of buckets whose policy was in OUTAGE_MODE_OPEN: a sweep over the table. */
#ifndef WEIR_FLEET_KEYS_WAIVE_H
#define WEIR_FLEET_KEYS_WAIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/weir.h"

struct fleet;
struct policy;
struct policy_set;

struct waive {
    bool groups[WEIR_MAX_POLICIES + 1]; /* by group id: whose buckets the sweep is about */
    uint32_t cells_done;                /* cells already visited; the number of cells: nothing to do */
};

/*
 * What a policy's buckets have admitted so far is no debt to the fleet: the node was told to admit everything. A sweep
 * writes that to each cell. Until the sweep has come to a cell, waive_pending is true of the cell, and its reports
 * leave the debt out.
 */
void waive_debt(struct fleet *fleet, const struct policy *policy);
bool waive_pending(const struct fleet *fleet, const struct policy *policy, uint32_t cell);

/* Visits the next slice of cells, if the sweep is under way. */
void waive_step(struct fleet *fleet, const struct policy_set *set);
bool waive_under_way(const struct fleet *fleet);

#endif
