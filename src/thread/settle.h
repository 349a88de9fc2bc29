/* SPDX-License-Identifier: Apache-2.0 */
/* Settling slots, and taking grants back from other threads; see settle.c. */
#ifndef WEIR_THREAD_SETTLE_H
#define WEIR_THREAD_SETTLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

struct policy;
struct policy_set;
struct weir_thread;
struct limiter;

/* Bytes of what settling needs of so many slots. */
size_t settle_accounts_size(size_t slots);

/*
 * Settles a locked slot without a grant. The caller is the owner, or has passed a barrier since it took the grant.
 * False: another process wants to be alone with the table; the slot is to be settled later.
 */
bool settle_slot(struct weir_thread *t, size_t index);
/* Takes a locked slot from its key: settled, unpinned, free. By its owner. False: as settle_slot(). */
bool settle_release_owner(struct weir_thread *t, size_t index);
/*
 * As settle_release_owner() of a slot that is not locked; a free one stays free. False: also where another thread
 * settles the slot.
 */
bool settle_release_slot(struct weir_thread *t, size_t index);
/*
 * Settles a slot that a dead process had locked, or whose owner has died, and unlocks the slot. In a halt (rcu_halt.h),
 * when no cell has a mark (settling_resolve_cell). What the cells hold for the slot stays. `owner_died`: the slot is
 * free then.
 */
void settle_alone(struct weir_thread *t, size_t index, bool owner_died);
/*
 * Takes back what other threads hold of a key of this policy, and what any thread holds of it under other policies of
 * the group in this set. `asking` has settled its own slot of this key (NULL: none has). True: there was a grant.
 */
bool settle_key(struct limiter *limiter, const struct weir_thread *asking, const struct policy_set *set,
                const struct policy *policy, const weir_key *key);
/*
 * Lets a thread run whose units cannot be taken back just now: yields, at last naps. False: that was done often enough,
 * some 10 ms in all since *stalled_tries was 0; or another process wants to be alone with the table.
 */
bool settle_wait(const struct limiter *limiter, unsigned *stalled_tries);
/* Ends the denials of a key, under all policies of the group, that threads answer from their slots. */
void settle_denials(struct limiter *limiter, const struct policy_set *set, const struct policy *policy,
                    const weir_key *key);

#endif
