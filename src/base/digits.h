/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers and bytes as text without printf, which is too slow for reports: a dozen numbers each, thousands per round.
 * Hexadecimal digits are written in lower case, and read in either case. Names: decimal_, hex_.
 */
#ifndef WEIR_BASE_DIGITS_H
#define WEIR_BASE_DIGITS_H

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

/* The digit of the low four bits of `value`. */
static inline char hex_digit(uint64_t value)
{
    return "0123456789abcdef"[value & 15];
}

/* Writes two digits per byte, without a terminator; returns the number of digits. */
static inline size_t hex_write(char *out, const void *bytes, size_t length)
{
    const unsigned char *from = (const unsigned char *) bytes;
    for (size_t i = 0; i < length; i++) {
        out[2 * i] = hex_digit(from[i] >> 4);
        out[2 * i + 1] = hex_digit(from[i]);
    }
    return 2 * length;
}

/* The value of one digit; -1: not a digit. */
static inline int hex_read_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte of two digits; -1: not two digits. The second character is read only if the first is a digit. */
static inline int hex_read_byte(const char *digits)
{
    const int high = hex_read_digit(digits[0]);
    const int low = high >= 0 ? hex_read_digit(digits[1]) : -1;
    return low >= 0 ? high * 16 + low : -1;
}

#endif
