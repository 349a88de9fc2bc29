/* SPDX-License-Identifier: Apache-2.0 */
/* Refunding units of one limit; see refund.c. */
#ifndef WEIR_CHECK_REFUND_H
#define WEIR_CHECK_REFUND_H

#include <stdint.h>

#include "algorithm/rule.h"

struct process;

/* Which units may be refunded. */
enum refund_scope {
    REFUND_NOW,   /* local units of the present window; of a bucket, what it owes now */
    REFUND_LOCAL, /* and local units of the window before */
    REFUND_ALL,   /* and remote ones */
    REFUND_RESET  /* all that the state owes; as refunded count at most the units that the fleet's record holds */
};

/* Refunds up to `units` of one pinned cell. Returns how many. */
uint64_t refund_cell(struct process *process, uint32_t at, const struct rule *rule, uint64_t units, uint64_t now_ns,
                     enum refund_scope scope);

#endif
