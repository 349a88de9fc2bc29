/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Renewing the grant of a key that has a slot, under one window or token bucket that no other node uses. A slow pass
 * comes for every such key in every tick, so it is most of the cost of keys that are asked for a few times a tick.
 *
 * A key that is asked for rarely is granted nothing: its cost is charged to the cell that its slot pins
 * (direct_charge.h). Else the slot is settled and given its next grant in one step. decide.c and settle.c take six
 * locked instructions for that. Here three are enough, as there is one cell.
 *
 *   reserve  held += cost + grant
 *   commit   read the state and held; charge what passed on the last grant, as of its time; there must be room for
 *            cost and grant beside what others hold; charge the cost; change the generation. One compare-and-swap
 *   release  held -= cost + what was held for the last grant
 *   publish  the grant
 *
 * The answer is "allowed" or none: for anything else the caller falls back to decide_request().
 *
 * Ordering: [P1] and [P2] of decide.c: held is raised before the state is read, and read again after it; the state is
 * swapped with a new generation. [S3] of settle.c: held is lowered after what passed was charged. [S2]: the slot is
 * locked. Progress: wait-free; the lock is only ever tried.
 * Names: renew_.
 */
#ifndef WEIR_CHECK_RENEW_GRANT_H
#define WEIR_CHECK_RENEW_GRANT_H

#include "check/check.h"

struct cell;
struct policy_snapshot;
struct slot_account;

/*
 * Counts a check (of a cost that is not 0) of a key with a slot, and answers. `snapshot`: of the key's policy, plain.
 * False: nothing was counted; the slot's grant may have been taken back. The caller decides in the table.
 */
bool renew_grant(const struct check *c, const struct policy_snapshot *snapshot);

/* Settles the slot and gives it a grant, of a check whose cost is 0: counts nothing. Returns the units granted. */
uint64_t renew_grant_of(const struct check *c, const struct policy_snapshot *snapshot);

/* The cell that a slot pins for a hash; NULL: it pins another one, or several. */
struct cell *renew_pinned_cell(const struct weir_thread *t, const struct slot_account *account, uint64_t hash);
/* Whether a slot has nothing to settle, and no grant or denial of this epoch. */
bool renew_is_idle(const struct slot *slot, const struct slot_account *account, uint32_t epoch);

#endif
