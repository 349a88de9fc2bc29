/* SPDX-License-Identifier: Apache-2.0 */
/* See datagram.h. RFC 791, RFC 8200 and RFC 768. */
#include "datagram.h"

#include <string.h>

#define IPV4_LEAST  20
#define IPV6_HEADER 40
#define UDP_HEADER  8

enum { PROTOCOL_ICMP = 1, PROTOCOL_TCP = 6, PROTOCOL_UDP = 17, PROTOCOL_ICMP6 = 58 };

/* The headers of IPv6 that lead to another one. */
enum { NEXT_HOP_BY_HOP = 0, NEXT_ROUTING = 43, NEXT_FRAGMENT = 44, NEXT_AUTHENTICATION = 51, NEXT_OPTIONS = 60 };

static unsigned number_at(const unsigned char *at)
{
    return (unsigned) at[0] << 8 | at[1];
}

static enum datagram_kind kind_of(unsigned protocol)
{
    switch (protocol) {
    case PROTOCOL_UDP:
        return DATAGRAM_UDP;
    case PROTOCOL_TCP:
        return DATAGRAM_TCP;
    case PROTOCOL_ICMP:
    case PROTOCOL_ICMP6:
        return DATAGRAM_ICMP;
    default:
        return DATAGRAM_OTHER;
    }
}

/* The UDP header at `at`; `rest`: what the IP header says is behind it. */
static enum datagram_kind read_udp(const unsigned char *packet, size_t size, size_t at, size_t rest,
                                   struct datagram_view *out)
{
    if (at + UDP_HEADER > size) {
        return DATAGRAM_CUT;
    }
    const size_t length = number_at(packet + at + 4);
    out->from_port = (uint16_t) number_at(packet + at);
    out->to_port = (uint16_t) number_at(packet + at + 2);
    if ((length != 0 && length < UDP_HEADER) || (length == 0 && rest < UDP_HEADER)) {
        return DATAGRAM_CUT;
    }
    out->size = (length != 0 ? length : rest) - UDP_HEADER; /* 0: larger than the field can say */
    out->payload = packet + at + UDP_HEADER;
    out->captured = size - at - UDP_HEADER < out->size ? size - at - UDP_HEADER : out->size;
    return DATAGRAM_UDP;
}

static enum datagram_kind read_ipv4(const unsigned char *packet, size_t size, struct datagram_view *out)
{
    const size_t header = size >= IPV4_LEAST ? (size_t) (packet[0] & 0xf) * 4 : 0;
    if (header < IPV4_LEAST) {
        return DATAGRAM_CUT;
    }
    const enum datagram_kind kind = kind_of(packet[9]);
    if (kind != DATAGRAM_UDP) {
        return kind;
    }
    if ((number_at(packet + 6) & 0x1fff) != 0) {
        return DATAGRAM_FRAGMENT;
    }
    const size_t total = number_at(packet + 2);
    out->from.length = out->to.length = 4;
    memcpy(out->from.bytes, packet + 12, 4);
    memcpy(out->to.bytes, packet + 16, 4);
    return read_udp(packet, size, header, total > header ? total - header : 0, out);
}

static enum datagram_kind read_ipv6(const unsigned char *packet, size_t size, struct datagram_view *out)
{
    size_t at = IPV6_HEADER;
    if (size < IPV6_HEADER) {
        return DATAGRAM_CUT;
    }
    unsigned next = packet[6];
    const size_t end = IPV6_HEADER + number_at(packet + 4);
    out->from.length = out->to.length = 16;
    memcpy(out->from.bytes, packet + 8, 16);
    memcpy(out->to.bytes, packet + 24, 16);
    while (next == NEXT_HOP_BY_HOP || next == NEXT_ROUTING || next == NEXT_FRAGMENT || next == NEXT_AUTHENTICATION ||
           next == NEXT_OPTIONS) {
        if (at + 8 > size) {
            return DATAGRAM_CUT;
        }
        if (next == NEXT_FRAGMENT && (number_at(packet + at + 2) & 0xfff8) != 0) {
            return kind_of(packet[at]) == DATAGRAM_UDP ? DATAGRAM_FRAGMENT : kind_of(packet[at]);
        }
        const size_t length = next == NEXT_FRAGMENT         ? 8
                              : next == NEXT_AUTHENTICATION ? ((size_t) packet[at + 1] + 2) * 4
                                                            : ((size_t) packet[at + 1] + 1) * 8;
        next = packet[at];
        at += length;
    }
    const enum datagram_kind kind = kind_of(next);
    return kind == DATAGRAM_UDP ? read_udp(packet, size, at, end > at ? end - at : 0, out) : kind;
}

enum datagram_kind datagram_read(const unsigned char *packet, size_t size, struct datagram_view *out)
{
    const unsigned version = size != 0 ? packet[0] >> 4 : 0;
    return version == 4 ? read_ipv4(packet, size, out) : version == 6 ? read_ipv6(packet, size, out) : DATAGRAM_OTHER;
}
