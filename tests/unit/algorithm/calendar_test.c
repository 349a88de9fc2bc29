/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dates against a walk from day to day, by the rule of leap years.
 *
 * Guards: src/algorithm/calendar.c
 */
#include "algorithm/calendar.h"

#include "support/support.h"

/* More than two whole cycles of the calendar, which has 400 years. */
#define YEARS 1000

static uint32_t days_of(uint32_t year, uint32_t month)
{
    static const uint32_t days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool leaps = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    return days[month - 1] + (month == 2 && leaps);
}

static void test_every_day_has_its_date_and_every_month_its_first_day(void **state)
{
    (void) state;
    uint64_t day = 0;
    for (uint32_t months = 0; months < YEARS * 12; months++) {
        const uint32_t year = 1970 + months / 12;
        const uint32_t month = months % 12 + 1;
        assert_int_equal(calendar_day_of_month(months), day);
        for (uint32_t i = 1; i <= days_of(year, month); i++, day++) {
            const struct date date = calendar_date(day);
            if (date.year != year || date.month != month || date.day != i) {
                fail_msg("%u-%u-%u is not %u-%u-%u", date.year, date.month, date.day, year, month, i);
            }
            assert_int_equal(calendar_month_of_day(day), months);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_day_has_its_date_and_every_month_its_first_day),
    };
    return cmocka_run_group_tests_name("unit/algorithm/calendar", tests, NULL, NULL);
}
