/* SPDX-License-Identifier: Apache-2.0 */
/* Taking a cell from its key, and what is kept of that key; see evict.c. */
#ifndef WEIR_PROCESS_EVICT_H
#define WEIR_PROCESS_EVICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/atomics.h"
#include "policy/policy.h"
#include "process/key_name.h"
#include "process/refund_ledger.h"
#include "process/sync_state.h"
#include "process/table.h"

/* Latest times of a forgotten log that the fleet has not had. */
#define EVICTED_TIMES 16

/* A key that was forgotten with something still to tell the fleet. */
struct evicted_report {
    struct cell_meta meta;
    struct sync_full sync;
    struct refund_ledger ledger;
    struct key_name key;
    struct state state;
    uint64_t times[EVICTED_TIMES], first; /* a log's: of its units first, first + 1, ... */
    uint32_t time_count;
};

#define EVICTED_COUNT 4096

struct evicted_reports {
    _Atomic uint32_t lock;
    size_t first, count;
    struct evicted_report *ring;
    /* Keys whose forgetting has begun, before their cell was vacated; and ended, after they were put here. */
    _Atomic uint64_t begun, ended;
};

struct process;

/* What would be lost with a cell: 0: nothing; else the used part of its limit, in 65536ths, at least 1. */
uint64_t evict_worth(const struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns);

/* Empties a claimed cell, and sees to what it had still to tell. */
void evict_cell(struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns);

/* What a key that is given a claimed cell begins with: what is remembered of it. */
struct state evict_restore(struct process *process, const struct rule *rule, uint64_t hash, uint32_t at,
                           uint64_t now_ns);

bool evict_take_report(struct process *process, struct evicted_report *out);
/* Keys whose forgetting has begun, and ended, so far: as many, and none can be between the table and the ring. */
uint64_t evict_begun_count(const struct process *process);
uint64_t evict_ended_count(const struct process *process);

#endif
