/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an answer to what checks read of it: the key's struct allowance (process/allowance.c).
 *
 * An answer first teaches the demand of all nodes (demand_learn.c). From the demand follows the estimate of what the
 * other nodes will admit until the next answer, and the number of local units after which the key is urgent. A bucket
 * also gets its level, with the units that no node has reported yet (bucket_level.c).
 */
#include "fleet/keys/publish.h"

#include "algorithm/bucket.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "fleet/keys/bucket_level.h"
#include "fleet/keys/demand_learn.h"
#include "fleet/keys/presumed.h"
#include "fleet/keys/reading.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/process.h"
#include "process/sync_state.h"

/* An answer on its way into the allowance. */
struct work {
    const struct publish_input *in;
    bool awaits;               /* the other nodes' first reports are awaited */
    bool evenly;               /* the key goes by its equal share of a bucket */
    struct demand_rates rates; /* the demand to go by now */
    struct estimate estimate;
    struct state state;
    uint64_t nodes;
    uint64_t left;       /* headroom by the state */
    uint64_t local_seen; /* local units that the news of the other nodes covers, as the state counts them */
    uint64_t level;
};

/*
 * Whether this node's fraction of a limit that is asked for too often is hardly a unit. What the other nodes may have
 * admitted since the answer by their demand is then no measure: each node would take the first units for its own.
 */
static bool is_oversubscribed(const struct rule *rule, const struct demand_rates *rates, uint32_t remote_fraction)
{
    const uint64_t fraction = muldiv_floor(rule->limit, FRACTION_WHOLE - remote_fraction, FRACTION_WHOLE);
    const uint64_t asked = saturating_add(rates->local_rate, rates->remote_rate);
    return fraction < OVERSUBSCRIBED_UNITS && asked / 3 > bucket_level_rule_rate(rule) / 2;
}

const int32_t estimate_bounds[ESTIMATE_BUCKETS - 1] = {-100000, -30000, -10000, -3000, 3000,
                                                       10000,   30000,  100000, 300000};

/* Counts how far the last estimate was off. */
static void count_error(struct fleet *fleet, const struct publish_input *in, struct state state)
{
    const struct allowance *allowance = &in->sync->allowance;
    const uint64_t now_ns = fleet->gather.now_ns;
    const uint64_t age_ns = rule_kind(in->rule) == RULE_BUCKET ? 0 : fleet->news.age_ns;
    const uint64_t since_ns = load_relaxed(&allowance->since_ns);
    if (since_ns < in->start_ns || since_ns + age_ns >= now_ns || load_relaxed(&allowance->fraction) != 0) {
        return; /* another window, or no time in between: there was no estimate */
    }
    /* The news of both answers is equally old: between them lies the time since the last answer. */
    const struct estimate estimate = {.remote_rate = load_relaxed(&allowance->remote_rate),
                                      .remote_fraction = load_relaxed(&allowance->remote_fraction),
                                      .since_ns = since_ns + age_ns};
    const uint64_t room = saturating_add(rule_headroom(in->rule, state, now_ns), in->remote);
    const uint64_t guess = room - estimate_left(&estimate, room, 0, now_ns);
    const int64_t error = ((int64_t) min_u64(guess, WEIR_MAX_UNITS) - (int64_t) min_u64(in->remote, WEIR_MAX_UNITS)) *
                          1000000 / (int64_t) max_u64(in->rule->limit, 1);
    size_t bucket = 0;
    while (bucket < ESTIMATE_BUCKETS - 1 && error > estimate_bounds[bucket]) {
        bucket++;
    }
    counter_add(&fleet->stats.estimate_counts[bucket], 1);
    store_relaxed(&fleet->stats.estimate_sum, load_relaxed(&fleet->stats.estimate_sum) + error);
}

/* The demand to go by until the next answer. */
static struct demand_rates present_rates(const struct fleet *fleet, const struct demand_stats *demand)
{
    /* Local demand is known without delay: a node that traffic has just come to need not wait for its fraction. */
    struct demand_rates rates = demand->rates;
    if (demand->risen && demand->recent_rate > rates.local_rate + rates.local_rate / RISE_DIVISOR) {
        rates.local_rate = demand->recent_rate;
    }
    /*
     * While nothing is learned after a first contact, remote demand is at least what was reported since then. Demand
     * before a burst says nothing of the burst: a node that went by it would take all that is left for itself.
     */
    const uint64_t now_ns = fleet->gather.now_ns;
    if (demand->begun && now_ns > demand->learned_ns) {
        const uint64_t told_rate = estimate_rate(demand->remote_demand, now_ns - demand->learned_ns);
        rates.remote_rate = max_u64(rates.remote_rate, told_rate);
    }
    return rates;
}

/*
 * The first reports of nodes that have just joined tell no rate. Each such node is presumed to be asked as often as the
 * nodes before are on average. Otherwise the nodes before would take all room for theirs, and the new nodes a part of
 * it once more. A fixed window makes good what is left to a node in vain. A bucket's level waits for reports, and so
 * does a sliding log. A window that slides loses such room, so it has to be certain that a new node uses the key: the
 * only other node, or none, was there before.
 */
static void presume_joining(const struct fleet *fleet, struct work *w)
{
    const uint64_t joining = membership_joining(&fleet->membership, fleet->news.good_ns);
    const uint64_t before = w->nodes - min_u64(joining, w->nodes - 1);
    const bool certain = before == 1 && w->in->remote != 0;
    const bool window = rule_kind(w->in->rule) == RULE_WINDOW;
    if (joining == 0 || !window || !w->in->sync->demand.rates.known) {
        return;
    }
    if (certain || (before > 1 && !rule_slides(w->in->rule))) {
        const uint64_t asked = saturating_add(w->rates.local_rate, w->rates.remote_rate);
        w->rates.remote_rate =
            min_u64(saturating_add(w->rates.remote_rate, muldiv_floor(asked, joining, before)), RATE_MOST);
    }
}

/* The estimate of what the other nodes admit until the next answer; sets w->evenly. */
static void estimate_remote_units(const struct fleet *fleet, struct work *w)
{
    const struct rule *rule = w->in->rule;
    const struct demand_stats *demand = &w->in->sync->demand;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const bool bucket = rule_kind(rule) == RULE_BUCKET;
    const uint32_t equal = (uint32_t) (FRACTION_WHOLE - FRACTION_WHOLE / w->nodes);
    const uint32_t remote_fraction = rates_remote_fraction(&w->rates, interval_ns);
    const bool oversubscribed =
        !bucket && w->rates.remote_rate != 0 && is_oversubscribed(rule, &w->rates, remote_fraction);
    /* A burst that refills within an interval is made up for before the interval is over, whichever node had it. */
    const bool lump = rule->tolerance >> BUCKET_FRACTION_BITS > interval_ns;
    /* What a queue makes requests wait for in vain is not made up for: a queue is served by what is known. */
    w->evenly = bucket && !rule_is_queue(rule) && ((w->awaits && lump) || !demand->rates.known);
    w->estimate = (struct estimate){.remote_rate = w->rates.remote_rate, .remote_fraction = remote_fraction};
    if (w->evenly || oversubscribed) {
        w->estimate.remote_rate = w->nodes > 1 ? RATE_MOST : w->rates.remote_rate;
        w->estimate.remote_fraction = oversubscribed && remote_fraction > equal ? remote_fraction : equal;
    } else if (demand->begun) {
        /*
         * The other nodes' reports lag behind what they are asked for: their part of a burst is taken to be twice what
         * they have reported so far. So nodes that hear at different times do not take more than there is. Only a
         * bucket of a larger burst goes by that: it makes good what is left over in vain.
         */
        const uint32_t doubled = remote_fraction < equal / 2 ? 2 * remote_fraction : equal;
        const uint32_t expected = bucket && lump ? doubled : remote_fraction;
        w->estimate.remote_fraction = expected < equal ? expected : equal;
    }
}

static void level_bucket(const struct fleet *fleet, struct work *w)
{
    const struct publish_input *in = w->in;
    const uint64_t count = in->report->count;
    /* An equal share is one of what there was before this node's own units. */
    const bool begins = w->evenly || (w->awaits && rule_is_queue(in->rule));
    w->local_seen = begins ? min_u64(in->sync->demand.local_seen, count) : count;
    w->level = 0;
    if (in->rule->unit != 0 && w->estimate.remote_rate != 0) {
        const struct bucket_level_input input = {
            .sync = in->sync, .rule = in->rule, .report = in->report, .state = w->state};
        const uint64_t level = bucket_level_answer(fleet, &input, &w->rates, &w->estimate);
        w->level = max_u64(saturating_sub(level, saturating_mul(count - w->local_seen, in->rule->unit)), 1);
    }
}

/*
 * Whether a node that has just joined finds a log that the other nodes keep full, between two bursts. Units that passed
 * at once leave at once, so the rate of the last intervals does not tell what the other nodes ask for. They take the
 * little that becomes free until they hear of this node.
 */
static bool is_kept_full(const struct fleet *fleet, const struct work *w)
{
    const struct demand_stats *demand = &w->in->sync->demand;
    const struct report *report = w->in->report;
    const uint64_t limit = w->in->rule->limit;
    const uint64_t remote = saturating_sub(report->sum, report->author_count);
    const bool unaware = fleet->gather.now_ns < demand->first_ns + fleet->process->interval_ns / 2;
    return rule_kind(w->in->rule) == RULE_HISTORY && unaware && !demand->rates.known &&
           remote >= limit - limit / FULL_DIVISOR && w->rates.remote_rate <= bucket_level_rule_rate(w->in->rule);
}

/*
 * Of a node that has just joined: what the other nodes use before they hear of this node, half an interval from now on
 * average. Until then nodes that ask for more than the limit take all the room there is. Rates are guessed meanwhile,
 * so only demand of twice the limit is certain to be more.
 */
static uint64_t unaware_units(const struct fleet *fleet, const struct work *w)
{
    const uint64_t rule_rate = bucket_level_rule_rate(w->in->rule);
    const uint64_t asked = w->rates.remote_rate;
    const bool told = !w->awaits && w->in->sync->demand.rates.known;
    if (told || !demand_learn_node_is_new(fleet)) {
        return 0;
    }
    if (is_kept_full(fleet, w)) {
        return w->in->rule->limit / UNAWARE_DIVISOR;
    }
    if (asked / 2 < rule_rate) {
        return 0;
    }
    const uint64_t rate = rule_kind(w->in->rule) == RULE_HISTORY ? asked : rule_rate;
    const uint64_t units =
        muldiv_floor(rate, fleet->news.age_ns + fleet->process->interval_ns / 2, NS_PER_S) >> RATE_BITS;
    return min_u64(units, w->in->rule->limit);
}

/* Sets w->local_seen and w->level. */
static void take_level(const struct fleet *fleet, struct work *w)
{
    const struct sync_full *sync = w->in->sync;
    w->local_seen = sync->demand.local_seen;
    switch (rule_kind(w->in->rule)) {
    case RULE_WINDOW: {
        const uint64_t local_refunds = reading_window_refunds(sync, load_relaxed(&sync->allowance.seq));
        w->local_seen = saturating_sub(w->local_seen + counts_merged(&sync->now) + sync->now.deficit,
                                       load_relaxed(&sync->now.remote_refunds) + local_refunds);
        w->level = rule_slides(w->in->rule)
                       ? max_u64(presumed_in_window(fleet, &sync->demand, w->in->rule, w->in->start_ns),
                                 presumed_pack(w->in->rule->limit, unaware_units(fleet, w), 0))
                       : presumed_in_fixed(fleet, sync, w->in->rule, w->in->start_ns, w->in->remote);
        break;
    }
    case RULE_HISTORY:
        w->level = max_u64(presumed_in_log(fleet, &sync->demand, w->in->rule, w->in->kept), unaware_units(fleet, w));
        break;
    case RULE_BUCKET:
        level_bucket(fleet, w);
        break;
    }
}

/* Local units that make the key urgent. Notes whether demand moves from node to node. */
static uint64_t urgent_threshold(const struct fleet *fleet, const struct work *w)
{
    struct demand_stats *demand = &w->in->sync->demand;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t now_ns = fleet->gather.now_ns;
    /* While demand moves from node to node, what was expected is of no help. */
    if (demand->recent_rate > CHANGE_FACTOR * demand->rates.local_rate) {
        demand->changed_ns = now_ns;
    }
    const bool changing = now_ns < demand->changed_ns + CHANGE_INTERVALS * interval_ns;
    const uint64_t ahead_ns = changing ? interval_ns / 4 : 3 * interval_ns;
    const uint64_t expected = muldiv_floor(w->rates.local_rate >> RATE_BITS, ahead_ns, NS_PER_S);
    const uint64_t seen = rule_kind(w->in->rule) == RULE_BUCKET ? w->local_seen : demand->local_seen;
    const uint64_t unseen = saturating_sub(w->in->report->count, seen);
    if (w->awaits) {
        /*
         * A node waiting for the other nodes' first reports still sends its own. Otherwise the node whose wait ends
         * first would see too low a total and admit units already used elsewhere.
         */
        return unseen + max_u64(saturating_add(w->left, unseen) / w->nodes / WAIT_DIVISOR, 2);
    }
    return unseen + max_u64(max_u64(expected, w->left / URGENT_THRESHOLD_DIVISOR), 2);
}

/* Fleet time as of which the other nodes have reported, on average. */
static uint64_t since_ns(const struct fleet *fleet, const struct work *w)
{
    const bool equal_share = w->awaits || w->evenly;
    if (rule_kind(w->in->rule) == RULE_BUCKET && !equal_share) {
        return fleet->gather.now_ns; /* the level has the units since then */
    }
    /* While a key awaits reports, half an interval, as allowance.c counts. */
    const uint64_t age_ns = equal_share ? fleet->process->interval_ns / 2 : fleet->news.age_ns;
    return max_u64(saturating_sub(fleet->gather.now_ns, age_ns), 1);
}

/* Writes what checks read. Relaxed: each word sizes an estimate, and what is counted is counted by the state alone. */
static void store_allowance(const struct fleet *fleet, const struct work *w)
{
    struct allowance *allowance = &w->in->sync->allowance;
    const uint64_t now_ns = fleet->gather.now_ns;
    const bool bucket = rule_kind(w->in->rule) == RULE_BUCKET;
    const uint64_t threshold = urgent_threshold(fleet, w);
    store_relaxed(&allowance->level, w->level);
    store_relaxed(&allowance->remote_rate, w->estimate.remote_rate);
    store_relaxed(&allowance->remote_fraction, w->estimate.remote_fraction);
    store_relaxed(&allowance->seen, bucket ? w->local_seen & BUCKET_TOTAL_MASK : w->local_seen);
    store_relaxed(&allowance->since_ns, since_ns(fleet, w));
    store_relaxed(&allowance->inspected_ns, now_ns);
    store_relaxed(&allowance->urgent_threshold, threshold);
    const uint64_t dither = hash_mix(load_relaxed(&w->in->cell->hash) ^ now_ns) >> (64 - RATE_BITS);
    store_relaxed(&allowance->dither, (uint16_t) (bucket ? 0 : dither)); /* a bucket keeps its fractions */
    store_relaxed(&allowance->quota_unacked, 0);
    unsigned flags =
        (w->awaits ? ALLOWANCE_AWAITS_PEERS : 0U) | (w->in->sync->demand.rates.known ? 0U : ALLOWANCE_DEMAND_UNKNOWN);
    flags |= flags != 0 && demand_learn_node_is_new(fleet) ? ALLOWANCE_NODE_IS_NEW : 0U;
    store_relaxed(&allowance->flags, (uint8_t) flags);
    /* A queue has nothing that could be left to the other nodes: while these are awaited, it is served in part. */
    if (!rule_is_queue(w->in->rule) || !w->awaits) {
        store_relaxed(&allowance->fraction, 0);
    }
}

void publish_answer(struct fleet *fleet, const struct publish_input *input)
{
    struct demand_stats *demand = &input->sync->demand;
    struct work w = {.in = input};
    demand->fraction_ns =
        load_relaxed(&input->sync->allowance.fraction) != 0 ? fleet->gather.now_ns : demand->fraction_ns;
    const struct demand_span span = {
        .rule = input->rule, .report = input->report, .start_ns = input->start_ns, .with_before = input->with_before};
    demand_learn(fleet, input->sync, &span);
    w.awaits = demand_learn_first_contact(fleet, input->sync, &span);
    if (rule_kind(input->rule) == RULE_HISTORY && !w.awaits) {
        /* A log is used as it becomes free. Where many units passed just now, many passed elsewhere as well. */
        demand->local_seen = min_u64(demand->local_seen, input->seen);
    }
    w.rates = present_rates(fleet, demand);
    if (presumed_held(fleet, demand, input->rule, input->kept)) {
        w.rates.remote_rate = saturating_sub(w.rates.remote_rate, demand->presumed_rate);
    }
    w.nodes = membership_nodes(&fleet->membership);
    presume_joining(fleet, &w);
    w.state = cell_state(dwcas_read(&input->cell->state));
    count_error(fleet, input, w.state);
    w.left = rule_headroom(input->rule, w.state, fleet->gather.now_ns);
    estimate_remote_units(fleet, &w);
    take_level(fleet, &w);
    store_allowance(fleet, &w);
}

void publish_history(struct fleet *fleet, const struct publish_input *input)
{
    struct sync_full *sync = input->sync;
    const struct report *report = input->report;
    struct demand_stats *demand = &sync->demand;
    uint64_t more = (report->sum_demand - sync->now.remote_demand) % REPORT_HISTORY_DEMAND;
    if (sync->before.remote_demand != report->history->other_authors) {
        /* The sum is over other authors: remote demand goes on as it was. */
        const uint64_t span_ns = saturating_sub(fleet->gather.now_ns, demand->learned_ns);
        const uint64_t expected = muldiv_floor(demand->rates.remote_rate, span_ns, NS_PER_S) >> RATE_BITS;
        more = saturating_sub(expected, demand->remote_demand);
    } else if (more > REPORT_HISTORY_DEMAND / 2) {
        more = 0; /* an author has forgotten its demand */
    }
    sync->now.remote_demand = report->sum_demand % REPORT_HISTORY_DEMAND;
    sync->before.remote_demand = report->history->other_authors;
    demand->remote_demand = saturating_add(demand->remote_demand, more);
    publish_answer(fleet, input);
}
