/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a cell from its key, and what is kept of that key; see evict.c. */
#ifndef WEIR_PROCESS_EVICT_H
#define WEIR_PROCESS_EVICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "process/cell.h"
#include "process/key_name.h"
#include "process/refund_ledger.h"
#include "process/sync_state.h"

/* The latest unreported times of an evicted log that its last report keeps: 128 bytes in each of the reports. */
#define EVICTED_TIMES 16

/* The last report of an evicted key. */
struct evicted_report {
    struct cell_meta meta;
    struct sync_full sync;
    struct refund_ledger ledger;
    struct key_name key;
    struct state state;
    uint64_t times[EVICTED_TIMES], first; /* of a log's units number first, first + 1, ... */
    uint32_t time_count;
};

/* Reports that wait for the background thread; when there are more, reports are lost and counted. */
#define EVICTED_COUNT 4096

struct policy_set;
struct process;

/* Worth of keys that have used a part of their limit. */
#define EVICT_WORTH_USED (UINT64_C(1) << 16)
#define EVICT_WORTH_HALF (EVICT_WORTH_USED + (UINT64_C(1) << 31))

/*
 * What is lost when a cell's key is evicted. From EVICT_WORTH_USED on: the used part of its limit, in 2^32ths. Below:
 * nothing of it is in use; keys used lately are worth more. 0: the key's limit is no more.
 */
uint64_t evict_worth(const struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns);

/* Vacates a locked cell; its usage goes to the sketch, and its last report to the ring. */
void evict_cell(struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns);

/* Puts the usage of a locked cell's key into the sketch. */
void evict_record_usage(struct process *process, uint32_t at, const struct rule *rule, uint64_t hash,
                        struct state state, uint64_t now_ns);

/* The first state of a key that gets a locked cell: fresh, or (*restored) restored from the sketch. */
struct state evict_restore(struct process *process, const struct rule *rule, uint64_t hash, uint64_t now_ns,
                           bool *restored);

/* Takes the oldest report. False: there is none. */
bool evict_take_report(struct process *process, struct evicted_report *out);

/* Of memory that may be damaged: a report whose numbers are in range. */
void evict_salvage_report(struct evicted_report *report);

/* Evictions begun and ended so far. While the numbers are equal, no report is between the table and the ring. */
uint64_t evict_begun_count(const struct process *process);
uint64_t evict_ended_count(const struct process *process);

#endif
