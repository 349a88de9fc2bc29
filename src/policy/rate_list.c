/* SPDX-License-Identifier: Apache-2.0 */
/* See rate_list.h. */
#include "policy/rate_list.h"

#include <stdlib.h>

/* Adds a limit without rates. NULL: out of memory. */
static struct rate_list *limit_add(struct rate_list **list, weir_policy_id group, uint64_t limit_hash)
{
    struct rate_list *added = calloc(1, sizeof(*added));
    if (added != NULL) {
        added->group = group;
        added->limit_hash = limit_hash;
        added->next = *list;
        *list = added;
    }
    return added;
}

void rate_list_find(struct rate_list **list, weir_policy_id group, uint64_t limit_hash, struct rule *rule)
{
    struct rate_list *at = *list;
    while (at != NULL && (at->group != group || at->limit_hash != limit_hash)) {
        at = at->next;
    }
    at = at != NULL ? at : limit_add(list, group, limit_hash);
    rule->rate_table = at != NULL ? &at->rate_table : NULL;
    for (unsigned i = 1; i < RATE_COUNT && at != NULL; i++) {
        /* Written once, before the set that uses the rate is published. */
        if (at->rate_table.units[i] == 0) {
            at->rate_table.units[i] = rule->unit;
        }
        if (at->rate_table.units[i] == rule->unit) {
            rule->rate_id = (uint8_t) i;
            return;
        }
    }
}

void rate_list_free(struct rate_list *list)
{
    while (list != NULL) {
        struct rate_list *next = list->next;
        free(list);
        list = next;
    }
}
