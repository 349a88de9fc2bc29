/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as text, where printf is too dear: a report has a dozen of them, and a round thousands of reports. */
#ifndef WEIR_BASE_DECIMAL_H
#define WEIR_BASE_DECIMAL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Digits of the largest number, and the end. */
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

/* The same in hexadecimal. */
static inline size_t hexadecimal_write(char *out, uint64_t value)
{
    static const char letters[] = "0123456789abcdef";
    size_t length = 1;
    while (length < 16 && value >> (4 * length) != 0) {
        length++;
    }
    for (size_t i = 0; i < length; i++) {
        out[i] = letters[value >> (4 * (length - 1 - i)) & 15];
    }
    out[length] = '\0';
    return length;
}

#endif
