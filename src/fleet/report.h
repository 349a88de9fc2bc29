/* SPDX-License-Identifier: Apache-2.0 */
/* Between report.c (windows, buckets, the rounds) and what it is helped by: report_history.c, sweep.c. */
#ifndef WEIR_FLEET_REPORT_H
#define WEIR_FLEET_REPORT_H

#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "process/refund_ledger.h"
#include "process/sync_state.h"
#include "transport/transport.h"

/* Most reports in one round; what is left goes in the next one, which follows at once. */
#define ROUND_REPORTS 1000

/* Most logs in one round. */
#define ROUND_HISTORIES 128

/* Most units of one log, given back, that are taken away in one round. */
#define ROUND_REFUNDS 1000

/* Most forgotten keys in one round. */
#define ROUND_EVICTED 256

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

/* A key whose news can wait has its turn every so many intervals; and is told of at the latest after so many. */
#define SCAN_INTERVALS 16
#define AGE_INTERVALS  150

/* The limit a cell is counted by, where it has something to tell; NULL: it has not. */
const struct policy_limit *report_limit(const struct policy_set *set, const struct cell_meta *meta,
                                        const struct policy **policy);

/* How a cell is asked for its news. */
enum urge {
    URGE_IF_DUE, /* else they are postponed */
    URGE_SCAN,   /* likewise, but less will do, or age */
    URGE_NOW,
    URGE_AGAIN, /* even what has been told before */
};

/*
 * Adds what a cell has to tell to the round. The cell is pinned meanwhile, so that its note stays its key's. False: it
 * wants another round.
 */
bool report_cell(struct fleet *fleet, const struct policy_set *set, uint32_t at, uint64_t now_ns, enum urge urge);
/* The last report of fleet->orphans[index]. False: there is no room for it. */
bool report_evicted(struct fleet *fleet, const struct policy_set *set, uint32_t index, uint64_t now_ns);

/* A new report in the round; `cell` TABLE_NONE: of a forgotten key. */
struct report *report_add(struct fleet *fleet, uint32_t cell, const struct sync_full *sync, bool before);

/* "{prefix}:{slot tag}:label:policy:key", without a window's number. Tiers of a policy share its records. */
size_t report_record(const struct fleet *fleet, char record[REPORT_RECORD_SIZE], const struct policy *policy,
                     const struct policy_limit *limit, const struct key_name *key);
/* The record beside that of a log, of the same partition: after the label stands '?'. */
void report_asked_record(const struct fleet *fleet, const struct policy_limit *limit, const char *record,
                         char asked[REPORT_RECORD_SIZE]);

/* What a cell says, read in this order [A1]: what was given back, then the state. */
struct reading {
    uint64_t refunds[2];
    struct state state;
};

struct reading report_read(const struct cell *cell, const struct refund_ledger *ledger);

/*
 * Whether units may have been charged to a bucket in part since `since_ns`. A grant that was given before the fleet's
 * answer is charged by what was in force then, a tick later.
 */
static inline bool report_in_parts(const struct sync_full *sync, uint64_t since_ns)
{
    return load_relaxed(&sync->allowance.fraction) != 0 || sync->demand.shared || sync->demand.fraction_ns > since_ns;
}

/* Times in the fleet are in us, up: no unit leaves the window there before it does here. */
static inline uint64_t report_time_us(uint64_t time_ns)
{
    return (time_ns + NS_PER_US - 1) / NS_PER_US;
}

/* The reset that a report is to tell of; acquire: pairs with reset_cell, what it saw is in the state. */
static inline uint64_t report_reset_us(const struct sync_full *sync)
{
    return report_time_us(load_acquire(&sync->ledger->reset));
}

/* Own units given back of the note's window with this tag. */
uint64_t report_window_back(const struct sync_full *sync, uint32_t seq);

#endif
