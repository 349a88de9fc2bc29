/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process layer alone: a table and what is kept of its keys, without threads and without a fleet that answers. A
 * test writes what is known of a key, and asks one function.
 */
#ifndef WEIR_TESTS_BARE_PROCESS_H
#define WEIR_TESTS_BARE_PROCESS_H

#include <stdlib.h>
#include <string.h>

#include "process/process.h"
#include "process/sync_pool.h"
#include "support/support.h"

/* Four seconds into a window of ten; buckets count their time from a day before. */
#define BARE_NOW_NS    (UINT64_C(1760000004) * SECOND)
#define BARE_ORIGIN_NS (BARE_NOW_NS - 24 * HOUR)

static inline void bare_process_open(struct process *process, size_t max_keys, bool fleet)
{
    memset(process, 0, sizeof(*process));
    const struct process_options options = {
        .max_keys = max_keys, .max_log_units = 100000, .fleet = fleet, .origin_ns = BARE_ORIGIN_NS};
    assert_int_equal(process_open(process, &options), 0);
}

/* A policy with one limit of 1,000 units in ten seconds, or these units. */
static inline void bare_policy_init(struct policy *policy, weir_algorithm algorithm, uint64_t units)
{
    memset(policy, 0, sizeof(*policy));
    const weir_limit limit = {.algorithm = algorithm, .limit = units, .period_ns = 10 * SECOND, .delay = units};
    policy->id = policy->group = 1;
    policy->scope = WEIR_SCOPE_FLEET;
    policy->limit_count = 1;
    policy->limits[0].rule = rule_make(&limit, BARE_ORIGIN_NS);
    policy->limits[0].limit_hash = UINT64_C(0x1234567800000000) + (uint64_t) algorithm;
    store_relaxed(&policy->limits[0].limit_now, policy->limits[0].rule.limit);
    store_relaxed(&policy->limits[0].unit_now, policy->limits[0].rule.unit);
    store_relaxed(&policy->limits[0].tolerance_now, policy->limits[0].rule.tolerance);
}

/* A set of this policy alone; to be freed. */
static inline struct policy_set *bare_set_of(const struct policy *policy)
{
    struct policy_set *set = calloc(1, sizeof(*set) + sizeof(*policy));
    assert_non_null(set);
    set->count = 1;
    memcpy((void *) &set->policies[0], (const void *) policy, sizeof(*policy));
    set->by_id[policy->id] = set->by_group[policy->group] = offsetof(struct policy_set, policies);
    return set;
}

/* Gives a cell to a hash with a state, under the first limit of a policy. The cell is not locked afterwards. */
static inline void bare_occupy(struct process *process, const struct policy *policy, uint32_t at, uint64_t hash,
                               struct state state)
{
    const uint8_t shared = process_shares(process, policy) ? CELL_SHARED : 0;
    assert_true(table_lock_empty(&process->table, at));
    cell_meta_write(&process->table.metas[at], POLICY_LIMIT_ID(policy->limits[0].limit_hash), (uint16_t) policy->group,
                    shared | cell_kind_flag(rule_kind(&policy->limits[0].rule)));
    table_occupy(&process->table, at, hash, state);
    cell_unlock(&process->table.cells[at]);
}

/* Writes the state of a cell, whose generation stays. */
static inline void bare_set_state(struct process *process, uint32_t at, struct state state)
{
    struct dwcas_value value = dwcas_read(&process->table.cells[at].state);
    while (!dwcas_swap(&process->table.cells[at].state, &value, cell_value(state, value))) {
    }
}

#endif
