/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/cold.h"

#include "base/numbers.h"
#include "tier/verdict.h"

struct cold cold_of(const struct tier *tier, const struct policy *policy, uint64_t now_ns)
{
    struct cold cold = {.policy = policy,
                        .now_ns = now_ns,
                        .fleet = mirror_concerns(tier, policy),
                        .rung = load_relaxed(&policy->rung)}; /* a number that stands for itself */
    /* On another rung there are other numbers than the configured ones. */
    const bool configured = cold.rung == RUNG_FLEET;
    if (policy->limit_count == 1 && policy->override == OVERRIDE_NONE && configured) {
        cold.mix = policy->share ^ policy->limits[0].salt;
        cold.moment = moment_of(&policy->limits[0].rule, now_ns);
    }
    return cold;
}

bool cold_charge_mirrored(struct tier *tier, const struct cold *cold, struct cell *cell, uint64_t hash, uint64_t cost,
                          struct cold_answer *out)
{
    const uint32_t at = (uint32_t) (cell - tier->table.cells);
    const struct rule *rule = &cold->policy->limits[0].rule;
    struct pair_value value;
    if (!cell_read(cell, hash, &value) || !mirror_is_whole(tier, cold->policy, rule, at)) {
        return false;
    }
    struct state state = cell_state(value);
    const uint64_t held = load_acquire(&cell->held) & HELD_UNITS; /* [P1] after the state */
    const uint64_t headroom = saturating_sub(rule_headroom(rule, state, cold->now_ns), held);
    const uint64_t left = mirror_left(tier, cold->policy, rule, at, state, headroom, cost, cold->now_ns);
    if (left < cost || !moment_take(&cold->moment, &state, held, cost)) {
        offenders_prefetch(&tier->offenders, at);
        return false;
    }
    if (!pair_cas(&cell->state, &value, cell_value(state, value))) {
        return false;
    }
    table_set_dirty(&tier->table, at);
    if (out != NULL) {
        *out = (struct cold_answer){.state = state, .held = held, .left = left - cost};
    }
    return true;
}

void cold_verdict(weir_verdict *verdict, const struct weir_thread *t, const struct cold *cold,
                  const struct cold_answer *how)
{
    const struct rule *rule = &cold->policy->limits[0].rule;
    const uint64_t left =
        cold->fleet ? how->left : saturating_sub(rule_headroom(rule, how->state, cold->now_ns), how->held);
    const struct decision decision = {.allowed = true,
                                      .limit = rule->limit,
                                      .remaining = min_u64(left, rule->limit),
                                      .reset_after_ns = rule_reset_after(rule, how->state, cold->now_ns)};
    verdict_write(verdict, t, cold->policy, &decision, cold->now_ns);
}

bool cold_pass(struct weir_thread *t, const struct cold *cold, const weir_key *key, uint64_t cost,
               weir_verdict *verdict)
{
    struct tier *tier = t->tier;
    if (!cold_is_short(cold) || cost == 0) {
        return false;
    }
    const uint64_t hash = cold_hash(cold, key);
    const uint32_t at = table_find(&tier->table, hash);
    struct cold_answer how;
    if (at == TABLE_NONE || !cold_charge(tier, cold, &tier->table.cells[at], hash, cost, &how)) {
        return false;
    }
    if (verdict != NULL) {
        cold_verdict(verdict, t, cold, &how);
    }
    return true;
}
