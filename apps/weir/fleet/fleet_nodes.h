/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a fleet and its time, from the set of nodes in Redis. */
#ifndef WEIR_FLEET_NODES_H
#define WEIR_FLEET_NODES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../redis_link.h"

/* "PREFIX:nodes", with the longest prefix that the library takes. */
#define FLEET_NODES_KEY_SIZE 48

/* Bytes of a node's id, with the terminator. */
#define FLEET_NODE_SIZE 65

enum fleet_node_state { FLEET_NODE_LIVE, FLEET_NODE_SUSPECT, FLEET_NODE_FAILED };

struct fleet_node {
    char id[FLEET_NODE_SIZE];
    enum fleet_node_state state;
    uint64_t reported_ms;             /* fleet time up to which the node has reported */
    uint64_t suspect_ms, lifetime_ms; /* without a heartbeat for so long it is suspect, and has failed */
};

struct fleet_nodes {
    char key[FLEET_NODES_KEY_SIZE];
    bool wrong_type;        /* the key holds no sorted set: nodes delete it */
    bool exists;            /* a fleet has been here within a day */
    struct fleet_node *all; /* the latest heartbeat first */
    size_t count;
    size_t foreign;     /* members that no node has written */
    uint64_t server_us; /* the server's clock */
    uint64_t fleet_us;  /* fleet time */
    int64_t ahead_us;   /* of the server's clock */
};

/* False: no answer, and `error` has a sentence. The caller calls fleet_nodes_free in both cases. */
bool fleet_nodes_read(struct redis_link *link, const char *prefix, struct fleet_nodes *out, weir_error *error);
void fleet_nodes_free(struct fleet_nodes *nodes);

/* The node of an id; NULL: there is none. */
const struct fleet_node *fleet_nodes_find(const struct fleet_nodes *nodes, const char *id);

/* "live", "suspect", "failed" */
const char *fleet_node_state_name(enum fleet_node_state state);

/* How long ago, by fleet time, the node has reported. */
uint64_t fleet_node_age_ms(const struct fleet_nodes *nodes, const struct fleet_node *node);

#endif
