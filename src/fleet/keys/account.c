/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a cell's state to its local units, and whether they are due.
 *
 * A cell's state counts what this node admitted and, merged in, what the other nodes had admitted as of the last
 * answer. The key's sync state knows the second part (sync_counts.remote), so the first part is the difference. Units
 * of grants are counted when the grants are settled, so a count never decreases. Refunded units are counted beside: the
 * ledger has the local ones, sync_counts.remote_refunds those of the other nodes.
 *
 * Invariants
 *   R1  Window: count of the state (or previous) = local units - local refunds + merged - remote_refunds + deficit of
 *       that window. `deficit` is more than 0 where the count would be less than 0: two nodes have refunded the same
 *       units. `merged` is `remote`, or what the key is remembered to have used where that is more (counts_merged).
 *   R2  reported <= local units counted; what is counted later makes the cell dirty again.
 *   R3  remote and remote_refunds never decrease within a window: what the fleet has lost is reported again, and not
 *       admitted again.
 *
 * allowance.seq is the window of the state when the background thread last looked. If the state has moved on by one
 * window since then, sync_full.now belongs to the state's previous window.
 */
#include "fleet/keys/account.h"

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "fleet/keys/demand.h"
#include "fleet/keys/reading.h"
#include "fleet/keys/record.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/process.h"

/* Lets a window's state follow the time, so that a key is reported as of now even where it is not used. */
static void roll(struct cell *cell, const struct rule *rule, uint64_t now_ns)
{
    struct dwcas_value value = dwcas_read(&cell->state);
    uint64_t into_ns;
    struct state rolled = window_roll(rule, cell_state(value), now_ns, &into_ns);
    while (window_seq(rolled) != window_seq(cell_state(value)) &&
           !dwcas_swap(&cell->state, &value, cell_value(rolled, value))) {
        rolled = window_roll(rule, cell_state(value), now_ns, &into_ns);
    }
}

/* Lets the sync state follow the cell's state into the window `seq`. */
static void follow(struct sync_full *sync, const struct rule *rule, uint32_t seq)
{
    const uint32_t was = load_relaxed(&sync->allowance.seq);
    if (was == seq) {
        return;
    }
    const bool next = ((seq - was) & WINDOW_SEQ_MASK) == 1;
    if (next) {
        counts_copy(&sync->before, &sync->now);
    } else {
        counts_clear(&sync->before);
    }
    /* What was presumed is of the window of the last answer. No unit is presumed of this one yet. */
    const uint64_t level = load_relaxed(&sync->allowance.level);
    store_relaxed(&sync->allowance.level, next && rule_slides(rule) ? presumed_pass_on(level) : 0);
    counts_clear(&sync->now);
    sync->demand.own = sync->demand.local_seen = 0;
    store_relaxed(&sync->allowance.seen, 0);
    store_release(&sync->allowance.seq, seq); /* [A2] after the counts */
}

/* R1, R2: units that this node admitted in a window. */
static uint64_t own_count(const struct sync_counts *counts, uint64_t count, uint64_t refunds)
{
    const uint64_t net = count + refunds + load_relaxed(&counts->remote_refunds);
    return max_u64(saturating_sub(net, counts_merged(counts) + counts->deficit), counts->acked);
}

static struct account of_window(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
                                const struct reading *reading, uint64_t now_ns)
{
    const uint32_t seq = window_seq(reading->state);
    struct account account = {.unreported = 0};
    follow(sync, rule, seq);
    demand_begin(sync);
    for (unsigned before = 0; before < 2; before++) {
        struct sync_counts *counts = before != 0 ? &sync->before : &sync->now;
        const uint64_t count = before != 0 ? window_previous(reading->state) : window_count(reading->state);
        account.refunds[before] = reading_refunds_of(reading->refunds, seq - before);
        account.own[before] = own_count(counts, count, account.refunds[before]);
        demand_local(sync, counts, account.own[before]);
        account.news = account.news || account.refunds[before] != counts->acked_refunds;
    }
    const uint64_t start_ns = window_span_of(rule, window_number(rule, seq, now_ns)).start_ns;
    const uint64_t into_ns = saturating_sub(now_ns, start_ns);
    account.denied = demand_denied(fleet, sync, into_ns, rule->period_ns, now_ns);
    account.unreported = account.own[0] - min_u64(sync->now.acked, account.own[0]);
    account.news = account.news || account.own[1] != sync->before.acked;
    return account;
}

static struct account of_bucket(const struct fleet *fleet, struct sync_full *sync, const struct reading *reading,
                                uint64_t now_ns)
{
    struct sync_counts *counts = &sync->now;
    struct account account = {.refunds = {reading->refunds[0], 0}};
    account.unreported = (bucket_total(reading->state) - counts->acked) & BUCKET_TOTAL_MASK;
    account.own[0] = counts->acked + account.unreported;
    account.news = account.refunds[0] != counts->acked_refunds;
    store_relaxed(&sync->allowance.seq, 0);
    demand_begin(sync);
    demand_local(sync, counts, account.own[0]);
    account.denied = demand_denied(fleet, sync, UINT64_MAX, 0, now_ns);
    return account;
}

struct account account_of_evicted(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
                                  const struct reading *reading, uint64_t now_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return of_window(fleet, sync, rule, reading, now_ns);
    case RULE_BUCKET:
        return of_bucket(fleet, sync, reading, now_ns);
    case RULE_HISTORY:
        break;
    }
    return (struct account){.unreported = 0};
}

struct account account_take(const struct fleet *fleet, struct cell *cell, struct sync_full *sync,
                            const struct rule *rule, struct reading *reading, uint64_t now_ns)
{
    if (rule_kind(rule) == RULE_WINDOW) {
        roll(cell, rule, now_ns);
    }
    *reading = reading_of(cell, sync->ledger);
    return account_of_evicted(fleet, sync, rule, reading, now_ns);
}

/* Of a window whose scan would come too late. */
static bool ends_soon(const struct rule *rule, uint64_t interval_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
    case RULE_HISTORY:
        return rule->period_ns < UINT64_C(2) * SCAN_INTERVALS * interval_ns;
    case RULE_BUCKET:
        break;
    }
    return false;
}

/* Whether a key is due that nobody was admitted to since its last report: demand alone is new. */
static bool idle_due(const struct fleet *fleet, const struct account_view *view, uint64_t left)
{
    if (view->account->denied != 0 && left != 0) {
        return true; /* the room was left to the other nodes, and perhaps they do not want it */
    }
    if ((fleet->gather.interval_count + view->sync->incarnation) % DENIED_EVERY == 0) {
        return true; /* other nodes may have refunded some */
    }
    /* Demand counts when the window ends. */
    return rule_kind(view->rule) != RULE_BUCKET &&
           rule_reset_after(view->rule, view->state, view->now_ns) < SCAN_INTERVALS * fleet->process->interval_ns;
}

bool account_due(const struct fleet *fleet, const struct account_view *view, enum urge urge)
{
    const struct sync_full *sync = view->sync;
    const struct account *account = view->account;
    const uint64_t interval_ns = fleet->process->interval_ns;
    if (account->news || account->again || record_reset_us(sync) != 0 || load_relaxed(&sync->allowance.fraction) != 0 ||
        load_relaxed(&sync->allowance.quota_unacked) != 0 || sync->demand.learned_ns == 0) {
        return true;
    }
    if (fleet->news.peers_resume && rule_kind(view->rule) == RULE_BUCKET && sync->demand.presumed_rate != 0) {
        return true; /* before the nodes that were cut off report what they owe: see seen_bucket in report.c */
    }
    if (ends_soon(view->rule, interval_ns)) {
        return true;
    }
    const bool scans = urge == URGE_SCAN;
    if (scans && view->now_ns > sync->demand.learned_ns + AGE_INTERVALS * interval_ns) {
        return true;
    }
    const uint64_t left = rule_headroom(view->rule, view->state, view->now_ns);
    if (account->unreported == 0) {
        return idle_due(fleet, view, left);
    }
    const uint64_t own = left - muldiv_ceil(left, load_relaxed(&sync->allowance.remote_fraction), FRACTION_WHOLE);
    const uint64_t nodes = membership_nodes(&fleet->membership);
    const uint64_t unreported = saturating_mul(account->unreported, scans ? 2 : 1);
    return saturating_mul(unreported, DUE_SHARE * nodes) >= left || saturating_mul(unreported, DUE_OWN_SHARE) >= own;
}
