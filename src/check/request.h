/* SPDX-License-Identifier: Apache-2.0 */
/* A request on its way through the table: its claims, and what each limit says. */
#ifndef WEIR_CHECK_REQUEST_H
#define WEIR_CHECK_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "policy/policy.h"
#include "thread/thread.h"
#include "weir/weir.h"

/* What one limit says. */
struct limit_reading {
    uint64_t held;      /* the cell's word, read before its state */
    struct state state; /* as it was read */
    struct state level; /* as it is decided by: allowance_level */
    uint64_t left;
};

/* One key of a request. */
struct claim {
    const struct policy *policy;
    const weir_key *key;
    uint64_t cost;   /* 0: as if for 1, and nothing is taken */
    uint64_t want;   /* units of grant wanted beside the cost; 0 where it is not pinned by a slot */
    uint32_t *cells; /* one per limit */
    bool pinned;     /* by a slot of the caller's; else the cells are found here */
    bool optional;   /* where it has no room it is left out */
    bool unplaced;   /* there was no cell for it */
    bool placeless;  /* nor, or no memory for its log: it is left out, being optional */
    /* Answered. */
    bool short_of;                    /* it had no room */
    uint64_t granted;                 /* units beyond the cost, held */
    uint64_t before[WEIR_MAX_LIMITS]; /* units that earlier claims of the request take from the same cells */
    struct rule rules[WEIR_MAX_LIMITS];
    struct limit_reading readings[WEIR_MAX_LIMITS];
};

/* Units a claim needs room for. */
static inline uint64_t claim_asked(const struct claim *claim)
{
    return claim->cost != 0 ? claim->cost : 1;
}

struct decision {
    bool allowed;
    bool untracked; /* no cell, or no memory for a log, was to be had */
    bool left_out;  /* an optional claim was */
    uint8_t key_index, limit_index;
    uint64_t limit, remaining, retry_after_ns, reset_after_ns;
};

/* A request on its way through the table. Within an RCU section. */
struct request {
    struct weir_thread *t;
    struct claim *claims;
    size_t count;
    uint64_t now_ns;
    struct decision *out;
};

#endif
