/* SPDX-License-Identifier: Apache-2.0 */
/* The servers, and the connection to each: attempts with backoff, the greeting, then calls and their replies. */
#ifndef WEIR_TRANSPORT_REDIS_SERVER_H
#define WEIR_TRANSPORT_REDIS_SERVER_H

#include "transport/redis/redis_state.h"

/* The server at this address, which is added if there is none. NULL: out of memory, or there are SERVERS_MAX. */
struct server_conn *server_at(struct redis_transport *t, const char *host, const char *port, bool sentinel);

/* The seed whose attempt is due first, of the seeds that are not wanted. NULL: none. */
struct server_conn *server_next_seed(const struct redis_transport *t);

void server_free(struct redis_transport *t, struct server_conn *server);

/* Sends one command. False: out of memory; the command is not sent, and the connection is dropped. */
bool server_call(struct redis_transport *t, struct server_conn *server, struct call call, const struct command *command,
                 uint64_t now_ns);

/* Connects, greets and writes as far as that needs no waiting. True: the greeting has ended in this step. */
bool server_step(struct redis_transport *t, struct server_conn *server, uint64_t now_ns);

/* A reply, and the call that it answers. */
struct server_reply {
    struct call call;
    redisReply *reply;
};

/* Reads the next reply. The caller gives it to server_free_reply before it reads the next one. False: there is none;
 * the commands that replies have caused are written. */
bool server_read(struct redis_transport *t, struct server_conn *server, struct server_reply *out, uint64_t now_ns);
void server_free_reply(struct server_conn *server, struct server_reply *answer);

/* An attempt that waits for its time is due now; what was refused before counts no more. */
void server_retry(struct server_conn *server, uint64_t now_ns);

/* Drops the connection after a failure. Its calls are lost. The next attempt is due after a wait that doubles with each
 * failure and is jittered. */
void server_drop(struct redis_transport *t, struct server_conn *server, uint64_t now_ns);

/* Drops the connection because of a reply, which is an error or no reply to the command. */
void server_refuse(struct redis_transport *t, struct server_conn *server, const redisReply *reply, uint64_t now_ns);

/* T4: the next server whose connection was dropped. NULL: none. */
struct server_conn *server_take_dropped(struct redis_transport *t);

/* T4: the next call that was lost with the connection. False: none. */
bool server_take_lost_call(struct server_conn *server, struct call *call);

/* Closes the connection without counting a failure. Not while calls are under way. */
void server_close(struct server_conn *server);

#endif
