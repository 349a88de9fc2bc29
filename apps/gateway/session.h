/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which client has which socket to the backend. One table per thread: the kernel gives a client's packets to one thread
 * (SO_REUSEPORT hashes addresses and ports), so nothing is shared.
 *
 * Fixed capacity. A new client in a full set takes the place of the one that was silent longest.
 */
#ifndef WEIR_GATEWAY_SESSION_H
#define WEIR_GATEWAY_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include "address.h"

#define SESSION_WAYS 8

struct session {
    int fd;        /* connected to the backend; -1: free */
    uint32_t seen; /* seconds */
    struct address client;
};

struct session_table {
    struct session *sessions;
    size_t set_count;
    const struct address *backend;
    int epoll_fd;
    uint64_t count, evicted;
};

int session_table_open(struct session_table *table, size_t capacity, const struct address *backend, int epoll_fd);
void session_table_close(struct session_table *table);

/* The client's session, new where there is none; NULL: no socket to be had. */
struct session *session_of(struct session_table *table, const struct address *client, uint32_t now);

/* Ends what was silent for `idle` seconds, in a part of the table; call it now and then. */
void session_sweep(struct session_table *table, uint32_t now, uint32_t idle, size_t *cursor);

#endif
