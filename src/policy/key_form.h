/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the keys of a policy are written for people, and read from what they write. Without a form of its own a key is
 * its bytes, percent-escaped (base/percent.h).
 *
 * A text names one key, and each key has one text. In a policy that has a form, bytes that the form does not know are
 * written with every byte escaped, so that they are no other key's text.
 */
#ifndef WEIR_POLICY_KEY_FORM_H
#define WEIR_POLICY_KEY_FORM_H

#include <stdbool.h>
#include <stddef.h>

#include "weir/weir.h"

/* Longest key that a text can name, in bytes. */
#define KEY_FORM_SIZE 1024

/* Several keys at once: those of `length` bytes that begin with these `bits`. */
struct key_network {
    size_t length;
    unsigned bits;
    unsigned char bytes[16]; /* the others are 0 */
};

/*
 * Writes a key's text, without a terminator: at most 3 characters per byte of the key, and less than `size`. `form`:
 * NULL: bytes. Returns its length.
 */
size_t key_form_write(const weir_key_form *form, char *out, size_t size, const void *bytes, size_t length);

/* Reads a key's bytes, at most KEY_FORM_SIZE. Returns how many; SIZE_MAX: it is none of the policy's keys. */
size_t key_form_read(const weir_key_form *form, void *out, const char *text);

/* Reads a network, where keys are addresses, and where it holds more than one of them. */
bool key_form_read_network(const weir_key_form *form, const char *text, struct key_network *out);

/* Its text. */
size_t key_form_write_network(const struct key_network *network, char *out, size_t size);

#endif
