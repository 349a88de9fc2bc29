/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of a fleet within one process. Plain data, guarded by the fleet's lock.
 */
#ifndef WEIR_TRANSPORT_LOOPBACK_RECORDS_H
#define WEIR_TRANSPORT_LOOPBACK_RECORDS_H

#include "transport/loopback/loopback.h"

struct record;

struct records {
    struct record **chains; /* by the hash of the name; at least one chain for each record */
    size_t chain_count, record_count;
};

/* All zero is an empty set. */
void records_clear(struct records *records);

/* Makes `to` a copy of `from`. False: out of memory, and `to` is empty. */
bool records_copy(struct records *to, const struct records *from);

/* Applies one report and fills in its answer. */
void records_apply(struct records *records, struct report *report, uint64_t now_ns);

/* Calls `call` for each author of each record that has not expired. */
void records_each(const struct records *records, uint64_t now_ns, loopback_record_fn call, void *arg);

/* The sum over the records whose name contains `part` and that have not expired, less refunds. `count`: their number
 * instead. */
uint64_t records_total(const struct records *records, uint64_t now_ns, const char *part, bool count);

#endif
