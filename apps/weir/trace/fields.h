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

/*
 * Makes an address the key: 4 bytes of IPv4, or the first `prefix` / 8 bytes of IPv6, as weir_address_form has them.
 * A name of a host stays text; one of a length that an address has gets a dot behind it, as a full name has. `scratch`
 * of KEY_MOST + 1 bytes holds the key.
 */
void fields_address(struct record *out, struct span text, unsigned prefix, char *scratch);

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
