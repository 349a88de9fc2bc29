/* SPDX-License-Identifier: Apache-2.0 */
/* See demand_learn.h. */
#include "fleet/demand_learn.h"

#include "base/numbers.h"
#include "fleet/presumed.h"
#include "fleet/state.h"
#include "fleet/tuning.h"

/* Whether a key that was hardly used is used much, all at once; it is so until the demand is learned, and said once. */
static bool surges(const struct demand_stats *demand, uint64_t now_ns, uint64_t interval_ns)
{
    return demand->rates.known && demand->recent_rate / SURGE_FACTOR > demand->rates.local_rate &&
           now_ns >= demand->first_ns + interval_ns;
}

/* Others' units since a time: by now they have told of half an interval less. */
static uint64_t log_recent(const struct history_report *log, uint64_t since_ns)
{
    uint64_t units = 0;
    for (uint32_t i = 0; i < log->group_count; i++) {
        units += log->groups[i].time_ns * NS_PER_US > since_ns ? log->groups[i].units : 0;
    }
    return units;
}

/*
 * An answer to a key that was not asked for before, or not for a while, says what the others have told, but not what
 * they have just begun: a burst that comes to all nodes at once is told by each of them some milliseconds later. So it
 * is a beginning: demand is counted from there, and until the others have had the time to tell, the key goes by an even
 * part of its limit.
 */
bool demand_first_contact(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
                          const struct report *report, uint64_t start_ns)
{
    struct demand_stats *demand = &sync->demand;
    const uint64_t now_ns = fleet->gather.now_ns;
    const uint64_t interval_ns = fleet->process->interval_ns;
    if (demand->learned_ns == 0) {
        const uint64_t age_ns = saturating_sub(now_ns, start_ns);
        const bool log = rule_has_history(rule);
        demand->guessed = log || (!rule_is_bucket(rule) && age_ns <= SCAN_INTERVALS * interval_ns);
        if (demand->guessed) {
            /* A window that began not long ago is a span like any other. */
            demand->rates.local_rate = estimate_rate(demand->local_demand, interval_ns);
            demand->rates.remote_rate = estimate_rate(
                log ? log_recent(report->history, now_ns - min_u64(now_ns, 2 * interval_ns)) : sync->now.remote_demand,
                log ? interval_ns + interval_ns / 2 : max_u64(age_ns, interval_ns / 2));
        }
        demand->first_ns = demand->learned_ns = demand->changed_ns = now_ns;
        demand->own = report->count;
        demand->local_demand = demand->remote_demand = 0;
    } else if ((demand->idle || surges(demand, now_ns, interval_ns)) &&
               demand->recent_units >= allowance_urgent_units(rule->limit / membership_nodes(&fleet->membership))) {
        demand->first_ns = demand->changed_ns = now_ns;
        demand->begun = true;
        /* The use that begins is not spread over the time before it. */
        demand->local_seen = min_u64(demand->local_seen, saturating_sub(report->count, demand->recent_units));
    }
    demand->idle = false;
    return now_ns < demand->first_ns + interval_ns / WAIT_DIVISOR || !(demand->rates.known || demand->guessed);
}

/* Whether every node has spoken since a time, or within an interval; and what the network may add. */
static bool all_have_spoken(const struct fleet *fleet, uint64_t since_ns, bool bucket)
{
    const struct membership *membership = &fleet->membership;
    const uint64_t spoken_ns = bucket ? membership->watermark_ns : membership->spoken_ns;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t by_ns = min_u64(since_ns, saturating_sub(fleet->gather.now_ns, interval_ns));
    return spoken_ns + interval_ns / LATE_DIVISOR >= by_ns;
}

/*
 * Learns demand. Nodes that have not spoken lately are cut off, or have failed. The first go on by their share of the
 * limit, so what they were asked for is presumed to go on: what the others' demand was, less what is told of it. That
 * ends with them: a node that has failed no longer counts after a while (fleet/membership.h), and one that speaks again
 * tells of all at once what it used meanwhile, which is no rate.
 */
static void learn_rates(const struct fleet *fleet, struct demand_stats *demand, uint64_t remote_demand,
                        uint64_t span_ns, bool bucket)
{
    struct demand_rates *rates = &demand->rates;
    const struct membership *membership = &fleet->membership;
    const bool spoken = !rates->known || all_have_spoken(fleet, demand->learned_ns, bucket);
    const uint64_t before = rates->remote_rate;
    const uint64_t expected = muldiv_floor(before, span_ns, NS_PER_S) >> RATE_BITS;
    const uint64_t presumed = demand->presumed_rate;
    rates->remote_rate -= presumed;
    if (!bucket && membership->suspect < demand->silent) {
        /* Some are back, and have told; of a bucket they tell later (report.c: tell_of_outage). */
        rates->remote_rate += muldiv_floor(presumed, demand->silent - membership->suspect, demand->silent);
    }
    const bool late = presumed != 0 && remote_demand > expected;
    const uint64_t speaking = late ? rates->remote_rate : estimate_rate(remote_demand, max_u64(span_ns, 1));
    rates_update(rates, estimate_rate(demand->local_demand, max_u64(span_ns, 1)), speaking, span_ns,
                 fleet->process->interval_ns);
    /*
     * What is left to nodes that have fallen silent stands free meanwhile. A bucket makes that good; a window that is
     * over, or that slides, does not. So a fall is believed at once where every node has spoken since the last answer,
     * and requests were denied here. A node that spoke a little less often looks silent, too: the others take its part
     * for one interval, and count what they take.
     */
    const bool heard = membership->spoken_ns > demand->learned_ns + fleet->process->interval_ns / LATE_DIVISOR &&
                       (demand->denied[0] || demand->denied[1]);
    const bool fallen = speaking < rates->remote_rate - rates->remote_rate / FALL_DIVISOR;
    if (!bucket && heard && presumed == 0 && fallen) {
        rates->remote_rate = speaking;
    }
    if (!spoken && presumed == 0) {
        rates->remote_rate = min_u64(rates->remote_rate, speaking);
    }
    demand->resumed = spoken && demand->silent != 0;
    demand->silent =
        spoken ? 0 : (uint16_t) min_u64(max_u64(bucket ? demand->silent : 0, membership->suspect), UINT16_MAX);
    demand->presumed_rate = 0;
    if (spoken) {
        rates->remote_rate = demand->resumed ? before : rates->remote_rate;
        return;
    }
    /* No more than their number makes likely: where there is always one that has failed, demand may still fall. */
    const uint64_t most = muldiv_floor(rates->local_rate + rates->remote_rate,
                                       PRESUMED_FACTOR * max_u64(membership->suspect, 1), max_u64(membership->live, 1));
    demand->presumed_rate = min_u64(saturating_sub(before, rates->remote_rate), most);
    rates->remote_rate += demand->presumed_rate;
}

/* Learns demand, where there was time enough to tell a rate. */
void demand_learn(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
                  const struct report *report, uint64_t start_ns, bool with_before)
{
    struct demand_stats *demand = &sync->demand;
    const uint64_t now_ns = fleet->gather.now_ns;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t age_ns = fleet->news.age_ns;
    const bool window = !rule_is_bucket(rule) && !rule_has_history(rule);
    const uint64_t span_ns = demand->learned_ns != 0 ? now_ns - demand->learned_ns : 0;
    if (span_ns < interval_ns - interval_ns / WAIT_DIVISOR) {
        /* The others speak once in an interval: this tells no rate. But what passed here half an interval ago is seen.
         */
        const uint64_t late = muldiv_ceil(demand->recent_rate, age_ns, NS_PER_S) >> RATE_BITS;
        demand->local_seen =
            max_u64(demand->local_seen, demand->recent_ns == now_ns ? saturating_sub(report->count, late) : 0);
        return;
    }
    /* Of the others' units those before the earliest window that was read are not known. */
    const uint64_t before_ns = with_before ? min_u64(rule->period_ns, start_ns) : 0;
    const uint64_t read_ns = saturating_sub(now_ns, window ? start_ns - before_ns : 0);
    const uint64_t remote_ns = max_u64(min_u64(span_ns, read_ns), interval_ns / 2);
    const uint64_t remote_demand = muldiv_ceil(demand->remote_demand, span_ns, remote_ns);
    if (demand->rates.known && demand->rates.remote_rate > demand->rates.local_rate / URGENT_THRESHOLD_DIVISOR &&
        estimate_rate(remote_demand, span_ns) < demand->rates.remote_rate / CHANGE_FACTOR) {
        demand->changed_ns = now_ns;
    }
    demand->begun = false;
    learn_rates(fleet, demand, remote_demand, span_ns, rule_is_bucket(rule));
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
