/* SPDX-License-Identifier: Apache-2.0 */
/* The slot map of a Cluster: which server owns which cluster slot, and how the transport learns it. */
#ifndef WEIR_TRANSPORT_REDIS_SLOT_MAP_H
#define WEIR_TRANSPORT_REDIS_SLOT_MAP_H

#include "transport/redis/redis_state.h"

/* The cluster slot of a key, as the Redis Cluster specification defines it. */
uint16_t slot_map_cluster_slot(const char *key);

/* No slot has an owner yet. */
void slot_map_open(struct redis_transport *t);

/* The server of a cluster slot. NULL: none. */
struct server_conn *slot_map_owner(const struct redis_transport *t, uint16_t cluster_slot);

/* The servers that have slots of a Cluster, by a number from 0. NULL: there are no more. */
const struct server_conn *slot_map_shard(const struct redis_transport *t, size_t number);

/* A slot of that server; of none, any slot. */
uint16_t slot_map_shard_slot(const struct redis_transport *t, size_t number);

/* Asks for the slot map when that is due. If no server is ready for the question, picks a seed to connect to. */
void slot_map_step(struct redis_transport *t, uint64_t now_ns);

/* The time by which slot_map_step has something to do. */
uint64_t slot_map_deadline(const struct redis_transport *t);

/* True if a slot map is known, and its servers are ready or have failed. At least one of them is ready. */
bool slot_map_ready(const struct redis_transport *t);

/* The slot map is out of date: it is asked for again. Nothing without a Cluster. */
void slot_map_refresh(struct redis_transport *t);

/* The reply to CLUSTER SLOTS. */
void slot_map_take(struct redis_transport *t, struct server_conn *server, const redisReply *reply, uint64_t now_ns);

/* Reads "MOVED slot host:port" or "ASK slot host:port". NULL: malformed, or no room for the server. */
struct server_conn *slot_map_redirect(struct redis_transport *t, const struct server_conn *from, const char *text,
                                      uint16_t *cluster_slot);

/* The connection to a server of the Cluster is lost. */
void slot_map_server_lost(struct redis_transport *t, struct server_conn *server);

#endif
