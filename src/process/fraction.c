/* SPDX-License-Identifier: Apache-2.0 */
/* See fraction.h. */
#include "process/fraction.h"

#include "base/numbers.h"
#include "process/process.h"
#include "process/sync_state.h"

/* The fraction of its equal share of a quota that a node may use before it knows what was used before it started. */
#define QUOTA_SHARE 64

uint32_t fraction_equal_share(const struct process *process)
{
    /* Relaxed: while nodes come and go, both numbers are right. */
    const uint64_t nodes = load_relaxed(&process->shared->nodes);
    /* Rounded up: an equal share of a limit that is a multiple of the nodes is whole units. */
    return nodes == 1 ? 0 : (uint32_t) ((FRACTION_WHOLE + nodes - 1) / nodes);
}

uint32_t fraction_compact(const struct process *process, const struct rule *rule, bool acked)
{
    return acked && !rule_is_queue(rule) ? 0 : fraction_equal_share(process);
}

uint32_t fraction_demand(const struct process *process, const struct allowance *allowance)
{
    const uint32_t remote_fraction = load_relaxed(&allowance->remote_fraction);
    if (load_relaxed(&allowance->flags) != 0) {
        return fraction_equal_share(process);
    }
    return remote_fraction == 0 ? 0 : (uint32_t) (FRACTION_WHOLE - remote_fraction);
}

/* Whether the fleet has answered of a cell's key. */
static bool is_acked(const struct process *process, const struct sync_full *sync, uint32_t cell)
{
    return sync != NULL ? load_relaxed(&sync->allowance.since_ns) != 0
                        : compact_is(&process->syncs.compacts[cell], COMPACT_ACKED);
}

/* The fraction of a quota that no answer has confirmed yet; of other rules the fraction as it is. */
static uint64_t unconfirmed_fraction(const struct process *process, const struct rule *rule, bool on_fleet,
                                     uint64_t fraction)
{
    /* In an outage a quota is what is known to be left; a node without any answer knows nothing of it. */
    const bool guesses = on_fleet || load_relaxed(&process->shared->news_ns) == 0;
    if (rule->calendar == WEIR_CALENDAR_NONE || !guesses) {
        return fraction;
    }
    return max_u64((fraction != 0 ? fraction : FRACTION_WHOLE) / QUOTA_SHARE, 1);
}

uint64_t fraction_in_force(const struct process *process, enum outage_mode outage_mode, const struct rule *rule,
                           uint32_t cell)
{
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    const bool on_fleet = outage_mode == OUTAGE_MODE_NONE;
    const bool acked = is_acked(process, sync, cell);
    if (!on_fleet && outage_mode != OUTAGE_MODE_SHARE) {
        return 0;
    }
    if (acked && sync != NULL && !on_fleet) {
        return rule_is_bucket(rule) ? fraction_demand(process, &sync->allowance) : 0;
    }
    if (acked && sync != NULL) {
        return load_relaxed(&sync->allowance.fraction);
    }
    const uint32_t fraction = sync != NULL && on_fleet
                                  ? load_relaxed(&sync->allowance.fraction)
                                  : fraction_compact(process, rule, acked && (on_fleet || !rule_is_bucket(rule)));
    return acked ? fraction : unconfirmed_fraction(process, rule, on_fleet, fraction);
}

struct rule fraction_rule(const struct rule *whole, uint64_t fraction, uint64_t asked)
{
    struct rule rule = *whole;
    if (fraction == 0) {
        return rule;
    }
    rule.limit = max_u64(muldiv_floor(rule.limit, fraction, FRACTION_WHOLE), 1);
    switch (rule_kind(&rule)) {
    case RULE_WINDOW:
    case RULE_HISTORY:
        break;
    case RULE_BUCKET: {
        /* A request above the fraction of the burst passes when the fraction is full; its time pays for it. */
        rule.limit = max_u64(rule.limit, min_u64(asked, whole->limit));
        /* A unit takes the time of all units that pass in the fleet beside it; but one passes in each period. */
        const uint64_t most = max_u64(saturating_mul(rule.period_ns, UINT64_C(1) << BUCKET_FRACTION_BITS), rule.unit);
        rule.unit = min_u64(muldiv_floor(rule.unit, FRACTION_WHOLE, fraction), most);
        /* The fraction of the burst, and at least what the whole rule tolerates. */
        rule.tolerance = max_u64(saturating_mul(rule.limit, rule.unit), max_u64(whole->tolerance, 1));
        break;
    }
    }
    return rule;
}
