/* SPDX-License-Identifier: Apache-2.0 */
/* Policies from a YAML file, and entries of single keys. */
#ifndef WEIR_POLICY_POLICY_FILE_H
#define WEIR_POLICY_POLICY_FILE_H

#include "policy/text_file.h"
#include "weir/weir.h"

/* Policies as a file gave them, owning all they point at. */
struct policy_file;

/*
 * Reads a file. On 0, *out holds its policies until policy_file_free. Else a negative errno value, and a sentence that
 * names the file, the line, the column and the field.
 */
int policy_file_load(const char *path, struct policy_file **out, weir_error *error);

const weir_policy *policy_file_policies(const struct policy_file *file, size_t *count);

/* An entry of a single key, as text, and where it stands. */
struct file_entry {
    const char *name, *value;
    struct place name_place, value_place;
};

const struct file_entry *policy_file_entries(const struct policy_file *file, size_t *count);

void policy_file_free(struct policy_file *file); /* NULL is allowed */

#endif
