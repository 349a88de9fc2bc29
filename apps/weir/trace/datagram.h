/* SPDX-License-Identifier: Apache-2.0 */
/* The UDP datagram within a captured packet of IP. */
#ifndef WEIR_TRACE_DATAGRAM_H
#define WEIR_TRACE_DATAGRAM_H

#include "record.h"

struct datagram_view {
    struct address_bytes from, to;
    uint16_t from_port, to_port;
    const unsigned char *payload; /* what was captured of it */
    size_t captured, size;        /* bytes that were captured, and that there were */
};

/* What a packet is. */
enum datagram_kind {
    DATAGRAM_UDP,
    DATAGRAM_TCP,
    DATAGRAM_ICMP,
    DATAGRAM_FRAGMENT, /* of a datagram, but not its first one */
    DATAGRAM_OTHER,    /* of another protocol, or no IP */
    DATAGRAM_CUT,      /* its headers are not whole */
    DATAGRAM_KINDS
};

/* Reads a packet from its IP header on. `out` is filled for DATAGRAM_UDP. */
enum datagram_kind datagram_read(const unsigned char *packet, size_t size, struct datagram_view *out);

#endif
