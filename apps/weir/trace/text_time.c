/* SPDX-License-Identifier: Apache-2.0 */
/* See text_time.h. */
#include "text_time.h"

#include <assert.h>
#include <string.h>

#define SECONDS_A_DAY 86400

/* The most digits of a time since the epoch: of nanoseconds. */
#define EPOCH_DIGITS 19

/* A fraction of a second is read to milliseconds. */
#define FRACTION_DIGITS 3

/* Where the date, the time and the zone of the Common Log Format begin. */
enum { CLF_MONTH = 3, CLF_YEAR = 7, CLF_CLOCK = 12, CLF_ZONE = 21 };

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* `count` digits as a number; -1: they are not all digits. */
static int64_t read_digits(const char *text, size_t count)
{
    int64_t number = 0;
    for (size_t i = 0; i < count; i++) {
        if (!is_digit(text[i])) {
            return -1;
        }
        number = number * 10 + (text[i] - '0');
    }
    return number;
}

/* Days from 1970-01-01 to a date of the Gregorian calendar: years are counted from March, so that a leap day is last.
 */
static int64_t days_of(int64_t year, int64_t month, int64_t day)
{
    const int64_t from_march = (month + 9) % 12;
    const int64_t years = month <= 2 ? year - 1 : year;
    return years * 365 + years / 4 - years / 100 + years / 400 + (from_march * 306 + 5) / 10 + day - 1 - 719468;
}

/* "HH:MM:SS", or -1. A leap second is the second after it. */
static int64_t read_clock(const char *text)
{
    const int64_t hours = read_digits(text, 2);
    const int64_t minutes = read_digits(text + 3, 2);
    const int64_t seconds = read_digits(text + 6, 2);
    const bool good = hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60 && seconds >= 0 && seconds <= 60 &&
                      text[2] == ':' && text[5] == ':';
    return good ? hours * 3600 + minutes * 60 + seconds : -1;
}

/* Seconds from 1970 to a date, or -1. */
static int64_t seconds_of(int64_t year, int64_t month, int64_t day, int64_t clock)
{
    static const int lengths[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool good = year >= 1970 && month >= 1 && month <= 12 && day >= 1 && day <= lengths[month - 1] && clock >= 0;
    return good ? days_of(year, month, day) * SECONDS_A_DAY + clock : -1;
}

/* "25/Nov/2026:10:00:00", or -1. */
static int64_t read_clf_date(const char *text)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (int64_t month = 0; month < 12; month++) {
        if (memcmp(text + CLF_MONTH, months + 3 * month, 3) == 0) {
            const bool good = text[2] == '/' && text[6] == '/' && text[11] == ':';
            return good ? seconds_of(read_digits(text + CLF_YEAR, 4), month + 1, read_digits(text, 2),
                                     read_clock(text + CLF_CLOCK))
                        : -1;
        }
    }
    return -1;
}

/* "+0100", "+01:00" or "Z": seconds that the zone is ahead of UTC. */
static bool read_zone(const char *text, size_t length, int64_t *out)
{
    const size_t minutes_at = length == 6 && text[3] == ':' ? 4 : 3;
    *out = 0;
    if (length == 0 || (length == 1 && (*text == 'Z' || *text == 'z'))) {
        return true;
    }
    if ((*text != '+' && *text != '-') || length != minutes_at + 2) {
        return false;
    }
    const int64_t hours = read_digits(text + 1, 2);
    const int64_t minutes = read_digits(text + minutes_at, 2);
    *out = (hours * 3600 + minutes * 60) * (*text == '-' ? -1 : 1);
    return hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60;
}

static bool finish(int64_t seconds, int64_t zone, int64_t ms, uint64_t *out_ms)
{
    if (seconds < 0 || seconds - zone < 0) {
        return false;
    }
    *out_ms = (uint64_t) ((seconds - zone) * 1000 + ms);
    return true;
}

/* Of CLF_TIME_SIZE bytes; a call of memcmp for each line would be felt. */
static bool is_same(const char *one, const char *other)
{
    uint64_t words[2][4];
    static_assert(CLF_TIME_SIZE > 3 * sizeof(words[0][0]) && CLF_TIME_SIZE <= sizeof(words[0]),
                  "the last word overlaps");
    for (int i = 0; i < 4; i++) {
        const size_t at = i < 3 ? (size_t) i * sizeof(words[0][0]) : CLF_TIME_SIZE - sizeof(words[0][0]);
        memcpy(&words[0][i], one + at, sizeof(words[0][i]));
        memcpy(&words[1][i], other + at, sizeof(words[1][i]));
    }
    return ((words[0][0] ^ words[1][0]) | (words[0][1] ^ words[1][1]) | (words[0][2] ^ words[1][2]) |
            (words[0][3] ^ words[1][3])) == 0;
}

bool time_read_clf(struct time_cache *cache, const char *text, uint64_t *out_ms)
{
    int64_t zone;
    if (*text == '\0' || !is_same(cache->text, text)) { /* a text with a 0 first is none that was kept */
        if (text[CLF_ZONE - 1] != ' ' || !read_zone(text + CLF_ZONE, 5, &zone) ||
            !finish(read_clf_date(text), zone, 0, &cache->time_ms)) {
            cache->text[0] = '\0';
            return false;
        }
        memcpy(cache->text, text, CLF_TIME_SIZE);
    }
    *out_ms = cache->time_ms;
    return true;
}

/* The milliseconds of a fraction, from behind its dot; *length: of its digits. */
static int64_t read_fraction(const char *text, size_t most, size_t *length)
{
    int64_t ms = 0;
    size_t digits = 0;
    while (digits < most && is_digit(text[digits])) {
        ms = digits < FRACTION_DIGITS ? ms * 10 + (text[digits] - '0') : ms;
        digits++;
    }
    for (size_t i = digits; i < FRACTION_DIGITS; i++) {
        ms *= 10;
    }
    *length = digits;
    return ms;
}

bool time_read_haproxy(struct time_cache *cache, const char *text, size_t length, uint64_t *out_ms)
{
    static const char zone[] = {' ', '+', '0', '0', '0', '0'};
    char zoned[CLF_TIME_SIZE];
    size_t digits;
    if (length < CLF_ZONE || text[CLF_ZONE - 1] != '.') {
        return false;
    }
    const int64_t ms = read_fraction(text + CLF_ZONE, length - CLF_ZONE, &digits);
    memcpy(zoned, text, CLF_ZONE - 1);
    memcpy(zoned + CLF_ZONE - 1, zone, sizeof(zone));
    if (digits == 0 || CLF_ZONE + digits != length || !time_read_clf(cache, zoned, out_ms)) {
        return false;
    }
    *out_ms += (uint64_t) ms;
    return true;
}

/* "2026-11-25T10:00:00" with a fraction and a zone, or without. */
static bool read_iso(const char *text, size_t length, uint64_t *out_ms, bool *whole)
{
    size_t at = 19, digits = 0;
    int64_t ms = 0, zone;
    *whole = length <= at || (text[at] != '.' && text[at] != ',');
    if (!*whole) {
        ms = read_fraction(text + at + 1, length - at - 1, &digits);
        at += 1 + digits;
    }
    at += at < length && text[at] == ' ' ? 1 : 0;
    return (*whole || digits != 0) && text[7] == '-' && read_zone(text + at, length - at, &zone) &&
           finish(seconds_of(read_digits(text, 4), read_digits(text + 5, 2), read_digits(text + 8, 2),
                             read_clock(text + 11)),
                  zone, ms, out_ms);
}

/* Seconds since the epoch, or a finer unit by the number of digits. */
static bool read_epoch(const char *text, size_t length, uint64_t *out_ms, bool *whole)
{
    size_t digits = 0, fraction = 0;
    int64_t ms = 0;
    uint64_t number = 0;
    for (; digits < length && digits <= EPOCH_DIGITS && is_digit(text[digits]); digits++) {
        number = number * 10 + (uint64_t) (text[digits] - '0');
    }
    *whole = digits == length && digits <= 11;
    if (digits == 0 || digits > EPOCH_DIGITS) {
        return false;
    }
    if (digits < length) {
        ms = text[digits] == '.' ? read_fraction(text + digits + 1, length - digits - 1, &fraction) : 0;
        *out_ms = number; /* of milliseconds a fraction makes no difference */
        return fraction != 0 && digits + 1 + fraction == length &&
               (digits <= 11 ? finish((int64_t) number, 0, ms, out_ms) : digits <= 14);
    }
    if (digits <= 11) {
        return finish((int64_t) number, 0, 0, out_ms);
    }
    *out_ms = number / (digits <= 14 ? 1 : digits <= 17 ? 1000 : 1000000);
    return true;
}

bool time_read_any(struct time_cache *cache, const char *text, size_t length, uint64_t *out_ms, bool *whole)
{
    if (length >= 19 && text[4] == '-' && (text[10] == 'T' || text[10] == ' ' || text[10] == 't')) {
        return read_iso(text, length, out_ms, whole);
    }
    if (length == CLF_TIME_SIZE && text[2] == '/') {
        *whole = true;
        return time_read_clf(cache, text, out_ms);
    }
    return read_epoch(text, length, out_ms, whole);
}
