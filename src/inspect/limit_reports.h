/* SPDX-License-Identifier: Apache-2.0 */
/* The reports of a limit's records for an author that has used nothing: to read them, or to reset them. */
#ifndef WEIR_INSPECT_LIMIT_REPORTS_H
#define WEIR_INSPECT_LIMIT_REPORTS_H

#include "policy/policy.h"
#include "transport/transport.h"

/* A limit has so many records at most: of a window, the present one and the one before. */
#define LIMIT_REPORTS 2

/* A key's records under one limit. */
struct limit_records {
    const char *prefix;
    const struct policy *policy;
    const struct policy_limit *limit;
    const char *text; /* of the key, in names of records */
};

/* The limit's rule, with bucket times around the present one. */
struct rule limit_reports_rule(const struct policy_limit *limit, uint64_t now_ns);

/* Makes the reports, one for each record: of a window, the present one first. `history`: of a sliding log. Returns how
 * many there are. */
size_t limit_reports(const struct limit_records *of, const char *author, uint64_t now_ns,
                     struct report reports[LIMIT_REPORTS], struct history_report *history);

#endif
