/* SPDX-License-Identifier: Apache-2.0 */
/* See account.h. */
#include "fleet/account.h"
#include "fleet/demand.h"
#include "fleet/record.h"
#include "fleet/state.h"
#include "fleet/tuning.h"

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/numbers.h"

/* Lets a window's state follow the time, so that a key is asked for as of now even where it is not used. */
void account_roll(struct cell *cell, const struct rule *rule, uint64_t now_ns)
{
    struct dwcas_value value = dwcas_read(&cell->state);
    uint64_t into_ns;
    struct state rolled = window_roll(rule, cell_state(value), now_ns, &into_ns);
    while (window_seq(rolled) != window_seq(cell_state(value)) &&
           !dwcas_swap(&cell->state, &value, cell_value(rolled, value))) {
        rolled = window_roll(rule, cell_state(value), now_ns, &into_ns);
    }
}

/* Lets the note follow the state into the window with this tag. */
static void sync_follow(struct sync_full *sync, uint32_t seq)
{
    const uint32_t was = load_relaxed(&sync->allowance.seq);
    if (was == seq) {
        return;
    }
    if (was != SEQ_NONE && ((seq - was) & WINDOW_SEQ_MASK) == 1) {
        counts_copy(&sync->before, &sync->now);
    } else {
        counts_clear(&sync->before);
    }
    counts_clear(&sync->now);
    sync->demand.own = sync->demand.local_seen = 0;
    store_relaxed(&sync->allowance.seen, 0);
    store_relaxed(&sync->allowance.seq, seq);
}

/* R1, R2: units this node let pass in a window. */
static uint64_t own_count(const struct sync_counts *counts, uint64_t count, uint64_t refunds)
{
    const uint64_t net = count + refunds + load_relaxed(&counts->remote_refunds);
    return max_u64(saturating_sub(net, counts_merged(counts) + counts->deficit), counts->acked);
}

struct account account_window(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
                              const struct reading *reading, uint64_t now_ns)
{
    const uint32_t seq = window_seq(reading->state);
    struct account account = {.unreported = 0};
    sync_follow(sync, seq);
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

struct account account_bucket(const struct fleet *fleet, struct sync_full *sync, const struct reading *reading,
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

/* Whether a cell's news cannot wait for its turn. */
bool account_due(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule, struct state state,
                 const struct account *account, uint64_t now_ns, enum urge urge)
{
    const uint64_t interval_ns = fleet->process->interval_ns;
    if (account->news || account->again || record_reset_us(sync) != 0 || load_relaxed(&sync->allowance.fraction) != 0 ||
        load_relaxed(&sync->allowance.quota_unacked) != 0 || sync->demand.learned_ns == 0) {
        return true;
    }
    if (fleet->news.peers_resume && rule_is_bucket(rule) && sync->demand.presumed_rate != 0) {
        return true; /* before those who were cut off tell what they owe: see seen_bucket */
    }
    if (!rule_is_bucket(rule) && rule->period_ns < UINT64_C(2) * SCAN_INTERVALS * interval_ns) {
        return true; /* in its turn it would come too late */
    }
    const bool scan_cursor = urge == URGE_SCAN;
    if (scan_cursor && now_ns > sync->demand.learned_ns + AGE_INTERVALS * interval_ns) {
        return true;
    }
    const uint64_t left = rule_headroom(rule, state, now_ns);
    if (account->unreported == 0) {
        if (account->denied != 0 && left != 0) {
            return true; /* it was left to the others, and perhaps they do not want it */
        }
        if ((fleet->gather.interval_count + sync->incarnation) % DENIED_EVERY == 0) {
            return true; /* others may have given some back */
        }
        /* Demand alone: of interest when the window ends. */
        const uint64_t reset_ns = rule_reset_after(rule, state, now_ns);
        return !rule_is_bucket(rule) && reset_ns < SCAN_INTERVALS * interval_ns;
    }
    const uint64_t own = left - muldiv_ceil(left, load_relaxed(&sync->allowance.remote_fraction), FRACTION_WHOLE);
    const uint64_t nodes = membership_nodes(&fleet->membership);
    const uint64_t unreported = saturating_mul(account->unreported, scan_cursor ? 2 : 1);
    return saturating_mul(unreported, DUE_SHARE * nodes) >= left || saturating_mul(unreported, DUE_OWN_SHARE) >= own;
}
