/* SPDX-License-Identifier: Apache-2.0 */
/* The time, from the system or from the host's own clock. */
#ifndef WEIR_BASE_CLOCK_H
#define WEIR_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "base/numbers.h"
#include "weir/weir.h"

static inline uint64_t clock_read(clockid_t id)
{
    struct timespec now;
    (void) clock_gettime(id, &now);
    return (uint64_t) now.tv_sec * NS_PER_S + (uint64_t) now.tv_nsec;
}

/* `host` is NULL for the system's clock. */
static inline uint64_t clock_monotonic_ns(const weir_clock *host)
{
    return host != NULL ? host->monotonic_ns(host->arg) : clock_read(CLOCK_MONOTONIC);
}

static inline uint64_t clock_wall_ns(const weir_clock *host)
{
    return host != NULL ? host->wall_ns(host->arg) : clock_read(CLOCK_REALTIME);
}

#endif
