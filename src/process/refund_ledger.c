/* SPDX-License-Identifier: Apache-2.0 */
/* See refund_ledger.h. */
#include "process/refund_ledger.h"

#include "algorithm/window.h"
#include "base/numbers.h"
#include "process/process.h"
#include "process/sync_state.h"

static struct refund_ledger nothing_refunded; /* never written */

struct refund_ledger *refund_ledger_of(const struct process *process, uint32_t cell)
{
    /* Relaxed: a reader that misses a new event misses refunds that [A1] does not promise yet. */
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
    const uint64_t key = (uint64_t) seq << WINDOW_COUNT_BITS; /* its low bits: the word has room for 20 */
    uint64_t seen = load_relaxed(refunds);
    uint64_t next;
    do {
        const bool same = seen >> WINDOW_COUNT_BITS == key >> WINDOW_COUNT_BITS;
        next = key | min_u64((same ? seen & WINDOW_COUNT_MASK : 0) + units, WINDOW_COUNT_MASK);
    } while (!cas_release(refunds, &seen, next)); /* [A1] */
}

void refund_ledger_clear(struct process *process, uint32_t cell)
{
    if (cell_meta_had(&process->table.metas[cell], EVENT_REFUNDED)) {
        struct refund_ledger *ledger = &process->syncs.spills[cell].ledger;
        /* Relaxed: the cell is locked. */
#define CLEAR(field) store_relaxed(&ledger->field, 0);
        REFUND_LEDGER_FIELDS(CLEAR)
    }
}

void refund_ledger_move(struct process *process, uint32_t from, uint32_t to)
{
    if (cell_meta_had(&process->table.metas[from], EVENT_REFUNDED)) {
        struct refund_ledger *new = &process->syncs.spills[to].ledger;
        const struct refund_ledger *old = &process->syncs.spills[from].ledger;
        /* Relaxed: both cells are locked. */
#define COPY(field) store_relaxed(&new->field, load_relaxed(&old->field));
        REFUND_LEDGER_FIELDS(COPY)
    }
}
