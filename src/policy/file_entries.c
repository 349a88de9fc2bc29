/* SPDX-License-Identifier: Apache-2.0 */
/* See file_entries.h. */
#include "policy/file_entries.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "policy/entry.h"

static const weir_policy *find_policy(const struct policy_list *policies, const char *name)
{
    for (size_t i = 0; i < policies->count; i++) {
        if (strcmp(policies->all[i].name, name) == 0) {
            return &policies->all[i];
        }
    }
    return NULL;
}

/* Reads one entry. `at`: the file, for errors. 0, or -EINVAL or -ENOMEM with its error set. */
static int read_entry(const struct text_file *at, const struct policy_list *policies, const struct policy_names *names,
                      const struct file_entry *entry, struct override_text *out)
{
    struct entry_name name;
    struct entry_value value;
    char field[ENTRY_NAME_SIZE];
    weir_error error;
    if (entry_name_read(names, entry->name, &name, &error) != 0) {
        return text_file_fail(at, entry->name_place, -EINVAL, "%s", error.message);
    }
    const bool of_all = entry_name_is_of_all(&name);
    const weir_policy *policy = find_policy(policies, name.policy);
    if (policy == NULL && !of_all) {
        return text_file_fail(at, entry->name_place, -EINVAL, "there is no policy \"%s\"; name one of the file",
                              name.policy);
    }
    if ((of_all ? entry_value_read_all(entry->value, &value, &error)
                : entry_value_read(policy, entry->value, &value, &error)) != 0) {
        return text_file_fail(at, entry->value_place, -EINVAL, "%s", error.message);
    }
    entry_name_write(&name, field);
    out->field = strdup(field);
    out->value = strdup(entry->value);
    return out->field != NULL && out->value != NULL ? 0
                                                    : text_file_fail(at, (struct place){0}, -ENOMEM, "out of memory");
}

/* For qsort: by name, and entries of one name in the order of the file. */
static int compare_fields(const void *left, const void *right)
{
    const struct override_text *const *a = left;
    const struct override_text *const *b = right;
    const int order = strcmp((*a)->field, (*b)->field);
    if (order != 0) {
        return order;
    }
    return *a < *b ? -1 : 1;
}

/* Refuses two entries of one name. 0, or -EINVAL or -ENOMEM with the error of `at` set. */
static int check_duplicates(const struct text_file *at, const struct file_entry *entries,
                            const struct override_list *list)
{
    const struct override_text **sorted = calloc(list->count + 1, sizeof(struct override_text *));
    if (sorted == NULL) {
        return text_file_fail(at, (struct place){0}, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < list->count; i++) {
        sorted[i] = &list->texts[i];
    }
    qsort((void *) sorted, list->count, sizeof(struct override_text *), compare_fields);
    int result = 0;
    for (size_t i = 1; i < list->count && result == 0; i++) {
        if (strcmp(sorted[i]->field, sorted[i - 1]->field) == 0) {
            const struct file_entry *first = &entries[sorted[i - 1] - list->texts];
            const struct file_entry *second = &entries[sorted[i] - list->texts];
            result =
                text_file_fail(at, second->name_place, -EINVAL, "%.80s is there twice, first at line %u; leave one out",
                               sorted[i]->field, first->name_place.line);
        }
    }
    free((void *) sorted);
    return result;
}

int file_entries_read(const struct policy_file *file, const char *path, const struct policy_list *policies,
                      const struct policy_names *names, struct override_list *out, weir_error *error)
{
    const struct text_file at = {.path = path, .error = error};
    size_t count;
    const struct file_entry *entries = policy_file_entries(file, &count);
    *out = (struct override_list){NULL, 0};
    if (count == 0) {
        return 0;
    }
    if (count > OVERRIDES_MAX) {
        return text_file_fail(&at, entries[OVERRIDES_MAX].name_place, -ENOSPC,
                              "there are more than %d entries; give fewer, or networks", OVERRIDES_MAX);
    }
    out->texts = calloc(count, sizeof(*out->texts));
    if (out->texts == NULL) {
        return text_file_fail(&at, (struct place){0}, -ENOMEM, "out of memory");
    }
    int result = 0;
    for (size_t i = 0; i < count && result == 0; i++) {
        result = read_entry(&at, policies, names, &entries[i], &out->texts[out->count++]);
    }
    result = result == 0 ? check_duplicates(&at, entries, out) : result;
    if (result != 0) {
        overrides_drop(out->texts, out->count);
    }
    return result;
}
