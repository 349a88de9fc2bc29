/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rates under which the buckets of each limit have been charged since open. The rates outlive the policies, as the
 * state of a bucket has the index of its rate (rule.h).
 */
#ifndef WEIR_POLICY_RATE_LIST_H
#define WEIR_POLICY_RATE_LIST_H

#include "algorithm/rule.h"

/* The rates of one limit, in a linked list of all limits. */
struct rate_list {
    struct rate_list *next;
    weir_policy_id group;
    uint64_t limit_hash; /* of policy_limit */
    struct rate_table rate_table;
};

/*
 * Sets rate_id and rate_table of a bucket's rule, and adds the rule's rate to the table if it is new. Without room or
 * memory the rule keeps rate_id 0, and its buckets are not converted.
 */
void rate_list_find(struct rate_list **list, weir_policy_id group, uint64_t limit_hash, struct rule *rule);

void rate_list_free(struct rate_list *list); /* NULL is allowed */

#endif
