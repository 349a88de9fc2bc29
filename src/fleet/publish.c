/* SPDX-License-Identifier: Apache-2.0 */
/* See publish.h. */
#include "fleet/publish.h"

#include "algorithm/bucket.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "fleet/bucket_level.h"
#include "fleet/demand_learn.h"
#include "fleet/presumed.h"
#include "fleet/reading.h"
#include "fleet/state.h"
#include "fleet/tuning.h"

/*
 * Whether this node's part of a limit that is asked for too often is hardly a unit. What the others may have admitted
 * since the answer by their demand is then no measure: each node would take the first units for its own.
 */
static bool is_oversubscribed(const struct rule *rule, const struct demand_rates *rates, uint32_t remote_fraction)
{
    const uint64_t fraction = muldiv_floor(rule->limit, FRACTION_WHOLE - remote_fraction, FRACTION_WHOLE);
    const uint64_t asked = saturating_add(rates->local_rate, rates->remote_rate);
    return fraction < OVERSUBSCRIBED_UNITS && asked / 3 > bucket_level_rule_rate(rule) / 2;
}

const int32_t estimate_bounds[ESTIMATE_BUCKETS - 1] = {-100000, -30000, -10000, -3000, 3000,
                                                       10000,   30000,  100000, 300000};

/* Counts how far the estimate was off: `others` is what the others have admitted since the last answer. */
static void count_error(struct fleet *fleet, const struct sync_full *sync, const struct rule *rule, struct state state,
                        uint64_t remote, uint64_t start_ns)
{
    const struct allowance *allowance = &sync->allowance;
    const uint64_t now_ns = fleet->gather.now_ns;
    const uint64_t age_ns = rule_is_bucket(rule) ? 0 : fleet->news.age_ns;
    const uint64_t since_ns = load_relaxed(&allowance->since_ns);
    if (since_ns < start_ns || since_ns + age_ns >= now_ns || load_relaxed(&allowance->fraction) != 0) {
        return; /* another window, or no time: there was no estimate */
    }
    /* What both answers tell of is as old: between them lies the time since the last one. */
    const struct estimate estimate = {.remote_rate = load_relaxed(&allowance->remote_rate),
                                      .remote_fraction = load_relaxed(&allowance->remote_fraction),
                                      .since_ns = since_ns + age_ns};
    const uint64_t room = saturating_add(rule_headroom(rule, state, now_ns), remote);
    const uint64_t guess = room - estimate_left(&estimate, room, 0, now_ns);
    const int64_t error = ((int64_t) min_u64(guess, WEIR_MAX_UNITS) - (int64_t) min_u64(remote, WEIR_MAX_UNITS)) *
                          1000000 / (int64_t) max_u64(rule->limit, 1);
    size_t bucket = 0;
    while (bucket < ESTIMATE_BUCKETS - 1 && error > estimate_bounds[bucket]) {
        bucket++;
    }
    counter_add(&fleet->stats.estimate_counts[bucket], 1);
    store_relaxed(&fleet->stats.estimate_sum, load_relaxed(&fleet->stats.estimate_sum) + error);
}

/*
 * Who waits tells of what he uses of the even part, and does not keep it until the wait is over: else the first one to
 * hear then would take for free what the others have used.
 */
static uint64_t waiting_threshold(uint64_t left, uint64_t unseen, uint64_t nodes)
{
    return unseen + max_u64(saturating_add(left, unseen) / nodes / WAIT_DIVISOR, 2);
}

/* Fleet time as of which the others have told, on average; of an answer that waits for theirs as allowance.c counts. */
static uint64_t news_since(const struct fleet *fleet, bool waits)
{
    const uint64_t age_ns = waits ? fleet->process->interval_ns / 2 : fleet->news.age_ns;
    return max_u64(saturating_sub(fleet->gather.now_ns, age_ns), 1);
}

void publish_answer(struct fleet *fleet, const struct cell *cell, struct sync_full *sync, const struct rule *rule,
                    const struct report *report, uint64_t remote, uint64_t start_ns, bool with_before)
{
    struct allowance *allowance = &sync->allowance;
    struct demand_stats *demand = &sync->demand;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t now_ns = fleet->gather.now_ns;
    const bool bucket = rule_is_bucket(rule);
    const bool log = rule_has_history(rule);
    demand->fraction_ns = load_relaxed(&allowance->fraction) != 0 ? now_ns : demand->fraction_ns;
    demand_learn(fleet, sync, rule, report, start_ns, with_before);
    const bool waits = demand_first_contact(fleet, sync, rule, report, start_ns);
    /* Own demand is known as it is, without delay: a node that traffic has just come to need not wait for its part. */
    struct demand_rates rates = demand->rates;
    if (demand->recent_rate > rates.local_rate + rates.local_rate / RISE_DIVISOR) {
        rates.local_rate = demand->recent_rate;
    }
    /* While nothing is learned from a beginning, the others' demand is at least what they have told since that began.
     * Demand before a burst says nothing of the burst: a node that went by it would take all that is left for itself.
     */
    if (demand->begun && now_ns > demand->learned_ns) {
        const uint64_t told_rate = estimate_rate(demand->remote_demand, now_ns - demand->learned_ns);
        rates.remote_rate = max_u64(rates.remote_rate, told_rate);
    }
    const uint64_t nodes = membership_nodes(&fleet->membership);
    const uint32_t even = (uint32_t) (FRACTION_WHOLE - FRACTION_WHOLE / nodes);
    const uint32_t remote_fraction = rates_remote_fraction(&rates, interval_ns);
    const struct state state = cell_state(dwcas_read(&cell->state));
    count_error(fleet, sync, rule, state, remote, start_ns);
    const uint64_t left = rule_headroom(rule, state, now_ns);
    /* While demand moves from node to node, what was to be expected is of no help. */
    if (demand->recent_rate > CHANGE_FACTOR * demand->rates.local_rate) {
        demand->changed_ns = now_ns;
    }
    const bool changing = now_ns < demand->changed_ns + CHANGE_INTERVALS * interval_ns;
    const uint64_t ahead_ns = changing ? interval_ns / 4 : 3 * interval_ns;
    const uint64_t expected = muldiv_floor(rates.local_rate >> RATE_BITS, ahead_ns, NS_PER_S);
    uint64_t seen = demand->local_seen;
    if (!bucket && !log) {
        const uint64_t local_refunds = reading_window_refunds(sync, load_relaxed(&sync->allowance.seq));
        seen = saturating_sub(seen + counts_merged(&sync->now) + sync->now.deficit,
                              load_relaxed(&sync->now.remote_refunds) + local_refunds);
    }
    const bool oversubscribed = !bucket && rates.remote_rate != 0 && is_oversubscribed(rule, &rates, remote_fraction);
    /* A burst that refills within an interval is made up for before that is over, whoever had it. */
    const bool lump = rule->tolerance >> BUCKET_FRACTION_BITS > interval_ns;
    /* What a queue makes others wait for in vain is not made up for: it is served by what is known of them. */
    const bool evenly = bucket && !rule_is_queue(rule) && ((waits && lump) || !demand->rates.known);
    struct estimate estimate = {.remote_rate = rates.remote_rate, .remote_fraction = remote_fraction};
    if (evenly || oversubscribed) {
        estimate.remote_rate = nodes > 1 ? RATE_MOST : rates.remote_rate;
        estimate.remote_fraction = oversubscribed && remote_fraction > even ? remote_fraction : even;
    } else if (demand->begun) {
        estimate.remote_fraction = remote_fraction < even ? remote_fraction : even;
    }
    const bool flows = bucket && rule->unit != 0 && estimate.remote_rate != 0;
    uint64_t level = flows ? bucket_level_answer(fleet, sync, rule, report, state, &rates, &estimate) : 0;
    if (bucket) {
        /* An even part is one of what there was before this node's own units. */
        const bool begins = evenly || (waits && rule_is_queue(rule));
        seen = begins ? min_u64(demand->local_seen, report->count) : report->count;
        level = flows ? max_u64(saturating_sub(level, saturating_mul(report->count - seen, rule->unit)), 1) : 0;
    } else {
        level = presumed_in_window(fleet, demand, rule, start_ns);
    }
    store_relaxed(&allowance->level, level);
    store_relaxed(&allowance->remote_rate, estimate.remote_rate);
    store_relaxed(&allowance->remote_fraction, estimate.remote_fraction);
    store_relaxed(&allowance->seen, bucket ? seen & BUCKET_TOTAL_MASK : seen);
    store_relaxed(&allowance->since_ns, bucket && !evenly && !waits ? now_ns : news_since(fleet, waits || evenly));
    store_relaxed(&allowance->inspected_ns, now_ns);
    const uint64_t unseen = saturating_sub(report->count, bucket ? seen : demand->local_seen);
    store_relaxed(&allowance->urgent_threshold,
                  waits ? waiting_threshold(left, unseen, nodes)
                        : unseen + max_u64(max_u64(expected, left / URGENT_THRESHOLD_DIVISOR), 2));
    const uint64_t dither = hash_mix(load_relaxed(&cell->hash) ^ now_ns) >> (64 - RATE_BITS);
    store_relaxed(&allowance->dither, (uint16_t) (bucket ? 0 : dither)); /* a bucket keeps its fractions */
    store_relaxed(&allowance->quota_unacked, 0);
    store_relaxed(&allowance->flags, (uint8_t) ((waits ? ALLOWANCE_AWAITS_PEERS : 0U) |
                                                (demand->rates.known ? 0U : ALLOWANCE_DEMAND_UNKNOWN)));
    /* A queue has nothing that could be left to others: while these are waited for, it is served in part. */
    if (!rule_is_queue(rule) || !waits) {
        store_relaxed(&allowance->fraction, 0);
    }
}

void publish_history(struct fleet *fleet, const struct cell *cell, struct sync_full *sync, const struct rule *rule,
                     const struct report *report, uint64_t remote)
{
    struct demand_stats *demand = &sync->demand;
    uint64_t more = (report->sum_demand - sync->now.remote_demand) % REPORT_HISTORY_DEMAND;
    if (sync->before.remote_demand != report->history->authors) {
        /* The sum is another one: what they were asked for goes on as it was. */
        const uint64_t span_ns = saturating_sub(fleet->gather.now_ns, demand->learned_ns);
        const uint64_t expected = muldiv_floor(demand->rates.remote_rate, span_ns, NS_PER_S) >> RATE_BITS;
        more = saturating_sub(expected, demand->remote_demand);
    } else if (more > REPORT_HISTORY_DEMAND / 2) {
        more = 0; /* an author that has forgotten what it was asked for */
    }
    sync->now.remote_demand = report->sum_demand % REPORT_HISTORY_DEMAND;
    sync->before.remote_demand = report->history->authors;
    demand->remote_demand = saturating_add(demand->remote_demand, more);
    publish_answer(fleet, cell, sync, rule, report, remote, 0, false);
}
