/* SPDX-License-Identifier: Apache-2.0 */
/* See rate_list.h. */
#include "policy/rate_list.h"

/* The rates of a limit, which is added where it is new. NULL: there is no room. */
static struct limit_rates *limit_find(struct rate_list *list, weir_policy_id group, uint64_t limit_hash)
{
    const size_t count = list->count; /* read once: other processes may be damaging it */
    for (size_t i = 0; i < count && i < RATE_LISTS; i++) {
        if (list->limits[i].group == group && list->limits[i].limit_hash == limit_hash) {
            return &list->limits[i];
        }
    }
    if (count >= RATE_LISTS) {
        return NULL;
    }
    struct limit_rates *added = &list->limits[count];
    added->group = group;
    added->limit_hash = limit_hash;
    list->count = count + 1; /* last: a process that dies before leaves nothing in the list */
    return added;
}

void rate_list_find(struct rate_list *list, weir_policy_id group, uint64_t limit_hash, struct rule *rule)
{
    struct limit_rates *rates = list != NULL ? limit_find(list, group, limit_hash) : NULL;
    rule->rate_table = rates != NULL ? rate_table_handle(&rates->rate_table, list->segment) : 0;
    for (unsigned i = 1; i < RATE_COUNT && rates != NULL; i++) {
        /* Written once, before the set that uses the rate is published. */
        if (rates->rate_table.units[i] == 0) {
            rates->rate_table.units[i] = rule->unit;
        }
        if (rates->rate_table.units[i] == rule->unit) {
            rule->rate_id = (uint8_t) i;
            return;
        }
    }
}
