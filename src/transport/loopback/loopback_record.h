/* SPDX-License-Identifier: Apache-2.0 */
/* One record of a fleet within one process: its authors' counts, and the units of a sliding log. */
#ifndef WEIR_TRANSPORT_LOOPBACK_LOOPBACK_RECORD_H
#define WEIR_TRANSPORT_LOOPBACK_LOOPBACK_RECORD_H

#include "transport/transport.h"

/* One author's counts in one record. */
struct author {
    struct author *next;
    char name[REPORT_AUTHOR_SIZE];
    uint64_t count, demand, refunds;
    uint64_t reset_us;    /* of the author's last reset */
    uint64_t reported_us; /* sliding log: time of the report of `demand` */
};

/* One unit of a sliding log. */
struct unit {
    struct unit *next; /* in the order of time */
    char author[REPORT_AUTHOR_SIZE];
    uint64_t number, time_us;
};

struct record {
    struct record *next;
    uint64_t hash; /* of the name */
    char name[REPORT_RECORD_SIZE];
    struct author *authors;
    int64_t net; /* units admitted less refunds; sliding log: units in the window */
    uint64_t sum_demand, sum_refunds;
    uint64_t lost_us;         /* bucket whose record was lost: time of the first report of an author that saw it */
    uint64_t from_us, known;  /* what the author saw that counts: see `base` of report_bucket.lua */
    uint64_t tat_us, unit_ps; /* `unit_ps` is the last report's */
    struct unit *units;       /* earliest first */
    uint64_t reset_us;
    uint64_t expires_ns; /* by the fleet's clock */
};

void loopback_record_free(struct record *record);

/* A copy of a record with its authors and units. NULL: out of memory. */
struct record *loopback_record_copy(const struct record *from);

/* The author of this name, which is added if there is none. NULL: out of memory. */
struct author *loopback_record_author(struct record *record, const char *name);

#endif
