/* SPDX-License-Identifier: Apache-2.0 */
/* The time by which the gateway measures and waits. */
#ifndef WEIR_GATEWAY_CLOCK_H
#define WEIR_GATEWAY_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Nanoseconds; never goes back. */
static inline uint64_t clock_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * 1000000000U + (uint64_t) now.tv_nsec;
}

#endif
