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
static const struct policy_limit *limit_of(const struct policy_set *set, const struct cell_meta *meta)
{
    const struct policy *policy;
    /* Relaxed: a guess made without a claim, made again with it. */
    return policy_set_limit(set, load_relaxed(&meta->group), load_relaxed(&meta->limit_tag), &policy);
}

uint64_t evict_worth(const struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns)
{
    const struct policy_limit *limit = limit_of(set, &process->table.metas[at]);
    if (limit == NULL) {
        return 0;
    }
    const struct state state = cell_state(dwcas_read(&process->table.cells[at].state));
    if (rule_reset_after(&limit->rule, state, now_ns) == 0) {
        return 0;
    }
    const uint64_t left = rule_headroom(&limit->rule, state, now_ns);
    return 1 + muldiv_floor(saturating_sub(limit->rule.limit, left), 65536, limit->rule.limit);
}

static void evicted_put(struct process *process, const struct evicted_report *evicted)
{
    struct evicted_reports *evicted_reports = &process->evicted_reports;
    spin_lock(&evicted_reports->lock);
    if (evicted_reports->count < EVICTED_COUNT) {
        memcpy((void *) &evicted_reports->ring[(evicted_reports->first + evicted_reports->count++) % EVICTED_COUNT],
               (const void *) evicted, sizeof(*evicted));
    } else {
        (void) add_relaxed(&process->lost_report_count, 1);
    }
    spin_unlock(&evicted_reports->lock);
}

bool evict_take_report(struct process *process, struct evicted_report *out)
{
    struct evicted_reports *evicted_reports = &process->evicted_reports;
    spin_lock(&evicted_reports->lock);
    const bool any = evicted_reports->count != 0;
    if (any) {
        memcpy((void *) out, (const void *) &evicted_reports->ring[evicted_reports->first], sizeof(*out));
        evicted_reports->first = (evicted_reports->first + 1) % EVICTED_COUNT;
        evicted_reports->count--;
    }
    spin_unlock(&evicted_reports->lock);
    return any;
}

uint64_t evict_begun_count(const struct process *process)
{
    return load_seq_cst(&process->evicted_reports.begun);
}

uint64_t evict_ended_count(const struct process *process)
{
    return load_seq_cst(&process->evicted_reports.ended);
}

/* Puts what a claimed cell has used into the sketch. */
static void remember(struct process *process, uint32_t at, const struct rule *rule, uint64_t hash, struct state state,
                     uint64_t now_ns)
{
    const struct usage usage = rule_usage(rule, state, now_ns);
    const bool refused = cell_meta_had(&process->table.metas[at], EVENT_REFUSED);
    const bool much = usage.units >= rule->limit - min_u64(usage.units, rule->limit);
    /* Who was refused long ago, and has used little since, is like any other. */
    const enum sketch_priority weight = !much ? SKETCH_LITTLE : refused ? SKETCH_REFUSED : SKETCH_MUCH;
    if (!sketch_put(&process->sketch, hash, usage, weight, now_ns)) {
        (void) add_relaxed(&process->evicted_unrecorded_count, 1);
    }
}

void evict_cell(struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns)
{
    const struct cell_meta *meta = &process->table.metas[at];
    struct evicted_report evicted;
    struct cell *cell = &process->table.cells[at];
    const bool fresh = evict_worth(process, set, at, now_ns) == 0;
    const struct policy_limit *limit = limit_of(set, meta);
    const bool tells = cell_meta_is(meta, CELL_SHARED) && limit != NULL;
    const uint64_t hash = load_relaxed(&cell->hash);
    const struct state before = cell_state(dwcas_read(&cell->state));
    if (limit != NULL) {
        remember(process, at, &limit->rule, hash, before, now_ns); /* [K1] */
    }
    if (tells) {
        (void) add_seq_cst(&process->evicted_reports.begun, 1); /* whoever finds the cell vacant, sees this */
    }
    evicted.state = table_vacate(&process->table, at);
    if (limit != NULL && (evicted.state.a != before.a || evicted.state.b != before.b)) {
        /* Charged in between. Who comes back just now begins without that. */
        remember(process, at, &limit->rule, hash, evicted.state, now_ns);
    }
    evicted.time_count = 0;
    const uint64_t lost = cell_meta_is(meta, CELL_HISTORY) ? history_store_evict(process, at, &evicted) : 0;
    if (process->fleet) {
        sync_evict(process, at, tells ? &limit->rule : NULL, now_ns, tells ? &evicted.sync : NULL);
    }
    if (tells) {
        /* The cell is claimed: nobody writes them. */
        memcpy((void *) &evicted.meta, (const void *) meta, sizeof(*meta));
        memcpy((void *) &evicted.ledger, (const void *) refund_ledger_of(process, at), sizeof(evicted.ledger));
        evicted.key = sync_key(process, at);
        evicted_put(process, &evicted);
        (void) add_seq_cst(&process->evicted_reports.ended, 1);
        (void) add_relaxed(&process->lost_report_count, lost != 0);
    }
    (void) add_relaxed(fresh ? &process->evicted_unused_count : &process->evicted_used_count, 1);
}

struct state evict_restore(struct process *process, const struct rule *rule, uint64_t hash, uint32_t at,
                           uint64_t now_ns)
{
    const struct usage usage = sketch_take(&process->sketch, hash, rule->limit, now_ns); /* [K1] */
    const struct state fresh = rule_fresh(rule, now_ns);
    if (usage.units == 0) {
        return fresh;
    }
    const struct state state = rule_resume(rule, usage, now_ns);
    if (rule_reset_after(rule, state, now_ns) == 0) {
        return fresh;
    }
    (void) add_relaxed(&process->evicted_restored_count, 1);
    if (cell_meta_is(&process->table.metas[at], CELL_SHARED)) {
        sync_restore(process, at, rule, state);
    }
    return state;
}
