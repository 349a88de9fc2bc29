/* SPDX-License-Identifier: Apache-2.0 */
/* See rate.h. */
#include "rate.h"

/* The longest time that a queue may take, which bounds the burst of slow rates: some days less than the library's two
 * years. */
#define MOST_QUEUE_NS (UINT64_C(700) * 24 * 60 * RATE_PERIOD_NS)

/* The most units of a bucket, which bounds the burst of fast rates: some below the library's WEIR_MAX_UNITS. */
#define MOST_UNITS UINT64_C(4000000000000)

/* Parts of a nanosecond in which a bucket counts the time between two requests. */
#define PARTS_OF_NS 64

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The time between two requests, in parts of a nanosecond: at least 100. */
static uint64_t interval_of(uint64_t rate)
{
    return RATE_PERIOD_NS * PARTS_OF_NS / rate;
}

uint64_t rate_most_burst(uint64_t rate)
{
    return min_u64(MOST_QUEUE_NS * PARTS_OF_NS / interval_of(rate), MOST_UNITS);
}

uint64_t rate_wait_ns(uint64_t rate, uint64_t thousandths)
{
    const uint64_t interval = interval_of(rate);
    const uint64_t whole = min_u64(thousandths / 1000, rate_most_burst(rate));
    return (whole * interval + thousandths % 1000 * interval / 1000) / PARTS_OF_NS;
}

uint64_t rate_excess(uint64_t rate, uint64_t wait_ns)
{
    const uint64_t interval = interval_of(rate);
    const uint64_t wait = min_u64(wait_ns, MOST_QUEUE_NS) * PARTS_OF_NS;
    return min_u64(wait / interval, MOST_UNITS) * 1000 + (wait % interval * 1000 + interval / 2) / interval;
}

/* What is on top is less than half a thousandth, so that rate_excess rounds it down. */
uint64_t rate_longest_wait_ns(uint64_t rate, uint64_t burst)
{
    const uint64_t half = interval_of(rate) / 2000 / PARTS_OF_NS;
    return rate_wait_ns(rate, burst) + (half != 0 ? half - 1 : 0);
}
