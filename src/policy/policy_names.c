/* SPDX-License-Identifier: Apache-2.0 */
/* See policy_names.h. */
#include "policy/policy_names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomics.h"
#include "policy/validate.h"

weir_policy_id policy_names_find(const struct policy_names *names, const char *name)
{
    for (size_t id = 1; id <= names->count; id++) {
        if (strcmp(names->names[id], name) == 0) {
            return (weir_policy_id) id;
        }
    }
    return WEIR_NO_POLICY;
}

void policy_names_group(char group[WEIR_MAX_NAME + 1], const char *name)
{
    size_t length = strcspn(name, "/");
    length = length != 0 ? length : strlen(name);
    (void) snprintf(group, WEIR_MAX_NAME + 1, "%.*s", (int) length, name);
}

weir_policy_id policy_names_add(struct policy_names *names, const char *name)
{
    weir_policy_id id = policy_names_find(names, name);
    if (id == WEIR_NO_POLICY) {
        id = (weir_policy_id) ++names->count;
        (void) snprintf(names->names[id], sizeof(names->names[id]), "%s", name);
    }
    return id;
}

/* The form that is set for the group of a policy of that name; NULL: none is. */
static struct policy_form *find_form(const struct policy_names *names, const char *name)
{
    char base[WEIR_MAX_NAME + 1];
    policy_names_group(base, name);
    struct policy_form *found = load_acquire(&names->forms); /* pairs with policy_names_set_form() */
    while (found != NULL && strcmp(found->policy, base) != 0) {
        found = found->next;
    }
    return found;
}

const weir_key_form *policy_names_form(const struct policy_names *names, const char *name)
{
    const struct policy_form *found = find_form(names, name);
    return found != NULL ? load_acquire(&found->form) : NULL; /* pairs with policy_names_set_form() */
}

int policy_names_set_form(struct policy_names *names, const char *name, const weir_key_form *form)
{
    struct policy_form *found = find_form(names, name);
    if (found != NULL) {
        store_release(&found->form, form); /* pairs with policy_names_form(): the form is the caller's memory */
        return 0;
    }
    struct policy_form *added = calloc(1, sizeof(*added));
    if (added == NULL) {
        return -ENOMEM;
    }
    added->next = load_relaxed(&names->forms); /* changed under the lock alone */
    policy_names_group(added->policy, name);
    store_relaxed(&added->form, form);
    store_release(&names->forms, added); /* pairs with find_form() */
    return 0;
}

bool policy_names_are_sound(const struct policy_names *names)
{
    bool sound = names->count <= WEIR_MAX_POLICIES;
    for (size_t id = 1; id <= names->count && sound; id++) {
        sound = validate_name(names->names[id]);
    }
    for (size_t id = 1; id <= names->count && sound; id++) {
        char base[WEIR_MAX_NAME + 1];
        policy_names_group(base, names->names[id]);
        sound = policy_names_find(names, names->names[id]) == id && policy_names_find(names, base) != WEIR_NO_POLICY;
    }
    return sound;
}

size_t policy_names_count_new(const struct policy_names *names, const weir_policy *policies, size_t count)
{
    size_t added = 0;
    for (size_t i = 0; i < count; i++) {
        char base[WEIR_MAX_NAME + 1];
        policy_names_group(base, policies[i].name);
        const bool tier = strcmp(base, policies[i].name) != 0;
        added += policy_names_find(names, policies[i].name) == WEIR_NO_POLICY;
        added += tier && policy_names_find(names, base) == WEIR_NO_POLICY;
    }
    return added;
}

void policy_names_free(struct policy_names *names)
{
    struct policy_form *form = load_relaxed(&names->forms); /* nobody else has the names */
    while (form != NULL) {
        struct policy_form *next = form->next;
        free(form);
        form = next;
    }
}
