/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the answer on a bucket into its cell; see merge_bucket.c. */
#ifndef WEIR_FLEET_KEYS_MERGE_BUCKET_H
#define WEIR_FLEET_KEYS_MERGE_BUCKET_H

#include <stdbool.h>

struct fleet;
struct merge_target;

/* Merges an answer into a bucket. True: units were refunded. */
bool merge_bucket_report(struct fleet *fleet, const struct merge_target *target);

#endif
