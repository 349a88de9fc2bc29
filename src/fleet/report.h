/* SPDX-License-Identifier: Apache-2.0 */
/* Between report.c (windows, buckets, the rounds) and what it is helped by: report_log.c, sweep.c. */
#ifndef WEIR_FLEET_REPORT_H
#define WEIR_FLEET_REPORT_H

#include "algorithm/window.h"
#include "base/numbers.h"
#include "fleet/fleet.h"

/* report.c */

/* A new report in the round; `cell` TABLE_NONE: of a forgotten key. */
struct report *report_add(struct fleet *fleet, uint32_t cell, const struct note *note, bool before);

/* "{prefix}:{slot tag}:label:policy:key", without a window's number. Tiers of a policy share its records. */
size_t report_record(const struct fleet *fleet, char record[REPORT_RECORD_SIZE], const struct policy *policy,
                     const struct policy_limit *limit, const struct note *note);

/* What a cell says, read in this order [A1]: what was given back, then the state. */
struct reading {
    uint64_t back[2];
    struct state state;
};

struct reading report_read(const struct cell *cell, const struct note *note);

/* Times in the fleet are in us, up: no unit leaves the window there before it does here. */
static inline uint64_t report_time_us(uint64_t time_ns)
{
    return (time_ns + NS_PER_US - 1) / NS_PER_US;
}

/* The reset that a report is to tell of; acquire: pairs with reset_cell, what it saw is in the state. */
static inline uint64_t report_reset_us(const struct note *note)
{
    return report_time_us(load_acquire(&note->reset));
}

/* report_log.c; the cells are pinned. */

/* A log's units that the fleet has not had. False: there are more, for another round. */
bool report_log(struct fleet *fleet, uint32_t cell, struct note *note, const struct policy *policy,
                const struct policy_limit *limit, uint64_t now_ns);
/* The last units of a log that was forgotten. False: there is no room for them in this round. */
bool report_log_orphan(struct fleet *fleet, const struct orphan *orphan, const struct policy *policy,
                       const struct policy_limit *limit, uint64_t now_ns);
/* Brings an answer home. True: something was given back. */
bool report_log_fold(struct fleet *fleet, uint32_t at, const struct rule *rule, const struct report *report,
                     uint64_t now_ns);
/* Nobody knows what of a log's units has arrived. */
void report_log_retry(struct fleet *fleet, const struct origin *origin);

#endif
