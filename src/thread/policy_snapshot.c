/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_snapshot.h. */
#include "thread/policy_snapshot.h"

#include "process/process.h"
#include "thread/slot_word.h"

struct policy_snapshot policy_snapshot_of(const struct process *process, const struct policy *policy, uint64_t now_ns)
{
    struct policy_snapshot snapshot = {
        .policy = policy, .now_ns = now_ns, .fleet = process_shares(process, policy), .id = policy->id};
    /* Relaxed: in an outage mode there are other numbers than the configured ones, from some check on. */
    const bool configured = load_relaxed(&policy->outage_mode) == OUTAGE_MODE_NONE;
    if (policy->limit_count == 1 && policy->override == OVERRIDE_NONE && configured) {
        snapshot.mix = policy->group_key_mask ^ policy->limits[0].limit_hash;
        snapshot.group = (uint16_t) policy->group;
        snapshot.limit_tag = POLICY_LIMIT_ID(policy->limits[0].limit_hash);
        snapshot.rule = policy->limits[0].rule;
        snapshot.meta = slot_meta_pack(slot_meta_of(policy));
        snapshot.limit_at = limit_snapshot_of(&snapshot.rule, now_ns);
    }
    return snapshot;
}

bool policy_queue_of(const struct process *process, const struct policy *policy, struct policy_queue *out)
{
    if (policy->limit_count != 1 || policy->override != OVERRIDE_NONE || process_shares(process, policy)) {
        return false;
    }
    const struct rule rule = policy_rule(&policy->limits[0]);
    out->mix = policy->group_key_mask ^ policy->limits[0].limit_hash;
    out->id = policy->id;
    out->epoch = 0;
    return queue_snapshot_of(&rule, &out->numbers);
}
