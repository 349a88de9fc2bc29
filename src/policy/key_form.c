/* SPDX-License-Identifier: Apache-2.0 */
/* See key_form.h. */
#include "policy/key_form.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/digits.h"
#include "base/numbers.h"
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

/* The first `bits` bits of an address of IPv6, which need not be aligned. */
static size_t key_of_v6(const struct sockaddr *address, unsigned bits, uint8_t out[V6_SIZE])
{
    uint8_t bytes[V6_SIZE];
    memcpy(bytes, (const unsigned char *) address + offsetof(struct sockaddr_in6, sin6_addr), sizeof(bytes));
    const size_t mapped = key_form_mapped(bytes, sizeof(bytes));
    if (mapped != 0) {
        memcpy(out, bytes + mapped, V4_SIZE);
        return V4_SIZE;
    }
    for (unsigned bit = bits; bit < 8 * V6_SIZE; bit++) {
        bytes[bit / 8] &= (uint8_t) ~(0x80U >> bit % 8);
    }
    const size_t length = max_u64((bits + 7) / 8, V4_SIZE + 1); /* no key of IPv4 */
    memcpy(out, bytes, length);
    return length;
}

size_t weir_address_key(const struct sockaddr *address, unsigned ipv6_prefix, uint8_t out[16])
{
    sa_family_t family = AF_UNSPEC;
    if (address != NULL) {
        memcpy(&family, (const unsigned char *) address + offsetof(struct sockaddr, sa_family), sizeof(family));
    }
    if (family == AF_INET) {
        memcpy(out, (const unsigned char *) address + offsetof(struct sockaddr_in, sin_addr), V4_SIZE);
        return V4_SIZE;
    }
    const unsigned bits = ipv6_prefix < 8 * V6_SIZE ? ipv6_prefix : 8 * V6_SIZE;
    return family == AF_INET6 ? key_of_v6(address, bits, out) : 0;
}

/* Keys that are networks: an address, and a byte with the prefix. */

static size_t network_write(char *out, size_t size, const void *key, size_t length)
{
    const unsigned char *bytes = key;
    char text[INET6_ADDRSTRLEN];
    if (length == V6_SIZE + 1 && key_form_mapped(bytes, V6_SIZE) != 0 && bytes[V6_SIZE] >= 8 * (V6_SIZE - V4_SIZE)) {
        return 0; /* a network of IPv4 has another key */
    }
    if ((length != V4_SIZE + 1 && length != V6_SIZE + 1) || bytes[length - 1] > 8 * (length - 1) ||
        !ends_at(bytes, length - 1, bytes[length - 1]) ||
        inet_ntop(length == V4_SIZE + 1 ? AF_INET : AF_INET6, bytes, text, sizeof(text)) == NULL) {
        return 0;
    }
    const int written = snprintf(out, size, "%s/%u", text, (unsigned) bytes[length - 1]);
    return written > 0 && (size_t) written < size ? (size_t) written : 0;
}

static size_t network_read(void *out, size_t size, const char *text)
{
    unsigned char bytes[V6_SIZE];
    int prefix;
    const size_t length = address_read(text, bytes, &prefix);
    if (length == 0 || prefix < 0 || length + 1 > size || !ends_at(bytes, length, (unsigned) prefix)) {
        return SIZE_MAX;
    }
    memcpy(out, bytes, length);
    ((unsigned char *) out)[length] = (unsigned char) prefix;
    return length + 1;
}

/* A form for each prefix: a form knows by its place which keys are its own. */
#define NETWORK(sample)                                                                                                \
    {                                                                                                                  \
        network_write, network_read, sample                                                                            \
    }
#define FOUR(sample)    NETWORK(sample), NETWORK(sample), NETWORK(sample), NETWORK(sample)
#define SIXTEEN(sample) FOUR(sample), FOUR(sample), FOUR(sample), FOUR(sample)
#define SAMPLE4         "198.51.100.0/24"
#define SAMPLE6         "2001:db8:1::/48"

static const weir_key_form networks4[] = {SIXTEEN(SAMPLE4), SIXTEEN(SAMPLE4), NETWORK(SAMPLE4)};
static const weir_key_form networks6[] = {SIXTEEN(SAMPLE6), SIXTEEN(SAMPLE6), SIXTEEN(SAMPLE6),
                                          SIXTEEN(SAMPLE6), SIXTEEN(SAMPLE6), SIXTEEN(SAMPLE6),
                                          SIXTEEN(SAMPLE6), SIXTEEN(SAMPLE6), NETWORK(SAMPLE6)};

_Static_assert(sizeof(networks4) / sizeof(networks4[0]) == 33 && sizeof(networks6) / sizeof(networks6[0]) == 129,
               "a form for each prefix of each family");

const weir_key_form *weir_network_form(unsigned ip_version, unsigned prefix)
{
    if (prefix != 0 && ip_version == 4 && prefix <= 32) {
        return &networks4[prefix];
    }
    return prefix != 0 && ip_version == 6 && prefix <= 128 ? &networks6[prefix] : NULL;
}

/* The prefix of a form among these, which is its place; 0: it is none of them. */
static unsigned place_of(const weir_key_form *form, const weir_key_form *first, size_t count)
{
    const uintptr_t offset = (uintptr_t) form - (uintptr_t) first;
    return offset < count * sizeof(*first) ? (unsigned) (offset / sizeof(*first)) : 0;
}

/* The prefix of a form of networks; 0: it is none of this family. */
static unsigned network_bits(const weir_key_form *form, unsigned ip_version)
{
    return ip_version == 4 ? place_of(form, networks4, sizeof(networks4) / sizeof(networks4[0]))
                           : place_of(form, networks6, sizeof(networks6) / sizeof(networks6[0]));
}

bool key_form_layout(const weir_key_form *form, struct key_layout *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        if (forms[i].form == form) {
            out->v4.length = V4_SIZE;
            out->v4.bits = 8 * V4_SIZE;
            out->v6.length = forms[i].bits / 8;
            out->v6.bits = forms[i].bits;
            return true;
        }
    }
    out->v4.bits = network_bits(form, 4);
    out->v4.length = out->v4.bits != 0 ? V4_SIZE + 1 : 0;
    out->v6.bits = network_bits(form, 6);
    out->v6.length = out->v6.bits != 0 ? V6_SIZE + 1 : 0;
    out->is_network = out->v4.bits != 0 || out->v6.bits != 0;
    return out->is_network;
}

void key_form_example(const weir_key_form *form, char *out, size_t size)
{
    static const unsigned char v4[V4_SIZE] = {198, 51, 100};
    static const unsigned char v6[V6_SIZE] = {0x20, 0x01, 0x0d, 0xb8, 0, 1};
    struct key_layout layout;
    unsigned char bytes[V6_SIZE] = {0};
    if (!key_form_layout(form, &layout) || !layout.is_network) {
        (void) snprintf(out, size, "%s", form->example);
        return;
    }
    const bool is_v4 = layout.v4.length != 0;
    const unsigned bits = is_v4 ? layout.v4.bits : layout.v6.bits;
    memcpy(bytes, is_v4 ? v4 : v6, is_v4 ? sizeof(v4) : sizeof(v6));
    for (unsigned bit = bits; bit < 8 * V6_SIZE; bit++) {
        bytes[bit / 8] &= (unsigned char) ~(0x80U >> bit % 8);
    }
    (void) inet_ntop(is_v4 ? AF_INET : AF_INET6, bytes, out, (socklen_t) size);
    (void) snprintf(out + strlen(out), size - strlen(out), "/%u", bits);
}

/* Whether a key that a form knows is a network of another size. */
static bool is_other_network(const weir_key_form *form, const unsigned char *bytes, size_t length)
{
    const unsigned bits4 = network_bits(form, 4);
    const unsigned bits6 = network_bits(form, 6);
    return (bits4 != 0 && (length != V4_SIZE + 1 || bytes[length - 1] != bits4)) ||
           (bits6 != 0 && (length != V6_SIZE + 1 || bytes[length - 1] != bits6));
}

size_t key_form_write(const weir_key_form *form, char *out, size_t size, const void *bytes, size_t length)
{
    if (form == NULL) {
        return percent_escape(out, bytes, length);
    }
    char text[WEIR_KEY_TEXT_SIZE];
    const size_t written =
        length != 0 && is_other_network(form, bytes, length) ? 0 : form->write(text, sizeof(text), bytes, length);
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
    if (read > KEY_FORM_SIZE || (!plain && read != 0 && is_other_network(form, out, read))) {
        return SIZE_MAX;
    }
    const size_t mapped = key_form_mapped(out, read);
    memmove(out, (unsigned char *) out + mapped, read - mapped);
    return read - mapped;
}

bool key_form_read_network(const weir_key_form *form, const char *text, struct key_network *out)
{
    struct key_layout layout;
    unsigned char bytes[V6_SIZE];
    int prefix;
    const size_t length = key_form_layout(form, &layout) ? address_read(text, bytes, &prefix) : 0;
    const unsigned bits = length == V4_SIZE ? layout.v4.bits : layout.v6.bits;
    if (length == 0 || prefix < 0 || prefix >= (int) bits || !ends_at(bytes, length, (unsigned) prefix)) {
        return false;
    }
    *out = (struct key_network){.length = length == V4_SIZE ? layout.v4.length : layout.v6.length,
                                .bits = (unsigned) prefix};
    memcpy(out->bytes, bytes, out->length < length ? out->length : length);
    return true;
}

size_t key_form_write_network(const struct key_network *network, char *out, size_t size)
{
    const size_t length = network->length == V4_SIZE + 1   ? V4_SIZE
                          : network->length == V6_SIZE + 1 ? V6_SIZE
                                                           : network->length; /* of an address, for keys of networks */
    return address_write(out, size, network->bytes, length, network->bits);
}
