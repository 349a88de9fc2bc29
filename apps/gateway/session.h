/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which client has which socket to the backend. One table per thread: the kernel gives a client's packets to one thread
 * (SO_REUSEPORT hashes addresses and ports), so nothing is shared.
 *
 * A socket per client, connected to the backend, lets the kernel tell replies apart and lets the backend see one port
 * per client, as it would without the gateway. It costs a descriptor each, and a system call for each client of a
 * burst. Which port a client gets is in ports.h.
 *
 * Invariants: at most `capacity` sessions, each in the chain of its hash and in the shares. Where there is no room, or
 * no descriptor, one makes way (shares.h); nobody loses a place while there are free ones. The hash is keyed: no client
 * can aim at one chain. An ended session's port was given back before its socket was closed.
 */
#ifndef WEIR_GATEWAY_SESSION_H
#define WEIR_GATEWAY_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address.h"
#include "backends/view.h"
#include "ports.h"
#include "shares.h"

struct listen_socket;

/*
 * One end of a client's path: the client, the listener that it sends to, and the address of this host that it sends to
 * (all zero: the listener's only one).
 */
struct client {
    struct address address;
    struct in6_addr local;
    uint32_t listener; /* its number: see listeners.h */
};

struct session {
    int fd;          /* connected to its backend; -1: free */
    uint32_t next;   /* in its chain, or in the list of free ones */
    uint64_t seen;   /* ms of the last packet, either way */
    uint64_t name;   /* the client's: see ports_client() */
    uint16_t port;   /* of its socket; 0: it has the client's, see backends/transparent.h */
    uint8_t backend; /* its place: see backends/view.h */
    uint32_t runs;   /* of packets of the client: see loops_note() */
    struct client client;
};

/* What becomes of a session. */
enum session_change {
    SESSION_BEGINS,
    SESSION_MOVES, /* its socket is about to be closed; it has another one then */
    SESSION_ENDS,  /* its socket is about to be closed */
};

struct session_table {
    struct session *sessions;
    uint32_t *chains;
    uint32_t chain_mask, capacity, free;
    struct shares *shares;      /* of sources and networks: which session makes way */
    struct backends_view *view; /* which backend a session goes to, and may stay with */
    struct ports *ports;
    const struct listen_socket *sockets; /* by listener */
    int epoll_fd;
    bool transparent; /* its sockets have the clients' addresses: see backends/transparent.h */
    bool merges;      /* asks for what the backend sends to be merged: see offload.h */
    void (*changes)(void *arg, uint32_t number, enum session_change change); /* NULL: nobody is told */
    void *changes_arg;
    uint64_t count, moved;
    uint64_t evicted[USE_COUNT]; /* by their use then */
    uint8_t tried;               /* the backend to which a socket was opened last, or was not to be had */
    bool lacks_port;             /* no port had rested for the last client that was to have a new session */
};

/* What a table works with, and which outlives it. */
struct session_parts {
    struct backends_view *view;
    struct ports *ports;
    const struct listen_socket *sockets; /* of the worker, by listener */
    int epoll_fd;
};

/* 0 or a negative errno value. `transparent` and `changes` may be set then. */
int session_table_open(struct session_table *table, uint32_t capacity, const struct session_parts *parts, bool merges);
void session_table_close(struct session_table *table);

/*
 * The session for a packet of a client, new where there is none, and with another backend where it may not stay with
 * its own. NULL: no socket to be had, errno says why not, and `lacks_port` whether it is for want of a port;
 * ENOENT: there is no backend for new sessions. All times are those of ports_now().
 */
struct session *session_of(struct session_table *table, const struct client *client, uint64_t now);

/* Notes that a reply has come. */
void session_answered(struct session_table *table, struct session *session, uint64_t now);

/* Ends the sessions of all clients of a listener. */
void session_end_listener(struct session_table *table, uint32_t listener);
/* Ends the sessions of backends that are gone, as the view has it. */
void session_end_gone(struct session_table *table);

/* Ends sessions that were silent for more than `idle` seconds. Costs nothing if there are none. */
void session_expire(struct session_table *table, uint64_t now, uint32_t idle);

#endif
