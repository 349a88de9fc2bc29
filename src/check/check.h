/* SPDX-License-Identifier: Apache-2.0 */
/* One check on its way through the slow path, and what the public calls share; see check.c. */
#ifndef WEIR_CHECK_CHECK_H
#define WEIR_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

struct policy;
struct policy_set;
struct process;
struct slot;
struct weir_thread;

struct check {
    struct weir_thread *t;
    const weir_key *key;
    uint64_t cost;
    weir_verdict *verdict; /* NULL: not asked for */
    struct slot *slot;     /* the key's; NULL: it has none */
    bool commit;           /* false: weir_peek, which counts nothing */
    bool charge_tried;     /* a renewal or a direct charge was tried, and failed */
    uint32_t epoch;        /* loaded before the policies [S4] */
    uint64_t grant_wanted; /* units of a grant beside the cost; set when a renewal is tried */
    /* Set within the RCU section. */
    const struct policy_set *set;
    const struct policy *policy;
    uint64_t now_ns; /* fleet time */
};

/* The answer to a call without a handle. */
bool check_allow_unattached(weir_verdict *verdict);
/* The answer for a key whose policy is not in the set. */
bool check_allow_unknown(struct weir_thread *t, weir_verdict *verdict);
/* The answer for a key that is always allowed, or always denied. `commit`: it is counted. */
bool check_answer_override(struct weir_thread *t, const struct policy *policy, bool commit, weir_verdict *verdict);

/* The policy of a key in a set; where the key has an entry of its own, the entry's. NULL: none. */
const struct policy *check_policy(const struct process *process, const struct policy_set *set, const weir_key *key);
/* Counts one check of a policy. */
void check_tally(struct weir_thread *t, const struct policy *policy, bool allowed);

/* weir_check() within an RCU section, without a verdict. */
bool check_one_of_burst(struct weir_thread *t, const weir_key *key, uint64_t cost);
/* weir_check() within an RCU section, without a verdict, of a key that has no slot and is given none. */
bool check_without_slot(struct weir_thread *t, const struct policy_set *set, const struct policy *policy,
                        const weir_key *key, uint64_t cost, uint64_t now_ns);

#endif
