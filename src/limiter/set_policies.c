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
#include "limiter/dropped_policies.h"
#include "limiter/key_overrides.h"
#include "limiter/policy_lock.h"
#include "limiter/policy_readers.h"
#include "limiter/shared_policies.h"
#include "limiter/weir_private.h"
#include "policy/file_entries.h"
#include "policy/validate.h"
#include "thread/rcu.h"
#include "thread/rcu_lane.h"
#include "thread/settle_pass.h"

void policies_free(const weir *w, struct policy_set *set)
{
    if (set != NULL && w->shared_policies == NULL) {
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

/*
 * A process without a handle that does not lead reads no slots of others: it may have rights that they have not, as the
 * master of a server has. The leader does so at its next turn.
 */
static void have_old_grants_settled(weir *w)
{
    if (w->shared_policies == NULL || load_relaxed(&w->leads) != 0 || limiter_has_handles(&w->limiter)) {
        settle_old_grants(&w->limiter);
    } else {
        store_release(&w->shared->old_grants, 1); /* pairs with policies_settle() */
    }
}

void policies_settle(weir *w)
{
    if (load_relaxed(&w->shared->old_grants) != 0 && exchange_acquire(&w->shared->old_grants, 0) != 0) {
        settle_old_grants(&w->limiter);
    }
}

/* Policies and overrides that were compiled, and are not in force yet. */
struct compiled {
    struct policy_set *set;
    struct overrides *overrides;
};

static void drop(const struct compiled *compiled)
{
    overrides_free(compiled->overrides);
    policy_set_free(compiled->set);
}

/* `was`: the policies in force; NULL: they cannot be read. 0, or a negative errno with a sentence. */
static int compile(weir *w, const weir_policy *policies, size_t count, const struct policy_set *was,
                   struct compiled *out, weir_error *error)
{
    const struct policy_context context = {
        .tick_ns = w->limiter.tick_ns, .origin_ns = w->limiter.process.shared->origin_ns, .names = &w->names};
    struct override_faults faults;
    *out = (struct compiled){NULL, NULL};
    int result = commit_rates(w, policies, count);
    if (result != 0) {
        return shared_policies_refuse(result, error);
    }
    result = policy_set_compile(policies, count, &context, &out->set, error);
    if (result != 0) {
        return result;
    }
    policy_set_keep_histories(out->set, was);
    result = key_overrides_compile(w, out->set, &out->overrides, &faults);
    if (result != 0) {
        drop(out);
        return shared_policies_refuse(result, error);
    }
    return 0;
}

/* `old`: the set in force, whose places stay as they are; NULL: there is none. */
static void put_in_force(weir *w, struct compiled *compiled, const struct policy_set *was, const struct policy_set *old)
{
    outage_keep(&w->limiter.process, compiled->set, was);
    /* Entries of single keys follow their policies. */
    outage_follow(compiled->set, compiled->overrides);
    key_overrides_note(w, compiled->overrides);
    const struct overrides *old_overrides = old != NULL ? policy_set_overrides(old) : NULL;
    struct overrides *overrides =
        shared_policies_place_overrides(w->shared_policies, compiled->overrides, old_overrides);
    struct policy_set *set = shared_policies_place_set(w->shared_policies, compiled->set, old);
    reference_set(&set->overrides, overrides);
    *compiled = (struct compiled){set, overrides};
    w->set_in_force = set;
    w->overrides_in_force = overrides;
    reference_set(&w->limiter.process.shared->policies, set); /* [S4] the set, then the epoch */
}

int policies_publish(weir *w, const weir_policy *policies, size_t count, weir_error *error)
{
    struct policy_set *old = shared_policies_in_force(w);
    /* Other processes may write to the set: what is kept of it is kept of a copy. */
    struct policy_set *copy = NULL;
    struct compiled compiled = {NULL, NULL};
    int result = policy_readers_wait(w);
    result = result == 0 && w->shared_policies != NULL ? policy_set_copy(old, &copy) : result;
    const struct policy_set *was = w->shared_policies != NULL ? copy : old;
    result = result != 0 ? shared_policies_refuse(result, error) : compile(w, policies, count, was, &compiled, error);
    if (result == 0 && (result = shared_policies_prepare(w, compiled.set, compiled.overrides)) != 0) {
        drop(&compiled);
        result = shared_policies_refuse(result, error);
    }
    if (result == 0) {
        put_in_force(w, &compiled, was, old);
        dropped_policies_note(&w->shared->dropped, was, compiled.set);
    }
    policy_set_free(copy);
    if (result != 0) {
        return result;
    }
    tick_epoch(&w->limiter);
    agreement_policies_changed(w->fleet);
    shared_policies_commit(w);
    policy_readers_drain(w);
    have_old_grants_settled(w);
    policies_free(w, old);
    probe_policies(compiled.set->count, overrides_listed(compiled.overrides));
    return 0;
}

int policies_salvage(weir *w, weir_error *error)
{
    const size_t count = configured_policies_count(w->configured);
    weir_policy *policies = configured_policies_list(w->configured);
    if (policies == NULL) {
        return shared_policies_refuse(-ENOMEM, error);
    }
    struct compiled compiled = {NULL, NULL};
    struct policy_set *old = shared_policies_in_force(w);
    struct policy_set *was = NULL;
    int result = policy_set_copy(old, &was);
    result = result != 0 ? shared_policies_refuse(result, error) : compile(w, policies, count, was, &compiled, error);
    if (result == 0 && (result = shared_policies_make_room(w, compiled.set, compiled.overrides)) != 0) {
        drop(&compiled);
        result = shared_policies_refuse(result, error);
    }
    if (result == 0) {
        put_in_force(w, &compiled, was, old);
    }
    policy_set_free(was);
    free(policies);
    return result;
}

int policies_publish_again(weir *w, weir_error *error)
{
    weir_policy *policies = configured_policies_list(w->configured);
    if (policies == NULL) {
        return shared_policies_refuse(-ENOMEM, error);
    }
    const int result = policies_publish(w, policies, configured_policies_count(w->configured), error);
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
    const struct policy_list list = {policies, count};
    int result = validate_policies(policies, count, NULL, error);
    result = result != 0 ? result : required_check(&w->required, &list, NULL, error);
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
    result = required_check(&w->required, &list, yaml_path, error);
    result = result != 0 ? result : put_with_entries(w, &list, file, yaml_path, error);
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
    const struct policy_set *set = shared_policies_in_force(w);
    if (set == NULL || policy_set_by_id(set, id) == NULL) {
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
