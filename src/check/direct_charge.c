/* SPDX-License-Identifier: Apache-2.0 */
#include "check/direct_charge.h"

#include "base/numbers.h"
#include "check/verdict.h"

bool cold_charge_mirrored(struct process *process, const struct cold *cold, struct cell *cell, uint64_t hash,
                          uint64_t cost, struct cold_answer *out)
{
    const uint32_t at = (uint32_t) (cell - process->table.cells);
    const struct rule *rule = &cold->rule;
    struct pair_value value;
    if (!cell_read(cell, hash, &value) || !mirror_is_whole(process, cold->policy, rule, at)) {
        return false;
    }
    struct state state = cell_state(value);
    const uint64_t held = load_acquire(&cell->held) & HELD_UNITS; /* [P1] after the state */
    const uint64_t headroom = saturating_sub(rule_headroom(rule, state, cold->now_ns), held);
    const uint64_t left = mirror_left(process, cold->policy, rule, at, state, headroom, held, cost, cold->now_ns);
    if (left < cost || !moment_take(&cold->moment, &state, held, cost)) {
        offenders_prefetch(&process->offenders, at);
        return false;
    }
    if (!pair_cas(&cell->state, &value, cell_value(state, value))) {
        return false;
    }
    table_set_dirty(&process->table, at);
    *out = (struct cold_answer){.state = state, .held = held, .left = left - cost};
    return true;
}

void cold_write(weir_verdict *verdict, const struct weir_thread *t, const struct cold *cold, uint64_t left,
                uint64_t reset_after_ns)
{
    *verdict = (weir_verdict){.allowed = true,
                              .basis = (weir_basis) ((cold->about & SLOT_BASIS) >> SLOT_BASIS_AT),
                              .limit = cold->rule.limit,
                              .remaining = min_u64(left, cold->rule.limit),
                              .reset_after_ns = reset_after_ns,
                              .fleet_age_ns = fleet_age(t->process, cold->now_ns)};
}

void cold_verdict(weir_verdict *verdict, const struct weir_thread *t, const struct cold *cold,
                  const struct cold_answer *how)
{
    const struct rule *rule = &cold->rule;
    const uint64_t left =
        cold->fleet ? how->left : saturating_sub(rule_headroom(rule, how->state, cold->now_ns), how->held);
    cold_write(verdict, t, cold, left, rule_reset_after(rule, how->state, cold->now_ns));
}

bool cold_pass(struct weir_thread *t, const struct cold *cold, const weir_key *key, uint64_t cost,
               weir_verdict *verdict)
{
    struct process *process = t->process;
    if (!cold_is_short(cold) || cost == 0) {
        return false;
    }
    const uint64_t hash = cold_hash(cold, key);
    const uint32_t at = table_find(&process->table, hash);
    struct cold_answer how;
    if (at == TABLE_NONE || !cold_charge(process, cold, &process->table.cells[at], hash, cost, &how)) {
        return false;
    }
    if (verdict != NULL) {
        cold_verdict(verdict, t, cold, &how);
    }
    return true;
}
