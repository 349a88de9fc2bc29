/* SPDX-License-Identifier: Apache-2.0 */
/* Charging units that there is room for, for calls that are no checks; see charge.c. */
#ifndef WEIR_CHECK_CHARGE_H
#define WEIR_CHECK_CHARGE_H

#include <stdbool.h>

struct check;

/*
 * Charges c->cost units of a key of a policy with limits, where there is room for them. Only under one window or token
 * bucket that no other node uses. Within an RCU section; `c` has its thread, key, cost, epoch, set and policy. False:
 * nothing was charged, and the table decides.
 */
bool charge_where_room(struct check *c);

#endif
