/* SPDX-License-Identifier: Apache-2.0 */
/* See candidates.h. */
#include "candidates.h"

#include <math.h>
#include <string.h>
#include <time.h>

#define NS_PER_MS  UINT64_C(1000000)
#define MS_PER_DAY (86400 * UINT64_C(1000))

/* Of the candidates so many are below the policy's limit. */
#define BELOW 12

/* What rounding in single precision may add to a level, as a part of it and in units. */
#define ROUNDING_PART  1e-6F
#define ROUNDING_UNITS 1e-3F

/* The `index`th round number: 1 2 3 4 5 6 8, and from 10 on ten in each decade. */
static uint64_t round_number(unsigned index)
{
    static const uint64_t ones[] = {1, 2, 3, 4, 5, 6, 8};
    static const uint64_t tens[] = {10, 12, 15, 20, 25, 30, 40, 50, 60, 80};
    if (index < 7) {
        return ones[index];
    }
    uint64_t number = tens[(index - 7) % 10];
    for (unsigned decades = (index - 7) / 10; decades != 0; decades--) {
        number *= 10;
    }
    return number;
}

/* The numbers about a limit; the limit itself takes the place of the nearest below. */
static void choose_numbers(struct candidates *c)
{
    unsigned at = 0, first;
    while (round_number(at + 1) <= c->limit.limit && round_number(at + 1) < WEIR_MAX_UNITS) {
        at++;
    }
    first = at > BELOW ? at - BELOW : 0;
    for (unsigned i = 0; i < CANDIDATES; i++) {
        const uint64_t number = round_number(first + i);
        c->numbers[i] = first + i == at ? c->limit.limit : number < WEIR_MAX_UNITS ? number : WEIR_MAX_UNITS;
    }
}

void candidates_init(struct candidates *c, const weir_limit *limit)
{
    *c = (struct candidates){.limit = *limit, .day = -1};
    c->bucket = limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
    c->slides = limit->algorithm == WEIR_SLIDING_WINDOW || limit->algorithm == WEIR_SLIDING_LOG;
    c->period_ms = limit->period_ns / NS_PER_MS != 0 ? limit->period_ns / NS_PER_MS : 1;
    c->own_rate = (float) ((double) limit->limit * 1e6 / (double) limit->period_ns);
    choose_numbers(c);
    for (unsigned i = 0; i < CANDIDATES; i++) {
        const double scale = (double) c->numbers[i] / (double) limit->limit;
        const double burst = c->bucket ? fmax(1, round((double) limit->burst * scale)) : (double) c->numbers[i];
        c->bursts[i] = (uint64_t) burst;
        c->rates[i] = (float) ((double) c->numbers[i] * 1e6 / (double) limit->period_ns);
        c->depths[i] = (float) burst * (1 + ROUNDING_PART) + (c->bucket ? ROUNDING_UNITS : 0);
    }
}

static void note(struct candidates *c, struct candidate_row *row, uint32_t denied)
{
    c->offered++;
    row->denied |= denied;
    while (denied != 0) {
        c->denied[__builtin_ctz(denied)]++;
        denied &= denied - 1;
    }
}

/*
 * The loops over candidates are vectorized: they have no branches, and `restrict` says that their arrays are apart.
 * Each returns whether any candidate has denied; over[] is all ones where it has.
 */
static uint32_t drain_buckets(float *restrict levels, const float *restrict rates, const float *restrict depths,
                              float passed_ms, float cost, uint32_t *restrict over)
{
    uint32_t any = 0;
    for (int i = 0; i < CANDIDATES; i++) {
        const float drained = levels[i] - rates[i] * passed_ms;
        const float left = drained > 0 ? drained : 0;
        const float level = left + cost;
        over[i] = level > depths[i] ? UINT32_MAX : 0;
        levels[i] = level > depths[i] ? left : level;
        any |= over[i];
    }
    return any;
}

static uint32_t fill_windows(float *restrict counts, const float *restrict previous, const float *restrict limits,
                             float still, float cost, uint32_t *restrict over)
{
    uint32_t any = 0;
    for (int i = 0; i < CANDIDATES; i++) {
        /* What still counts of the window before is rounded up, as by the library. */
        const float carried = previous[i] * still;
        const float whole = (float) (int32_t) carried;
        const float used = counts[i] + (whole < carried ? whole + 1 : whole);
        const float count = counts[i] + cost;
        over[i] = used + cost > limits[i] ? UINT32_MAX : 0;
        counts[i] = used + cost > limits[i] ? counts[i] : count;
        any |= over[i];
    }
    return any;
}

/* The bits of those that have denied. */
static uint32_t pack(const uint32_t over[CANDIDATES])
{
    uint32_t denied = 0;
    for (int i = 0; i < CANDIDATES; i++) {
        denied |= (over[i] & 1) << i;
    }
    return denied;
}

static uint32_t offer_bucket(const struct candidates *c, struct candidate_row *row, uint64_t time_ms, float cost)
{
    uint32_t over[CANDIDATES];
    const float passed_ms = row->last != 0 ? (float) (time_ms - row->last) : 0;
    const float drained = row->level - c->own_rate * passed_ms;
    row->last = time_ms;
    row->level = (drained > 0 ? drained : 0) + cost;
    row->most = row->level > row->most ? row->level : row->most;
    return drain_buckets(row->counts, c->rates, c->depths, passed_ms, cost, over) != 0 ? pack(over) : 0;
}

/* The window of a time, and the part of its period that is over. */
static uint64_t window_of(struct candidates *c, uint64_t time_ms, float *part)
{
    if (c->limit.calendar != WEIR_CALENDAR_MONTH) {
        *part = (float) (time_ms % c->period_ms) / (float) c->period_ms;
        return time_ms / c->period_ms;
    }
    *part = 0;
    const int64_t day = (int64_t) (time_ms / MS_PER_DAY);
    if (day != c->day) {
        const time_t seconds = (time_t) (time_ms / 1000);
        struct tm date;
        (void) gmtime_r(&seconds, &date);
        c->day = day;
        c->month = (int64_t) date.tm_year * 12 + date.tm_mon;
    }
    return (uint64_t) c->month;
}

static uint32_t offer_window(struct candidates *c, struct candidate_row *row, uint64_t time_ms, float cost)
{
    float part;
    uint32_t over[CANDIDATES];
    const uint64_t number = window_of(c, time_ms, &part) + 1;
    if (row->last != number) {
        if (c->slides && row->last + 1 == number) {
            memcpy(row->previous, row->counts, sizeof(row->previous));
        } else {
            memset(row->previous, 0, sizeof(row->previous));
        }
        memset(row->counts, 0, sizeof(row->counts));
        row->last = number;
    }
    const float still = c->slides ? 1 - part : 0;
    return fill_windows(row->counts, row->previous, c->depths, still, cost, over) != 0 ? pack(over) : 0;
}

void candidates_offer(struct candidates *c, struct candidate_row *row, uint64_t time_ms, uint64_t cost)
{
    note(c, row, c->bucket ? offer_bucket(c, row, time_ms, (float) cost) : offer_window(c, row, time_ms, (float) cost));
}
