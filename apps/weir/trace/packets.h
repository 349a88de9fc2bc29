/* SPDX-License-Identifier: Apache-2.0 */
/* Captured packets of IP, through libpcap: pcap and pcapng. The key is the source address. */
#ifndef WEIR_TRACE_PACKETS_H
#define WEIR_TRACE_PACKETS_H

#include <stdio.h>

#include "bytes.h"
#include "formats.h"

struct packets;

/* Whether these first bytes of a file are those of a capture. */
bool packets_detect(const unsigned char *bytes, size_t size);

/* Takes over the stream, after an error too. NULL: *fault says why. */
struct packets *packets_open(FILE *file, const struct selection *selection, struct fault *fault);
void packets_close(struct packets *p);

/*
 * Reads a packet. 1: a record; 0: the end; -1: *fault says why. Packets that are no IP are counted in *malformed and
 * left out.
 */
int packets_next(struct packets *p, struct record *out, uint64_t *malformed, struct fault *fault);

#endif
