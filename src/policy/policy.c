/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/policy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/numbers.h"

/*
 * How many ticks a period, or the filling of a bucket, must last for a decision by the tick to be as good as one by the
 * clock: a bucket that fills within a tick would lose what refills in the rest of it.
 */
#define COARSE_TICKS 8

weir_policy_id policy_names_find(const struct policy_names *names, const char *name)
{
    for (size_t id = 1; id <= names->count; id++) {
        if (strcmp(names->names[id], name) == 0) {
            return (weir_policy_id) id;
        }
    }
    return WEIR_NO_POLICY;
}

/* "f1s": the algorithm's letter, and the period in the largest unit that divides it. */
static void label_write(char label[POLICY_LABEL_SIZE], const weir_limit *limit)
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
    size_t unit = 0;
    while (limit->period_ns % units[unit].ns != 0) {
        unit++;
    }
    const char letter = limit->algorithm == WEIR_FIXED_WINDOW     ? 'f'
                        : limit->algorithm == WEIR_SLIDING_WINDOW ? 's'
                                                                  : 'b';
    (void) snprintf(label, POLICY_LABEL_SIZE, "%c%" PRIu64 "%s", letter, limit->period_ns / units[unit].ns,
                    units[unit].name);
}

static void limit_compile(struct policy_limit *out, const weir_limit *limit, uint64_t origin_ns)
{
    out->rule = rule_make(limit, origin_ns);
    out->salt = hash_mix(limit->period_ns ^ (uint64_t) limit->algorithm << 60);
    label_write(out->label, limit);
    store_relaxed(&out->limit_now, out->rule.limit);
    store_relaxed(&out->unit_now, out->rule.unit);
    store_relaxed(&out->tolerance_now, out->rule.tolerance);
}

static bool wants_fine_clock(const struct policy *policy, uint64_t tick_ns)
{
    for (size_t i = 0; i < policy->limit_count; i++) {
        const struct rule *rule = &policy->limits[i].rule;
        const uint64_t span_ns =
            rule->algorithm == WEIR_TOKEN_BUCKET ? rule->tolerance >> BUCKET_FRACTION_BITS : rule->period_ns;
        if (span_ns < COARSE_TICKS * tick_ns) {
            return true;
        }
    }
    return false;
}

static void policy_compile(struct policy *out, const weir_policy *policy, weir_policy_id id, uint64_t tick_ns,
                           uint64_t origin_ns)
{
    out->id = id;
    (void) snprintf(out->name, sizeof(out->name), "%s", policy->name);
    out->mode = policy->mode;
    out->scope = policy->scope;
    out->hash_keys = policy->hash_keys;
    out->on_outage = policy->on_outage;
    out->on_long_outage = policy->on_long_outage;
    out->outage_grace_ms = policy->outage_grace_ms;
    out->long_outage_ms = policy->long_outage_ms;
    out->limit_count = policy->limit_count;
    for (size_t i = 0; i < policy->limit_count; i++) {
        limit_compile(&out->limits[i], &policy->limits[i], origin_ns);
    }
    out->fine_clock = wants_fine_clock(out, tick_ns);
    store_relaxed(&out->rung, RUNG_FLEET);
    store_relaxed(&out->basis, WEIR_BASIS_PROCESS);
}

int policy_set_compile(const weir_policy *policies, size_t count, uint64_t tick_ns, uint64_t origin_ns,
                       struct policy_names *names, struct policy_set **out, weir_error *error)
{
    size_t new_names = 0;
    for (size_t i = 0; i < count; i++) {
        new_names += policy_names_find(names, policies[i].name) == WEIR_NO_POLICY;
    }
    if (names->count + new_names > WEIR_MAX_POLICIES) {
        return error_set(error, -ENOSPC, "more than %d different policy names since open; reopen, or reuse names",
                         WEIR_MAX_POLICIES);
    }
    struct policy_set *set = calloc(1, sizeof(*set));
    struct policy *compiled = calloc(count != 0 ? count : 1, sizeof(*compiled));
    if (set == NULL || compiled == NULL) {
        free(set);
        free(compiled);
        return error_set(error, -ENOMEM, "out of memory for %zu policies", count);
    }
    set->count = count;
    set->policies = compiled;
    for (size_t i = 0; i < count; i++) {
        weir_policy_id id = policy_names_find(names, policies[i].name);
        if (id == WEIR_NO_POLICY) {
            id = (weir_policy_id) ++names->count;
            (void) snprintf(names->names[id], sizeof(names->names[id]), "%s", policies[i].name);
        }
        policy_compile(&compiled[i], &policies[i], id, tick_ns, origin_ns);
        set->by_id[id] = &compiled[i];
    }
    *out = set;
    return 0;
}

void policy_set_free(struct policy_set *set)
{
    if (set != NULL) {
        free(set->policies);
        free(set);
    }
}
