/* SPDX-License-Identifier: Apache-2.0 */
/* Time, and how long a grant holds; see tick.c. */
#ifndef WEIR_THREAD_TICK_H
#define WEIR_THREAD_TICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "policy/policy.h"
#include "thread/thread.h"

/*
 * What every hit reads and only a tick writes: one line, shared by all cores.
 *
 * epoch: changes with every tick and every change of policies; a grant holds in the epoch it was given in.
 */
#define EPOCH_ASLEEP UINT32_MAX /* the background thread sleeps, and nothing holds */

struct tick_line {
    _Alignas(CACHE_LINE) _Atomic uint32_t epoch;
    _Atomic uint32_t thread_count; /* attached */
    _Atomic uint64_t now_ns;       /* fleet time at the tick */
    _Atomic uint64_t next_ns;      /* monotonic time of the next tick */
    _Atomic uint64_t offset_ns;    /* fleet time = monotonic time + offset (modulo 2^64) */
    _Atomic uint64_t age_ns;       /* how old the news is at now_ns; UINT64_MAX: none yet */
    _Atomic uint32_t last_epoch;   /* the last one that was not EPOCH_ASLEEP */
};

_Static_assert(sizeof(struct tick_line) == CACHE_LINE, "one line");

struct limiter;

void tick_start(struct limiter *limiter, uint64_t monotonic_ns, uint64_t offset_ns);
/* A new epoch and time, if it is due. Any thread may. */
void tick_if_due(struct limiter *limiter, uint64_t monotonic_ns);
/* It is that late, or later: without a new epoch. Any thread may. */
void tick_raise(struct limiter *limiter, uint64_t monotonic_ns);
/* The fleet was heard at that time. The background thread's. */
void tick_news(struct limiter *limiter, uint64_t news_ns);
/* A new epoch now: every grant lapses. Any thread may. */
void tick_epoch(struct limiter *limiter);
void tick_sleep(struct limiter *limiter);
void tick_wake(struct limiter *limiter, uint64_t monotonic_ns);
/* Moves fleet time: offset is the background thread's. `step`: even backwards. */
void tick_set_offset(struct limiter *limiter, uint64_t monotonic_ns, uint64_t offset_ns, bool step);

/* Every so many slow passes, some 10 us, a thread looks at the clock itself. */
#define CLOCK_EVERY 64

static inline bool tick_wants_look(const struct weir_thread *t)
{
    return load_relaxed(&t->slow_count) - t->looked_count >= CLOCK_EVERY;
}

/* Fleet time for a decision by this policy. */
uint64_t tick_now(struct weir_thread *t, const struct policy *policy);

#endif
