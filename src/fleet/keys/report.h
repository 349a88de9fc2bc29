/* SPDX-License-Identifier: Apache-2.0 */
/* The reports of one cell, or of one evicted key; and the batch of reports that a round holds. */
#ifndef WEIR_FLEET_KEYS_REPORT_H
#define WEIR_FLEET_KEYS_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fleet/keys/account.h"

struct cell_meta;
struct history_report;
struct key_name;
struct policy;
struct policy_limit;
struct policy_set;
struct report;
struct sync_full;
struct rule;
struct evicted_report;
struct fleet;

/* Which cell a report came from, to merge the answer there. */
struct report_source {
    uint32_t cell; /* TABLE_NONE: an evicted key */
    uint32_t seq;  /* allowance.seq when the report was made */
    uint64_t incarnation;
    bool before;      /* of the window before `seq` */
    bool with_before; /* the report just before this one in the batch is on that window */
    bool again;       /* it repeats what was acknowledged before */
    uint32_t evicted; /* of an evicted key: its index in the batch */
};

/* What the round under way holds. */
struct report_batch {
    struct report *reports;           /* ROUND_REPORTS of them */
    struct report_source *sources;    /* of each report */
    struct history_report *histories; /* ROUND_HISTORIES of them */
    size_t history_count;
    struct evicted_report *evicted; /* ROUND_EVICTED of them: of this round, and of rounds that failed */
    size_t evicted_count;
    size_t evicted_sent; /* of them in the round under way */
    bool tells_debt;     /* the round also reports what buckets owe since an outage */
    bool sync_missing;   /* there was no full sync state to be had for a cell of this round */
};

/* What is reported: the key of a pinned cell, or an evicted key. */
struct report_subject {
    uint32_t cell; /* TABLE_NONE: an evicted key */
    struct sync_full *sync;
    const struct key_name *key;
    const struct policy *policy;
    const struct policy_limit *limit;
    uint64_t now_ns;
};

/* The limit that a cell is counted by; NULL: the cell is not shared by the fleet, or its policy is gone. */
const struct policy_limit *report_limit(const struct policy_set *set, const struct cell_meta *meta,
                                        const struct policy **policy);

/*
 * Adds the reports of a cell to the batch. The cell is pinned meanwhile, so that its sync state stays its key's. False:
 * the cell needs another round.
 */
bool report_cell(struct fleet *fleet, const struct policy_set *set, uint32_t at, uint64_t now_ns, enum urge urge);

/* Adds the last reports of the batch's next evicted key, evicted_sent. False: there is no room for them. */
bool report_evicted(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns);

#endif
