/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies that a program cannot do without. A check of a policy that is not there is allowed, so a set that lacks
 * a name which the program uses would switch a limit off. Such a set is refused as a whole.
 */
#ifndef WEIR_POLICY_REQUIRED_H
#define WEIR_POLICY_REQUIRED_H

#include <stddef.h>

#include "policy/file_entries.h"
#include "weir/weir.h"

/* `count` names as a caller gives them. */
struct required {
    const char *const *names;
    size_t count;
};

/* 0; -EINVAL: a name is NULL, or is none that a policy can have. `field` is what the error calls the list. */
int required_validate(const struct required *required, const char *field, weir_error *error);

/* Copies a valid list, in one block that the caller frees; NULL: out of memory, or the list is empty. */
const char *const *required_copy(const struct required *required);

/*
 * 0; -EINVAL: a required name is not among the policies. The error names it and the nearest name among the policies
 * that are not required themselves. `path`: the file of the policies, for the error; NULL: there is none. -ENOMEM.
 */
int required_check(const struct required *required, const struct policy_list *policies, const char *path,
                   weir_error *error);

#endif
