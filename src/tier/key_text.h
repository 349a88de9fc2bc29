/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A key as a person reads it, in the names of records and elsewhere: printable bytes as they are, others as %xx; of a
 * key that is hashed, or longer than is kept, what is kept of it, '~' and the hash.
 */
#ifndef WEIR_TIER_KEY_TEXT_H
#define WEIR_TIER_KEY_TEXT_H

#include <stddef.h>

#include "tier/table.h"

/* Of the longest: every byte escaped; and the end. */
#define KEY_TEXT_SIZE (3 * NOTE_KEY_SIZE + 1)

_Static_assert(3 * NOTE_KEY_PREFIX + 1 + 2 * 16 < KEY_TEXT_SIZE, "a hashed key fits as well");

/* `key`, `length` and `flags` as in a note. Terminated; returns its length. */
size_t key_text_write(char out[KEY_TEXT_SIZE], const unsigned char *key, size_t length, unsigned flags);

#endif
