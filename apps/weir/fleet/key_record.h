/* SPDX-License-Identifier: Apache-2.0 */
/* One record of a key in Redis: what each node has reported, and the sums. Read, never written. */
#ifndef WEIR_KEY_RECORD_H
#define WEIR_KEY_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../redis_link.h"
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
    bool exists, wrong_type; /* wrong_type: nodes' reports of it are rejected */
    uint64_t net;            /* units of all nodes that count: admitted less refunded */
    uint64_t demand, refunds;
    struct record_part *parts; /* the largest admitted first */
    size_t part_count;
    /* A bucket. */
    uint64_t tat_us;  /* fleet time at which it is full; 0: it is */
    uint64_t unit_ps; /* picoseconds in which one unit refills, by the last report; 0: none */
    /* A sliding log. */
    uint64_t *times_us; /* of all units, in order; fleet time */
    size_t time_count;
    uint64_t reset_us; /* units up to this time are reset; 0: none */
};

/* Reads a window or a bucket. `out->name` is set. `nodes`: whose authors these are. False: no answer, and `error` has a
 * sentence. */
bool key_record_read_counts(struct redis_link *link, struct key_record *out, const struct fleet_nodes *nodes,
                            weir_error *error);

/* Reads the sorted set of a sliding log, at most its `most` latest units, and the hash of its authors. */
bool key_record_read_log(struct redis_link *link, struct key_record *out, const struct fleet_nodes *nodes,
                         const char *demand_record, uint64_t most, weir_error *error);

void key_record_free(struct key_record *record);

#endif
