/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_set.h. */
#include "policy/policy_set.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/plain.h"
#include "policy/override_set.h"

/* Adds a policy to its group, as the last one. */
static void group_add(struct policy_set *set, weir_policy_id group, size_t index)
{
    const struct policy *member = policy_set_group(set, group);
    uint32_t *end = &set->by_group[group];
    while (member != NULL) {
        end = &set->policies[member - set->policies].next_in_group;
        member = policy_set_next(set, member);
    }
    *end = set->by_id[set->policies[index].id];
}

/* Gives policies their ids and groups. */
static void set_arrange(struct policy_set *set, const weir_policy *policies, struct policy_names *names)
{
    for (size_t i = 0; i < set->count; i++) {
        struct policy *policy = &set->policies[i];
        char base[WEIR_MAX_NAME + 1];
        policy_names_group(base, policies[i].name);
        policy->group = policy_names_add(names, base);
        policy->id = policy_names_add(names, policies[i].name);
        set->by_id[policy->id] = (uint32_t) (offsetof(struct policy_set, policies) + i * sizeof(*policy));
        group_add(set, policy->group, i);
    }
}

const struct policy_limit *policy_set_limit(const struct policy_set *set, weir_policy_id group, uint32_t limit_id,
                                            const struct policy **policy)
{
    const struct policy *member = policy_set_group(set, group);
    for (; member != NULL; member = policy_set_next(set, member)) {
        for (size_t i = 0; i < member->limit_count; i++) {
            if (POLICY_LIMIT_ID(member->limits[i].limit_hash) == limit_id) {
                *policy = member;
                return &member->limits[i];
            }
        }
    }
    return NULL;
}

void policy_set_raise_history_max(struct policy_set *set, weir_policy_id group, uint64_t limit_hash, uint64_t units)
{
    const struct policy *member = policy_set_group(set, group);
    for (; member != NULL; member = policy_set_next(set, member)) {
        for (size_t i = 0; i < member->limit_count; i++) {
            struct policy_limit *limit = &set->policies[member - set->policies].limits[i];
            if (limit->limit_hash == limit_hash) {
                raise_relaxed(&limit->history_max, units);
            }
        }
    }
}

int policy_set_compile(const weir_policy *policies, size_t count, const struct policy_context *context,
                       struct policy_set **out, weir_error *error)
{
    struct policy_names *names = context->names;
    if (names->count + policy_names_count_new(names, policies, count) > WEIR_MAX_POLICIES) {
        return error_set(error, -ENOSPC, "more than %d different policy names since open; reopen, or reuse names",
                         WEIR_MAX_POLICIES);
    }
    const size_t size = sizeof(struct policy_set) + count * sizeof(struct policy);
    struct policy_set *set = calloc(1, size);
    if (set == NULL) {
        return error_set(error, -ENOMEM, "out of memory for %zu %s", count, plain_number(count, "policy", "policies"));
    }
    set->size = size;
    set->count = count;
    set_arrange(set, policies, names);
    names->set_count++;
    for (size_t i = 0; i < count; i++) {
        policy_compile(&set->policies[i], &policies[i], context);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < set->policies[i].limit_count; j++) {
            const struct policy_limit *limit = &set->policies[i].limits[j];
            policy_set_raise_history_max(set, set->policies[i].group, limit->limit_hash, limit->rule.limit);
        }
    }
    *out = set;
    return 0;
}

void policy_set_keep_histories(struct policy_set *set, const struct policy_set *old)
{
    for (size_t i = 0; i < old->count; i++) {
        const struct policy *was = &old->policies[i];
        for (size_t j = 0; j < was->limit_count; j++) {
            policy_set_raise_history_max(set, was->group, was->limits[j].limit_hash,
                                         load_relaxed(&was->limits[j].history_max));
        }
    }
}

void policy_set_free(struct policy_set *set)
{
    free(set);
}
