/* SPDX-License-Identifier: Apache-2.0 */
/* The refunds and resets of a key that the fleet has not acknowledged. */
#ifndef WEIR_PROCESS_REFUND_LEDGER_H
#define WEIR_PROCESS_REFUND_LEDGER_H

#include <stdint.h>

#include "algorithm/rule.h"
#include "base/atomics.h"

/* What a key was given back, and its resets. Written by anyone (ordering [A1], check/refund.c) while the cell is
 * pinned. */
struct refund_ledger {
    /* Units, cumulative. A window's stand in [tag & 1], under the tag as in state.a; others' in [0]. */
    _Atomic uint64_t refunds[2];
    _Atomic uint64_t reset;        /* fleet time of a reset that the fleet has not confirmed; 0: none */
    _Atomic uint8_t reset_emptied; /* 1: the state was emptied then, and what it counts has been used since */
};

struct process;

/* Where a pinned or claimed cell's units given back stand; all 0 where there are none. */
struct refund_ledger *refund_ledger_of(const struct process *process, uint32_t cell);
/* The same, to be written to. */
struct refund_ledger *refund_ledger_make(struct process *process, uint32_t cell);

/* Adds to the units given back of the window with this tag; after the state was lowered. */
void refund_ledger_add_window(struct refund_ledger *ledger, uint32_t seq, uint64_t units);

#endif
