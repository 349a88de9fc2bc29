/* SPDX-License-Identifier: Apache-2.0 */
/* What every algorithm lets pass, written as plainly as possible: the oracle that the library is compared with. */
#ifndef WEIR_TESTS_ORACLE_H
#define WEIR_TESTS_ORACLE_H

#include <stdlib.h>
#include <time.h>

#include "support/support.h"

#define KEYS  3
#define NEVER UINT64_MAX

__extension__ typedef __int128 wide;

/* What one key has used of one limit. */
struct oracle_state {
    uint64_t window, count, previous; /* windows */
    wide owed;                        /* buckets: time until full, in 1/64 ns, by a unit's time of `unit` */
    uint64_t unit, seen_ns;           /* buckets: when `owed` was right */
    struct {                          /* log: every unit ever, latest last */
        uint64_t *times;
        size_t count, size;
    } log;
};

struct oracle {
    weir_limit limits[WEIR_MAX_LIMITS];
    size_t limit_count;
    struct oracle_state states[KEYS][WEIR_MAX_LIMITS];
};

static bool is_bucket(const weir_limit *limit)
{
    return limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
}

/* Time one unit takes to refill, in 1/64 ns, rounded up as documented. */
static uint64_t unit_of(const weir_limit *limit)
{
    return (uint64_t) (((wide) limit->period_ns * 64 + limit->limit - 1) / limit->limit);
}

static uint64_t burst_of(const weir_limit *limit)
{
    return limit->burst != 0 ? limit->burst : limit->limit;
}

static uint64_t at_once(const weir_limit *limit)
{
    return is_bucket(limit) ? burst_of(limit) : limit->limit;
}

/* A window's number, and its first and last moments, by the C library's calendar. */
static uint64_t window_of(const weir_limit *limit, uint64_t now_ns, uint64_t *start_ns, uint64_t *end_ns)
{
    if (limit->calendar == WEIR_CALENDAR_MONTH) {
        const time_t now = (time_t) (now_ns / SECOND);
        struct tm tm;
        (void) gmtime_r(&now, &tm);
        struct tm first = {.tm_year = tm.tm_year, .tm_mon = tm.tm_mon, .tm_mday = 1};
        struct tm next = {.tm_year = tm.tm_year, .tm_mon = tm.tm_mon + 1, .tm_mday = 1};
        *start_ns = (uint64_t) timegm(&first) * SECOND;
        *end_ns = (uint64_t) timegm(&next) * SECOND;
        return (uint64_t) tm.tm_year * 12 + (uint64_t) tm.tm_mon;
    }
    const uint64_t period_ns = limit->calendar == WEIR_CALENDAR_DAY ? 24 * HOUR : limit->period_ns;
    *start_ns = now_ns / period_ns * period_ns;
    *end_ns = *start_ns + period_ns;
    return now_ns / period_ns;
}

/* Lets time pass for one state. */
static void age(const weir_limit *limit, struct oracle_state *s, uint64_t now_ns)
{
    uint64_t start_ns;
    uint64_t end_ns;
    if (is_bucket(limit)) {
        s->owed -= (wide) (now_ns - s->seen_ns) * 64;
        s->owed = s->owed > 0 ? s->owed : 0;
        s->seen_ns = now_ns;
        if (s->unit != unit_of(limit)) { /* the units owed stay when the rate changes */
            s->owed = s->unit != 0 ? (s->owed * unit_of(limit) + s->unit - 1) / s->unit : 0;
            s->unit = unit_of(limit);
        }
    } else if (limit->algorithm != WEIR_SLIDING_LOG) {
        const uint64_t window = window_of(limit, now_ns, &start_ns, &end_ns);
        if (window != s->window) {
            s->previous = window == s->window + 1 ? s->count : 0;
            s->count = 0;
            s->window = window;
        }
    }
}

static uint64_t log_used(const weir_limit *limit, const struct oracle_state *s, uint64_t now_ns)
{
    uint64_t used = 0;
    for (size_t i = s->log.count; i > 0 && s->log.times[i - 1] + limit->period_ns > now_ns; i--) {
        used++;
    }
    return used;
}

/* Units of a request that fit now; `s` is a copy. */
static uint64_t oracle_room(const weir_limit *limit, struct oracle_state s, uint64_t now_ns)
{
    age(limit, &s, now_ns);
    uint64_t used = s.count;
    if (is_bucket(limit)) {
        const wide full = (wide) burst_of(limit) * unit_of(limit);
        const bool queued = limit->algorithm == WEIR_LEAKY_BUCKET && s.owed > (wide) limit->delay * unit_of(limit);
        return queued || s.owed > full ? 0 : (uint64_t) ((full - s.owed) / unit_of(limit));
    }
    if (limit->algorithm == WEIR_SLIDING_LOG) {
        used = log_used(limit, &s, now_ns);
    } else if (limit->algorithm == WEIR_SLIDING_WINDOW) {
        const uint64_t left_ns = limit->period_ns - now_ns % limit->period_ns;
        used += (uint64_t) (((wide) s.previous * left_ns + limit->period_ns - 1) / limit->period_ns);
    }
    return used < limit->limit ? limit->limit - used : 0;
}

static uint64_t oracle_room_of_all(const struct oracle *o, size_t key, uint64_t now_ns)
{
    uint64_t room = UINT64_MAX;
    for (size_t i = 0; i < o->limit_count; i++) {
        const uint64_t r = oracle_room(&o->limits[i], o->states[key][i], now_ns);
        room = r < room ? r : room;
    }
    return room;
}

/* Everything a key has used is met by the library with every call but a peek, and goes over to a changed rate then. */
static void oracle_meet(struct oracle *o, size_t key, uint64_t now_ns)
{
    for (size_t i = 0; i < o->limit_count; i++) {
        age(&o->limits[i], &o->states[key][i], now_ns);
    }
}

static void log_add(struct oracle_state *s, uint64_t now_ns, uint64_t units)
{
    if (s->log.count + units > s->log.size) {
        s->log.size = (s->log.count + units) * 2;
        s->log.times = realloc(s->log.times, s->log.size * sizeof(uint64_t));
        assert_non_null(s->log.times);
    }
    while (units-- > 0) {
        s->log.times[s->log.count++] = now_ns;
    }
}

static void oracle_take(struct oracle *o, size_t key, uint64_t cost, uint64_t now_ns)
{
    oracle_meet(o, key, now_ns);
    for (size_t i = 0; i < o->limit_count; i++) {
        struct oracle_state *s = &o->states[key][i];
        if (is_bucket(&o->limits[i])) {
            s->owed += (wide) cost * unit_of(&o->limits[i]);
        } else if (o->limits[i].algorithm == WEIR_SLIDING_LOG) {
            log_add(s, now_ns, cost);
        } else {
            s->count += cost;
        }
    }
}

/* The latest units first, and never more than there are. */
static void oracle_refund(struct oracle *o, size_t key, uint64_t cost, uint64_t now_ns)
{
    oracle_meet(o, key, now_ns);
    for (size_t i = 0; i < o->limit_count; i++) {
        struct oracle_state *s = &o->states[key][i];
        if (is_bucket(&o->limits[i])) {
            s->owed -= (wide) cost * unit_of(&o->limits[i]);
            s->owed = s->owed > 0 ? s->owed : 0;
        } else if (o->limits[i].algorithm == WEIR_SLIDING_LOG) {
            const uint64_t used = log_used(&o->limits[i], s, now_ns);
            s->log.count -= cost < used ? cost : used;
        } else {
            const uint64_t now = cost < s->count ? cost : s->count;
            const uint64_t before = cost - now < s->previous ? cost - now : s->previous;
            s->count -= now;
            s->previous -= before;
        }
    }
}

/* The wait for a place in all queues; NEVER: refused. */
static uint64_t oracle_wait(const struct oracle *o, size_t key, uint64_t cost, uint64_t now_ns)
{
    uint64_t longest_ns = 0;
    for (size_t i = 0; i < o->limit_count; i++) {
        const weir_limit *limit = &o->limits[i];
        struct oracle_state s = o->states[key][i];
        age(limit, &s, now_ns);
        if (!is_bucket(limit)) {
            if (oracle_room(limit, s, now_ns) < cost) {
                return NEVER;
            }
            continue;
        }
        const wide full = (wide) burst_of(limit) * unit_of(limit);
        const wide over = s.owed + (wide) cost * unit_of(limit) - full;
        const wide scan_cursor = s.owed - (wide) limit->delay * unit_of(limit);
        const bool leaky = limit->algorithm == WEIR_LEAKY_BUCKET;
        if (cost > burst_of(limit) || (leaky && over > 0)) {
            return NEVER;
        }
        const wide wait = leaky ? scan_cursor : over;
        const uint64_t wait_ns = wait > 0 ? (uint64_t) ((wait + 63) / 64) : 0;
        longest_ns = wait_ns > longest_ns ? wait_ns : longest_ns;
    }
    return longest_ns;
}

#endif
