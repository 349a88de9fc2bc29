/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel's program and the gateway share. */
#ifndef WEIR_GATEWAY_XDP_DROP_H
#define WEIR_GATEWAY_XDP_DROP_H

#include <linux/types.h>

/* Prefixes of one family by which a packet is looked up, that of sources included. */
#define DROP_PREFIXES 16

/* Addresses that the gateway listens on, at most. */
#define DROP_LISTENERS 32

/* A source or a network: its address in network byte order, the bits behind the prefix 0. No key has family 0. */
struct drop_key {
    __u8 address[16]; /* IPv4 in the first 4 bytes */
    __u8 family;      /* 4 or 6 */
    __u8 prefix;
    __u8 zero[6];
} __attribute__((aligned(8)));

/* In place of a prefix, in the map `locals`: not an address of this host, but one that all on a wire listen to. */
#define DROP_BROADCAST 1

#define DROP_KEY_WORDS (sizeof(struct drop_key) / sizeof(__u64))

/*
 * A key whose packets are dropped until a time, and what was dropped of it. A key is in its home, which is the line
 * that drop_home() says, or in one of the next DROP_FARTHEST lines. A packet that is looked up costs one line of the
 * processor's cache in most cases.
 */
struct drop_line {
    __u64 until_ns; /* CLOCK_BOOTTIME; 0: packets pass */
    __u64 packets, bytes;
    struct drop_key key;
    __u32 farthest; /* of the keys whose home this line is, none is farther behind */
    __u32 number;   /* the gateway's, one more; 0: the line is free. The program does not read it. */
    __u64 unused;
};

/* A power of two. */
#define DROP_LINES 131072

#define DROP_FARTHEST 15

/*
 * A time that is farther away than this is to come for as long as the kernel's jiffies stay the same: see past_ns(). A
 * jiffy is 10 ms at most, and the processor that counts jiffies may be late. A held key's time is farther away than
 * this most of the time, so few packets cost a reading of the clock.
 */
#define DROP_SURE_NS 100000000

/*
 * Mixes the bits of a word: mix13 of David Stafford (2011), as in splitmix64. A program of the kernel has no product of
 * 128 bits, as ../mix.h takes.
 */
static inline __attribute__((always_inline)) __u64 drop_mix(__u64 word)
{
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9;
    word = (word ^ word >> 27) * 0x94d049bb133111eb;
    return word ^ word >> 31;
}

/* Where a key is looked for first. With a secret that senders of packets do not know: none can aim at one line. */
static inline __attribute__((always_inline)) __u32 drop_home(const __u64 secret[2], const __u64 words[DROP_KEY_WORDS],
                                                             __u32 lines)
{
    const __u64 first = drop_mix(words[0] ^ secret[0]);
    return (__u32) drop_mix(first ^ words[1] ^ secret[1] ^ words[2] * 0x9e3779b97f4a7c15) & (lines - 1);
}

/* Receive queues whose packets the gateway may take past the network stack. */
#define DROP_QUEUES 64

/* Longer frames go to the network stack. */
#define DROP_FRAME_MOST 1600

/*
 * A session of the gateway, by its own port: packets of its backend to it are taken past the network stack. `queue` is
 * written last, and cleared first. A cache line each.
 */
struct drop_session {
    __u32 local[4], backend[4]; /* addresses in network byte order; IPv4 in the first */
    __u16 backend_port;         /* in network byte order */
    __u16 family;               /* 4 or 6 */
    __u32 queue;                /* one more than the number of the queue that the session belongs to; 0: none */
    __u32 session;              /* its number; the program does not read it */
    __u32 unused[5];
};

/* A client of a listener. IPv4 is in the first 4 bytes of the address. */
struct drop_flow {
    __u32 client[4];
    __u16 client_port, listen_port; /* in network byte order, as the address */
    __u16 family;                   /* 4 or 6 */
    __u16 zero;
};

/* Which socket a client's packets are for: that of a listener and a worker, by their numbers. */
#define DROP_SOCKETS                  (DROP_LISTENERS * DROP_QUEUES)
#define DROP_SOCKET(listener, worker) ((listener) *DROP_QUEUES + (worker))

/* An address that the gateway listens on. A port is written last, and cleared first. */
struct drop_listener {
    __u32 address4, address6[4]; /* in network byte order */
    __u16 port;                  /* in network byte order; 0: there is no such listener */
    __u8 is_v4, is_v6;           /* of this family */
    __u8 any;                    /* each address in the map `locals` */
    __u8 forwards;               /* its packets may be taken past the network stack */
    __u8 unused[6];
};

/* Whose packets are looked at. All others pass. */
struct drop_target {
    struct drop_listener listeners[DROP_LISTENERS];
    __u32 listener_count; /* no listener is behind these */
    __u8 count4, count6;  /* of the prefixes */
    __u8 prefixes4[DROP_PREFIXES], prefixes6[DROP_PREFIXES];
    __u8 forwards;   /* packets are taken past the network stack */
    __u8 is_generic; /* generic XDP: see passes_by() */
    __u8 steers;     /* there are several workers, and `flows` has which of them a client is with */
    __u8 mac[6];     /* the interface's own */
    __u64 secret[2]; /* of drop_home() */
};

#endif
