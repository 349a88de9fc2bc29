/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calendar in UTC, proleptic Gregorian: which month a time lies in, and when months begin.
 *
 * Days are counted from 1970-01-01, as Unix time counts them (86,400 seconds each: it knows no leap seconds). Months
 * are counted from January 1970.
 */
#ifndef WEIR_ALGORITHM_CALENDAR_H
#define WEIR_ALGORITHM_CALENDAR_H

#include <stdint.h>

/* A date; month and day from 1. */
struct date {
    uint32_t year, month, day;
};

struct date calendar_date(uint64_t days);

/* Months since January 1970 of the month that holds this day. */
uint64_t calendar_month_of_day(uint64_t days);

/* The first day of a month. */
uint64_t calendar_day_of_month(uint64_t months);

#endif
