/* SPDX-License-Identifier: Apache-2.0 */
/* What is done to every key of a policy, or of the table; see sweep.c. Names: waive_, clock_shift_. */
#ifndef WEIR_FLEET_SWEEP_H
#define WEIR_FLEET_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "weir/weir.h"

struct fleet;
struct policy;
struct policy_set;

struct waive {
    bool groups[WEIR_MAX_POLICIES + 1]; /* by group id: whose buckets it is about */
    uint32_t cells_done;                /* cells already visited; the number of cells: nothing to do */
};

struct clock_shift {
    uint32_t cells_done; /* cells already visited; the number of cells: nothing to do */
};

/*
 * What a policy's buckets have admitted so far is no debt to the fleet: their node was told to admit everything. A
 * sweep writes that to each cell. Until it has come to a cell, waive_pending is true of the cell, and its reports leave
 * the debt out.
 */
void waive_debt(struct fleet *fleet, const struct policy *policy);
bool waive_pending(const struct fleet *fleet, const struct policy *policy, uint32_t cell);

/* Visits the next slice of cells, if a sweep is under way. */
void waive_step(struct fleet *fleet, const struct policy_set *set);

/* Whether any sweep has more to do. */
bool report_sweeping(const struct fleet *fleet);

/*
 * Moves the states of the next slice of cells by `delta_ns`, as fleet time is stepped. `now_ns`: by the time before the
 * step. True: that was the last slice.
 */
bool clock_shift_step(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns, int64_t delta_ns);

#endif
