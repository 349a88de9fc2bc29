/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as decimal text without printf, which is too slow for reports: a dozen numbers each, thousands per round. */
#ifndef WEIR_BASE_DECIMAL_H
#define WEIR_BASE_DECIMAL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes of the largest number, with its terminator. */
#define DECIMAL_SIZE 21

/* Writes a number in decimal, terminated; returns its length. */
static inline size_t decimal_write(char *out, uint64_t value)
{
    char digits[DECIMAL_SIZE];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char) ('0' + value % 10);
        value /= 10;
    } while (value != 0);
    const size_t length = sizeof(digits) - at;
    memcpy(out, digits + at, length);
    out[length] = '\0';
    return length;
}

#endif
