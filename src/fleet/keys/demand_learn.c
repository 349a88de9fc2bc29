/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See demand_learn.h.
 *
 * Local demand is counted when a cell is inspected (demand.c). Remote demand is what the record's sum of units asked
 * for has grown by, less the local part. Both are taken over the time between two answers, so it does not matter how
 * often a key is reported. Rates are in 1/65536 units a second (algorithm/estimate.h).
 */
#include "fleet/keys/demand_learn.h"

#include "base/numbers.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/process.h"
#include "process/sync_state.h"

/* Whether a key that was hardly used is suddenly used much. True until the demand is learned. */
static bool surges(const struct demand_stats *demand, uint64_t now_ns, uint64_t interval_ns)
{
    return demand->rates.known && demand->recent_rate / SURGE_FACTOR > demand->rates.local_rate &&
           now_ns >= demand->first_ns + interval_ns;
}

/* Units of the other nodes since a time. Their news is half an interval old on average. */
static uint64_t log_recent(const struct history_report *log, uint64_t since_ns)
{
    uint64_t units = 0;
    for (uint32_t i = 0; i < log->group_count; i++) {
        units += log->groups[i].time_ns * NS_PER_US > since_ns ? log->groups[i].units : 0;
    }
    return units;
}

/* Rates to go by before any are learned: from a log's groups, or from a window that began not long ago. */
static bool guess_rates(const struct fleet *fleet, struct sync_full *sync, const struct demand_span *span)
{
    struct demand_stats *demand = &sync->demand;
    const uint64_t now_ns = fleet->gather.now_ns;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t age_ns = saturating_sub(now_ns, span->start_ns);
    switch (rule_kind(span->rule)) {
    case RULE_WINDOW:
        if (age_ns > SCAN_INTERVALS * interval_ns) {
            return false;
        }
        demand->rates.remote_rate = estimate_rate(sync->now.remote_demand,
                                                  max_u64(saturating_sub(age_ns, fleet->news.age_ns), interval_ns / 2));
        break;
    case RULE_HISTORY:
        demand->rates.remote_rate =
            estimate_rate(log_recent(span->report->history, now_ns - min_u64(now_ns, 2 * interval_ns)),
                          interval_ns + interval_ns / 2);
        break;
    case RULE_BUCKET:
        return false;
    }
    demand->rates.local_rate = estimate_rate(demand->local_demand, interval_ns);
    return true;
}

/*
 * The first answer to a key, or the first one after a pause, has what the other nodes have reported. It lacks what they
 * have just begun to use: each node reports a burst that reaches all nodes at once some milliseconds later. So demand
 * is counted from this answer on, and the key goes by its equal share until the other nodes have had the time to
 * report.
 */
bool demand_learn_first_contact(const struct fleet *fleet, struct sync_full *sync, const struct demand_span *span)
{
    struct demand_stats *demand = &sync->demand;
    const struct report *report = span->report;
    const uint64_t now_ns = fleet->gather.now_ns;
    const uint64_t interval_ns = fleet->process->interval_ns;
    if (demand->learned_ns == 0) {
        demand->guessed = guess_rates(fleet, sync, span);
        demand->first_ns = demand->learned_ns = demand->changed_ns = now_ns;
        demand->own = report->count;
        demand->local_demand = demand->remote_demand = 0;
    } else if ((demand->idle || surges(demand, now_ns, interval_ns)) &&
               demand->recent_units >=
                   allowance_urgent_units(span->rule->limit / membership_nodes(&fleet->membership))) {
        demand->first_ns = demand->changed_ns = now_ns;
        demand->begun = true;
        /* The use that begins is not spread over the time before it. */
        demand->local_seen = min_u64(demand->local_seen, saturating_sub(report->count, demand->recent_units));
    }
    demand->idle = false;
    return now_ns < demand->first_ns + interval_ns / WAIT_DIVISOR || !(demand->rates.known || demand->guessed);
}

/*
 * Whether every node has reported since a time, or within an interval, plus what the network may add. The earliest
 * report may be older than an interval by a part of the span: demand then seems smaller by no more than that part.
 */
static bool all_have_reported(const struct fleet *fleet, uint64_t since_ns, bool bucket)
{
    const struct membership *membership = &fleet->membership;
    const uint64_t spoken_ns = bucket ? membership->watermark_ns : membership->spoken_ns;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t now_ns = fleet->gather.now_ns;
    const uint64_t age_ns = interval_ns + saturating_sub(now_ns, since_ns) / LATE_SPAN_DIVISOR;
    const uint64_t by_ns =
        max_u64(min_u64(since_ns, saturating_sub(now_ns, interval_ns)), saturating_sub(now_ns, age_ns));
    return spoken_ns + interval_ns / LATE_DIVISOR >= by_ns;
}

static bool is_fixed_window(const struct rule *rule)
{
    return rule_kind(rule) == RULE_WINDOW && !rule_slides(rule);
}

/*
 * The most that silent nodes are presumed to ask for. It is no more than their number makes likely: where some node has
 * always failed, demand may still fall. A node that was away itself does not know how many nodes are silent: all of
 * them may still seem live. The first node that is back would otherwise take most of the demand for gone.
 */
static uint64_t presumed_most(const struct fleet *fleet, const struct demand_rates *rates)
{
    const struct membership *membership = &fleet->membership;
    if (fleet->news.peers_resume) {
        return UINT64_MAX;
    }
    return muldiv_floor(rates->local_rate + rates->remote_rate, PRESUMED_FACTOR * max_u64(membership->suspect, 1),
                        max_u64(membership->live, 1));
}

/*
 * Whether a fall of remote demand is believed at once: every node has reported since the last answer, and requests were
 * denied here. What is left to nodes that use less is unused meanwhile. A bucket makes up for that; a window that is
 * over, or that slides, does not. A node that reported a little late looks as if its demand fell, too: the other nodes
 * take its fraction for one interval, and count what they take.
 */
static bool is_fall_heard(const struct fleet *fleet, const struct demand_stats *demand)
{
    return fleet->membership.spoken_ns > demand->learned_ns + fleet->process->interval_ns / LATE_DIVISOR &&
           (demand->denied || demand->denied_before);
}

/*
 * The rate of the nodes that speak, by what the last answer told. While the same nodes stay silent, what a dead path
 * delivers at its end looks like demand of nodes that speak, and so do reports at irregular moments. Their room would
 * be taken for theirs no more. So a single answer moves the rate of a log by little. A bucket and a fixed window make
 * good what one answer got wrong. For a window that slides this had no effect on the least second (events_test).
 */
static uint64_t speaking_rate(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                              uint64_t told)
{
    const struct membership *membership = &fleet->membership;
    const uint64_t rate = demand->rates.remote_rate;
    const uint64_t steady_ns = membership->spoken_ns + SILENCE_INTERVALS * fleet->process->interval_ns;
    const bool same = demand->presumed_rate != 0 && demand->silent != 0 && membership->suspect == demand->silent;
    if (rule_kind(rule) != RULE_HISTORY || !same || fleet->gather.now_ns <= steady_ns) {
        return told;
    }
    return rate - rate / SILENCE_DIVISOR + told / SILENCE_DIVISOR;
}

/*
 * Learns the rates. Nodes that have not reported lately are cut off, or have failed. A node that is cut off goes on by
 * its share of the limit, so its demand is presumed to go on: what remote demand was, less what is reported of it. The
 * presumption ends with the silence: a node that has failed no longer counts after a while (membership.h), and a node
 * that is back reports at once all it used meanwhile, which is no rate.
 */
static void learn_rates(const struct fleet *fleet, struct demand_stats *demand, uint64_t remote_demand,
                        uint64_t span_ns, const struct rule *rule)
{
    const bool bucket = rule_kind(rule) == RULE_BUCKET;
    const bool fixed = is_fixed_window(rule);
    struct demand_rates *rates = &demand->rates;
    const struct membership *membership = &fleet->membership;
    const bool spoken = !rates->known || all_have_reported(fleet, demand->learned_ns, bucket);
    const uint64_t before = rates->remote_rate;
    const uint64_t expected = muldiv_floor(before, span_ns, NS_PER_S) >> RATE_BITS;
    const uint64_t presumed = demand->presumed_rate;
    rates->remote_rate -= presumed;
    if (!bucket && membership->suspect < demand->silent) {
        /* Some are back, and have reported. A bucket's units they report later (tell_of_outage in report.c). */
        rates->remote_rate += muldiv_floor(presumed, demand->silent - membership->suspect, demand->silent);
    }
    /* What nodes that are back report of their silence may be less than what was expected of all silent nodes. */
    const bool returned = fixed && membership->suspect < demand->silent;
    const bool late = presumed != 0 && (remote_demand > expected || returned);
    const uint64_t told = estimate_rate(remote_demand, max_u64(span_ns, 1));
    const uint64_t speaking = late ? rates->remote_rate : speaking_rate(fleet, demand, rule, told);
    rates_update(rates, estimate_rate(demand->local_demand, max_u64(span_ns, 1)), speaking, span_ns,
                 fleet->process->interval_ns);
    const bool joined = membership_has_joined(membership, fleet->news.good_ns);
    /* A new node takes over demand of other nodes, or adds to it. What was before is no measure of that. */
    if (joined) {
        rates->local_rate = min_u64(rates->local_rate, estimate_rate(demand->local_demand, max_u64(span_ns, 1)));
        rates->remote_rate = max_u64(rates->remote_rate, speaking);
    }
    const bool fallen = speaking < rates->remote_rate - rates->remote_rate / FALL_DIVISOR;
    if (!bucket && !joined && presumed == 0 && fallen && is_fall_heard(fleet, demand)) {
        rates->remote_rate = speaking;
    }
    /* What is presumed is not smoothed: nodes fall silent at once. A fixed window makes good what they left. */
    if (!spoken && (presumed == 0 || fixed)) {
        rates->remote_rate = min_u64(rates->remote_rate, speaking);
    }
    demand->resumed = spoken && demand->silent != 0;
    const uint64_t silent_before = bucket ? demand->silent : 0;
    demand->silent = spoken ? 0 : (uint16_t) min_u64(max_u64(silent_before, membership->suspect), UINT16_MAX);
    demand->presumed_rate = 0;
    if (spoken) {
        /*
         * Silent nodes that report all they used since do not tell a rate. Nor do nodes that were away, while they
         * report at moments that are no interval apart: a time between two answers may have two reports or none.
         */
        const bool irregular = !bucket && before != 0 && !membership_regular(membership, fleet->news.good_ns);
        rates->remote_rate = demand->resumed || presumed != 0 || irregular ? before : rates->remote_rate;
        return;
    }
    demand->presumed_rate = min_u64(saturating_sub(before, rates->remote_rate), presumed_most(fleet, rates));
    rates->remote_rate += demand->presumed_rate;
}

bool demand_learn_node_is_new(const struct fleet *fleet)
{
    return fleet->news.good_ns < fleet->opened_ns + JOINED_INTERVALS * fleet->process->interval_ns;
}

/*
 * Whether it is too early to tell a rate. The other nodes report once in an interval, so demand is learned over most of
 * one. A log's first rates are not smoothed by any before: for these each node has to have reported in the time. A
 * window makes good what is left over by a wrong first rate, and so does a bucket.
 */
static bool is_early(const struct fleet *fleet, const struct demand_stats *demand, uint64_t span_ns, bool log)
{
    const uint64_t interval_ns = fleet->process->interval_ns;
    const bool first = log && demand_learn_node_is_new(fleet) && !demand->rates.known && demand->learned_ns != 0 &&
                       span_ns < FIRST_RATE_INTERVALS * interval_ns;
    return span_ns < interval_ns - interval_ns / WAIT_DIVISOR ||
           (first && fleet->membership.spoken_ns < demand->learned_ns);
}

/*
 * Whether remote demand of a fixed window seems to have fallen for the first time. Urgent rounds make an answer fresher
 * than the heartbeats show: the time up to the next answer then has a part of an interval's reports. So a fall is
 * learned with the answer after this one, over both times. Until then the window leaves the other nodes more than they
 * ask for. The window makes good what they leave over.
 */
static bool seems_to_fall(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                          uint64_t remote_demand, uint64_t span_ns)
{
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t before = demand->rates.remote_rate;
    return is_fixed_window(rule) && demand->rates.known && demand->presumed_rate == 0 &&
           span_ns < interval_ns + interval_ns / WAIT_DIVISOR &&
           estimate_rate(remote_demand, max_u64(span_ns, 1)) < before - before / FALL_DIVISOR &&
           all_have_reported(fleet, demand->learned_ns, false);
}

void demand_learn(const struct fleet *fleet, struct sync_full *sync, const struct demand_span *span)
{
    struct demand_stats *demand = &sync->demand;
    const struct rule *rule = span->rule;
    const struct report *report = span->report;
    const uint64_t start_ns = span->start_ns;
    const uint64_t now_ns = fleet->gather.now_ns;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t age_ns = fleet->news.age_ns;
    const bool window = rule_kind(rule) == RULE_WINDOW;
    const uint64_t span_ns = demand->learned_ns != 0 ? now_ns - demand->learned_ns : 0;
    /* Of the other nodes' units those before the earliest window that was read are not known. */
    const uint64_t before_ns = span->with_before ? min_u64(rule->period_ns, start_ns) : 0;
    const uint64_t read_ns = saturating_sub(now_ns, window ? start_ns - before_ns : 0);
    const uint64_t remote_ns = max_u64(min_u64(span_ns, read_ns), interval_ns / 2);
    const uint64_t remote_demand = muldiv_ceil(demand->remote_demand, span_ns, remote_ns);
    if (is_early(fleet, demand, span_ns, rule_kind(rule) == RULE_HISTORY) ||
        seems_to_fall(fleet, demand, rule, remote_demand, span_ns)) {
        /*
         * This time tells no rate. But what was admitted here half an interval ago is covered by the news of the other
         * nodes.
         */
        const uint64_t late = muldiv_ceil(demand->recent_rate, age_ns, NS_PER_S) >> RATE_BITS;
        demand->local_seen =
            max_u64(demand->local_seen, demand->recent_ns == now_ns ? saturating_sub(report->count, late) : 0);
        return;
    }
    if (demand->rates.known && demand->rates.remote_rate > demand->rates.local_rate / URGENT_THRESHOLD_DIVISOR &&
        estimate_rate(remote_demand, span_ns) < demand->rates.remote_rate / CHANGE_FACTOR) {
        demand->changed_ns = now_ns;
    }
    demand->begun = false;
    learn_rates(fleet, demand, remote_demand, span_ns, rule);
    if (window && demand->learned_ns < start_ns) {
        demand->local_seen = estimate_seen(report->count, saturating_sub(now_ns, start_ns), age_ns, true);
    } else {
        const uint64_t more = saturating_sub(report->count, demand->own);
        demand->local_seen = report->count - more + estimate_seen(more, span_ns, age_ns, false);
    }
    demand->own = report->count;
    demand->learned_ns = now_ns;
    demand->local_demand = demand->remote_demand = 0;
}
