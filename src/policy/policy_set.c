/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_set.h. */
#include "policy/policy_set.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/numbers.h"
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

/* Whether an offset is that of a policy, or none. */
static bool is_offset(uint32_t offset, size_t count)
{
    const size_t at = offset - offsetof(struct policy_set, policies);
    return offset == 0 || (offset >= offsetof(struct policy_set, policies) && at % sizeof(struct policy) == 0 &&
                           at / sizeof(struct policy) < count);
}

static bool is_sound(const struct policy_set *set)
{
    const size_t count = set->count;
    bool sound = count <= WEIR_MAX_POLICIES && set->size == sizeof(*set) + count * sizeof(struct policy);
    for (size_t id = 0; id <= WEIR_MAX_POLICIES && sound; id++) {
        sound = is_offset(set->by_id[id], count);
    }
    for (size_t i = 0; i < count && sound; i++) {
        const struct policy *policy = &set->policies[i];
        sound = policy->limit_count <= WEIR_MAX_LIMITS && policy->group <= WEIR_MAX_POLICIES &&
                load_relaxed(&policy->outage_mode) <= OUTAGE_MODE_CLOSED &&
                load_relaxed(&policy->basis) <= WEIR_BASIS_OUTAGE;
        for (size_t j = 0; j < policy->limit_count && sound; j++) {
            sound = load_relaxed(&policy->limits[j].history_max) <= WEIR_MAX_UNITS;
        }
    }
    return sound;
}

int policy_set_copy(const struct policy_set *set, struct policy_set **out)
{
    *out = NULL;
    const size_t count = set != NULL ? min_u64(set->count, WEIR_MAX_POLICIES) : 0;
    const size_t size = sizeof(*set) + count * sizeof(struct policy);
    struct policy_set *copy = set != NULL ? malloc(size) : NULL;
    if (copy == NULL) {
        return set != NULL ? -ENOMEM : 0;
    }
    memcpy(copy, set, size);
    copy->overrides = (struct reference){0}; /* a copy of a reference names nothing */
    if (copy->count == count && is_sound(copy)) {
        *out = copy;
    } else {
        free(copy);
    }
    return 0;
}

void policy_set_keep_histories(struct policy_set *set, const struct policy_set *old)
{
    for (size_t i = 0; old != NULL && i < old->count; i++) {
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
