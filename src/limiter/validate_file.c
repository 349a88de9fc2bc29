/* SPDX-License-Identifier: Apache-2.0 */
/* weir_validate_policies: whether a policy file could be loaded, without a weir. */
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "policy/file_entries.h"
#include "policy/policy_names.h"
#include "policy/required.h"

/* The part of the answer that needs the names of policies, none of which is known yet. */
static int check_names(const struct policy_file *file, const struct policy_list *policies, const char *path,
                       weir_error *error)
{
    const struct text_file at = {.path = path, .error = error};
    struct policy_names *names = calloc(1, sizeof(*names)); /* too large for a stack */
    struct override_list entries;
    if (names == NULL) {
        return text_file_fail(&at, (struct place){0}, -ENOMEM, "out of memory");
    }
    int result = 0;
    if (policy_names_count_new(names, policies->all, policies->count) > WEIR_MAX_POLICIES) {
        result = text_file_fail(&at, (struct place){0}, -ENOSPC,
                                "there are more than %d names of policies and of groups of tiers; give fewer",
                                WEIR_MAX_POLICIES);
    }
    result = result != 0 ? result : file_entries_read(file, path, policies, names, &entries, error);
    if (result == 0) {
        overrides_drop(entries.texts, entries.count);
    }
    free(names);
    return result;
}

int weir_validate_policies(const char *path, const char *const *required, size_t count, weir_error *error)
{
    const struct required needed = {required, count};
    struct policy_file *file = NULL;
    if (path == NULL) {
        return error_set(error, -EINVAL, "path is NULL; give the path of a policy file");
    }
    int result = required_validate(&needed, "required", error);
    result = result != 0 ? result : policy_file_load(path, &file, error);
    if (result != 0) {
        return result;
    }
    struct policy_list policies = {NULL, 0};
    policies.all = policy_file_policies(file, &policies.count);
    result = required_check(&needed, &policies, path, error);
    result = result != 0 ? result : check_names(file, &policies, path, error);
    policy_file_free(file);
    return result != 0 ? result : error_clear(error);
}
