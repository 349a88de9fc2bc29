/* SPDX-License-Identifier: Apache-2.0 */
/* Reading, reserving and charging the cells of one claim. decide.c and reserve.c call these functions, in their order.
 */
#ifndef WEIR_CHECK_CLAIM_H
#define WEIR_CHECK_CLAIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/request.h"
#include "process/process.h"
#include "thread/thread.h"

/* What charging comes to. CHARGE_LOST: the cell has become another key's. */
enum charge { CHARGE_DONE, CHARGE_NO_ROOM, CHARGE_LOST, CHARGE_NO_MEMORY };

/* The cell of one limit of a claim. */
static inline struct cell *claim_cell(const struct request *r, const struct claim *claim, size_t limit)
{
    return &r->t->process->table.cells[claim->cells[limit]];
}

/* Reads all limits. `own`: units that each cell holds for this request. False: a cell has become another key's. */
bool claim_read_limits(struct request *r, struct claim *claim, uint64_t own);

/* The state that a limit is charged from, as read. */
struct state claim_base(const struct request *r, const struct claim *claim, size_t limit);

/* Charges the cost to one limit, in one step, where there is room for it. Nothing is held. */
enum charge claim_charge_cell(struct request *r, struct claim *claim, size_t limit);

/* Holds so many units in every cell of the claim, or releases them. */
void claim_reserve(struct request *r, const struct claim *claim, uint64_t units);
void claim_release(struct request *r, const struct claim *claim, uint64_t units);

/*
 * Verifies that a limit has `wanted` units left, of which it holds `own` for this request, and changes the cell's
 * generation [P2]. A log makes room for them.
 */
enum charge claim_verify_cell(struct request *r, struct claim *claim, size_t limit, uint64_t own, uint64_t wanted);

/* Charges the cost to one limit that was verified; it holds `own` units for this request, and goes on holding them. */
enum charge claim_commit_cell(struct request *r, struct claim *claim, size_t limit, uint64_t own);

/* Tells the background thread that a claim was charged. */
void claim_set_dirty(const struct request *r, const struct claim *claim);

#endif
