/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves the origin of bucket times (algorithm/bucket.h). Every rule has the origin. It moves with fleet time when fleet
 * time steps, so that every bucket stays as it is.
 *
 * A rule never changes, as checks read rules without a lock. So the policies as configured are compiled again and
 * published like new ones.
 */
#ifndef WEIR_LIMITER_BUCKET_ORIGIN_H
#define WEIR_LIMITER_BUCKET_ORIGIN_H

#include "weir/weir.h"

/*
 * Moves the origin; when it returns no check goes by the one before. By the background thread, outside of RCU sections.
 * False: not now (policies are being changed, or there is no memory), and nothing has changed.
 */
bool bucket_origin_move(void *w, int64_t delta_ns);

#endif
