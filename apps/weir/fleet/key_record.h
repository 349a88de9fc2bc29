/* SPDX-License-Identifier: Apache-2.0 */
/* One record of a key in Redis: the sums, and what each node has reported. Read, never written. */
#ifndef WEIR_KEY_RECORD_H
#define WEIR_KEY_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fleet_nodes.h"
#include "transport/transport.h"

/* What one node has reported in a record, over all times that it has held the key. */
struct record_part {
    char node[FLEET_NODE_SIZE];
    uint64_t admitted, demand, refunds; /* units; of a sliding log those admitted that are in the window */
    uint64_t reported_us;               /* sliding log: fleet time of the latest report; else 0 */
};

struct key_record {
    char name[REPORT_RECORD_SIZE];
    bool exists, wrong_type;   /* wrong_type: nodes' reports of it are rejected */
    uint64_t net;              /* units of all nodes that count: admitted less refunded */
    uint64_t demand, refunds;  /* of a sliding log: the demand of those whose demand is known */
    struct record_part *parts; /* the largest admitted first */
    size_t part_count;
};

/*
 * Takes the answers to a report of nothing and to the question for the authors of one record, which need not have been
 * asked. `nodes`: whose authors these are. False: they cannot be taken, and `error` has a sentence. The caller calls
 * key_record_free in both cases.
 */
bool key_record_take(struct key_record *out, const struct report *report, const struct inspection *authors,
                     const struct fleet_nodes *nodes, weir_error *error);
void key_record_free(struct key_record *record);

#endif
