/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of single keys, from the program and from the fleet to the policy set in force. */
#ifndef WEIR_LIMITER_KEY_OVERRIDES_H
#define WEIR_LIMITER_KEY_OVERRIDES_H

#include "limiter/weir_private.h"
#include "policy/override_set.h"

/* Compiles the entries there are against a set. Under the policy lock. 0 or -ENOMEM; NULL: there are none. */
int key_overrides_compile(weir *w, const struct policy_set *set, struct overrides **out,
                          struct override_faults *faults);

/* Takes in what the fleet has told, if that is new. By the background thread, outside of RCU sections. */
void key_overrides_take(weir *w);

#endif
