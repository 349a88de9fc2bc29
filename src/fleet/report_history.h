/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of sliding logs, and their answers; see report_history.c. Cells are pinned. */
#ifndef WEIR_FLEET_REPORT_HISTORY_H
#define WEIR_FLEET_REPORT_HISTORY_H

#include <stdbool.h>
#include <stdint.h>

#include "process/sync_state.h"
#include "transport/transport.h"

struct evicted_report;
struct fleet;
struct report_source;

/* A log's units that the fleet has not had; `again`: all. False: there are more, for another round. */
bool report_history_add(struct fleet *fleet, uint32_t cell, struct sync_full *sync, const struct key_name *key,
                        const struct policy *policy, const struct policy_limit *limit, uint64_t now_ns, bool again);
/*
 * Whether a log has new units to tell, and nothing else; how many it ever had, and of how many the fleet was told in
 * order.
 */
bool report_history_outrun(const struct fleet *fleet, uint32_t cell, uint64_t *counts, uint64_t *end);
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
