/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fixed and sliding windows: pure arithmetic on plain values.
 *
 * Windows have the length of one period and are numbered from the Unix epoch in fleet time, so all nodes have the same
 * windows. The state holds the low WINDOW_SEQ_BITS of the window's number (`seq`), the units counted in this window,
 * and the units counted in the window before. The sliding window adds the part of the window before that is less than
 * one period ago, as if the units had come evenly:
 *
 *     used = count + ceil(previous * (period - into) / period)
 *
 * (the two-counter form published by Cloudflare: "How we built rate limiting capable of scaling to millions of
 * domains", 2017). The fixed window does not count the window before.
 *
 * Invariant: `previous` counts window seq - 1. Rolling by one window moves `count` to `previous`; rolling by more
 * clears both.
 *
 * A calendar month is a window of its own length (calendar.h); a calendar day is one of 86,400 s.
 *
 * A state whose seq is up to WINDOW_AHEAD_MAX windows ahead of now was rolled by a thread that read the clock later.
 * The arithmetic then takes the begin of that window for now. A state that is left alone for 2^28 windows less 1 to 64
 * looks as if it were ahead. Its stale count then stays for up to 64 windows. That many windows are 8 years of seconds,
 * or 3 days of milliseconds.
 */
#ifndef WEIR_ALGORITHM_WINDOW_H
#define WEIR_ALGORITHM_WINDOW_H

#include "algorithm/rule.h"

#define WINDOW_COUNT_BITS 44
#define WINDOW_COUNT_MASK ((UINT64_C(1) << WINDOW_COUNT_BITS) - 1)
#define WINDOW_SEQ_BITS   28 /* 20 in a, and 8 in b */
#define WINDOW_TAG_IN_A   20
#define WINDOW_SEQ_MASK   ((UINT32_C(1) << WINDOW_SEQ_BITS) - 1)

/* The most windows that a state can be ahead of a reading of the clock. A thread would have to pause for so many
 * periods between its clock and its charge. */
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

/* The full number of the window with this seq that is nearest to now. */
uint64_t window_number(const struct rule *rule, uint32_t seq, uint64_t now_ns);

/* The state rolled to the window of now. *into_ns: the time since that window began. */
struct state window_roll(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t *into_ns);

struct state window_fresh(const struct rule *rule, uint64_t now_ns);
uint64_t window_headroom(const struct rule *rule, struct state s, uint64_t now_ns);
struct state window_charge(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t units);

/* See rule_refund: the present window is refunded first, the rest to the window before. */
struct state window_refund(const struct rule *rule, struct state s, uint64_t now_ns, struct refund *refund);

/* The units counted in the window with this seq; 0 where the state does not hold that window. */
uint64_t window_count_seq(struct state s, uint32_t seq);

/* The state after `units` more (or less) in the window with this seq. Where the state does not hold that window, the
 * state stays as it is. */
struct state window_charge_seq(struct state s, uint32_t seq, uint64_t units);
struct state window_discharge_seq(struct state s, uint32_t seq, uint64_t units);

/*
 * See rule.h. `until_ns` is the end of the last window in which the units count, and says which window that is. The
 * units of both windows are recorded as units of the later one.
 */
struct usage window_usage(const struct rule *rule, struct state s, uint64_t now_ns);
struct state window_resume(const struct rule *rule, struct usage usage, uint64_t now_ns);

uint64_t window_retry_after(const struct rule *rule, struct state s, uint64_t now_ns, uint64_t cost);
uint64_t window_reset_after(const struct rule *rule, struct state s, uint64_t now_ns);

#endif
