/* SPDX-License-Identifier: Apache-2.0 */
/* Charging what passed on a grant to the cells of the grant's key; see settling.c. */
#ifndef WEIR_THREAD_SETTLING_H
#define WEIR_THREAD_SETTLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dwcas.h"
#include "process/cell.h"
#include "thread/limiter.h"
#include "thread/slot_account.h"

/*
 * Charges *used - accounted, of a locked slot without a grant, to the slot's cells. An earlier settling of the slot
 * that was not ended is ended: *used is what that one charges. False: another process wants to be alone with the table;
 * the slot stays as it is, to be settled later.
 */
bool settling_charge(struct weir_thread *t, size_t index, uint64_t *used);

/* The settling that settling_charge() has done is over: `accounted` has its units. */
static inline void settling_end(struct slot_account *account)
{
    fence_compiler(); /* in this order, whenever the process dies */
    store_relaxed(&account->settling.step, 0);
}

/* Whether slots of this limiter are settled so that another process can end it. */
static inline bool settling_is_noted(const struct limiter *limiter)
{
    return limiter->max_processes > 1;
}

/*
 * The three steps of one charge. What is about to be charged is noted. The swap leaves a mark. It is noted that the
 * cell was charged, and the mark goes. `used`: as in struct settling. `limit`: of the policy.
 */
static inline void settling_begin(struct slot_account *account, size_t limit, uint64_t used)
{
    account->settling.used = used;
    fence_compiler(); /* in this order, whenever the process dies */
    store_relaxed(&account->settling.step, (uint32_t) (2 * limit + 1));
    fence_compiler();
}

/* `value` with the mark of a slot's settler. */
struct dwcas_value settling_mark(const struct weir_thread *t, size_t index, struct dwcas_value value);

/* `before`, `marked`: what the swap found and left. */
void settling_note_charged(struct slot_account *account, size_t limit, struct cell *cell, struct dwcas_value before,
                           struct dwcas_value marked);

/*
 * These find out how far the settling of a slot came, where the settler has died with the slot's lock. The first: the
 * settler was charging a log, and still has the log's lock. The second: the settler was charging a cell, whose mark
 * goes then. The second only while no call is at the table.
 */
void settling_resolve_log(struct weir_thread *t, size_t index);
void settling_resolve_cell(struct weir_thread *t, size_t index);

#endif
