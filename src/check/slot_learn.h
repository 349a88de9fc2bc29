/* SPDX-License-Identifier: Apache-2.0 */
/* What the table has said, for a slot; see slot_learn_decision.c. */
#ifndef WEIR_CHECK_SLOT_LEARN_H
#define WEIR_CHECK_SLOT_LEARN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "check/request.h"
#include "policy/policy.h"
#include "thread/thread.h"

/* Passes what the table has said of one claim on to its slot. */
void slot_learn_decision(struct weir_thread *t, size_t index, uint32_t epoch, const struct request *r,
                         const struct claim *claim);
/* A denial without a slot, for the list of offenders and what the key tells the fleet of the demand. (What can never
 * pass is no demand.) */
void slot_learn_denial(struct weir_thread *t, const struct policy *policy, const weir_key *key, const uint32_t *cells,
                       uint64_t cost);

#endif
