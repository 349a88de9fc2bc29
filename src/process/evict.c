/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a cell from its key.
 *
 * What a forgotten key had not told the fleet yet goes to the background thread first, through a ring of fixed size;
 * where that is full, the report is lost and counted.
 *
 * Progress: the insertion lock of the cell's group is held throughout; the ring has a lock of its own.
 */
#include "process/evict.h"

#include <string.h>

#include "base/numbers.h"
#include "base/spin.h"
#include "process/process.h"

/* The rule a cell is counted by; NULL: its policy is gone, and so is what it limits. */
static const struct policy_limit *limit_of(const struct policy_set *set, const struct owner *owner)
{
    const struct policy *policy;
    /* Relaxed: a guess made without a claim, made again with it. */
    return policy_set_limit(set, load_relaxed(&owner->group), load_relaxed(&owner->limit_tag), &policy);
}

uint64_t evict_worth(const struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns)
{
    const struct policy_limit *limit = limit_of(set, &process->table.owners[at]);
    if (limit == NULL) {
        return 0;
    }
    const struct state state = cell_state(pair_read(&process->table.cells[at].state));
    if (rule_reset_after(&limit->rule, state, now_ns) == 0) {
        return 0;
    }
    const uint64_t left = rule_headroom(&limit->rule, state, now_ns);
    return 1 + muldiv_floor(saturating_sub(limit->rule.limit, left), 65536, limit->rule.limit);
}

static void orphan_put(struct process *process, const struct orphan *orphan)
{
    struct orphans *orphans = &process->orphans;
    spin_lock(&orphans->lock);
    if (orphans->count < ORPHAN_COUNT) {
        memcpy((void *) &orphans->ring[(orphans->first + orphans->count++) % ORPHAN_COUNT], (const void *) orphan,
               sizeof(*orphan));
    } else {
        (void) add_relaxed(&process->lost_report_count, 1);
    }
    spin_unlock(&orphans->lock);
}

bool orphans_take(struct process *process, struct orphan *out)
{
    struct orphans *orphans = &process->orphans;
    spin_lock(&orphans->lock);
    const bool any = orphans->count != 0;
    if (any) {
        memcpy((void *) out, (const void *) &orphans->ring[orphans->first], sizeof(*out));
        orphans->first = (orphans->first + 1) % ORPHAN_COUNT;
        orphans->count--;
    }
    spin_unlock(&orphans->lock);
    return any;
}

uint64_t orphans_begun(const struct process *process)
{
    return load_seq_cst(&process->orphans.begun);
}

uint64_t orphans_ended(const struct process *process)
{
    return load_seq_cst(&process->orphans.ended);
}

/* Puts what a claimed cell has used into the sketch. */
static void remember(struct process *process, uint32_t at, const struct rule *rule, uint64_t hash, struct state state,
                     uint64_t now_ns)
{
    const struct trace trace = rule_trace(rule, state, now_ns);
    const bool refused = (load_relaxed(&process->table.owners[at].marks) & MARK_REFUSED) != 0;
    const bool much = trace.units >= rule->limit - min_u64(trace.units, rule->limit);
    /* Who was refused long ago, and has used little since, is like any other. */
    const enum sketch_weight weight = !much ? SKETCH_LITTLE : refused ? SKETCH_REFUSED : SKETCH_MUCH;
    if (!sketch_put(&process->sketch, hash, trace, weight, now_ns)) {
        (void) add_relaxed(&process->evicted_unrecorded_count, 1);
    }
}

void evict_cell(struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns)
{
    const struct owner *owner = &process->table.owners[at];
    struct orphan orphan;
    struct cell *cell = &process->table.cells[at];
    const bool fresh = evict_worth(process, set, at, now_ns) == 0;
    const struct policy_limit *limit = limit_of(set, owner);
    const bool tells = owner_is(owner, OWNER_FLEET) && limit != NULL;
    const uint64_t hash = load_relaxed(&cell->hash);
    const struct state before = cell_state(pair_read(&cell->state));
    if (limit != NULL) {
        remember(process, at, &limit->rule, hash, before, now_ns); /* [K1] */
    }
    if (tells) {
        (void) add_seq_cst(&process->orphans.begun, 1); /* whoever finds the cell vacant, sees this */
    }
    orphan.state = cell_vacate(&process->table, cell);
    if (limit != NULL && (orphan.state.a != before.a || orphan.state.b != before.b)) {
        /* Charged in between. Who comes back just now begins without that. */
        remember(process, at, &limit->rule, hash, orphan.state, now_ns);
    }
    orphan.time_count = 0;
    const uint64_t lost = owner_is(owner, OWNER_LOG) ? logs_forget(process, at, &orphan) : 0;
    if (process->fleet) {
        note_leave(process, at, tells ? &limit->rule : NULL, now_ns, tells ? &orphan.note : NULL);
    }
    if (tells) {
        /* The cell is claimed: nobody writes them. */
        memcpy((void *) &orphan.owner, (const void *) owner, sizeof(*owner));
        memcpy((void *) &orphan.given, (const void *) given_of(process, at), sizeof(orphan.given));
        orphan.key = note_key(process, at);
        orphan_put(process, &orphan);
        (void) add_seq_cst(&process->orphans.ended, 1);
        (void) add_relaxed(&process->lost_report_count, lost != 0);
    }
    (void) add_relaxed(fresh ? &process->evicted_unused_count : &process->evicted_used_count, 1);
}

struct state evict_restore(struct process *process, const struct rule *rule, uint64_t hash, uint32_t at,
                           uint64_t now_ns)
{
    const struct trace trace = sketch_take(&process->sketch, hash, rule->limit, now_ns); /* [K1] */
    const struct state fresh = rule_fresh(rule, now_ns);
    if (trace.units == 0) {
        return fresh;
    }
    const struct state state = rule_resume(rule, trace, now_ns);
    if (rule_reset_after(rule, state, now_ns) == 0) {
        return fresh;
    }
    (void) add_relaxed(&process->evicted_restored_count, 1);
    if (owner_is(&process->table.owners[at], OWNER_FLEET)) {
        note_remember(process, at, rule, state);
    }
    return state;
}
