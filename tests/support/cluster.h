/* SPDX-License-Identifier: Apache-2.0 */
/* A private Redis Cluster for one test: primaries, and a replica for each of the first of them. */
#ifndef WEIR_TESTS_CLUSTER_H
#define WEIR_TESTS_CLUSTER_H

#include <stdint.h>

#include "support/server.h"

#define CLUSTER_PRIMARIES 3
#define CLUSTER_SERVERS   (2 * CLUSTER_PRIMARIES)

struct cluster {
    struct server servers[CLUSTER_SERVERS]; /* the primaries, then their replicas */
    char ids[CLUSTER_SERVERS][41];
    int owner[16384]; /* the primary that had the slot at the start */
    size_t count;
};

/* Gives each primary an equal run of slots, and waits until every server knows that the Cluster is whole. */
void cluster_start(struct cluster *cluster, size_t replicas);
void cluster_stop(struct cluster *cluster);

/* "SCHEME://127.0.0.1:port,127.0.0.1:port,...", the first `seeds` primaries. */
void cluster_url(const struct cluster *cluster, const char *scheme, size_t seeds, char *out, size_t size);

/* The sum of the field "sum" over the records of all primaries that match. */
unsigned long long cluster_sum(const struct cluster *cluster, const char *pattern);

/* The slot of a name or, in braces, of a tag, as the server gives it. */
int cluster_slot(const struct cluster *cluster, const char *name);

/* Runs a command and fails the test where it is answered by an error. */
void server_must(const struct server *server, const char *format, ...);

/* Moving a slot, in its steps. Keys are moved up to `most` at once; returns how many were. */
void cluster_move_begin(struct cluster *cluster, int slot, int from, int to);
size_t cluster_move_keys(struct cluster *cluster, int slot, int from, int to, size_t most);
void cluster_move_end(struct cluster *cluster, int slot, int to);

#endif
