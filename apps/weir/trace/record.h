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
    uint64_t time_ms;   /* since the epoch */
    uint64_t cost;      /* units, at least 1 */
    const char *key;    /* valid until the next record of the trace */
    size_t length;      /* of the key, 0 to KEY_MOST */
    bool address;       /* the key is an address or a network: see fields_set_address() */
    unsigned char kind; /* of a packet, by its first bytes, from 1; 0: of none */
    bool whole;         /* the trace has whole seconds alone: when in its second the request came is not known */
};

enum key_field { KEY_ADDRESS, KEY_USER, KEY_PATH, KEY_HEADER, KEY_FIELD, KEY_ALL };

/* The bytes of an address, and how many: 4 or 16; 0: none. */
struct address_bytes {
    unsigned char bytes[16];
    size_t length;
};

/* Where the datagrams go that are requests. Of a service that is not known there is neither. */
struct service {
    struct address_bytes address; /* of no length: to any */
    uint16_t port;                /* 0: to any */
};

struct packet_kinds;

/* What of a request is its time, its key and its cost. */
struct selection {
    enum key_field key;
    unsigned prefix;                  /* KEY_ADDRESS: bits of an IPv6 address that count, 1 to 128 */
    unsigned prefix4;                 /* KEY_ADDRESS: bits of an IPv4 address that count, 1 to 32; 0: all of them */
    unsigned depth;                   /* KEY_PATH: segments that count */
    const char *key_name;             /* KEY_HEADER, KEY_FIELD: which */
    bool bytes;                       /* the cost is the size in bytes; false: 1, or what a CSV says */
    bool packets;                     /* a cost is that of one packet to weir-gateway: it may be 0 bytes */
    const struct packet_kinds *kinds; /* of packets; NULL: there are none */
    struct service service;           /* of packets */
    const char *names[5];             /* JSON: the field of each enum field; NULL: a usual name */
};

/* Fields of JSON. */
enum field { FIELD_TIME, FIELD_ADDRESS, FIELD_USER, FIELD_PATH, FIELD_BYTES, FIELD_COUNT };

#endif
