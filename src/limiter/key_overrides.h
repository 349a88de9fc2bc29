/* SPDX-License-Identifier: Apache-2.0 */
/* The overrides of the program, the fleet and the policy file, published with the policy set. Names: key_overrides_. */
#ifndef WEIR_LIMITER_KEY_OVERRIDES_H
#define WEIR_LIMITER_KEY_OVERRIDES_H

#include "policy/override_set.h"
#include "weir/weir.h"

/* Compiles all overrides against a set. Under the policy lock. 0 or -ENOMEM. *out NULL: there are none. */
int key_overrides_compile(weir *w, struct policy_set *set, struct overrides **out, struct override_faults *faults);

/* Notes which overrides are in force from now on, and when the first one ends. Under the policy lock. */
void key_overrides_note(weir *w, const struct overrides *overrides);

/* Publishes the fleet's overrides where they have changed. By the background thread, outside of RCU sections. */
void key_overrides_take(weir *w);

/* Takes overrides that have ended out of force. By the background thread, outside of RCU sections. */
void key_overrides_end(weir *w);

#endif
