/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From cells to reports. (Which cells, and when: gather.c. From answers back to cells: merge.c.)
 *
 * A cell is reported when it is due (account.c). Its unreported units are then more than a small part of the headroom;
 * or the fleet has not answered for it yet; or it is urgent (process/allowance.c), or old. Counts are
 * cumulative, so a report that is lost or repeated does no harm. The invariants R1 to R3 are in account.c.
 */
#include "fleet/keys/report.h"

#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/digits.h"
#include "base/numbers.h"
#include "fleet/keys/bucket_level.h"
#include "fleet/keys/demand.h"
#include "fleet/keys/presumed.h"
#include "fleet/keys/reading.h"
#include "fleet/keys/record.h"
#include "fleet/keys/report_bucket.h"
#include "fleet/keys/report_history.h"
#include "fleet/keys/waive.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/evict.h"
#include "process/fraction.h"
#include "process/key_name.h"
#include "process/sync_pool.h"

/*
 * Whether the window before is reported: for unreported units; for as long as the other nodes may still report theirs;
 * and, where it still counts, now and then.
 */
static bool before_matters(const struct fleet *fleet, const struct report_subject *subject,
                           const struct reading *reading, uint64_t start_ns)
{
    const struct sync_full *sync = subject->sync;
    const bool known = sync->before.acked != 0 || load_relaxed(&sync->before.remote) != 0;
    const bool counts = rule_slides(&subject->limit->rule);
    const bool first = counts && sync->demand.learned_ns < start_ns;
    const bool fresh = saturating_sub(subject->now_ns, start_ns) < BEFORE_INTERVALS * fleet->process->interval_ns;
    const bool now_and_then =
        counts && window_previous(reading->state) != 0 && fleet->gather.interval_count % BEFORE_EVERY == 0;
    return first || now_and_then || (fresh && (known || window_previous(reading->state) != 0));
}

/* Whether this window is reported even without unreported units. A record that no node has used need not exist. */
static bool now_matters(const struct sync_full *sync)
{
    return sync->now.demand != 0 || load_relaxed(&sync->allowance.fraction) != 0 ||
           load_relaxed(&sync->allowance.remote_rate) != 0 || load_relaxed(&sync->allowance.quota_unacked) != 0;
}

/* Units that a reset left in a window: its node has admitted them since the reset. */
static uint64_t reset_kept(const struct sync_full *sync, const struct reading *reading, bool before)
{
    if (load_relaxed(&sync->ledger->reset_emptied) == 0) {
        return 0;
    }
    return before ? window_previous(reading->state) : window_count(reading->state);
}

/* Adds the report of one window, if there is one to add. True: there was. */
static bool report_one_window(struct fleet *fleet, const struct report_subject *subject, const struct reading *reading,
                              const struct account *account, bool before, bool with_before)
{
    const struct rule *rule = &subject->limit->rule;
    const struct sync_full *sync = subject->sync;
    const struct sync_counts *counts = before ? &sync->before : &sync->now;
    const uint64_t now_number = window_number(rule, window_seq(reading->state), subject->now_ns);
    const uint64_t number = now_number - before;
    /* A window counts in its own period, and in the period after. */
    const uint64_t end_ns = window_span_of(rule, number + 1).end_ns;
    /* A window that began after the reset has nothing to do with it. */
    const uint64_t reset_us = record_reset_us(sync);
    const uint64_t reset = window_span_of(rule, number).start_ns / NS_PER_US <= reset_us ? reset_us : 0;
    const bool news = account->own[before] != counts->acked || account->refunds[before] != counts->acked_refunds ||
                      reset != 0 || (account->again && account->own[before] != 0);
    const bool matters =
        before ? before_matters(fleet, subject, reading, window_span_of(rule, now_number).start_ns) : now_matters(sync);
    if (!(news || matters) || end_ns <= subject->now_ns || number > now_number) {
        return false;
    }
    struct report_source *source = NULL;
    struct report *report = record_add(fleet, subject->cell, sync, before, &source);
    source->with_before = with_before;
    source->again = account->again;
    const size_t length = record_name(fleet, report->record, subject->policy, subject->limit, subject->key);
    report->record[length] = ':';
    (void) decimal_write(report->record + length + 1, number);
    report->kind = REPORT_WINDOW;
    report->count = account->own[before];
    report->refunds = account->refunds[before];
    report->acked = account->again ? 0 : counts->acked;
    report->reset_us = reset;
    report->reset_kept = reset_kept(sync, reading, before);
    report->demand = max_u64(counts->demand, account->own[before]);
    report->expire_ms = (end_ns - subject->now_ns) / NS_PER_MS + WINDOW_SLACK_MS;
    return true;
}

static void report_windows(struct fleet *fleet, const struct report_subject *subject, const struct reading *reading,
                           const struct account *account)
{
    const struct rule *rule = &subject->limit->rule;
    const uint64_t number = window_number(rule, window_seq(reading->state), subject->now_ns);
    uint64_t reset_ns = load_relaxed(&subject->sync->ledger->reset);
    if (reset_ns != 0 && number != 0 && reset_ns < window_span_of(rule, number - 1).start_ns) {
        (void) cas_relaxed(&subject->sync->ledger->reset, &reset_ns, 0); /* the windows it was for are over */
    }
    /* The window before comes first: with the answer on this window all answers are merged (publish_answer). */
    const bool with_before = report_one_window(fleet, subject, reading, account, true, false);
    (void) report_one_window(fleet, subject, reading, account, false, with_before);
}

/* The reports of a window or a bucket. A sliding log's: report_history.c. */
static void report_counts(struct fleet *fleet, const struct report_subject *subject, const struct reading *reading,
                          const struct account *account)
{
    switch (rule_kind(&subject->limit->rule)) {
    case RULE_WINDOW:
        report_windows(fleet, subject, reading, account);
        break;
    case RULE_BUCKET:
        report_bucket_add(fleet, subject, reading, account);
        break;
    case RULE_HISTORY:
        break;
    }
}

const struct policy_limit *report_limit(const struct policy_set *set, const struct cell_meta *meta,
                                        const struct policy **policy)
{
    if (!cell_meta_is(meta, CELL_SHARED)) {
        return NULL;
    }
    return policy_set_limit(set, load_relaxed(&meta->group), load_relaxed(&meta->limit_tag), policy);
}

/* The full sync state of a cell that is about to be reported; NULL: there is none to be had. */
static struct sync_full *sync_for_report(struct fleet *fleet, uint32_t at, struct sync_full *sync,
                                         const struct sync_full *room, uint64_t now_ns, enum urge urge)
{
    if (sync == room) {
        sync = sync_promote(fleet->process, at, room, fleet->gather.number);
        if (sync == NULL) {
            fleet->batch.sync_missing = true;
            return NULL;
        }
        demand_reset(sync, now_ns, fleet->process->interval_ns, urge != URGE_NOW);
    }
    sync->round = fleet->gather.number;
    return sync;
}

/* Whether a cell can wait for its scan. */
static bool defers(const struct fleet *fleet, const struct account_view *view, enum urge urge)
{
    switch (urge) {
    case URGE_IF_DUE:
        return !fleet->gather.reports_all && !account_due(fleet, view, urge);
    case URGE_SCAN:
        return !account_due(fleet, view, urge);
    case URGE_NOW:
    case URGE_AGAIN:
        break;
    }
    return false;
}

/* Adds the reports of a pinned cell of this limit; returns what report_cell returns. */
static bool report_pinned(struct fleet *fleet, uint32_t at, const struct policy *policy,
                          const struct policy_limit *limit, uint64_t now_ns, enum urge urge)
{
    struct process *process = fleet->process;
    struct table *table = &process->table;
    struct sync_full room;
    struct sync_full *sync = sync_load(process, at, &limit->rule, now_ns, &room);
    sync->demand.again = sync->demand.again || urge == URGE_AGAIN; /* until it is answered */
    const bool log = rule_kind(&limit->rule) == RULE_HISTORY;
    struct account account = {.unreported = 0};
    struct reading reading;
    if (!log) {
        account = account_take(fleet, &table->cells[at], sync, &limit->rule, &reading, now_ns);
        account.again = sync->demand.again;
        const struct account_view view = {sync, &limit->rule, reading.state, &account, now_ns};
        if (defers(fleet, &view, urge)) {
            sync_store(process, at, sync);
            bitmap_set(&table->deferred, at);
            counter_add(&fleet->stats.deferred_report_count, urge == URGE_IF_DUE ? 1 : 0);
            if (sync == &room && account.denied != 0) {
                sync_add_denied(&process->syncs, at, account.denied); /* to be counted when it is due */
            }
            return true;
        }
    }
    sync = sync_for_report(fleet, at, sync, &room, now_ns, urge);
    if (sync == NULL) {
        (void) add_relaxed(&room.denied, account.denied);
        sync_store(process, at, &room); /* the cell is reported in a later round all the same */
        table_set_dirty(table, at);
        return true;
    }
    const struct key_name key = compact_key(process, at);
    const struct report_subject subject = {at, sync, &key, policy, limit, now_ns};
    if (log) {
        return report_history_add(fleet, &subject, urge == URGE_AGAIN);
    }
    bitmap_clear(&table->deferred, at);
    sync->demand.round = fleet->gather.number;
    report_counts(fleet, &subject, &reading, &account);
    return true;
}

bool report_cell(struct fleet *fleet, const struct policy_set *set, uint32_t at, uint64_t now_ns, enum urge urge)
{
    struct table *table = &fleet->process->table;
    struct cell *cell = &table->cells[at];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0) {
        return true; /* the key was evicted: its last report is in the ring of evicted keys */
    }
    if (!cell_pin(cell, hash)) {
        return false; /* locked: about to be evicted, or not after all */
    }
    const struct policy *policy = NULL;
    const struct policy_limit *limit = report_limit(set, &table->metas[at], &policy);
    const struct sync_full *sync = limit != NULL ? sync_of(&fleet->process->syncs, at) : NULL;
    bool all = true;
    if (sync != NULL && sync->demand.round == fleet->gather.number) {
        /* The cell is in this round: reported twice, its answer would be merged twice. */
        table_set_dirty(table, at);
        all = urge != URGE_AGAIN;
    } else {
        bitmap_clear(&table->dirty, at); /* [T4] before the state is read */
        all = limit == NULL || report_pinned(fleet, at, policy, limit, now_ns, urge);
    }
    cell_unpin(cell);
    return all;
}

bool report_evicted(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns)
{
    /* A copy: after a failed round the reports are made anew, from the sync state as it was. */
    struct evicted_report evicted;
    memcpy((void *) &evicted, (const void *) &fleet->batch.evicted[fleet->batch.evicted_sent], sizeof(evicted));
    evicted.sync.ledger = &evicted.ledger;
    const struct policy *policy = NULL;
    const struct policy_limit *limit = report_limit(set, &evicted.meta, &policy);
    if (limit == NULL) {
        return true;
    }
    const struct report_subject subject = {TABLE_NONE, &evicted.sync, &evicted.key, policy, limit, now_ns};
    if (rule_kind(&limit->rule) == RULE_HISTORY) {
        return report_history_evicted(fleet, &subject, &evicted);
    }
    const struct reading reading = {
        .refunds = {load_relaxed(&evicted.ledger.refunds[0]), load_relaxed(&evicted.ledger.refunds[1])},
        .state = evicted.state};
    const struct account account = account_of_evicted(fleet, &evicted.sync, &limit->rule, &reading, now_ns);
    report_counts(fleet, &subject, &reading, &account);
    return true;
}
