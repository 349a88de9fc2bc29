/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: it would join the entries of the list. */
/*
 * The tick: what time it is, and how long a grant is live.
 *
 * The background thread ticks. A busy thread that finds a tick overdue (the background thread was preempted) ticks
 * itself, so time never stands still for a server under load. When no thread has decided anything for a while the
 * background thread sleeps: the epoch is EPOCH_ASLEEP, no grant is live, and every check reads the clock itself until
 * the background thread wakes.
 *
 * Standstill. Nobody ticks where a weir was opened with no_thread and the host does not call weir_poll, in a child
 * that has no background thread, or behind weir_leave; grants and denials would last for ever there. In a child of a
 * weir that is not shared the epochs end with the fork. Otherwise (`may_stand_still`) each slow pass looks at the
 * coarse clock, which takes some 5 ns, and no denial is answered by the slot's line alone; the first pass that finds a
 * tick overdue by STANDSTILL_NS ends the epochs. A later weir_poll begins them anew.
 *
 * Ordering
 *   [C1] now_ns, offset_ns, age_ns and may_stand_still are written before the epoch, which is stored with release.
 *        Checks read them relaxed, as numbers that may be one tick old. Partner: slot_verdict_allowed(),
 *        slot_verdict_denied() and tick_now().
 *   [C2] A step back: tick_set_offset() stores offset_ns, then now_ns with release. A thread that raises now_ns by the
 *        old offset after that has read the new now_ns; so it reads the new offset too, and takes its value back. Else
 *        time would stand still until the clock has caught up. Partner: tick_raise().
 *
 * Progress: lock-free.
 */
/* clang-format on */
#include "thread/tick.h"

#include "base/clock.h"
#include "base/numbers.h"
#include "thread/limiter.h"
#include "thread/thread.h"

/* An offset that moves back by less than this is slewing: time stands still for as long. */
#define STEP_BACK_NS (10 * NS_PER_MS)

/* Never 0, the epoch of a slot without a grant. */
static uint32_t epoch_after(uint32_t last)
{
    return last + 1 != EPOCH_ASLEEP ? last + 1 : 1;
}

/* After a change of what age_ns depends on. A thread that is overtaken here leaves a value that is one tick old. */
static void update_age(struct limiter *limiter)
{
    struct tick_line *line = &limiter->shared->line;
    const uint64_t news_ns = load_relaxed(&limiter->process.shared->news_ns); /* a number that stands for itself */
    const uint64_t age_ns = saturating_sub(load_relaxed(&line->now_ns), news_ns);
    store_relaxed(&line->age_ns, news_ns == 0 ? UINT64_MAX : age_ns);
}

void tick_raise(struct limiter *limiter, uint64_t monotonic_ns)
{
    struct tick_line *line = &limiter->shared->line;
    const uint64_t offset_ns = load_relaxed(&line->offset_ns);
    const uint64_t now_ns = monotonic_ns + offset_ns;
    uint64_t seen_ns = load_relaxed(&line->now_ns);
    while (seen_ns < now_ns && !cas_seq_cst(&line->now_ns, &seen_ns, now_ns)) { /* [C2] */
    }
    const uint64_t after_ns = load_relaxed(&line->offset_ns);
    if (offset_ns - after_ns < UINT64_MAX / 2 && offset_ns - after_ns >= STEP_BACK_NS) {
        store_release(&line->now_ns, monotonic_ns + after_ns); /* [C2] for other threads that raise now_ns late */
    }
    update_age(limiter);
}

void tick_news(struct limiter *limiter, uint64_t news_ns)
{
    store_relaxed(&limiter->process.shared->news_ns, max_u64(news_ns, 1));
    update_age(limiter);
}

void tick_epoch(struct limiter *limiter)
{
    struct tick_line *line = &limiter->shared->line;
    uint32_t last = load_relaxed(&line->last_epoch);
    uint32_t next;
    do {
        next = epoch_after(last);
    } while (!cas_seq_cst(&line->last_epoch, &last, next));
    /* EPOCH_ASLEEP stays. A lower one than a racing ticker's may win here, which is still a new one for every
     * grant given before either. */
    uint32_t epoch = load_relaxed(&line->epoch);
    while (epoch != EPOCH_ASLEEP && !cas_seq_cst(&line->epoch, &epoch, next)) {
    }
}

void tick_start(struct limiter *limiter, uint64_t monotonic_ns, uint64_t offset_ns)
{
    struct tick_line *line = &limiter->shared->line;
    store_relaxed(&line->offset_ns, offset_ns);
    store_relaxed(&line->now_ns, monotonic_ns + offset_ns);
    update_age(limiter);
    store_relaxed(&line->next_ns, monotonic_ns + limiter->tick_ns);
    store_relaxed(&line->last_epoch, 1);
    store_release(&line->epoch, 1); /* [C1] */
}

void tick_if_due(struct limiter *limiter, uint64_t monotonic_ns)
{
    struct tick_line *line = &limiter->shared->line;
    uint64_t next_ns = load_relaxed(&line->next_ns);
    /* Relaxed: the exchange elects one ticker, and publishes nothing. */
    if (monotonic_ns < next_ns || !cas_relaxed(&line->next_ns, &next_ns, monotonic_ns + limiter->tick_ns)) {
        return;
    }
    tick_raise(limiter, monotonic_ns);
    tick_epoch(limiter); /* [C1] */
}

void tick_sleep(struct limiter *limiter)
{
    (void) exchange_seq_cst(&limiter->shared->line.epoch, EPOCH_ASLEEP);
}

void tick_wake(struct limiter *limiter, uint64_t monotonic_ns)
{
    struct tick_line *line = &limiter->shared->line;
    tick_raise(limiter, monotonic_ns);
    store_relaxed(&line->next_ns, monotonic_ns + limiter->tick_ns);
    if (load_relaxed(&line->epoch) == EPOCH_ASLEEP) {
        const uint32_t last = epoch_after(load_relaxed(&line->last_epoch));
        store_relaxed(&line->last_epoch, last);
        store_release(&line->epoch, last); /* [C1] */
    }
}

void tick_set_offset(struct limiter *limiter, uint64_t monotonic_ns, uint64_t offset_ns, bool step)
{
    struct tick_line *line = &limiter->shared->line;
    store_relaxed(&line->offset_ns, offset_ns);
    if (step) {
        store_release(&line->now_ns, monotonic_ns + offset_ns); /* [C2] */
        update_age(limiter);
    } else {
        tick_raise(limiter, monotonic_ns);
    }
    tick_epoch(limiter);
}

uint64_t tick_time(const struct limiter *limiter)
{
    const struct tick_line *line = &limiter->shared->line;
    return limiter->host_time ? load_relaxed(&line->now_ns)
                              : clock_monotonic_ns(limiter->clock) + load_relaxed(&line->offset_ns);
}

void tick_begin_child(struct limiter *limiter)
{
    if (limiter->max_processes == 1 && !limiter->host_time) {
        tick_sleep(limiter);
    }
}

void tick_may_stand_still(struct limiter *limiter)
{
    for (uint32_t i = 0; i < limiter->max_threads && !limiter->host_time; i++) {
        store_relaxed(&limiter->threads[i].may_stand_still, 1);
    }
    /*
     * [C1] In the new epoch a thread sees that. What its slots have learned before lasts until a tick, and there may be
     * none.
     */
    tick_epoch(limiter);
}

/* Ticks if that is due. Where time stood still, nobody else does: the epochs end. */
static void tick_or_sleep(struct weir_thread *t, uint64_t monotonic_ns)
{
    if (thread_may_stand_still(t) && tick_stands_still(t->line, monotonic_ns)) {
        tick_raise(t->limiter, monotonic_ns);
        tick_sleep(t->limiter);
    } else if (load_relaxed(&t->line->epoch) != EPOCH_ASLEEP) {
        tick_if_due(t->limiter, monotonic_ns);
    }
}

void tick_look(struct weir_thread *t)
{
    struct limiter *limiter = t->limiter;
    if (thread_may_stand_still(t) && limiter->looked != NULL) {
        limiter->looked(limiter, clock_read(CLOCK_MONOTONIC_COARSE));
    }
    if (thread_wants_look(t)) {
        t->shared->looked_count = load_relaxed(&t->shared->slow_count);
        if (!limiter->host_time && load_relaxed(&limiter->shared->line.epoch) != EPOCH_ASLEEP) {
            tick_or_sleep(t, clock_monotonic_ns(limiter->clock));
        }
    }
}

uint64_t tick_now(struct weir_thread *t, const struct policy *policy)
{
    struct limiter *limiter = t->limiter;
    struct tick_line *line = &limiter->shared->line;
    const bool look = thread_wants_look(t);
    t->shared->looked_count = look ? load_relaxed(&t->shared->slow_count) : t->shared->looked_count;
    if (limiter->host_time) {
        return load_relaxed(&line->now_ns);
    }
    if (policy->fine_clock || load_relaxed(&line->epoch) == EPOCH_ASLEEP || look) {
        const uint64_t monotonic_ns = clock_monotonic_ns(limiter->clock);
        tick_or_sleep(t, monotonic_ns);
        return monotonic_ns + load_relaxed(&line->offset_ns);
    }
    return load_relaxed(&line->now_ns);
}
