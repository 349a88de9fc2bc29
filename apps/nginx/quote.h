/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bytes that a client may have chosen, as text for the error log. nginx writes what it is given: a newline would begin
 * a line of the client's own, and an escape would command the terminal of who reads it.
 */
#ifndef WEIR_NGINX_QUOTE_H
#define WEIR_NGINX_QUOTE_H

#include <stddef.h>

/* Bytes that are quoted, at most: a cost is a number, and what is none shows by its beginning. */
#define QUOTE_MOST 64

/* Of the text: every byte as \xNN, "..." and the terminator. */
#define QUOTE_SIZE (4 * QUOTE_MOST + 4)

/* Writes a value to be put between quotes: with "..." where it is cut. Returns `out`. */
const char *quote(char out[QUOTE_SIZE], const unsigned char *value, size_t length);

#endif
