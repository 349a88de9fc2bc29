/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which client has which socket to the backend. One table per thread: the kernel gives a client's packets to one thread
 * (SO_REUSEPORT hashes addresses and ports), so nothing is shared.
 *
 * A socket per client, connected to the backend, lets the kernel tell replies apart and lets the backend see one port
 * per client, as it would without the gateway. It costs a descriptor each, and a system call for each client of a
 * burst.
 *
 * Invariants: at most `capacity` sessions; all of them are in one list from the newest to the oldest by their last
 * packet, and each is in the chain of its hash. Where there is no room, or no descriptor, the oldest makes way; nobody
 * loses a place while there are free ones. The hash is keyed: no client can aim at one chain.
 */
#ifndef WEIR_GATEWAY_SESSION_H
#define WEIR_GATEWAY_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address.h"

/* One end of a client's path: the client, and the address of this host that it sends to (all zero: the only one). */
struct client {
    struct address address;
    struct in6_addr local;
};

struct session {
    int fd;                /* connected to the backend; -1: free */
    uint32_t seen;         /* second of the last packet, either way */
    uint32_t next;         /* in its chain, or in the list of free ones */
    uint32_t newer, older; /* in the list of all */
    uint32_t chain;
    struct client client;
};

struct session_table {
    struct session *sessions;
    uint32_t *chains;
    uint32_t chain_mask;
    uint32_t free, newest, oldest;
    uint64_t secret[2];
    const struct address *backend;
    int epoll_fd;
    bool merges; /* asks for what the backend sends to be merged: see offload.h */
    uint64_t count, evicted;
};

/* 0 or a negative errno value. `backend` must outlive the table. */
int session_table_open(struct session_table *table, uint32_t capacity, const struct address *backend, int epoll_fd,
                       bool merges);
void session_table_close(struct session_table *table);

/* The client's session, new where there is none; NULL: no socket to be had. It is the newest then. */
struct session *session_of(struct session_table *table, const struct client *client, uint32_t now);

/* Notes that a session has just been used. */
void session_touch(struct session_table *table, struct session *session, uint32_t now);

/* Ends sessions that were silent for more than `idle` seconds. Costs nothing if there are none. */
void session_expire(struct session_table *table, uint32_t now, uint32_t idle);

#endif
