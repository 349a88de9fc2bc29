/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes of a fleet within one process, and fleet time: what scripts/heartbeat.lua keeps in a Redis. Plain data,
 * guarded by the fleet's lock.
 */
#ifndef WEIR_TRANSPORT_LOOPBACK_NODES_H
#define WEIR_TRANSPORT_LOOPBACK_NODES_H

#include "transport/transport.h"

struct node;

struct nodes {
    struct node *first;
    uint64_t created_ns; /* when the first heartbeat came; 0: none has */
    int64_t offset_ns;   /* fleet time less the fleet's clock, at noted_ns */
    uint64_t noted_ns;   /* by the fleet's clock; 0: no offset is noted */
};

/* All zero is an empty set. */
void nodes_clear(struct nodes *nodes);

/* Makes `to` a copy of `from`. False: out of memory, and `to` is empty. */
bool nodes_copy(struct nodes *to, const struct nodes *from);

/* Takes a round's heartbeat and fills in the round's answers. Returns fleet time of the node's heartbeat before; 0:
 * there is none. */
uint64_t nodes_heartbeat(struct nodes *nodes, struct round *round, uint64_t clock_ns);

#endif
