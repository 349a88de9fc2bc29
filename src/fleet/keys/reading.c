/* SPDX-License-Identifier: Apache-2.0 */
/* See reading.h. */
#include "fleet/keys/reading.h"

#include "algorithm/window.h"
#include "process/cell.h"
#include "process/refund_ledger.h"
#include "process/sync_state.h"

struct reading reading_of(const struct cell *cell, const struct refund_ledger *ledger)
{
    struct reading reading;
    reading.refunds[0] = load_acquire(&ledger->refunds[0]);
    reading.refunds[1] = load_acquire(&ledger->refunds[1]);
    reading.state = cell_state(dwcas_read(&cell->state));
    return reading;
}

/* Own units given back of the window with this tag. */
uint64_t reading_refunds_of(const uint64_t refunds[2], uint32_t seq)
{
    const uint64_t word = refunds[seq & 1];
    const uint64_t as = (uint64_t) seq << WINDOW_COUNT_BITS; /* the bits of it that there is room for */
    return word >> WINDOW_COUNT_BITS == as >> WINDOW_COUNT_BITS ? word & WINDOW_COUNT_MASK : 0;
}

uint64_t reading_window_refunds(const struct sync_full *sync, uint32_t seq)
{
    const uint64_t refunds[2] = {load_acquire(&sync->ledger->refunds[0]),
                                 load_acquire(&sync->ledger->refunds[1])}; /* [A1] */
    return reading_refunds_of(refunds, seq);
}
