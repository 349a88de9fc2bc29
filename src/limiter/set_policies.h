/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies in force: how they are compiled and published.
 *
 * Names: policies_.
 */
#ifndef WEIR_LIMITER_SET_POLICIES_H
#define WEIR_LIMITER_SET_POLICIES_H

#include "weir/weir.h"

struct policy_set;

/* Frees a set of this weir that no check reads any more, and its overrides; NULL is allowed. */
void policies_free(const weir *w, struct policy_set *set);

/* Compiles policies and publishes them. Under the policy lock. 0, or a negative errno with a sentence. */
int policies_publish(weir *w, const weir_policy *policies, size_t count, weir_error *error);

/* Compiles and publishes the policies in force again. Under the policy lock. 0, or a negative errno with a sentence. */
int policies_publish_again(weir *w, weir_error *error);

/*
 * Of memory that nobody else has: compiles the policies in force, which this process has read, and puts them in force.
 * No call is at the table. 0, or a negative errno with a sentence.
 */
int policies_salvage(weir *w, weir_error *error);

/* By the leader: takes back what was granted under policies that another process has changed. */
void policies_settle(weir *w);

/* Ends a change that a process had begun when it died: the policies are again what they were compiled from. */
void policies_repair(weir *w);

#endif
