/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outage modes: which limits hold while the fleet's news is old.
 *
 *     last good sync ... outage_grace_ms ...... long_outage_ms ........ first good sync ...... all have reported
 *     OUTAGE_MODE_NONE         | on_outage            | on_long_outage          | OUTAGE_MODE_SHARE    |
 * OUTAGE_MODE_NONE
 *
 * A mode is a set of numbers: the limit itself, no limit, or nothing admitted. They are stored where checks read the
 * limit in any case, so a check does equal work in every mode. This node's fraction is of each key: of the demand last
 * learned for the key (process/allowance.c).
 *
 * A policy that leaves OUTAGE_MODE_NONE takes the other nodes' units out of the counts: from then on a node answers for
 * its own units alone, and the fractions of all nodes add up to the limit.
 *
 * The way back has two steps. With the first good round a node begins to report what it admitted, and so do the other
 * nodes. Until all are back and have reported (membership.h), the fleet's sums are too low, and each key goes by this
 * node's fraction. From then on each key goes by the fleet's news as soon as there is an answer for the key, and by its
 * fraction until then: no unit is admitted twice.
 */
#include "base/numbers.h"
#include "base/probe.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "policy/override_set.h"
#include "process/process.h"
#include "thread/settle_pass.h"
#include "thread/tick.h"

static enum outage_mode outage_mode_of(weir_outage outage)
{
    switch (outage) {
    case WEIR_OUTAGE_LOCAL:
        return OUTAGE_MODE_LOCAL;
    case WEIR_OUTAGE_OPEN:
        return OUTAGE_MODE_OPEN;
    case WEIR_OUTAGE_CLOSED:
        return OUTAGE_MODE_CLOSED;
    case WEIR_OUTAGE_SHARE:
        break;
    }
    return OUTAGE_MODE_SHARE;
}

static enum outage_mode outage_mode_now(const struct fleet *fleet, const struct policy *policy, uint64_t monotonic_ns)
{
    const enum outage_mode was = (enum outage_mode) load_relaxed(&policy->outage_mode);
    if (fleet->news.good_ns == 0 && policy->on_outage == WEIR_OUTAGE_CLOSED) {
        return OUTAGE_MODE_CLOSED;
    }
    /* By the last good round: the way back goes by news, not by the time that has passed without news. */
    const bool early =
        fleet->outage.back_ns != 0 && fleet->news.good_ns < fleet->outage.back_ns + fleet->process->interval_ns;
    if (was != OUTAGE_MODE_NONE && (early || fleet->news.slow)) {
        return was;
    }
    const uint64_t since_ns =
        saturating_sub(monotonic_ns, fleet->news.good_ns != 0 ? fleet->news.begun_ns : fleet->opened_ns);
    const uint32_t grace_intervals = policy->outage_grace_ms != 0 ? GRACE_LEAST_INTERVALS : GRACE_INTERVALS;
    const uint64_t grace_ms = max_u64(policy->outage_grace_ms, (uint64_t) grace_intervals * fleet->interval_ms);
    if (since_ns <= grace_ms * NS_PER_MS) {
        /* A policy that never left OUTAGE_MODE_NONE goes on by the fleet's answers. */
        const bool returns = was != OUTAGE_MODE_NONE || fleet->news.good_ns == 0;
        return returns && fleet->news.awaits_peers ? OUTAGE_MODE_SHARE : OUTAGE_MODE_NONE;
    }
    if (policy->long_outage_ms != 0 && since_ns > (grace_ms + policy->long_outage_ms) * NS_PER_MS) {
        return outage_mode_of(policy->on_long_outage);
    }
    return outage_mode_of(policy->on_outage);
}

/* One limit's numbers in a mode. */
static struct rule rule_on(const struct rule *rule, enum outage_mode outage_mode)
{
    struct rule on = *rule;
    switch (outage_mode) {
    case OUTAGE_MODE_OPEN:
        on.limit = WEIR_MAX_UNITS;
        on.unit = 0;
        break;
    case OUTAGE_MODE_CLOSED:
        on.limit = 0;
        on.tolerance = 0;
        break;
    case OUTAGE_MODE_NONE:
    case OUTAGE_MODE_SHARE:
    case OUTAGE_MODE_LOCAL:
        break;
    }
    return on;
}

/* Writes a mode's numbers. True: they have changed. */
static bool apply(struct policy *policy, enum outage_mode outage_mode)
{
    bool changed = load_relaxed(&policy->outage_mode) != outage_mode;
    for (size_t i = 0; i < policy->limit_count; i++) {
        struct policy_limit *limit = &policy->limits[i];
        const struct rule on = rule_on(&limit->rule, outage_mode);
        changed = changed || load_relaxed(&limit->limit_now) != on.limit || load_relaxed(&limit->unit_now) != on.unit;
        store_relaxed(&limit->limit_now, on.limit);
        store_relaxed(&limit->unit_now, on.unit);
        store_relaxed(&limit->tolerance_now, on.tolerance);
    }
    store_relaxed(&policy->outage_mode, (uint8_t) outage_mode);
    return changed;
}

void outage_follow(const struct policy_set *set, struct overrides *overrides)
{
    for (size_t i = 0; i < overrides_count(overrides); i++) {
        struct policy *own = overrides_at(overrides, i);
        const struct policy *policy = policy_set_by_id(set, own->id);
        if (policy != NULL && policy->scope == WEIR_SCOPE_FLEET) {
            (void) apply(own, (enum outage_mode) load_relaxed(&policy->outage_mode));
            store_relaxed(&own->basis, load_relaxed(&policy->basis));
        }
    }
}

void outage_keep(const struct process *process, struct policy_set *set, const struct policy_set *old)
{
    /* Relaxed: the background thread that hears of the fleet at this moment calls outage_update after that. */
    const bool heard = load_relaxed(&process->shared->news_ns) != 0;
    for (size_t i = 0; i < set->count; i++) {
        struct policy *policy = &set->policies[i];
        const struct policy *was = old != NULL ? policy_set_by_id(old, policy->id) : NULL;
        if (!process_shares(process, policy)) {
            continue;
        }
        if (!heard && policy->on_outage == WEIR_OUTAGE_CLOSED) {
            (void) apply(policy, OUTAGE_MODE_CLOSED); /* from the first check on */
            store_relaxed(&policy->basis, WEIR_BASIS_OUTAGE);
        } else if (was != NULL) {
            (void) apply(policy, (enum outage_mode) load_relaxed(&was->outage_mode));
            store_relaxed(&policy->basis, load_relaxed(&was->basis));
        }
    }
}

/* What verdicts of a policy rest on. */
static weir_basis basis_of(const struct fleet *fleet, enum outage_mode outage_mode)
{
    if (outage_mode != OUTAGE_MODE_NONE) {
        return WEIR_BASIS_OUTAGE;
    }
    return fleet->news.good_ns != 0 ? WEIR_BASIS_FLEET : WEIR_BASIS_PROCESS;
}

bool outage_update(struct fleet *fleet, struct policy_set *set, uint64_t monotonic_ns)
{
    bool changed = false;
    for (size_t i = 0; i < set->count; i++) {
        struct policy *policy = &set->policies[i];
        if (!process_shares(fleet->process, policy)) {
            continue;
        }
        const enum outage_mode was = (enum outage_mode) load_relaxed(&policy->outage_mode);
        const enum outage_mode outage_mode = outage_mode_now(fleet, policy, monotonic_ns);
        const weir_basis basis = basis_of(fleet, outage_mode);
        fleet->outage.began = fleet->outage.began ||
                              (was == OUTAGE_MODE_NONE && outage_mode != OUTAGE_MODE_NONE && fleet->news.good_ns != 0);
        if (was == OUTAGE_MODE_OPEN && outage_mode != OUTAGE_MODE_OPEN) {
            tick_epoch(fleet->limiter);
            (void) settle_lapsed(fleet->limiter);
            waive_debt(fleet, policy);
        }
        if (outage_mode != was) {
            probe_outage(policy->name, was, outage_mode);
        }
        changed = apply(policy, outage_mode) || changed;
        if (load_relaxed(&policy->basis) != basis) {
            store_relaxed(&policy->basis, (uint8_t) basis);
            changed = true;
        }
    }
    /* Acquire: pairs with the publication of overrides, by this thread or another. */
    outage_follow(set, policy_set_overrides(set));
    return changed;
}
