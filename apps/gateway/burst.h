/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A burst of packets: room to receive up to 64 at a time, and to send them on.
 *
 * Room for the largest UDP packet each, so that none is ever cut; what is not touched costs address space alone.
 */
#ifndef WEIR_GATEWAY_BURST_H
#define WEIR_GATEWAY_BURST_H

#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "address.h"

#define BURST_COUNT 64
/* The largest UDP payload, and 192 bytes so that the first lines of all packets do not fall into one set of the cache.
 */
#define BURST_STRIDE (65536 + 192)
#define PACKET_SIZE  65535

/* Room for one control message that says which of this host's addresses a packet came to, or leaves from. */
struct local_control {
    _Alignas(struct cmsghdr) unsigned char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo))];
};

struct burst {
    struct mmsghdr messages[BURST_COUNT];
    struct iovec pieces[BURST_COUNT];
    struct address from[BURST_COUNT];
    struct local_control locals[BURST_COUNT];
    unsigned char packets[BURST_COUNT][BURST_STRIDE];
};

/* Makes messages `first` to `end` - 1 ready to receive; `with_address` says whether to ask from whom and to which. */
void burst_ready(struct burst *burst, size_t first, size_t end, bool with_address);

/*
 * Sends `count` messages and returns how many left. One that cannot be sent (its client is out of reach) is skipped; a
 * full socket buffer ends it.
 */
size_t burst_send(int fd, struct mmsghdr *messages, size_t count);

#endif
