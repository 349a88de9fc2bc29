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

/*
 * Moves the origin; when it returns no check goes by the one before. By the background thread, outside of RCU sections.
 * False: not now (policies are being changed, or there is no memory), and nothing has changed.
 */
bool bucket_origin_move(void *w, int64_t delta_ns);

#endif
