/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of single keys, from the fleet to the policy set in force. */
#ifndef WEIR_OVERRIDES_H
#define WEIR_OVERRIDES_H

#include "policy/overrides.h"
#include "weir.h"

/* Compiles the entries last read against a set. Under the policy lock. NULL: there are none. */
struct overrides *weir_compile_overrides(weir *w, const struct policy_set *set, const struct override_text **first_bad,
                                         size_t *bad_count);

/* Takes in what the fleet has told, if that is new. By the background thread, outside of RCU sections. */
void weir_take_overrides(weir *w);

#endif
