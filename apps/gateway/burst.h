/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A burst of messages that arrive in one system call, up to 64, and the datagrams they consist of.
 *
 * A message is one datagram, or as many as the kernel merged (offload.h). Room for the largest each, so that none is
 * ever cut; what is not touched costs address space alone.
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

/*
 * Room for two control messages: which of this host's addresses a packet came to, or leaves from, and how large its
 * segments are. Where one had no room, merged datagrams would be taken for one.
 */
struct packet_control {
    _Alignas(struct cmsghdr) unsigned char bytes[CMSG_SPACE(sizeof(struct in6_pktinfo)) + CMSG_SPACE(sizeof(int))];
};

struct burst {
    struct mmsghdr messages[BURST_COUNT];
    struct iovec pieces[BURST_COUNT];
    struct address from[BURST_COUNT];
    size_t segments[BURST_COUNT]; /* the size of a message's datagrams; the last may be shorter */
    struct packet_control controls[BURST_COUNT];
    unsigned char packets[BURST_COUNT][BURST_STRIDE];
};

struct datagram {
    unsigned char *data;
    size_t size;
    size_t message; /* of the burst */
};

/* How far a burst has been split. */
struct burst_cursor {
    size_t message, offset;
};

/* Makes messages `first` to `end` - 1 ready to receive; `with_address` asks for the sender's address too. */
void burst_ready(struct burst *burst, size_t first, size_t end, bool with_address);

/*
 * Receives into messages `first` and on, which are ready, and does not wait. How many came; where none came, *error is
 * the errno value that says why. `error` may be NULL.
 */
size_t burst_receive(struct burst *burst, int fd, size_t first, int *error);

/* The next datagrams of the messages before `end`, in order, up to BURST_COUNT; 0: there are no more. */
size_t burst_split(struct burst *burst, size_t end, struct burst_cursor *cursor, struct datagram *out);

#endif
