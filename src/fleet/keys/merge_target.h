/* SPDX-License-Identifier: Apache-2.0 */
/* An answer on its way into a cell; see merge.c. Names: merge_. */
#ifndef WEIR_FLEET_KEYS_MERGE_TARGET_H
#define WEIR_FLEET_KEYS_MERGE_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "fleet/keys/report.h"
#include "fleet/state.h"
#include "process/process.h"
#include "process/sync_state.h"

/* An answer, and where it goes: a pinned cell. */
struct merge_target {
    const struct report *report;
    const struct report_source *source;
    struct report_subject subject; /* without a key */
    struct rule rule;              /* as configured: the numbers of an outage mode are for requests */
    bool listens;                  /* the answer is taken in; else it only acknowledges */
};

static inline struct cell *merge_cell(const struct fleet *fleet, const struct merge_target *target)
{
    return &fleet->process->table.cells[target->subject.cell];
}

/* Whether the record lacks units of others that this node knows of: it was lost, and not all have reported since. */
static inline bool merge_is_behind(const struct report *report, const struct sync_counts *counts)
{
    const uint64_t rounding = report->sum >> 52; /* transport.h: contract 4 */
    return saturating_sub(report->sum, report->author_count) + rounding < load_relaxed(&counts->remote);
}

/* What an answer says of the other nodes and of the author. */
struct merge_answer {
    uint64_t remote, remote_refunds; /* cumulative */
    uint64_t reset;                  /* local units that a reset refunded in this node's name */
};

static inline struct merge_answer merge_answer_of(const struct report *report, const struct sync_counts *counts,
                                                  bool listens)
{
    struct merge_answer answer = {.remote = load_relaxed(&counts->remote),
                                  .remote_refunds = load_relaxed(&counts->remote_refunds),
                                  .reset = saturating_sub(report->author_refunds, report->refunds)};
    if (listens) {
        /* R3. Where units are not there yet, the refunds that are there may be of them. */
        answer.remote = max_u64(answer.remote, saturating_sub(report->sum, report->author_count));
        if (!merge_is_behind(report, counts)) {
            answer.remote_refunds =
                max_u64(answer.remote_refunds, saturating_sub(report->sum_refunds, report->author_refunds));
        }
    }
    return answer;
}

#endif
