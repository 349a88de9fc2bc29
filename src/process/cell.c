/* SPDX-License-Identifier: Apache-2.0 */
/* See cell.h. */
#include "process/cell.h"

bool cell_pin(struct cell *cell, uint64_t hash)
{
    const uint64_t old = cell_hold(cell, HELD_PIN);
    /* [T1] acquire by the read-modify-write: a lock taken before is seen here, one tried later fails (I2). */
    if ((old & HELD_LOCKED) == 0 && load_acquire(&cell->hash) == hash) {
        return true;
    }
    cell_unpin(cell);
    return false;
}

void cell_unpin(struct cell *cell)
{
    (void) cell_hold(cell, (uint64_t) 0 - HELD_PIN);
}

bool cell_lock(struct cell *cell)
{
    uint64_t held = load_acquire(&cell->held);
    return (held & HELD_IN_USE) == 0 && cas_seq_cst(&cell->held, &held, (held + HELD_VERSION) | HELD_LOCKED);
}

void cell_unlock(struct cell *cell)
{
    (void) cell_hold(cell, (uint64_t) 0 - HELD_LOCKED);
}
