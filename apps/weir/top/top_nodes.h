/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes that weir top asks over HTTP, all at once. Adapter to libcurl. */
#ifndef WEIR_TOP_NODES_H
#define WEIR_TOP_NODES_H

#include "top_status.h"

#define TOP_ERROR_SIZE 160

struct top_request;

struct top_node {
    const char *address; /* as it was given */
    bool up;             /* the last reading succeeded */
    char error[TOP_ERROR_SIZE];
    struct top_status now, before; /* the last two readings of one run of the node */
    bool has_now, has_before;
    struct top_request *request;
};

struct top_nodes {
    void *multi; /* libcurl's */
    struct top_node *all;
    size_t count;
    bool under_way;
};

/* False: no memory, or an address is malformed, and `why` has a sentence. The caller closes in both cases. */
bool top_nodes_open(struct top_nodes *nodes, const char *const *addresses, size_t count, char *why, size_t size);
void top_nodes_close(struct top_nodes *nodes);

/* Begins a reading of every node. */
void top_nodes_begin(struct top_nodes *nodes);

/* Goes on with the reading for at most `wait_ms`, or until `fd` (-1: none) is readable. True: the reading is over. */
bool top_nodes_step(struct top_nodes *nodes, int fd, int wait_ms);

/* The rates of a node or of one of its policies, a second; less than 0: not known yet. */
double top_rate(const struct top_node *node, uint64_t now, uint64_t before);

#endif
