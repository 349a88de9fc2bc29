/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node learns of a key's demand, and publishes to the checks (tier/mirror.c).
 *
 * Own demand is counted when a cell is looked at: units admitted since the last look, and units denied. The others' is
 * what the record's sum of units asked for has grown by, less the own part. Both are taken over the time between two
 * answers, so it does not matter how often a key is reported.
 *
 * Invariant: told.asked is what this node has said was asked of it in a window, and never decreases; what was denied
 * after the last look at a window counts in the next one.
 */
#include "algorithm/bucket.h"
#include "algorithm/log.h"
#include "algorithm/window.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "fleet/fleet.h"
#include "fleet/report.h"

/* A surprise is worth asking at once if it is this part of the headroom. */
#define ALARM_DIVISOR 8

/* Fewer units between two looks tell no rate. */
#define RECENT_UNITS 8

/* Demand that has changed by this factor is asked for sooner, for so many intervals. */
#define CHANGE_FACTOR    2
#define CHANGE_INTERVALS 4

/* And by this one, begins anew. */
#define SURGE_FACTOR 8

/* A part of a limit below this is a matter of luck. */
#define CROWDED_UNITS 2

/* For this part of an interval a beginning is waited out; and demand is learned from answers an interval less it apart.
 */
#define WAIT_DIVISOR 4

void learn_begin(struct note *note)
{
    note->lesson.recent_units = 0;
}

void learn_own(struct note *note, struct told *told, uint64_t own)
{
    const uint64_t more = saturating_sub(own, told->own);
    told->own += more;
    told->asked += more;
    note->lesson.own_asked += more;
    note->lesson.recent_units += more;
}

uint64_t learn_denied(struct note *note, uint64_t now_ns, uint64_t interval_ns)
{
    const uint64_t more = load_relaxed(&note->denied) != 0 ? exchange_acquire(&note->denied, 0) : 0; /* statistics */
    note->lesson.own_asked += more;
    note->now.asked += more;
    /* A cell is looked at within an interval of its use, so what is new is no older. */
    const uint64_t unlooked_ns = now_ns - load_relaxed(&note->mirror.looked_ns);
    const uint64_t span_ns = max_u64(min_u64(unlooked_ns, interval_ns), 1);
    note->lesson.idle = note->lesson.idle || unlooked_ns > STALE_INTERVALS * interval_ns;
    const uint64_t recent = note->lesson.recent_units + more;
    note->lesson.recent_rate = recent >= RECENT_UNITS ? estimate_rate(recent, span_ns) : 0;
    if (!note->lesson.idle) {
        store_relaxed(&note->mirror.looked_ns, now_ns);
    } /* else the answer is old until there is a new one, however little was used so far */
    return more;
}

void learn_again(struct note *note, uint64_t now_ns, uint64_t interval_ns, bool steady)
{
    struct lesson *lesson = &note->lesson;
    if (!steady || lesson->learned_ns == 0) {
        lesson->learned_ns = 0;
        return;
    }
    /* What looks recent has come since then. */
    const uint64_t span_ns = max_u64(now_ns - min_u64(lesson->learned_ns, now_ns), interval_ns);
    lesson->recent_rate = lesson->recent_units >= RECENT_UNITS ? estimate_rate(lesson->recent_units, span_ns) : 0;
    lesson->idle = false;
    store_relaxed(&note->mirror.looked_ns, now_ns);
}

void learn_others(struct note *note, struct told *told, const struct report *report)
{
    const uint64_t asked = saturating_sub(report->sum_asked, report->asked);
    const uint64_t more = saturating_sub(asked, told->others_asked);
    told->others_asked += more;
    note->lesson.others_asked += more;
}

/* Whether a key that was hardly used is used much, all at once; it is so until the demand is learned, and said once. */
static bool surges(const struct lesson *lesson, uint64_t now_ns, uint64_t interval_ns)
{
    return lesson->demand.known && lesson->recent_rate / SURGE_FACTOR > lesson->demand.own_rate &&
           now_ns >= lesson->first_ns + interval_ns;
}

/*
 * An answer to a key that was not asked for before, or not for a while, says what the others have told, but not what
 * they have just begun: a burst that comes to all nodes at once is told by each of them some milliseconds later. So it
 * is a beginning: demand is counted from there, and until the others have had the time to tell, the key goes by an even
 * part of its limit.
 */
static bool begins(const struct fleet *fleet, struct note *note, const struct rule *rule, const struct report *report,
                   uint64_t start_ns)
{
    struct lesson *lesson = &note->lesson;
    const uint64_t now_ns = fleet->gathered_ns;
    const uint64_t interval_ns = fleet->tier->interval_ns;
    if (lesson->learned_ns == 0) {
        const uint64_t age_ns = saturating_sub(now_ns, start_ns);
        lesson->guessed = !rule_is_bucket(rule) && age_ns <= TURN_INTERVALS * interval_ns;
        if (lesson->guessed) {
            /* A window that began not long ago is a span like any other. */
            lesson->demand.own_rate = estimate_rate(lesson->own_asked, interval_ns);
            lesson->demand.others_rate = estimate_rate(note->now.others_asked, max_u64(age_ns, interval_ns / 2));
        }
        lesson->first_ns = lesson->learned_ns = lesson->changed_ns = now_ns;
        lesson->own = report->count;
        lesson->own_asked = lesson->others_asked = 0;
    } else if ((lesson->idle || surges(lesson, now_ns, interval_ns)) &&
               lesson->recent_units >= mirror_urgent_units(rule->limit / max_u64(fleet->live_nodes, 1))) {
        lesson->first_ns = lesson->changed_ns = now_ns;
        /* The use that begins is not spread over the time before it. */
        lesson->own_seen = min_u64(lesson->own_seen, saturating_sub(report->count, lesson->recent_units));
    }
    lesson->idle = false;
    return now_ns < lesson->first_ns + interval_ns / WAIT_DIVISOR || !(lesson->demand.known || lesson->guessed);
}

/* Learns demand, where there was time enough to tell a rate. */
static void take_in(const struct fleet *fleet, struct note *note, const struct rule *rule, const struct report *report,
                    uint64_t start_ns, bool with_before)
{
    struct lesson *lesson = &note->lesson;
    const uint64_t now_ns = fleet->gathered_ns;
    const uint64_t interval_ns = fleet->tier->interval_ns;
    const bool window = !rule_is_bucket(rule);
    const uint64_t span_ns = lesson->learned_ns != 0 ? now_ns - lesson->learned_ns : 0;
    if (span_ns < interval_ns - interval_ns / WAIT_DIVISOR) {
        /* The others speak once in an interval: this tells no rate. But what passed here half an interval ago is seen.
         */
        const uint64_t late = muldiv_ceil(lesson->recent_rate, interval_ns / 2, NS_PER_S) >> RATE_BITS;
        lesson->own_seen =
            max_u64(lesson->own_seen, lesson->recent_rate != 0 ? saturating_sub(report->count, late) : 0);
        return;
    }
    /* Of the others' units those before the earliest window that was read are not known. */
    const uint64_t before_ns = with_before ? min_u64(rule->period_ns, start_ns) : 0;
    const uint64_t read_ns = saturating_sub(now_ns, window ? start_ns - before_ns : 0);
    const uint64_t others_ns = max_u64(min_u64(span_ns, read_ns), interval_ns / 2);
    const uint64_t others_asked = muldiv_ceil(lesson->others_asked, span_ns, others_ns);
    const uint64_t others_before = lesson->demand.others_rate;
    if (lesson->demand.known && others_before > lesson->demand.own_rate / ALARM_DIVISOR &&
        estimate_rate(others_asked, span_ns) < others_before / CHANGE_FACTOR) {
        lesson->changed_ns = now_ns;
    }
    demand_learn(&lesson->demand, lesson->own_asked, others_asked, span_ns, interval_ns);
    if (window && lesson->learned_ns < start_ns) {
        lesson->own_seen = estimate_seen(report->count, saturating_sub(now_ns, start_ns), interval_ns, true);
    } else {
        const uint64_t more = saturating_sub(report->count, lesson->own);
        lesson->own_seen = report->count - more + estimate_seen(more, span_ns, interval_ns, false);
    }
    lesson->own = report->count;
    lesson->learned_ns = now_ns;
    lesson->own_asked = lesson->others_asked = 0;
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
static bool is_crowded(const struct rule *rule, const struct demand *demand, uint32_t others_part)
{
    const uint64_t part = muldiv_floor(rule->limit, PART_WHOLE - others_part, PART_WHOLE);
    const uint64_t asked = saturating_add(demand->own_rate, demand->others_rate);
    return part < CROWDED_UNITS && asked / 3 > rule_rate(rule) / 2;
}

const int32_t estimate_bounds[ESTIMATE_BUCKETS - 1] = {-100000, -30000, -10000, -3000, 3000,
                                                       10000,   30000,  100000, 300000};

/* Counts how far the estimate was off: `others` is what the others have admitted since the last answer. */
static void count_error(struct fleet *fleet, const struct note *note, const struct rule *rule, struct state state,
                        uint64_t others, uint64_t start_ns)
{
    const struct mirror *mirror = &note->mirror;
    const uint64_t now_ns = fleet->gathered_ns;
    const uint64_t half_ns = fleet->tier->interval_ns / 2;
    const uint64_t since_ns = load_relaxed(&mirror->since_ns);
    if (since_ns < start_ns || since_ns + half_ns >= now_ns || load_relaxed(&mirror->part) != 0) {
        return; /* another window, or no time: there was no estimate */
    }
    /* Both answers are half an interval old: between them lies the time since the last one. */
    const struct estimate estimate = {.others_rate = load_relaxed(&mirror->others_rate),
                                      .others_part = load_relaxed(&mirror->others_part),
                                      .since_ns = since_ns + half_ns};
    const uint64_t room = saturating_add(rule_headroom(rule, state, now_ns), others);
    const uint64_t guess = room - estimate_left(&estimate, room, 0, now_ns);
    const int64_t error = ((int64_t) min_u64(guess, WEIR_MAX_UNITS) - (int64_t) min_u64(others, WEIR_MAX_UNITS)) *
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
static uint64_t waiting_alarm(uint64_t left, uint64_t unseen, uint64_t nodes)
{
    return unseen + max_u64(saturating_add(left, unseen) / nodes / WAIT_DIVISOR, 2);
}

void learn_answer(struct fleet *fleet, const struct cell *cell, struct note *note, const struct rule *rule,
                  const struct report *report, uint64_t others, uint64_t start_ns, bool with_before)
{
    struct mirror *mirror = &note->mirror;
    struct lesson *lesson = &note->lesson;
    const uint64_t interval_ns = fleet->tier->interval_ns;
    const uint64_t now_ns = fleet->gathered_ns;
    lesson->part_ns = load_relaxed(&mirror->part) != 0 ? now_ns : lesson->part_ns;
    take_in(fleet, note, rule, report, start_ns, with_before);
    const bool waits = begins(fleet, note, rule, report, start_ns);
    /* Own demand is known as it is, without delay: a node that traffic has just come to need not wait for its part. */
    struct demand demand = lesson->demand;
    demand.own_rate = max_u64(demand.own_rate, lesson->recent_rate);
    const uint32_t others_part = demand_others_part(&demand, interval_ns);
    const uint64_t others_rate = demand.others_rate;
    const struct state state = cell_state(pair_read(&cell->state));
    count_error(fleet, note, rule, state, others, start_ns);
    const uint64_t left = rule_headroom(rule, state, now_ns);
    /* While demand moves from node to node, what was to be expected is of no help. */
    if (lesson->recent_rate > CHANGE_FACTOR * lesson->demand.own_rate) {
        lesson->changed_ns = now_ns;
    }
    const bool changing = now_ns < lesson->changed_ns + CHANGE_INTERVALS * interval_ns;
    const uint64_t ahead_ns = changing ? interval_ns / 4 : 3 * interval_ns;
    const uint64_t expected = muldiv_floor(demand.own_rate >> RATE_BITS, ahead_ns, NS_PER_S);
    uint64_t seen = lesson->own_seen;
    if (!rule_is_bucket(rule)) {
        const uint64_t own_back = report_window_back(note, load_relaxed(&note->mirror.tag));
        seen = saturating_sub(seen + told_folded(&note->now) + note->now.deficit,
                              load_relaxed(&note->now.others_back) + own_back);
    }
    const bool crowded = others_rate != 0 && is_crowded(rule, &demand, others_part);
    const uint64_t nodes = max_u64(fleet->live_nodes, 1);
    store_relaxed(&mirror->others_rate, crowded ? RATE_MOST : others_rate);
    store_relaxed(&mirror->others_part,
                  crowded ? (uint32_t) max_u64(others_part, PART_WHOLE - PART_WHOLE / nodes) : others_part);
    store_relaxed(&mirror->seen, rule_is_bucket(rule) ? seen & BUCKET_TOTAL_MASK : seen);
    store_relaxed(&mirror->since_ns, max_u64(saturating_sub(now_ns, interval_ns / 2), 1));
    store_relaxed(&mirror->looked_ns, now_ns);
    const uint64_t unseen = saturating_sub(report->count, lesson->own_seen);
    store_relaxed(&mirror->alarm, waits ? waiting_alarm(left, unseen, nodes)
                                        : unseen + max_u64(max_u64(expected, left / ALARM_DIVISOR), 2));
    store_relaxed(&mirror->dither, (uint32_t) (hash_mix(load_relaxed(&cell->hash) ^ now_ns) >> (64 - RATE_BITS)));
    store_relaxed(&mirror->quota_untold, 0);
    store_relaxed(&mirror->waits, waits);
    /* A queue's requests stand one behind the other: each takes the time of those that pass elsewhere. */
    if (!rule_is_queue(rule)) {
        store_relaxed(&mirror->part, 0);
    } else if (!waits) {
        store_relaxed(&mirror->part, others_rate != 0 ? (uint32_t) (PART_WHOLE - max_u64(others_part, 1)) : 0);
    }
}

void learn_log(const struct fleet *fleet, const struct cell *cell, struct note *note, const struct rule *rule,
               const struct log_news *news)
{
    struct lesson *lesson = &note->lesson;
    struct mirror *mirror = &note->mirror;
    const uint64_t now_ns = fleet->gathered_ns;
    const uint64_t interval_ns = fleet->tier->interval_ns;
    if (lesson->learned_ns == 0 || now_ns > lesson->learned_ns + STALE_INTERVALS * interval_ns) {
        lesson->first_ns = now_ns;
    }
    lesson->learned_ns = now_ns;
    store_relaxed(&mirror->part, 0);
    store_relaxed(&mirror->since_ns, max_u64(saturating_sub(now_ns, interval_ns / 2), 1));
    store_relaxed(&mirror->looked_ns, now_ns);
    const bool waits = now_ns < lesson->first_ns + interval_ns / WAIT_DIVISOR;
    /* What passed here since the beginning is of the even part. */
    const uint64_t own = news->first + news->time_count;
    lesson->own = waits ? min_u64(lesson->own, own) : own;
    store_relaxed(&mirror->seen, lesson->own);
    const uint64_t left = rule_headroom(rule, cell_state(pair_read(&cell->state)), now_ns);
    store_relaxed(&mirror->alarm, waiting_alarm(left, own - lesson->own, max_u64(fleet->live_nodes, 1)));
    store_relaxed(&mirror->waits, waits);
}

void learn_nothing(const struct fleet *fleet, struct note *note)
{
    struct mirror *mirror = &note->mirror;
    const struct demand *demand = &note->lesson.demand;
    const uint64_t nodes = fleet->live_nodes != 0 ? fleet->live_nodes : 1;
    const uint64_t part = demand->known ? PART_WHOLE - demand_others_part(demand, fleet->tier->interval_ns)
                                        : (PART_WHOLE + nodes - 1) / nodes;
    store_relaxed(&mirror->part, part < PART_WHOLE ? (uint32_t) max_u64(part, 1) : 0);
    store_relaxed(&mirror->others_rate, 0);
    store_relaxed(&mirror->since_ns, 0);
    store_relaxed(&mirror->waits, 0);
    store_relaxed(&mirror->alarm, UINT64_MAX);
}
