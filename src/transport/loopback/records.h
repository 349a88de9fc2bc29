/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of a fleet within one process. Plain data, guarded by the fleet's lock.
 */
#ifndef WEIR_TRANSPORT_LOOPBACK_RECORDS_H
#define WEIR_TRANSPORT_LOOPBACK_RECORDS_H

#include "transport/loopback/loopback.h"

struct record;

struct records {
    struct record **chains; /* by the hash of the name; as many as there are records, or more */
    size_t chain_count, record_count;
};

/* All zero is none. */
void records_clear(struct records *records);

/* Makes `to` hold what `from` does, and nothing else. False: out of memory, and `to` holds nothing. */
bool records_copy(struct records *to, const struct records *from);

/* Takes one report and fills in the answer. */
void records_apply(struct records *records, struct report *report, uint64_t now_ns);

/* Calls for each author of each record that has not expired. */
void records_each(const struct records *records, uint64_t now_ns, loopback_record_fn call, void *arg);

/* Sums over the living records whose name contains `part`, less what was given back; with `count` their number. */
uint64_t records_total(const struct records *records, uint64_t now_ns, const char *part, bool count);

#endif
