/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datagrams on their way out of one socket, many in one system call and, where the kernel has it, many in one message:
 * those in a row to one address and of one size, of which the last may be shorter. They leave in the order they came.
 *
 * Where the kernel refuses a message of many, its datagrams leave one by one and none is lost. If the path's MTU was
 * the reason, smaller ones are still put together; if not, none are any more.
 */
#ifndef WEIR_GATEWAY_OUTBOX_H
#define WEIR_GATEWAY_OUTBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "address.h"
#include "burst.h"

#define OUTBOX_COUNT 64

/* A message of the outbox: `count` datagrams of `segment` bytes; size < count * segment where the last is shorter. */
struct parcel {
    size_t segment, size, count;
    struct address to; /* length 0: to where the socket is connected */
    struct in6_addr local;
    struct packet_control control;
};

struct outbox {
    int fd, family;
    const unsigned char *prefix;     /* before each datagram; stays until the outbox is flushed */
    size_t prefix_size;              /* 0: none */
    bool segments;                   /* whether the kernel takes several datagrams as one message */
    size_t segment_max;              /* the largest that were not refused; 0: each leaves alone */
    uint64_t refused;                /* errors that say so of the other end, or of the way to it */
    int refusal;                     /* the last of them */
    uint64_t added, sent, segmented; /* datagrams since it was opened; segmented: those that did not leave alone */
    uint64_t sent_bytes;
    size_t count, piece_count;
    struct parcel parcels[OUTBOX_COUNT];
    struct mmsghdr messages[OUTBOX_COUNT];
    struct iovec pieces[OUTBOX_COUNT];
};

/* `family` is the socket's. `segments`: what offload_can_send said, or false. */
void outbox_open(struct outbox *box, int fd, int family, bool segments);

/*
 * Adds a datagram, whose bytes must stay until the outbox is flushed; flushes it first where it is full. `to` NULL: the
 * socket is connected; otherwise `local` is as for local_set.
 */
void outbox_add(struct outbox *box, const struct datagram *datagram, const struct address *to,
                const struct in6_addr *local);

/* Sends what is there. What cannot be sent (its client is out of reach) is skipped; a full socket buffer ends it. */
void outbox_flush(struct outbox *box);

/* Paths change: tries all sizes again. */
void outbox_forget_sizes(struct outbox *box);

#endif
