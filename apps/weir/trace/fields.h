/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a request as keys: addresses, and prefixes of paths. */
#ifndef WEIR_TRACE_FIELDS_H
#define WEIR_TRACE_FIELDS_H

#include "record.h"

/* Some bytes of a line. */
struct span {
    const char *text;
    size_t length;
};

/* Makes `text` the key of the record, cut to KEY_MOST. */
void fields_text(struct record *out, struct span text);

/* Gives the record the key that all have: "all". */
void fields_all(struct record *out);

/*
 * Makes an address the key, as the library's forms of keys have it. Of a whole IPv4 address these are its 4 bytes; of
 * IPv6 the first `prefix` / 8 bytes where that is 128, 64, 56 or 48. Of any other network they are the address with
 * zeros behind the prefix, and one byte with the prefix. An IPv6 address that stands for one of IPv4 is that one.
 * `scratch` of KEY_MOST + 1 bytes holds the key.
 */
void fields_set_address(struct record *out, const struct address_bytes *address, const struct selection *s,
                        char *scratch);

/* An IPv6 address that stands for one of IPv4 becomes that one. */
void fields_unmap(struct address_bytes *address);

/* Whether keys of IPv6 with this prefix are the first bytes of addresses. */
bool fields_is_byte_prefix(unsigned prefix);

/*
 * Reads an address as logs write it: with a port behind it, in brackets or quotes, with a zone, or the first of a list
 * with commas between. One that stands for an address of IPv4 is that one. False: it is none.
 */
bool fields_read_address(struct span text, struct address_bytes *out);

/*
 * Makes the address that a text has the key; a name of a host stays text, and one of a length that an address has gets
 * a dot behind it, as a full name has. `scratch` as above. False: the text says that there is none: "-", "", "unknown".
 */
bool fields_address(struct record *out, struct span text, const struct selection *s, char *scratch);

/*
 * Makes the first `depth` segments of a path the key, without the query: "/api/v1" of "/api/v1/users?id=7". `target` is
 * a path or a whole URL. False: it is neither.
 */
bool fields_path(struct record *out, struct span target, unsigned depth);

/* The target within a request line: "/x" of "GET /x HTTP/1.1". */
struct span fields_target(struct span request);

/* A number in decimal. False: it is none, or above 2^42 - 1. */
bool fields_number(struct span text, uint64_t *out);

/* The end of a string in double quotes: the quote that no backslash escapes; NULL: there is none. */
const char *fields_quote_end(const char *at, const char *end);

#endif
