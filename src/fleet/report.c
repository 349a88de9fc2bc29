/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From cells to reports. (From answers back to cells: fold.c. Which cells, and when: gather.c.)
 *
 * A cell's state counts what this node admitted and, folded in, what the others did as of the last answer; its note
 * knows the second part (told.others), so the first is the difference, and that is reported. Units of grants are
 * counted when they are settled, so a count never decreases.
 *
 * Units that were given back are counted beside: the note has this node's own, told.others_back the others'.
 *
 * Invariants
 *   R1  window: state count (or previous) = own units - own given back + others - told.others_back + told.deficit of
 *       that window; deficit is more than 0 where that would be less than 0 (two nodes have given back the same);
 *       others is told.others, or what the key is remembered to have used where that is more (told_folded): an earlier
 *       stay of the key here has told of those units, or a forgotten key's last report will
 *
 *   R2  reported <= own units counted; what is counted later makes the cell dirty again
 *
 *   R3  told.others and told.others_back never decrease within a window: what the fleet has lost is told again, and not
 *       admitted again
 *
 * A log's units are told by number and time; its answer is what the others have in the window, which replaces what it
 * was. Where the fleet turns out not to have this node's units, all in the window are told again.
 *
 * A cell is reported when that matters: when what it has not told is more than a small share of its headroom, when the
 * fleet has not told of it yet, when it cannot wait (tier/mirror.c); and else when it is old, in its turn (due(),
 * gather.c).
 *
 * A note's `tag` is the state's when the background thread last looked. If the state has moved on by one window since,
 * the note's `now` belongs to the state's `previous`.
 */
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/count.h"
#include "base/decimal.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "fleet/fleet.h"
#include "fleet/report.h"
#include "process/key_name.h"

#define SLOT_TAGS 1024

/* How long a bucket's record stays after it is full again. */
#define BUCKET_SLACK_MS 60000

/* A key is reported when its untold units are this part of the headroom, divided among the nodes: what all of them have
 * not told is less than an eighth of it. */
#define DUE_SHARE 8

/* Or of what this node may have of it. */
#define DUE_OWN_SHARE 4

/* For so many intervals after a window's end the others may still have news of it. */
#define BEFORE_INTERVALS 3

/* And how often it is looked at later, where it counts; in intervals. */
#define BEFORE_EVERY 8

/* How often a key is asked for that is denied alone; in intervals. */
#define DENIED_EVERY 4

/* Slack for clocks and delays on a window's record, which is wanted until the end of the window after it. */
#define WINDOW_SLACK_MS 1000

/* Puts a text there, and returns its end. */
static char *append(char *to, const char *text)
{
    const size_t length = strlen(text);
    memcpy(to, text, length + 1);
    return to + length;
}

size_t report_record(const struct fleet *fleet, char record[REPORT_RECORD_SIZE], const struct policy *policy,
                     const struct policy_limit *limit, const struct kept_key *kept)
{
    char key[KEY_TEXT_SIZE];
    (void) key_text_write(key, kept, policy->form);
    /* All records of a key share a partition: of its policy and itself, not of limit and window. */
    char partition[WEIR_MAX_NAME + sizeof(key) + 2];
    const char *const end = append(append(append(partition, policy->base), ":"), key);
    uint64_t hash[2];
    hash_shared(partition, (size_t) (end - partition), hash);
    static const char digits[] = "0123456789abcdef";
    const unsigned tag = (unsigned) (hash[0] % SLOT_TAGS);
    const char braced[] = {':', '{', digits[tag >> 8], digits[tag >> 4 & 15], digits[tag & 15], '}', ':', '\0'};
    /* It fits: see the sizes of prefix, label and name. */
    char *to = append(append(append(append(record, fleet->prefix), braced), limit->label), ":");
    return (size_t) (append(to, partition) - record);
}

void report_asked_record(const struct fleet *fleet, const struct policy_limit *limit, const char *record,
                         char asked[REPORT_RECORD_SIZE])
{
    static const char braces[] = ":{xxx}:";
    memcpy(asked, record, strlen(record) + 1);
    asked[strlen(fleet->prefix) + sizeof(braces) - 1 + strlen(limit->label)] = '?';
}

struct report *report_add(struct fleet *fleet, uint32_t cell, const struct note *note, bool before)
{
    const size_t index = fleet->round.report_count++;
    struct report *report = &fleet->reports[index];
    fleet->origins[index] = (struct origin){
        .cell = cell, .tag = load_relaxed(&note->mirror.tag), .incarnation = note->incarnation, .before = before};
    /* All but the record's name, which is long, and written next. */
    memset(report->author, 0, sizeof(*report) - offsetof(struct report, author));
    (void) hexadecimal_write(append(append(report->author, fleet->node), "."), note->incarnation);
    return report;
}

/* Lets a window's state follow the time, so that a key is asked for as of now even where it is not used. */
static void roll(struct cell *cell, const struct rule *rule, uint64_t now_ns)
{
    struct pair_value value = pair_read(&cell->state);
    uint64_t into_ns;
    struct state rolled = window_roll(rule, cell_state(value), now_ns, &into_ns);
    while (window_tag(rolled) != window_tag(cell_state(value)) &&
           !pair_cas(&cell->state, &value, cell_value(rolled, value))) {
        rolled = window_roll(rule, cell_state(value), now_ns, &into_ns);
    }
}

struct reading report_read(const struct cell *cell, const struct given *given)
{
    struct reading reading;
    reading.back[0] = load_acquire(&given->back[0]);
    reading.back[1] = load_acquire(&given->back[1]);
    reading.state = cell_state(pair_read(&cell->state));
    return reading;
}

/* Own units given back of the window with this tag. */
static uint64_t window_back(const uint64_t back[2], uint32_t tag)
{
    const uint64_t word = back[tag & 1];
    const uint64_t as = (uint64_t) tag << WINDOW_COUNT_BITS; /* the bits of it that there is room for */
    return word >> WINDOW_COUNT_BITS == as >> WINDOW_COUNT_BITS ? word & WINDOW_COUNT_MASK : 0;
}

uint64_t report_window_back(const struct note *note, uint32_t tag)
{
    const uint64_t back[2] = {load_acquire(&note->given->back[0]), load_acquire(&note->given->back[1])}; /* [A1] */
    return window_back(back, tag);
}

/* Lets the note follow the state into the window with this tag. */
static void note_follow(struct note *note, uint32_t tag)
{
    const uint32_t was = load_relaxed(&note->mirror.tag);
    if (was == tag) {
        return;
    }
    if (was != TAG_NONE && ((tag - was) & WINDOW_TAG_MASK) == 1) {
        told_copy(&note->before, &note->now);
    } else {
        told_clear(&note->before);
    }
    told_clear(&note->now);
    note->lesson.own = note->lesson.own_seen = 0;
    store_relaxed(&note->mirror.seen, 0);
    store_relaxed(&note->mirror.tag, tag);
}

/* R1, R2: units this node let pass in a window. */
static uint64_t own_count(const struct told *told, uint64_t count, uint64_t back)
{
    const uint64_t net = count + back + load_relaxed(&told->others_back);
    return max_u64(saturating_sub(net, told_folded(told) + told->deficit), told->reported);
}

/* What a cell's units are, and how many of them the fleet has not had. */
struct account {
    uint64_t own[2], back[2]; /* of this window and the one before; a bucket's in [0] */
    uint64_t untold;          /* own units of this window, or of the bucket */
    uint64_t denied;          /* units, since the last look */
    bool news;                /* of anything else */
    bool again;               /* whatever has been told before */
};

static struct account window_account(const struct fleet *fleet, struct note *note, const struct rule *rule,
                                     const struct reading *reading, uint64_t now_ns)
{
    const uint32_t tag = window_tag(reading->state);
    struct account account = {.untold = 0};
    note_follow(note, tag);
    learn_begin(note);
    for (unsigned before = 0; before < 2; before++) {
        struct told *told = before != 0 ? &note->before : &note->now;
        const uint64_t count = before != 0 ? window_previous(reading->state) : window_count(reading->state);
        account.back[before] = window_back(reading->back, tag - before);
        account.own[before] = own_count(told, count, account.back[before]);
        learn_own(note, told, account.own[before]);
        account.news = account.news || account.back[before] != told->reported_back;
    }
    const uint64_t start_ns = window_span_of(rule, window_number(rule, tag, now_ns)).start_ns;
    const uint64_t into_ns = saturating_sub(now_ns, start_ns);
    account.denied = learn_denied(fleet, note, into_ns, rule->period_ns, now_ns);
    account.untold = account.own[0] - min_u64(note->now.reported, account.own[0]);
    account.news = account.news || account.own[1] != note->before.reported;
    return account;
}

static struct account bucket_account(const struct fleet *fleet, struct note *note, const struct reading *reading,
                                     uint64_t now_ns)
{
    struct told *told = &note->now;
    struct account account = {.back = {reading->back[0], 0}};
    account.untold = (bucket_total(reading->state) - told->reported) & BUCKET_TOTAL_MASK;
    account.own[0] = told->reported + account.untold;
    account.news = account.back[0] != told->reported_back;
    store_relaxed(&note->mirror.tag, 0);
    learn_begin(note);
    learn_own(note, told, account.own[0]);
    account.denied = learn_denied(fleet, note, UINT64_MAX, 0, now_ns);
    return account;
}

/*
 * Whether the window before is of interest: for what it has not told; for as long as the others may have news of it;
 * and where it still counts, now and then.
 */
static bool before_matters(const struct fleet *fleet, const struct note *note, const struct policy_limit *limit,
                           const struct reading *reading, uint64_t start_ns, uint64_t now_ns, bool news)
{
    const bool known = note->before.reported != 0 || load_relaxed(&note->before.others) != 0;
    const bool counts = limit->rule.algorithm == WEIR_SLIDING_WINDOW;
    const bool first = counts && note->lesson.learned_ns < start_ns;
    const bool fresh = saturating_sub(now_ns, start_ns) < BEFORE_INTERVALS * fleet->process->interval_ns;
    const bool now_and_then =
        counts && window_previous(reading->state) != 0 && fleet->interval_count % BEFORE_EVERY == 0;
    return news || first || now_and_then || (fresh && (known || window_previous(reading->state) != 0));
}

/* Whether this window is, with or without news. A record that nobody has used need not be there. */
static bool now_matters(const struct note *note)
{
    return note->now.asked != 0 || load_relaxed(&note->mirror.part) != 0 ||
           load_relaxed(&note->mirror.others_rate) != 0 || load_relaxed(&note->mirror.quota_untold) != 0;
}

static void window_report(struct fleet *fleet, uint32_t cell, struct note *note, const struct kept_key *key,
                          const struct policy *policy, const struct policy_limit *limit, const struct reading *reading,
                          const struct account *account, uint64_t now_ns)
{
    const uint32_t tag = window_tag(reading->state);
    const uint64_t number = window_number(&limit->rule, tag, now_ns);
    const uint64_t start_ns = window_span_of(&limit->rule, number).start_ns;
    uint64_t reset_ns = load_relaxed(&note->given->reset);
    if (reset_ns != 0 && number != 0 && reset_ns < window_span_of(&limit->rule, number - 1).start_ns) {
        (void) cas_relaxed(&note->given->reset, &reset_ns, 0); /* the windows it was for are over */
    }
    bool with_before = false;
    /* The one before first: with the answer on this window all is there (learn_answer). */
    for (unsigned before = 2; before-- > 0;) {
        const struct told *told = before != 0 ? &note->before : &note->now;
        const uint64_t of = number - before;
        /* It counts in its own window, and in the one after. */
        const uint64_t end_ns = window_span_of(&limit->rule, of + 1).end_ns;
        /* A window that began after the reset has nothing to do with it. */
        const uint64_t reset =
            window_span_of(&limit->rule, of).start_ns / NS_PER_US <= report_reset_us(note) ? report_reset_us(note) : 0;
        const bool news = account->own[before] != told->reported || account->back[before] != told->reported_back ||
                          reset != 0 || (account->again && account->own[before] != 0);
        const bool matters = before != 0 ? before_matters(fleet, note, limit, reading, start_ns, now_ns, news)
                                         : news || now_matters(note);
        if (!matters || end_ns <= now_ns || of > number) {
            continue;
        }
        struct report *report = report_add(fleet, cell, note, before != 0);
        fleet->origins[fleet->round.report_count - 1].with_before = with_before;
        fleet->origins[fleet->round.report_count - 1].again = account->again;
        with_before = true;
        const size_t length = report_record(fleet, report->record, policy, limit, key);
        report->record[length] = ':';
        (void) decimal_write(report->record + length + 1, of);
        report->kind = REPORT_WINDOW;
        report->count = account->own[before];
        report->back = account->back[before];
        report->reset_us = reset;
        report->reset_kept = load_relaxed(&note->given->reset_emptied) == 0 ? 0
                             : before != 0                                  ? window_previous(reading->state)
                                                                            : window_count(reading->state);
        report->asked = max_u64(told->asked, account->own[before]);
        report->expire_ms = (end_ns - now_ns) / NS_PER_MS + WINDOW_SLACK_MS;
    }
}

/* A bucket that is served in part, without what that adds to it; what is new came after `since_ns`. */
static struct state whole_bucket(const struct note *note, const struct rule *rule, struct state state,
                                 uint64_t since_ns)
{
    if (report_in_parts(note, since_ns)) {
        const uint64_t since = (bucket_total(state) - note->lesson.known_total) & BUCKET_TOTAL_MASK;
        const uint64_t from_ns = max_u64(load_relaxed(&note->mirror.looked_ns), since_ns);
        const uint64_t known = max_u64(note->lesson.known_time, bucket_time(rule, from_ns));
        const uint64_t charged =
            since == 0 ? note->lesson.known_time : saturating_add(known, saturating_mul(since, rule->unit));
        const uint64_t back = saturating_sub(load_relaxed(&note->given->back[0]), note->lesson.known_back);
        state.a = min_u64(state.a, saturating_sub(charged, saturating_mul(back, rule->unit)));
    }
    return state;
}

/* Up to when every node has told all it used. */
static uint64_t told_since(const struct fleet *fleet, uint64_t now_ns)
{
    const uint64_t watermark_ns = fleet->membership.watermark_ns;
    return watermark_ns != 0 ? min_u64(watermark_ns, now_ns) : now_ns;
}

/*
 * What this node has seen of a bucket, without the units that it is about to tell of: the fleet may have lost it.
 *
 * With the units of others among it that is the last answer. The state itself has taken each unit in where the bucket
 * was full, and is later than what the fleet makes of the same units when they come in any order.
 */
static void seen_bucket(const struct fleet *fleet, const struct note *note, const struct rule *rule, struct state whole,
                        uint64_t now_ns, struct report *report)
{
    const struct lesson *lesson = &note->lesson;
    const bool alone = load_relaxed(&note->now.others) == 0 && membership_nodes(&fleet->membership) == 1;
    const bool known = lesson->learned_ns != 0 && lesson->known_scale == rule->scale;
    uint64_t units = report->count; /* that are in `seen` */
    uint64_t back = report->back;   /* that were taken off it */
    uint64_t seen = whole.a;
    if (learn_failed(fleet, lesson) && load_relaxed(&note->mirror.level) != 0) {
        /* What was left to nodes that have failed was used by nobody, and is over. */
        seen = learn_told(fleet, note, rule, report->count, now_ns);
    } else if (fleet->resumes && lesson->presumed_rate != 0 && load_relaxed(&note->mirror.level) != 0) {
        /* Those who were cut off are about to tell what they owe. What these nodes owe is to be there before. */
        const uint64_t now = bucket_time(rule, now_ns);
        const uint64_t debt = saturating_sub(learn_told(fleet, note, rule, report->count, now_ns), now);
        seen = now + muldiv_floor(debt, PART_WHOLE - learn_returning_part(lesson), PART_WHOLE);
    } else if (!alone && known) {
        const uint64_t since = (lesson->known_total - report->acked) & BUCKET_TOTAL_MASK;
        seen = lesson->known_time;
        units = report->acked + (since <= BUCKET_TOTAL_MASK / 2 ? since : 0);
        back = lesson->known_back;
    } else if (!alone) {
        seen = saturating_sub(seen, (now_ns - told_since(fleet, now_ns)) << BUCKET_FRACTION_BITS);
    }
    /* As it was before what is told now. */
    const uint64_t told_back = min_u64(back, report->acked_back);
    seen = saturating_add(seen, saturating_mul(back - told_back, rule->unit));
    seen = saturating_sub(seen, saturating_mul(saturating_sub(units, report->acked), rule->unit));
    report->tat_us = bucket_time_ns(rule, seen) / NS_PER_US;
    report->known_back = told_back + load_relaxed(&note->now.others_back);
}

/*
 * After an outage: what was used meanwhile has refilled, at this node's part of the rate, but for what its own bucket
 * owes. So that much moves the fleet's bucket, from now on, and the rest only counts. What is owed is held back until
 * all nodes are there: then what they owe is added up as of one time, whenever each of them has come. `last`: of a
 * forgotten key, which cannot wait.
 */
static void tell_of_outage(const struct fleet *fleet, const struct note *note, const struct rule *rule,
                           struct state state, uint64_t untold, uint64_t now_ns, bool last, struct report *report)
{
    const uint32_t part = mirror_demand_part(fleet->process, &note->mirror);
    const uint64_t debt = saturating_sub(state.a, bucket_time(rule, now_ns));
    const uint64_t own = part != 0 ? muldiv_ceil(debt, part, PART_WHOLE) : debt;
    const uint64_t owed = min_u64(own / max_u64(rule->unit, 1) + (own % max_u64(rule->unit, 1) != 0), untold);
    if (!fleet->tells && !last) {
        report->count -= owed;
        report->moves = 1; /* none */
    } else {
        report->moves = owed + 1;
    }
    report->from_us = now_ns / NS_PER_US;
}

static void bucket_report(struct fleet *fleet, uint32_t cell, struct note *note, const struct kept_key *key,
                          const struct policy *policy, const struct policy_limit *limit, const struct reading *reading,
                          const struct account *account, uint64_t now_ns)
{
    /* By the rate the bucket was last charged at: of a tier, an entry of the key's own, or an earlier policy. */
    struct rule rule = limit->rule;
    rule_rescale(&rule, bucket_scale(reading->state));
    /* One node has no part but the whole. */
    const bool in_parts = membership_nodes(&fleet->membership) > 1 || load_relaxed(&note->mirror.others_part) != 0;
    note->lesson.shared = note->lesson.shared || (in_parts && load_relaxed(&policy->rung) == RUNG_SHARE);
    const struct state whole = whole_bucket(note, &rule, reading->state, now_ns - fleet->process->interval_ns);
    if (load_relaxed(&policy->rung) == RUNG_OPEN || report_forgives(fleet, policy, cell)) {
        /* They were told to let everything pass: no debt. */
        note->before.reported = account->own[0];
        note->before.reported_back = account->back[0];
    }
    struct report *report = report_add(fleet, cell, note, false);
    (void) report_record(fleet, report->record, policy, limit, key);
    fleet->origins[fleet->round.report_count - 1].again = account->again;
    report->kind = REPORT_BUCKET;
    report->count = account->own[0];
    report->asked = note->now.asked < COUNT_AGAIN ? max_u64(note->now.asked, report->count) : note->now.asked;
    report->acked = max_u64(note->now.reported, note->before.reported);
    report->back = account->back[0];
    report->reset_us = report_reset_us(note);
    report->reset_kept = load_relaxed(&note->given->reset_emptied) != 0 ? bucket_owed_up(&rule, whole, now_ns) : 0;
    report->scale = rule.scale;
    report->acked_back = max_u64(note->now.reported_back, note->before.reported_back);
    report->now_us = now_ns / NS_PER_US;
    report->from_us = told_since(fleet, now_ns) / NS_PER_US;
    seen_bucket(fleet, note, &rule, whole, now_ns, report);
    if (note->lesson.shared && fleet->awaits) {
        tell_of_outage(fleet, note, &rule, reading->state, account->untold, now_ns, cell == TABLE_NONE, report);
    }
    report->unit_ps = max_u64(rule.unit * 1000 >> BUCKET_FRACTION_BITS, 1);
    report->expire_ms = BUCKET_SLACK_MS;
}

const struct policy_limit *report_limit(const struct policy_set *set, const struct owner *owner,
                                        const struct policy **policy)
{
    if (!owner_is(owner, OWNER_FLEET)) {
        return NULL;
    }
    return policy_set_limit(set, load_relaxed(&owner->group), load_relaxed(&owner->limit_tag), policy);
}

/* Whether a cell's news cannot wait for its turn. */
static bool due(const struct fleet *fleet, const struct note *note, const struct rule *rule, struct state state,
                const struct account *account, uint64_t now_ns, enum urge urge)
{
    const uint64_t interval_ns = fleet->process->interval_ns;
    if (account->news || account->again || report_reset_us(note) != 0 || load_relaxed(&note->mirror.part) != 0 ||
        load_relaxed(&note->mirror.quota_untold) != 0 || note->lesson.learned_ns == 0) {
        return true;
    }
    if (fleet->resumes && rule_is_bucket(rule) && note->lesson.presumed_rate != 0) {
        return true; /* before those who were cut off tell what they owe: see seen_bucket */
    }
    if (!rule_is_bucket(rule) && rule->period_ns < UINT64_C(2) * TURN_INTERVALS * interval_ns) {
        return true; /* in its turn it would come too late */
    }
    const bool turn = urge == URGE_TURN;
    if (turn && now_ns > note->lesson.learned_ns + AGE_INTERVALS * interval_ns) {
        return true;
    }
    const uint64_t left = rule_headroom(rule, state, now_ns);
    if (account->untold == 0) {
        if (account->denied != 0 && left != 0) {
            return true; /* it was left to the others, and perhaps they do not want it */
        }
        if ((fleet->interval_count + note->incarnation) % DENIED_EVERY == 0) {
            return true; /* others may have given some back */
        }
        /* Demand alone: of interest when the window ends. */
        const uint64_t reset_ns = rule_reset_after(rule, state, now_ns);
        return !rule_is_bucket(rule) && reset_ns < TURN_INTERVALS * interval_ns;
    }
    const uint64_t own = left - muldiv_ceil(left, load_relaxed(&note->mirror.others_part), PART_WHOLE);
    const uint64_t nodes = membership_nodes(&fleet->membership);
    const uint64_t untold = saturating_mul(account->untold, turn ? 2 : 1);
    return saturating_mul(untold, DUE_SHARE * nodes) >= left || saturating_mul(untold, DUE_OWN_SHARE) >= own;
}

/* A note for a cell that has something to tell; NULL: there is none to be had. */
static struct note *note_for_report(struct fleet *fleet, uint32_t at, struct note *note, const struct note *room,
                                    uint64_t now_ns, enum urge urge)
{
    if (note == room) {
        note = note_give(fleet->process, at, room, fleet->gather_count);
        if (note == NULL) {
            fleet->note_missing = true;
            return NULL;
        }
        learn_again(note, now_ns, fleet->process->interval_ns, urge != URGE_NOW);
    }
    note->round = fleet->gather_count;
    return note;
}

/* What a pinned cell of this limit has to tell. As report_cell. */
static bool report_pinned(struct fleet *fleet, uint32_t at, const struct policy *policy,
                          const struct policy_limit *limit, uint64_t now_ns, enum urge urge)
{
    struct process *process = fleet->process;
    struct table *table = &process->table;
    struct cell *cell = &table->cells[at];
    struct note room;
    struct note *note = note_open(process, at, &limit->rule, now_ns, &room);
    note->lesson.again = note->lesson.again || urge == URGE_AGAIN; /* until it is answered */
    const bool log = rule_is_log(&limit->rule);
    const bool bucket = rule_is_bucket(&limit->rule);
    struct account account = {.untold = 0};
    struct reading reading;
    if (!log) {
        if (!bucket) {
            roll(cell, &limit->rule, now_ns);
        }
        reading = report_read(cell, note->given);
        account = bucket ? bucket_account(fleet, note, &reading, now_ns)
                         : window_account(fleet, note, &limit->rule, &reading, now_ns);
        account.again = note->lesson.again;
        const bool waits = (urge == URGE_IF_DUE && !fleet->tells_all) || urge == URGE_TURN;
        if (waits && !due(fleet, note, &limit->rule, reading.state, &account, now_ns, urge)) {
            bitmap_set(&table->postponed, at);
            counter_add(&fleet->stats.deferred_report_count, urge == URGE_IF_DUE ? 1 : 0);
            if (note == &room && account.denied != 0) {
                note_denied(&process->notes, at, account.denied); /* to be counted when it is due */
            }
            return true;
        }
    }
    note = note_for_report(fleet, at, note, &room, now_ns, urge);
    if (note == NULL) {
        (void) add_relaxed(&room.denied, account.denied);
        note_shut(process, at, &room); /* it is to be told again all the same */
        table_set_dirty(table, at);
        return true;
    }
    const struct kept_key key = note_key(process, at);
    if (log) {
        return report_log(fleet, at, note, &key, policy, limit, now_ns, urge == URGE_AGAIN);
    }
    bitmap_clear(&table->postponed, at);
    note->lesson.round = fleet->gather_count;
    (bucket ? bucket_report : window_report)(fleet, at, note, &key, policy, limit, &reading, &account, now_ns);
    return true;
}

bool report_cell(struct fleet *fleet, const struct policy_set *set, uint32_t at, uint64_t now_ns, enum urge urge)
{
    struct table *table = &fleet->process->table;
    struct cell *cell = &table->cells[at];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0) {
        return true; /* forgotten, and gone to the orphans */
    }
    if (!cell_pin(cell, hash)) {
        return false; /* claimed: about to be forgotten, or not after all */
    }
    const struct policy *policy = NULL;
    const struct policy_limit *limit = report_limit(set, &table->owners[at], &policy);
    const struct note *note = limit != NULL ? note_of(&fleet->process->notes, at) : NULL;
    bool all = true;
    if (note != NULL && note->lesson.round == fleet->gather_count) {
        /* It is in this round: twice would be to take an answer twice. */
        table_set_dirty(table, at);
        all = urge != URGE_AGAIN;
    } else {
        bitmap_clear(&table->dirty, at); /* [T4] before the state is read */
        all = limit == NULL || report_pinned(fleet, at, policy, limit, now_ns, urge);
    }
    cell_unpin(cell);
    return all;
}

bool report_orphan(struct fleet *fleet, const struct policy_set *set, uint32_t index, uint64_t now_ns)
{
    /* A copy: a failed round makes the reports anew, from the note as it was. */
    struct orphan orphan;
    memcpy((void *) &orphan, (const void *) &fleet->orphans[index], sizeof(orphan));
    orphan.note.given = &orphan.given;
    const size_t first = fleet->round.report_count;
    const struct policy *policy = NULL;
    const struct policy_limit *limit = report_limit(set, &orphan.owner, &policy);
    if (limit == NULL) {
        return true;
    }
    if (rule_is_log(&limit->rule)) {
        if (!report_log_orphan(fleet, &orphan, policy, limit, now_ns)) {
            return false;
        }
    } else {
        const struct reading reading = {
            .back = {load_relaxed(&orphan.given.back[0]), load_relaxed(&orphan.given.back[1])}, .state = orphan.state};
        const bool bucket = rule_is_bucket(&limit->rule);
        const struct account account = bucket ? bucket_account(fleet, &orphan.note, &reading, now_ns)
                                              : window_account(fleet, &orphan.note, &limit->rule, &reading, now_ns);
        (bucket ? bucket_report : window_report)(fleet, TABLE_NONE, &orphan.note, &orphan.key, policy, limit, &reading,
                                                 &account, now_ns);
    }
    for (size_t i = first; i < fleet->round.report_count; i++) {
        fleet->origins[i].orphan = index;
    }
    return true;
}
