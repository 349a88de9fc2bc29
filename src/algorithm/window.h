/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixed and sliding windows: pure arithmetic on plain values.
 *
 * Time is cut into windows of one period, numbered from the Unix epoch in fleet time, so that all nodes cut alike.
 * The state holds a window's number (its low WINDOW_TAG_BITS: the tag), the units counted in it, and those counted in
 * the window before. The sliding window counts of the last window the part that still lies within one period of now, as
 * if its units had come evenly:
 *
 *     used = count + ceil(previous * (period - into) / period)
 *
 * (the two-counter form published by Cloudflare: "How we built rate limiting capable of scaling to millions of
 * domains", 2017). The fixed window counts none of it.
 *
 * Invariant: `previous` belongs to window tag - 1. Rolling by one window moves count there, by more clears both.
 *
 * A state whose tag is a little ahead of now was rolled by a thread with a later reading of the clock; then now is
 * taken to be the beginning of that window. A state left alone for 2^20 windows (12 days of seconds) less 64 to 1 would
 * be taken for one ahead; nothing worse comes of it than a stale count for that window.
 */
#ifndef WEIR_ALGORITHM_WINDOW_H
#define WEIR_ALGORITHM_WINDOW_H

#include "algorithm/rule.h"

#define WINDOW_COUNT_BITS 44
#define WINDOW_COUNT_MASK ((UINT64_C(1) << WINDOW_COUNT_BITS) - 1)
#define WINDOW_TAG_BITS   20
#define WINDOW_TAG_MASK   ((UINT32_C(1) << WINDOW_TAG_BITS) - 1)

/* How many windows a state can be ahead of a reading of the clock. */
#define WINDOW_AHEAD_MAX 64

static inline uint64_t window_count(struct state s)
{
    return s.a & WINDOW_COUNT_MASK;
}

static inline uint64_t window_previous(struct state s)
{
    return s.b & WINDOW_COUNT_MASK;
}

static inline uint32_t window_tag(struct state s)
{
    return (uint32_t) (s.a >> WINDOW_COUNT_BITS);
}

static inline struct state window_state(uint32_t tag, uint64_t count, uint64_t previous)
{
    return (struct state){(uint64_t) (tag & WINDOW_TAG_MASK) << WINDOW_COUNT_BITS | count, previous};
}

static inline uint32_t window_tag_at(const struct rule *rule, uint64_t now_ns)
{
    return (uint32_t) (now_ns / rule->period_ns) & WINDOW_TAG_MASK;
}

/* The full number of the window with this tag that is nearest to now. */
uint64_t window_number(const struct rule *rule, uint32_t tag, uint64_t now_ns);

/* The state as of now: rolled, where its window is over. *into_ns: how long the window has been going on. */
struct state window_roll(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t *into_ns);

struct state window_fresh(const struct rule *rule, uint64_t now_ns);
uint64_t window_headroom(const struct rule *rule, struct state s, uint64_t now_ns);
struct state window_charge(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units);

/* The state after `units` more (or less) in the window with this tag; units of a window that is over go nowhere. */
struct state window_charge_tag(struct state s, uint32_t tag, uint64_t units);
struct state window_discharge_tag(struct state s, uint32_t tag, uint64_t units);

uint64_t window_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost);
uint64_t window_reset_after(const struct rule *rule, struct state s, uint64_t now_ns);

#endif
