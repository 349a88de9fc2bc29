/* SPDX-License-Identifier: Apache-2.0 */
#include "process/refund_ledger.h"

#include "algorithm/window.h"
#include "base/numbers.h"
#include "process/process.h"

static struct refund_ledger nothing_refunded; /* read alone */

struct refund_ledger *refund_ledger_of(const struct process *process, uint32_t cell)
{
    /* Relaxed: who sees the mark too late sees units that are not yet known to be given back, as [A1] says. */
    const bool any = cell_meta_had(&process->table.metas[cell], EVENT_REFUNDED);
    return any ? &process->syncs.spills[cell].ledger : &nothing_refunded;
}

struct refund_ledger *refund_ledger_make(struct process *process, uint32_t cell)
{
    cell_meta_record(&process->table.metas[cell], EVENT_REFUNDED);
    return &process->syncs.spills[cell].ledger;
}

void refund_ledger_add_window(struct refund_ledger *ledger, uint32_t seq, uint64_t units)
{
    _Atomic uint64_t *refunds = &ledger->refunds[seq & 1];
    const uint64_t key = (uint64_t) seq << WINDOW_COUNT_BITS; /* the bits of it that there is room for */
    uint64_t seen = load_relaxed(refunds);
    uint64_t next;
    do {
        const bool same = seen >> WINDOW_COUNT_BITS == key >> WINDOW_COUNT_BITS;
        next = key | min_u64((same ? seen & WINDOW_COUNT_MASK : 0) + units, WINDOW_COUNT_MASK);
    } while (!cas_release(refunds, &seen, next)); /* [A1] */
}
