/* SPDX-License-Identifier: Apache-2.0 */
/* Policies from a YAML file. */
#ifndef WEIR_POLICY_YAML_H
#define WEIR_POLICY_YAML_H

#include "weir/weir.h"

/* Policies as a file gave them, owning all they point at. */
struct policy_file;

/*
 * Reads a file. On 0, *out holds its policies until policy_file_free. Else a negative errno value, and a sentence that
 * names the file, the line, the column and the field.
 */
int policy_file_load(const char *path, struct policy_file **out, weir_error *error);

const weir_policy *policy_file_policies(const struct policy_file *file, size_t *count);

void policy_file_free(struct policy_file *file); /* NULL is allowed */

#endif
