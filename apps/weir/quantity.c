/* SPDX-License-Identifier: Apache-2.0 */
/* See quantity.h. */
#include "quantity.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From this many on, a duration is told in several units. */
#define SINGLE_MOST 100

struct unit {
    uint64_t ns;
    const char *name;
    const char *rate; /* "so many ..." */
};

/* Largest first. */
static const struct unit units[] = {
    {UINT64_C(86400000000000), "day", "a day"},
    {UINT64_C(3600000000000), "hour", "an hour"},
    {UINT64_C(60000000000), "minute", "a minute"},
    {UINT64_C(1000000000), "second", "a second"},
    {1000000, "millisecond", "a millisecond"},
    {1000, "microsecond", "a microsecond"},
    {1, "nanosecond", "a nanosecond"},
};
#define UNIT_COUNT (sizeof(units) / sizeof(units[0]))

void sentence_add(struct sentence *s, const char *format, ...)
{
    const size_t room = sizeof(s->text) - s->length;
    va_list arguments;
    va_start(arguments, format);
    const int n = vsnprintf(s->text + s->length, room, format, arguments);
    va_end(arguments);
    if (n > 0) {
        s->length += (size_t) n < room ? (size_t) n : room - 1;
    }
}

void quantity_number(struct sentence *s, uint64_t number)
{
    char digits[24];
    const size_t count = (size_t) snprintf(digits, sizeof(digits), "%" PRIu64, number);
    for (size_t i = 0; i < count; i++) {
        sentence_add(s, i != 0 && (count - i) % 3 == 0 ? ",%c" : "%c", digits[i]);
    }
}

static void add_count(struct sentence *s, uint64_t count, const char *unit)
{
    quantity_number(s, count);
    sentence_add(s, " %s%s", unit, count == 1 ? "" : "s");
}

void quantity_duration(struct sentence *s, uint64_t ns)
{
    for (size_t i = 0; i < UNIT_COUNT; i++) {
        const uint64_t count = ns / units[i].ns;
        if (ns % units[i].ns == 0 && count != 0 && (count < SINGLE_MOST || i == 0)) {
            add_count(s, count, units[i].name);
            return;
        }
    }
    uint64_t rest = ns;
    const char *space = "";
    for (size_t i = 0; i < UNIT_COUNT; i++) {
        if (rest >= units[i].ns) {
            sentence_add(s, "%s", space);
            add_count(s, rest / units[i].ns, units[i].name);
            rest %= units[i].ns;
            space = " ";
        }
    }
}

/* The unit that is exactly so long; NULL: none is. */
static const struct unit *whole_unit(uint64_t ns)
{
    for (size_t i = 0; i < UNIT_COUNT; i++) {
        if (units[i].ns == ns) {
            return &units[i];
        }
    }
    return NULL;
}

void quantity_rate(struct sentence *s, uint64_t period_ns)
{
    const struct unit *unit = whole_unit(period_ns);
    if (unit != NULL) {
        sentence_add(s, "%s", unit->rate);
        return;
    }
    sentence_add(s, "every ");
    quantity_duration(s, period_ns);
}

void quantity_each(struct sentence *s, const char *one, const char *more, uint64_t ns)
{
    const struct unit *unit = whole_unit(ns);
    if (unit != NULL) {
        sentence_add(s, "%s %s", one, unit->name);
        return;
    }
    sentence_add(s, "%s ", more);
    quantity_duration(s, ns);
}

/* Writes three digits of a number, without zeros at its end. */
static void write_digits(char *out, size_t size, double number)
{
    const int decimals = (number < 9.995) + (number < 99.95);
    (void) snprintf(out, size, "%.*f", decimals, number);
    if (strchr(out, '.') != NULL) {
        size_t length = strlen(out);
        while (out[length - 1] == '0') {
            length--;
        }
        out[out[length - 1] == '.' ? length - 1 : length] = '\0';
    }
}

void quantity_about(struct sentence *s, const char *before, double ns)
{
    size_t unit = 0;
    while (unit + 1 < UNIT_COUNT && ns < 0.9995 * (double) units[unit].ns) {
        unit++;
    }
    char digits[32];
    const double number = ns / (double) units[unit].ns;
    write_digits(digits, sizeof(digits), number);
    const bool one = strcmp(digits, "1") == 0;
    const bool exact = fabs(strtod(digits, NULL) - number) <= 1e-9 * number;
    sentence_add(s, "%s%s%s%s%s%s", exact ? "" : "about ", before, one && *before != '\0' ? "" : digits,
                 one && *before != '\0' ? "" : " ", units[unit].name, one ? "" : "s");
}
