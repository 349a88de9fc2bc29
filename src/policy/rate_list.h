/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rates under which the buckets of each limit have been charged since open. The rates outlive the policies, as the
 * state of a bucket has the index of its rate (rule.h).
 */
#ifndef WEIR_POLICY_RATE_LIST_H
#define WEIR_POLICY_RATE_LIST_H

#include <stddef.h>

#include "algorithm/rate_table.h"
#include "algorithm/rule.h"

/*
 * Limits with rates since open: twice as many as policies can have at once. A limit's group, algorithm and period tell
 * the limit, so most changes of policies add none.
 */
#define RATE_LISTS ((size_t) 2 * WEIR_MAX_POLICIES * WEIR_MAX_LIMITS)

/* The rates of one limit. */
struct limit_rates {
    uint64_t limit_hash; /* of policy_limit */
    weir_policy_id group;
    struct rate_table rate_table;
};

/* The rates of all limits; 17 MB of which little is touched. Zeros are an empty list. */
struct rate_list {
    size_t count;
    uint64_t segment; /* the id of the segment that the list lies in; 0: none */
    struct limit_rates limits[RATE_LISTS];
};

/* The bytes of a list with room for so many more limits, at most: what has to be present before they are added. */
static inline size_t rate_list_size(const struct rate_list *list, size_t more)
{
    const size_t there = list->count < RATE_LISTS ? list->count : RATE_LISTS; /* more where the memory is damaged */
    const size_t count = more < RATE_LISTS - there ? there + more : RATE_LISTS;
    return offsetof(struct rate_list, limits) + count * sizeof(list->limits[0]);
}

/*
 * Sets rate_id and rate_table of a bucket's rule, and adds the rule's rate to the table if it is new. Without room, or
 * where `list` is NULL, the rule keeps rate_id 0, and its buckets are not converted.
 */
void rate_list_find(struct rate_list *list, weir_policy_id group, uint64_t limit_hash, struct rule *rule);

#endif
