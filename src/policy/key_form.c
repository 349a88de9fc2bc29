/* SPDX-License-Identifier: Apache-2.0 */
/* See key_form.h. */
#include "policy/key_form.h"

#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "base/percent.h"

/* Bytes of an address. */
#define V4_SIZE 4
#define V6_SIZE 16

/* Results of read_prefix without a prefix. */
#define PREFIX_NONE      (-1) /* the text has no '/' */
#define PREFIX_MALFORMED (-2) /* no number follows the '/' */

/* Reads the number behind the '/' of a text. *host_length: the characters before the '/', or all. */
static int read_prefix(const char *text, size_t *host_length)
{
    const char *slash = strchr(text, '/');
    *host_length = slash != NULL ? (size_t) (slash - text) : strlen(text);
    if (slash == NULL) {
        return PREFIX_NONE;
    }
    const size_t digits = strspn(slash + 1, "0123456789");
    const bool is_number = digits != 0 && digits <= 3 && slash[1 + digits] == '\0';
    return is_number ? (int) strtol(slash + 1, NULL, 10) : PREFIX_MALFORMED;
}

/*
 * Reads an address and its prefix, or PREFIX_NONE. Returns the bytes of the address; 0: `text` is no address. A network
 * within ::ffff:0:0/96 is one of IPv4.
 */
static size_t address_read(const char *text, unsigned char out[V6_SIZE], int *prefix)
{
    char host[INET6_ADDRSTRLEN];
    size_t length;
    *prefix = read_prefix(text, &length);
    if (*prefix == PREFIX_MALFORMED || length >= sizeof(host)) {
        return 0;
    }
    memcpy(host, text, length);
    host[length] = '\0';
    memset(out, 0, V6_SIZE);
    const size_t size = strchr(host, ':') != NULL ? V6_SIZE : V4_SIZE;
    if (inet_pton(size == V6_SIZE ? AF_INET6 : AF_INET, host, out) != 1 || *prefix > (int) (8 * size)) {
        return 0;
    }
    const size_t mapped = key_form_mapped(out, size);
    if (mapped == 0 || (*prefix != PREFIX_NONE && *prefix < (int) (8 * mapped))) {
        return size;
    }
    memmove(out, out + mapped, V4_SIZE);
    memset(out + V4_SIZE, 0, mapped);
    *prefix -= *prefix != PREFIX_NONE ? (int) (8 * mapped) : 0;
    return V4_SIZE;
}

/* Whether all bits from number `bits` on are 0. */
static bool ends_at(const unsigned char *bytes, size_t length, unsigned bits)
{
    bool zero = true;
    for (unsigned bit = bits; bit < 8 * length; bit++) {
        zero = zero && (bytes[bit / 8] >> (7 - bit % 8) & 1) == 0;
    }
    return zero;
}

/* Writes an address, with the prefix `bits` unless that is the whole address. Returns the length; 0: no room. */
static size_t address_write(char *out, size_t size, const void *bytes, size_t length, unsigned bits)
{
    unsigned char whole[V6_SIZE] = {0};
    char text[INET6_ADDRSTRLEN];
    const bool v4 = length == V4_SIZE;
    const bool is_whole = bits == 8 * (v4 ? V4_SIZE : V6_SIZE);
    memcpy(whole, bytes, length);
    if (inet_ntop(v4 ? AF_INET : AF_INET6, whole, text, sizeof(text)) == NULL) {
        return 0;
    }
    const int written = is_whole ? snprintf(out, size, "%s", text) : snprintf(out, size, "%s/%u", text, bits);
    return written > 0 && (size_t) written < size ? (size_t) written : 0;
}

/* The forms of addresses differ in v6_size: the first bytes of an IPv6 address that are the key. */

static size_t form_write(char *out, size_t size, const void *key, size_t length, size_t v6_size)
{
    const size_t mapped = key_form_mapped(key, length);
    const size_t left = length - mapped;
    return left == V4_SIZE || left == v6_size
               ? address_write(out, size, (const unsigned char *) key + mapped, left, (unsigned) (8 * left))
               : 0;
}

static size_t form_read(void *out, size_t size, const char *text, size_t v6_size)
{
    unsigned char bytes[V6_SIZE];
    int prefix;
    const size_t length = address_read(text, bytes, &prefix);
    const size_t key = length == V4_SIZE ? V4_SIZE : v6_size;
    const unsigned bits = prefix >= 0 ? (unsigned) prefix : (unsigned) (8 * length);
    if (length == 0 || key > size || bits != 8 * key || !ends_at(bytes, length, bits)) {
        return SIZE_MAX;
    }
    memcpy(out, bytes, key);
    return key;
}

#define FORM(bits, sample)                                                                                             \
    static size_t write_##bits(char *out, size_t size, const void *key, size_t length)                                 \
    {                                                                                                                  \
        return form_write(out, size, key, length, (bits) / 8);                                                         \
    }                                                                                                                  \
    static size_t read_##bits(void *out, size_t size, const char *text)                                                \
    {                                                                                                                  \
        return form_read(out, size, text, (bits) / 8);                                                                 \
    }                                                                                                                  \
    static const weir_key_form form_##bits = {write_##bits, read_##bits, "198.51.100.7 or " sample}

FORM(48, "2001:db8:1::/48");
FORM(56, "2001:db8:1:100::/56");
FORM(64, "2001:db8::/64");
FORM(128, "2001:db8::1");

static const struct {
    unsigned bits;
    const weir_key_form *form;
} forms[] = {{48, &form_48}, {56, &form_56}, {64, &form_64}, {128, &form_128}};

const weir_key_form *weir_address_form(unsigned ipv6_prefix)
{
    const weir_key_form *found = NULL;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        found = forms[i].bits == ipv6_prefix ? forms[i].form : found;
    }
    return found;
}

/* The v6_size of a form of addresses; 0: the form is of other keys. */
static size_t form_v6_size(const weir_key_form *form)
{
    size_t size = 0;
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        size = forms[i].form == form ? forms[i].bits / 8 : size;
    }
    return size;
}

size_t key_form_write(const weir_key_form *form, char *out, size_t size, const void *bytes, size_t length)
{
    if (form == NULL) {
        return percent_escape(out, bytes, length);
    }
    char text[WEIR_KEY_TEXT_SIZE];
    const size_t written = form->write(text, sizeof(text), bytes, length);
    if (written != 0 && written < sizeof(text) && 3 * written < size && percent_escape(out, text, written) == written) {
        return written;
    }
    for (size_t i = 0; i < length; i++) {
        out[3 * i] = '%';
        (void) hex_write(out + 3 * i + 1, (const unsigned char *) bytes + i, 1);
    }
    return 3 * length;
}

size_t key_form_read(const weir_key_form *form, void *out, const char *text)
{
    const bool plain = form == NULL || text[0] == '%'; /* '%': a key that the form does not know */
    const size_t read = plain ? percent_unescape(out, KEY_FORM_SIZE, text) : form->read(out, KEY_FORM_SIZE, text);
    if (read > KEY_FORM_SIZE) {
        return SIZE_MAX;
    }
    const size_t mapped = key_form_mapped(out, read);
    memmove(out, (unsigned char *) out + mapped, read - mapped);
    return read - mapped;
}

bool key_form_read_network(const weir_key_form *form, const char *text, struct key_network *out)
{
    const size_t v6_size = form_v6_size(form);
    unsigned char bytes[V6_SIZE];
    int prefix;
    const size_t length = v6_size != 0 ? address_read(text, bytes, &prefix) : 0;
    const size_t key = length == V4_SIZE ? V4_SIZE : v6_size;
    if (length == 0 || prefix < 0 || prefix >= (int) (8 * key) || !ends_at(bytes, length, (unsigned) prefix)) {
        return false;
    }
    *out = (struct key_network){.length = key, .bits = (unsigned) prefix};
    memcpy(out->bytes, bytes, key);
    return true;
}

size_t key_form_write_network(const struct key_network *network, char *out, size_t size)
{
    return address_write(out, size, network->bytes, network->length, network->bits);
}
