/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_file.h. The file is read as bytes (text_file.h), then as a tree (tree.h), then as policies and overrides.
 */
#include "policy/policy_file.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "policy/fields.h"
#include "policy/file_policies.h"
#include "policy/tree.h"

struct policy_file {
    struct tree tree; /* policies and entries point to its texts */
    struct file_policies policies;
    struct file_entry *entries;
    size_t entry_count;
};

/* Reads the overrides: the field `key` with the mapping `mapping`, of an override's name to its value. */
static int read_entries(const struct text_file *text, const struct tree_node *key, const struct tree_node *mapping,
                        struct policy_file *out)
{
    const struct tree *tree = &out->tree;
    if (mapping->kind != TREE_MAPPING) {
        return text_file_fail(text, mapping->place, -EINVAL,
                              "%s is a mapping; give lines such as \"api:198.51.100.7\": deny", tree_text(tree, key));
    }
    out->entries = calloc(tree_child_count(tree, mapping) / 2 + 1, sizeof(*out->entries));
    if (out->entries == NULL) {
        return text_file_fail(text, (struct place){0}, -ENOMEM, "out of memory");
    }
    const struct tree_node *value;
    for (const struct tree_node *name = tree_child(tree, mapping); name != NULL; name = tree_next(tree, value)) {
        value = tree_next(tree, name);
        if (name->kind != TREE_VALUE || value->kind != TREE_VALUE) {
            return text_file_fail(text, name->place, -EINVAL,
                                  "an entry is a name and a value, such as \"api:198.51.100.7\": deny");
        }
        out->entries[out->entry_count++] = (struct file_entry){.name = tree_text(tree, name),
                                                               .value = tree_text(tree, value),
                                                               .name_place = name->place,
                                                               .value_place = value->place};
    }
    return 0;
}

/* Reads the file's mapping: the list of policies, and the overrides. */
static int read_root(const struct text_file *text, struct policy_file *out)
{
    const struct tree_node *root = tree_root(&out->tree);
    const struct tree_node *list = NULL;
    struct fields fields = {.keys = {NULL}};
    int result = root != NULL ? fields_read(text, &out->tree, LEVEL_FILE, "the file", root, &fields) : 0;
    if (result == 0 && fields.keys[FILE_POLICIES] != NULL) {
        list = fields.values[FILE_POLICIES];
        result = fields_check_list(text, &out->tree, fields.keys[FILE_POLICIES], list, LEVEL_POLICY);
    }
    if (result != 0) {
        return result;
    }
    if (list == NULL || tree_child(&out->tree, list) == NULL) {
        return text_file_fail(text, list != NULL ? list->place : (struct place){1, 1}, -EINVAL,
                              "there are no policies; give a list named \"policies\" with at least one");
    }
    result = file_policies_read(text, &out->tree, list, &out->policies);
    if (result != 0 || fields.keys[FILE_OVERRIDES] == NULL) {
        return result;
    }
    return read_entries(text, fields.keys[FILE_OVERRIDES], fields.values[FILE_OVERRIDES], out);
}

int policy_file_load(const char *path, struct policy_file **out, weir_error *error)
{
    struct text_file text = {.path = path, .error = error};
    struct policy_file *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        return text_file_fail(&text, (struct place){0}, -ENOMEM, "out of memory");
    }
    int result = text_file_read(&text);
    result = result != 0 ? result : tree_read(&text, &file->tree);
    result = result != 0 ? result : read_root(&text, file);
    result = result != 0 ? result : file_policies_validate(&text, &file->tree, &file->policies);
    free(text.text);
    if (result != 0) {
        policy_file_free(file);
        return result;
    }
    *out = file;
    return error_clear(error);
}

const weir_policy *policy_file_policies(const struct policy_file *file, size_t *count)
{
    *count = file->policies.count;
    return file->policies.policies;
}

const struct file_entry *policy_file_entries(const struct policy_file *file, size_t *count)
{
    *count = file->entry_count;
    return file->entries;
}

void policy_file_free(struct policy_file *file)
{
    if (file != NULL) {
        tree_free(&file->tree);
        file_policies_free(&file->policies);
        free(file->entries);
        free(file);
    }
}
