/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of the log about what fails silently: a check passes, is denied or is not counted, for a reason that is not the
 * caller's, and only a counter says so. Each kind has a line at once, with the count and what to do, and then at most
 * one in a while.
 */
#ifndef WEIR_LIMITER_TROUBLE_LOG_H
#define WEIR_LIMITER_TROUBLE_LOG_H

#include <stdint.h>

#include "weir/weir.h"

enum trouble {
    TROUBLE_NO_HANDLE, /* weir_attach: max_threads */
    TROUBLE_NO_MEMORY, /* weir_attach: /dev/shm is full */
    TROUBLE_NO_POLICY,
    TROUBLE_UNTRACKED,
    TROUBLE_EVICTED,
    TROUBLE_LOST_REPORTS,
    TROUBLES
};

/* What the log has been told. Written by the background thread that leads. */
struct trouble_told {
    struct {
        uint64_t count, line_ns; /* of the counter; when it was, monotonic, or 0: never */
    } of[TROUBLES];
    uint64_t look_ns; /* when the counters that are sums are looked at next */
};

/* Background thread. */
void trouble_log_step(weir *w, uint64_t monotonic_ns);

#endif
