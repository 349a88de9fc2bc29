/* SPDX-License-Identifier: Apache-2.0 */
/* Taking grants back; see settle.c. */
#ifndef WEIR_THREAD_SETTLE_H
#define WEIR_THREAD_SETTLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"
#include "thread/slot.h"
#include "thread/thread.h"

struct limiter;

bool slot_trylock(struct slot_account *account);
void slot_unlock(struct slot_account *account);
/* Settles a locked slot whose grant is taken back, and whose owner is the caller or has passed a barrier since. */
void settle_slot(struct weir_thread *t, size_t index);
/* Takes a locked slot back from its key: settled, unpinned, free. By its owner. */
void settle_release_owner(struct weir_thread *t, size_t index);
/*
 * Takes back what other threads hold of a key of this policy, and what any thread does under other tiers of it.
 * `asking` has settled its own slot of this key (NULL: nobody has). True: something was given back.
 */
bool settle_key(struct limiter *limiter, const struct weir_thread *asking, const struct policy *policy,
                const weir_key *key);
/*
 * Lets a thread run that stands where what it holds cannot be taken back: yields, at last naps. False: that was done
 * often enough, some 10 ms in all since *fruitless was 0.
 */
bool settle_wait(unsigned *fruitless);
/* Ends the denials of a key, and of other tiers, that threads answer from their slots. */
void settle_denials(struct limiter *limiter, const struct policy *policy, const weir_key *key);
/* Settles what has lapsed in all threads. Returns how many slots were not to be had. By the background thread. */
size_t settle_lapsed(struct limiter *limiter);

#endif
