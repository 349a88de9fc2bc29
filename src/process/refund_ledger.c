/* SPDX-License-Identifier: Apache-2.0 */
#include "process/refund_ledger.h"

#include "algorithm/window.h"
#include "base/numbers.h"
#include "process/process.h"

static struct given nothing_given; /* read alone */

struct given *given_of(const struct process *process, uint32_t cell)
{
    /* Relaxed: who sees the mark too late sees units that are not yet known to be given back, as [A1] says. */
    const bool any = (load_relaxed(&process->table.owners[cell].marks) & MARK_GIVEN) != 0;
    return any ? &process->notes.asides[cell].given : &nothing_given;
}

struct given *given_make(struct process *process, uint32_t cell)
{
    owner_mark(&process->table.owners[cell], MARK_GIVEN);
    return &process->notes.asides[cell].given;
}

void given_add_window(struct given *given, uint32_t tag, uint64_t units)
{
    _Atomic uint64_t *back = &given->back[tag & 1];
    const uint64_t key = (uint64_t) tag << WINDOW_COUNT_BITS; /* the bits of it that there is room for */
    uint64_t seen = load_relaxed(back);
    uint64_t next;
    do {
        const bool same = seen >> WINDOW_COUNT_BITS == key >> WINDOW_COUNT_BITS;
        next = key | min_u64((same ? seen & WINDOW_COUNT_MASK : 0) + units, WINDOW_COUNT_MASK);
    } while (!cas_release(back, &seen, next)); /* [A1] */
}
