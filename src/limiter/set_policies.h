/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The policies in force: how they are compiled and published, and a copy of what they were configured as.
 *
 * Names: policies_, configured_policies_.
 */
#ifndef WEIR_LIMITER_SET_POLICIES_H
#define WEIR_LIMITER_SET_POLICIES_H

#include "weir/weir.h"

struct policy_set;

/* A copy, with all that its pointers name; NULL: out of memory. */
struct configured_policies *configured_policies_copy(const weir_policy *policies, size_t count);
void configured_policies_free(struct configured_policies *configured); /* NULL is allowed */

/* The policies of a copy, in order; NULL behind the last, and where `configured` is NULL. */
const weir_policy *configured_policies_at(const struct configured_policies *configured, size_t index);

/*
 * The bytes of a copy, which stay its own, and their number; NULL and 0 where `configured` is NULL. Another process can
 * make a copy of its own from these bytes; NULL: out of memory, or there are no bytes.
 */
const void *configured_policies_bytes(const struct configured_policies *configured, size_t *size);
struct configured_policies *configured_policies_from_bytes(const void *bytes, size_t size);

/* Frees a set of this weir that no check reads any more, and its overrides; NULL is allowed. */
void policies_free(const weir *w, struct policy_set *set);

/* Compiles policies and publishes them. Under the policy lock. 0, or a negative errno with a sentence. */
int policies_publish(weir *w, const weir_policy *policies, size_t count, weir_error *error);

/* Compiles and publishes the policies in force again. Under the policy lock. 0, or a negative errno with a sentence. */
int policies_publish_again(weir *w, weir_error *error);

#endif
