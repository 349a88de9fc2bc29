/* SPDX-License-Identifier: Apache-2.0 */
/* Between report.c (windows, buckets, the rounds) and what it is helped by: report_history.c, sweep.c. */
#ifndef WEIR_FLEET_REPORT_H
#define WEIR_FLEET_REPORT_H

#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "fleet/account.h"
#include "process/refund_ledger.h"
#include "process/sync_state.h"
#include "transport/transport.h"

struct fleet;

/* Which cell a report came from, to merge the answer there. */
struct report_source {
    uint32_t cell; /* TABLE_NONE: an evicted key */
    uint32_t seq;  /* allowance.seq when the report was made */
    uint64_t incarnation;
    bool before;      /* of the window before `seq` */
    bool with_before; /* a report on that window stands before this one */
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
    size_t memory_size;
    bool tells_debt;   /* the round also reports what buckets owe since an outage */
    bool sync_missing; /* no full sync state was to be had for a cell of this round */
};

/* The limit a cell is counted by, where it has something to tell; NULL: it has not. */
const struct policy_limit *report_limit(const struct policy_set *set, const struct cell_meta *meta,
                                        const struct policy **policy);

/*
 * Adds what a cell has to tell to the round. The cell is pinned meanwhile, so that its note stays its key's. False: it
 * wants another round.
 */
bool report_cell(struct fleet *fleet, const struct policy_set *set, uint32_t at, uint64_t now_ns, enum urge urge);
/* The last report of fleet->orphans[index]. False: there is no room for it. */
bool report_evicted(struct fleet *fleet, const struct policy_set *set, uint32_t index, uint64_t now_ns);

#endif
