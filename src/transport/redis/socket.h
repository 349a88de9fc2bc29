/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection to a Redis, which never blocks. Adapter to hiredis's reader; the socket is our own, so that a lost
 * connection raises no SIGPIPE and nothing waits.
 */
#ifndef WEIR_TRANSPORT_REDIS_SOCKET_H
#define WEIR_TRANSPORT_REDIS_SOCKET_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>

#include <hiredis/hiredis.h>

#include "transport/redis/tls.h"

/* Where a link leads. What it points to outlives the link. */
struct link_target {
    const char *host, *port;
    const char *path;        /* a socket's; NULL: host and port */
    struct tls_context *tls; /* NULL: plain */
    const char *name;        /* for TLS: whom the certificate must name */
};

struct link {
    int fd; /* -1: closed */
    bool connecting;
    struct link_target target;
    struct tls *tls; /* once connected, where the target has TLS */
    redisReader *reader;
    redisReplyObjectFunctions functions;     /* the reader's */
    const redisReplyObjectFunctions *theirs; /* hiredis's own */
    redisReply *integers;                    /* memory for those of one reply */
    size_t integer_size, integer_count;
    char *out;
    size_t out_size, out_length, out_sent;
    size_t unread_max; /* most bytes it takes in before a reply is complete */
    size_t received;   /* since the last complete reply */
    size_t sent;       /* bytes, cumulative */
    int unresolved;    /* what the resolver said in the last link_open (EAI_...); 0: it found the host */
    unsigned attempts; /* of link_open, so that each takes another one of a name's addresses first */
};

void link_init(struct link *link); /* closed */

/* Begins to connect. 0, or a negative errno value. A host name is looked up here, which can block for as long as
 * the system's resolver does: give an address where that matters. */
int link_open(struct link *link, const struct link_target *target);

/* Why link_open failed, in words; `result` is what it returned. Valid until the next call of anything here. */
const char *link_failure(const struct link *link, int result);

/* A reply that the caller still has stays his. */
void link_close(struct link *link);

/* The last of a link, of which the caller has no reply. */
void link_free(struct link *link);

/* Connected by now? 0: yes; -EINPROGRESS: not yet; else why not. A TLS handshake may still be under way. */
int link_connected(struct link *link);

/* Queues a command. 0 or -ENOMEM. */
int link_command(struct link *link, int argc, const char **argv, const size_t *lengths);

/* Sends what is queued and can be sent. 0, or why the connection is lost. */
int link_flush(struct link *link);

/*
 * The next reply: 1 and *reply (the caller's until link_free_reply, one at a time); 0: not there yet; else why the
 * connection is lost, -EPROTO for what is not the protocol.
 */
int link_reply(struct link *link, redisReply **reply);

void link_free_reply(struct link *link, redisReply *reply);

void link_wait_for(const struct link *link, struct pollfd *fd);

#endif
