/* SPDX-License-Identifier: Apache-2.0 */
/* The overrides of a policy file: each is checked, and errors name its place. */
#ifndef WEIR_POLICY_FILE_ENTRIES_H
#define WEIR_POLICY_FILE_ENTRIES_H

#include "policy/override_set.h"
#include "policy/policy_file.h"

/* The policies that come into force with the entries. */
struct policy_list {
    const weir_policy *all;
    size_t count;
};

/*
 * Reads the overrides of a file; they are of these policies. `names` has the forms of keys. 0, and the caller frees the
 * list with overrides_drop; -EINVAL, -ENOSPC or -ENOMEM with a sentence that names the place, and there is no list.
 */
int file_entries_read(const struct policy_file *file, const char *path, const struct policy_list *policies,
                      const struct policy_names *names, struct override_list *out, weir_error *error);

#endif
