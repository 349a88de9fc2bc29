/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of sliding logs, and the answers to them; see report_history.c. The cells are pinned. */
#ifndef WEIR_FLEET_KEYS_REPORT_HISTORY_H
#define WEIR_FLEET_KEYS_REPORT_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

struct report;
struct report_source;
struct report_subject;
struct rule;
struct evicted_report;
struct fleet;

/* Adds the units of a log that are not reported; `again`: all of them. False: the log needs another round. */
bool report_history_add(struct fleet *fleet, const struct report_subject *subject, bool again);

/*
 * Whether a log has new units to report, and nothing else. *counts: the units below this number were reported; *end:
 * the number of the next unit.
 */
bool report_history_outrun(const struct fleet *fleet, uint32_t cell, uint64_t *counts, uint64_t *end);

/* Adds the last units of an evicted log. False: there is no room for them in this round. */
bool report_history_evicted(struct fleet *fleet, const struct report_subject *subject,
                            const struct evicted_report *evicted);

/* What an answer on a log says of the time up to which the other nodes have reported. */
struct history_news {
    uint64_t remote; /* units that the other nodes admitted since the last answer */
    uint64_t seen;   /* local units that passed before that time: the number of the next one */
    uint64_t kept;   /* of the units in the log, those from before all nodes had spoken that count an interval longer */
};

/* Merges an answer, in which the groups of the other nodes alone are left after that. True: units were refunded. */
bool report_history_merge(struct fleet *fleet, const struct report_subject *subject, const struct report *report,
                          const struct rule *rule, struct history_news *told);

/*
 * Takes from an answer only what it says of this node's units: a reset drops those from before it, and units that the
 * fleet has lost are reported again. True: units were refunded.
 */
bool report_history_acknowledge(struct fleet *fleet, const struct report_subject *subject, const struct report *report,
                                const struct rule *rule);

/* The round failed: what of a log's units has arrived is not known, so all of them are reported again. */
void report_history_retry(struct fleet *fleet, const struct report_source *source);

#endif
