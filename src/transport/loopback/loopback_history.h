/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a sliding log in a fleet within one process, by the rules of scripts/report_history.lua. */
#ifndef WEIR_TRANSPORT_LOOPBACK_LOOPBACK_HISTORY_H
#define WEIR_TRANSPORT_LOOPBACK_LOOPBACK_HISTORY_H

#include "transport/loopback/loopback_record.h"

/* Applies a report of a sliding log and fills in its answer. `now_ns`: by the fleet's clock. */
void loopback_history_apply(struct record *record, struct report *report, uint64_t now_ns);

#endif
