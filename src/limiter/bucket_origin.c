/* SPDX-License-Identifier: Apache-2.0 */
/* See bucket_origin.h. */
#include "limiter/bucket_origin.h"

#include "limiter/policy_lock.h"
#include "limiter/set_policies.h"
#include "limiter/weir_private.h"

bool bucket_origin_move(void *arg, int64_t delta_ns)
{
    weir *w = arg;
    /* Another thread is changing policies and may wait long for readers: try again at the next call. */
    if (!policy_lock_try(w)) {
        return false;
    }
    const uint64_t was_ns = w->limiter.process.shared->origin_ns;
    w->limiter.process.shared->origin_ns =
        delta_ns < 0 ? saturating_sub(was_ns, -(uint64_t) delta_ns) : was_ns + (uint64_t) delta_ns;
    const bool moved = policies_publish_again(w, NULL) == 0;
    w->limiter.process.shared->origin_ns = moved ? w->limiter.process.shared->origin_ns : was_ns;
    policy_lock_release(w);
    return moved;
}
