/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a server, which waits for each answer, for at most some seconds. The socket and TLS are the
 * library's. */
#ifndef WEIR_REDIS_CONNECTION_H
#define WEIR_REDIS_CONNECTION_H

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

/* NULL: out of memory. `host` "" is the URL's path. */
struct redis_connection *redis_connection_make(const struct redis_url *url, const char *host, const char *port,
                                               bool sentinel);
void redis_connection_free(struct redis_connection *connection); /* NULL is allowed */

/* Connects and logs in, if it is not connected. False: `error` has a sentence. */
bool redis_connection_open(struct redis_connection *connection, const struct redis_url *url, struct tls_context *tls,
                           weir_error *error);

/* Sends a command. The answer, which the caller gives to freeReplyObject; NULL: the connection is lost, and `error` has
 * a sentence. */
redisReply *redis_connection_ask(struct redis_connection *connection, int argc, const char **argv, weir_error *error);

/* Sets `error` to what Redis answers. */
void redis_connection_fail(const struct redis_connection *connection, const redisReply *reply, weir_error *error);

#endif
