/* SPDX-License-Identifier: Apache-2.0 */
/* The name of a key's record in the fleet's memory, and the parts that all reports have in common. */
#ifndef WEIR_FLEET_KEYS_RECORD_H
#define WEIR_FLEET_KEYS_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "base/numbers.h"
#include "process/sync_state.h"
#include "transport/transport.h"

/*
 * The forms of keys in names of records: the keys of a policy and of its tiers have one form. Policies may come from
 * another process that shares the weir. So a form is looked for when a record is named for the first time.
 */
struct record_forms {
    const struct policy_names *names;
    _Atomic(const weir_key_form *) of[WEIR_MAX_POLICIES + 1]; /* by the group's id; NULL: not looked for yet */
};

struct key_name;
struct policy;
struct policy_limit;
struct policy_names;
struct report;
struct fleet;
struct report_source;

/*
 * Writes "{prefix}:{hash tag}:label:policy:key", without a window's number; returns the length. Pricing tiers of a
 * policy share its records.
 */
size_t record_name(const struct fleet *fleet, char record[REPORT_RECORD_SIZE], const struct policy *policy,
                   const struct policy_limit *limit, const struct key_name *key);

/* The form of the keys of a group has changed; follows from the next name on. Threads: any, under one lock. */
void record_form_changed(struct record_forms *forms, weir_policy_id group);

/* Writes the name of the record beside that of a sliding log, of the same partition: '?' follows the label. */
void record_demand_name(const struct fleet *fleet, const struct policy_limit *limit, const char *record,
                        char demand_record[REPORT_RECORD_SIZE]);

/*
 * Adds a report to the batch, all zero but for the author, and its source. `cell` TABLE_NONE: of an evicted key;
 * `before`: of the window before allowance.seq.
 */
struct report *record_add(struct fleet *fleet, uint32_t cell, const struct sync_full *sync, bool before,
                          struct report_source **source);

/* Times in the fleet's memory are in us, rounded up: no unit leaves the window there before it does here. */
static inline uint64_t record_time_us(uint64_t time_ns)
{
    return (time_ns + NS_PER_US - 1) / NS_PER_US;
}

/* The reset that a report has. Acquire: pairs with the store in reset_cell; what the reset saw is in the state. */
static inline uint64_t record_reset_us(const struct sync_full *sync)
{
    return record_time_us(load_acquire(&sync->ledger->reset));
}

#endif
