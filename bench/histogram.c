/* SPDX-License-Identifier: Apache-2.0 */
#include "histogram.h"

#include <string.h>

void histogram_clear(struct histogram *histogram)
{
    memset(histogram, 0, sizeof(*histogram));
}

void histogram_merge(struct histogram *histogram, const struct histogram *other)
{
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        histogram->counts[i] += other->counts[i];
    }
    histogram->count += other->count;
}

/* The least time a bucket stands for. */
static double bucket_ticks(size_t bucket)
{
    if (bucket < HISTOGRAM_FINE) {
        return (double) bucket;
    }
    const size_t above = bucket - HISTOGRAM_FINE;
    return (double) ((HISTOGRAM_STEPS + above % HISTOGRAM_STEPS) << above / HISTOGRAM_STEPS);
}

double histogram_at(const struct histogram *histogram, double part)
{
    uint64_t left = (uint64_t) (part * (double) histogram->count);
    size_t bucket = 0;
    while (bucket + 1 < HISTOGRAM_BUCKETS && left >= histogram->counts[bucket]) {
        left -= histogram->counts[bucket++];
    }
    return bucket_ticks(bucket);
}

double ticks_per_ns(void)
{
    const uint64_t from_ns = tools_now_ns();
    const uint64_t from = ticks_now();
    while (tools_now_ns() < from_ns + 200 * NS_PER_MS) {
    }
    return (double) (ticks_now() - from) / (double) (tools_now_ns() - from_ns);
}
