/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short way through the table: a key that has no slot, is there, and has room, under one window or token bucket. It
 * is what a flood of addresses asks for, so it makes no request out of it (process.c), which costs five times as many
 * instructions: a search, a look, and one compare-and-swap of the state.
 *
 * It only ever says yes. Whatever else there is to say (no room, a new key, a queue, a log, a bucket of another rate, a
 * part of the limit, somebody in between) is said by process_decide, as if nobody had been here.
 *
 * Ordering: as a plain charge of process.c [P1]: the state is read, then held, then that state is swapped. Progress:
 * wait-free.
 */
#include "algorithm/bucket.h"
#include "base/numbers.h"
#include "tier/tier.h"
#include "tier/verdict.h"

bool cold_pass(struct weir_thread *t, const struct policy *policy, const weir_key *key, uint64_t cost, uint64_t now_ns,
               weir_verdict *verdict)
{
    struct tier *tier = t->tier;
    const struct rule *rule = &policy->limits[0].rule;
    if (policy->limit_count != 1 || cost == 0 || rule_is_log(rule) || rule_is_queue(rule)) {
        return false;
    }
    const uint64_t hash = cell_hash(policy, key, 0);
    const uint32_t at = table_find(&tier->table, hash);
    struct pair_value value;
    if (at == TABLE_NONE || !cell_read(&tier->table.cells[at], hash, &value)) {
        return false;
    }
    struct cell *cell = &tier->table.cells[at];
    const struct state state = cell_state(value);
    if (rule_is_bucket(rule) && bucket_scale(state) != rule->scale && value.a != 0) {
        return false;
    }
    const uint64_t held = load_acquire(&cell->held) & HELD_UNITS; /* [P1] after the state */
    uint64_t left = saturating_sub(rule_headroom(rule, state, now_ns), held);
    const bool fleet = mirror_concerns(tier, policy);
    if (fleet) {
        if (!mirror_is_whole(tier, policy, rule, at)) {
            return false;
        }
        left = mirror_left(tier, policy, rule, at, state, left, cost, now_ns);
    }
    if (left < cost) {
        offenders_prefetch(&tier->offenders, at);
        return false;
    }
    const struct state charged = rule_charge(rule, state, now_ns, cost);
    if (!pair_cas(&cell->state, &value, cell_value(charged, value))) {
        return false;
    }
    if (fleet) {
        table_set_dirty(&tier->table, at);
    }
    if (verdict != NULL) {
        const struct decision decision = {.allowed = true,
                                          .limit = rule->limit,
                                          .remaining = min_u64(left - cost, rule->limit),
                                          .reset_after_ns = rule_reset_after(rule, charged, now_ns)};
        verdict_write(verdict, t, policy, &decision, now_ns);
    }
    return true;
}
