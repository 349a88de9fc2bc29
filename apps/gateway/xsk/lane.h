/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker's lane past the network stack: the frames of one receive queue, and what it takes to send frames on for the
 * sessions of this worker.
 *
 * A session has its socket all the same. The socket has the port, and everything that the lane cannot do goes by it:
 * each function that sends says whether it did. So a lane that lacks something loses no packet.
 *
 * A session's path begins with the first frame of its client. From then on the kernel's program hands over what the
 * backend sends to the session's port, where that arrives at the lane's queue. At other queues such a packet passes to
 * the session's socket: an AF_XDP socket gets frames of its own queue alone, and so no two workers share a session.
 *
 * The rings end where the interface goes away, and there are others when it is back. Meanwhile all goes by sockets.
 *
 * Where there are several workers, the program is told which of them a client is with, as long as the client has a
 * session: so packets of a client that go by sockets, such as fragments, are of the same session.
 *
 * Threads: one, the worker's own.
 */
#ifndef WEIR_GATEWAY_XSK_LANE_H
#define WEIR_GATEWAY_XSK_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../listen_socket.h"
#include "../session.h"
#include "../xdp/link.h"
#include "frame.h"
#include "hops.h"
#include "rings.h"

/* How frames go between a session's client and its backend. */
struct lane_path {
    bool is_open;
    uint16_t port;             /* the session's own, in host byte order */
    uint64_t backend;          /* its name: see hops.h */
    struct frame_ends replies; /* from the backend to the session */
    struct frame_head to_backend, to_client;
    unsigned char client_mac[FRAME_MAC_SIZE], own_mac[FRAME_MAC_SIZE];
};

/* What all lanes share, and the frames of one. */
struct lane_parts {
    struct rings *rings; /* NULL: there is no lane now */
    uint32_t queue;      /* as the worker */
    struct hops *hops;
    struct drop_session *sessions; /* of the kernel's program, by port; NULL: nothing is ever forwarded */
    struct xdp_link *steering;     /* NULL: there is one worker */
};

struct lane {
    struct lane_parts parts;
    struct session_table *table;
    const struct listen_socket *sockets; /* the worker's, by listener */
    struct lane_path *paths;             /* by the number of their session */
    uint32_t capacity;
    uint16_t id;                      /* of the last packet of IPv4 */
    bool waits;                       /* some frames are still to be sent */
    uint64_t received, sent, useless; /* frames; those that were damaged, or of no listener and no session */
};

/* `table` has `capacity` sessions; it and the sockets outlive the lane. 0 or -ENOMEM. */
int lane_open(struct lane *lane, const struct lane_parts *parts, struct session_table *table, uint32_t capacity,
              const struct listen_socket *sockets);
void lane_close(struct lane *lane);

/* Goes on with other rings, or with none. Those of before are not used any more, and stay their owner's. */
void lane_change(struct lane *lane, struct rings *rings);

static inline bool lane_is_open(const struct lane *lane)
{
    return lane->parts.rings != NULL;
}

/* The path of a session whose client sent this frame. NULL: it can have none. */
struct lane_path *lane_path_of(struct lane *lane, const struct session *session, const struct frame *frame);

/* The session that a backend's frame is for, and its path. NULL: there is none. */
struct session *lane_find_session(const struct lane *lane, const struct frame *frame, struct lane_path **path);

/* What stands before the payload of each packet to a backend. */
struct lane_prefix {
    const unsigned char *bytes;
    size_t size;
};

/* Sends a client's frame on to its backend. False: it is still the caller's, and its payload is as it was. */
bool lane_to_backend(struct lane *lane, const struct lane_path *path, uint8_t backend, const struct frame *frame,
                     const struct lane_prefix *prefix);

/* Sends a backend's frame on to the client. False: as above. */
bool lane_to_client(struct lane *lane, const struct lane_path *path, const struct frame *frame);

#endif
