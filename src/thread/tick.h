/* SPDX-License-Identifier: Apache-2.0 */
/* Time, and how long a grant is live; see tick.c. */
#ifndef WEIR_THREAD_TICK_H
#define WEIR_THREAD_TICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "base/clock.h"
#include "base/compiler.h"

/* The epoch while the background thread sleeps: no grant is live. */
#define EPOCH_ASLEEP UINT32_MAX

/* What every hit reads and only a tick writes: one line, shared by all cores. */

struct tick_line {
    /* Changes with every tick and every change of policies. A grant is live in the epoch it was made in. */
    _Alignas(CACHE_LINE) _Atomic uint32_t epoch;
    _Atomic uint32_t thread_count; /* attached */
    _Atomic uint64_t now_ns;       /* fleet time at the tick */
    _Atomic uint64_t next_ns;      /* monotonic time of the next tick */
    _Atomic uint64_t offset_ns;    /* fleet time = monotonic time + offset (modulo 2^64) */
    _Atomic uint64_t age_ns;       /* age of the last good sync at now_ns; UINT64_MAX: none yet */
    _Atomic uint32_t last_epoch;   /* the last one that was not EPOCH_ASLEEP */
};

_Static_assert(sizeof(struct tick_line) == CACHE_LINE, "one line");

/* So long a tick is overdue: far longer than a thread that ticks is kept from it. A host polls every 100 ms at least.
 */
#define STANDSTILL_NS NS_PER_S

/* Whether nobody has ticked for long. Asleep, nobody is to. */
static inline bool tick_stands_still(const struct tick_line *line, uint64_t monotonic_ns)
{
    /* Relaxed: numbers that stand for themselves. */
    return monotonic_ns > load_relaxed(&line->next_ns) + STANDSTILL_NS && load_relaxed(&line->epoch) != EPOCH_ASLEEP;
}

struct limiter;
struct policy;
struct weir_thread;

/* Of a limiter that is not shared, in a child of the process that ticks. After fork, before anything else. */
void tick_begin_child(struct limiter *limiter);
/* From now on this process has no thread that ticks: its threads look whether another process's does. */
void tick_may_stand_still(struct limiter *limiter);
void tick_start(struct limiter *limiter, uint64_t monotonic_ns, uint64_t offset_ns);
/* A new epoch and time, if they are due. Any thread may. */
void tick_if_due(struct limiter *limiter, uint64_t monotonic_ns);
/* Raises now_ns to a clock reading, without a new epoch. Any thread may. */
void tick_raise(struct limiter *limiter, uint64_t monotonic_ns);
/* A sync was good at that time. By the background thread. */
void tick_news(struct limiter *limiter, uint64_t news_ns);
/* A new epoch: every grant lapses. Any thread may. */
void tick_epoch(struct limiter *limiter);
/* Ends the epochs: every check reads the clock. By the background thread. */
void tick_sleep(struct limiter *limiter);
/* Begins them anew; by the background thread. */
void tick_wake(struct limiter *limiter, uint64_t monotonic_ns);
/* Moves fleet time; by the background thread. `step`: now_ns may go back. */
void tick_set_offset(struct limiter *limiter, uint64_t monotonic_ns, uint64_t offset_ns, bool step);

/* Fleet time now, for a caller without a weir_thread. */
uint64_t tick_time(const struct limiter *limiter);

/* Looks at the clock where that is due. Outside of read sections, as the host may be told that nobody else ticks. */
void tick_look(struct weir_thread *t);

/* Fleet time for a decision by this policy. */
uint64_t tick_now(struct weir_thread *t, const struct policy *policy);

#endif
