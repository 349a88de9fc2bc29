/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured packets, through libpcap: pcap and pcapng. A request is a UDP datagram towards the service; the key is its
 * source, its size that of its payload. All else is left out, and counted.
 *
 * Where the command line does not name the service, it is what most of the first datagrams go to.
 */
#ifndef WEIR_TRACE_PACKETS_H
#define WEIR_TRACE_PACKETS_H

#include <stdio.h>

#include "bytes.h"
#include "datagram.h"
#include "formats.h"

struct packets;

/* What was left out. */
struct packet_counts {
    uint64_t kinds[DATAGRAM_KINDS]; /* but for DATAGRAM_UDP */
    uint64_t unseen;                /* whose first bytes were not captured, so that their kind is not known */
    uint64_t elsewhere;             /* datagrams that go to another address or port */
};

/* Whether these first bytes of a file are those of a capture. */
bool packets_detect(const unsigned char *bytes, size_t size);

/* Takes over the stream, after an error too. NULL: *fault says why. */
struct packets *packets_open(FILE *file, const struct selection *selection, struct fault *fault);
void packets_close(struct packets *p);

/* Reads the next request. 1: a record; 0: the end; -1: *fault says why. */
int packets_next(struct packets *p, struct record *out, struct fault *fault);

/* Where requests go, as far as that is known, and whether it was found by the datagrams. */
const struct service *packets_service(const struct packets *p, bool *found);

/* What was left out so far. */
const struct packet_counts *packets_counts(const struct packets *p);

#endif
