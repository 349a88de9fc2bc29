/* SPDX-License-Identifier: Apache-2.0 */
#include "thread/policy_snapshot.h"

#include "process/allowance.h"
#include "thread/slot.h"

struct cold cold_of(const struct process *process, const struct policy *policy, uint64_t now_ns)
{
    struct cold cold = {.policy = policy, .now_ns = now_ns, .fleet = process_shares(process, policy), .id = policy->id};
    /* Relaxed: on another rung of the outage ladder there are other numbers than the configured ones. */
    const bool configured = load_relaxed(&policy->rung) == RUNG_FLEET;
    if (policy->limit_count == 1 && policy->override == OVERRIDE_NONE && configured) {
        cold.mix = policy->share ^ policy->limits[0].salt;
        cold.rule = policy->limits[0].rule;
        cold.about = slot_about(policy);
        cold.moment = moment_of(&cold.rule, now_ns);
    }
    return cold;
}
