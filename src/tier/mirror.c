/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What may pass at a key that other nodes use as well, between two answers of the fleet.
 *
 * A key that the fleet has told of is decided by the mirror estimate (fleet/estimate.c): a part of its headroom is left
 * to the others. One that the fleet has not told of yet (it is new here, or there is an outage) is decided by a part of
 * its limit: this node's part of the demand last seen, or an even one. So a burst that hits all nodes before any has
 * heard of the others stays within the limit, and so do the nodes of a fleet without its Redis.
 *
 * Where more passes than the last answer gave reason to expect, the fleet is asked at once: tier->urgent.
 *
 * The words read here are relaxed and may be of two answers, or (seldom, when a cell changes hands) of another key's:
 * they size an estimate. What is counted is counted by the state alone.
 */
#include "algorithm/bucket.h"
#include "algorithm/log.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "tier/tier.h"

/* Part of a quota that a node may let pass, of its even share, before it knows what was used before it began. */
#define QUOTA_SHARE 64

/* How long a denial lasts that the fleet's next answer may end, at least. */
#define RETRY_MIN_NS NS_PER_MS

/* A first answer is asked for at once; by then it is there, or the outage ladder decides. */
#define FIRST_ANSWER_NS (100 * NS_PER_MS)

/* Of an even part of a key without a note: above what is due in any case (report.c). */
#define STUB_URGENT_DIVISOR 4

static bool by_part(const struct policy *policy)
{
    const uint8_t rung = load_relaxed(&policy->rung);
    return rung == RUNG_FLEET || rung == RUNG_SHARE;
}

uint32_t mirror_stub_part(const struct tier *tier, const struct rule *rule, bool told)
{
    /* Relaxed: one of two right answers while nodes come and go. */
    const uint64_t nodes = max_u64(load_relaxed(&tier->live_nodes), 1);
    /* Up: an even part of a limit that divides by them is whole units. */
    return nodes == 1 || (told && !rule_is_queue(rule)) ? 0 : (uint32_t) ((PART_WHOLE + nodes - 1) / nodes);
}

/* The part of a key's limit that may pass here; 0: all. What it may have used of a quota before is another matter. */
static uint64_t part_of(const struct tier *tier, const struct policy *policy, const struct rule *rule, uint32_t cell)
{
    const struct note *note = note_of(&tier->notes, cell);
    /* In an outage what the fleet has told is over, though the sweep may not have come to the key. */
    const bool on_fleet = load_relaxed(&policy->rung) == RUNG_FLEET;
    const bool told =
        note != NULL ? load_relaxed(&note->mirror.since_ns) != 0 : stub_is(&tier->notes.stubs[cell], STUB_TOLD);
    const bool its_own = note != NULL && (on_fleet || !told);
    const uint64_t part = its_own ? load_relaxed(&note->mirror.part) : mirror_stub_part(tier, rule, told && on_fleet);
    const bool untold =
        note != NULL ? load_relaxed(&note->mirror.quota_untold) != 0 : !told && rule->calendar != WEIR_CALENDAR_NONE;
    if (!by_part(policy)) {
        return 0;
    }
    return !untold || !on_fleet ? part : max_u64((part != 0 ? part : PART_WHOLE) / QUOTA_SHARE, 1);
}

bool mirror_is_whole(const struct tier *tier, const struct policy *policy, const struct rule *rule, uint32_t cell)
{
    return load_relaxed(&policy->rung) == RUNG_FLEET && part_of(tier, policy, rule, cell) == 0;
}

struct rule mirror_part_rule(const struct rule *whole, uint64_t part)
{
    struct rule rule = *whole;
    if (part == 0) {
        return rule;
    }
    rule.limit = max_u64(muldiv_floor(rule.limit, part, PART_WHOLE), 1);
    if (rule_is_bucket(&rule)) {
        /* Each unit takes the time of all that pass in the fleet beside it; but one passes in each period. */
        const uint64_t most = max_u64(saturating_mul(rule.period_ns, UINT64_C(1) << BUCKET_FRACTION_BITS), rule.unit);
        rule.unit = min_u64(muldiv_floor(rule.unit, PART_WHOLE, part), most);
        rule.tolerance = saturating_mul(rule.limit, rule.unit);
    }
    return rule;
}

struct rule mirror_rule(const struct tier *tier, const struct policy *policy, size_t limit, uint32_t cell)
{
    const struct rule rule = policy_rule(&policy->limits[limit]);
    return mirror_part_rule(&rule, mirror_concerns(tier, policy) ? part_of(tier, policy, &rule, cell) : 0);
}

static void ask_at_once(struct tier *tier, uint32_t cell)
{
    bitmap_set(&tier->table.urgent, cell);
    store_relaxed(&tier->urgent, 1); /* seen in the next tick, and the bit with it or with the one after */
}

/* Units that passed since the others' news; *since_ns: when that was, within this window. */
static uint64_t unseen_units(const struct note *note, const struct rule *rule, struct state state, uint64_t headroom,
                             uint64_t now_ns, uint64_t *since_ns)
{
    const uint64_t seen = load_relaxed(&note->mirror.seen);
    if (rule_is_log(rule)) {
        /* A log that was given back when it was empty begins to count anew. */
        const uint64_t end = load_relaxed(&note->log_end);
        return min_u64(end >= seen ? end - seen : end, log_state_count(state));
    }
    if (rule_is_bucket(rule)) {
        const uint64_t unseen = (bucket_total(state) - seen) & BUCKET_TOTAL_MASK;
        /* What has refilled since is over. (A queue's headroom is by its part, and says nothing of that.) */
        const uint64_t most = rule_is_queue(rule) ? UINT64_MAX : saturating_sub(rule->limit, headroom);
        return unseen <= BUCKET_TOTAL_MASK / 2 ? min_u64(unseen, most) : 0;
    }
    uint64_t into_ns;
    state = window_roll(rule, state, now_ns, &into_ns);
    *since_ns = max_u64(*since_ns, now_ns - into_ns);
    return saturating_sub(window_count(state), load_relaxed(&note->mirror.tag) == window_tag(state) ? seen : 0);
}

/* What may pass of `share` before the next answer, which is asked for where that matters, and `due`. */
static uint64_t left_of(struct tier *tier, uint32_t cell, uint64_t share, uint64_t unseen, uint64_t headroom,
                        uint64_t asked, bool due)
{
    const uint64_t left = min_u64(headroom, saturating_sub(share, unseen));
    if (due && (unseen >= mirror_urgent_units(share) || left < asked)) {
        ask_at_once(tier, cell);
    }
    return left;
}

/* Own units of a key without a note: all that may count, and those of them that the fleet has not had. */
static uint64_t stub_units(const struct tier *tier, uint32_t cell, const struct rule *rule, struct state state,
                           uint64_t headroom, uint64_t now_ns, uint64_t *untold)
{
    const uint64_t used = saturating_sub(rule->limit, headroom);
    if (rule_is_log(rule)) {
        *untold = used;
        return used;
    }
    const struct folded folded = note_folded(tier, cell);
    if (rule_is_bucket(rule)) {
        *untold = (bucket_total(state) - folded.reported) & BUCKET_TOTAL_MASK;
        return used;
    }
    uint64_t into_ns;
    state = window_roll(rule, state, now_ns, &into_ns);
    const bool its = folded.tag == window_tag(state);
    const uint64_t own = saturating_sub(window_count(state), its ? folded.now : 0);
    *untold = saturating_sub(own, its ? folded.reported : 0);
    return own;
}

/*
 * A key without a note that the fleet has told of: what is known of the others may be old, and what they know of this
 * node, too. So it goes by an even part, as a new key does, but one of what the others are not known to have used. It
 * is asked for at once when it is used all of a sudden; else the background thread has found before that it is due.
 */
static uint64_t stub_left(struct tier *tier, const struct rule *rule, uint32_t cell, struct state state,
                          uint64_t headroom, uint64_t asked, uint64_t part, uint64_t now_ns)
{
    const uint64_t nodes = max_u64(load_relaxed(&tier->live_nodes), 1);
    uint64_t untold;
    const uint64_t own = stub_units(tier, cell, rule, state, headroom, now_ns, &untold);
    const uint64_t share = part != 0 ? rule->limit : max_u64(saturating_add(headroom, own) / nodes, 1);
    const uint64_t left = min_u64(headroom, saturating_sub(share, own));
    if (headroom >= asked && (left < asked || untold >= max_u64(share / STUB_URGENT_DIVISOR, URGENT_UNITS))) {
        ask_at_once(tier, cell);
    }
    return left;
}

uint64_t mirror_left(struct tier *tier, const struct policy *policy, const struct rule *rule, uint32_t cell,
                     struct state state, uint64_t headroom, uint64_t asked, uint64_t now_ns)
{
    const struct note *note = note_of(&tier->notes, cell);
    const uint64_t nodes = max_u64(load_relaxed(&tier->live_nodes), 1);
    const uint64_t part = part_of(tier, policy, rule, cell);
    if (load_relaxed(&policy->rung) != RUNG_FLEET || (nodes == 1 && part == 0)) {
        return headroom; /* nobody can tell, or nobody else is there */
    }
    if (note == NULL && stub_is(&tier->notes.stubs[cell], STUB_TOLD)) {
        return stub_left(tier, rule, cell, state, headroom, asked, part, now_ns);
    }
    const uint64_t since_ns = note != NULL ? load_relaxed(&note->mirror.since_ns) : 0;
    if (note == NULL || (part != 0 && since_ns == 0)) {
        return left_of(tier, cell, rule->limit, saturating_sub(rule->limit, headroom), headroom, asked, true);
    }
    const struct mirror *mirror = &note->mirror;
    struct estimate estimate = {.others_rate = load_relaxed(&mirror->others_rate),
                                .others_part = load_relaxed(&mirror->others_part),
                                .since_ns = since_ns,
                                .dither = load_relaxed(&mirror->dither)};
    const uint64_t unseen = unseen_units(note, rule, state, headroom, now_ns, &estimate.since_ns);
    const uint64_t news_ns = max_u64(since_ns, since_ns != 0 ? load_relaxed(&mirror->looked_ns) : 0);
    const bool stale = now_ns > news_ns + STALE_INTERVALS * tier->interval_ns;
    if (stale || load_relaxed(&mirror->waits) != 0) {
        /* An answer that waits for the others' is due again a quarter of an interval after it came: its news was half
         * an interval old. What a queue may have is a part already. */
        const bool due = stale || now_ns > since_ns + tier->interval_ns / 2 + tier->interval_ns / 4;
        if (!stale && unseen >= load_relaxed(&mirror->alarm)) {
            ask_at_once(tier, cell);
        }
        const uint64_t share = part != 0 ? rule->limit : max_u64(saturating_add(headroom, unseen) / nodes, 1);
        return left_of(tier, cell, share, unseen, headroom, asked, due && headroom >= asked);
    }
    if (part != 0) {
        return headroom;
    }
    if (unseen >= load_relaxed(&mirror->alarm)) {
        ask_at_once(tier, cell);
    }
    return estimate_left(&estimate, headroom, unseen, now_ns);
}

uint64_t mirror_retry_after(const struct tier *tier, const struct policy *policy, uint32_t cell, uint64_t now_ns)
{
    const struct note *note = note_of(&tier->notes, cell);
    if (load_relaxed(&policy->rung) != RUNG_FLEET) {
        return 0;
    }
    const uint64_t since_ns = note != NULL ? load_relaxed(&note->mirror.since_ns) : 0;
    if (since_ns == 0) {
        return FIRST_ANSWER_NS;
    }
    if (load_relaxed(&note->mirror.others_rate) == 0) {
        return 0;
    }
    /* The answer is half an interval younger than what it tells of. */
    const uint64_t next_ns = since_ns + tier->interval_ns + tier->interval_ns / 2;
    return max_u64(saturating_sub(next_ns, now_ns), RETRY_MIN_NS);
}
