/* SPDX-License-Identifier: Apache-2.0 */
/* Resets; see refund.c. */
#ifndef WEIR_CHECK_RESET_H
#define WEIR_CHECK_RESET_H

#include <stdbool.h>

#include "weir/weir.h"

struct limiter;

/* Makes a reset known: to the fleet, if there is one and it can be reached; else it is done at once. -ENOENT. */
int reset_key(struct limiter *limiter, const weir_key *key, bool reachable);

#endif
