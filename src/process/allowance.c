/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * The units that may pass at a key that other nodes use as well, between two answers of the fleet.
 *
 *   answered keys   A part of the key's headroom is left to the other nodes, by an estimate of their use since the
 *                   last answer (algorithm/estimate.c). In an outage the estimate goes on without answers. The node
 *                   then has its fraction of the demand last seen: of what was left at the last answer, and of each
 *                   later window or refill.
 *   new keys        An equal share of the limit. So a burst that reaches all nodes before any has heard of the others
 *                   stays within the limit.
 *
 * In both cases the shares of all nodes add up to the limit. There is no step between the cases: what was left to the
 * other nodes at the last answer stays left to them.
 *
 * Buckets. The unreported use of the other nodes is a flow, and the bucket refills during it. So the sync state holds a
 * level: the bucket's tat at the last answer, with the use unreported then. The level moves by every unit that passes
 * here and every unit estimated to pass elsewhere, and is not cut off at now:
 *
 *     level + unit * (local + remote units since then)  <=  now + tolerance
 *
 * The state's own tat counts only known units, and is cut off at now whenever the bucket is full; it bounds bursts
 * besides. Were the level cut off too, traffic below the limit would be denied: unreported units of a bucket that was
 * full all the time owe nothing.
 *
 * When more units pass than the last answer gave reason to expect, a sync is requested at once (process.shared->urgent).
 *
 * Ordering: relaxed. The words read here may be of two answers or, when a cell has just changed hands, of another key.
 * They size an estimate; units are counted by the state alone.
 */
/* clang-format on */
#include "process/allowance.h"

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "process/fraction.h"
#include "process/process.h"
#include "process/sync_state.h"
#include "process/unseen.h"

/* The least wait after a denial that the fleet's next answer may end. */
#define RETRY_MIN_NS NS_PER_MS

/* A first answer is requested at once; after this time it is there, or the policy's outage mode decides. */
#define FIRST_ANSWER_NS (100 * NS_PER_MS)

/* Of a key without a full state: the part of a share whose use requests a sync. Above what is due anyway (report.c). */
#define COMPACT_URGENT_DIVISOR 4

struct rule allowance_rule(const struct process *process, const struct policy *policy, size_t limit, uint32_t cell,
                           uint64_t asked)
{
    const struct rule rule = policy_rule(&policy->limits[limit]);
    const bool shared = process_shares(process, policy);
    return fraction_rule(&rule, shared ? fraction_in_force(process, allowance_outage_mode(policy), &rule, cell) : 0,
                         asked);
}

static void request_sync(struct process *process, uint32_t cell)
{
    bitmap_set(&process->table.urgent, cell);
    store_relaxed(&process->shared->urgent, 1); /* seen at the next tick; the bit with it, or at the tick after */
}

/* A window's state without the remote units. */
static struct state local_state(const struct process *process, uint32_t cell, struct state state)
{
    const struct merged_counts merged = sync_state_merged(process, cell);
    state = window_discharge_seq(state, merged.seq & WINDOW_SEQ_MASK, merged.now);
    return window_discharge_seq(state, (merged.seq - 1) & WINDOW_SEQ_MASK, merged.before);
}

/* Whether the last answer of a key is old because the key was not used here. */
static bool is_stale(const struct process *process, const struct allowance *allowance, uint64_t now_ns)
{
    const uint64_t news_ns = max_u64(load_relaxed(&allowance->since_ns), load_relaxed(&allowance->inspected_ns));
    /* In an outage no key is inspected: then all answers are as old as the last sync, and none is stale. */
    const uint64_t then_ns = min_u64(now_ns, load_relaxed(&process->shared->news_ns) + process->interval_ns);
    return then_ns > news_ns + STALE_INTERVALS * process->interval_ns;
}

/* The time of remote units that are estimated to have passed beside `local` ones since the last answer. */
static uint64_t remote_time(const struct process *process, const struct allowance *allowance, const struct rule *rule,
                            uint64_t local, uint64_t now_ns)
{
    struct estimate estimate = allowance_estimate(allowance);
    if (is_stale(process, allowance, now_ns)) {
        const uint32_t share = fraction_equal_share(process);
        estimate.remote_rate = share != 0 ? RATE_MOST : 0;
        estimate.remote_fraction = share != 0 ? (uint32_t) (FRACTION_WHOLE - share) : 0;
    }
    return muldiv_ceil(estimate_remote(&estimate, local, now_ns), rule->unit, UINT64_C(1) << RATE_BITS);
}

static struct state raise_to_level(const struct process *process, const struct policy *policy, const struct rule *rule,
                                   const struct allowance *allowance, struct state state, uint64_t now_ns)
{
    const enum outage_mode outage_mode = allowance_outage_mode(policy);
    const uint64_t level = load_relaxed(&allowance->level);
    const bool known = load_relaxed(&allowance->flags) == 0 && load_relaxed(&allowance->fraction) == 0;
    const bool queued = outage_mode == OUTAGE_MODE_NONE && rule_is_queue(rule) && known;
    if (level == 0 || (outage_mode != OUTAGE_MODE_SHARE && !queued)) {
        return state;
    }
    /* In an outage a unit's time includes that of the units elsewhere: the rule is this node's fraction. */
    const uint64_t local = unseen_of_bucket(allowance, state);
    uint64_t time = saturating_mul(local, rule->unit);
    if (outage_mode == OUTAGE_MODE_NONE) {
        time = saturating_add(time, remote_time(process, allowance, rule, local, now_ns));
    }
    /* For a peek the bucket may have another rate. */
    const struct state own = bucket_convert_rate(rule, state, now_ns);
    return bucket_with_tat(own, max_u64(bucket_tat(own), saturating_add(level, time)));
}

struct state allowance_level(const struct process *process, const struct policy *policy, const struct rule *rule,
                             uint32_t cell, struct state state, uint64_t now_ns)
{
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return allowance_outage_mode(policy) == OUTAGE_MODE_LOCAL ? local_state(process, cell, state) : state;
    case RULE_HISTORY:
        return state;
    case RULE_BUCKET:
        return sync != NULL ? raise_to_level(process, policy, rule, &sync->allowance, state, now_ns) : state;
    }
    return state;
}

/* What is left of a share after `unseen` units. `due`: requests a sync if the share or the headroom runs out. */
static uint64_t left_of_share(struct process *process, const struct allowance_query *query, uint64_t share,
                              uint64_t unseen, uint64_t headroom, bool due)
{
    const uint64_t left = min_u64(headroom, saturating_sub(share, unseen));
    if (due && (unseen >= allowance_urgent_units(share) || left < query->asked)) {
        request_sync(process, query->cell);
    }
    return left;
}

/* Local units of a key without a full state that still count; *unreported: those that are not acknowledged. */
static uint64_t compact_units(const struct process *process, const struct allowance_query *query, uint64_t *unreported)
{
    const uint64_t used = saturating_sub(query->rule->limit, query->headroom);
    switch (rule_kind(query->rule)) {
    case RULE_WINDOW: {
        const struct merged_counts merged = sync_state_merged(process, query->cell);
        uint64_t into_ns;
        const struct state state = window_roll(query->rule, query->state, query->now_ns, &into_ns);
        const bool current = merged.seq == window_seq(state);
        const uint64_t local = saturating_sub(window_count(state), current ? merged.now : 0);
        *unreported = saturating_sub(local, current ? merged.acked : 0);
        return local;
    }
    case RULE_HISTORY:
        *unreported = used;
        return used;
    case RULE_BUCKET:
        *unreported = (bucket_total(query->state) - sync_state_merged(process, query->cell).acked) & BUCKET_TOTAL_MASK;
        return used;
    }
    *unreported = used;
    return used;
}

/*
 * Of an answered key without a full state. Both what is known here of the other nodes and what they know of this node
 * may be old. So the key may use an equal share of what is not known to be used elsewhere. A burst requests a sync at
 * once; slower use is found by the background thread's check for due reports.
 */
static uint64_t compact_left(struct process *process, const struct allowance_query *query, uint64_t fraction)
{
    uint64_t unreported;
    const uint64_t headroom = query->headroom;
    const uint64_t local = compact_units(process, query, &unreported);
    const uint64_t nodes = load_relaxed(&process->shared->nodes);
    const uint64_t share = fraction != 0 ? query->rule->limit : max_u64(saturating_add(headroom, local) / nodes, 1);
    const uint64_t left = min_u64(headroom, saturating_sub(share, local));
    const bool burst = unreported >= max_u64(share / COMPACT_URGENT_DIVISOR, URGENT_UNITS);
    if (headroom >= query->asked && (left < query->asked || burst)) {
        request_sync(process, query->cell);
    }
    return left;
}

void allowance_refund(const struct process *process, uint32_t cell, const struct rule *rule, uint64_t units)
{
    struct sync_full *sync = sync_of(&process->syncs, cell);
    uint64_t level = sync != NULL ? load_relaxed(&sync->allowance.level) : 0;
    while (level != 0) {
        const uint64_t lower = max_u64(saturating_sub(level, saturating_mul(units, rule->unit)), 1);
        if (cas_relaxed(&sync->allowance.level, &level, lower)) {
            break; /* an answer merged meanwhile includes the refund, or the next answer will */
        }
    }
}

/* Units of a bucket that all nodes together may let pass by the level; `used` units passed or are held here since. */
static uint64_t level_room(const struct allowance *allowance, const struct allowance_query *query, uint64_t used)
{
    const struct rule *rule = query->rule;
    const uint64_t level = load_relaxed(&allowance->level);
    if (level == 0 || rule->unit == 0) {
        return query->headroom;
    }
    const uint64_t latest = saturating_add(bucket_time(rule, query->now_ns), rule->tolerance);
    return saturating_sub(saturating_sub(latest, level) / rule->unit, used);
}

/* In an outage: this node's fraction of what was left at the last answer, and of what was refilled since. */
static uint64_t outage_left(const struct process *process, const struct sync_full *sync,
                            const struct allowance_query *query)
{
    if (rule_is_bucket(query->rule)) {
        return query->headroom; /* its rule is this node's fraction already */
    }
    uint64_t since_ns = 0;
    const uint64_t unseen = unseen_local(sync, query, &since_ns);
    const uint32_t fraction = fraction_demand(process, &sync->allowance);
    const struct estimate estimate = {.remote_rate = RATE_MOST,
                                      .remote_fraction = fraction != 0 ? (uint32_t) (FRACTION_WHOLE - fraction) : 0,
                                      .dither = load_relaxed(&sync->allowance.dither)};
    const uint64_t headroom = saturating_sub(query->headroom, unseen_before(process, &sync->allowance, query, true) +
                                                                  unseen_presumed(&sync->allowance, query));
    return fraction == 0 ? headroom : estimate_left(&estimate, headroom, unseen, query->now_ns);
}

/*
 * Of a bucket's `unseen` local units those that count against this node's share; `owed`: those that have not refilled.
 * All nodes share what refills while an answer is awaited, so of that this node has one unit in `nodes` again. A bucket
 * that is full has refilled what is missing of the share as well, for as long as it has been full.
 */
static uint64_t share_owed(const struct process *process, const struct allowance_query *query, uint64_t owed,
                           uint64_t unseen)
{
    const struct rule *rule = query->rule;
    const uint64_t nodes = load_relaxed(&process->shared->nodes);
    if (rule->unit == 0) {
        return owed;
    }
    /* Units that refilled earlier passed before the wait. */
    const uint64_t awaited_ns = STALE_INTERVALS * process->interval_ns;
    const uint64_t refilled = min_u64(unseen - owed, (awaited_ns << BUCKET_FRACTION_BITS) / rule->unit);
    const uint64_t counted = owed + refilled - refilled / nodes;
    if (owed != 0) {
        return counted;
    }
    const uint64_t full_for = saturating_sub(bucket_time(rule, query->now_ns), bucket_tat(query->state));
    return saturating_sub(min_u64(counted, rule->limit / nodes), full_for / rule->unit / nodes);
}

/* Of a key whose answer is stale, or whose peers are awaited: this node's share of `room`. */
static uint64_t awaiting_left(struct process *process, const struct sync_full *sync,
                              const struct allowance_query *query, uint64_t room, uint64_t unseen, bool due)
{
    const struct rule *rule = query->rule;
    const bool awaits = (load_relaxed(&sync->allowance.flags) & ALLOWANCE_AWAITS_PEERS) != 0;
    const uint64_t nodes = load_relaxed(&process->shared->nodes);
    const uint32_t fraction = load_relaxed(&sync->allowance.fraction);
    uint64_t counted = unseen;
    uint64_t whole = saturating_add(room, unseen);
    if (rule_is_bucket(rule)) {
        /* Units whose time has refilled since do not count. By a fraction of the rule each unit owes more time. */
        const uint64_t owed = saturating_sub(rule->limit, room);
        counted = min_u64(unseen, fraction != 0 ? muldiv_ceil(owed, FRACTION_WHOLE, fraction) : owed);
        whole = saturating_add(room, counted);
        counted = fraction != 0 ? counted : share_owed(process, query, counted, unseen);
    }
    uint64_t share = max_u64(whole / nodes, 1);
    if (fraction != 0) {
        share = rule->limit;
    } else if (rule_is_queue(rule) && !awaits) {
        share = counted + max_u64(room / nodes, 1); /* its level includes what passed elsewhere (allowance_level) */
    }
    return left_of_share(process, query, share, counted, room, due && room >= query->asked);
}

/*
 * Of a node that has just joined: the units that the other nodes use before they hear of this node. They hear within an
 * interval, half of an interval from now on average. Until then they take all room for theirs.
 */
static uint64_t use_of_unaware(const struct process *process, const struct allowance_query *query,
                               const struct estimate *estimate)
{
    const struct rule *rule = query->rule;
    uint64_t into_ns;
    (void) window_roll(rule, query->state, query->now_ns, &into_ns);
    const uint64_t end_ns = query->now_ns - into_ns + rule->period_ns;
    const uint64_t until_ns = min_u64(query->now_ns + process->interval_ns / 2, end_ns);
    const uint64_t span_ns = saturating_sub(until_ns, estimate->since_ns);
    return muldiv_floor(estimate->remote_rate, span_ns, NS_PER_S) >> RATE_BITS;
}

/* Of an answered key with a full state, while answers come. */
static uint64_t answered_left(struct process *process, const struct sync_full *sync,
                              const struct allowance_query *query)
{
    const struct allowance *allowance = &sync->allowance;
    const struct rule *rule = query->rule;
    const bool token = rule_is_bucket(rule) && !rule_is_queue(rule);
    struct estimate estimate = allowance_estimate(allowance);
    const uint64_t answered_ns = estimate.since_ns;
    const uint64_t unseen = unseen_local(sync, query, &estimate.since_ns);
    uint64_t headroom = query->headroom;
    uint64_t room = headroom;
    if (token) {
        room = level_room(allowance, query, unseen + query->held);
    } else if (!rule_is_bucket(rule)) {
        headroom = room = saturating_sub(headroom, unseen_before(process, allowance, query, false) +
                                                       unseen_presumed(allowance, query));
    }
    if ((load_relaxed(&allowance->flags) & ALLOWANCE_NODE_IS_NEW) != 0 && rule_kind(rule) == RULE_WINDOW &&
        !rule_slides(rule)) {
        headroom = room = saturating_sub(headroom, use_of_unaware(process, query, &estimate));
    }
    const bool stale = is_stale(process, allowance, query->now_ns);
    const bool awaits = (load_relaxed(&allowance->flags) & ALLOWANCE_AWAITS_PEERS) != 0;
    if (!stale && unseen >= load_relaxed(&allowance->urgent_threshold)) {
        request_sync(process, query->cell);
    }
    /* Peers' first reports are due a quarter of an interval after the answer came, which was half an interval old. */
    const bool due = stale || query->now_ns > answered_ns + process->interval_ns / 2 + process->interval_ns / 4;
    if (stale || (awaits && !token)) {
        return awaiting_left(process, sync, query, min_u64(headroom, room), unseen, due);
    }
    /* A queue's level includes the remote units already. */
    const uint64_t estimated = rule_is_queue(rule) ? headroom : estimate_left(&estimate, room, unseen, query->now_ns);
    const uint64_t left = min_u64(headroom, estimated);
    if (token && due && left < query->asked && headroom >= query->asked && load_relaxed(&allowance->flags) != 0) {
        request_sync(process, query->cell);
    }
    return left;
}

/* allowance_left(), by the fraction in force. */
static uint64_t left_by(struct process *process, const struct allowance_query *query, uint64_t fraction)
{
    const struct sync_full *sync = sync_of(&process->syncs, query->cell);
    const bool on_fleet = query->outage_mode == OUTAGE_MODE_NONE;
    if ((!on_fleet && query->outage_mode != OUTAGE_MODE_SHARE) ||
        (load_relaxed(&process->shared->nodes) == 1 && fraction == 0)) {
        return query->headroom; /* no remote units are known, or no other node is there */
    }
    if (sync == NULL && compact_is(&process->syncs.compacts[query->cell], COMPACT_ACKED)) {
        return compact_left(process, query, fraction);
    }
    if (sync == NULL || load_relaxed(&sync->allowance.since_ns) == 0) {
        const uint64_t used = saturating_sub(query->rule->limit, query->headroom);
        return left_of_share(process, query, query->rule->limit, used, query->headroom, on_fleet);
    }
    return on_fleet ? answered_left(process, sync, query) : outage_left(process, sync, query);
}

uint64_t allowance_left(struct process *process, const struct allowance_query *query)
{
    return left_by(process, query, fraction_in_force(process, query->outage_mode, query->rule, query->cell));
}

bool allowance_left_whole(struct process *process, const struct allowance_query *query, uint64_t *left)
{
    if (fraction_in_force(process, query->outage_mode, query->rule, query->cell) != 0) {
        return false;
    }
    *left = left_by(process, query, 0);
    return true;
}

uint64_t allowance_retry_after(const struct process *process, const struct policy *policy, uint32_t cell,
                               uint64_t now_ns)
{
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    if (allowance_outage_mode(policy) != OUTAGE_MODE_NONE) {
        return 0;
    }
    const uint64_t since_ns = sync != NULL ? load_relaxed(&sync->allowance.since_ns) : 0;
    if (since_ns == 0) {
        return FIRST_ANSWER_NS;
    }
    if (load_relaxed(&sync->allowance.remote_rate) == 0 && load_relaxed(&sync->allowance.level) == 0) {
        return 0;
    }
    /* An answer comes half an interval after the counts that it tells. */
    const uint64_t next_ns = since_ns + process->interval_ns + process->interval_ns / 2;
    return max_u64(saturating_sub(next_ns, now_ns), RETRY_MIN_NS);
}
