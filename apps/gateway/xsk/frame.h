/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of Ethernet with one UDP packet each: reading one, and writing the headers of one. Pure functions.
 *
 * A frame is plain if its IP header has no options, no extension headers and no virtual network, and if the packet is
 * no fragment. Checksums are sums of 16 bits in ones' complement (RFC 1071). Such a sum does not depend on the order of
 * bytes, so sums are those of words as this machine has them.
 */
#ifndef WEIR_GATEWAY_XSK_FRAME_H
#define WEIR_GATEWAY_XSK_FRAME_H

#include <stddef.h>
#include <stdint.h>

#define FRAME_MAC_SIZE 6

/* Of Ethernet, IPv6 and UDP; with IPv4 they have 42 bytes. */
#define FRAME_HEADERS_MAX 62

/* The two ends of a packet's way. Addresses of IPv4 are in the first 4 bytes, and the others are 0. */
struct frame_ends {
    unsigned char from[16], to[16];
    uint16_t from_port, to_port; /* in network byte order, as the addresses */
    uint16_t family;             /* 4 or 6 */
};

/* What a frame has. */
struct frame {
    struct frame_ends ends;
    unsigned char from_mac[FRAME_MAC_SIZE], to_mac[FRAME_MAC_SIZE];
    unsigned char *payload;
    size_t size;  /* of the payload */
    uint16_t sum; /* of the payload */
};

enum frame_state {
    FRAME_PLAIN,
    FRAME_ODD,     /* it is not plain, or cut off */
    FRAME_DAMAGED, /* a checksum is wrong */
};

/*
 * Reads a frame, and checks its checksums. A sender on the same host may leave the checksum of UDP to the network card,
 * and a virtual one has nothing to do: the field holds the sum of the pseudo header then, and the packet is whole. An
 * IPv4 packet may have no checksum.
 */
enum frame_state frame_read(unsigned char *bytes, size_t size, struct frame *out);

/* The sum of some bytes. */
uint16_t frame_sum(const unsigned char *bytes, size_t size);

/* The sum of `size` bytes with the sum `first`, and of what follows them. */
uint16_t frame_sum_join(uint16_t first, size_t size, uint16_t next);

/* The headers of frames between two ends, made ready once. */
struct frame_head {
    unsigned char bytes[FRAME_HEADERS_MAX];
    uint16_t size;
    uint16_t sum;    /* of the pseudo header without the length, and of the ports */
    uint16_t ip_sum; /* of the header of IPv4 without what differs from packet to packet */
};

void frame_head_make(struct frame_head *head, const struct frame_ends *ends,
                     const unsigned char from_mac[FRAME_MAC_SIZE]);

/*
 * Writes the headers in front of a payload, which has room for them there. `sum` is the payload's, `id` tells IPv4
 * packets apart. Returns where the frame begins.
 */
unsigned char *frame_put(const struct frame_head *head, const unsigned char to_mac[FRAME_MAC_SIZE],
                         unsigned char *payload, size_t size, uint16_t sum, uint16_t id);

#endif
