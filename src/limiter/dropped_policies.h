/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Policies that were in force and that a later set lacks. What is checked by such a policy passes, though nothing was
 * said to fail, so the log has a line, and the statistics a number. A policy that comes back is no longer among them.
 */
#ifndef WEIR_LIMITER_DROPPED_POLICIES_H
#define WEIR_LIMITER_DROPPED_POLICIES_H

#include <stdint.h>

#include "base/atomics.h"
#include "weir/weir.h"

struct policy_set;

#define DROPPED_WORDS (WEIR_MAX_POLICIES / 64 + 1)

/* A bit for each policy, by its id. Written under the policy lock. */
struct dropped_policies {
    _Atomic uint64_t dropped[DROPPED_WORDS];
    _Atomic uint64_t untold[DROPPED_WORDS]; /* of those the ones that the log has not told */
    _Atomic uint32_t any_untold;            /* 1: there are some; a hint, so that nobody has to take the lock to look */
};

/* `now` has come into force after `before`; NULL: no set was. Under the policy lock. */
void dropped_policies_note(struct dropped_policies *dropped, const struct policy_set *before,
                           const struct policy_set *now);

/* How many there are. Threads: any. */
uint32_t dropped_policies_count(const struct dropped_policies *dropped);

/* Writes a line to the log where there are new ones. Background thread; takes the policy lock if that is free. */
void dropped_policies_tell(weir *w);

#endif
