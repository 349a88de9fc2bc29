/* SPDX-License-Identifier: Apache-2.0 */
/* Resetting a key: forgetting what it has used. */
#ifndef WEIR_CHECK_RESET_H
#define WEIR_CHECK_RESET_H

#include <stdbool.h>

#include "weir/weir.h"

struct limiter;

/*
 * Resets a key under all policies of its group. `reachable`: the fleet takes part, at the next sync; else the key is
 * emptied here at once. 0; -ENOENT: its policy is not in the set.
 */
int reset_key(struct limiter *limiter, const weir_key *key, bool reachable);

#endif
