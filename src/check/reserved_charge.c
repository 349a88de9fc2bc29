/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: it would join the entries of the list. */
/*
 * Charging the cells of a request in four steps, so that all are charged or none:
 *
 *   reserve  raise `held` of every cell by cost + grant. The grant is at most headroom / (4 * threads) of the claim's
 *            tightest limit, so that what all threads can hold at once is a quarter of what is left.
 *   verify   read every cell again, with a compare-and-swap that changes the cell's generation alone [P2]. Where a
 *            cell has no room, release everything: nothing was counted.
 *   commit   charge every cell.
 *   release  lower `held` by the cost. The grant stays held.
 *
 * Units held at once must not overflow `held`: of requests for more than HOLD_MOST units only one at a time holds any.
 *
 * Ordering: [P2] of decide.c; [S3] of settle.c: held is lowered after the charge.
 *
 * Progress: lock-free, but for logs. Two requests for the last units can make each other release; decide.c tries again.
 */
/* clang-format on */
#include "check/reserved_charge.h"

#include "base/numbers.h"
#include "base/spin.h"

/* Units that the first `count` claims hold in a cell. A cell may be of several claims: a key may be named twice. */
static uint64_t held_in(const struct request *r, size_t count, uint32_t cell)
{
    uint64_t units = 0;
    for (size_t c = 0; c < count; c++) {
        const struct claim *claim = &r->claims[c];
        for (size_t i = 0; claim_takes_units(claim) && i < claim->policy->limit_count; i++) {
            units += claim->cells[i] == cell ? claim->cost + claim->granted : 0;
        }
    }
    return units;
}

static void reserve_all(struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        const struct claim *claim = &r->claims[c];
        if (claim_takes_units(claim)) {
            claim_reserve(r, claim, claim->cost + claim->granted); /* [P2] */
        }
    }
}

static void release_all(struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        const struct claim *claim = &r->claims[c];
        if (claim_takes_units(claim)) {
            claim_release(r, claim, claim->cost + claim->granted);
        }
    }
}

/* Verifies all that is reserved. *without_memory: an optional claim that the request can go on without; NULL: none. */
static enum charge verify_all(struct request *r, struct claim **without_memory)
{
    *without_memory = NULL;
    for (size_t c = 0; c < r->count; c++) {
        struct claim *claim = &r->claims[c];
        for (size_t i = 0; i < claim->policy->limit_count && claim_takes_units(claim); i++) {
            /* A claim wants room for itself and the claims before it, by its own limits: as when it was read. */
            const uint64_t own = held_in(r, r->count, claim->cells[i]);
            const uint64_t wanted = held_in(r, c + 1, claim->cells[i]);
            const enum charge seen = claim_verify_cell(r, claim, i, own, wanted);
            if (seen != CHARGE_DONE) {
                *without_memory = seen == CHARGE_NO_MEMORY && claim->optional ? claim : NULL;
                return seen;
            }
        }
    }
    return CHARGE_DONE;
}

/* Charges all that is verified, and releases the costs. */
static void commit_all(struct request *r)
{
    for (size_t c = 0; c < r->count; c++) {
        struct claim *claim = &r->claims[c];
        for (size_t i = 0; i < claim->policy->limit_count && claim_takes_units(claim); i++) {
            /* A log has made room when it was verified. */
            (void) claim_commit_cell(r, claim, i, claim->cost + claim->granted);
            (void) cell_hold(claim_cell(r, claim, i), (uint64_t) 0 - claim->cost); /* I4: after it was charged */
            claim->readings[i].left -= min_u64(claim->granted, claim->readings[i].left);
        }
    }
}

enum charge reserved_charge(struct request *r)
{
    bool oversized = false;
    for (size_t c = 0; c < r->count; c++) {
        oversized = oversized || r->claims[c].cost > HOLD_MOST - GRANT_MAX;
    }
    if (oversized) {
        process_lock(r->t->process, &r->t->process->shared->oversized);
    }
    reserve_all(r);
    struct claim *without_memory;
    enum charge seen = verify_all(r, &without_memory);
    if (seen == CHARGE_DONE) {
        commit_all(r);
    } else {
        release_all(r);
    }
    if (without_memory != NULL) {
        without_memory->status = CLAIM_NO_MEMORY; /* the others go on without it */
        seen = CHARGE_NO_ROOM;
    }
    if (oversized) {
        spin_unlock(&r->t->process->shared->oversized);
    }
    return seen;
}
