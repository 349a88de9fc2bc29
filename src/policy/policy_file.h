/* SPDX-License-Identifier: Apache-2.0 */
/* A YAML file of policies, and of overrides for single keys. */
#ifndef WEIR_POLICY_POLICY_FILE_H
#define WEIR_POLICY_POLICY_FILE_H

#include "policy/text_file.h"
#include "weir/weir.h"

/* A file that was read. Owns the policies and overrides, and all they point at. */
struct policy_file;

/*
 * Reads a file and validates its policies. On 0, *out holds them until policy_file_free. Else a negative errno value,
 * and a sentence that names the file, the line, the column and the field.
 */
int policy_file_load(const char *path, struct policy_file **out, weir_error *error);

const weir_policy *policy_file_policies(const struct policy_file *file, size_t *count);

/* An override as text, with the places of its name and value in the file. */
struct file_entry {
    const char *name, *value;
    struct place name_place, value_place;
};

/* The overrides, unread: see file_entries.h. */
const struct file_entry *policy_file_entries(const struct policy_file *file, size_t *count);

void policy_file_free(struct policy_file *file); /* NULL is allowed */

#endif
