/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where bucket times are kept from (algorithm/bucket.h), which every rule holds: it moves with fleet time when that is
 * stepped, and then every bucket stays as it is.
 *
 * A rule never changes, and checks read them without a lock; so the policies are compiled again, from what they were
 * last given as, and published like new ones.
 */
#ifndef WEIR_LIMITER_BUCKET_ORIGIN_H
#define WEIR_LIMITER_BUCKET_ORIGIN_H

#include "limiter/weir_private.h"

/* A copy, with all that its pointers name; NULL: out of memory. */
struct weir_policies *weir_policies_copy(const weir_policy *policies, size_t count);
void weir_policies_free(struct weir_policies *kept); /* NULL is allowed */

/* The policies of a copy, in order; NULL behind the last, and where `kept` is NULL. */
const weir_policy *weir_policies_at(const struct weir_policies *kept, size_t index);

/* Compiles policies and publishes them. Under the policy lock. 0, or a negative errno with a sentence. */
int weir_publish(weir *w, const weir_policy *policies, size_t count, weir_error *error);

/* The same, of those in force. */
int weir_publish_again(weir *w, weir_error *error);

/*
 * Moves the origin; when it returns no check goes by the one before. By the background thread, outside of RCU sections.
 * False: not now (policies are being changed, or there is no memory), and nothing has changed.
 */
bool weir_move_origin(void *w, int64_t delta_ns);

#endif
