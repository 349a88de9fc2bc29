/* SPDX-License-Identifier: Apache-2.0 */
/* The fraction of a limit that this node may use, of FRACTION_WHOLE (algorithm/estimate.h); 0: the whole limit. */
#ifndef WEIR_PROCESS_FRACTION_H
#define WEIR_PROCESS_FRACTION_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "policy/policy.h"

struct process;
struct allowance;

/* One part of as many as there are live nodes. */
uint32_t fraction_equal_share(const struct process *process);

/* The fraction of a key without a full sync state. `acked`: the fleet has answered of the key. */
uint32_t fraction_compact(const struct process *process, const struct rule *rule, bool acked);

/* This node's fraction of the demand last seen. */
uint32_t fraction_demand(const struct process *process, const struct allowance *allowance);

/* The fraction of a key's rule that is in force here, of a policy that the fleet shares. */
uint64_t fraction_in_force(const struct process *process, enum outage_mode outage_mode, const struct rule *rule,
                           uint32_t cell);

/* A rule of which this fraction is in force, for a request of `asked` units. */
struct rule fraction_rule(const struct rule *rule, uint64_t fraction, uint64_t asked);

#endif
