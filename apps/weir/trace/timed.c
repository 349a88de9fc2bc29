/* SPDX-License-Identifier: Apache-2.0 */
/* See timed.h. */
#include "timed.h"

#include <stdlib.h>
#include <string.h>

#define MS_PER_S      UINT64_C(1000)
#define MS_PER_MINUTE (60 * MS_PER_S)
#define MS_PER_YEAR   (UINT64_C(366) * 86400000)

/* A time so far ahead is judged, or one further ahead than the window, but no nearer one than this. */
#define JUMP_MS       MS_PER_MINUTE
#define JUMP_LEAST_MS (5 * MS_PER_S)

/* A first request so far before the others has a clock that was not set. */
#define UNSET_MS (10 * MS_PER_YEAR)

/* A clock that is set back goes back by so much, or by more than the window. */
#define BACK_MS (20 * MS_PER_MINUTE)

/* After the clock has gone back, requests are in order but for this. */
#define DISORDER_MS (5 * MS_PER_S)

/* So many requests in order are a clock that goes on from where it was set back to. */
#define BACK_RUN 16

#define HELD_SLOTS (TIMED_AHEAD + 1)

void timed_open(struct timed *t, struct trace *trace, uint64_t window_ms)
{
    *t = (struct timed){.trace = trace, .window_ms = window_ms};
}

void timed_close(struct timed *t)
{
    free(t->held);
    t->held = NULL;
}

static struct held *held_at(const struct timed *t, size_t number)
{
    return &t->held[(t->first + number) % HELD_SLOTS];
}

static void hold(struct held *slot, const struct record *record)
{
    slot->record = *record;
    memcpy(slot->key, record->key, record->length);
    slot->record.key = slot->key;
}

/* Reads ahead until TIMED_AHEAD requests are held, or the trace has ended. The head stays. Returns how many there are.
 */
static size_t look_ahead(struct timed *t)
{
    if (t->held == NULL) {
        t->held = calloc(HELD_SLOTS, sizeof(*t->held));
        if (t->held == NULL) {
            return 0;
        }
    }
    /* The head has the place before the first: there is one more than are read ahead. */
    struct held *own = &t->held[(t->first + HELD_SLOTS - 1) % HELD_SLOTS];
    if (t->head.key != own->key) {
        hold(own, &t->head);
        t->head = own->record;
    }
    while (t->count < TIMED_AHEAD && !t->ended) {
        t->ended = !trace_next(t->trace);
        if (!t->ended) {
            hold(held_at(t, t->count++), &t->trace->head);
        }
    }
    return t->count;
}

/* How many of those ahead are before a time. */
static size_t count_before(const struct timed *t, uint64_t time_ms)
{
    size_t before = 0;
    for (size_t i = 0; i < t->count; i++) {
        before += held_at(t, i)->record.time_ms < time_ms;
    }
    return before;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return (x > y) - (x < y);
}

/* The time in the middle of those ahead. There are some. */
static uint64_t middle_of(const struct timed *t)
{
    uint64_t times[TIMED_AHEAD] = {0};
    for (size_t i = 0; i < t->count; i++) {
        times[i] = held_at(t, i)->record.time_ms;
    }
    qsort(times, t->count, sizeof(times[0]), compare_times);
    return times[t->count / 2];
}

/* Where the trace begins. False: the head has the time of a clock that was not set. */
static bool begin(struct timed *t)
{
    const uint64_t head_ms = t->head.time_ms;
    const uint64_t middle_ms = look_ahead(t) != 0 ? middle_of(t) : head_ms;
    if (middle_ms >= head_ms + UNSET_MS) {
        return false;
    }
    t->begun = true;
    t->newest_ms = head_ms < middle_ms + JUMP_MS ? head_ms : middle_ms;
    return true;
}

/* The head is ahead of where the trace is. False: its time is wrong. */
static bool judge_jump(struct timed *t)
{
    const uint64_t jump_ms = t->head.time_ms - t->newest_ms;
    const size_t count = look_ahead(t);
    const size_t back = count_before(t, t->newest_ms + jump_ms / 2);
    t->ahead = 2 * back > count;
    if (!t->ahead) {
        t->newest_ms = t->head.time_ms;
    }
    return !t->ahead || jump_ms <= t->window_ms;
}

/* Whether the requests from the head on are all behind by so much, and go on from there. */
static bool is_set_back(struct timed *t, uint64_t behind_ms)
{
    uint64_t last_ms = t->head.time_ms;
    const size_t count = look_ahead(t);
    for (size_t i = 0; i < count && i < BACK_RUN; i++) {
        const uint64_t time_ms = held_at(t, i)->record.time_ms;
        if (time_ms + behind_ms >= t->newest_ms || time_ms + DISORDER_MS < last_ms) {
            return false;
        }
        last_ms = time_ms > last_ms ? time_ms : last_ms;
    }
    return count >= BACK_RUN;
}

/* Whether the head comes too late. */
static bool is_late(struct timed *t)
{
    const uint64_t time_ms = t->head.time_ms;
    const uint64_t behind_ms = t->window_ms < BACK_MS ? t->window_ms : BACK_MS;
    if (t->set_back_to_ms != 0) {
        if (time_ms <= t->set_back_to_ms) {
            t->set_back++;
            return true;
        }
        t->set_back_to_ms = 0;
    }
    if (time_ms + behind_ms >= t->newest_ms) {
        t->unjudged = 0;
        return false;
    }
    if (t->unjudged != 0) {
        t->unjudged--;
    } else if (is_set_back(t, behind_ms)) {
        t->set_back_to_ms = t->newest_ms;
        t->set_back++;
        return true;
    } else {
        t->unjudged = BACK_RUN;
    }
    return time_ms / MS_PER_S + t->window_ms / MS_PER_S < t->newest_ms / MS_PER_S;
}

/* Reads a request that is not judged yet. */
static bool read_head(struct timed *t)
{
    if (t->count != 0) {
        t->head = held_at(t, 0)->record;
        t->first = (t->first + 1) % HELD_SLOTS;
        t->count--;
        return true;
    }
    t->ended = t->ended || !trace_next(t->trace);
    t->head = t->trace->head;
    return !t->ended;
}

/* How far ahead a time is judged. */
static uint64_t judged_from(const struct timed *t)
{
    return t->window_ms > JUMP_MS ? JUMP_MS : t->window_ms > JUMP_LEAST_MS ? t->window_ms : JUMP_LEAST_MS;
}

bool timed_next(struct timed *t)
{
    while (read_head(t)) {
        const uint64_t time_ms = t->head.time_ms;
        t->ahead = false;
        if (!t->begun && !begin(t)) {
            t->leaps++;
        } else if (time_ms > t->newest_ms + judged_from(t)) {
            if (judge_jump(t)) {
                return true;
            }
            t->leaps++;
        } else if (time_ms >= t->newest_ms && time_ms > t->set_back_to_ms) {
            t->newest_ms = time_ms;
            return true;
        } else if (is_late(t)) {
            t->late++;
        } else {
            return true;
        }
    }
    return false;
}
