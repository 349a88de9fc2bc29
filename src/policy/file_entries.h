/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of single keys that a policy file gives: checked, each with its place, and as a list to be compiled. */
#ifndef WEIR_POLICY_FILE_ENTRIES_H
#define WEIR_POLICY_FILE_ENTRIES_H

#include "policy/override_set.h"
#include "policy/yaml.h"

/*
 * Reads the entries of a file, of policies that are in the file. `names` knows the forms of keys. 0, and the caller
 * drops the list; -EINVAL, -ENOSPC or -ENOMEM with a sentence that names the place.
 */
int file_entries_read(const struct policy_file *file, const char *path, const struct policy_names *names,
                      struct override_list *out, weir_error *error);

#endif
