/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the fleet's answers to cells. Invariants: R1 to R3 in report.c.
 *
 * Only on the fleet's rung, and only when every node has told what it used: while some have not, after an outage or a
 * loss of records, an answer acknowledges what it was told, and no more.
 */
#include <errno.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/count.h"
#include "base/numbers.h"
#include "fleet/demand.h"
#include "fleet/full_sync.h"
#include "fleet/publish.h"
#include "fleet/record.h"
#include "fleet/report.h"
#include "fleet/report_history.h"
#include "fleet/state.h"
#include "fleet/tuning.h"

/* What a record's answer says of the others and of the author. */
struct answer {
    uint64_t remote, remote_refunds; /* as this node goes by */
    uint64_t reset;                  /* the author's units that were given back in its name */
};

static struct answer answer_of(const struct report *report, const struct sync_counts *counts, bool listens)
{
    struct answer answer = {.remote = load_relaxed(&counts->remote),
                            .remote_refunds = load_relaxed(&counts->remote_refunds),
                            .reset = count_growth(count_wire(report->refunds), report->mine_refunds)};
    if (listens) {
        /* R3 */
        answer.remote = count_remote(answer.remote, report->sum, report->mine);
        answer.remote_refunds = count_remote(answer.remote_refunds, report->sum_refunds, report->mine_refunds);
    }
    return answer;
}

/* Counts what is the difference to the last answer. True: something was given back. */
static bool merge_window_report(struct process *process, uint32_t at, struct sync_full *sync, bool before,
                                const struct report *report, bool listens)
{
    struct cell *cell = &process->table.cells[at];
    struct sync_counts *counts = before ? &sync->before : &sync->now;
    const uint32_t seq = (load_relaxed(&sync->allowance.seq) - before) & WINDOW_SEQ_MASK;
    const struct answer answer = answer_of(report, counts, listens);
    const uint64_t had = counts_merged(counts);
    const uint64_t refunds = answer.remote_refunds - load_relaxed(&counts->remote_refunds);
    counts->acked = max_u64(counts->acked, report->count);
    counts->acked_refunds = max_u64(counts->acked_refunds, report->refunds);
    store_relaxed(&counts->remote, answer.remote); /* R1 */
    store_relaxed(&counts->remote_refunds, answer.remote_refunds);
    if (report->reset_us != 0) {
        store_relaxed(&counts->restored, 0); /* the fleet has given back all there was */
    }
    const uint64_t more = saturating_sub(counts_merged(counts), had);
    const uint64_t less = saturating_sub(had, counts_merged(counts));
    if (more == 0 && less == 0 && refunds == 0 && answer.reset == 0) {
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
    counts->deficit = saturating_sub(off, there); /* R1 */
    if (answer.reset != 0) {
        refund_ledger_add_window(refund_ledger_make(process, at), seq, answer.reset); /* [A1] */
    }
    return refunds + answer.reset + less != 0;
}

/*
 * The same for a bucket. An answer that holds this node's own units alone changes nothing: the state has counted them
 * as they came.
 */
static bool merge_bucket_report(struct fleet *fleet, uint32_t at, struct sync_full *sync, const struct rule *rule,
                                const struct report *report, bool listens, uint64_t now_ns)
{
    struct process *process = fleet->process;
    struct cell *cell = &process->table.cells[at];
    const struct answer answer = answer_of(report, &sync->now, listens);
    const uint64_t refunds = answer.remote_refunds - load_relaxed(&sync->now.remote_refunds);
    struct rule as = *rule;
    rule_convert_rate(&as, report->rate_id);
    sync->now.acked_refunds = max_u64(sync->now.acked_refunds, report->refunds + answer.reset);
    const uint64_t unseen_refunds = load_acquire(&sync->ledger->refunds[0]) - report->refunds; /* [A1] */
    /* Served in part, its units took more time than they were worth: the fleet's is the right one. */
    const bool in_parts = demand_in_parts(sync, fleet->gather.now_ns - process->interval_ns);
    if (listens || !in_parts) {
        sync->now.acked = report->count;
    } else {
        table_set_dirty(&process->table,
                        at); /* what they are worth is known while they count as untold (sync_state.c) */
    }
    if (report->moves != 0 && !fleet->batch.tells_debt) {
        table_set_dirty(&process->table, at); /* for what it held back: nobody may use the key again */
    }
    const uint64_t restored = load_relaxed(&sync->now.restored);
    const bool forgiven = restored != 0 && report->reset_us != 0;
    const bool alone = answer.remote == 0 && !in_parts && !forgiven;
    struct bucket_news news = {.returned = refunds + answer.reset};
    if (listens && !alone) {
        news.tat_ns = saturating_mul(report->tat_answer_us, NS_PER_US);
        news.unseen_returned = unseen_refunds;
        news.more = in_parts || forgiven || sync->demand.learned_ns == 0
                        ? UINT64_MAX
                        : answer.remote - load_relaxed(&sync->now.remote);
    }
    struct dwcas_value value = dwcas_read(&cell->state);
    struct state merged;
    do {
        struct state state = cell_state(value);
        news.unseen = listens && !alone ? (bucket_total(state) - report->count) & BUCKET_TOTAL_MASK : 0;
        if ((in_parts || forgiven) && listens) {
            /* That one may be a forgotten key's, which the fleet has yet to hear of. */
            state.a = forgiven ? 0 : restored;
        }
        merged = bucket_merge(&as, state, now_ns, &news);
    } while (!dwcas_swap(&cell->state, &value, cell_value(merged, value)));
    if (forgiven && listens) {
        store_relaxed(&sync->now.restored, 0);
    }
    if (listens) {
        sync->demand.fraction_ns = sync->demand.shared ? fleet->gather.now_ns : sync->demand.fraction_ns;
        sync->demand.shared = false;
        news.unseen = 0; /* as of the report */
        sync->demand.known_time = alone ? merged.a : bucket_news_time(&as, &news);
        sync->demand.known_rate_id = report->rate_id;
        sync->demand.known_total = alone ? bucket_total(merged) : report->count & BUCKET_TOTAL_MASK;
        sync->demand.known_refunds = report->refunds + unseen_refunds + answer.reset;
    }
    store_relaxed(&sync->now.remote, answer.remote);
    store_relaxed(&sync->now.remote_refunds, answer.remote_refunds);
    if (answer.reset != 0) {
        (void) add_release(&refund_ledger_make(process, at)->refunds[0], answer.reset); /* [A1] */
    }
    return refunds + answer.reset != 0;
}

/* Somebody's units are no longer there, and perhaps ours are not, elsewhere. */
static bool lost_some(const struct report *report, const struct sync_counts *counts)
{
    return count_is_behind(load_relaxed(&counts->remote), report->sum, report->mine);
}

static void merge_bucket(struct fleet *fleet, uint32_t at, struct sync_full *sync, const struct rule *rule,
                         const struct report *report, bool listens, uint64_t now_ns)
{
    const uint64_t had = load_relaxed(&sync->now.remote);
    const bool first = sync->demand.learned_ns == 0;
    fleet->merge.lost = fleet->merge.lost || (listens && lost_some(report, &sync->now));
    fleet->merge.refunded =
        merge_bucket_report(fleet, at, sync, rule, report, listens, now_ns) || fleet->merge.refunded;
    if (listens) {
        demand_remote(sync, &sync->now, report);
        publish_answer(fleet, &fleet->process->table.cells[at], sync, rule, report,
                       first ? 0 : load_relaxed(&sync->now.remote) - had, 0, false);
    }
}

static void merge_windows(struct fleet *fleet, uint32_t at, struct sync_full *sync, const struct rule *rule,
                          const struct report_source *source, const struct report *report, bool listens)
{
    struct sync_counts *counts = source->before ? &sync->before : &sync->now;
    const uint64_t had = load_relaxed(&counts->remote);
    fleet->merge.lost = fleet->merge.lost || (listens && lost_some(report, counts));
    fleet->merge.refunded =
        merge_window_report(fleet->process, at, sync, source->before, report, listens) || fleet->merge.refunded;
    if (!listens) {
        return;
    }
    demand_remote(sync, counts, report);
    if (!source->before) {
        const uint64_t number = window_number(rule, load_relaxed(&sync->allowance.seq), fleet->gather.now_ns);
        publish_answer(fleet, &fleet->process->table.cells[at], sync, rule, report, load_relaxed(&counts->remote) - had,
                       window_span_of(rule, number).start_ns, source->with_before);
    }
}

static void merge_one(struct fleet *fleet, const struct policy_set *set, const struct report_source *source,
                      const struct report *report, uint64_t now_ns)
{
    struct table *table = &fleet->process->table;
    struct cell *cell = &table->cells[source->cell];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    struct sync_full *sync = sync_of(&fleet->process->syncs, source->cell); /* while its round lasts it keeps it */
    const struct policy *policy = NULL;
    const struct policy_limit *limit = report_limit(set, &table->metas[source->cell], &policy);
    if (limit != NULL && sync != NULL && sync->incarnation == source->incarnation &&
        load_relaxed(&sync->allowance.seq) == source->seq) {
        sync->ledger = refund_ledger_of(fleet->process, source->cell);
        /* As configured: the ladder's numbers are for requests. */
        struct rule rule = limit->rule;
        rule.history_max = load_relaxed(&limit->history_max);
        const bool listens = load_relaxed(&policy->outage_mode) == OUTAGE_MODE_NONE && !fleet->news.awaits_peers;
        sync->demand.again =
            sync->demand.again && (source->before || !source->again); /* the present window's is the last */
        if (report->kind == REPORT_BUCKET) {
            merge_bucket(fleet, source->cell, sync, &rule, report, listens, now_ns);
        } else if (report->kind == REPORT_HISTORY && listens) {
            uint64_t remote;
            fleet->merge.refunded = report_history_merge(fleet, source->cell, sync, &rule, report, now_ns, &remote) ||
                                    fleet->merge.refunded;
            publish_history(fleet, cell, sync, &rule, report, remote);
        } else if (report->kind == REPORT_WINDOW) {
            merge_windows(fleet, source->cell, sync, &rule, source, report, listens);
        }
        if (fleet->news.awaits_peers && load_relaxed(&sync->allowance.since_ns) == 0) {
            table_set_dirty(table, source->cell); /* it is told of again when answers are taken in */
        }
        if (report->reset_us != 0 && !source->before) {
            uint64_t reset = load_relaxed(&sync->ledger->reset);
            if (record_time_us(reset) == report->reset_us) {
                (void) cas_relaxed(&sync->ledger->reset, &reset, 0); /* a later one stays */
            }
        }
    }
    cell_unpin(cell);
}

/*
 * A record that the fleet refuses: no answer is to be expected, and its key stays with an even part. In its turn it is
 * told again.
 */
static void refuse(struct fleet *fleet, const struct report_source *source)
{
    struct table *table = &fleet->process->table;
    struct cell *cell = &table->cells[source->cell];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    struct sync_full *sync = sync_of(&fleet->process->syncs, source->cell); /* while its round lasts it keeps it */
    if (sync != NULL && sync->incarnation == source->incarnation) {
        store_relaxed(&sync->allowance.quota_unacked, 0);
        store_relaxed(&sync->allowance.since_ns, max_u64(load_relaxed(&sync->allowance.since_ns), 1));
        bitmap_set(&table->deferred, source->cell);
    }
    cell_unpin(cell);
}

/* What could not be told is to be told again. */
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

/* Drops the forgotten keys that were told of; `kept`: by index, those that were not. */
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
        const bool forgotten = source->cell == TABLE_NONE;
        if (i + 2 < fleet->round.report_count && source[2].cell != TABLE_NONE) {
            process_prefetch(fleet->process, source[2].cell);
        }
        if (i + 1 < fleet->round.report_count && source[1].cell != TABLE_NONE) {
            sync_prefetch(&fleet->process->syncs, source[1].cell); /* its stub is there by now */
        }
        if (report->status == -EAGAIN) {
            fleet->merge.retry_count++;
            again(fleet, i);
            if (forgotten) {
                kept[source->evicted] = true;
            }
        } else if (report->status != 0) {
            *first_refused = refused++ == 0 ? report : *first_refused;
            if (!forgotten) {
                refuse(fleet, source);
            }
        } else if (!forgotten) {
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
    fleet->round.report_count = 0; /* the forgotten keys stay in fleet->orphans */
    full_sync_restart(fleet);
}
