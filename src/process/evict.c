/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking a cell from its key.
 *
 * The usage of an evicted key goes to the sketch (evicted_sketch.c). Its unreported units go to the background thread,
 * through a ring of fixed size; when the ring is full, the report is lost and counted.
 *
 * Progress: the lock of the key's first set is held throughout; the ring has a lock of its own.
 */
#include "process/evict.h"

#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "base/probe.h"
#include "base/spin.h"
#include "process/process.h"
#include "process/sync_pool.h"

/* The limit of a cell; NULL: its policy, or the limit, was removed. */
static const struct policy_limit *limit_of(const struct policy_set *set, const struct cell_meta *meta)
{
    const struct policy *policy;
    /* Relaxed: a guess while the cell is not locked, made again when it is. */
    return policy_set_limit(set, load_relaxed(&meta->group), load_relaxed(&meta->limit_tag), &policy);
}

/* How long nothing of a fresh state has been in use; ns, by the period for a window. */
static uint64_t unused_ns(const struct rule *rule, struct state state, uint64_t now_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return ((window_seq_at(rule, now_ns) - window_seq(state)) & WINDOW_SEQ_MASK) * rule->period_ns;
    case RULE_HISTORY:
        return saturating_sub(now_ns, history_state_until(state));
    case RULE_BUCKET:
        return saturating_sub(now_ns, bucket_time_ns(rule, bucket_tat(state)));
    }
    return 0;
}

/* The worth of a key with a fresh state: lower by 8 where it was unused for twice as long, and by steps in between. */
static uint64_t fresh_worth(uint64_t idle_ns)
{
    const uint64_t time = idle_ns | 8;
    const uint64_t exponent = 63 - (uint64_t) __builtin_clzll(time);
    return 1 + 64 * 8 - (exponent * 8 + (time >> (exponent - 3) & 7));
}

uint64_t evict_worth(const struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns)
{
    const struct policy_limit *limit = limit_of(set, &process->table.metas[at]);
    if (limit == NULL) {
        return 0;
    }
    const struct state state = cell_state(dwcas_read(&process->table.cells[at].state));
    if (rule_reset_after(&limit->rule, state, now_ns) == 0) {
        return fresh_worth(unused_ns(&limit->rule, state, now_ns));
    }
    const uint64_t left = rule_headroom(&limit->rule, state, now_ns);
    return EVICT_WORTH_USED +
           muldiv_floor(saturating_sub(limit->rule.limit, left), UINT64_C(1) << 32, limit->rule.limit);
}

static void put_report(struct process *process, const struct evicted_report *evicted)
{
    struct evicted_reports *reports = &process->shared->evicted_reports;
    process_lock(process, &reports->lock);
    if (reports->put - reports->taken < EVICTED_COUNT) {
        memcpy((void *) &process->evicted_ring[reports->put % EVICTED_COUNT], (const void *) evicted, sizeof(*evicted));
        fence_compiler(); /* a process that dies in between has put nothing */
        reports->put++;
    } else {
        (void) add_relaxed(&process->shared->lost_report_count, 1);
    }
    spin_unlock(&reports->lock);
}

bool evict_take_report(struct process *process, struct evicted_report *out)
{
    struct evicted_reports *reports = &process->shared->evicted_reports;
    process_lock(process, &reports->lock);
    const bool any = reports->put != reports->taken;
    if (any) {
        memcpy((void *) out, (const void *) &process->evicted_ring[reports->taken % EVICTED_COUNT], sizeof(*out));
        reports->taken++;
    }
    spin_unlock(&reports->lock);
    return any;
}

void evict_salvage_report(struct evicted_report *report)
{
    report->key.length = (uint8_t) min_u64(report->key.length, KEY_NAME_SIZE);
    report->time_count = (uint32_t) min_u64(report->time_count, EVICTED_TIMES);
}

uint64_t evict_begun_count(const struct process *process)
{
    return load_seq_cst(&process->shared->evicted_reports.begun);
}

uint64_t evict_ended_count(const struct process *process)
{
    return load_seq_cst(&process->shared->evicted_reports.ended);
}

void evict_record_usage(struct process *process, uint32_t at, const struct rule *rule, uint64_t hash,
                        struct state state, uint64_t now_ns)
{
    const struct usage usage = rule_usage(rule, state, now_ns);
    const bool refused = cell_meta_had(&process->table.metas[at], EVENT_REFUSED);
    const bool half = usage.units >= rule->limit - min_u64(usage.units, rule->limit);
    enum sketch_priority priority =
        SKETCH_UNDER_HALF; /* of a key, too, that was refused long ago and used little since */
    if (half) {
        priority = refused ? SKETCH_REFUSED : SKETCH_HALF;
    }
    if (!sketch_record(&process->sketch, hash, usage, priority, now_ns)) {
        (void) add_relaxed(&process->shared->evicted_unrecorded_count, 1);
    }
}

void evict_cell(struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns)
{
    const struct cell_meta *meta = &process->table.metas[at];
    struct evicted_report evicted;
    struct cell *cell = &process->table.cells[at];
    const bool fresh = evict_worth(process, set, at, now_ns) < EVICT_WORTH_USED;
    const struct policy_limit *limit = limit_of(set, meta);
    const bool tells = cell_meta_is(meta, CELL_SHARED) && limit != NULL;
    const uint64_t hash = load_relaxed(&cell->hash);
    const struct state before = cell_state(dwcas_read(&cell->state));
    if (limit != NULL) {
        evict_record_usage(process, at, &limit->rule, hash, before, now_ns); /* [E3] */
    }
    if (tells) {
        (void) add_seq_cst(&process->shared->evicted_reports.begun, 1); /* seen by all that find the cell vacant */
    }
    evicted.state = table_vacate(&process->table, at);
    if (limit != NULL && (evicted.state.a != before.a || evicted.state.b != before.b)) {
        /* Charged in between. A key that returns before this record begins without the charge. */
        evict_record_usage(process, at, &limit->rule, hash, evicted.state, now_ns);
    }
    evicted.time_count = 0;
    const uint64_t lost = cell_meta_is(meta, CELL_HISTORY) ? history_store_evict(process, at, &evicted) : 0;
    if (process->fleet) {
        sync_evict(process, at, tells ? &limit->rule : NULL, now_ns, tells ? &evicted.sync : NULL);
    }
    if (tells) {
        /* The cell is locked: no other thread writes them. */
        memcpy((void *) &evicted.meta, (const void *) meta, sizeof(*meta));
        memcpy((void *) &evicted.ledger, (const void *) refund_ledger_of(process, at), sizeof(evicted.ledger));
        evicted.key = compact_key(process, at);
        put_report(process, &evicted);
        (void) add_seq_cst(&process->shared->evicted_reports.ended, 1);
        (void) add_relaxed(&process->shared->lost_report_count, lost != 0);
    }
    (void) add_relaxed(fresh ? &process->shared->evicted_unused_count : &process->shared->evicted_used_count, 1);
    probe_evict(load_relaxed(&meta->group), hash, !fresh); /* the cell is locked: its words are this thread's */
}

struct state evict_restore(struct process *process, const struct rule *rule, uint64_t hash, uint64_t now_ns,
                           bool *restored)
{
    const struct usage usage = sketch_find_returned(&process->sketch, hash, rule->limit, now_ns); /* [E3] */
    const struct state fresh = rule_fresh(rule, now_ns);
    *restored = false;
    if (usage.units == 0) {
        return fresh;
    }
    const struct state state = rule_resume(rule, usage, now_ns);
    if (rule_reset_after(rule, state, now_ns) == 0) {
        return fresh;
    }
    (void) add_relaxed(&process->shared->evicted_restored_count, 1);
    *restored = true;
    return state;
}
