/* SPDX-License-Identifier: Apache-2.0 */
/* The policies and tiers of a policy file: from the file's tree to weir.h's form. */
#ifndef WEIR_POLICY_FILE_POLICIES_H
#define WEIR_POLICY_FILE_POLICIES_H

#include "policy/tree.h"
#include "weir/weir.h"

/* The policies of a file. A tier is a policy of its own, named "policy/tier". */
struct file_policies {
    weir_policy *policies;         /* names point into the tree or into `sources` */
    struct policy_source *sources; /* of each policy: see file_policies.c */
    size_t count;
};

/*
 * Reads the list of policies at `list`. 0; -EINVAL, -ENOSPC or -ENOMEM with the file's error set. The caller frees
 * *out, also after an error. The tree must outlive *out.
 */
int file_policies_read(const struct text_file *file, const struct tree *tree, const struct tree_node *list,
                       struct file_policies *out);

/* Validates the policies. 0; -EINVAL with the file's error set to the fault and its place. */
int file_policies_validate(const struct text_file *file, const struct tree *tree, const struct file_policies *policies);

void file_policies_free(struct file_policies *policies);

#endif
