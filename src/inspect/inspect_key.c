/* SPDX-License-Identifier: Apache-2.0 */
/* Where one key stands. */
#include <errno.h>

#include "base/error.h"
#include "inspect/chosen_key.h"
#include "inspect/standing.h"

/* The limit that decides: the last one to let the request pass, else the one with the least room. */
static size_t deciding(const weir_inspected_limit *limits, size_t count)
{
    size_t best = 0;
    for (size_t i = 1; i < count; i++) {
        const bool later = limits[i].retry_after_ns > limits[best].retry_after_ns;
        const bool less =
            limits[i].retry_after_ns == limits[best].retry_after_ns && limits[i].remaining < limits[best].remaining;
        best = later || less ? i : best;
    }
    return best;
}

/* Says what of the key is known before its records are read. False: no memory. */
static bool describe(weir_inspector *in, const struct chosen_key *key)
{
    static const weir_override_answer answers[] = {[OVERRIDE_NONE] = WEIR_NO_OVERRIDE,
                                                   [OVERRIDE_ALLOW] = WEIR_OVERRIDE_ALLOW,
                                                   [OVERRIDE_DENY] = WEIR_OVERRIDE_DENY};
    in->key = (weir_inspected_key){.name = shelf_text(&in->of_key, key->full_name),
                                   .policy = shelf_text(&in->of_key, key->policy.name),
                                   .mode = key->policy.mode,
                                   .fleet = &in->fleet,
                                   .overrides = &in->overrides,
                                   .override = answers[key->policy.override],
                                   .override_name = key->override_name,
                                   .override_value = key->override_value,
                                   .override_from_fleet = key->override_from_fleet,
                                   .denied = key->policy.override == OVERRIDE_DENY};
    return in->key.name != NULL && in->key.policy != NULL;
}

/* Reads the records under all limits of the policy. */
static int read_limits(weir_inspector *in, const struct chosen_key *key, uint64_t cost, weir_error *error)
{
    const struct standing_question question = {.fleet = &in->fleet, .cost = cost, .with_authors = true};
    struct limit_records of[WEIR_MAX_LIMITS];
    const size_t count = key->policy.limit_count;
    weir_inspected_limit *limits = shelf_take(&in->of_key, count, sizeof(*limits));
    if (limits == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < count; i++) {
        of[i] = (struct limit_records){in->prefix, &key->policy, &key->policy.limits[i], key->text};
    }
    const int result = standing_read(in, &in->of_key, of, count, &question, limits, error);
    if (result != 0) {
        return result;
    }
    in->key.limits = limits;
    in->key.limit_count = in->key.deciding = count;
    if (key->policy.override == OVERRIDE_NONE) {
        in->key.deciding = deciding(limits, count);
        in->key.denied = !limits[in->key.deciding].fits;
    }
    return 0;
}

int weir_inspect_key(weir_inspector *in, weir *w, const char *name, uint64_t cost, const weir_inspected_key **out,
                     weir_error *error)
{
    const weir_inspected_fleet *fleet;
    const weir_inspected_overrides *overrides;
    struct chosen_key key;
    *out = NULL;
    shelf_clear(&in->of_key);
    if (name == NULL) {
        return error_set(error, -EINVAL, "name is NULL; give policy:key, such as api:198.51.100.7");
    }
    int result = weir_inspect_overrides(in, &overrides, error);
    result = result != 0 ? result : weir_inspect_fleet(in, &fleet, error);
    result = result != 0 ? result : chosen_key_read(&key, &in->of_key, w, name, overrides, fleet->time_ns, error);
    if (result == 0 && !describe(in, &key)) {
        result = error_set(error, -ENOMEM, "out of memory");
    }
    if (result == 0 && key.policy.scope == WEIR_SCOPE_FLEET && key.name.kind != ENTRY_NETWORK) {
        result = read_limits(in, &key, cost != 0 ? cost : 1, error);
    }
    *out = result == 0 ? &in->key : NULL;
    return result;
}
