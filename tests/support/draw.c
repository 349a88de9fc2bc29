/* SPDX-License-Identifier: Apache-2.0 */
#include "support/draw.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "support/support.h"

#define MINUTE       (60 * SECOND)
#define DAY          (24 * HOUR)
#define PERIOD_LEAST MILLISECOND
#define PERIOD_MOST  (366 * DAY)
#define RATE_MOST    UINT64_C(640000000) /* units a second of a bucket */
#define FILL_MOST    (730 * DAY)         /* filling a bucket takes less */

#define YEAR_FIRST 2025
#define YEARS      10

__extension__ typedef unsigned __int128 wide;

unsigned test_draws(unsigned usual)
{
    const char *text = getenv("WEIR_DRAWS");
    const uint64_t percent = text != NULL ? strtoull(text, NULL, 10) : 100;
    const uint64_t draws = usual * percent / 100;
    return draws != 0 ? (unsigned) draws : 1;
}

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). */
uint64_t random_next(uint64_t *rng)
{
    uint64_t z = (*rng += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

uint64_t random_below(uint64_t *rng, uint64_t bound)
{
    return random_next(rng) % bound;
}

bool draw_once_in(uint64_t *rng, uint64_t times)
{
    return random_below(rng, times) == 0;
}

uint64_t draw_between(uint64_t *rng, uint64_t least, uint64_t most)
{
    return least + random_below(rng, most - least + 1);
}

uint64_t draw_magnitude(uint64_t *rng, uint64_t least, uint64_t most)
{
    uint64_t halvings = 0;
    while (most >> halvings > least) {
        halvings++;
    }
    const uint64_t top = most >> random_below(rng, halvings + 1);
    return draw_between(rng, least, top > least ? top : least);
}

double draw_fraction(uint64_t *rng)
{
    return (double) (random_next(rng) >> 11) / 9007199254740992.0; /* 2^53 */
}

double draw_spread(uint64_t *rng, double least, double most)
{
    return least * pow(most / least, draw_fraction(rng));
}

weir_algorithm draw_algorithm(uint64_t *rng)
{
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_SLIDING_LOG,
                                                WEIR_TOKEN_BUCKET, WEIR_LEAKY_BUCKET};
    return draw_one_of(rng, algorithms);
}

uint64_t draw_period_ns(uint64_t *rng)
{
    static const uint64_t common[] = {SECOND, SECOND, SECOND,      SECOND, MINUTE,           MINUTE,
                                      MINUTE, HOUR,   10 * SECOND, DAY,    100 * MILLISECOND};
    static const uint64_t rare[] = {7 * SECOND,   90 * SECOND, 30 * DAY,  7 * MILLISECOND,
                                    PERIOD_LEAST, PERIOD_MOST, 1234567891 /* ns */};
    switch (random_below(rng, 16)) {
    case 0:
        return draw_magnitude(rng, PERIOD_LEAST, PERIOD_MOST);
    case 1:
    case 2:
    case 3:
        return draw_one_of(rng, rare);
    default:
        return draw_one_of(rng, common);
    }
}

uint64_t draw_limit(uint64_t *rng)
{
    static const uint64_t common[] = {100, 100, 100, 10, 10, 1000, 1000, 1, 2, 3, 5, 60, 500, 10000, 1000000};
    switch (random_below(rng, 32)) {
    case 0:
        return WEIR_MAX_UNITS;
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
        return draw_magnitude(rng, 1, WEIR_MAX_UNITS);
    case 6:
    case 7:
    case 8:
        return draw_between(rng, 1, 1000);
    default:
        return draw_one_of(rng, common);
    }
}

uint64_t draw_burst(uint64_t *rng, uint64_t limit)
{
    const uint64_t most = limit < WEIR_MAX_UNITS / 10 ? 10 * limit : WEIR_MAX_UNITS;
    const uint64_t common[] = {limit, (limit + 1) / 2, 1, most};
    switch (random_below(rng, 8)) {
    case 0:
        return draw_magnitude(rng, 1, most);
    case 1:
    case 2:
    case 3:
        return draw_one_of(rng, common);
    default:
        return 0;
    }
}

uint64_t draw_cost(uint64_t *rng, uint64_t at_once)
{
    switch (random_below(rng, 32)) {
    case 0:
    case 1:
        return draw_between(rng, 40, 1500);
    case 2:
    case 3:
        return draw_between(rng, 1, at_once);
    case 4:
        return draw_magnitude(rng, 1, at_once);
    case 5:
        return draw_between(rng, at_once, at_once + 2);
    case 6:
    case 7:
    case 8:
    case 9:
        return draw_between(rng, 2, 5);
    default:
        return 1;
    }
}

unsigned draw_nodes(uint64_t *rng)
{
    return (unsigned) draw_between(rng, 1, draw_once_in(rng, 8) ? 32 : 8);
}

uint32_t draw_interval_ms(uint64_t *rng)
{
    static const uint32_t common[] = {200, 200, 200, 200, 100, 250};
    return draw_once_in(rng, 4) ? (uint32_t) draw_magnitude(rng, 10, 5000) : draw_one_of(rng, common);
}

double draw_demand(uint64_t *rng)
{
    static const double common[] = {3, 3, 0.9};
    return draw_once_in(rng, 4) ? draw_spread(rng, 0.05, 10) : draw_one_of(rng, common);
}

/* The first moment of a year, of a month of it, or of a day. */
static uint64_t border_ns(uint64_t *rng)
{
    const uint64_t kind = random_below(rng, 3);
    struct tm tm = {.tm_year = YEAR_FIRST - 1900 + (int) random_below(rng, YEARS), .tm_mday = 1};
    tm.tm_mon = kind != 0 ? (int) random_below(rng, 12) : 0;
    tm.tm_mday += kind == 2 ? (int) random_below(rng, 31) : 0;
    return (uint64_t) timegm(&tm) * SECOND;
}

uint64_t draw_start_ns(uint64_t *rng, uint64_t period_ns)
{
    static const uint64_t away_ns[] = {0, 0, 1, 1, 1000, 999999, MILLISECOND};
    struct tm first = {.tm_year = YEAR_FIRST - 1900, .tm_mday = 1};
    const uint64_t any_ns = (uint64_t) timegm(&first) * SECOND + random_below(rng, YEARS * 365 * DAY);
    const uint64_t window_ns = period_ns != 0 ? period_ns : DAY;
    if (draw_once_in(rng, 2)) {
        return any_ns;
    }
    const uint64_t at_ns = draw_once_in(rng, 2) ? any_ns - any_ns % window_ns : border_ns(rng);
    const uint64_t by_ns = draw_one_of(rng, away_ns);
    return draw_once_in(rng, 2) ? at_ns - by_ns : at_ns + by_ns;
}

void draw_make_valid(weir_limit *limit)
{
    const bool bucket = limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET;
    uint64_t most = limit->algorithm == WEIR_SLIDING_LOG ? WEIR_MAX_LOG_UNITS : WEIR_MAX_UNITS;
    if (bucket) {
        const wide at_rate = (wide) RATE_MOST * limit->period_ns / SECOND;
        most = at_rate < most ? (uint64_t) at_rate : most;
    }
    limit->limit = limit->limit < most ? limit->limit : most;
    if (!bucket) {
        limit->burst = limit->delay = 0;
        return;
    }
    const wide filled = ((wide) FILL_MOST * limit->limit - 1) / limit->period_ns;
    const uint64_t most_burst = filled < WEIR_MAX_UNITS ? (uint64_t) filled : WEIR_MAX_UNITS;
    limit->burst = limit->burst < most_burst ? limit->burst : most_burst;
    const uint64_t at_once = limit->burst != 0 ? limit->burst : limit->limit;
    limit->delay = limit->algorithm == WEIR_TOKEN_BUCKET ? 0 : limit->delay < at_once ? limit->delay : at_once;
}

weir_limit draw_weir_limit(uint64_t *rng, weir_algorithm algorithm, uint64_t period_ns)
{
    weir_limit limit = {.algorithm = algorithm, .limit = draw_limit(rng)};
    limit.period_ns = period_ns != 0 ? period_ns : draw_period_ns(rng);
    draw_make_valid(&limit);
    if (algorithm == WEIR_FIXED_WINDOW && draw_once_in(rng, 8)) {
        limit.calendar = draw_once_in(rng, 2) ? WEIR_CALENDAR_DAY : WEIR_CALENDAR_MONTH;
        limit.period_ns = 0;
    }
    limit.burst = draw_burst(rng, limit.limit);
    draw_make_valid(&limit);
    if (algorithm == WEIR_LEAKY_BUCKET && draw_once_in(rng, 2)) {
        limit.delay = random_below(rng, (limit.burst != 0 ? limit.burst : limit.limit) + 1);
    }
    return limit;
}
