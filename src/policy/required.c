/* SPDX-License-Identifier: Apache-2.0 */
/* See required.h. */
#include "policy/required.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "policy/validate.h"
#include "policy/words.h"

int required_validate(const struct required *required, const char *field, weir_error *error)
{
    if (required->names == NULL && required->count != 0) {
        return error_set(error, -EINVAL, "%s is NULL with a count of %zu; give that many names", field,
                         required->count);
    }
    for (size_t i = 0; i < required->count; i++) {
        const char *name = required->names[i];
        if (name == NULL || !validate_name(name)) {
            return error_set(error, -EINVAL, "%s: name %zu, %s%.70s%s, can be no policy's; give 1 to %d %s", field,
                             i + 1, name != NULL ? "\"" : "", name != NULL ? name : "NULL", name != NULL ? "\"" : "",
                             WEIR_MAX_NAME, "letters, digits, '.', '_', '-' or '/'");
        }
    }
    return 0;
}

const char *const *required_copy(const struct required *required)
{
    size_t size = required->count * sizeof(char *);
    for (size_t i = 0; i < required->count; i++) {
        size += strlen(required->names[i]) + 1;
    }
    const char **copy = required->count != 0 ? malloc(size) : NULL;
    if (copy == NULL) {
        return NULL;
    }
    char *text = (char *) (copy + required->count);
    for (size_t i = 0; i < required->count; i++) {
        const size_t length = strlen(required->names[i]) + 1;
        memcpy(text, required->names[i], length);
        copy[i] = text;
        text += length;
    }
    return copy;
}

static bool is_there(const struct policy_list *policies, const char *name)
{
    bool found = false;
    for (size_t i = 0; i < policies->count && !found; i++) {
        found = strcmp(policies->all[i].name, name) == 0;
    }
    return found;
}

/* The nearest name to a missing one, among those that nobody requires. NULL: none is near. `others` has room for all.
 */
static const char *nearest(const struct required *required, const struct policy_list *policies, const char *missing,
                           const char **others)
{
    const struct words needed = {.names = required->names, .count = required->count};
    size_t count = 0;
    size_t distance = 0;
    for (size_t i = 0; i < policies->count; i++) {
        if (words_find(&needed, policies->all[i].name) == WORD_NONE) {
            others[count++] = policies->all[i].name;
        }
    }
    const struct words words = {.names = others, .count = count};
    return words_nearest(&words, missing, &distance);
}

static int refuse(const char *path, weir_error *error, const char *sentence)
{
    const struct text_file at = {.path = path, .error = error};
    return path != NULL ? text_file_fail(&at, (struct place){0}, -EINVAL, "%s", sentence)
                        : error_set(error, -EINVAL, "%s", sentence);
}

int required_check(const struct required *required, const struct policy_list *policies, const char *path,
                   weir_error *error)
{
    const char *missing = NULL;
    size_t count = 0;
    for (size_t i = 0; i < required->count; i++) {
        if (!is_there(policies, required->names[i])) {
            missing = count++ == 0 ? required->names[i] : missing;
        }
    }
    if (missing == NULL) {
        return 0;
    }
    const char **others = calloc(policies->count + 1, sizeof(*others));
    if (others == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    char sentence[sizeof(error->message)];
    char more[32] = "";
    const char *near = nearest(required, policies, missing, others);
    free((void *) others);
    if (count > 1) {
        (void) snprintf(more, sizeof(more), " (1 of %zu)", count);
    }
    if (near != NULL) {
        (void) snprintf(sentence, sizeof(sentence), "required policy \"%s\" is missing%s; did you mean it by \"%s\"?",
                        missing, more, near);
    } else {
        (void) snprintf(sentence, sizeof(sentence),
                        "required policy \"%s\" is missing%s; add it, or require it no longer", missing, more);
    }
    return refuse(path, error, sentence);
}
