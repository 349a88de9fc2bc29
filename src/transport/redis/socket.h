/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that never blocks. Adapter to hiredis's reader; the socket is our own, so that a lost
 * connection raises no SIGPIPE and nothing waits.
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

struct socket {
    int fd; /* -1: closed */
    bool connecting;
    struct socket_target target;
    struct tls *tls; /* once connected, where the target has TLS */
    redisReader *reader;
    redisReplyObjectFunctions functions;                /* the reader's */
    const redisReplyObjectFunctions *hiredis_functions; /* hiredis's own */
    redisReply *integers;                               /* memory for those of one reply */
    size_t integer_size, integer_count;
    char *out;
    size_t out_size, out_length, out_sent;
    size_t unread_max; /* most bytes it takes in before a reply is complete */
    size_t received;   /* since the last complete reply */
    size_t sent;       /* bytes, cumulative */
    int unresolved;    /* what the resolver said in the last link_open (EAI_...); 0: it found the host */
    unsigned attempts; /* of link_open, so that each takes another one of a name's addresses first */
};

/* The words of a command: text and length of each. */
struct command {
    int argc;
    const char **argv;
    const size_t *lengths;
};

void socket_init(struct socket *sock); /* closed */

/* Begins to connect. 0, or a negative errno value. A host name is looked up here, which can block for as long as
 * the system's resolver does: give an address where that matters. */
int socket_open(struct socket *sock, const struct socket_target *target);

/* Why link_open failed, in words; `result` is what it returned. Valid until the next call of anything here. */
const char *socket_failure(const struct socket *sock, int result);

/* A reply that the caller still has stays his. */
void socket_close(struct socket *sock);

/* The last of a socket, of which the caller has no reply. */
void socket_free(struct socket *sock);

/* Connected by now? 0: yes; -EINPROGRESS: not yet; else why not. A TLS handshake may still be under way. */
int socket_connected(struct socket *sock);

/* Queues a command. 0 or -ENOMEM. */
int socket_command(struct socket *sock, const struct command *command);

/* Sends what is queued and can be sent. 0, or why the connection is lost. */
int socket_flush(struct socket *sock);

/*
 * Reads the next reply. 1: *reply, which the caller owns until socket_free_reply; one at a time. 0: not complete yet.
 * Negative: why the connection is lost; -EPROTO: the bytes are not the protocol.
 */
int socket_reply(struct socket *sock, redisReply **reply);

void socket_free_reply(struct socket *sock, redisReply *reply);

void socket_wait_for(const struct socket *sock, struct pollfd *fd);

#endif
