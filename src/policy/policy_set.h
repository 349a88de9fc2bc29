/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All policies in force, with their overrides. Checks read the set within an RCU section. The set is immutable, except
 * for the numbers of the outage mode (policy.h), and is replaced as a whole.
 *
 * A set is one block of memory. Places in the block are offsets from its start, so that the block may lie at another
 * address for each process that reads it.
 */
#ifndef WEIR_POLICY_POLICY_SET_H
#define WEIR_POLICY_POLICY_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/reference.h"
#include "policy/policy.h"

struct overrides;

struct policy_set {
    size_t size; /* bytes of the block */
    size_t count;
    struct reference overrides; /* struct overrides: see policy_set_overrides() */
    /* Offsets of policies; 0: none. Of a group the first policy; struct policy has the offset of the next one. */
    uint32_t by_id[WEIR_MAX_POLICIES + 1], by_group[WEIR_MAX_POLICIES + 1];
    struct policy policies[]; /* `count` of them */
};

/* NULL: there are none. */
static inline struct overrides *policy_set_overrides(const struct policy_set *set)
{
    return reference_get(&set->overrides);
}

static inline const struct policy *policy_set_at(const struct policy_set *set, uint32_t offset)
{
    return offset != 0 ? (const struct policy *) (const void *) ((const unsigned char *) set + offset) : NULL;
}

/* The policy of an id; NULL: not in this set. */
static inline const struct policy *policy_set_by_id(const struct policy_set *set, weir_policy_id id)
{
    return id <= WEIR_MAX_POLICIES ? policy_set_at(set, set->by_id[id]) : NULL;
}

/* The first policy of a group, by the group's id; NULL: not in this set. */
static inline const struct policy *policy_set_group(const struct policy_set *set, weir_policy_id group)
{
    return group <= WEIR_MAX_POLICIES ? policy_set_at(set, set->by_group[group]) : NULL;
}

/* The next policy of a policy's group; NULL: it is the last one. */
static inline const struct policy *policy_set_next(const struct policy_set *set, const struct policy *policy)
{
    return policy_set_at(set, policy->next_in_group);
}

/* The limit of this id in any tier of the group, and the tier in *policy; NULL: the set has no such limit. */
const struct policy_limit *policy_set_limit(const struct policy_set *set, weir_policy_id group, uint32_t limit_id,
                                            const struct policy **policy);

/*
 * Compiles valid policies. New names get ids. 0; -ENOSPC or -ENOMEM with a sentence, and then no name was added.
 */
int policy_set_compile(const weir_policy *policies, size_t count, const struct policy_context *context,
                       struct policy_set **out, weir_error *error);

/*
 * A copy of a set that others may be damaging, without its overrides, to be freed by policy_set_free(). Each place in
 * it is one of its policies, and each number that is followed is in range. NULL: it is no such set, or is NULL. 0;
 * -ENOMEM.
 */
int policy_set_copy(const struct policy_set *set, struct policy_set **out);

/* Raises history_max to at least `units`, in all limits of the group that share the keys of this limit. */
void policy_set_raise_history_max(struct policy_set *set, weir_policy_id group, uint64_t limit_hash, uint64_t units);

/*
 * `set` is about to replace `old`: histories keep as many units as under the greatest limit so far. Units that a
 * smaller limit would drop count again when the limit is raised within a period. `old` may be NULL.
 */
void policy_set_keep_histories(struct policy_set *set, const struct policy_set *old);

/* Leaves the overrides. NULL is allowed. */
void policy_set_free(struct policy_set *set);

#endif
