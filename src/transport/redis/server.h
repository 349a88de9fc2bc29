/* SPDX-License-Identifier: Apache-2.0 */
/* One server's connection: attempts with backoff, the greeting, then calls and their replies. */
#ifndef WEIR_TRANSPORT_REDIS_SERVER_H
#define WEIR_TRANSPORT_REDIS_SERVER_H

#include "transport/redis/redis_state.h"

/* The server at this address, which is added if there is none. NULL: out of memory, or there are SERVERS_MAX. */
struct server_conn *server_at(struct redis_transport *t, const char *host, const char *port, bool sentinel);
void server_free(struct redis_transport *t, struct server_conn *server);

/* Sends one command. After a failure the connection is dropped. */
void server_call(struct redis_transport *t, struct server_conn *server, struct call call, const struct command *command,
                 uint64_t now_ns);

/* Connects, writes and reads as far as that needs no waiting. */
void server_step(struct redis_transport *t, struct server_conn *server, uint64_t now_ns);

/* Drops the connection after a failure. Its calls are lost. The next attempt is due after a wait that doubles with each
 * failure and is jittered. */
void server_drop(struct redis_transport *t, struct server_conn *server, uint64_t now_ns);

/* Closes the connection without counting a failure. Not while calls are under way. */
void server_close(struct server_conn *server);

#endif
