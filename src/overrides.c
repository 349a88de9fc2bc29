/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entries of single keys: taken from the fleet by the background thread, compiled against the present policies, and
 * published within the set that checks read. A new set takes them over before it is published, so that every check sees
 * both of one time.
 */
#include "overrides.h"

#include "base/rcu.h"

struct overrides *weir_compile_overrides(weir *w, const struct policy_set *set, const struct override_text **first_bad,
                                         size_t *bad_count)
{
    const struct override_text *ignored;
    size_t ignored_count;
    const struct override_context context = {
        .set = set, .names = &w->names, .secret = &w->secret, .tick_ns = w->tier.tick_ns};
    struct overrides *compiled =
        overrides_compile(&context, w->override_texts, w->override_text_count, first_bad != NULL ? first_bad : &ignored,
                          bad_count != NULL ? bad_count : &ignored_count);
    outage_follow(set, compiled);
    store_relaxed(&w->override_count, overrides_count(compiled));
    return compiled;
}

void weir_take_overrides(weir *w)
{
    struct fleet *fleet = &w->fleet;
    /* Somebody is changing policies, and may wait long for readers: next time. */
    if (!fleet->has_overrides || pthread_mutex_trylock(&w->policy_lock) != 0) {
        return;
    }
    overrides_drop(w->override_texts, w->override_text_count);
    w->override_texts = fleet->override_texts;
    w->override_text_count = fleet->override_count;
    fleet->override_texts = NULL;
    fleet->override_count = 0;
    fleet->has_overrides = false;
    const struct override_text *first_bad = NULL;
    size_t bad_count = 0;
    struct policy_set *set = load_relaxed(&w->tier.policies); /* under the lock */
    struct overrides *compiled = weir_compile_overrides(w, set, &first_bad, &bad_count);
    struct overrides *old = load_relaxed(&set->overrides);
    /* Pairs with thread_policy; then the epoch, so that no grant by the old ones lives on [S4]. */
    store_release(&set->overrides, compiled);
    tick_epoch(&w->tier);
    rcu_synchronize();
    overrides_free(old);
    fleet_log(fleet, WEIR_LOG_INFO, "overrides: %zu keys have entries of their own", overrides_count(compiled));
    if (bad_count != 0) {
        fleet_log(
            fleet, WEIR_LOG_ERROR,
            "overrides: %zu entries are malformed, such as \"%.60s\" with \"%.60s\"; give \"allow\", \"deny\" or a "
            "number for each limit of the policy, such as \"200/50 10000\"",
            bad_count, first_bad->field, first_bad->value);
    }
    (void) pthread_mutex_unlock(&w->policy_lock);
}
