/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of pcapng, the capture format of draft-ietf-opsawg-pcapng (PCAP Next Generation Capture File Format): a
 * section header, an interface of raw IP whose times are nanoseconds, and packets with comments. libpcap reads pcapng
 * and does not write it. Numbers are in this machine's order, as the format wants.
 *
 * A packet is a UDP datagram as a socket has it: its IP and UDP headers are made of the addresses.
 */
#ifndef WEIR_GATEWAY_RECORD_PCAPNG_H
#define WEIR_GATEWAY_RECORD_PCAPNG_H

#include <stddef.h>
#include <stdint.h>

#include "../address.h"

/* What a file begins with, in any byte order. */
#define PCAPNG_MARK "\x0a\x0d\x0d\x0a"

/* The size of what begins a file, at most. */
#define PCAPNG_BEGIN_SIZE 160

/* The size of a packet's block beside the bytes of its payload, at most. */
#define PCAPNG_PACKET_SIZE 320

struct pcapng_packet {
    uint64_t time_ns;           /* since the epoch */
    const struct address *from; /* IPv4, IPv6, or an IPv6 address that stands for IPv4 */
    const struct address *to;   /* of the same kind */
    const unsigned char *data;  /* payload of UDP */
    size_t captured, size;      /* bytes of the payload that are there; that there were, up to 65507 */
    uint64_t lost;              /* packets of the same interest that were left out since the last one */
    const char *comment;        /* up to 127 bytes of UTF-8 */
};

/* Writes a section header and an interface. Returns their size. */
size_t pcapng_begin(const char *program, unsigned char out[PCAPNG_BEGIN_SIZE]);

/* Writes a packet's block. `out` has room for PCAPNG_PACKET_SIZE and `captured` bytes. Returns the block's size. */
size_t pcapng_packet(const struct pcapng_packet *packet, unsigned char *out);

#endif
