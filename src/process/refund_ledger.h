/* SPDX-License-Identifier: Apache-2.0 */
/* The refunds and resets of a key that the fleet has not acknowledged. Ordering [A1]: check/refund.c. */
#ifndef WEIR_PROCESS_REFUND_LEDGER_H
#define WEIR_PROCESS_REFUND_LEDGER_H

#include <stddef.h>
#include <stdint.h>

/* Written by any thread that has pinned the cell. */
struct refund_ledger {
    /* Units, cumulative. Those of a window are in [seq & 1], below the window's seq; those of other kinds in [0]. */
    _Atomic uint64_t refunds[2];
    _Atomic uint64_t reset;        /* fleet time of a reset that is not acknowledged; 0: none */
    _Atomic uint8_t reset_emptied; /* 1: the state was emptied then, and counts only units since */
};

/* All fields of struct refund_ledger. */
#define REFUND_LEDGER_FIELDS(X)                                                                                        \
    X(refunds[0])                                                                                                      \
    X(refunds[1])                                                                                                      \
    X(reset)                                                                                                           \
    X(reset_emptied)

#define REFUND_LEDGER_SIZE(field) +sizeof(((struct refund_ledger *) NULL)->field)
_Static_assert(offsetof(struct refund_ledger, reset_emptied) + 1 == 0 REFUND_LEDGER_FIELDS(REFUND_LEDGER_SIZE),
               "REFUND_LEDGER_FIELDS lists every field; reset_emptied stays the last one");

struct process;

/* The ledger of a pinned or locked cell, to read; a ledger of zeros if the key has none. */
struct refund_ledger *refund_ledger_of(const struct process *process, uint32_t cell);
/* The ledger of a pinned cell, to write. */
struct refund_ledger *refund_ledger_make(struct process *process, uint32_t cell);

/* Adds refunded units of the window `seq`; call after the state was lowered. */
void refund_ledger_add_window(struct refund_ledger *ledger, uint32_t seq, uint64_t units);

/* Of locked cells: clears the ledger of the last key; and copies that of a key that moves. */
void refund_ledger_clear(struct process *process, uint32_t cell);
void refund_ledger_move(struct process *process, uint32_t from, uint32_t to);

#endif
