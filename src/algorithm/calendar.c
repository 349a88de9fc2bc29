/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Years are taken to begin in March, so the leap day is the last day of a year. The lengths of months then follow one
 * formula: the first m months from March have (153 m + 2) / 5 days. Four hundred such years have 146,097 days.
 */
#include "algorithm/calendar.h"

#define DAYS_PER_ERA  146097 /* 400 years */
#define YEARS_PER_ERA 400
#define MARCH_0_DAYS  719468 /* from 0000-03-01 to 1970-01-01 */

/* Days from 0000-03-01 to the beginning of a year that begins in March. */
static uint64_t days_before(uint64_t year)
{
    return year * 365 + year / 4 - year / 100 + year / 400;
}

struct date calendar_date(uint64_t days)
{
    days += MARCH_0_DAYS;
    const uint64_t era = days / DAYS_PER_ERA;
    const uint64_t day_of_era = days % DAYS_PER_ERA;
    /* The year that a mean length gives is right or one too small. */
    uint64_t year = day_of_era * YEARS_PER_ERA / DAYS_PER_ERA;
    year += days_before(year + 1) <= day_of_era;
    const uint64_t day_of_year = day_of_era - days_before(year);
    const uint64_t month = (5 * day_of_year + 2) / 153; /* from March */
    const uint64_t day = day_of_year - (153 * month + 2) / 5;
    return (struct date){.year = (uint32_t) (era * YEARS_PER_ERA + year + (month >= 10)),
                         .month = (uint32_t) (month < 10 ? month + 3 : month - 9),
                         .day = (uint32_t) day + 1};
}

uint64_t calendar_month_of_day(uint64_t days)
{
    const struct date date = calendar_date(days);
    return (uint64_t) (date.year - 1970) * 12 + date.month - 1;
}

uint64_t calendar_day_of_month(uint64_t months)
{
    uint64_t year = 1970 + months / 12;
    uint64_t month = months % 12; /* from January */
    year -= month < 2;            /* to years that begin in March */
    month = (month + 10) % 12;
    return days_before(year) + (153 * month + 2) / 5 - MARCH_0_DAYS;
}
