/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a server, which waits for each answer, for at most some seconds. The socket and TLS are the
 * library's. */
#ifndef WEIR_REDIS_CONNECTION_H
#define WEIR_REDIS_CONNECTION_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#include <hiredis/hiredis.h>

#include "transport/redis/url.h"

struct socket;
struct tls_context;

struct redis_connection {
    struct socket *socket;
    char host[URL_FIELD_SIZE]; /* "": the URL's path */
    char port[8];
    bool sentinel;
    char name[URL_FIELD_SIZE + 32]; /* in sentences: "Redis at host:port" */
    char lost[160];                 /* why it was lost */
};

/* From now on no connection waits once this is a signal's number, not 0: for programs that handle signals. */
void redis_connection_end_by(const volatile sig_atomic_t *signal);

/* NULL: out of memory. `host` "" is the URL's path. */
struct redis_connection *redis_connection_make(const struct redis_url *url, const char *host, const char *port,
                                               bool sentinel);
void redis_connection_free(struct redis_connection *connection); /* NULL is allowed */

/* Connects and logs in, if it is not connected. False: `error` has a sentence. */
bool redis_connection_open(struct redis_connection *connection, const struct redis_url *url, struct tls_context *tls,
                           weir_error *error);

/* Queues a command. False: out of memory, and `error` has a sentence. */
bool redis_connection_send(struct redis_connection *connection, int argc, const char **argv, weir_error *error);

/*
 * The answer to the oldest command without one; the caller gives it to freeReplyObject. NULL: the connection is lost,
 * and `error` has a sentence.
 */
redisReply *redis_connection_receive(struct redis_connection *connection, weir_error *error);

/* Both. */
redisReply *redis_connection_ask(struct redis_connection *connection, int argc, const char **argv, weir_error *error);

/* Sets `error` to what Redis answers. */
void redis_connection_fail(const struct redis_connection *connection, const redisReply *reply, weir_error *error);

#endif
