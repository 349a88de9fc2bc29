/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A limit precomputed at one time, for windows and token buckets. All keys of the limit share the numbers, so charging
 * a key takes no division and no call. Pure arithmetic on plain values. It equals rule_headroom and rule_charge:
 *
 *     limit_snapshot_charge(m, s, held, cost)  ==  (rule_headroom(rule, s, now) >= held + cost)
 *     and, if true, s = rule_charge(rule, s, now, cost)
 *
 * with one exception: it may return false where the general path would find room. These states are ahead of the clock,
 * or are buckets charged by another rate, or are buckets whose count of units wraps.
 *
 * Quotients are compared by multiplication: floor(x / unit) >= n is x >= n * unit, and ceil(x / period) <= n is
 * x <= n * period.
 *
 * The bits of b above STATE_B_BITS stay as they are.
 */
#ifndef WEIR_ALGORITHM_LIMIT_SNAPSHOT_H
#define WEIR_ALGORITHM_LIMIT_SNAPSHOT_H

#include "algorithm/bucket.h"
#include "algorithm/rule.h"
#include "algorithm/window.h"
#include "base/numbers.h"

enum limit_snapshot_kind { LIMIT_SNAPSHOT_NONE, LIMIT_SNAPSHOT_BUCKET, LIMIT_SNAPSHOT_FIXED, LIMIT_SNAPSHOT_SLIDING };

struct limit_snapshot {
    enum limit_snapshot_kind kind;
    uint32_t seq;       /* window: the low bits of its number */
    struct state empty; /* a state of this window, or by this rate, without units */
    uint64_t limit;     /* units */
    uint64_t period_ns; /* sliding window */
    uint64_t left_ns;   /* sliding window: of the present window */
    uint64_t now;       /* bucket: 1/64 ns */
    uint64_t unit;      /* bucket: rule.unit. limit * unit does not overflow */
    uint64_t latest;    /* bucket: the time at which a bucket without room will be full, 1/64 ns */
    uint64_t idle;      /* bucket: the key is idle if it was full before, 1/64 ns; window: if so many windows ago */
    uint64_t now_ns;    /* fleet time */
    uint64_t until_ns;  /* window: when units charged now count no more */
};

/* Of kind LIMIT_SNAPSHOT_NONE for a history, for a queue, and for a bucket without a rate. */
struct limit_snapshot limit_snapshot_of(const struct rule *rule, uint64_t now_ns);

/* The bits of a state's words that count no units: the window's number, or the bucket's rate. */
#define LIMIT_SNAPSHOT_COUNT_BITS 44
#define LIMIT_SNAPSHOT_NAME_MASK  ((uint64_t) 0xff)

_Static_assert(WINDOW_COUNT_BITS == LIMIT_SNAPSHOT_COUNT_BITS && BUCKET_TOTAL_BITS == LIMIT_SNAPSHOT_COUNT_BITS &&
                   STATE_B_BITS == LIMIT_SNAPSHOT_COUNT_BITS + 8,
               "b is a count, eight bits that name it, and its owner's");

/* True: both have the same window or rate in b. */
static inline bool limit_snapshot_same_w1(uint64_t b, uint64_t other)
{
    return (((b ^ other) >> LIMIT_SNAPSHOT_COUNT_BITS) & LIMIT_SNAPSHOT_NAME_MASK) == 0;
}

/* Rolls the state to the present window. False: the state is of a later window. */
static inline bool limit_snapshot_roll(const struct limit_snapshot *limit_at, struct state *s)
{
    const uint32_t behind = (limit_at->seq - window_seq((struct state){s->a, s->b & STATE_B_MASK})) & WINDOW_SEQ_MASK;
    if (behind > WINDOW_SEQ_MASK - WINDOW_AHEAD_MAX) {
        return false;
    }
    s->b = (s->b & ~STATE_B_MASK) | limit_at->empty.b | (behind == 1 ? window_count(*s) : 0);
    s->a = limit_at->empty.a;
    return true;
}

static inline bool limit_snapshot_charge_window(const struct limit_snapshot *limit_at, struct state *s, uint64_t held,
                                                uint64_t cost)
{
    struct state now = *s;
    if (((s->a ^ limit_at->empty.a) >> LIMIT_SNAPSHOT_COUNT_BITS != 0 ||
         !limit_snapshot_same_w1(s->b, limit_at->empty.b)) &&
        !limit_snapshot_roll(limit_at, &now)) {
        return false;
    }
    const uint64_t wanted = window_count(now) + held + cost; /* each below 2^45 */
    if (wanted > limit_at->limit) {
        return false;
    }
    if (limit_at->kind == LIMIT_SNAPSHOT_SLIDING && (wide_uint) window_previous(now) * limit_at->left_ns >
                                                        (wide_uint) (limit_at->limit - wanted) * limit_at->period_ns) {
        return false;
    }
    *s = (struct state){now.a + cost, now.b};
    return true;
}

static inline bool limit_snapshot_charge_bucket(const struct limit_snapshot *limit_at, struct state *s, uint64_t held,
                                                uint64_t cost)
{
    uint64_t b = s->b + cost;
    /* A count that wraps changes the lowest bit of the rate. */
    const uint64_t other = (s->b ^ b) | (s->b ^ limit_at->empty.b);
    if (__builtin_expect(!limit_snapshot_same_w1(other, 0), 0)) {
        if (s->a != 0 || !limit_snapshot_same_w1(s->b, b)) {
            return false;
        }
        b = (b & ~STATE_B_MASK) | limit_at->empty.b | (b & BUCKET_TOTAL_MASK);
    }
    const uint64_t wanted = held + cost;
    if (wanted > limit_at->limit || s->a > limit_at->latest - wanted * limit_at->unit) {
        return false;
    }
    *s = (struct state){max_u64(s->a, limit_at->now) + cost * limit_at->unit, b};
    return true;
}

/* True: `cost` units (1 to the limit) fit beside `held` (below 2^43), and are charged. Else *s is as it was. */
static inline bool limit_snapshot_charge(const struct limit_snapshot *limit_at, struct state *s, uint64_t held,
                                         uint64_t cost)
{
    return limit_at->kind == LIMIT_SNAPSHOT_BUCKET ? limit_snapshot_charge_bucket(limit_at, s, held, cost)
                                                   : limit_snapshot_charge_window(limit_at, s, held, cost);
}

/* The state of a fresh key that was charged `cost` units (up to the limit); *usage: its rule_usage(), not for a cost of
 * 0. */
static inline struct state limit_snapshot_first(const struct limit_snapshot *limit_at, uint64_t cost,
                                                struct usage *usage)
{
    if (limit_at->kind != LIMIT_SNAPSHOT_BUCKET) {
        *usage = (struct usage){cost, limit_at->until_ns};
        return (struct state){limit_at->empty.a + cost, limit_at->empty.b};
    }
    const uint64_t time = cost * limit_at->unit;
    const uint64_t wait_ns = ((time - 1) >> BUCKET_FRACTION_BITS) + 1; /* rounded up */
    *usage = (struct usage){cost, saturating_add(limit_at->now_ns, wait_ns)};
    return (struct state){limit_at->now + time, limit_at->empty.b + cost};
}

/* A key that was not used for so long is idle: far longer than the pauses of a client. */
#define LIMIT_SNAPSHOT_IDLE_NS (60 * NS_PER_S)

/*
 * By the first word of a state: whether the key is idle. Then the state equals a fresh one, and has for as long as the
 * burst takes to refill, or for a window. May be false of a key that was not used for a million windows: only a part of
 * the window's number is in the word.
 */
static inline bool limit_snapshot_idle(const struct limit_snapshot *limit_at, uint64_t a)
{
    const uint64_t mask = UINT64_MAX >> WINDOW_COUNT_BITS;
    if (limit_at->kind == LIMIT_SNAPSHOT_BUCKET) {
        return a < limit_at->idle;
    }
    const uint64_t behind = (limit_at->seq - (a >> WINDOW_COUNT_BITS)) & mask;
    return behind >= limit_at->idle && behind <= mask - WINDOW_AHEAD_MAX;
}

#endif
