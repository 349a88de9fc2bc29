/* SPDX-License-Identifier: Apache-2.0 */
/* weir_list_policies: the policies in force as configured, with the defaults filled in. */
#include <string.h>

#include "base/numbers.h"
#include "limiter/configured_policies.h"
#include "limiter/policy_lock.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"

/*
 * A limit with nothing left to a default. Each of these numbers is one that the limit could have been given with.
 * `name`: its name, of which other processes may be writing the original.
 */
static weir_limit limit_filled(const weir_limit *given, const struct policy_limit *compiled,
                               char name[WEIR_MAX_NAME + 1])
{
    weir_limit limit = *given;
    memcpy(name, compiled->name, WEIR_MAX_NAME);
    name[WEIR_MAX_NAME] = '\0';
    limit.burst = compiled->rule.limit;
    limit.period_ns = compiled->rule.period_ns;
    limit.name = name;
    return limit;
}

static void tell(const weir_policy *given, const struct policy *compiled, weir_policy_fn each, void *arg)
{
    weir_limit limits[WEIR_MAX_LIMITS];
    char names[WEIR_MAX_LIMITS][WEIR_MAX_NAME + 1];
    for (size_t i = 0; i < given->limit_count; i++) {
        limits[i] = limit_filled(&given->limits[i], &compiled->limits[i], names[i]);
    }
    weir_policy policy = *given;
    policy.limits = limits;
    const weir_policy_info info = {.id = compiled->id, .policy = &policy};
    each(arg, &info);
}

size_t weir_list_policies(const weir *w, weir_policy_fn each, void *arg)
{
    weir *unlocked = (weir *) (uintptr_t) w; /* the lock is no part of what const promises */
    policy_lock_take(unlocked);
    const struct policy_set *set = shared_policies_in_force(w);
    /* For want of memory, or where the process died that set them, this one may know others than are in force. */
    const size_t count = set != NULL ? min_u64(set->count, configured_policies_count(w->configured)) : 0;
    for (size_t i = 0; i < count && each != NULL; i++) {
        tell(configured_policies_at(w->configured, i), &set->policies[i], each, arg); /* compiled in the same order */
    }
    policy_lock_release(unlocked);
    return count;
}
