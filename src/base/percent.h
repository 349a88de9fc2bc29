/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as text: printable ASCII unchanged; all other bytes, '%' and braces as %xx. */
#ifndef WEIR_BASE_PERCENT_H
#define WEIR_BASE_PERCENT_H

#include <stddef.h>

/* Writes at most three characters per byte, without a terminator. Returns the number of characters. */
size_t percent_escape(char *out, const void *bytes, size_t length);

/* Reads at most `size` bytes from a text. Returns the number of bytes; SIZE_MAX: a '%' without two digits, or too long.
 */
size_t percent_unescape(void *out, size_t size, const char *text);

#endif
