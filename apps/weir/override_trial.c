/* SPDX-License-Identifier: Apache-2.0 */
/* See override_trial.h. */
#include "override_trial.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "describe.h"
#include "override_hash.h"
#include "policy_probe.h"

/*
 * The period of limits that are made for a trial, two hours: at it a bucket takes every number of units, and bursts of
 * some thousand times the limit.
 */
#define TRIAL_PERIOD_NS UINT64_C(7200000000000)

enum trial_opened override_trial_open(struct override_trial *out, const char *prefix, const char *path,
                                      enum probe_keys keys, weir_error *error)
{
    memset(out, 0, sizeof(*out));
    out->keys = keys;
    const int opened = policy_probe_open(prefix, &out->weir, error);
    if (opened != 0) {
        return opened == -EINVAL ? TRIAL_PREFIX : TRIAL_UNREAD;
    }
    if (path == NULL) {
        return TRIAL_OPENED;
    }
    const int loaded = policy_probe_load_keys(out->weir, path, keys, NULL, error);
    if (loaded != 0) {
        return policy_probe_is_bad(loaded) ? TRIAL_FILE : TRIAL_UNREAD;
    }
    out->has_file = true;
    if (!listed_policies_take(&out->policies, out->weir)) {
        (void) error_set(error, -ENOMEM, "out of memory");
        return TRIAL_UNREAD;
    }
    return TRIAL_OPENED;
}

void override_trial_close(struct override_trial *trial)
{
    listed_policies_free(&trial->policies);
    weir_close(trial->weir);
    trial->weir = NULL;
}

/* For weir_list_overrides: what has been set by a call comes first. */
static void take_first(void *arg, const weir_override *entry)
{
    char *name = arg;
    if (name[0] == '\0') {
        (void) snprintf(name, OVERRIDE_NAME_SIZE, "%s", entry->name);
    }
}

/* Sets the override, notes its name, and takes it back, so that each trial begins alike. */
static int try_once(weir *w, const char *typed, const char *value, char name[OVERRIDE_NAME_SIZE], weir_error *error)
{
    const int result = weir_set_override(w, typed, value, error);
    name[0] = '\0';
    if (result == 0) {
        (void) weir_list_overrides(w, take_first, name);
        (void) weir_set_override(w, typed, NULL, NULL);
    }
    return result;
}

/* How many numbers a value has; "allow" and "deny" are one word, too. */
static size_t count_numbers(const char *value)
{
    size_t count = 0;
    const char *until = strstr(value, " until ");
    const char *end = until != NULL ? until : value + strlen(value);
    for (const char *at = value + strspn(value, " ,"); at < end; at += strspn(at, " ,")) {
        at += strcspn(at, " ,");
        count++;
    }
    return count != 0 && count <= WEIR_MAX_LIMITS ? count : 1;
}

/* Puts a policy in force that has the override's name, and a limit for each of its numbers. */
static int make_policy(const struct override_trial *trial, const char *typed, const char *value, weir_error *error)
{
    char name[WEIR_MAX_NAME + 1];
    weir_limit limits[WEIR_MAX_LIMITS];
    const size_t length = strcspn(typed, ":");
    const size_t count = count_numbers(value);
    if (describe_is_of_all(typed)) {
        return 0; /* it needs no policy */
    }
    if (typed[length] == '\0' || length == 0 || length > WEIR_MAX_NAME) {
        return 0; /* the override is refused, and the sentence says why */
    }
    (void) snprintf(name, sizeof(name), "%.*s", (int) length, typed);
    for (size_t i = 0; i < count; i++) {
        limits[i] = (weir_limit){.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .period_ns = TRIAL_PERIOD_NS + i};
    }
    const weir_policy policy = {.name = name, .limits = limits, .limit_count = count};
    const int result = weir_set_policies(trial->weir, &policy, 1, error);
    return result == 0 && trial->keys == PROBE_KEYS_OF_GATEWAY ? policy_probe_set_forms(trial->weir, error) : result;
}

enum trial_result override_trial(struct override_trial *trial, const char *typed, const char *value,
                                 char name[OVERRIDE_NAME_SIZE], weir_error *error)
{
    const int made = trial->has_file ? 0 : make_policy(trial, typed, value, error);
    const int result = made != 0 ? made : try_once(trial->weir, typed, value, name, error);
    if (result == -ENOENT) {
        return TRIAL_NO_POLICY;
    }
    if (result == 0 && strlen(name) + strlen(value) > OVERRIDE_HASH_ENTRY_SIZE) {
        (void) error_set(error, -EINVAL, "the entry has more than %d bytes; nodes leave it out",
                         OVERRIDE_HASH_ENTRY_SIZE);
        return TRIAL_BAD;
    }
    return result == 0 ? TRIAL_GOOD : TRIAL_BAD;
}

bool override_trial_name(struct override_trial *trial, const char *typed, char name[OVERRIDE_NAME_SIZE])
{
    const int made = make_policy(trial, typed, "allow", NULL);
    trial->has_file = false; /* the file's policies are no longer in force */
    return made == 0 && try_once(trial->weir, typed, "allow", name, NULL) == 0;
}

const weir_policy *override_trial_policy(const struct override_trial *trial, const char *name)
{
    return listed_policies_find(&trial->policies, name, strcspn(name, ":"));
}
