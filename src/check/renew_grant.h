/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short way through the table of a key that has a slot, under one window or token bucket that no other node uses: a
 * slow pass comes for every key and tick, so it is what many keys cost that are asked for some times a tick each.
 *
 * A key that has not been asked for often is charged straight, as one without a slot (direct_charge.h), in the cell
 * that its slot pins. Else its slot is settled and given its next grant in one step: what decide.c and settle.c do by
 * six locked instructions takes three here, as there is but one cell.
 *
 * It only ever says yes, as direct_charge.h.
 *
 *   renew   held += cost + grant
 *           look: what passed on the last grant is charged (late); beside what others hold there is room for cost and
 *           grant; charge the cost; the generation changes. One compare-and-swap
 *           held -= cost + what was held for the last grant
 *           publish the grant
 *
 * Ordering: [P1] and [P2] of decide.c: held is raised before the look, and read again after the state; the state is
 * swapped with a new generation. [S3]: held is lowered after what passed was charged. [S2]: under the slot's lock.
 * Progress: wait-free; the lock is only ever tried.
 */
#ifndef WEIR_CHECK_RENEW_GRANT_H
#define WEIR_CHECK_RENEW_GRANT_H

#include "check/direct_charge.h"

/* Charges a request straight, where the slot has nothing to settle. False: nothing was done. */
bool renew_direct(struct weir_thread *t, struct slot *slot, const struct policy_snapshot *snapshot, const weir_key *key,
                  uint64_t cost, uint32_t epoch, weir_verdict *verdict);

/*
 * Counts a request (of a cost that is not 0) of a key with a slot, and answers; `want`: see slot_grant_size. False:
 * nothing was done but, perhaps, that the slot's grant was taken back; decide_request is to be asked.
 */
bool renew_grant(struct weir_thread *t, size_t index, const struct policy_snapshot *snapshot, const weir_key *key,
                 uint64_t cost, uint64_t want, uint32_t epoch, weir_verdict *verdict);

#endif
