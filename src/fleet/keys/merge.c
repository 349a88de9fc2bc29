/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the fleet's answers to cells. The invariants R1 to R3 are in account.c.
 *
 * An answer is taken in only while the policy is in OUTAGE_MODE_NONE, and only when every node has reported what it
 * used. While some nodes have not, after an outage or a loss of records, an answer acknowledges what was reported and
 * tells of a reset, and nothing more.
 */
#include "fleet/keys/merge.h"

#include <errno.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "fleet/keys/demand.h"
#include "fleet/keys/full_sync.h"
#include "fleet/keys/merge_bucket.h"
#include "fleet/keys/merge_target.h"
#include "fleet/keys/publish.h"
#include "fleet/keys/record.h"
#include "fleet/keys/report.h"
#include "fleet/keys/report_history.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/evict.h"
#include "process/sync_pool.h"

/* Charges the difference to the last answer. True: units were refunded. */
static bool merge_window_report(const struct fleet *fleet, const struct merge_target *target)
{
    struct process *process = fleet->process;
    struct sync_full *sync = target->subject.sync;
    const struct report *report = target->report;
    const bool before = target->source->before;
    struct cell *cell = merge_cell(fleet, target);
    struct sync_counts *counts = before ? &sync->before : &sync->now;
    const uint32_t seq = (load_relaxed(&sync->allowance.seq) - before) & WINDOW_SEQ_MASK;
    const struct merge_answer answer = merge_answer_of(report, counts, target->listens);
    const uint64_t had = counts_merged(counts);
    const uint64_t refunds = answer.remote_refunds - load_relaxed(&counts->remote_refunds);
    counts->acked = max_u64(counts->acked, report->count);
    counts->acked_refunds = max_u64(counts->acked_refunds, report->refunds);
    /* [A2] What lowers the merged units is written before the state; what raises them, after it. */
    store_relaxed(&counts->remote_refunds, answer.remote_refunds);
    if (report->reset_us != 0) {
        store_relaxed(&counts->restored, 0); /* the fleet has refunded all there was */
    }
    const uint64_t merged_units = max_u64(answer.remote, load_relaxed(&counts->restored));
    const uint64_t more = saturating_sub(merged_units, had);
    const uint64_t less = saturating_sub(had, merged_units);
    if (more == 0 && less == 0 && refunds == 0 && answer.reset == 0) {
        store_relaxed(&counts->remote, answer.remote); /* the state has these units: they were restored */
        return false;
    }
    const uint64_t off = refunds + answer.reset + less + counts->deficit;
    struct dwcas_value value = dwcas_read(&cell->state);
    struct state merged;
    uint64_t there;
    do {
        merged = window_charge_seq(cell_state(value), seq, more);
        there = window_count_seq(merged, seq);
        merged = window_discharge_seq(merged, seq, off);
    } while (!dwcas_swap(&cell->state, &value, cell_value(merged, value)));
    store_release(&counts->remote, answer.remote); /* [A2], R1 */
    counts->deficit = saturating_sub(off, there);  /* R1 */
    if (answer.reset != 0) {
        refund_ledger_add_window(refund_ledger_make(process, target->subject.cell), seq, answer.reset); /* [A1] */
    }
    return refunds + answer.reset + less != 0;
}

static struct publish_input input_of(const struct fleet *fleet, const struct merge_target *target, uint64_t remote)
{
    return (struct publish_input){.cell = merge_cell(fleet, target),
                                  .sync = target->subject.sync,
                                  .rule = &target->rule,
                                  .report = target->report,
                                  .remote = remote};
}

/* Notes whether an answer tells of units that were lost. `counts`: as before this answer. */
static void note_lost(struct fleet *fleet, const struct merge_target *target, const struct sync_counts *counts)
{
    const struct report *report = target->report;
    if (report->kind == REPORT_BUCKET && report->tat_us <= report->now_us) {
        return; /* the record of a bucket that is full again may have expired */
    }
    fleet->merge.lost = fleet->merge.lost || (target->listens && merge_is_behind(report, counts));
    fleet->merge.gone = fleet->merge.gone || (report->is_new && counts->acked != 0);
}

static void merge_bucket(struct fleet *fleet, const struct merge_target *target)
{
    struct sync_full *sync = target->subject.sync;
    const uint64_t had = load_relaxed(&sync->now.remote);
    const bool first = sync->demand.learned_ns == 0;
    note_lost(fleet, target, &sync->now);
    fleet->merge.refunded = merge_bucket_report(fleet, target) || fleet->merge.refunded;
    if (target->listens) {
        demand_remote(sync, &sync->now, target->report);
        const struct publish_input input = input_of(fleet, target, first ? 0 : load_relaxed(&sync->now.remote) - had);
        publish_answer(fleet, &input);
    }
}

static void merge_windows(struct fleet *fleet, const struct merge_target *target)
{
    struct sync_full *sync = target->subject.sync;
    struct sync_counts *counts = target->source->before ? &sync->before : &sync->now;
    const uint64_t had = load_relaxed(&counts->remote);
    note_lost(fleet, target, counts);
    fleet->merge.refunded = merge_window_report(fleet, target) || fleet->merge.refunded;
    if (!target->listens) {
        return;
    }
    demand_remote(sync, counts, target->report);
    if (!target->source->before) {
        const uint64_t number = window_number(&target->rule, load_relaxed(&sync->allowance.seq), fleet->gather.now_ns);
        struct publish_input input = input_of(fleet, target, load_relaxed(&counts->remote) - had);
        input.start_ns = window_span_of(&target->rule, number).start_ns;
        input.with_before = target->source->with_before;
        publish_answer(fleet, &input);
    }
}

static void merge_history(struct fleet *fleet, const struct merge_target *target)
{
    const struct report_subject *subject = &target->subject;
    if (!target->listens) {
        fleet->merge.refunded =
            report_history_acknowledge(fleet, subject, target->report, &target->rule) || fleet->merge.refunded;
        return;
    }
    struct history_news told;
    fleet->merge.refunded =
        report_history_merge(fleet, subject, target->report, &target->rule, &told) || fleet->merge.refunded;
    struct publish_input input = input_of(fleet, target, told.remote);
    input.seen = told.seen;
    input.kept = told.kept;
    publish_history(fleet, &input);
}

static void merge_target(struct fleet *fleet, const struct merge_target *target)
{
    const struct report *report = target->report;
    struct sync_full *sync = target->subject.sync;
    /* The report on the present window is the last one of a key. */
    sync->demand.again = sync->demand.again && (target->source->before || !target->source->again);
    switch (report->kind) {
    case REPORT_WINDOW:
        merge_windows(fleet, target);
        break;
    case REPORT_BUCKET:
        merge_bucket(fleet, target);
        break;
    case REPORT_HISTORY:
        merge_history(fleet, target);
        break;
    }
    if (fleet->news.awaits_peers && load_relaxed(&sync->allowance.since_ns) == 0) {
        table_set_dirty(&fleet->process->table, target->subject.cell); /* reported again when answers are taken in */
    }
    if (report->reset_us != 0 && !target->source->before) {
        uint64_t reset = load_relaxed(&sync->ledger->reset);
        if (record_time_us(reset) == report->reset_us) {
            (void) cas_relaxed(&sync->ledger->reset, &reset, 0); /* a later reset stays */
        }
    }
}

static void merge_one(struct fleet *fleet, const struct policy_set *set, const struct report_source *source,
                      const struct report *report, uint64_t now_ns)
{
    struct table *table = &fleet->process->table;
    struct cell *cell = &table->cells[source->cell];
    const uint64_t hash = load_acquire(&cell->hash); /* [T1] */
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    struct sync_full *sync = sync_of(&fleet->process->syncs, source->cell); /* kept while the cell's round lasts */
    const struct policy *policy = NULL;
    const struct policy_limit *limit = report_limit(set, &table->metas[source->cell], &policy);
    if (limit != NULL && sync != NULL && sync->incarnation == source->incarnation &&
        load_relaxed(&sync->allowance.seq) == source->seq) {
        sync->ledger = refund_ledger_of(fleet->process, source->cell);
        struct merge_target target = {.report = report,
                                      .source = source,
                                      .subject = {source->cell, sync, NULL, policy, limit, now_ns},
                                      .rule = limit->rule};
        target.rule.history_max = load_relaxed(&limit->history_max);
        target.listens = load_relaxed(&policy->outage_mode) == OUTAGE_MODE_NONE && !fleet->news.awaits_peers;
        merge_target(fleet, &target);
    }
    cell_unpin(cell);
}

/*
 * The fleet refuses a record: no answer is to be expected, and the key stays with its equal share. It is reported again
 * when it is scanned.
 */
static void refuse(struct fleet *fleet, const struct report_source *source)
{
    struct table *table = &fleet->process->table;
    struct cell *cell = &table->cells[source->cell];
    const uint64_t hash = load_acquire(&cell->hash); /* [T1] */
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    struct sync_full *sync = sync_of(&fleet->process->syncs, source->cell); /* kept while the cell's round lasts */
    if (sync != NULL && sync->incarnation == source->incarnation) {
        store_relaxed(&sync->allowance.quota_unacked, 0);
        store_relaxed(&sync->allowance.since_ns, max_u64(load_relaxed(&sync->allowance.since_ns), 1));
        bitmap_set(&table->deferred, source->cell);
    }
    cell_unpin(cell);
}

/*
 * Whether a report has no answer that can be taken in. The answer on the present window ends a reset and a resync of
 * both windows. So without an answer on the window before, the answer on the present window is dropped, as if lost.
 */
static bool is_unanswered(const struct fleet *fleet, size_t index)
{
    const struct report *report = &fleet->batch.reports[index];
    return report->status == -EAGAIN || (fleet->batch.sources[index].with_before && report[-1].status == -EAGAIN);
}

/* A report that has no answer is to be sent again. */
static void again(struct fleet *fleet, size_t index)
{
    const struct report_source *source = &fleet->batch.sources[index];
    if (source->cell == TABLE_NONE) {
        return;
    }
    if (fleet->batch.reports[index].kind == REPORT_HISTORY) {
        report_history_retry(fleet, source);
    }
    table_set_dirty(&fleet->process->table, source->cell);
}

/* Drops the evicted keys that were reported; `kept`: by index, those that were not. */
static void drop_evicted(struct fleet *fleet, const bool *kept)
{
    size_t to = 0;
    for (size_t from = 0; from < fleet->batch.evicted_count; from++) {
        if (from >= fleet->batch.evicted_sent || kept[from]) {
            memmove((void *) &fleet->batch.evicted[to++], (const void *) &fleet->batch.evicted[from],
                    sizeof(*fleet->batch.evicted));
        }
    }
    fleet->batch.evicted_count = to;
    fleet->batch.evicted_sent = 0;
}

size_t merge_round(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns,
                   const struct report **first_refused)
{
    bool kept[ROUND_EVICTED] = {false};
    size_t refused = 0;
    fleet->merge.retry_count = 0;
    for (size_t i = 0; i < fleet->round.report_count; i++) {
        const struct report *report = &fleet->batch.reports[i];
        const struct report_source *source = &fleet->batch.sources[i];
        const bool evicted = source->cell == TABLE_NONE;
        if (i + 2 < fleet->round.report_count && source[2].cell != TABLE_NONE) {
            sync_prefetch_cell(fleet->process, source[2].cell);
        }
        if (i + 1 < fleet->round.report_count && source[1].cell != TABLE_NONE) {
            sync_prefetch(&fleet->process->syncs, source[1].cell); /* its compact sync state is in the cache by now */
        }
        if (is_unanswered(fleet, i)) {
            fleet->merge.retry_count++;
            again(fleet, i);
            if (evicted) {
                kept[source->evicted] = true;
            }
        } else if (report->status != 0) {
            *first_refused = refused++ == 0 ? report : *first_refused;
            if (!evicted) {
                refuse(fleet, source);
            }
        } else if (!evicted) {
            merge_one(fleet, set, source, report, now_ns);
        }
    }
    drop_evicted(fleet, kept);
    if (fleet->merge.retry_count != 0) {
        full_sync_restart(fleet);
    }
    return refused;
}

void merge_failed_round(struct fleet *fleet)
{
    for (size_t i = 0; i < fleet->round.report_count; i++) {
        again(fleet, i);
    }
    fleet->round.report_count = 0; /* the evicted keys stay in the batch */
    full_sync_restart(fleet);
}
