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
#include "base/count.h"
#include "base/digits.h"
#include "base/numbers.h"
#include "fleet/keys/bucket_level.h"
#include "fleet/keys/demand.h"
#include "fleet/keys/presumed.h"
#include "fleet/keys/reading.h"
#include "fleet/keys/record.h"
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

/*
 * The state of a bucket that is served in part, without what the smaller rate adds to its time. Units that are new came
 * after `since_ns`.
 */
static struct state whole_bucket(const struct sync_full *sync, const struct rule *rule, struct state state,
                                 uint64_t since_ns)
{
    if (demand_in_parts(sync, since_ns)) {
        const uint64_t since = (bucket_total(state) - sync->demand.known_total) & BUCKET_TOTAL_MASK;
        const uint64_t from_ns = max_u64(load_relaxed(&sync->allowance.inspected_ns), since_ns);
        const uint64_t known = max_u64(sync->demand.known_time, bucket_time(rule, from_ns));
        const uint64_t charged =
            since == 0 ? sync->demand.known_time : saturating_add(known, saturating_mul(since, rule->unit));
        const uint64_t refunds = saturating_sub(load_relaxed(&sync->ledger->refunds[0]), sync->demand.known_refunds);
        state.a = min_u64(state.a, saturating_sub(charged, saturating_mul(refunds, rule->unit)));
    }
    return state;
}

/* Up to when every node has reported all it used. */
static uint64_t watermark_ns(const struct fleet *fleet, uint64_t now_ns)
{
    const uint64_t reported_ns = fleet->membership.watermark_ns;
    return reported_ns != 0 ? min_u64(reported_ns, now_ns) : now_ns;
}

/*
 * Writes what this node has seen of a bucket, without the units that the report is about: the fleet may have lost it.
 *
 * Where units of other nodes are among it, that is the last answer. The state itself has taken each unit in where the
 * bucket was full, so it is later than what the fleet makes of the same units when they come in any order.
 */
static void seen_bucket(const struct fleet *fleet, const struct report_subject *subject, const struct rule *rule,
                        struct state whole, struct report *report)
{
    const struct sync_full *sync = subject->sync;
    const uint64_t now_ns = subject->now_ns;
    const struct demand_stats *demand = &sync->demand;
    const bool alone = load_relaxed(&sync->now.remote) == 0 && membership_nodes(&fleet->membership) == 1;
    const bool known = demand->learned_ns != 0 && demand->known_rate_id == rule->rate_id;
    uint64_t units = report->count;     /* that are in `seen` */
    uint64_t refunds = report->refunds; /* that were taken off `seen` */
    uint64_t seen = whole.a;
    const bool resumed = fleet->news.peers_resume && demand->presumed_rate != 0;
    if (load_relaxed(&sync->allowance.level) != 0 && (presumed_failed(fleet, demand) || resumed)) {
        /*
         * What was left to nodes that have failed was used by no node, and is over. What was left to nodes that were
         * cut off and are back is in the level: it has to be in the fleet's bucket before they report what they owe.
         */
        seen = bucket_level_reported(fleet, sync, rule, report->count, now_ns);
    } else if (!alone && known) {
        const uint64_t since = (demand->known_total - report->acked) & BUCKET_TOTAL_MASK;
        seen = demand->known_time;
        units = report->acked + (since <= BUCKET_TOTAL_MASK / 2 ? since : 0);
        refunds = demand->known_refunds;
    } else if (!alone) {
        seen = saturating_sub(seen, (now_ns - watermark_ns(fleet, now_ns)) << BUCKET_FRACTION_BITS);
    }
    /* The bucket before the units of this report. */
    const uint64_t acked_refunds = min_u64(refunds, report->acked_refunds);
    seen = saturating_add(seen, saturating_mul(refunds - acked_refunds, rule->unit));
    const uint64_t unacked_time = saturating_mul(saturating_sub(units, report->acked), rule->unit);
    /* 0: none. A time that is cut off at the rule's origin would not be without all of these units. */
    report->tat_us = seen > unacked_time ? bucket_time_ns(rule, seen - unacked_time) / NS_PER_US : 0;
    report->known_refunds = acked_refunds + load_relaxed(&sync->now.remote_refunds);
}

/*
 * After an outage: what was used meanwhile has refilled, at this node's fraction of the rate, except for what its own
 * bucket owes. So that much moves the fleet's bucket, from now on, and the rest only counts. What is owed is held back
 * until all nodes are there: then the debts of all nodes are added up as of one time, whenever each node has come back.
 * An evicted key cannot wait.
 *
 * Nodes that were not away have left the fraction of the others to them, and that is in the fleet's bucket
 * (seen_bucket). So the bucket is moved no further than to where it is empty: else it would deny what refills. A node
 * that owes more than an empty bucket has charged it without asking (weir_charge).
 */
static void tell_of_outage(const struct fleet *fleet, const struct report_subject *subject, const struct rule *rule,
                           struct state state, uint64_t unreported, struct report *report)
{
    const bool last = subject->cell == TABLE_NONE;
    const uint64_t now_ns = subject->now_ns;
    const uint32_t fraction = fraction_demand(fleet->process, &subject->sync->allowance);
    const uint64_t now = bucket_time(rule, now_ns);
    const uint64_t debt = saturating_sub(state.a, now);
    const uint64_t own = fraction != 0 ? muldiv_ceil(debt, fraction, FRACTION_WHOLE) : debt;
    const uint64_t owed = min_u64(own / max_u64(rule->unit, 1) + (own % max_u64(rule->unit, 1) != 0), unreported);
    const bool charged = debt > saturating_add(rule->tolerance, rule->tolerance / CHARGED_DIVISOR);
    report->moves = owed + 1;
    if (!fleet->batch.tells_debt && !last) {
        report->count -= owed;
        report->moves = 1; /* none */
    }
    report->most_us = charged ? UINT64_MAX : bucket_time_ns(rule, saturating_add(now, rule->tolerance)) / NS_PER_US;
}

static void report_bucket(struct fleet *fleet, const struct report_subject *subject, const struct reading *reading,
                          const struct account *account)
{
    struct sync_full *sync = subject->sync;
    const struct policy *policy = subject->policy;
    const uint64_t now_ns = subject->now_ns;
    /* By the rate the bucket was last charged at: of a pricing tier, an override of the key, or an earlier policy. */
    struct rule rule = subject->limit->rule;
    rule_convert_rate(&rule, bucket_rate_id(reading->state));
    /* A single node has no fraction but the whole. */
    const bool in_parts =
        membership_nodes(&fleet->membership) > 1 || load_relaxed(&sync->allowance.remote_fraction) != 0;
    sync->demand.shared = sync->demand.shared || (in_parts && load_relaxed(&policy->outage_mode) == OUTAGE_MODE_SHARE);
    const struct state whole = whole_bucket(sync, &rule, reading->state, now_ns - fleet->process->interval_ns);
    if (load_relaxed(&policy->outage_mode) == OUTAGE_MODE_OPEN || waive_pending(fleet, policy, subject->cell)) {
        /* The node was told to admit everything: no debt. */
        sync->before.acked = account->own[0];
        sync->before.acked_refunds = account->refunds[0];
    }
    struct report_source *source = NULL;
    struct report *report = record_add(fleet, subject->cell, sync, false, &source);
    source->again = account->again;
    (void) record_name(fleet, report->record, policy, subject->limit, subject->key);
    report->kind = REPORT_BUCKET;
    report->count = account->own[0];
    report->demand = sync->now.demand < COUNT_RESTART ? max_u64(sync->now.demand, report->count) : sync->now.demand;
    report->acked = max_u64(sync->now.acked, sync->before.acked);
    report->refunds = account->refunds[0];
    report->reset_us = record_reset_us(sync);
    report->reset_kept = load_relaxed(&sync->ledger->reset_emptied) != 0 ? bucket_owed_up(&rule, whole, now_ns) : 0;
    report->rate_id = rule.rate_id;
    report->acked_refunds = max_u64(sync->now.acked_refunds, sync->before.acked_refunds);
    report->now_us = now_ns / NS_PER_US;
    report->from_us = watermark_ns(fleet, now_ns) / NS_PER_US;
    seen_bucket(fleet, subject, &rule, whole, report);
    if (sync->demand.shared && fleet->news.awaits_peers) {
        tell_of_outage(fleet, subject, &rule, reading->state, account->unreported, report);
    }
    report->unit_ps = max_u64(rule.unit * 1000 >> BUCKET_FRACTION_BITS, 1);
    report->expire_ms = BUCKET_SLACK_MS;
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
        report_bucket(fleet, subject, reading, account);
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

bool report_evicted(struct fleet *fleet, const struct policy_set *set, uint32_t index, uint64_t now_ns)
{
    /* A copy: after a failed round the reports are made anew, from the sync state as it was. */
    struct evicted_report evicted;
    memcpy((void *) &evicted, (const void *) &fleet->batch.evicted[index], sizeof(evicted));
    evicted.sync.ledger = &evicted.ledger;
    const size_t first = fleet->round.report_count;
    const struct policy *policy = NULL;
    const struct policy_limit *limit = report_limit(set, &evicted.meta, &policy);
    if (limit == NULL) {
        return true;
    }
    const struct report_subject subject = {TABLE_NONE, &evicted.sync, &evicted.key, policy, limit, now_ns};
    if (rule_kind(&limit->rule) == RULE_HISTORY) {
        if (!report_history_evicted(fleet, &subject, &evicted)) {
            return false;
        }
    } else {
        const struct reading reading = {
            .refunds = {load_relaxed(&evicted.ledger.refunds[0]), load_relaxed(&evicted.ledger.refunds[1])},
            .state = evicted.state};
        const struct account account = account_of_evicted(fleet, &evicted.sync, &limit->rule, &reading, now_ns);
        report_counts(fleet, &subject, &reading, &account);
    }
    for (size_t i = first; i < fleet->round.report_count; i++) {
        fleet->batch.sources[i].evicted = index;
    }
    return true;
}
