/* SPDX-License-Identifier: Apache-2.0 */
/* The first commands on a connection: protocol and login, database, and the questions for identity and role. */
#ifndef WEIR_TRANSPORT_REDIS_GREETING_H
#define WEIR_TRANSPORT_REDIS_GREETING_H

#include "transport/redis/redis_state.h"

/* Queues the greeting's commands; server->greetings_due is how many they are. 0 or -ENOMEM. */
int greeting_send(const struct redis_transport *t, struct server_conn *server);

/* Reads the next reply of the greeting. False: the reply refuses the connection. */
bool greeting_read(const struct redis_transport *t, struct server_conn *server, const redisReply *reply);

#endif
