/* SPDX-License-Identifier: Apache-2.0 */
/* Which server gets which command: a host of the URL, the primary that a Sentinel names, or a server of a Cluster. */
#ifndef WEIR_TRANSPORT_REDIS_TOPOLOGY_H
#define WEIR_TRANSPORT_REDIS_TOPOLOGY_H

#include "transport/redis/redis_state.h"

/* Makes the first attempt of every seed due now. */
void topology_open(struct redis_transport *t, uint64_t now_ns);

/* Picks servers to connect to, and asks for the primary's address or the slot map when that is due. */
void topology_step(struct redis_transport *t, uint64_t now_ns);

/* True if a round can begin. */
bool topology_ready(const struct redis_transport *t);

/* The time by which topology_step has something to do. */
uint64_t topology_deadline(const struct redis_transport *t);

/* The server of a cluster slot; without a Cluster, the primary. NULL: none. */
struct server_conn *topology_owner(const struct redis_transport *t, uint16_t cluster_slot);

/* A server's greeting has ended. The server is dropped if it is a replica and the primary can be found elsewhere. */
void topology_server_ready(struct redis_transport *t, struct server_conn *server, uint64_t now_ns);

/* A server's connection is lost (T4). */
void topology_server_lost(struct redis_transport *t, struct server_conn *gone, uint64_t now_ns);

/* The reply to SENTINEL GET-MASTER-ADDR-BY-NAME. */
void topology_take_primary(struct redis_transport *t, struct server_conn *server, const redisReply *reply,
                           uint64_t now_ns);

/* The server turns out to belong to a Cluster. */
void topology_is_cluster(struct redis_transport *t);

#endif
