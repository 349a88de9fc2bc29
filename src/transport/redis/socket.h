/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that never blocks. Adapter to hiredis's reader. The socket is weir's own, so a lost connection raises no
 * SIGPIPE, and no call waits.
 */
#ifndef WEIR_TRANSPORT_REDIS_SOCKET_H
#define WEIR_TRANSPORT_REDIS_SOCKET_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include <hiredis/hiredis.h>

#include "transport/redis/tls.h"

/* Where a socket leads. What it points to outlives the socket. */
struct socket_target {
    const char *host, *port;
    const char *path;        /* a socket's; NULL: host and port */
    struct tls_context *tls; /* NULL: plain */
    const char *name;        /* for TLS: the host or address that the certificate must have */
};

struct addrinfo;

struct socket {
    int fd; /* -1: closed */
    bool connecting;
    struct socket_target target;
    struct tls *tls; /* once connected, where the target has TLS */
    redisReader *reader;
    redisReplyObjectFunctions functions;                /* the reader's */
    const redisReplyObjectFunctions *hiredis_functions; /* hiredis's own */
    redisReply *integers;                               /* memory for the integers of one reply */
    size_t integer_size, integer_count;
    char *out;
    size_t out_size, out_length, out_sent;
    size_t unread_max; /* most bytes that are read before a reply is complete */
    size_t received;   /* since the last complete reply */
    size_t sent;       /* bytes, cumulative */
    int unresolved;    /* the resolver's error in the last socket_open (EAI_...); 0: the host was found */
    /* While it connects: what the host name was resolved to, the address to try next, and how many are left. */
    struct addrinfo *found;
    const struct addrinfo *next;
    unsigned untried;
    unsigned tried; /* addresses, by all attempts: an attempt begins where the last one has ended */
};

/* The words of a command, each with its length. */
struct command {
    int argc;
    const char **argv;
    const size_t *lengths;
};

void socket_init(struct socket *sock); /* closed */

/* Begins to connect. 0, or a negative errno value. The call looks a host name up, and blocks as long as the system's
 * resolver does. An address does not block. */
int socket_open(struct socket *sock, const struct socket_target *target);

/* Why socket_open failed, in words; `result` is what socket_open returned. Valid until the next call of this file. */
const char *socket_failure(const struct socket *sock, int result);

/* Closes the connection. A reply that was read stays valid until socket_free_reply. */
void socket_close(struct socket *sock);

/* Closes the descriptor of a socket that another thread was using when this process was forked, and no more. */
void socket_abandon(struct socket *sock);

/* Closes the connection and frees the socket's memory. The caller has no reply any more. */
void socket_free(struct socket *sock);

/*
 * 0: connected; -EINPROGRESS: not yet; else why the attempt failed, at each address that was left. A TLS handshake may
 * still be under way.
 */
int socket_connected(struct socket *sock);

/* Queues a command. 0 or -ENOMEM. */
int socket_command(struct socket *sock, const struct command *command);

/* Sends as many of the queued bytes as the socket takes. 0, or why the connection is lost. */
int socket_flush(struct socket *sock);

/*
 * Reads the next reply. 1: *reply is set, and the caller gives it to socket_free_reply before the next call. 0: the
 * reply is not complete yet. A caller that gives no reply of the socket to socket_free_reply may keep replies, and
 * gives them to freeReplyObject: the socket then keeps no memory for them. Negative: why the connection is lost;
 * -EPROTO: the bytes are not the protocol.
 */
int socket_reply(struct socket *sock, redisReply **reply);

void socket_free_reply(struct socket *sock, redisReply *reply);

void socket_wait_for(const struct socket *sock, struct pollfd *fd);

#endif
