/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All policies in force, with their overrides. Checks read the set within an RCU section. The set is immutable, except
 * for the numbers of the outage mode (policy.h), and is replaced as a whole.
 */
#ifndef WEIR_POLICY_POLICY_SET_H
#define WEIR_POLICY_POLICY_SET_H

#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"

struct overrides;

struct policy_set {
    size_t count;
    struct policy *policies;     /* `count` of them */
    struct policy **members;     /* the policies ordered by group */
    struct policy_group *groups; /* group_count of them */
    size_t group_count;
    weir_policy_id *group_ids;                   /* of each policy in order; used while the set is compiled */
    struct policy *by_id[WEIR_MAX_POLICIES + 1]; /* NULL: not in this set */
    const struct policy_group *by_group[WEIR_MAX_POLICIES + 1]; /* by the group's id; NULL: not in this set */
    _Atomic(struct overrides *) overrides;                      /* NULL: there are none */
};

/* The limit of this id in any tier of the group, and the tier in *policy; NULL: the set has no such limit. */
const struct policy_limit *policy_set_limit(const struct policy_set *set, weir_policy_id group, uint32_t limit_id,
                                            const struct policy **policy);

/*
 * Compiles valid policies. New names get ids. 0; -ENOSPC or -ENOMEM with a sentence, and then no name was added.
 */
int policy_set_compile(const weir_policy *policies, size_t count, const struct policy_context *context,
                       struct policy_set **out, weir_error *error);

/*
 * `set` is about to replace `old`: histories keep as many units as under the greatest limit so far. Units that a
 * smaller limit would drop count again when the limit is raised within a period.
 */
void policy_set_keep_histories(const struct policy_set *set, const struct policy_set *old);

void policy_set_free(struct policy_set *set); /* NULL is allowed */

#endif
