/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From cells to reports. (From answers back to cells: merge.c. Which cells, and when: gather.c.)
 *
 * A cell's state counts what this node admitted and, folded in, what the others did as of the last answer; its note
 * knows the second part (told.others), so the first is the difference, and that is reported. Units of grants are
 * counted when they are settled, so a count never decreases.
 *
 * Units that were given back are counted beside: the note has this node's own, told.remote_refunds the others'.
 *
 * Invariants
 *   R1  window: state count (or previous) = own units - own given back + others - told.remote_refunds + told.deficit of
 *       that window; deficit is more than 0 where that would be less than 0 (two nodes have given back the same);
 *       others is told.others, or what the key is remembered to have used where that is more (counts_merged): an
 * earlier stay of the key here has told of those units, or a forgotten key's last report will
 *
 *   R2  reported <= own units counted; what is counted later makes the cell dirty again
 *
 *   R3  told.others and told.remote_refunds never decrease within a window: what the fleet has lost is told again, and
 * not admitted again
 *
 * A log's units are told by number and time; its answer is what the others have in the window, which replaces what it
 * was. Where the fleet turns out not to have this node's units, all in the window are told again.
 *
 * A cell is reported when that matters: when what it has not told is more than a small share of its headroom, when the
 * fleet has not told of it yet, when it cannot wait (allowance.c); and else when it is old, in its turn (account_due(),
 * gather.c).
 *
 * A note's `tag` is the state's when the background thread last looked. If the state has moved on by one window since,
 * the note's `now` belongs to the state's `previous`.
 */
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/count.h"
#include "base/decimal.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "fleet/account.h"
#include "fleet/bucket_level.h"
#include "fleet/demand.h"
#include "fleet/presumed.h"
#include "fleet/reading.h"
#include "fleet/record.h"
#include "fleet/report.h"
#include "fleet/report_history.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "fleet/waive.h"
#include "process/fraction.h"
#include "process/key_name.h"

/*
 * Whether the window before is of interest: for what it has not told; for as long as the others may have news of it;
 * and where it still counts, now and then.
 */
static bool before_matters(const struct fleet *fleet, const struct sync_full *sync, const struct policy_limit *limit,
                           const struct reading *reading, uint64_t start_ns, uint64_t now_ns, bool news)
{
    const bool known = sync->before.acked != 0 || load_relaxed(&sync->before.remote) != 0;
    const bool counts = limit->rule.algorithm == WEIR_SLIDING_WINDOW;
    const bool first = counts && sync->demand.learned_ns < start_ns;
    const bool fresh = saturating_sub(now_ns, start_ns) < BEFORE_INTERVALS * fleet->process->interval_ns;
    const bool now_and_then =
        counts && window_previous(reading->state) != 0 && fleet->gather.interval_count % BEFORE_EVERY == 0;
    return news || first || now_and_then || (fresh && (known || window_previous(reading->state) != 0));
}

/* Whether this window is, with or without news. A record that nobody has used need not be there. */
static bool now_matters(const struct sync_full *sync)
{
    return sync->now.demand != 0 || load_relaxed(&sync->allowance.fraction) != 0 ||
           load_relaxed(&sync->allowance.remote_rate) != 0 || load_relaxed(&sync->allowance.quota_unacked) != 0;
}

static void window_report(struct fleet *fleet, uint32_t cell, struct sync_full *sync, const struct key_name *key,
                          const struct policy *policy, const struct policy_limit *limit, const struct reading *reading,
                          const struct account *account, uint64_t now_ns)
{
    const uint32_t seq = window_seq(reading->state);
    const uint64_t number = window_number(&limit->rule, seq, now_ns);
    const uint64_t start_ns = window_span_of(&limit->rule, number).start_ns;
    uint64_t reset_ns = load_relaxed(&sync->ledger->reset);
    if (reset_ns != 0 && number != 0 && reset_ns < window_span_of(&limit->rule, number - 1).start_ns) {
        (void) cas_relaxed(&sync->ledger->reset, &reset_ns, 0); /* the windows it was for are over */
    }
    bool with_before = false;
    /* The one before first: with the answer on this window all is there (publish_answer). */
    for (unsigned before = 2; before-- > 0;) {
        const struct sync_counts *counts = before != 0 ? &sync->before : &sync->now;
        const uint64_t of = number - before;
        /* It counts in its own window, and in the one after. */
        const uint64_t end_ns = window_span_of(&limit->rule, of + 1).end_ns;
        /* A window that began after the reset has nothing to do with it. */
        const uint64_t reset =
            window_span_of(&limit->rule, of).start_ns / NS_PER_US <= record_reset_us(sync) ? record_reset_us(sync) : 0;
        const bool news = account->own[before] != counts->acked || account->refunds[before] != counts->acked_refunds ||
                          reset != 0 || (account->again && account->own[before] != 0);
        const bool matters = before != 0 ? before_matters(fleet, sync, limit, reading, start_ns, now_ns, news)
                                         : news || now_matters(sync);
        if (!matters || end_ns <= now_ns || of > number) {
            continue;
        }
        struct report *report = record_add(fleet, cell, sync, before != 0);
        fleet->batch.sources[fleet->round.report_count - 1].with_before = with_before;
        fleet->batch.sources[fleet->round.report_count - 1].again = account->again;
        with_before = true;
        const size_t length = record_name(fleet, report->record, policy, limit, key);
        report->record[length] = ':';
        (void) decimal_write(report->record + length + 1, of);
        report->kind = REPORT_WINDOW;
        report->count = account->own[before];
        report->refunds = account->refunds[before];
        report->reset_us = reset;
        report->reset_kept = load_relaxed(&sync->ledger->reset_emptied) == 0 ? 0
                             : before != 0                                   ? window_previous(reading->state)
                                                                             : window_count(reading->state);
        report->demand = max_u64(counts->demand, account->own[before]);
        report->expire_ms = (end_ns - now_ns) / NS_PER_MS + WINDOW_SLACK_MS;
    }
}

/* A bucket that is served in part, without what that adds to it; what is new came after `since_ns`. */
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

/* Up to when every node has told all it used. */
static uint64_t told_since(const struct fleet *fleet, uint64_t now_ns)
{
    const uint64_t watermark_ns = fleet->membership.watermark_ns;
    return watermark_ns != 0 ? min_u64(watermark_ns, now_ns) : now_ns;
}

/*
 * What this node has seen of a bucket, without the units that it is about to tell of: the fleet may have lost it.
 *
 * With the units of others among it that is the last answer. The state itself has taken each unit in where the bucket
 * was full, and is later than what the fleet makes of the same units when they come in any order.
 */
static void seen_bucket(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule,
                        struct state whole, uint64_t now_ns, struct report *report)
{
    const struct demand_stats *demand = &sync->demand;
    const bool alone = load_relaxed(&sync->now.remote) == 0 && membership_nodes(&fleet->membership) == 1;
    const bool known = demand->learned_ns != 0 && demand->known_rate_id == rule->rate_id;
    uint64_t units = report->count;     /* that are in `seen` */
    uint64_t refunds = report->refunds; /* that were taken off it */
    uint64_t seen = whole.a;
    if (presumed_failed(fleet, demand) && load_relaxed(&sync->allowance.level) != 0) {
        /* What was left to nodes that have failed was used by nobody, and is over. */
        seen = bucket_level_reported(fleet, sync, rule, report->count, now_ns);
    } else if (fleet->news.peers_resume && demand->presumed_rate != 0 && load_relaxed(&sync->allowance.level) != 0) {
        /*
         * Nodes that were cut off are back. What was left to them is in the level: it has to be in the fleet's bucket
         * before they report what they owe.
         */
        seen = bucket_level_reported(fleet, sync, rule, report->count, now_ns);
    } else if (!alone && known) {
        const uint64_t since = (demand->known_total - report->acked) & BUCKET_TOTAL_MASK;
        seen = demand->known_time;
        units = report->acked + (since <= BUCKET_TOTAL_MASK / 2 ? since : 0);
        refunds = demand->known_refunds;
    } else if (!alone) {
        seen = saturating_sub(seen, (now_ns - told_since(fleet, now_ns)) << BUCKET_FRACTION_BITS);
    }
    /* As it was before what is told now. */
    const uint64_t acked_refunds = min_u64(refunds, report->acked_refunds);
    seen = saturating_add(seen, saturating_mul(refunds - acked_refunds, rule->unit));
    seen = saturating_sub(seen, saturating_mul(saturating_sub(units, report->acked), rule->unit));
    report->tat_us = bucket_time_ns(rule, seen) / NS_PER_US;
    report->known_refunds = acked_refunds + load_relaxed(&sync->now.remote_refunds);
}

/*
 * After an outage: what was used meanwhile has refilled, at this node's part of the rate, but for what its own bucket
 * owes. So that much moves the fleet's bucket, from now on, and the rest only counts. What is owed is held back until
 * all nodes are there: then what they owe is added up as of one time, whenever each of them has come. `last`: of a
 * forgotten key, which cannot wait.
 *
 * Nodes that were not away have left the fraction of the others to them, and that is in the fleet's bucket
 * (seen_bucket). So the bucket is moved no further than to where it is empty: else it would deny what refills. A node
 * that owes more than an empty bucket has charged it without asking (weir_charge).
 */
static void tell_of_outage(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule,
                           struct state state, uint64_t unreported, uint64_t now_ns, bool last, struct report *report)
{
    const uint32_t fraction = fraction_demand(fleet->process, &sync->allowance);
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

static void bucket_report(struct fleet *fleet, uint32_t cell, struct sync_full *sync, const struct key_name *key,
                          const struct policy *policy, const struct policy_limit *limit, const struct reading *reading,
                          const struct account *account, uint64_t now_ns)
{
    /* By the rate the bucket was last charged at: of a tier, an entry of the key's own, or an earlier policy. */
    struct rule rule = limit->rule;
    rule_convert_rate(&rule, bucket_rate_id(reading->state));
    /* One node has no part but the whole. */
    const bool in_parts =
        membership_nodes(&fleet->membership) > 1 || load_relaxed(&sync->allowance.remote_fraction) != 0;
    sync->demand.shared = sync->demand.shared || (in_parts && load_relaxed(&policy->outage_mode) == OUTAGE_MODE_SHARE);
    const struct state whole = whole_bucket(sync, &rule, reading->state, now_ns - fleet->process->interval_ns);
    if (load_relaxed(&policy->outage_mode) == OUTAGE_MODE_OPEN || waive_pending(fleet, policy, cell)) {
        /* They were told to let everything pass: no debt. */
        sync->before.acked = account->own[0];
        sync->before.acked_refunds = account->refunds[0];
    }
    struct report *report = record_add(fleet, cell, sync, false);
    (void) record_name(fleet, report->record, policy, limit, key);
    fleet->batch.sources[fleet->round.report_count - 1].again = account->again;
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
    report->from_us = told_since(fleet, now_ns) / NS_PER_US;
    seen_bucket(fleet, sync, &rule, whole, now_ns, report);
    if (sync->demand.shared && fleet->news.awaits_peers) {
        tell_of_outage(fleet, sync, &rule, reading->state, account->unreported, now_ns, cell == TABLE_NONE, report);
    }
    report->unit_ps = max_u64(rule.unit * 1000 >> BUCKET_FRACTION_BITS, 1);
    report->expire_ms = BUCKET_SLACK_MS;
}

const struct policy_limit *report_limit(const struct policy_set *set, const struct cell_meta *meta,
                                        const struct policy **policy)
{
    if (!cell_meta_is(meta, CELL_SHARED)) {
        return NULL;
    }
    return policy_set_limit(set, load_relaxed(&meta->group), load_relaxed(&meta->limit_tag), policy);
}

/* A note for a cell that has something to tell; NULL: there is none to be had. */
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

/* What a pinned cell of this limit has to tell. As report_cell. */
static bool report_pinned(struct fleet *fleet, uint32_t at, const struct policy *policy,
                          const struct policy_limit *limit, uint64_t now_ns, enum urge urge)
{
    struct process *process = fleet->process;
    struct table *table = &process->table;
    struct cell *cell = &table->cells[at];
    struct sync_full room;
    struct sync_full *sync = sync_load(process, at, &limit->rule, now_ns, &room);
    sync->demand.again = sync->demand.again || urge == URGE_AGAIN; /* until it is answered */
    const bool log = rule_has_history(&limit->rule);
    const bool bucket = rule_is_bucket(&limit->rule);
    struct account account = {.unreported = 0};
    struct reading reading;
    if (!log) {
        if (!bucket) {
            account_roll(cell, &limit->rule, now_ns);
        }
        reading = reading_of(cell, sync->ledger);
        account = bucket ? account_bucket(fleet, sync, &reading, now_ns)
                         : account_window(fleet, sync, &limit->rule, &reading, now_ns);
        account.again = sync->demand.again;
        const bool waits = (urge == URGE_IF_DUE && !fleet->gather.reports_all) || urge == URGE_SCAN;
        if (waits && !account_due(fleet, sync, &limit->rule, reading.state, &account, now_ns, urge)) {
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
        sync_store(process, at, &room); /* it is to be told again all the same */
        table_set_dirty(table, at);
        return true;
    }
    const struct key_name key = compact_key(process, at);
    if (log) {
        return report_history_add(fleet, at, sync, &key, policy, limit, now_ns, urge == URGE_AGAIN);
    }
    bitmap_clear(&table->deferred, at);
    sync->demand.round = fleet->gather.number;
    (bucket ? bucket_report : window_report)(fleet, at, sync, &key, policy, limit, &reading, &account, now_ns);
    return true;
}

bool report_cell(struct fleet *fleet, const struct policy_set *set, uint32_t at, uint64_t now_ns, enum urge urge)
{
    struct table *table = &fleet->process->table;
    struct cell *cell = &table->cells[at];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0) {
        return true; /* forgotten, and gone to the orphans */
    }
    if (!cell_pin(cell, hash)) {
        return false; /* claimed: about to be forgotten, or not after all */
    }
    const struct policy *policy = NULL;
    const struct policy_limit *limit = report_limit(set, &table->metas[at], &policy);
    const struct sync_full *sync = limit != NULL ? sync_of(&fleet->process->syncs, at) : NULL;
    bool all = true;
    if (sync != NULL && sync->demand.round == fleet->gather.number) {
        /* It is in this round: twice would be to take an answer twice. */
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
    /* A copy: a failed round makes the reports anew, from the note as it was. */
    struct evicted_report evicted;
    memcpy((void *) &evicted, (const void *) &fleet->batch.evicted[index], sizeof(evicted));
    evicted.sync.ledger = &evicted.ledger;
    const size_t first = fleet->round.report_count;
    const struct policy *policy = NULL;
    const struct policy_limit *limit = report_limit(set, &evicted.meta, &policy);
    if (limit == NULL) {
        return true;
    }
    if (rule_has_history(&limit->rule)) {
        if (!report_history_evicted(fleet, &evicted, policy, limit, now_ns)) {
            return false;
        }
    } else {
        const struct reading reading = {
            .refunds = {load_relaxed(&evicted.ledger.refunds[0]), load_relaxed(&evicted.ledger.refunds[1])},
            .state = evicted.state};
        const bool bucket = rule_is_bucket(&limit->rule);
        const struct account account = bucket ? account_bucket(fleet, &evicted.sync, &reading, now_ns)
                                              : account_window(fleet, &evicted.sync, &limit->rule, &reading, now_ns);
        (bucket ? bucket_report : window_report)(fleet, TABLE_NONE, &evicted.sync, &evicted.key, policy, limit,
                                                 &reading, &account, now_ns);
    }
    for (size_t i = first; i < fleet->round.report_count; i++) {
        fleet->batch.sources[i].evicted = index;
    }
    return true;
}
