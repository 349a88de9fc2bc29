/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a decision of the table leaves behind: a grant or a denial, and the count of what was denied. The key's slot
 * answers by that grant or denial for the rest of the epoch.
 */
#ifndef WEIR_CHECK_SLOT_LEARN_H
#define WEIR_CHECK_SLOT_LEARN_H

#include <stddef.h>
#include <stdint.h>

#include "check/request.h"

struct policy;
struct process;

/* Passes the decision on one claim on to the claim's slot, which is locked. */
void slot_learn_decision(const struct request *r, const struct claim *claim, size_t index, uint32_t epoch);
/*
 * Counts denied units of a key: for the list of the keys denied most, and in the demand that is reported to the fleet.
 * `cells` are the key's, one for each limit.
 */
void slot_learn_add_denied(struct process *process, const struct policy *policy, const weir_key *key,
                           const uint32_t *cells, uint64_t units);
/* Counts a denial of a key without a slot. */
void slot_learn_count_denial(const struct request *r, const struct claim *claim);

#endif
