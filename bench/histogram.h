/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times of single calls, counted by their length in ticks of the processor's clock: to the tick below HISTOGRAM_FINE,
 * above by powers of two in 64 steps. Fixed memory; adding one is a load and a store.
 */
#ifndef WEIR_BENCH_HISTOGRAM_H
#define WEIR_BENCH_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#include "tools.h"

#define HISTOGRAM_FINE    4096
#define HISTOGRAM_STEPS   64
#define HISTOGRAM_BUCKETS (HISTOGRAM_FINE + 64 * HISTOGRAM_STEPS)

struct histogram {
    uint64_t counts[HISTOGRAM_BUCKETS];
    uint64_t count; /* of all */
};

static inline size_t histogram_bucket(uint64_t ticks)
{
    if (ticks < HISTOGRAM_FINE) {
        return (size_t) ticks;
    }
    unsigned power = 0;
    while (ticks >> power >= 2 * HISTOGRAM_STEPS) {
        power++;
    }
    const size_t bucket =
        HISTOGRAM_FINE + (size_t) power * HISTOGRAM_STEPS + (size_t) (ticks >> power) - HISTOGRAM_STEPS;
    return bucket < HISTOGRAM_BUCKETS ? bucket : HISTOGRAM_BUCKETS - 1;
}

static inline void histogram_add(struct histogram *histogram, uint64_t ticks)
{
    histogram->counts[histogram_bucket(ticks)]++;
    histogram->count++;
}

void histogram_clear(struct histogram *histogram);
void histogram_merge(struct histogram *histogram, const struct histogram *other);

/* The least time, in ticks, that so large a part of the calls (0 to 1) did not take longer than. */
double histogram_at(const struct histogram *histogram, double part);

/* Ticks now: what is before the call has been done, what is after it has not begun. */
static inline uint64_t ticks_now(void)
{
#if defined(__x86_64__)
    uint32_t low;
    uint32_t high;
    __asm__ __volatile__("rdtscp\n\tlfence" : "=a"(low), "=d"(high) : : "rcx", "memory");
    return (uint64_t) high << 32 | low;
#else
    return tools_now_ns();
#endif
}

double ticks_per_ns(void); /* measured, which takes 0.2 s */

#endif
