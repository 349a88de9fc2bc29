/* SPDX-License-Identifier: Apache-2.0 */
/* A key as people read it: an address, or text in which bytes that are no plain text are percent-escaped. */
#ifndef WEIR_SIMULATE_KEY_TEXT_H
#define WEIR_SIMULATE_KEY_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#define KEY_TEXT_SIZE 800 /* of the longest key, every byte of it escaped */

/* `address`: the key is an address or a network, as fields_set_address() makes them. Returns `out`. */
char *key_text(char out[KEY_TEXT_SIZE], const char *key, size_t length, bool address);

#endif
