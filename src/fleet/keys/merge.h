/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the answers of a round into the cells; see merge.c. */
#ifndef WEIR_FLEET_KEYS_MERGE_H
#define WEIR_FLEET_KEYS_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fleet;
struct policy_set;
struct report;

/* What the answers of the last round came to. */
struct merge_result {
    bool lost;          /* an answer has fewer units than an earlier one had */
    bool gone;          /* a record has lost the units that this node had reported to it */
    bool refunded;      /* units were refunded elsewhere: a cached denial may be out of date */
    size_t retry_count; /* reports that are to be sent again */
};

/* Merges all answers. Returns how many reports were refused; *first_refused: one of them. Within an RCU section. */
size_t merge_round(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns,
                   const struct report **first_refused);

/* After a failed round: every report in it is to be sent again. */
void merge_failed_round(struct fleet *fleet);

#endif
