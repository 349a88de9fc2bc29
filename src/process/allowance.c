/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may pass at a key that other nodes use as well, between two answers of the fleet.
 *
 *   told of the key   A part of the key's headroom is left to the others: the mirror estimate (algorithm/estimate.c).
 * In an outage the estimate goes on without news: the node has its part of the demand last seen, of what was left when
 * the fleet was last heard, and of each window or refill after that. not told of it    An even part of the limit. So a
 * burst that reaches all nodes before any has heard of the others stays within the limit.
 *
 * The shares of all nodes add up to the limit in both cases, and there is no step between them: what is left to the
 * others at the last answer stays left to them.
 *
 * Buckets. What others have not told of yet is a flow, and the bucket refills while they use it. So the note holds the
 * level: what the bucket's a was at the last answer, with the others' unseen units of then. From there on it moves by
 * every unit that passes here and those that are taken to pass elsewhere beside it, and time is not cut off at now:
 *
 *     level + unit * (own + others since then)  <=  now + tolerance
 *
 * The state's own a, which counts what is known and begins anew whenever the bucket is full, bounds bursts beside it.
 * Where one refill would cut the other off, traffic below the limit would be denied: unseen units of a bucket that
 * was full all the time owe nothing.
 *
 * Where more passes than the last answer gave reason to expect, the fleet is asked at once: tier->urgent.
 *
 * The words read here are relaxed and may be of two answers, or (seldom, when a cell changes hands) of another key's:
 * they size an estimate. What is counted is counted by the state alone.
 */
#include "process/allowance.h"

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "process/process.h"

/* Part of a quota that a node may let pass, of its even share, before it knows what was used before it began. */
#define QUOTA_SHARE 64

/* How long a denial lasts that the fleet's next answer may end, at least. */
#define RETRY_MIN_NS NS_PER_MS

/* A first answer is asked for at once; by then it is there, or the outage ladder decides. */
#define FIRST_ANSWER_NS (100 * NS_PER_MS)

/* Of an even part of a key without a note: above what is due in any case (report.c). */
#define COMPACT_URGENT_DIVISOR 4

static enum outage_mode outage_mode_of(const struct policy *policy)
{
    return (enum outage_mode) load_relaxed(&policy->outage_mode);
}

static uint32_t equal_share(const struct process *process)
{
    /* Relaxed: one of two right answers while nodes come and go. */
    const uint64_t nodes = load_relaxed(&process->nodes);
    /* Up: an even part of a limit that divides by them is whole units. */
    return nodes == 1 ? 0 : (uint32_t) ((FRACTION_WHOLE + nodes - 1) / nodes);
}

uint32_t allowance_compact_fraction(const struct process *process, const struct rule *rule, bool counts)
{
    return counts && !rule_is_queue(rule) ? 0 : equal_share(process);
}

uint32_t allowance_demand_fraction(const struct process *process, const struct allowance *allowance)
{
    const uint32_t remote_fraction = load_relaxed(&allowance->remote_fraction);
    if (load_relaxed(&allowance->flags) != 0) {
        return equal_share(process);
    }
    return remote_fraction == 0 ? 0 : (uint32_t) (FRACTION_WHOLE - remote_fraction);
}

/* The part of a key's rule that is in force here; 0: all. */
static uint64_t fraction_of(const struct process *process, const struct policy *policy, const struct rule *rule,
                            uint32_t cell)
{
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    const enum outage_mode outage_mode = outage_mode_of(policy);
    const bool on_fleet = outage_mode == OUTAGE_MODE_NONE;
    const bool counts = sync != NULL ? load_relaxed(&sync->allowance.since_ns) != 0
                                     : compact_is(&process->syncs.compacts[cell], COMPACT_ACKED);
    if (!on_fleet && outage_mode != OUTAGE_MODE_SHARE) {
        return 0;
    }
    if (counts && sync != NULL) {
        return on_fleet               ? load_relaxed(&sync->allowance.fraction)
               : rule_is_bucket(rule) ? allowance_demand_fraction(process, &sync->allowance)
                                      : 0;
    }
    const uint32_t fraction =
        sync != NULL && on_fleet
            ? load_relaxed(&sync->allowance.fraction)
            : allowance_compact_fraction(process, rule, counts && (on_fleet || !rule_is_bucket(rule)));
    const bool unreported = !counts && rule->calendar != WEIR_CALENDAR_NONE;
    /* In an outage a quota is what is known to be left; a node that has heard of nobody yet knows nothing of it. */
    const bool guesses = on_fleet || load_relaxed(&process->news_ns) == 0;
    return unreported && guesses ? max_u64((fraction != 0 ? fraction : FRACTION_WHOLE) / QUOTA_SHARE, 1) : fraction;
}

bool allowance_is_whole(const struct process *process, const struct policy *policy, const struct rule *rule,
                        uint32_t cell)
{
    return outage_mode_of(policy) == OUTAGE_MODE_NONE && fraction_of(process, policy, rule, cell) == 0;
}

struct rule allowance_fraction_rule(const struct rule *whole, uint64_t fraction, uint64_t asked)
{
    struct rule rule = *whole;
    if (fraction == 0) {
        return rule;
    }
    rule.limit = max_u64(muldiv_floor(rule.limit, fraction, FRACTION_WHOLE), 1);
    if (rule_is_bucket(&rule)) {
        /* A request that is larger than this part of the burst passes when the part is full: it pays by its time. */
        rule.limit = max_u64(rule.limit, min_u64(asked, whole->limit));
        /* Each unit takes the time of all that pass in the fleet beside it; but one passes in each period. */
        const uint64_t most = max_u64(saturating_mul(rule.period_ns, UINT64_C(1) << BUCKET_FRACTION_BITS), rule.unit);
        rule.unit = min_u64(muldiv_floor(rule.unit, FRACTION_WHOLE, fraction), most);
        /* The part of the burst as it is, with what it has of a unit. */
        rule.tolerance = max_u64(saturating_mul(rule.limit, rule.unit), max_u64(whole->tolerance, 1));
    }
    return rule;
}

struct rule allowance_rule(const struct process *process, const struct policy *policy, size_t limit, uint32_t cell,
                           uint64_t asked)
{
    const struct rule rule = policy_rule(&policy->limits[limit]);
    return allowance_fraction_rule(
        &rule, process_shares(process, policy) ? fraction_of(process, policy, &rule, cell) : 0, asked);
}

static void ask_at_once(struct process *process, uint32_t cell)
{
    bitmap_set(&process->table.urgent, cell);
    store_relaxed(&process->urgent, 1); /* seen in the next tick, and the bit with it or with the one after */
}

static struct estimate estimate_of(const struct allowance *allowance)
{
    return (struct estimate){.remote_rate = load_relaxed(&allowance->remote_rate),
                             .remote_fraction = load_relaxed(&allowance->remote_fraction),
                             .since_ns = load_relaxed(&allowance->since_ns),
                             .dither = load_relaxed(&allowance->dither)};
}

/* Own units of a bucket since the last answer. */
static uint64_t units_since(const struct allowance *allowance, struct state state)
{
    const uint64_t units = (bucket_total(state) - load_relaxed(&allowance->seen)) & BUCKET_TOTAL_MASK;
    return units <= BUCKET_TOTAL_MASK / 2 ? units : 0;
}

/* A window's state without the others' units. */
static struct state own_state(const struct process *process, uint32_t cell, struct state state)
{
    const struct merged_counts merged = sync_merged(process, cell);
    if (merged.seq == SEQ_NONE) {
        return state;
    }
    state = window_discharge_seq(state, merged.seq & WINDOW_SEQ_MASK, merged.now);
    return window_discharge_seq(state, (merged.seq - 1) & WINDOW_SEQ_MASK, merged.before);
}

/* Whether a key was left alone for a while, so that what is known of the others is old. */
static bool is_stale(const struct process *process, const struct allowance *allowance, uint64_t now_ns)
{
    const uint64_t news_ns = max_u64(load_relaxed(&allowance->since_ns), load_relaxed(&allowance->inspected_ns));
    /* In an outage nobody looks: it is not the key that is old. */
    const uint64_t then_ns = min_u64(now_ns, load_relaxed(&process->news_ns) + process->interval_ns);
    return then_ns > news_ns + STALE_INTERVALS * process->interval_ns;
}

struct state allowance_level(const struct process *process, const struct policy *policy, const struct rule *rule,
                             uint32_t cell, struct state state, uint64_t now_ns)
{
    const enum outage_mode outage_mode = outage_mode_of(policy);
    if (outage_mode == OUTAGE_MODE_LOCAL && !rule_is_bucket(rule) && !rule_has_history(rule)) {
        return own_state(process, cell, state);
    }
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    if (!rule_is_bucket(rule) || sync == NULL || load_relaxed(&sync->allowance.level) == 0) {
        return state;
    }
    const bool known = load_relaxed(&sync->allowance.flags) == 0 && load_relaxed(&sync->allowance.fraction) == 0;
    const bool queued = outage_mode == OUTAGE_MODE_NONE && rule_is_queue(rule) && known;
    if (outage_mode != OUTAGE_MODE_SHARE && !queued) {
        return state;
    }
    const uint64_t own = units_since(&sync->allowance, state);
    uint64_t time = saturating_mul(own, rule->unit); /* in an outage a unit takes the time of those beside it */
    if (outage_mode == OUTAGE_MODE_NONE) {
        struct estimate estimate = estimate_of(&sync->allowance);
        if (is_stale(process, &sync->allowance, now_ns)) {
            const uint32_t even = equal_share(process);
            estimate.remote_rate = even != 0 ? RATE_MOST : 0;
            estimate.remote_fraction = even != 0 ? (uint32_t) (FRACTION_WHOLE - even) : 0;
        }
        const uint64_t remote = estimate_remote(&estimate, own, now_ns);
        time = saturating_add(time, muldiv_ceil(remote, rule->unit, UINT64_C(1) << RATE_BITS));
    }
    state.a = max_u64(state.a, saturating_add(load_relaxed(&sync->allowance.level), time));
    return state;
}

/* Units that passed since the others' news; *since_ns: when that was, within this window. */
static uint64_t unseen_units(const struct sync_full *sync, const struct rule *rule, struct state state, uint64_t now_ns,
                             uint64_t *since_ns)
{
    const uint64_t seen = load_relaxed(&sync->allowance.seen);
    if (rule_has_history(rule)) {
        /* A log that was given back when it was empty begins to count anew. */
        const uint64_t end = load_relaxed(&sync->history_end);
        return min_u64(end >= seen ? end - seen : end, history_state_count(state));
    }
    if (rule_is_bucket(rule)) {
        return units_since(&sync->allowance, state);
    }
    uint64_t into_ns;
    state = window_roll(rule, state, now_ns, &into_ns);
    *since_ns = max_u64(*since_ns, now_ns - into_ns);
    return saturating_sub(window_count(state), load_relaxed(&sync->allowance.seq) == window_seq(state) ? seen : 0);
}

/* What may pass of `share` before the next answer, which is asked for where that matters, and `due`. */
static uint64_t left_of(struct process *process, uint32_t cell, uint64_t share, uint64_t unseen, uint64_t headroom,
                        uint64_t asked, bool due)
{
    const uint64_t left = min_u64(headroom, saturating_sub(share, unseen));
    if (due && (unseen >= allowance_urgent_units(share) || left < asked)) {
        ask_at_once(process, cell);
    }
    return left;
}

/* Own units of a key without a note: all that may count, and those of them that the fleet has not had. */
static uint64_t compact_units(const struct process *process, uint32_t cell, const struct rule *rule, struct state state,
                              uint64_t headroom, uint64_t now_ns, uint64_t *unreported)
{
    const uint64_t used = saturating_sub(rule->limit, headroom);
    if (rule_has_history(rule)) {
        *unreported = used;
        return used;
    }
    const struct merged_counts merged = sync_merged(process, cell);
    if (rule_is_bucket(rule)) {
        *unreported = (bucket_total(state) - merged.acked) & BUCKET_TOTAL_MASK;
        return used;
    }
    uint64_t into_ns;
    state = window_roll(rule, state, now_ns, &into_ns);
    const bool its = merged.seq == window_seq(state);
    const uint64_t own = saturating_sub(window_count(state), its ? merged.now : 0);
    *unreported = saturating_sub(own, its ? merged.acked : 0);
    return own;
}

/*
 * A key without a note that the fleet has told of: what is known of the others may be old, and what they know of this
 * node, too. So it goes by an even part, as a new key does, but one of what the others are not known to have used. It
 * is asked for at once when it is used all of a sudden; else the background thread has found before that it is due.
 */
static uint64_t compact_left(struct process *process, const struct rule *rule, uint32_t cell, struct state state,
                             uint64_t headroom, uint64_t asked, uint64_t fraction, uint64_t now_ns)
{
    uint64_t unreported;
    const uint64_t own = compact_units(process, cell, rule, state, headroom, now_ns, &unreported);
    const uint64_t nodes = load_relaxed(&process->nodes);
    const uint64_t share = fraction != 0 ? rule->limit : max_u64(saturating_add(headroom, own) / nodes, 1);
    const uint64_t left = min_u64(headroom, saturating_sub(share, own));
    if (headroom >= asked && (left < asked || unreported >= max_u64(share / COMPACT_URGENT_DIVISOR, URGENT_UNITS))) {
        ask_at_once(process, cell);
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
            break; /* or an answer comes between, and has it already, or the next one will */
        }
    }
}

/* Units of a bucket that all nodes together may let pass, of what its level had room for; `used` here since then. */
static uint64_t level_room(const struct allowance *allowance, const struct rule *rule, uint64_t used, uint64_t headroom,
                           uint64_t now_ns)
{
    const uint64_t level = load_relaxed(&allowance->level);
    if (level == 0 || rule->unit == 0) {
        return headroom;
    }
    const uint64_t latest = saturating_add(bucket_time(rule, now_ns), rule->tolerance);
    return saturating_sub(saturating_sub(latest, level) / rule->unit, used);
}

/*
 * Of the window before units of others that nobody has told of, as far as they count now: the window was over before
 * the next answer. In an outage (`alone`) they used beside each unit here what their part of the demand is.
 *
 * Where rounds go on without news (they fail, or nobody goes by their answers yet) the note follows the state into the
 * next window, and `seen` is of that one. Then it is by all own units of the window before, less what was told of it.
 */
static uint64_t unseen_before(const struct process *process, uint32_t cell, const struct allowance *allowance,
                              const struct rule *rule, struct state state, uint64_t now_ns, bool alone)
{
    uint64_t into_ns;
    state = window_roll(rule, state, now_ns, &into_ns);
    const uint32_t ago = (window_seq(state) - load_relaxed(&allowance->seq)) & WINDOW_SEQ_MASK;
    if (rule->algorithm != WEIR_SLIDING_WINDOW || window_previous(state) == 0) {
        return 0;
    }
    struct estimate estimate = estimate_of(allowance);
    const uint64_t end_ns = now_ns - into_ns;
    const uint64_t start_ns = saturating_sub(end_ns, rule->period_ns);
    uint64_t known = ago == 1 ? load_relaxed(&allowance->seen) : 0;
    uint64_t counts = 0;
    if (ago == 0) {
        if (estimate.since_ns + process->interval_ns >= end_ns) {
            return 0; /* news of this window, or as good */
        }
        const struct merged_counts merged = sync_merged(process, cell);
        known = counts = merged.seq == window_seq(state) ? merged.before : 0;
    }
    estimate.since_ns = ago <= 1 ? max_u64(estimate.since_ns, start_ns) : start_ns;
    estimate.remote_rate = alone ? RATE_MOST : estimate.remote_rate;
    const uint64_t own = saturating_sub(window_previous(state), known);
    const uint64_t remote = estimate_remote(&estimate, own, end_ns) >> RATE_BITS;
    return muldiv_ceil(saturating_sub(remote, counts), rule->period_ns - into_ns, rule->period_ns);
}

/* Units of nodes that have not spoken lately, as far as they count now. */
static uint64_t presumed_units(const struct allowance *allowance, const struct rule *rule, struct state state,
                               uint64_t now_ns)
{
    const uint64_t presumed = load_relaxed(&allowance->level);
    if (presumed == 0) {
        return 0;
    }
    if (rule_has_history(rule)) {
        /* They leave the window one by one. */
        const uint64_t age_ns = saturating_sub(now_ns, load_relaxed(&allowance->since_ns));
        return muldiv_ceil(presumed, saturating_sub(rule->period_ns, age_ns), rule->period_ns);
    }
    uint64_t into_ns;
    state = window_roll(rule, state, now_ns, &into_ns);
    const uint32_t ago = (window_seq(state) - load_relaxed(&allowance->seq)) & WINDOW_SEQ_MASK;
    if (rule->algorithm != WEIR_SLIDING_WINDOW) {
        return ago == 0 ? presumed : 0;
    }
    const uint64_t now = presumed_now(rule->limit, presumed);
    const uint64_t before = ago == 0 ? presumed_before(rule->limit, presumed) : ago == 1 ? now : 0;
    return (ago == 0 ? now : 0) + muldiv_ceil(before, rule->period_ns - into_ns, rule->period_ns);
}

/* In an outage: this node's part of what was left at the last answer, and of what has been refilled since. */
static uint64_t share_left(const struct process *process, const struct sync_full *sync, const struct rule *rule,
                           uint32_t cell, struct state state, uint64_t headroom, uint64_t now_ns)
{
    if (rule_is_bucket(rule)) {
        return headroom; /* its rule is this node's part */
    }
    uint64_t since_ns = 0;
    const uint64_t unseen = unseen_units(sync, rule, state, now_ns, &since_ns);
    const uint32_t fraction = allowance_demand_fraction(process, &sync->allowance);
    const struct estimate estimate = {.remote_rate = RATE_MOST,
                                      .remote_fraction = fraction != 0 ? (uint32_t) (FRACTION_WHOLE - fraction) : 0,
                                      .dither = load_relaxed(&sync->allowance.dither)};
    headroom = saturating_sub(headroom, unseen_before(process, cell, &sync->allowance, rule, state, now_ns, true) +
                                            presumed_units(&sync->allowance, rule, state, now_ns));
    return fraction == 0 ? headroom : estimate_left(&estimate, headroom, unseen, now_ns);
}

/* What may pass of a key that the fleet has told of, with its note. */
static uint64_t counts_left(struct process *process, const struct sync_full *sync, const struct rule *rule,
                            uint32_t cell, struct state state, uint64_t headroom, uint64_t held, uint64_t asked,
                            uint64_t now_ns)
{
    const struct allowance *allowance = &sync->allowance;
    struct estimate estimate = estimate_of(allowance);
    const uint64_t answered_ns = estimate.since_ns;
    const uint64_t unseen = unseen_units(sync, rule, state, now_ns, &estimate.since_ns);
    uint64_t room = headroom;
    if (rule_is_bucket(rule)) {
        room = rule_is_queue(rule) ? headroom : level_room(allowance, rule, unseen + held, headroom, now_ns);
    } else {
        headroom = room = saturating_sub(headroom, unseen_before(process, cell, allowance, rule, state, now_ns, false) +
                                                       presumed_units(allowance, rule, state, now_ns));
    }
    const bool stale = is_stale(process, allowance, now_ns);
    const bool waits = (load_relaxed(&allowance->flags) & ALLOWANCE_AWAITS_PEERS) != 0;
    if (!stale && unseen >= load_relaxed(&allowance->urgent_threshold)) {
        ask_at_once(process, cell);
    }
    const uint64_t estimated = rule_is_queue(rule) ? headroom : estimate_left(&estimate, room, unseen, now_ns);
    /* An answer that waits for the others' is due again a quarter of an interval after it came: its news was half an
     * interval old. What a queue may have is a part already. */
    const bool due = stale || now_ns > answered_ns + process->interval_ns / 2 + process->interval_ns / 4;
    const bool token = rule_is_bucket(rule) && !rule_is_queue(rule);
    if (!stale && (!waits || token)) {
        const uint64_t left = min_u64(headroom, estimated);
        if (token && due && left < asked && headroom >= asked && load_relaxed(&allowance->flags) != 0) {
            ask_at_once(process, cell);
        }
        return left;
    }
    const uint64_t whole = min_u64(headroom, room);
    const uint64_t nodes = load_relaxed(&process->nodes);
    const uint32_t fraction = load_relaxed(&allowance->fraction);
    uint64_t counts = unseen;
    if (rule_is_bucket(rule)) {
        /* What has refilled since is over. Of a part of the limit each unit is owed as more than one. */
        const uint64_t owed = saturating_sub(rule->limit, whole);
        counts = min_u64(unseen, fraction != 0 ? muldiv_ceil(owed, FRACTION_WHOLE, fraction) : owed);
    }
    uint64_t share = max_u64(saturating_add(whole, counts) / nodes, 1);
    if (fraction != 0) {
        share = rule->limit;
    } else if (rule_is_queue(rule) && !waits) {
        share =
            counts + max_u64(whole / nodes, 1); /* its level holds what passed beside the unseen (allowance_level) */
    }
    return left_of(process, cell, share, counts, whole, asked, due && whole >= asked);
}

uint64_t allowance_left(struct process *process, const struct policy *policy, const struct rule *rule, uint32_t cell,
                        struct state state, uint64_t headroom, uint64_t held, uint64_t asked, uint64_t now_ns)
{
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    const enum outage_mode outage_mode = outage_mode_of(policy);
    const uint64_t fraction = fraction_of(process, policy, rule, cell);
    const bool on_fleet = outage_mode == OUTAGE_MODE_NONE;
    if ((!on_fleet && outage_mode != OUTAGE_MODE_SHARE) || (load_relaxed(&process->nodes) == 1 && fraction == 0)) {
        return headroom; /* nobody can tell, or nobody else is there */
    }
    if (sync == NULL && compact_is(&process->syncs.compacts[cell], COMPACT_ACKED)) {
        return compact_left(process, rule, cell, state, headroom, asked, fraction, now_ns);
    }
    if (sync == NULL || load_relaxed(&sync->allowance.since_ns) == 0) {
        return left_of(process, cell, rule->limit, saturating_sub(rule->limit, headroom), headroom, asked, on_fleet);
    }
    return on_fleet ? counts_left(process, sync, rule, cell, state, headroom, held, asked, now_ns)
                    : share_left(process, sync, rule, cell, state, headroom, now_ns);
}

uint64_t allowance_retry_after(const struct process *process, const struct policy *policy, uint32_t cell,
                               uint64_t now_ns)
{
    const struct sync_full *sync = sync_of(&process->syncs, cell);
    if (outage_mode_of(policy) != OUTAGE_MODE_NONE) {
        return 0;
    }
    const uint64_t since_ns = sync != NULL ? load_relaxed(&sync->allowance.since_ns) : 0;
    if (since_ns == 0) {
        return FIRST_ANSWER_NS;
    }
    if (load_relaxed(&sync->allowance.remote_rate) == 0) {
        return 0;
    }
    /* The answer is half an interval younger than what it tells of. */
    const uint64_t next_ns = since_ns + process->interval_ns + process->interval_ns / 2;
    return max_u64(saturating_sub(next_ns, now_ns), RETRY_MIN_NS);
}
