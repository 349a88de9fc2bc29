/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round of reports that reset the records of a key, over the library's own transport: the scripts in Redis refund all
 * that counts, as they do for weir_reset. The round is no heartbeat, so no node appears.
 */
#ifndef WEIR_RESET_ROUND_H
#define WEIR_RESET_ROUND_H

#include <weir/inspect.h>

#include "../fleet/fleet_key.h"
#include "inspect/limit_reports.h"

/* The most limits with records of one key: those of all tiers of a policy. */
#define RESET_LIMITS_MOST 64

/* A limit of a policy or tier, and what its records have. */
struct reset_limit {
    const struct policy *policy;
    const struct policy_limit *limit;
    char record[REPORT_RECORD_SIZE];
    bool exists[LIMIT_REPORTS];         /* of a window, the present one first */
    uint64_t used, used_before, counts; /* in the record, that of the window before, and against the limit */
};

/*
 * Resets the records that exist, of `count` limits. 0, or a negative errno with a sentence: -EPROTO: a record was
 * refused; else Redis has not answered, and some of the records may be reset.
 */
int reset_round(weir_inspector *in, const struct fleet_key *key, const struct reset_limit *limits, size_t count,
                uint64_t fleet_ns, weir_error *error);

#endif
