/* SPDX-License-Identifier: Apache-2.0 */
/* See units.h. */
#include "units.h"

#include "weir/weir.h"

static bool is_digit(unsigned char c)
{
    return c >= '0' && c <= '9';
}

static bool is_separator(unsigned char c)
{
    return c == ',' || c == ':' || c == ' ';
}

static uint64_t add_up_to_most(uint64_t a, uint64_t b)
{
    return a < WEIR_MAX_UNITS - b ? a + b : WEIR_MAX_UNITS;
}

/* Reads a number from *at on. False: there is none. */
static bool read_number(const unsigned char **at, const unsigned char *end, uint64_t *out)
{
    const unsigned char *const first = *at;
    uint64_t number = 0;
    for (; *at < end && is_digit(**at); ++*at) {
        number = number < WEIR_MAX_UNITS ? number * 10 + (uint64_t) (**at - '0') : number;
    }
    if (*at == first) {
        return false;
    }
    number = number < WEIR_MAX_UNITS ? number : WEIR_MAX_UNITS;
    bool part = false;
    if (*at < end && **at == '.') {
        for (++*at; *at < end && is_digit(**at); ++*at) {
            part = part || **at != '0';
        }
    }
    *out = add_up_to_most(number, part);
    return true;
}

bool units_read(const unsigned char *text, size_t length, uint64_t *out)
{
    const unsigned char *at = text;
    const unsigned char *const end = at + length;
    uint64_t sum = 0;
    while (at < end) {
        uint64_t number = 0;
        if (is_separator(*at)) {
            at++;
            continue;
        }
        if (*at == '-') {
            at++;
        } else if (!read_number(&at, end, &number)) {
            return false;
        }
        if (at < end && !is_separator(*at)) {
            return false;
        }
        sum = add_up_to_most(sum, number);
    }
    *out = sum;
    return true;
}
