/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of policies as they were configured, for lists of them and to compile them again. */
#ifndef WEIR_LIMITER_CONFIGURED_POLICIES_H
#define WEIR_LIMITER_CONFIGURED_POLICIES_H

#include <stddef.h>

#include "weir/weir.h"

struct configured_policies;

/* A copy, with all that its pointers name; NULL: out of memory. */
struct configured_policies *configured_policies_copy(const weir_policy *policies, size_t count);
void configured_policies_free(struct configured_policies *configured); /* NULL is allowed */

size_t configured_policies_count(const struct configured_policies *configured); /* NULL: none */

/* The policies of a copy, in order; NULL behind the last, and where `configured` is NULL. */
const weir_policy *configured_policies_at(const struct configured_policies *configured, size_t index);

/* All of them, as an array to be freed; its pointers lead to the copy. NULL: out of memory. */
weir_policy *configured_policies_list(const struct configured_policies *configured);

/*
 * The bytes of a copy, which stay its own, and their number; NULL and 0 where `configured` is NULL. Another process can
 * make a copy of its own from these bytes, which is NULL where there are none. 0; -ENOMEM; -EUCLEAN: they are no such
 * bytes.
 */
const void *configured_policies_bytes(const struct configured_policies *configured, size_t *size);
int configured_policies_from_bytes(const void *bytes, size_t size, struct configured_policies **out);

#endif
