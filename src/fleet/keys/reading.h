/* SPDX-License-Identifier: Apache-2.0 */
/* One consistent look at a cell: its state, and the units refunded of it. */
#ifndef WEIR_FLEET_KEYS_READING_H
#define WEIR_FLEET_KEYS_READING_H

#include <stdint.h>

#include "algorithm/rule.h"

struct cell;
struct refund_ledger;
struct sync_full;

/* Read in this order [A1]: the refunds, then the state. */
struct reading {
    uint64_t refunds[2];
    struct state state;
};

struct reading reading_of(const struct cell *cell, const struct refund_ledger *ledger);

/* Local units refunded of the window with this number, in a ledger's two words. */
uint64_t reading_refunds_of(const uint64_t refunds[2], uint32_t seq);
/* The refunds of a window, read from the key's ledger. */
uint64_t reading_window_refunds(const struct sync_full *sync, uint32_t seq);

#endif
