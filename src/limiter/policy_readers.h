/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers of policies that are no longer in force. A place may be written again when none can still be in it. All under
 * the policy lock.
 */
#ifndef WEIR_LIMITER_POLICY_READERS_H
#define WEIR_LIMITER_POLICY_READERS_H

#include "weir/weir.h"

/*
 * Waits for the readers of what was in force before: after a change. Some may be left after ten seconds (rcu.h), and
 * are only looked for then, until none is left.
 */
void policy_readers_drain(weir *w);

/* Before a change: looks for those that were left. 0; -EBUSY: some still are. */
int policy_readers_wait(weir *w);

#endif
