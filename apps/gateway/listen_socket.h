/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread's socket of one listener. A client is answered from the socket that it sent to: replies wait in an outbox
 * of each socket.
 */
#ifndef WEIR_GATEWAY_LISTEN_SOCKET_H
#define WEIR_GATEWAY_LISTEN_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "address.h"
#include "outbox.h"

struct listen_socket {
    int fd;            /* -1: there is none */
    bool asks_local;   /* the socket is on every address: see local.h */
    bool is_handed;    /* whoever started the gateway has this socket as well, and goes on to have it */
    bool merges;       /* the kernel merges what arrives */
    bool has_left;     /* the kernel gives it no new packets */
    uint64_t left_ns;  /* when it was to leave; 0: it serves */
    uint64_t until_ns; /* it is served until then, once it is to leave */
    struct address address;
    struct outbox *to_clients;
};

/*
 * Opens a socket at an address, or takes `handed`, which is one at that address; -1: none is handed. The kernel may
 * keep packets for it from now on. `offload`: asks for what offload.h has. 0, or a negative errno value.
 */
int listen_socket_open(struct listen_socket *socket, const struct address *address, int handed, bool offload);

/* Has the kernel choose by its hash again among the sockets that share the address: see forward_steer(). */
void listen_socket_steer_no_more(const struct listen_socket *socket);

/* Closes it; it may be closed already. */
void listen_socket_close(struct listen_socket *socket);

/*
 * Begins to end it without losing a packet that the kernel has given it: the socket leaves those that share its
 * address, so that others get what comes from now on. What it holds is to be read until listen_socket_is_done.
 * False: packets that come now may be lost; errno says why.
 */
bool listen_socket_leave(struct listen_socket *socket, uint64_t now_ns);

/* Whether nothing has come for long enough. `received`: packets have been read since the last call. */
bool listen_socket_is_done(struct listen_socket *socket, bool received, uint64_t now_ns);

#endif
