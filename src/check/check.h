/* SPDX-License-Identifier: Apache-2.0 */
/* What the public calls have in common; see check.c. */
#ifndef WEIR_CHECK_CHECK_H
#define WEIR_CHECK_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "policy/policy.h"
#include "thread/thread.h"
#include "weir/weir.h"

/* What a call without a handle is answered. */
bool check_allow_unattached(weir_verdict *verdict);

/* The policy of a key in a set, with an entry of the key's own where there is one; NULL: none. */
const struct policy *check_policy(const struct policy_set *set, const weir_key *key);
/* As weir_check, within an RCU section. */
bool check_one_of_burst(struct weir_thread *t, const weir_key *key, uint64_t cost);
/* The same of a key that has no slot, and is given none. */
bool check_without_slot(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint64_t cost,
                        uint64_t now_ns);
bool check_allow_unknown(struct weir_thread *t, weir_verdict *verdict);
/* A key that is always allowed, or always denied. */
bool check_answer_override(struct weir_thread *t, const struct policy *policy, bool take, weir_verdict *verdict);
void check_tally(struct weir_thread *t, const struct policy *policy, bool allowed);

#endif
