/* SPDX-License-Identifier: Apache-2.0 */
/* See direct_charge.h. */
#include "check/direct_charge.h"

#include "base/numbers.h"
#include "check/verdict.h"
#include "process/admission.h"
#include "process/allowance.h"
#include "thread/rcu.h"

bool direct_look_shared(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                        uint64_t hash, uint64_t cost, struct direct_plan *plan)
{
    const uint32_t at = (uint32_t) (cell - process->table.cells);
    const struct rule *rule = &snapshot->rule;
    const uint64_t asked = units_asked(cost);
    struct dwcas_value value;
    if (!cell_read(cell, hash, &value)) {
        return false;
    }
    const struct state state = cell_state(value);
    struct state charged = state;
    const uint64_t held = load_acquire(&cell->held) & HELD_UNITS;          /* [P1] after the state */
    const struct allowance_query query = {.outage_mode = OUTAGE_MODE_NONE, /* the snapshot is plain */
                                          .rule = rule,
                                          .state = state,
                                          .headroom =
                                              saturating_sub(rule_headroom(rule, state, snapshot->now_ns), held),
                                          .held = held,
                                          .asked = asked,
                                          .now_ns = snapshot->now_ns,
                                          .cell = at};
    uint64_t left;
    if (!allowance_left_whole(process, &query, &left)) {
        return false;
    }
    if (left < asked || !limit_snapshot_charge(&snapshot->limit_at, &charged, held, asked)) {
        top_denied_prefetch(&process->top_denied, at);
        return false;
    }
    charged = cost != 0 ? charged : state;
    plan->swap = (struct direct_swap){value, cell_value(charged, value)};
    plan->answer = (struct direct_answer){.state = charged, .held = held, .left = left - cost};
    return true;
}

bool direct_charge_shared(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                          uint64_t hash, uint64_t cost, struct direct_answer *out)
{
    struct direct_plan plan;
    if (!direct_look_shared(process, snapshot, cell, hash, cost, &plan)) {
        return false;
    }
    *out = plan.answer;
    return direct_swap_cell(process, snapshot, cell, &plan.swap);
}

void direct_write(weir_verdict *verdict, const struct weir_thread *t, const struct policy_snapshot *snapshot,
                  uint64_t left, uint64_t reset_after_ns)
{
    *verdict = (weir_verdict){.allowed = true,
                              .basis = (weir_basis) slot_meta_unpack(snapshot->meta).basis,
                              .limit = snapshot->rule.limit,
                              .remaining = min_u64(left, snapshot->rule.limit),
                              .reset_after_ns = reset_after_ns,
                              .fleet_age_ns = verdict_fleet_age(t->process, snapshot->now_ns),
                              .decided_ns = snapshot->now_ns};
}

void direct_verdict(weir_verdict *verdict, const struct weir_thread *t, const struct policy_snapshot *snapshot,
                    const struct direct_answer *how)
{
    const struct rule *rule = &snapshot->rule;
    const uint64_t left =
        snapshot->fleet ? how->left : saturating_sub(rule_headroom(rule, how->state, snapshot->now_ns), how->held);
    direct_write(verdict, t, snapshot, left, rule_reset_after(rule, how->state, snapshot->now_ns));
}

static inline struct newcomer newcomer_of(struct weir_thread *t, const struct policy_snapshot *snapshot, uint64_t hash,
                                          uint64_t cost)
{
    return (struct newcomer){.rule = &snapshot->rule,
                             .limit_at = &snapshot->limit_at,
                             .hash = hash,
                             .cost = cost,
                             .now_ns = snapshot->now_ns,
                             .limit_tag = snapshot->limit_tag,
                             .group = snapshot->group,
                             .counts = &t->shared->admissions};
}

bool direct_fill_new(struct weir_thread *t, const struct policy_snapshot *snapshot, uint64_t hash, uint64_t cost,
                     struct state *state)
{
    const struct newcomer new = newcomer_of(t, snapshot, hash, cost);
    const bool entered = rcu_enter_to_change(t);
    const bool filled = admission_fill(t->process, &new, state);
    rcu_leave_to_change(t, entered);
    return filled;
}

bool direct_charge_new(struct weir_thread *t, const struct policy_snapshot *snapshot, uint64_t hash, uint64_t cost,
                       struct state *state)
{
    const struct newcomer new = newcomer_of(t, snapshot, hash, cost);
    const bool entered = rcu_enter_to_change(t);
    const bool charged = admission_charge(t->process, &new, state);
    rcu_leave_to_change(t, entered);
    return charged;
}

/* As both, by itself: its lines are not prefetched. */
static bool charge_new_alone(struct weir_thread *t, const struct policy_snapshot *snapshot, uint64_t hash,
                             uint64_t cost, struct direct_answer *out)
{
    out->held = 0;
    if (snapshot->fleet) {
        return false;
    }
    struct table *table = &t->process->table;
    const struct cell *pair = &table->cells[table_last_pair(table, hash)];
    admission_prefetch(t->process, &snapshot->limit_at, hash, pair);
    if (cost != 0 && !table_pair_is_full(pair) && direct_fill_new(t, snapshot, hash, cost, &out->state)) {
        table_count_keys(table, 1);
        return true;
    }
    return direct_charge_new(t, snapshot, hash, cost, &out->state);
}

bool direct_check(struct weir_thread *t, const struct policy_snapshot *snapshot, const weir_key *key, uint64_t cost,
                  weir_verdict *verdict)
{
    struct process *process = t->process;
    if (!policy_snapshot_is_plain(snapshot)) {
        return false;
    }
    const uint64_t hash = policy_snapshot_hash(snapshot, key);
    const uint32_t at = table_find(&process->table, hash);
    struct direct_answer how;
    if (at != TABLE_NONE ? !direct_charge(process, snapshot, &process->table.cells[at], hash, cost, &how)
                         : !charge_new_alone(t, snapshot, hash, cost, &how)) {
        return false;
    }
    if (verdict != NULL) {
        direct_verdict(verdict, t, snapshot, &how);
    }
    return true;
}
