/* SPDX-License-Identifier: Apache-2.0 */
/* One request of a trace, and what the command line chose of it. */
#ifndef WEIR_TRACE_RECORD_H
#define WEIR_TRACE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The most bytes of a key. Of a longer one the first so many count. */
#define KEY_MOST 255

struct record {
    uint64_t time_ms; /* since the epoch */
    uint64_t cost;    /* units, at least 1 */
    const char *key;  /* valid until the next record of the trace */
    size_t length;    /* of the key, 0 to KEY_MOST */
    bool address;     /* the key is 4 bytes of IPv4, or the prefix of an IPv6 address */
    bool whole;       /* the trace has whole seconds alone: when in its second the request came is not known */
};

enum key_field { KEY_ADDRESS, KEY_USER, KEY_PATH, KEY_HEADER, KEY_FIELD };

/* What of a request is its time, its key and its cost. */
struct selection {
    enum key_field key;
    unsigned prefix;       /* KEY_ADDRESS: bits of an IPv6 address that count; 128, 64, 56 or 48 */
    unsigned depth;        /* KEY_PATH: segments that count */
    const char *key_name;  /* KEY_HEADER, KEY_FIELD: which */
    bool bytes;            /* the cost is the size in bytes; false: 1, or what a CSV says */
    const char *names[5];  /* JSON: the field of each enum field; NULL: a usual name */
    const char *names_own; /* what the names lie in, for the owner to free */
};

/* Fields of JSON. */
enum field { FIELD_TIME, FIELD_ADDRESS, FIELD_USER, FIELD_PATH, FIELD_BYTES, FIELD_COUNT };

#endif
