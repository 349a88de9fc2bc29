/* SPDX-License-Identifier: Apache-2.0 */
/* See fields.h. */
#include "fields.h"

#include <arpa/inet.h>
#include <string.h>

#define IPV4_SIZE 4
#define IPV6_SIZE 16

/* The greatest cost of a request: WEIR_MAX_UNITS. */
#define NUMBER_MOST UINT64_C(4398046511103)

void fields_text(struct record *out, struct span text)
{
    out->key = text.text;
    out->length = text.length < KEY_MOST ? text.length : KEY_MOST;
    out->address = false;
}

void fields_all(struct record *out)
{
    fields_text(out, (struct span){"all", 3});
}

/* Four numbers of 0 to 255, without leading zeros, as inet_pton wants them. */
static bool read_ipv4(struct span text, unsigned char *out)
{
    const char *at = text.text;
    const char *end = at + text.length;
    for (int part = 0; part < IPV4_SIZE; part++) {
        unsigned digit = at < end ? (unsigned char) *at++ - (unsigned) '0' : 10;
        unsigned number = digit;
        if (digit > 9) {
            return false;
        }
        for (int more = 0; more < 2 && at < end && (digit = (unsigned char) *at - (unsigned) '0') <= 9; more++) {
            if (number == 0) {
                return false;
            }
            number = number * 10 + digit;
            at++;
        }
        if (number > UINT8_MAX || (part < IPV4_SIZE - 1 && (at == end || *at++ != '.'))) {
            return false;
        }
        out[part] = (unsigned char) number;
    }
    return at == end;
}

static bool read_ipv6(struct span text, unsigned char *out)
{
    char terminated[INET6_ADDRSTRLEN];
    if (text.length >= sizeof(terminated) || memchr(text.text, ':', text.length) == NULL) {
        return false;
    }
    memcpy(terminated, text.text, text.length);
    terminated[text.length] = '\0';
    return inet_pton(AF_INET6, terminated, out) == 1;
}

/* A text without the blanks and quotes around it. */
static struct span strip(struct span text)
{
    while (text.length != 0 && (*text.text == ' ' || *text.text == '"')) {
        text = (struct span){text.text + 1, text.length - 1};
    }
    while (text.length != 0 && (text.text[text.length - 1] == ' ' || text.text[text.length - 1] == '"')) {
        text.length--;
    }
    return text;
}

/* The first of a list. */
static struct span first_of(struct span text)
{
    const char *comma = memchr(text.text, ',', text.length);
    return strip(comma != NULL ? (struct span){text.text, (size_t) (comma - text.text)} : text);
}

/* Whether digits stand there, and nothing else: a port. */
static bool is_port(const char *at, const char *end)
{
    const char *first = at;
    while (at < end && *at >= '0' && *at <= '9') {
        at++;
    }
    return at == end && at != first && at - first <= 5;
}

/* A text without its port: behind brackets, or behind an address that is whole without it. */
static struct span without_port(struct span text)
{
    const char *end = text.text + text.length;
    if (text.length > 2 && *text.text == '[') {
        const char *close = memchr(text.text, ']', text.length);
        const bool good = close != NULL && (close + 1 == end || (close[1] == ':' && is_port(close + 2, end)));
        return good ? (struct span){text.text + 1, (size_t) (close - text.text - 1)} : text;
    }
    const char *colon = memrchr(text.text, ':', text.length);
    return colon != NULL && is_port(colon + 1, end) ? (struct span){text.text, (size_t) (colon - text.text)} : text;
}

static struct span without_zone(struct span text)
{
    const char *zone = memchr(text.text, '%', text.length);
    return zone != NULL ? (struct span){text.text, (size_t) (zone - text.text)} : text;
}

static bool read_either(struct span text, struct address_bytes *out)
{
    out->length = IPV4_SIZE;
    if (read_ipv4(text, out->bytes)) {
        return true;
    }
    out->length = IPV6_SIZE;
    return read_ipv6(text, out->bytes);
}

void fields_unmap(struct address_bytes *address)
{
    static const char mapped[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, (char) 0xff, (char) 0xff};
    if (address->length == IPV6_SIZE && memcmp(address->bytes, mapped, sizeof(mapped)) == 0) {
        memmove(address->bytes, address->bytes + sizeof(mapped), IPV4_SIZE);
        address->length = IPV4_SIZE;
    }
}

bool fields_read_address(struct span text, struct address_bytes *out)
{
    bool good = read_either(text, out);
    if (!good) {
        const struct span first = first_of(text);
        good = read_either(first, out) || read_either(without_zone(first), out) ||
               read_either(without_zone(without_port(first)), out);
    }
    if (good) {
        fields_unmap(out);
    }
    return good;
}

bool fields_is_byte_prefix(unsigned prefix)
{
    return prefix == 128 || prefix == 64 || prefix == 56 || prefix == 48;
}

/* How many bytes the key of a whole address of so many bytes has. */
static size_t key_length(size_t address, const struct selection *s)
{
    if (address == IPV4_SIZE) {
        return s->prefix4 == 0 || s->prefix4 == 32 ? IPV4_SIZE : IPV4_SIZE + 1;
    }
    return fields_is_byte_prefix(s->prefix) ? s->prefix / 8 : IPV6_SIZE + 1;
}

void fields_set_address(struct record *out, const struct address_bytes *address, const struct selection *s,
                        char *scratch)
{
    const size_t size = address->length;
    memcpy(scratch, address->bytes, size);
    out->key = scratch;
    out->address = true;
    out->length = key_length(size, s);
    if (out->length == size + 1) { /* a network */
        const unsigned prefix = size == IPV4_SIZE ? s->prefix4 : s->prefix;
        for (size_t i = prefix / 8; i < size; i++) {
            const unsigned kept = i == prefix / 8 ? 0xff00U >> (prefix % 8) : 0;
            scratch[i] = (char) ((unsigned char) scratch[i] & kept);
        }
        scratch[size] = (char) prefix;
    }
}

static bool is_none(struct span text)
{
    return text.length == 0 || (text.length == 1 && *text.text == '-') ||
           (text.length == 7 && memcmp(text.text, "unknown", 7) == 0);
}

bool fields_address(struct record *out, struct span text, const struct selection *s, char *scratch)
{
    struct address_bytes address;
    if (fields_read_address(text, &address)) {
        fields_set_address(out, &address, s, scratch);
        return true;
    }
    text = strip(text);
    fields_text(out, text);
    if (text.length == key_length(IPV4_SIZE, s) || text.length == key_length(IPV6_SIZE, s) ||
        text.length == IPV6_SIZE) {
        memmove(scratch, text.text, text.length);
        scratch[text.length] = '.';
        out->key = scratch;
        out->length = text.length + 1;
    }
    return !is_none(first_of(text));
}

bool fields_path(struct record *out, struct span target, unsigned depth)
{
    const char *at = target.text;
    const char *end = at + target.length;
    const char *scheme = memmem(at, target.length, "://", 3);
    if (at < end && *at != '/' && scheme != NULL) {
        at = memchr(scheme + 3, '/', (size_t) (end - scheme - 3));
        if (at == NULL) {
            fields_text(out, (struct span){"/", 1});
            return true;
        }
    }
    if (at == end || *at != '/') {
        return false;
    }
    const char *first = at;
    for (unsigned segments = 0; at < end && *at != '?' && *at != '#'; at++) {
        if (*at == '/' && ++segments > depth) {
            break;
        }
    }
    fields_text(out, (struct span){first, (size_t) (at - first)});
    return true;
}

struct span fields_target(struct span request)
{
    const char *end = request.text + request.length;
    const char *first = memchr(request.text, ' ', request.length);
    if (first == NULL) {
        return request;
    }
    first++;
    const char *last = memchr(first, ' ', (size_t) (end - first));
    return (struct span){first, (size_t) ((last != NULL ? last : end) - first)};
}

bool fields_number(struct span text, uint64_t *out)
{
    uint64_t number = 0;
    for (size_t i = 0; i < text.length; i++) {
        if (text.text[i] < '0' || text.text[i] > '9' || number > NUMBER_MOST) {
            return false;
        }
        number = number * 10 + (uint64_t) (text.text[i] - '0');
    }
    *out = number;
    return text.length != 0 && number <= NUMBER_MOST;
}

const char *fields_quote_end(const char *at, const char *end)
{
    const char *first = at;
    while ((at = memchr(at, '"', (size_t) (end - at))) != NULL) {
        size_t backslashes = 0;
        while (at - backslashes > first && at[-1 - (ptrdiff_t) backslashes] == '\\') {
            backslashes++;
        }
        if (backslashes % 2 == 0) {
            return at;
        }
        at++;
    }
    return NULL;
}
