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

/* Four numbers of 0 to 255, without leading zeros, as inet_pton wants them. */
static bool read_ipv4(struct span text, char *out)
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
        out[part] = (char) number;
    }
    return at == end;
}

static bool read_ipv6(struct span text, char *out)
{
    char terminated[INET6_ADDRSTRLEN];
    if (text.length >= sizeof(terminated) || memchr(text.text, ':', text.length) == NULL) {
        return false;
    }
    memcpy(terminated, text.text, text.length);
    terminated[text.length] = '\0';
    return inet_pton(AF_INET6, terminated, out) == 1;
}

void fields_address(struct record *out, struct span text, unsigned prefix, char *scratch)
{
    static const char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, (char) 0xff, (char) 0xff};
    out->key = scratch;
    out->address = true;
    if (read_ipv4(text, scratch)) {
        out->length = IPV4_SIZE;
        return;
    }
    if (read_ipv6(text, scratch)) {
        out->length = prefix / 8;
        if (memcmp(scratch, mapped, sizeof(mapped)) == 0) {
            memmove(scratch, scratch + sizeof(mapped), IPV4_SIZE);
            out->length = IPV4_SIZE;
        }
        return;
    }
    fields_text(out, text);
    if (text.length == IPV4_SIZE || text.length == prefix / 8 || text.length == IPV6_SIZE) {
        memmove(scratch, text.text, text.length);
        scratch[text.length] = '.';
        out->key = scratch;
        out->length = text.length + 1;
    }
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
