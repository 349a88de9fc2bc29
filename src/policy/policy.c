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
#include "base/plain.h"
#include "policy/override_set.h"

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

/* Which of the rates that a limit has seen this one is; a new one is added, where there is room. */
static void scale_find(struct rule *rule, struct policy_names *names, weir_policy_id group, uint64_t salt)
{
    struct policy_scales *at = names->rate_table;
    while (at != NULL && (at->group != group || at->salt != salt)) {
        at = at->next;
    }
    if (at == NULL && (at = calloc(1, sizeof(*at))) != NULL) {
        at->group = group;
        at->salt = salt;
        at->next = names->rate_table;
        names->rate_table = at;
    }
    rule->rate_table = at != NULL ? &at->rate_table : NULL;
    for (unsigned i = 1; i < RATE_COUNT && at != NULL; i++) {
        /* Written before the set that uses it is published, and never again. */
        if (at->rate_table.units[i] == 0) {
            at->rate_table.units[i] = rule->unit;
        }
        if (at->rate_table.units[i] == rule->unit) {
            rule->rate_id = (uint8_t) i;
            return;
        }
    }
}

static void limit_activate(struct policy_limit *limit)
{
    store_relaxed(&limit->limit_now, limit->rule.limit);
    store_relaxed(&limit->unit_now, limit->rule.unit);
    store_relaxed(&limit->tolerance_now, limit->rule.tolerance);
}

static void limit_compile(struct policy_limit *out, const struct policy *policy, const weir_policy *from, size_t index,
                          uint64_t origin_ns, struct policy_names *names)
{
    const weir_limit *limit = &from->limits[index];
    out->rule = rule_make(limit, origin_ns);
    /* A calendar day counts as a window of a day does, and is the same limit. */
    const bool month = limit->calendar == WEIR_CALENDAR_MONTH;
    out->salt = hash_mix(out->rule.period_ns ^ (uint64_t) limit->algorithm << 60 ^ (uint64_t) month << 59);
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
        scale_find(&out->rule, names, policy->group->id, out->salt);
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

static void policy_compile(struct policy *out, const weir_policy *policy, uint64_t tick_ns, uint64_t origin_ns,
                           struct policy_names *names)
{
    (void) snprintf(out->name, sizeof(out->name), "%s", policy->name);
    (void) snprintf(out->base, sizeof(out->base), "%s", names->names[out->group->id]);
    out->share = names->salts != NULL ? names->salts[out->id] ^ names->salts[out->group->id] : 0;
    out->mode = policy->mode;
    out->scope = policy->scope;
    out->hash_keys = policy->hash_keys;
    out->form = policy_names_form(names, policy->name);
    out->record_hash = names->record_hash;
    out->on_outage = policy->on_outage;
    out->on_long_outage = policy->on_long_outage;
    out->outage_grace_ms = policy->outage_grace_ms;
    out->long_outage_ms = policy->long_outage_ms;
    out->limit_count = policy->limit_count;
    for (size_t i = 0; i < policy->limit_count; i++) {
        limit_compile(&out->limits[i], out, policy, i, origin_ns, names);
    }
    policy_derive(out, tick_ns);
    out->odd_set = names->set_count % 2 != 0;
    store_relaxed(&out->outage_mode, OUTAGE_MODE_NONE);
    store_relaxed(&out->basis, WEIR_BASIS_PROCESS);
}

/* All that share this limit's keys remember at least as much as `units`. */
static void share_log_most(const struct policy_group *group, uint64_t salt, uint64_t units)
{
    for (size_t i = 0; i < group->count; i++) {
        for (size_t j = 0; j < group->members[i]->limit_count; j++) {
            struct policy_limit *limit = &group->members[i]->limits[j];
            if (limit->salt == salt) {
                raise_relaxed(&limit->history_most, units);
            }
        }
    }
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
            scale_find(&limit->rule, names, like->group->id, limit->salt);
        }
        limit_activate(limit);
        share_log_most(like->group, limit->salt, limit->rule.limit);
        raise_relaxed(&limit->history_most, limit->rule.limit);
    }
    policy_derive(out, tick_ns);
}

/* The name of a policy's group: what stands before the first '/'. */
static void base_name(char base[WEIR_MAX_NAME + 1], const char *name)
{
    size_t length = strcspn(name, "/");
    length = length != 0 ? length : strlen(name);
    (void) snprintf(base, WEIR_MAX_NAME + 1, "%.*s", (int) length, name);
}

/* The id of a name, new where it has none. */
static weir_policy_id name_add(struct policy_names *names, const char *name)
{
    weir_policy_id id = policy_names_find(names, name);
    if (id == WEIR_NO_POLICY) {
        id = (weir_policy_id) ++names->count;
        (void) snprintf(names->names[id], sizeof(names->names[id]), "%s", name);
    }
    return id;
}

/* The form that is set for the group of a policy of that name; NULL: none is. */
static struct policy_form *find_form(const struct policy_names *names, const char *name)
{
    char base[WEIR_MAX_NAME + 1];
    base_name(base, name);
    for (size_t i = 0; i < names->form_count; i++) {
        if (strcmp(names->forms[i].policy, base) == 0) {
            return &names->forms[i];
        }
    }
    return NULL;
}

const weir_key_form *policy_names_form(const struct policy_names *names, const char *name)
{
    const struct policy_form *found = find_form(names, name);
    return found != NULL ? found->form : NULL;
}

int policy_names_set_form(struct policy_names *names, const char *name, const weir_key_form *form)
{
    struct policy_form *found = find_form(names, name);
    if (found == NULL) {
        struct policy_form *more = realloc(names->forms, (names->form_count + 1) * sizeof(*more));
        if (more == NULL) {
            return -ENOMEM;
        }
        names->forms = more;
        found = &more[names->form_count++];
        base_name(found->policy, name);
    }
    found->form = form;
    return 0;
}

/* Names that these policies and their groups would add. At most: a group's may be counted more than once. */
static size_t count_new_names(const struct policy_names *names, const weir_policy *policies, size_t count)
{
    size_t added = 0;
    for (size_t i = 0; i < count; i++) {
        char base[WEIR_MAX_NAME + 1];
        base_name(base, policies[i].name);
        const bool tier = strcmp(base, policies[i].name) != 0;
        added += policy_names_find(names, policies[i].name) == WEIR_NO_POLICY;
        added += tier && policy_names_find(names, base) == WEIR_NO_POLICY;
    }
    return added;
}

/* Gives policies their ids and groups. */
static void set_arrange(struct policy_set *set, const weir_policy *policies, struct policy_names *names)
{
    weir_policy_id *groups = set->group_ids;
    for (size_t i = 0; i < set->count; i++) {
        char base[WEIR_MAX_NAME + 1];
        base_name(base, policies[i].name);
        groups[i] = name_add(names, base);
        set->policies[i].id = name_add(names, policies[i].name);
        set->by_id[set->policies[i].id] = &set->policies[i];
    }
    size_t placed = 0;
    for (size_t i = 0; i < set->count; i++) {
        if (set->by_group[groups[i]] != NULL) {
            continue;
        }
        struct policy_group *group = &set->groups[set->group_count++];
        *group = (struct policy_group){.id = groups[i], .members = &set->members[placed]};
        for (size_t j = i; j < set->count; j++) {
            if (groups[j] == groups[i]) {
                set->members[placed++] = &set->policies[j];
                set->policies[j].group = group;
                group->count++;
            }
        }
        set->by_group[groups[i]] = group;
    }
}

const struct policy_limit *policy_set_limit(const struct policy_set *set, weir_policy_id group, uint32_t limit_tag,
                                            const struct policy **policy)
{
    const struct policy_group *found = group <= WEIR_MAX_POLICIES ? set->by_group[group] : NULL;
    for (size_t i = 0; found != NULL && i < found->count; i++) {
        const struct policy *member = found->members[i];
        for (size_t j = 0; j < member->limit_count; j++) {
            if (POLICY_LIMIT_TAG(member->limits[j].salt) == limit_tag) {
                *policy = member;
                return &member->limits[j];
            }
        }
    }
    return NULL;
}

int policy_set_compile(const weir_policy *policies, size_t count, uint64_t tick_ns, uint64_t origin_ns,
                       struct policy_names *names, struct policy_set **out, weir_error *error)
{
    if (names->count + count_new_names(names, policies, count) > WEIR_MAX_POLICIES) {
        return error_set(error, -ENOSPC, "more than %d different policy names since open; reopen, or reuse names",
                         WEIR_MAX_POLICIES);
    }
    const size_t room = count != 0 ? count : 1;
    struct policy_set *set = calloc(1, sizeof(*set));
    if (set != NULL) {
        set->count = count;
        set->policies = calloc(room, sizeof(*set->policies));
        set->members = calloc(room, sizeof(struct policy *));
        set->groups = calloc(room, sizeof(*set->groups));
        set->group_ids = calloc(room, sizeof(*set->group_ids));
    }
    if (set == NULL || set->policies == NULL || set->members == NULL || set->groups == NULL || set->group_ids == NULL) {
        policy_set_free(set);
        return error_set(error, -ENOMEM, "out of memory for %zu %s", count, plain_number(count, "policy", "policies"));
    }
    set_arrange(set, policies, names);
    names->set_count++;
    for (size_t i = 0; i < count; i++) {
        policy_compile(&set->policies[i], &policies[i], tick_ns, origin_ns, names);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < set->policies[i].limit_count; j++) {
            const struct policy_limit *limit = &set->policies[i].limits[j];
            share_log_most(set->policies[i].group, limit->salt, limit->rule.limit);
        }
    }
    *out = set;
    return 0;
}

void policy_set_free(struct policy_set *set)
{
    if (set != NULL) {
        overrides_free(load_relaxed(&set->overrides));
        free(set->policies);
        free(set->members);
        free(set->groups);
        free(set->group_ids);
        free(set);
    }
}

void policy_names_free(struct policy_names *names)
{
    while (names->rate_table != NULL) {
        struct policy_scales *next = names->rate_table->next;
        free(names->rate_table);
        names->rate_table = next;
    }
    free(names->forms);
}
