/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixed and sliding windows: pure arithmetic on plain values.
 *
 * Time is cut into windows of one period, numbered from the Unix epoch in fleet time, so that all nodes cut alike.
 * The state holds a window's number (its low WINDOW_SEQ_BITS: the tag), the units counted in it, and those counted in
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
 * A calendar month is a window of its own length (calendar.h); a calendar day is one of 86,400 s.
 *
 * A state whose tag is a little ahead of now was rolled by a thread with a later reading of the clock; then now is
 * taken to be the beginning of that window. A state left alone for 2^28 windows (8 years of seconds, 3 days of
 * milliseconds) less 64 to 1 would be taken for one ahead; nothing worse comes of it than a stale count for so long.
 */
#ifndef WEIR_ALGORITHM_WINDOW_H
#define WEIR_ALGORITHM_WINDOW_H

#include "algorithm/rule.h"

#define WINDOW_COUNT_BITS 44
#define WINDOW_COUNT_MASK ((UINT64_C(1) << WINDOW_COUNT_BITS) - 1)
#define WINDOW_SEQ_BITS   28 /* 20 in a, and 8 in b */
#define WINDOW_TAG_IN_A   20
#define WINDOW_SEQ_MASK   ((UINT32_C(1) << WINDOW_SEQ_BITS) - 1)

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

static inline uint32_t window_seq(struct state s)
{
    return (uint32_t) (s.a >> WINDOW_COUNT_BITS) | (uint32_t) (s.b >> WINDOW_COUNT_BITS) << WINDOW_TAG_IN_A;
}

static inline struct state window_state(uint32_t seq, uint64_t count, uint64_t previous)
{
    return (struct state){(uint64_t) seq << WINDOW_COUNT_BITS | count,
                          (uint64_t) ((seq & WINDOW_SEQ_MASK) >> WINDOW_TAG_IN_A) << WINDOW_COUNT_BITS | previous};
}

/* One window: its number since 1970, and from when (inclusive) to when (exclusive) it lasts. */
struct window_span {
    uint64_t number, start_ns, end_ns;
};

struct window_span window_span_at(const struct rule *rule, uint64_t now_ns);
struct window_span window_span_of(const struct rule *rule, uint64_t number);

static inline uint32_t window_seq_at(const struct rule *rule, uint64_t now_ns)
{
    return (uint32_t) window_span_at(rule, now_ns).number & WINDOW_SEQ_MASK;
}

/* The full number of the window with this tag that is nearest to now. */
uint64_t window_number(const struct rule *rule, uint32_t seq, uint64_t now_ns);

/* The state as of now: rolled, where its window is over. *into_ns: how long the window has been going on. */
struct state window_roll(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t *into_ns);

struct state window_fresh(const struct rule *rule, uint64_t now_ns);
uint64_t window_headroom(const struct rule *rule, struct state s, uint64_t now_ns);
struct state window_charge(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units);

/* Gives back what the window has counted and it alone; the rest goes to the window before. See rule_refund. */
struct state window_refund(const struct rule *rule, struct state s, uint64_t now_ns, struct refund *refund);

/* Units counted in the window with this tag; 0 where the state has nothing of it. */
uint64_t window_count_seq(struct state s, uint32_t seq);

/* The state after `units` more (or less) in the window with this tag; units of a window that is over go nowhere. */
struct state window_charge_seq(struct state s, uint32_t seq, uint64_t units);
struct state window_discharge_seq(struct state s, uint32_t seq, uint64_t units);

/*
 * See rule.h. It is over with the last window in which the units count: two are told apart by that alone. Units of both
 * windows are remembered as of the later one.
 */
struct usage window_usage(const struct rule *rule, struct state s, uint64_t now_ns);
struct state window_resume(const struct rule *rule, struct usage usage, uint64_t now_ns);

uint64_t window_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost);
uint64_t window_reset_after(const struct rule *rule, struct state s, uint64_t now_ns);

#endif
