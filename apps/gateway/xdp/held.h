/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources and networks whose packets are dropped before they reach the gateway, until a time: which ones there are, by
 * address, and what was dropped of each. Where several policies deny one of them, it is held once, until the latest of
 * their times, and what is dropped counts for the policy that had it held first.
 *
 * Each held key has a number, and a line, in which the kernel's program finds it and counts. A key is let go some time
 * after its last denial has ended, and its line is given to another key only HELD_REST_NS after that: by then no packet
 * that was looked up before is under way.
 *
 * Threads: any, for all functions but held_open and held_close. Blocking: a mutex, held for some hundred instructions.
 */
#ifndef WEIR_GATEWAY_XDP_HELD_H
#define WEIR_GATEWAY_XDP_HELD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/weir.h>

#include "../network.h"
#include "drop.h"
#include "lines.h"

/* A key that has not been denied for this long after its last denial has ended is let go. */
#define HELD_IDLE_NS UINT64_C(1000000000)

#define HELD_REST_NS UINT64_C(100000000)

/* How often a key is held longer before a packet reaches the gateway again, and its log and its record: some 10 s. */
#define HELD_RENEWALS 30

struct held_key {
    weir_key key; /* its bytes are in `bytes` */
    unsigned char bytes[NETWORK_KEY_SIZE];
    bool of_bytes;                     /* the policy counts bytes */
    uint64_t told_packets, told_bytes; /* of the line's counts, those that were told of */
    uint64_t left_ns;                  /* when it was let go; 0: it is held */
    uint32_t renewals;                 /* since the gateway denied a packet */
    uint32_t line;
    uint32_t next; /* number of the next free one */
};

struct held {
    pthread_mutex_t mutex;
    struct lines lines;
    struct held_key *keys; /* by number */
    uint32_t capacity;
    uint32_t first_free, used; /* numbers from `used` on were never given */
    uint32_t count;            /* keys that are held */
};

/* What was dropped of a key since it was told of last. */
struct held_drops {
    weir_key key;
    unsigned char bytes[NETWORK_KEY_SIZE]; /* of the key */
    uint64_t packets, units;               /* units of the key's policy */
    uint64_t packet_bytes;
    struct drop_key drop;
    uint64_t until_ns; /* 0: the key is not to be renewed */
};

/* `lines` has `line_count` of them, all 0: a power of two, and at least twice the capacity. 0 or -ENOMEM. */
int held_open(struct held *held, uint32_t capacity, struct drop_line *lines, uint32_t line_count);
void held_close(struct held *held);

/*
 * Has packets of a key dropped until a time, or longer if they already are. False: there is no room. `key->data` need
 * not stay. `of_bytes`: its policy counts bytes.
 */
bool held_until(struct held *held, const struct drop_key *drop, const weir_key *key, bool of_bytes, uint64_t until_ns);

/* Has packets of a held key dropped longer, by what its limit says; not where all were let pass meanwhile. */
void held_renew(struct held *held, const struct drop_key *drop, uint64_t until_ns);

/* Keys that are held. */
uint32_t held_count(struct held *held);

/* Numbers that were ever given: those that a sweep looks at. */
uint32_t held_used(struct held *held);

/* Lets all packets pass from now on: what is denied is said anew. */
void held_release_all(struct held *held);

/*
 * Looks at the numbers from *cursor on, up to `most` of them: lets go of keys whose time is over, and writes what was
 * dropped into `out`, of `most` entries. Returns how many entries there are. *cursor is 0 again after the last number.
 */
size_t held_sweep(struct held *held, uint32_t *cursor, size_t most, uint64_t now_ns, struct held_drops *out);

#endif
