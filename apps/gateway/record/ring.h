/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bounded queue of denied packets, from one worker to the thread that writes them. A packet that has no room is lost.
 *
 * Ordering:
 *   [G1] release of `written` in ring_push: pairs with the acquire in ring_first: a packet is whole before it is seen
 *   [G2] release of `read` in ring_drop: pairs with the acquire in ring_next: a packet was read before it is
 *        overwritten
 * Progress: wait-free, both sides. Threads: one that pushes, one that reads.
 */
#ifndef WEIR_GATEWAY_RECORD_RING_H
#define WEIR_GATEWAY_RECORD_RING_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "../address.h"

struct ring_packet {
    uint64_t time_ns;    /* since the epoch */
    uint64_t stands_for; /* packets, itself included */
    struct address from, to;
    uint32_t size, captured; /* bytes of the payload that there were, and that are in `data` */
    uint32_t policy;         /* index of the one that denied the packet */
    unsigned char data[];
};

struct ring {
    unsigned char *slots;
    size_t slot_size, count; /* a power of two */
    _Alignas(64) _Atomic uint64_t written;
    _Alignas(64) _Atomic uint64_t read;
};

/* Room for packets of up to `snap` bytes of payload. 0 or -ENOMEM. */
int ring_open(struct ring *ring, size_t snap);
void ring_close(struct ring *ring);

/* Where the next packet is written, before ring_push(). NULL: there is no room. */
struct ring_packet *ring_next(struct ring *ring);
void ring_push(struct ring *ring);

/* The packet that has been there longest, until ring_drop(). NULL: there is none. */
const struct ring_packet *ring_first(struct ring *ring);
void ring_drop(struct ring *ring);

#endif
