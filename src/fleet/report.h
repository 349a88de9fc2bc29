/* SPDX-License-Identifier: Apache-2.0 */
/* Between report.c (windows, buckets, the rounds) and what it is helped by: report_history.c, sweep.c. */
#ifndef WEIR_FLEET_REPORT_H
#define WEIR_FLEET_REPORT_H

#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "fleet/fleet.h"

/* report.c */

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

/* demand.c; the cells are pinned. */

/* A look at a cell begins. */
void demand_begin(struct sync_full *sync);
/* Own units of a window (or a bucket), as counted so far. */
void demand_local(struct sync_full *sync, struct sync_counts *counts, uint64_t own);
/*
 * Units denied since the last look, which it returns; the last of a look. `into_ns`: since the window began, which
 * lasts for `period_ns`; UINT64_MAX: there are no windows.
 */
uint64_t demand_denied(const struct fleet *fleet, struct sync_full *sync, uint64_t into_ns, uint64_t period_ns,
                       uint64_t now_ns);
/* A look at a log: its units so far, and of how many the fleet was told. */
void demand_units(const struct fleet *fleet, struct sync_full *sync, uint64_t counts, uint64_t end, uint64_t now_ns);
/*
 * The key of a note has just been given it. `steady`: it is used as it was since the fleet was last told; else this is
 * a beginning.
 */
void demand_reset(struct sync_full *sync, uint64_t now_ns, uint64_t interval_ns, bool steady);
/* What others were asked for, by one record's answer. */
void demand_remote(struct sync_full *sync, struct sync_counts *counts, const struct report *report);
/*
 * All answers on a key are there; `report` is the one on its present window, which began at `start_ns`, and `others`
 * what the others have admitted since the last one. Checks go by it from now on.
 */
void demand_answer(struct fleet *fleet, const struct cell *cell, struct sync_full *sync, const struct rule *rule,
                   const struct report *report, uint64_t remote, uint64_t start_ns, bool with_before);
/* The bucket's time by `count` own units and those that others are taken to have told of meanwhile. */
uint64_t demand_acked(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule, uint64_t count,
                      uint64_t now_ns);
/* Whether nodes that had not spoken for a while have turned out, with the last answer, to have failed. */
bool demand_failed(const struct fleet *fleet, const struct demand_stats *demand);
/* The same of a log. */
void demand_history(struct fleet *fleet, const struct cell *cell, struct sync_full *sync, const struct rule *rule,
                    const struct report *report, uint64_t remote);

/* report_history.c; the cells are pinned. */

/* A log's units that the fleet has not had; `again`: all. False: there are more, for another round. */
bool report_log(struct fleet *fleet, uint32_t cell, struct sync_full *sync, const struct key_name *key,
                const struct policy *policy, const struct policy_limit *limit, uint64_t now_ns, bool again);
/*
 * Whether a log has new units to tell, and nothing else; how many it ever had, and of how many the fleet was told in
 * order.
 */
bool report_log_outrun(const struct fleet *fleet, uint32_t cell, uint64_t *counts, uint64_t *end);
/* The last units of a log that was forgotten. False: there is no room for them in this round. */
bool report_history_evicted(struct fleet *fleet, const struct evicted_report *evicted, const struct policy *policy,
                            const struct policy_limit *limit, uint64_t now_ns);
/*
 * Brings an answer home, in which the others' groups alone are left then; *others: what the others have admitted since
 * the last one. True: something was given back.
 */
bool report_history_merge(struct fleet *fleet, uint32_t at, struct sync_full *sync, const struct rule *rule,
                          const struct report *report, uint64_t now_ns, uint64_t *remote);
/*
 * Adds to the others' units of a log, in the order of time and with room for one more group, those that its key is
 * remembered to have used and that are not among them. Returns how many groups there are then.
 */
uint32_t report_history_restored(const struct sync_full *sync, const struct rule *rule, struct history_group groups[],
                                 uint32_t count, uint64_t now_ns);
/* Nobody knows what of a log's units has arrived. */
void report_history_retry(struct fleet *fleet, const struct report_source *source);

#endif
