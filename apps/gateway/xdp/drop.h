/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel's program and the gateway share. */
#ifndef WEIR_GATEWAY_XDP_DROP_H
#define WEIR_GATEWAY_XDP_DROP_H

#include <linux/types.h>

/* Prefixes of one family by which a packet is looked up, that of sources included. */
#define DROP_PREFIXES 16

/* Addresses that the gateway listens on, at most. */
#define DROP_LISTENERS 32

/* A source or a network: its address in network byte order, the bits behind the prefix 0. */
struct drop_key {
    __u8 address[16]; /* IPv4 in the first 4 bytes */
    __u8 family;      /* 4 or 6 */
    __u8 prefix;
    __u8 zero[2];
};

/* Until when packets of a key are dropped, and what was. One line each, as two cores may drop for two keys at once. */
struct drop_slot {
    __u64 until_ns; /* CLOCK_BOOTTIME; 0: packets pass */
    __u64 packets, bytes;
    __u64 unused[5];
};

/* An address that the gateway listens on. A port is written last, and cleared first. */
struct drop_listener {
    __u32 address4, address6[4]; /* in network byte order */
    __u16 port;                  /* in network byte order; 0: there is no such listener */
    __u8 is_v4, is_v6;           /* of this family */
    __u8 any;                    /* each address in the map `locals` */
    __u8 unused[7];
};

/* Whose packets are looked at. All others pass. */
struct drop_target {
    struct drop_listener listeners[DROP_LISTENERS];
    __u32 listener_count; /* no listener is behind these */
    __u8 count4, count6;  /* of the prefixes */
    __u8 prefixes4[DROP_PREFIXES], prefixes6[DROP_PREFIXES];
};

#endif
