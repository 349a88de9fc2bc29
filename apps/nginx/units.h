/* SPDX-License-Identifier: Apache-2.0 */
/* Units from the text of a variable: a cost, or what a request turned out to have used. */
#ifndef WEIR_NGINX_UNITS_H
#define WEIR_NGINX_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Reads numbers, and adds them up: variables of upstreams have a number for each server that was asked, separated by
 * commas, colons and spaces, and "-" for a server without an answer. A number with a fraction is rounded up. A sum
 * above WEIR_MAX_UNITS is WEIR_MAX_UNITS. False: the text has anything else. An empty text is 0.
 */
bool units_read(const unsigned char *text, size_t length, uint64_t *out);

#endif
