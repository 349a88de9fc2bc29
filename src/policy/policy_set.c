/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_set.h. */
#include "policy/policy_set.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/plain.h"
#include "policy/override_set.h"

/* Gives policies their ids and groups. */
static void set_arrange(struct policy_set *set, const weir_policy *policies, struct policy_names *names)
{
    weir_policy_id *groups = set->group_ids;
    for (size_t i = 0; i < set->count; i++) {
        char base[WEIR_MAX_NAME + 1];
        policy_names_group(base, policies[i].name);
        groups[i] = policy_names_add(names, base);
        set->policies[i].id = policy_names_add(names, policies[i].name);
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

const struct policy_limit *policy_set_limit(const struct policy_set *set, weir_policy_id group, uint32_t limit_id,
                                            const struct policy **policy)
{
    const struct policy_group *found = group <= WEIR_MAX_POLICIES ? set->by_group[group] : NULL;
    for (size_t i = 0; found != NULL && i < found->count; i++) {
        const struct policy *member = found->members[i];
        for (size_t j = 0; j < member->limit_count; j++) {
            if (POLICY_LIMIT_ID(member->limits[j].limit_hash) == limit_id) {
                *policy = member;
                return &member->limits[j];
            }
        }
    }
    return NULL;
}

int policy_set_compile(const weir_policy *policies, size_t count, const struct policy_context *context,
                       struct policy_set **out, weir_error *error)
{
    struct policy_names *names = context->names;
    if (names->count + policy_names_count_new(names, policies, count) > WEIR_MAX_POLICIES) {
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
        policy_compile(&set->policies[i], &policies[i], context);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < set->policies[i].limit_count; j++) {
            const struct policy_limit *limit = &set->policies[i].limits[j];
            policy_raise_history_max(set->policies[i].group, limit->limit_hash, limit->rule.limit);
        }
    }
    *out = set;
    return 0;
}

void policy_set_keep_histories(const struct policy_set *set, const struct policy_set *old)
{
    for (size_t i = 0; i < old->count; i++) {
        const struct policy *was = &old->policies[i];
        const struct policy_group *group = set->by_group[was->group->id];
        for (size_t j = 0; group != NULL && j < was->limit_count; j++) {
            policy_raise_history_max(group, was->limits[j].limit_hash, load_relaxed(&was->limits[j].history_max));
        }
    }
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
