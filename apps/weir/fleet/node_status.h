/* SPDX-License-Identifier: Apache-2.0 */
/* What a node says of itself, from its metrics over HTTP: weir_write_metrics at /metrics. */
#ifndef WEIR_NODE_STATUS_H
#define WEIR_NODE_STATUS_H

#include <stdbool.h>
#include <weir/weir.h>

#define NODE_STATUS_NAME_SIZE 256
#define NODE_STATUS_ID_SIZE   65

struct node_status {
    char address[NODE_STATUS_NAME_SIZE];
    char id[NODE_STATUS_ID_SIZE], name[NODE_STATUS_NAME_SIZE];
    char outage_mode[16]; /* of the policy: "fleet" is normal operation; empty: the node has no such policy */
    bool redis_up;
    double fleet_age_s; /* since the node's last good sync; less than 0: there has been none, or it is not known */
};

/* Asks "HOST:PORT" and reads the answer. False: no answer, or no metrics of weir, and `error` has a sentence. */
bool node_status_ask(struct node_status *out, const char *address, const char *policy, weir_error *error);

/* Reads an answer of `out->address`. False: as node_status_ask(). */
bool node_status_read(struct node_status *out, const char *text, const char *policy, weir_error *error);

#endif
