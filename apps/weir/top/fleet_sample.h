/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fleet as Redis shows it: the nodes with their heartbeats, and the hottest of the records that a bounded walk has
 * found, on every server of a Cluster. Nothing is written.
 *
 * A reading goes on where the last one ended, so that in time every record is seen, and reads the hottest records
 * again.
 */
#ifndef WEIR_FLEET_SAMPLE_H
#define WEIR_FLEET_SAMPLE_H

#include <weir/inspect.h>

#include "top_status.h"

struct sample_record {
    char name[256]; /* of the record */
    char limit[TOP_WORD_SIZE];
    char policy[TOP_NAME_SIZE], key[TOP_NAME_SIZE]; /* plain */
    uint64_t units, window;                         /* as of weir_inspected_use */
};

struct fleet_sample {
    weir_inspector *in;
    size_t most;
    const weir_inspected_records *read; /* by the last reading: the nodes, the servers; NULL: there is none */
    struct sample_record *records;      /* most units first */
    size_t record_count, record_capacity;
};

/* Opens a sample of at most `most` names a reading. 0; -EINVAL, -ENOTSUP, -ENOMEM with a sentence. The caller closes
 * in every case. */
int fleet_sample_open(struct fleet_sample *sample, const char *url, const char *prefix, size_t most, weir_error *error);
void fleet_sample_close(struct fleet_sample *sample);

/* A reading. False: no answer, and `error` has a sentence. A server that does not answer is left out. */
bool fleet_sample_read(struct fleet_sample *sample, weir_error *error);

/* The number of servers that have not answered the last reading. */
size_t fleet_sample_lost(const struct fleet_sample *sample);

#endif
