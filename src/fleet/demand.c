/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node learns of a key's demand, and publishes to the checks (allowance.c).
 *
 * Own demand is counted when a cell is looked at: units admitted since the last look, and units denied. The others' is
 * what the record's sum of units asked for has grown by, less the own part. Both are taken over the time between two
 * answers, so it does not matter how often a key is reported.
 *
 * Invariant: told.asked is what this node has said was asked of it in a window, and never decreases; what was denied
 * after the last look at a window counts in the next one.
 */
#include "fleet/demand.h"
#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/count.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "fleet/report.h"
#include "fleet/state.h"

/* A surprise is worth asking at once if it is this part of the headroom. */
#define URGENT_THRESHOLD_DIVISOR 8

/* Fewer units between two looks tell no rate. */
#define RECENT_UNITS 8

/* Own demand that has risen by more than this part of it has risen indeed: the sum of all parts is not to exceed 1. */
#define RISE_DIVISOR 4

/* The others' that has fallen by more than this part of it has fallen indeed. */
#define FALL_DIVISOR 4

/* Demand that has changed by this factor is asked for sooner, for so many intervals. */
#define CHANGE_FACTOR    2
#define CHANGE_INTERVALS 4

/* And by this one, begins anew. */
#define SURGE_FACTOR 8

/* A part of a limit below this is a matter of luck. */
#define OVERSUBSCRIBED_UNITS 2

/* A heartbeat is late when it is this part of an interval late. */
#define LATE_DIVISOR 32

/* Nodes that do not speak are presumed to be asked for no more than so many times an even part. */
#define PRESUMED_FACTOR 16

/* For this part of an interval a beginning is waited out; and demand is learned from answers an interval less it apart.
 */
#define WAIT_DIVISOR 4

/*
 * What the fleet let pass less than its limit while requests were denied is made good within this many intervals, and
 * of an interval in which none were denied this part: else a bucket that nobody asked for would pass more than its
 * burst when it is asked for at last.
 */
#define CREDIT_INTERVALS 1
#define CREDIT_DIVISOR   8

void demand_begin(struct sync_full *sync)
{
    sync->demand.recent_units = 0;
}

void demand_local(struct sync_full *sync, struct sync_counts *counts, uint64_t own)
{
    const uint64_t more = saturating_sub(own, counts->own);
    counts->own += more;
    counts->demand = count_add(counts->demand, more);
    sync->demand.local_demand += more;
    sync->demand.recent_units += more;
}

/* What `units` in the time since the last look say. A look 10 ms after another tells no rate of a key that is asked for
 * 700 times a second: for an interval the one before it stands. */
static void demand_recent(struct demand_stats *demand, uint64_t units, uint64_t span_ns, uint64_t now_ns,
                          uint64_t interval_ns)
{
    if (units >= RECENT_UNITS) {
        demand->recent_rate = estimate_rate(units, span_ns);
        demand->recent_ns = now_ns;
    } else if (now_ns >= demand->recent_ns + interval_ns) {
        demand->recent_rate = 0;
    }
}

uint64_t demand_denied(const struct fleet *fleet, struct sync_full *sync, uint64_t into_ns, uint64_t period_ns,
                       uint64_t now_ns)
{
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t denied = load_relaxed(&sync->denied) != 0 ? exchange_acquire(&sync->denied, 0) : 0; /* statistics */
    /* More than any limit lets pass says no more; and what all nodes ask for between two answers stays far from 2^51
     * (count.h). */
    const uint64_t more = min_u64(denied, WEIR_MAX_UNITS);
    sync->demand.local_demand += more;
    /* A cell is looked at within an interval of its use, but for an outage: then in the first round after it. */
    const uint64_t inspected_ns = load_relaxed(&sync->allowance.inspected_ns);
    const uint64_t most_ns = max_u64(interval_ns, saturating_sub(now_ns, fleet->gather.before_ns));
    const uint64_t span_ns = max_u64(min_u64(now_ns - inspected_ns, most_ns), 1);
    /* What was denied in an outage was mostly denied in earlier windows. */
    const bool earlier = into_ns < span_ns && span_ns > interval_ns + interval_ns / 2;
    sync->now.demand = count_add(sync->now.demand, earlier ? muldiv_ceil(more, into_ns, span_ns) : more);
    if (earlier) {
        const uint64_t before_ns = min_u64(span_ns - into_ns, period_ns);
        sync->before.demand = count_add(sync->before.demand, muldiv_floor(more, before_ns, span_ns));
    }
    sync->demand.idle =
        sync->demand.idle || inspected_ns + STALE_INTERVALS * interval_ns < now_ns - (most_ns - interval_ns);
    demand_recent(&sync->demand, sync->demand.recent_units + more, span_ns, now_ns, interval_ns);
    sync->demand.denied[1] = sync->demand.denied[0];
    sync->demand.denied[0] = more != 0;
    if (!sync->demand.idle) {
        store_relaxed(&sync->allowance.inspected_ns, now_ns);
    } /* else the answer is old until there is a new one, however little was used so far */
    return more;
}

void demand_units(const struct fleet *fleet, struct sync_full *sync, uint64_t counts, uint64_t end, uint64_t now_ns)
{
    demand_begin(sync);
    /* A note that is new knows nothing of what was told before; and numbers of units given back are used again. */
    sync->now.own = sync->now.own == 0 ? counts : min_u64(sync->now.own, end);
    demand_local(sync, &sync->now, end);
    (void) demand_denied(fleet, sync, UINT64_MAX, 0, now_ns);
}

void demand_reset(struct sync_full *sync, uint64_t now_ns, uint64_t interval_ns, bool steady)
{
    struct demand_stats *demand = &sync->demand;
    if (!steady || demand->learned_ns == 0) {
        demand->learned_ns = 0;
        return;
    }
    /* What looks recent has come since then. */
    const uint64_t span_ns = max_u64(now_ns - min_u64(demand->learned_ns, now_ns), interval_ns);
    demand_recent(demand, demand->recent_units, span_ns, now_ns, 0);
    demand->idle = false;
    store_relaxed(&sync->allowance.inspected_ns, now_ns);
}

void demand_remote(struct sync_full *sync, struct sync_counts *counts, const struct report *report)
{
    const uint64_t more =
        count_remote(counts->remote_demand, report->sum_demand, report->demand) - counts->remote_demand;
    counts->remote_demand += more;
    sync->demand.remote_demand += more;
}

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
static bool begins(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
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

/* The part that nodes which have not spoken lately have of all demand. */
static uint32_t presumed_fraction(const struct demand_stats *demand)
{
    const uint64_t all = max_u64(demand->rates.local_rate + demand->rates.remote_rate, 1);
    return (uint32_t) min_u64(muldiv_floor(demand->presumed_rate, FRACTION_WHOLE, all), FRACTION_WHOLE - 1);
}

/*
 * Learns demand. Nodes that have not spoken lately are cut off, or have failed. The first go on by their share of the
 * limit, so what they were asked for is presumed to go on: what the others' demand was, less what is told of it. That
 * ends with them: a node that has failed no longer counts after a while (fleet/membership.h), and one that speaks again
 * tells of all at once what it used meanwhile, which is no rate.
 */
static void demand_take_in(const struct fleet *fleet, struct demand_stats *demand, uint64_t remote_demand,
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
static void take_in(const struct fleet *fleet, struct sync_full *sync, const struct rule *rule,
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
    demand_take_in(fleet, demand, remote_demand, span_ns, rule_is_bucket(rule));
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

/* What a limit lets pass in the long run. */
static uint64_t rule_rate(const struct rule *rule)
{
    if (rule_is_bucket(rule)) {
        return rule->unit != 0 ? muldiv_floor(NS_PER_S << BUCKET_FRACTION_BITS, UINT64_C(1) << RATE_BITS, rule->unit)
                               : UINT64_MAX;
    }
    return estimate_rate(rule->limit, rule->period_ns);
}

/*
 * Whether this node's part of a limit that is asked for too often is hardly a unit. What the others may have admitted
 * since the answer by their demand is then no measure: each node would take the first units for its own.
 */
static bool is_oversubscribed(const struct rule *rule, const struct demand_rates *rates, uint32_t remote_fraction)
{
    const uint64_t fraction = muldiv_floor(rule->limit, FRACTION_WHOLE - remote_fraction, FRACTION_WHOLE);
    const uint64_t asked = saturating_add(rates->local_rate, rates->remote_rate);
    return fraction < OVERSUBSCRIBED_UNITS && asked / 3 > rule_rate(rule) / 2;
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

/* Time that so many units take to refill, of 1/65536 units. */
static uint64_t refill_time(const struct rule *rule, uint64_t units)
{
    return muldiv_ceil(units, rule->unit, UINT64_C(1) << RATE_BITS);
}

/* What others use of a bucket in so long a time, as time. */
static uint64_t remote_flow(const struct rule *rule, uint64_t remote_rate, uint64_t remote_fraction, uint64_t span_ns)
{
    const uint64_t rate = min_u64(remote_rate, muldiv_floor(rule_rate(rule), remote_fraction, FRACTION_WHOLE));
    return refill_time(rule, muldiv_floor(rate, span_ns, NS_PER_S));
}

/* The level by now, of `count` own units: with those that others are taken to have used since the last answer. */
static uint64_t level_now(const struct sync_full *sync, const struct rule *rule, uint64_t count, uint64_t now_ns)
{
    const struct allowance *allowance = &sync->allowance;
    const struct estimate estimate = {.remote_rate = load_relaxed(&allowance->remote_rate),
                                      .remote_fraction = load_relaxed(&allowance->remote_fraction),
                                      .since_ns = load_relaxed(&allowance->since_ns)};
    const uint64_t since = (count - load_relaxed(&allowance->seen)) & BUCKET_TOTAL_MASK;
    const uint64_t own = since <= BUCKET_TOTAL_MASK / 2 ? since : 0;
    const uint64_t remote = refill_time(rule, estimate_remote(&estimate, own, now_ns));
    return saturating_add(load_relaxed(&allowance->level), saturating_add(saturating_mul(own, rule->unit), remote));
}

uint64_t demand_acked(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule, uint64_t count,
                      uint64_t now_ns)
{
    const struct allowance *allowance = &sync->allowance;
    const uint64_t ahead = remote_flow(rule, load_relaxed(&allowance->remote_rate),
                                       load_relaxed(&allowance->remote_fraction), fleet->process->interval_ns / 2);
    return saturating_sub(level_now(sync, rule, count, now_ns), ahead);
}

/* Units of a window, from `start_ns` to `end_ns`, that they are presumed to have used. */
static uint64_t presumed_units(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                               uint64_t start_ns, uint64_t end_ns)
{
    const uint64_t span_ns = saturating_sub(end_ns, max_u64(start_ns, fleet->membership.spoken_ns));
    const uint64_t share = muldiv_floor(rule->limit << RATE_BITS, presumed_fraction(demand), FRACTION_WHOLE);
    /* What slides is used as it becomes free; a log frees in an instant what passed in one. */
    const bool slides = rule->algorithm == WEIR_SLIDING_WINDOW;
    const uint64_t most = slides ? muldiv_floor(share, NS_PER_S, rule->period_ns) : UINT64_MAX;
    const uint64_t asked = muldiv_floor(min_u64(demand->presumed_rate, most), span_ns, NS_PER_S);
    return (min_u64(asked, share) + (UINT64_C(1) << (RATE_BITS - 1))) >> RATE_BITS;
}

/* What they are presumed to have used that counts now, as the mirror's level. */
static uint64_t presumed_in_window(const struct fleet *fleet, const struct demand_stats *demand,
                                   const struct rule *rule, uint64_t start_ns)
{
    if (demand->presumed_rate == 0) {
        return 0;
    }
    /* What they used since the others' news is in the estimate, as the others' is. */
    const uint64_t told_ns = saturating_sub(fleet->gather.now_ns, fleet->news.age_ns);
    start_ns = rule_has_history(rule) ? saturating_sub(fleet->gather.now_ns, rule->period_ns) : start_ns;
    const uint64_t units = presumed_units(fleet, demand, rule, start_ns, told_ns);
    if (rule->algorithm != WEIR_SLIDING_WINDOW) {
        return units;
    }
    const uint64_t before =
        presumed_units(fleet, demand, rule, saturating_sub(start_ns, rule->period_ns), min_u64(start_ns, told_ns));
    return presumed_pack(rule->limit, units, before);
}

bool demand_failed(const struct fleet *fleet, const struct demand_stats *demand)
{
    return demand->resumed && fleet->membership.failed;
}

/*
 * The level of a bucket as of this answer (struct allowance).
 *
 * By the fleet it is what has been told, and what others used in the time that their news is old. How old each one's
 * is nobody knows: as much may be missing again, or be too much. Within that the level stays what this node has made of
 * it, so that of a bucket that is asked for too often each node keeps its share, whenever it reports; what goes beyond
 * it has been let pass, or has not been, and is made up for. So in the long run the fleet passes what refills.
 */
static uint64_t level_of(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule,
                         const struct report *report, struct state state, const struct demand_rates *rates,
                         const struct estimate *estimate)
{
    const struct demand_stats *demand = &sync->demand;
    const struct allowance *allowance = &sync->allowance;
    const uint64_t now = bucket_time(rule, fleet->gather.now_ns);
    const uint64_t ahead = remote_flow(rule, rates->known ? rates->remote_rate : estimate->remote_rate,
                                       estimate->remote_fraction, fleet->news.age_ns);
    const uint64_t known = (report->count - demand->known_total) & BUCKET_TOTAL_MASK;
    const uint64_t counts =
        saturating_add(demand->known_time, saturating_mul(known <= BUCKET_TOTAL_MASK / 2 ? known : 0, rule->unit));
    uint64_t level = saturating_add(counts, ahead);
    if (load_relaxed(&allowance->level) != 0) {
        const uint64_t unseen = (bucket_total(state) - report->count) & BUCKET_TOTAL_MASK;
        level = max_u64(level_now(sync, rule, report->count, fleet->gather.now_ns),
                        saturating_sub(state.a, saturating_mul(unseen, rule->unit)));
        /* While nodes are silent, the level that this node goes by stands. What was presumed of nodes that no longer
         * count is over; the next report lets the fleet know. */
        const bool keeps = demand->presumed_rate != 0;
        level = keeps ? level : max_u64(level, counts + ahead / 2);
        level =
            keeps || demand_failed(fleet, demand) ? level : min_u64(level, saturating_add(counts, ahead + ahead / 2));
    }
    const uint64_t interval = fleet->process->interval_ns << BUCKET_FRACTION_BITS;
    const uint64_t credit =
        demand->denied[0] && demand->denied[1] ? CREDIT_INTERVALS * interval : interval / CREDIT_DIVISOR;
    return max_u64(level, saturating_sub(now, credit));
}

/* Fleet time as of which the others have told, on average; of an answer that waits for theirs as allowance.c counts. */
static uint64_t news_since(const struct fleet *fleet, bool waits)
{
    const uint64_t age_ns = waits ? fleet->process->interval_ns / 2 : fleet->news.age_ns;
    return max_u64(saturating_sub(fleet->gather.now_ns, age_ns), 1);
}

void demand_answer(struct fleet *fleet, const struct cell *cell, struct sync_full *sync, const struct rule *rule,
                   const struct report *report, uint64_t remote, uint64_t start_ns, bool with_before)
{
    struct allowance *allowance = &sync->allowance;
    struct demand_stats *demand = &sync->demand;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t now_ns = fleet->gather.now_ns;
    const bool bucket = rule_is_bucket(rule);
    const bool log = rule_has_history(rule);
    demand->fraction_ns = load_relaxed(&allowance->fraction) != 0 ? now_ns : demand->fraction_ns;
    take_in(fleet, sync, rule, report, start_ns, with_before);
    const bool waits = begins(fleet, sync, rule, report, start_ns);
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
        const uint64_t local_refunds = report_window_back(sync, load_relaxed(&sync->allowance.seq));
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
    uint64_t level = flows ? level_of(fleet, sync, rule, report, state, &rates, &estimate) : 0;
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

void demand_history(struct fleet *fleet, const struct cell *cell, struct sync_full *sync, const struct rule *rule,
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
    demand_answer(fleet, cell, sync, rule, report, remote, 0, false);
}
