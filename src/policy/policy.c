/* SPDX-License-Identifier: Apache-2.0 */
/* See policy.h. */
#include "policy/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/numbers.h"

/*
 * The least ticks of a period, or of the refill of a whole bucket, for decisions by the tick. With fewer, a bucket that
 * fills within a tick loses what refills in the rest of the tick.
 */
#define COARSE_TICKS 8

/* "f1s": the algorithm's letter, and the period in the largest unit that divides it. */
static void label_write(char label[POLICY_LABEL_SIZE], const weir_limit *limit, uint64_t period_ns)
{
    static const struct {
        uint64_t ns;
        const char *name;
    } units[] = {{86400 * NS_PER_S, "d"},
                 {3600 * NS_PER_S, "h"},
                 {60 * NS_PER_S, "m"},
                 {NS_PER_S, "s"},
                 {NS_PER_MS, "ms"},
                 {NS_PER_US, "us"},
                 {1, "ns"}};
    if (limit->calendar == WEIR_CALENDAR_MONTH) {
        (void) snprintf(label, POLICY_LABEL_SIZE, "fmonth");
        return;
    }
    size_t unit = 0;
    while (period_ns % units[unit].ns != 0) {
        unit++;
    }
    (void) snprintf(label, POLICY_LABEL_SIZE, "%c%" PRIu64 "%s", algorithm_letter(limit->algorithm),
                    period_ns / units[unit].ns, units[unit].name);
}

static void limit_activate(struct policy_limit *limit)
{
    store_relaxed(&limit->limit_now, limit->rule.limit);
    store_relaxed(&limit->unit_now, limit->rule.unit);
    store_relaxed(&limit->tolerance_now, limit->rule.tolerance);
}

static void limit_compile(struct policy_limit *out, const struct policy *policy, const weir_policy *from, size_t index,
                          const struct policy_context *context)
{
    const weir_limit *limit = &from->limits[index];
    out->rule = rule_make(limit, context->origin_ns);
    /* A calendar day counts as a window of a day does, and is the same limit. */
    const bool month = limit->calendar == WEIR_CALENDAR_MONTH;
    out->limit_hash = hash_mix(out->rule.period_ns ^ (uint64_t) limit->algorithm << 60 ^ (uint64_t) month << 59);
    out->per_period = limit->limit;
    label_write(out->label, limit, out->rule.period_ns);
    if (limit->name != NULL) {
        (void) snprintf(out->name, sizeof(out->name), "%s", limit->name);
    } else if (from->limit_count == 1) {
        (void) snprintf(out->name, sizeof(out->name), "%s", from->name);
    } else {
        /* The longest names lose their end, not their number. */
        (void) snprintf(out->name, sizeof(out->name), "%.*s-%u", WEIR_MAX_NAME - 2, from->name, (unsigned) index + 1);
    }
    if (rule_is_bucket(&out->rule)) {
        rate_list_find(context->names->rates, policy->group, out->limit_hash, &out->rule);
    }
    limit_activate(out);
}

/* True: deciding by the tick would be visible. A history is exact, and a queue spaces requests evenly. */
static bool needs_clock(const struct rule *rule, uint64_t tick_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return rule->period_ns < COARSE_TICKS * tick_ns;
    case RULE_HISTORY:
        return true;
    case RULE_BUCKET:
        return rule_is_queue(rule) || rule->tolerance >> BUCKET_FRACTION_BITS < COARSE_TICKS * tick_ns;
    }
    return true;
}

/* Sets what follows from the limits. */
static void policy_derive(struct policy *policy, uint64_t tick_ns)
{
    policy->fine_clock = false;
    policy->grants = true;
    for (size_t i = 0; i < policy->limit_count; i++) {
        const struct rule *rule = &policy->limits[i].rule;
        policy->fine_clock = policy->fine_clock || needs_clock(rule, tick_ns);
        policy->grants = policy->grants && !rule_is_queue(rule);
    }
}

void policy_compile(struct policy *out, const weir_policy *policy, const struct policy_context *context)
{
    const struct policy_names *names = context->names;
    (void) snprintf(out->name, sizeof(out->name), "%s", policy->name);
    (void) snprintf(out->base, sizeof(out->base), "%s", names->names[out->group]);
    out->group_key_mask = names->key_masks != NULL ? names->key_masks[out->id] ^ names->key_masks[out->group] : 0;
    out->mode = policy->mode;
    out->scope = policy->scope;
    out->hash_keys = policy->hash_keys;
    out->on_outage = policy->on_outage;
    out->on_long_outage = policy->on_long_outage;
    out->outage_grace_ms = policy->outage_grace_ms;
    out->long_outage_ms = policy->long_outage_ms;
    out->limit_count = policy->limit_count;
    for (size_t i = 0; i < policy->limit_count; i++) {
        limit_compile(&out->limits[i], out, policy, i, context);
    }
    policy_derive(out, context->tick_ns);
    out->set_is_odd = names->set_count % 2 != 0;
}

void policy_override(struct policy *out, const struct policy *like, const uint64_t *limits, const uint64_t *bursts,
                     struct policy_names *names, uint64_t tick_ns)
{
    memcpy((void *) out, (const void *) like, sizeof(*out)); /* under the lock that guards sets: nobody writes it */
    for (size_t i = 0; i < out->limit_count && limits != NULL; i++) {
        struct policy_limit *limit = &out->limits[i];
        const struct rule *rule = &limit->rule;
        const weir_limit other = {.algorithm = rule->algorithm,
                                  .limit = limits[i],
                                  .period_ns = rule->period_ns,
                                  .burst = rule_is_bucket(rule) ? bursts[i] : 0,
                                  .calendar = rule->calendar,
                                  .delay = rule->ahead};
        limit->rule = rule_make(&other, rule->origin_ns);
        limit->per_period = limits[i];
        if (rule_is_bucket(&limit->rule)) {
            rate_list_find(names->rates, like->group, limit->limit_hash, &limit->rule);
        }
        limit_activate(limit);
        raise_relaxed(&limit->history_max, limit->rule.limit);
    }
    policy_derive(out, tick_ns);
}
