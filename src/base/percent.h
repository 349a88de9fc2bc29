/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as text: printable ones as they are, others, '%' and braces as %xx. */
#ifndef WEIR_BASE_PERCENT_H
#define WEIR_BASE_PERCENT_H

#include <stddef.h>

/* Writes at most three characters per byte, and no terminator. Returns how many. */
size_t percent_escape(char *out, const void *bytes, size_t length);

/* Two digits per byte, and no terminator. Returns how many. */
size_t percent_hex(char *out, const void *bytes, size_t length);

/* The value of a digit of either case; -1: it is none. */
int percent_digit(char c);

/* Reads at most `size` bytes from a text. Returns how many; SIZE_MAX: a '%' without two digits, or too long. */
size_t percent_unescape(void *out, size_t size, const char *text);

#endif
