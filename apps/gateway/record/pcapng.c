/* SPDX-License-Identifier: Apache-2.0 */
/* See pcapng.h. Sections 4.1 to 4.3 of the draft; LINKTYPE_RAW of the registry of link types: the packet is IP. */
#include "pcapng.h"

#include <string.h>

#include "../network.h"

#define BLOCK_SECTION   0x0A0D0D0AU
#define BLOCK_INTERFACE 1U
#define BLOCK_PACKET    6U

#define LINKTYPE_RAW 101

#define OPTION_END        0
#define OPTION_COMMENT    1
#define SECTION_USERAPPL  4
#define INTERFACE_NAME    2
#define INTERFACE_TSRESOL 9
#define PACKET_FLAGS      2
#define PACKET_DROPCOUNT  4
#define FLAGS_INBOUND     1U
#define COMMENT_MOST      127
#define IPV4_HEADER       20
#define IPV6_HEADER       40
#define UDP_HEADER        8
#define UDP_PROTOCOL      17
#define HOPS              64

/* Where the next bytes of a block go. */
struct writer {
    unsigned char *start;
    size_t length;
};

static void put(struct writer *w, const void *bytes, size_t size)
{
    memcpy(w->start + w->length, bytes, size);
    w->length += size;
}

static void put16(struct writer *w, uint16_t value)
{
    put(w, &value, sizeof(value));
}

static void put32(struct writer *w, uint32_t value)
{
    put(w, &value, sizeof(value));
}

/* Zeros up to a multiple of 4. */
static void pad(struct writer *w)
{
    while (w->length % 4 != 0) {
        w->start[w->length++] = 0;
    }
}

static void put_option(struct writer *w, uint16_t code, const void *value, size_t size)
{
    put16(w, code);
    put16(w, (uint16_t) size);
    put(w, value, size);
    pad(w);
}

static size_t begin_block(struct writer *w, uint32_t type)
{
    const size_t start = w->length;
    put32(w, type);
    put32(w, 0); /* the length, which end_block() knows */
    return start;
}

static void end_block(struct writer *w, size_t start)
{
    put16(w, OPTION_END);
    put16(w, 0);
    const uint32_t length = (uint32_t) (w->length - start + 4);
    memcpy(w->start + start + 4, &length, sizeof(length));
    put32(w, length);
}

size_t pcapng_begin(const char *program, unsigned char out[PCAPNG_BEGIN_SIZE])
{
    struct writer w = {.start = out};
    const uint64_t unknown_length = UINT64_MAX;
    const unsigned char nanoseconds = 9;
    size_t start = begin_block(&w, BLOCK_SECTION);
    put32(&w, 0x1A2B3C4DU); /* tells the byte order */
    put16(&w, 1);           /* version 1.0 */
    put16(&w, 0);
    put(&w, &unknown_length, sizeof(unknown_length));
    put_option(&w, SECTION_USERAPPL, program, strnlen(program, 40));
    end_block(&w, start);
    start = begin_block(&w, BLOCK_INTERFACE);
    put16(&w, LINKTYPE_RAW);
    put16(&w, 0);
    put32(&w, 0); /* a packet may have any size */
    put_option(&w, INTERFACE_NAME, "weir-gateway", strlen("weir-gateway"));
    put_option(&w, INTERFACE_TSRESOL, &nanoseconds, 1);
    end_block(&w, start);
    return w.length;
}

/* Adds bytes as 16-bit words in network order to a sum of the internet checksum (RFC 1071). */
static uint32_t add_words(uint32_t sum, const unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i + 1 < size; i += 2) {
        sum += (uint32_t) bytes[i] << 8 | bytes[i + 1];
    }
    return size % 2 != 0 ? sum + ((uint32_t) bytes[size - 1] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
    while (sum >> 16 != 0) {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return (uint16_t) ~sum;
}

static void store16(unsigned char *at, size_t value)
{
    at[0] = (unsigned char) (value >> 8);
    at[1] = (unsigned char) value;
}

static const unsigned char *bytes_of(const struct address *address)
{
    if (address->u.any.sa_family == AF_INET) {
        return (const unsigned char *) &address->u.v4.sin_addr;
    }
    return address->u.v6.sin6_addr.s6_addr + (network_is_v4(address) ? 12 : 0);
}

static const void *port_of(const struct address *address)
{
    return address->u.any.sa_family == AF_INET ? (const void *) &address->u.v4.sin_port
                                               : (const void *) &address->u.v6.sin6_port;
}

/*
 * The checksum of UDP, in the header at `udp`. IPv4 allows none, 0. IPv6 needs one, over the whole payload; of a
 * payload that was cut none can be made, and readers check none.
 */
static void sum_ipv6(unsigned char *udp, const unsigned char *addresses, const struct pcapng_packet *packet)
{
    if (packet->captured == packet->size) {
        uint32_t sum = add_words(0, addresses, 32);
        sum = add_words(sum + UDP_PROTOCOL + (uint32_t) (UDP_HEADER + packet->size), udp, UDP_HEADER);
        const uint16_t checksum = fold(add_words(sum, packet->data, packet->size));
        store16(udp + 6, checksum != 0 ? checksum : 0xffff);
    }
}

/* Writes IP's and UDP's headers. Returns their size. */
static size_t write_headers(const struct pcapng_packet *packet, unsigned char out[IPV6_HEADER + UDP_HEADER])
{
    const bool v4 = network_is_v4(packet->from) && network_is_v4(packet->to);
    const size_t ip_size = v4 ? IPV4_HEADER : IPV6_HEADER;
    unsigned char *udp = out + ip_size;
    memset(out, 0, ip_size + UDP_HEADER);
    memcpy(udp, port_of(packet->from), 2);
    memcpy(udp + 2, port_of(packet->to), 2);
    store16(udp + 4, UDP_HEADER + packet->size);
    if (v4) {
        out[0] = 0x45;
        store16(out + 2, IPV4_HEADER + UDP_HEADER + packet->size);
        out[8] = HOPS;
        out[9] = UDP_PROTOCOL;
        memcpy(out + 12, bytes_of(packet->from), 4);
        memcpy(out + 16, bytes_of(packet->to), 4);
        store16(out + 10, fold(add_words(0, out, IPV4_HEADER)));
    } else {
        out[0] = 0x60;
        store16(out + 4, UDP_HEADER + packet->size);
        out[6] = UDP_PROTOCOL;
        out[7] = HOPS;
        memcpy(out + 8, &packet->from->u.v6.sin6_addr, 16);
        memcpy(out + 24, &packet->to->u.v6.sin6_addr, 16);
        sum_ipv6(udp, out + 8, packet);
    }
    return ip_size + UDP_HEADER;
}

size_t pcapng_packet(const struct pcapng_packet *packet, unsigned char *out)
{
    struct writer w = {.start = out};
    unsigned char headers[IPV6_HEADER + UDP_HEADER];
    const size_t headers_size = write_headers(packet, headers);
    const uint32_t flags = FLAGS_INBOUND;
    const size_t start = begin_block(&w, BLOCK_PACKET);
    put32(&w, 0); /* the interface */
    put32(&w, (uint32_t) (packet->time_ns >> 32));
    put32(&w, (uint32_t) packet->time_ns);
    put32(&w, (uint32_t) (headers_size + packet->captured));
    put32(&w, (uint32_t) (headers_size + packet->size));
    put(&w, headers, headers_size);
    put(&w, packet->data, packet->captured);
    pad(&w);
    put_option(&w, OPTION_COMMENT, packet->comment, strnlen(packet->comment, COMMENT_MOST));
    put_option(&w, PACKET_FLAGS, &flags, sizeof(flags));
    put_option(&w, PACKET_DROPCOUNT, &packet->lost, sizeof(packet->lost));
    end_block(&w, start);
    return w.length;
}
