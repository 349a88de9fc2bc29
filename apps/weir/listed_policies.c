/* SPDX-License-Identifier: Apache-2.0 */
/* See listed_policies.h. */
#include "listed_policies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void keep(void *arg, const weir_policy_info *info)
{
    struct listed_policies *list = arg;
    if (list->count == list->capacity) {
        return;
    }
    struct listed_policy *kept = &list->all[list->count++];
    kept->policy = *info->policy;
    (void) snprintf(kept->name, sizeof(kept->name), "%s", info->policy->name);
    kept->policy.name = kept->name;
    kept->policy.limits = kept->limits;
    for (size_t i = 0; i < info->policy->limit_count; i++) {
        kept->limits[i] = info->policy->limits[i];
        (void) snprintf(kept->limit_names[i], sizeof(kept->limit_names[i]), "%s", kept->limits[i].name);
        kept->limits[i].name = kept->limit_names[i];
    }
}

bool listed_policies_take(struct listed_policies *out, const weir *w)
{
    *out = (struct listed_policies){.capacity = weir_list_policies(w, NULL, NULL)};
    out->all = calloc(out->capacity + 1, sizeof(*out->all));
    if (out->all != NULL) {
        (void) weir_list_policies(w, keep, out);
    }
    return out->all != NULL;
}

void listed_policies_free(struct listed_policies *list)
{
    free(list->all);
    *list = (struct listed_policies){NULL, 0, 0};
}

const weir_policy *listed_policies_find(const struct listed_policies *list, const char *name, size_t length)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strlen(list->all[i].name) == length && memcmp(list->all[i].name, name, length) == 0) {
            return &list->all[i].policy;
        }
    }
    return NULL;
}
