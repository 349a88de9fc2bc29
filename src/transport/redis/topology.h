/* SPDX-License-Identifier: Apache-2.0 */
/* Which server gets which command: the URL's seeds, Sentinels, and a Cluster's slot map. */
#ifndef WEIR_TRANSPORT_REDIS_TOPOLOGY_H
#define WEIR_TRANSPORT_REDIS_TOPOLOGY_H

#include "transport/redis/redis_state.h"

/* The cluster slot of a key, as the Redis Cluster specification defines it. */
uint16_t topology_cluster_slot(const char *key);

void topology_open(struct redis_transport *t, uint64_t now_ns);

/* Picks servers to connect to, and asks for the primary's address or the slot map when that is due. */
void topology_step(struct redis_transport *t, uint64_t now_ns);

/* True if a round can begin. */
bool topology_ready(const struct redis_transport *t);

/* The time by which topology_step has something to do. */
uint64_t topology_deadline(const struct redis_transport *t);

/* The server of a cluster slot; without a Cluster, the primary. NULL: none. */
struct server_conn *topology_owner(const struct redis_transport *t, uint16_t cluster_slot);

/* A server's greeting has ended; a server's connection is lost. */
void topology_server_ready(struct redis_transport *t, struct server_conn *server, uint64_t now_ns);
void topology_server_lost(struct redis_transport *t, struct server_conn *gone, uint64_t now_ns);

/* The replies to CLUSTER SLOTS, and to SENTINEL GET-MASTER-ADDR-BY-NAME. */
void topology_take_slot_map(struct redis_transport *t, struct server_conn *server, const redisReply *reply,
                            uint64_t now_ns);
void topology_take_primary(struct redis_transport *t, struct server_conn *server, const redisReply *reply,
                           uint64_t now_ns);

/* The slot map is out of date: it is asked for again. */
void topology_refresh(struct redis_transport *t);

/* The server turns out to belong to a Cluster. */
void topology_is_cluster(struct redis_transport *t);

/* Reads "MOVED slot host:port" or "ASK slot host:port". NULL: malformed, or no room for the server. */
struct server_conn *topology_redirect(struct redis_transport *t, const struct server_conn *from, const char *text,
                                      uint16_t *cluster_slot);

#endif
