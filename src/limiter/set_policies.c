/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_set_policies, weir_load_policies, weir_load_policies_with, weir_find_policy and weir_set_key_form. See
 * set_policies.h.
 */
#include "limiter/set_policies.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/plain.h"
#include "base/probe.h"
#include "limiter/configured_policies.h"
#include "limiter/key_overrides.h"
#include "limiter/policy_lock.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"
#include "policy/file_entries.h"
#include "policy/validate.h"
#include "thread/rcu.h"
#include "thread/rcu_lane.h"
#include "thread/settle_pass.h"

void policies_free(const weir *w, struct policy_set *set)
{
    if (set != NULL && !shared_policies_has(w->shared_policies, set)) {
        overrides_free(policy_set_overrides(set)); /* no check reads the set */
        policy_set_free(set);
    }
}

/* Has the rates present that limits of these policies may add. */
static int commit_rates(const weir *w, const weir_policy *policies, size_t count)
{
    size_t limits = 0;
    for (size_t i = 0; i < count; i++) {
        limits += policies[i].limit_count;
    }
    return pages_commit(&w->pages, w->names.rates, rate_list_size(w->names.rates, limits));
}

static int no_memory(int result, weir_error *error)
{
    return result == -ENOSPC ? error_set(error, result, "there is no room in /dev/shm for the policies")
                             : error_set(error, result, "out of memory for the entries of single keys");
}

/*
 * Takes back what threads were granted under the old policies. A check that finds no room takes back the grants under
 * the policies in force alone, so units under a tier that has been removed would be missing until the next pass.
 */
static void settle_old_grants(struct limiter *limiter)
{
    const unsigned lane = rcu_enter_lane(limiter);
    (void) settle_lapsed(limiter);
    rcu_leave_lane(limiter, lane);
}

int policies_publish(weir *w, const weir_policy *policies, size_t count, weir_error *error)
{
    const struct policy_context context = {
        .tick_ns = w->limiter.tick_ns, .origin_ns = w->limiter.process.shared->origin_ns, .names = &w->names};
    struct policy_set *set = NULL;
    int result = commit_rates(w, policies, count);
    if (result != 0) {
        return no_memory(result, error);
    }
    result = policy_set_compile(policies, count, &context, &set, error);
    if (result != 0) {
        return result;
    }
    struct policy_set *old = process_policies(&w->limiter.process); /* under the lock */
    policy_set_keep_histories(set, old);
    struct overrides *overrides = NULL;
    struct override_faults faults;
    result = key_overrides_compile(w, set, &overrides, &faults);
    result = result != 0 ? result : shared_policies_prepare(w, set, overrides);
    if (result != 0) {
        overrides_free(overrides);
        policy_set_free(set);
        return no_memory(result, error);
    }
    outage_keep(&w->limiter.process, set, old);
    /* Entries of single keys follow their policies. */
    outage_follow(set, overrides);
    key_overrides_note(w, overrides);
    overrides = shared_policies_place_overrides(w->shared_policies, overrides, policy_set_overrides(old));
    set = shared_policies_place_set(w->shared_policies, set, old);
    reference_set(&set->overrides, overrides);
    w->set_in_force = set;
    w->overrides_in_force = overrides;
    reference_set(&w->limiter.process.shared->policies, set); /* [S4] the set, then the epoch */
    tick_epoch(&w->limiter);
    shared_policies_commit(w);
    rcu_synchronize(&w->limiter);
    settle_old_grants(&w->limiter);
    policies_free(w, old);
    probe_policies(set->count, overrides_listed(overrides));
    return 0;
}

int policies_publish_again(weir *w, weir_error *error)
{
    const size_t count = configured_policies_count(w->configured);
    weir_policy *policies = calloc(count + 1, sizeof(*policies));
    if (policies == NULL) {
        return error_set(error, -ENOMEM, "out of memory for %zu %s", count, plain_number(count, "policy", "policies"));
    }
    for (size_t i = 0; i < count; i++) {
        policies[i] = *configured_policies_at(w->configured, i);
    }
    const int result = policies_publish(w, policies, count, error);
    free(policies);
    return result;
}

void policies_repair(weir *w)
{
    if (load_relaxed(&w->shared->half_changed) == 0 || !policy_lock_try(w)) {
        return; /* a thread changes policies, and may wait long for readers: next time */
    }
    if (policies_publish_again(w, NULL) == 0) {
        store_relaxed(&w->shared->half_changed, 0);
    }
    policy_lock_release(w);
}

/* Puts policies in force, and the entries that come with them. Takes over `entries` where it returns 0. */
static int put_policies(weir *w, const weir_policy *policies, size_t count, struct override_list entries,
                        weir_error *error)
{
    struct configured_policies *configured = configured_policies_copy(policies, count);
    if (configured == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    const struct override_list before = w->overrides[OVERRIDES_FILE];
    struct configured_policies *old = w->configured;
    w->overrides[OVERRIDES_FILE] = entries;
    w->configured = configured;
    const int result = policies_publish(w, policies, count, error);
    if (result != 0) {
        w->overrides[OVERRIDES_FILE] = before;
        w->configured = old;
        configured_policies_free(configured);
        return result;
    }
    configured_policies_free(old);
    overrides_drop(before.texts, before.count);
    return error_clear(error);
}

int weir_set_policies(weir *w, const weir_policy *policies, size_t count, weir_error *error)
{
    int result = validate_policies(policies, count, NULL, error);
    if (result != 0) {
        return result;
    }
    policy_lock_take(w);
    result = put_policies(w, policies, count, (struct override_list){NULL, 0}, error);
    policy_lock_release(w);
    return result;
}

/* Puts policies in force, and the entries of the file. */
static int put_with_entries(weir *w, const struct policy_list *policies, const struct policy_file *file,
                            const char *yaml_path, weir_error *error)
{
    struct override_list entries;
    policy_lock_take(w);
    int result = file_entries_read(file, yaml_path, policies, &w->names, &entries, error);
    if (result == 0) {
        result = put_policies(w, policies->all, policies->count, entries, error);
        if (result != 0) {
            overrides_drop(entries.texts, entries.count);
        }
    }
    policy_lock_release(w);
    return result;
}

/* 0, or -EINVAL where a name is in both lists. */
static int check_names(const weir_policy *policies, size_t count, const weir_policy *of_file, size_t file_count,
                       const char *yaml_path, weir_error *error)
{
    for (size_t i = 0; i < file_count; i++) {
        for (size_t j = 0; j < count; j++) {
            if (strcmp(of_file[i].name, policies[j].name) == 0) {
                return error_set(error, -EINVAL,
                                 "%.120s: policy \"%s\" has the name of a policy of the program; rename one", yaml_path,
                                 of_file[i].name);
            }
        }
    }
    return 0;
}

/* The policies of the program, valid ones, and those of the file. */
static int put_both(weir *w, const struct policy_file *file, const char *yaml_path, const weir_policy *policies,
                    size_t count, weir_error *error)
{
    size_t file_count = 0;
    const weir_policy *of_file = policy_file_policies(file, &file_count);
    int result = check_names(policies, count, of_file, file_count, yaml_path, error);
    if (result != 0) {
        return result;
    }
    weir_policy *both = calloc(count + file_count + 1, sizeof(*both));
    if (both == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < count + file_count; i++) {
        both[i] = i < count ? policies[i] : of_file[i - count];
    }
    const struct policy_list list = {both, count + file_count};
    result = put_with_entries(w, &list, file, yaml_path, error);
    free(both);
    return result;
}

int weir_load_policies_with(weir *w, const char *yaml_path, const weir_policy *policies, size_t count,
                            weir_error *error)
{
    if (yaml_path == NULL) {
        return error_set(error, -EINVAL, "yaml_path is NULL; give the path of a policy file");
    }
    int result = validate_policies(policies, count, NULL, error);
    if (result != 0) {
        return result;
    }
    struct policy_file *file = NULL;
    result = policy_file_load(yaml_path, &file, error);
    if (result != 0) {
        return result;
    }
    result = put_both(w, file, yaml_path, policies, count, error);
    policy_file_free(file);
    return result;
}

int weir_load_policies(weir *w, const char *yaml_path, weir_error *error)
{
    return weir_load_policies_with(w, yaml_path, NULL, 0, error);
}

weir_policy_id weir_find_policy(const weir *w, const char *name)
{
    if (name == NULL) {
        return WEIR_NO_POLICY;
    }
    weir *unlocked = (weir *) (uintptr_t) w; /* the lock is no part of what const promises */
    policy_lock_take(unlocked);
    weir_policy_id id = policy_names_find(&w->names, name);
    /* Relaxed: changed only under the lock. */
    if (policy_set_by_id(process_policies(&w->limiter.process), id) == NULL) {
        id = WEIR_NO_POLICY;
    }
    policy_lock_release(unlocked);
    return id;
}

/* Sets the form in force. 0 or -ENOMEM, which is impossible for a policy that has had a form. */
static int put_form(weir *w, const char *policy, const weir_key_form *form)
{
    const int result = policy_names_set_form(&w->names, policy, form);
    const weir_policy_id group = policy_names_find(&w->names, policy);
    if (result == 0 && group != WEIR_NO_POLICY) {
        record_form_changed(&w->forms, group);
    }
    return result;
}

/* weir_set_key_form, under the policy lock. */
static int set_key_form(weir *w, const char *policy, const weir_key_form *form, weir_error *error)
{
    const weir_key_form *old = policy_names_form(&w->names, policy);
    if (put_form(w, policy, form) != 0) {
        return error_set(error, -ENOMEM, "out of memory for the form of policy \"%s\"", policy);
    }
    const int result = policies_publish_again(w, error);
    if (result != 0) {
        (void) put_form(w, policy, old);
    }
    return result;
}

int weir_set_key_form(weir *w, const char *policy, const weir_key_form *form, weir_error *error)
{
    const weir_limit any = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = NS_PER_S};
    const weir_policy named = {.name = policy, .limits = &any, .limit_count = 1};
    int result = validate_policies(&named, 1, NULL, error);
    if (result != 0) {
        return result;
    }
    if (strchr(policy, '/') != NULL) {
        return error_set(error, -EINVAL, "\"%s\" is a tier; give the name before the first '/'", policy);
    }
    if (form != NULL && (form->write == NULL || form->read == NULL || form->example == NULL)) {
        return error_set(error, -EINVAL, "the form of policy \"%s\" lacks write, read or example; give all three",
                         policy);
    }
    policy_lock_take(w);
    result = set_key_form(w, policy, form, error);
    policy_lock_release(w);
    return result != 0 ? result : error_clear(error);
}
