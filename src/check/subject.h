/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One key whose counts are put right afterwards, with its cells pinned: what weir_refund, weir_charge and weir_reset
 * share.
 */
#ifndef WEIR_CHECK_SUBJECT_H
#define WEIR_CHECK_SUBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/weir.h"

struct limiter;
struct policy;
struct policy_set;
struct process;
struct weir_thread;

struct subject {
    struct process *process;
    struct weir_thread *t;
    const struct policy *policy;
    const weir_key *key;
    uint64_t now_ns;
    size_t slot; /* locked; SLOT_NONE: none */
    uint32_t own_cells[WEIR_MAX_LIMITS];
    uint32_t *cells;
};

/* False: the table has no room for the key, so nothing can have been counted there. Within an RCU section. */
bool subject_pin(struct subject *s, struct weir_thread *t, const struct policy *policy, const weir_key *key);
void subject_unpin(struct subject *s);

/* Tells the background thread that a cell was changed. */
void subject_set_dirty(struct process *process, const struct policy *policy, uint32_t cell);

/*
 * Brings what threads have used of their grants into the state of a cell: takes the grants back, or waits for the
 * thread that is doing so. `except` has settled its own slot (NULL: none has).
 */
void subject_settle(struct limiter *limiter, const struct weir_thread *except, const struct policy_set *set,
                    const struct policy *policy, const weir_key *key, uint32_t cell);

#endif
