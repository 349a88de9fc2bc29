/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fleet as Redis shows it: the nodes with their heartbeats, and the hottest of the records that a bounded SCAN has
 * come by, on every shard of a Cluster. Nothing is written.
 *
 * What a reading costs Redis: at most `most` names by SCAN, 250 at a time, then one or two small commands for each, all
 * in pipelines. Shards have even parts of these. A reading goes on where the last one ended, so that in time every
 * record is seen.
 */
#ifndef WEIR_FLEET_SAMPLE_H
#define WEIR_FLEET_SAMPLE_H

#include "../redis_link.h"
#include "top_status.h"

struct sample_node {
    char id[TOP_NAME_SIZE];
    int64_t age_ms; /* since the last heartbeat */
    const char *state;
};

/* A shard of a Cluster; without a Cluster the one server. */
struct sample_shard {
    char server[TOP_NAME_SIZE];
    char cursor[24]; /* of the walk over its names */
    size_t index;    /* among the shards of the link; the most there can be: it is none of them any more */
    bool up;         /* it has answered the last reading */
    char error[TOP_NAME_SIZE];
};

struct sample_record {
    char name[256]; /* plain */
    char limit[TOP_WORD_SIZE];
    char policy[TOP_NAME_SIZE], key[TOP_NAME_SIZE];
    double units;    /* in use: of a window what it has admitted, of a bucket its level */
    uint64_t window; /* its number; 0: the record is of no window */
    const struct sample_shard *shard;
};

struct fleet_sample {
    char prefix[40];
    size_t most;
    struct sample_shard shards[REDIS_LINK_SERVERS];
    size_t shard_count;
    struct sample_node *nodes;
    size_t node_count;
    struct sample_record *records; /* most units first */
    size_t record_count, record_capacity;
    uint64_t seen; /* records read by the last reading */
};

/* False: out of memory. The caller closes in both cases. */
bool fleet_sample_open(struct fleet_sample *sample, const char *prefix, size_t most);
void fleet_sample_close(struct fleet_sample *sample);

/*
 * A reading. False: no answer, and `error` has a sentence. A shard that does not answer is left out, and says so,
 * unless it has the set of nodes.
 */
bool fleet_sample_read(struct fleet_sample *sample, struct redis_link *link, weir_error *error);

/* The number of shards that have not answered the last reading; *count: of all. */
size_t fleet_sample_lost(const struct fleet_sample *sample, size_t *count);

#endif
