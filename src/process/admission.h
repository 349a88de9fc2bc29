/* SPDX-License-Identifier: Apache-2.0 */
/* Charging a new key at the price of a held one, and which new keys get another key's cell; see admission.c. */
#ifndef WEIR_PROCESS_ADMISSION_H
#define WEIR_PROCESS_ADMISSION_H

#include <stdbool.h>
#include <stdint.h>

#include "algorithm/limit_snapshot.h"
#include "algorithm/rule.h"

struct cell;
struct process;

/* What a thread has counted; the owner's own. */
struct admission_counts {
    _Atomic uint64_t recorded;        /* keys that got no cell, but a usage record */
    _Atomic uint64_t records_dropped; /* records of other keys that gave way */
    _Atomic uint64_t idle_replaced;   /* idle keys whose cell another key got */
};

/* A key that was not found, under a plain policy: one window or token bucket that no other node uses. */
struct newcomer {
    const struct rule *rule;
    const struct limit_snapshot *limit_at;
    uint64_t hash, cost, now_ns; /* cost 0: the key is only asked for, and gets no cell */
    uint32_t limit_tag;          /* of struct cell_meta, as group */
    uint16_t group;
    struct admission_counts *counts;
};

/*
 * Gives the key an empty cell of its pairs, without the lock of a set, and charges it. True: the key was charged, and
 * *state is its state; the caller counts it (table_count_keys). False: nothing has changed.
 */
bool admission_fill(struct process *process, const struct newcomer *new, struct state *state);

/*
 * Charges a key that admission_fill() found no cell for, and counts it. A cost of 0 asks whether the key is as unused,
 * and keeps nothing of it. True: the key was charged, and *state is its
 * state. False: nothing has changed; the key is for decide_request().
 */
bool admission_charge(struct process *process, const struct newcomer *new, struct state *state);

/* Prefetches what both read beside the pairs of a key. `pair`: where the key was looked for last. */
void admission_prefetch(const struct process *process, const struct limit_snapshot *limit_at, uint64_t hash,
                        const struct cell *pair);

#endif
