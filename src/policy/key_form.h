/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys of a policy as text: how they are written for people, and read from what people write. In a policy without a
 * form a key's text is its bytes, percent-escaped (base/percent.h).
 *
 * A text names one key, and each key has one text. In a policy with a form, a key that the form does not know is
 * written with every byte escaped, so that its text is no other key's.
 *
 * An IPv6 address that stands for one of IPv4, ::ffff:198.51.100.7, is that address everywhere: weir_make_key makes the
 * same key of both, and so does what reads a key from text.
 */
#ifndef WEIR_POLICY_KEY_FORM_H
#define WEIR_POLICY_KEY_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "weir/weir.h"

/* Longest key that a text can name, in bytes. */
#define KEY_FORM_SIZE 1024

/* Longest key that is an address or a network, in bytes. */
#define KEY_FORM_ADDRESS_SIZE 17

/* All keys of `length` bytes whose first `bits` bits are those of `bytes`. */
struct key_network {
    size_t length;
    unsigned bits;
    unsigned char bytes[KEY_FORM_ADDRESS_SIZE]; /* the others are 0 */
};

/* The keys of a form of addresses or of networks: how long they are, and how many bits of an address they have. */
struct key_layout {
    struct {
        size_t length; /* in bytes; 0: there are no keys of this family */
        unsigned bits;
    } v4, v6;
    bool is_network; /* the last byte is the number of bits */
};

/* So many bytes of a key are to be left out: of an IPv6 address that stands for one of IPv4 the first 12. */
static inline size_t key_form_mapped(const void *bytes, size_t length)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    return length == 16 && memcmp(bytes, mapped, sizeof(mapped)) == 0 ? sizeof(mapped) : 0;
}

/*
 * Writes a key's text, without a terminator: at most 3 characters per byte of the key, and less than `size`. Returns
 * its length. `form` NULL: the policy has none.
 */
size_t key_form_write(const weir_key_form *form, char *out, size_t size, const void *bytes, size_t length);

/* Reads a key's bytes, at most KEY_FORM_SIZE, from its text. Returns how many; SIZE_MAX: no key has this text. */
size_t key_form_read(const weir_key_form *form, void *out, const char *text);

/* False: the keys of this form are no addresses and no networks. */
bool key_form_layout(const weir_key_form *form, struct key_layout *out);

/* Writes an example of a key's text, for a sentence. */
void key_form_example(const weir_key_form *form, char *out, size_t size);

/* Reads a network of several keys. False: `text` is none, or the policy's keys are no addresses and no networks. */
bool key_form_read_network(const weir_key_form *form, const char *text, struct key_network *out);

/* Writes the text of a network, such as "198.51.100.0/24". Returns its length; 0: no room. */
size_t key_form_write_network(const struct key_network *network, char *out, size_t size);

#endif
