/* SPDX-License-Identifier: Apache-2.0 */
/* See entry_until.h. */
#include "policy/entry_until.h"

#include <errno.h>
#include <stdbool.h>

#include "algorithm/calendar.h"
#include "base/error.h"
#include "base/numbers.h"

/* Times beyond this year do not fit. */
#define YEAR_LAST 2500

/* Reads so many digits and moves *text behind them. False: they are not there. */
static bool read_digits(const char **text, unsigned count, unsigned *out)
{
    *out = 0;
    for (unsigned i = 0; i < count; i++, (*text)++) {
        if (**text < '0' || **text > '9') {
            return false;
        }
        *out = 10 * *out + (unsigned) (**text - '0');
    }
    return true;
}

static bool read_character(const char **text, char wanted)
{
    if (**text != wanted) {
        return false;
    }
    (*text)++;
    return true;
}

/* Reads "YYYY-MM-DD" as days since 1970. */
static bool read_date(const char **text, uint64_t *days)
{
    unsigned year;
    unsigned month;
    unsigned day;
    if (!read_digits(text, 4, &year) || !read_character(text, '-') || !read_digits(text, 2, &month) ||
        !read_character(text, '-') || !read_digits(text, 2, &day)) {
        return false;
    }
    if (year < 1970 || year > YEAR_LAST || month < 1 || month > 12) {
        return false;
    }
    const uint64_t months = (year - 1970) * UINT64_C(12) + month - 1;
    *days = calendar_day_of_month(months) + day - 1;
    return day >= 1 && *days < calendar_day_of_month(months + 1);
}

/* Reads "Thh:mmZ" or "Thh:mm:ssZ" as seconds. */
static bool read_time_of_day(const char **text, uint64_t *seconds)
{
    unsigned hour;
    unsigned minute;
    unsigned second = 0;
    if (!read_character(text, 'T') || !read_digits(text, 2, &hour) || !read_character(text, ':') ||
        !read_digits(text, 2, &minute)) {
        return false;
    }
    if (read_character(text, ':') && !read_digits(text, 2, &second)) {
        return false;
    }
    *seconds = hour * UINT64_C(3600) + minute * UINT64_C(60) + second;
    return read_character(text, 'Z') && hour < 24 && minute < 60 && second < 60;
}

int entry_until_read(const char *text, uint64_t *out, weir_error *error)
{
    const char *at = text;
    uint64_t days = 0;
    uint64_t seconds = 0;
    bool good = read_date(&at, &days);
    if (good && *at != '\0') {
        good = read_time_of_day(&at, &seconds) && *at == '\0';
    }
    if (!good) {
        return error_set(error, -EINVAL,
                         "\"until %.40s\" is no end of an override; give a time in UTC, such as 2026-12-01T00:00Z",
                         text);
    }
    *out = (days * 86400 + seconds) * NS_PER_S;
    return 0;
}
