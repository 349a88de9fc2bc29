/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock of the policies: of the names, the configured policies, the texts of overrides and the bucket origin, and of
 * changes of the set in force. The lock may be held for long by a thread that waits for readers.
 */
#ifndef WEIR_LIMITER_POLICY_LOCK_H
#define WEIR_LIMITER_POLICY_LOCK_H

#include <stdbool.h>

#include "weir/weir.h"

/* On return the names and the other sources are those that any process set last. */
void policy_lock_take(weir *w);
bool policy_lock_try(weir *w); /* false: another thread has the lock */
void policy_lock_release(weir *w);

#endif
