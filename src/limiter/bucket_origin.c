/* SPDX-License-Identifier: Apache-2.0 */
#include "limiter/bucket_origin.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/plain.h"
#include "base/rcu.h"
#include "limiter/key_overrides.h"

struct weir_policies {
    size_t count;
    struct {
        weir_policy policy;
        char name[WEIR_MAX_NAME + 1];
        weir_limit limits[WEIR_MAX_LIMITS];
        char limit_names[WEIR_MAX_LIMITS][WEIR_MAX_NAME + 1];
    } of[];
};

/* What is valid fits. */
static const char *copy_name(char to[WEIR_MAX_NAME + 1], const char *name)
{
    if (name == NULL) {
        return NULL;
    }
    (void) strncpy(to, name, WEIR_MAX_NAME);
    return to;
}

struct weir_policies *weir_policies_copy(const weir_policy *policies, size_t count)
{
    struct weir_policies *kept = calloc(1, sizeof(*kept) + count * sizeof(kept->of[0]));
    if (kept == NULL) {
        return NULL;
    }
    kept->count = count;
    for (size_t i = 0; i < count; i++) {
        kept->of[i].policy = policies[i];
        kept->of[i].policy.name = copy_name(kept->of[i].name, policies[i].name);
        kept->of[i].policy.limits = kept->of[i].limits;
        for (size_t j = 0; j < policies[i].limit_count; j++) {
            kept->of[i].limits[j] = policies[i].limits[j];
            kept->of[i].limits[j].name = copy_name(kept->of[i].limit_names[j], policies[i].limits[j].name);
        }
    }
    return kept;
}

void weir_policies_free(struct weir_policies *kept)
{
    free(kept);
}

const weir_policy *weir_policies_at(const struct weir_policies *kept, size_t index)
{
    return kept != NULL && index < kept->count ? &kept->of[index].policy : NULL;
}

int weir_publish(weir *w, const weir_policy *policies, size_t count, weir_error *error)
{
    struct policy_set *set = NULL;
    const int result =
        policy_set_compile(policies, count, w->limiter.tick_ns, w->limiter.process.origin_ns, &w->names, &set, error);
    if (result != 0) {
        return result;
    }
    struct overrides *overrides = NULL;
    struct override_faults faults;
    if (weir_compile_overrides(w, set, &overrides, &faults) != 0) {
        policy_set_free(set);
        return error_set(error, -ENOMEM, "out of memory for the entries of single keys");
    }
    struct policy_set *old = load_relaxed(&w->limiter.process.policies); /* under the lock */
    outage_keep(&w->limiter.process, set, old);
    /* Entries of single keys follow their policies. */
    outage_follow(set, overrides);
    store_relaxed(&set->overrides, overrides);
    store_relaxed(&w->override_count, overrides_count(overrides));
    store_release(&w->limiter.process.policies, set); /* [S4] the set, then the epoch */
    tick_epoch(&w->limiter);
    rcu_synchronize();
    policy_set_free(old);
    return 0;
}

int weir_publish_again(weir *w, weir_error *error)
{
    const size_t count = w->kept != NULL ? w->kept->count : 0;
    weir_policy *policies = calloc(count + 1, sizeof(*policies));
    if (policies == NULL) {
        return error_set(error, -ENOMEM, "out of memory for %zu %s", count, plain_number(count, "policy", "policies"));
    }
    for (size_t i = 0; i < count; i++) {
        policies[i] = w->kept->of[i].policy;
    }
    const int result = weir_publish(w, policies, count, error);
    free(policies);
    return result;
}

bool weir_move_origin(void *arg, int64_t delta_ns)
{
    weir *w = arg;
    /* Somebody is changing policies, and may wait long for readers: next time. */
    if (pthread_mutex_trylock(&w->policy_lock) != 0) {
        return false;
    }
    const uint64_t was_ns = w->limiter.process.origin_ns;
    w->limiter.process.origin_ns =
        delta_ns < 0 ? saturating_sub(was_ns, -(uint64_t) delta_ns) : was_ns + (uint64_t) delta_ns;
    const bool moved = weir_publish_again(w, NULL) == 0;
    w->limiter.process.origin_ns = moved ? w->limiter.process.origin_ns : was_ns;
    (void) pthread_mutex_unlock(&w->policy_lock);
    return moved;
}
