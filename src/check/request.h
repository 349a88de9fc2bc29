/* SPDX-License-Identifier: Apache-2.0 */
/* A request on its way through the table: its claims, what each limit reads, and the decision. */
#ifndef WEIR_CHECK_REQUEST_H
#define WEIR_CHECK_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "weir/weir.h"

struct policy;
struct policy_set;
struct weir_thread;

/* What one limit of a key reads. */
struct limit_reading {
    uint64_t held;      /* the cell's word, read before its state */
    struct state state; /* read from the cell */
    struct state level; /* by which the request is decided: allowance_level() */
    uint64_t left;      /* units that may pass now, beside what others hold */
};

/* How a claim stands. A claim that has no cell or no memory is optional: another one ends the request. */
enum claim_status {
    CLAIM_HAS_ROOM,  /* or it has not been read yet */
    CLAIM_NO_ROOM,   /* one of its limits has fewer units left than it asks for */
    CLAIM_NO_MEMORY, /* there was no memory for its log */
    CLAIM_NO_CELL,   /* there was no cell for its key */
};

/* One key of a request. */
struct claim {
    /* The caller's. */
    const struct policy *policy;
    const weir_key *key;
    uint64_t cost;         /* 0: asks for one unit, and takes none */
    uint64_t grant_wanted; /* units of a grant beside the cost; 0 where no slot pins the cells */
    uint32_t *cells;       /* one per limit */
    bool pinned;           /* a slot of the caller's pins the cells; else they are found here */
    bool optional;         /* left out where it has no room: in shadow mode */
    /* The answer. */
    enum claim_status status;
    bool stalled;                     /* no room, while another thread holds units that could not be taken back */
    uint64_t granted;                 /* units beside the cost, held */
    uint64_t before[WEIR_MAX_LIMITS]; /* units that earlier claims of the request take from the same cells */
    struct rule rules[WEIR_MAX_LIMITS];
    struct limit_reading readings[WEIR_MAX_LIMITS];
};

/* Units a claim needs room for. */
static inline uint64_t claim_asked(const struct claim *claim)
{
    return units_asked(claim->cost);
}

/* Whether a claim is left out of the request. */
static inline bool claim_is_left_out(const struct claim *claim)
{
    return claim->optional && claim->status != CLAIM_HAS_ROOM;
}

/* Whether a claim takes part in the charging: it is charged, or given a grant. */
static inline bool claim_takes_units(const struct claim *claim)
{
    return claim->cost + claim->granted != 0 && !claim_is_left_out(claim);
}

struct decision {
    bool allowed;
    bool untracked; /* there was no cell, or no memory for a log */
    bool left_out;  /* an optional claim was left out */
    uint8_t key_index, limit_index;
    uint64_t limit, remaining, retry_after_ns, reset_after_ns;
};

/* Lives within an RCU section. */
struct request {
    struct weir_thread *t;
    const struct policy_set *set; /* of the claims' policies */
    struct claim *claims;
    size_t count;
    uint64_t now_ns; /* fleet time */
    bool peeks;      /* nothing is to change */
    struct decision *out;
};

#endif
