/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From cells to reports, and from answers back to cells.
 *
 * A cell's state counts what this node admitted and, folded in, what the others did as of the last answer; its note
 * knows the second part (told.others), so the first is the difference, and that is reported. Units of grants are
 * counted when they are settled, so a count never decreases.
 *
 * Units that were given back are counted beside: the note has this node's own, told.others_back the others'.
 *
 * Invariants
 *   R1  window: state count (or previous) = own units - own given back + told.others - told.others_back + told.deficit
 *       of that window; deficit is more than 0 where that would be less than 0 (two nodes have given back the same)
 *   R2  reported <= own units counted; what is counted later makes the cell dirty again
 *   R3  told.others and told.others_back never decrease within a window: what the fleet has lost is told again, and not
 *       admitted again. (But for a key that came with a guess in place of what the others used: the first answer
 *       replaces it.)
 *
 * A log's units are told by number and time; its answer is what the others have in the window, which replaces what it
 * was. Where the fleet turns out not to have this node's units, all in the window are told again.
 *
 * A note's `tag` is the state's when the background thread last looked. If the state has moved on by one window since,
 * the note's `now` belongs to the state's `previous`.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "fleet/fleet.h"
#include "fleet/report.h"

#define SLOT_TAGS 1024

/* How long a bucket's record stays after it is full again. */
#define BUCKET_SLACK_MS 60000

/* Slack for clocks and delays on a window's record, which is wanted until the end of the window after it. */
#define WINDOW_SLACK_MS 1000

/* Bytes as a person can read them: printable ones as they are, the others as %xx. */
static size_t escape(char *out, const unsigned char *bytes, size_t length)
{
    static const char digits[] = "0123456789abcdef";
    size_t at = 0;
    for (size_t i = 0; i < length; i++) {
        const unsigned char byte = bytes[i];
        if (byte > ' ' && byte < 0x7f && byte != '%' && byte != '{' && byte != '}') {
            out[at++] = (char) byte;
        } else {
            out[at++] = '%';
            out[at++] = digits[byte >> 4];
            out[at++] = digits[byte & 15];
        }
    }
    out[at] = '\0';
    return at;
}

static void hex(char *out, const unsigned char *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        (void) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

size_t report_record(const struct fleet *fleet, char record[REPORT_RECORD_SIZE], const struct policy *policy,
                     const struct policy_limit *limit, const struct note *note)
{
    char key[3 * NOTE_KEY_SIZE + 40];
    if ((note->flags & NOTE_KEY_HASHED) != 0) {
        const size_t readable = (note->flags & NOTE_HASH_ONLY) != 0 ? 0 : NOTE_KEY_PREFIX;
        size_t at = escape(key, note->key, readable);
        key[at++] = '~';
        hex(key + at, note->key + readable, 16);
    } else {
        (void) escape(key, note->key, note->key_length);
    }
    /* All records of a key share a partition: of its policy and itself, not of limit and window. */
    char partition[WEIR_MAX_NAME + sizeof(key) + 2];
    const int length = snprintf(partition, sizeof(partition), "%s:%s", policy->base, key);
    uint64_t hash[2];
    hash_shared(partition, (size_t) length, hash);
    return (size_t) snprintf(record, REPORT_RECORD_SIZE, "%s:{%03x}:%s:%s:%s", fleet->prefix,
                             (unsigned) (hash[0] % SLOT_TAGS), limit->label, policy->base, key);
}

struct report *report_add(struct fleet *fleet, uint32_t cell, const struct note *note, bool before)
{
    const size_t index = fleet->round.report_count++;
    struct report *report = &fleet->reports[index];
    fleet->origins[index] = (struct origin){
        .cell = cell, .tag = load_relaxed(&note->tag), .incarnation = note->incarnation, .before = before};
    memset(report, 0, sizeof(*report));
    (void) snprintf(report->author, sizeof(report->author), "%s.%" PRIx64, fleet->node, note->incarnation);
    return report;
}

struct reading report_read(const struct cell *cell, const struct note *note)
{
    struct reading reading;
    reading.back[0] = load_acquire(&note->back[0]);
    reading.back[1] = load_acquire(&note->back[1]);
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

static void told_copy(struct told *to, const struct told *from)
{
    to->reported = from->reported;
    to->reported_back = from->reported_back;
    to->deficit = from->deficit;
    store_relaxed(&to->others, load_relaxed(&from->others));
    store_relaxed(&to->others_back, load_relaxed(&from->others_back));
}

/* Lets the note follow the state into the window with this tag. */
static void note_follow(struct note *note, uint32_t tag)
{
    const uint32_t was = load_relaxed(&note->tag);
    if (was == tag) {
        return;
    }
    if (was != TAG_NONE && ((tag - was) & WINDOW_TAG_MASK) == 1) {
        told_copy(&note->before, &note->now);
    } else {
        told_clear(&note->before);
    }
    told_clear(&note->now);
    note->denied_before = was != TAG_NONE ? load_relaxed(&note->denied) : 0; /* statistics */
    store_relaxed(&note->cold, 0);
    store_relaxed(&note->tag, tag);
}

/* R1, R2: units this node let pass in a window. */
static uint64_t own_count(const struct told *told, uint64_t count, uint64_t back)
{
    const uint64_t net = count + back + load_relaxed(&told->others_back);
    return max_u64(saturating_sub(net, load_relaxed(&told->others) + told->deficit), told->reported);
}

static void window_report(struct fleet *fleet, uint32_t cell, struct note *note, const struct policy *policy,
                          const struct policy_limit *limit, const struct reading *reading, uint64_t now_ns)
{
    const uint32_t tag = window_tag(reading->state);
    const uint64_t number = window_number(&limit->rule, tag, now_ns);
    uint64_t reset_ns = load_relaxed(&note->reset);
    note_follow(note, tag);
    if (reset_ns != 0 && number != 0 && reset_ns < window_span_of(&limit->rule, number - 1).start_ns) {
        (void) cas_relaxed(&note->reset, &reset_ns, 0); /* the windows it was for are over */
    }
    for (int before = 0; before < 2; before++) {
        const struct told *told = before ? &note->before : &note->now;
        const uint64_t back = window_back(reading->back, tag - (uint32_t) before);
        const uint64_t own =
            own_count(told, before ? window_previous(reading->state) : window_count(reading->state), back);
        const uint64_t of = number - (uint64_t) before;
        /* It counts in its own window, and in the one after. */
        const uint64_t end_ns = window_span_of(&limit->rule, of + 1).end_ns;
        /* A window that began after the reset has nothing to do with it. */
        const uint64_t reset =
            window_span_of(&limit->rule, of).start_ns / NS_PER_US <= report_reset_us(note) ? report_reset_us(note) : 0;
        /* What the others do about the window before is of interest for as long as it counts. */
        const bool counts = limit->rule.algorithm == WEIR_SLIDING_WINDOW && window_previous(reading->state) != 0;
        const bool news = counts || own != told->reported || back != told->reported_back || reset != 0;
        if ((before && !news) || end_ns <= now_ns || of > number) {
            continue;
        }
        struct report *report = report_add(fleet, cell, note, before);
        const size_t length = report_record(fleet, report->record, policy, limit, note);
        (void) snprintf(report->record + length, sizeof(report->record) - length, ":%" PRIu64, of);
        report->kind = REPORT_WINDOW;
        report->count = own;
        report->back = back;
        report->reset_us = reset;
        report->reset_kept = load_relaxed(&note->reset_emptied) == 0 ? 0
                             : before                                ? window_previous(reading->state)
                                                                     : window_count(reading->state);
        report->asked = own + (before ? 0 : load_relaxed(&note->denied) - note->denied_before);
        report->expire_ms = (end_ns - now_ns) / NS_PER_MS + WINDOW_SLACK_MS;
    }
}

static void bucket_report(struct fleet *fleet, uint32_t cell, struct note *note, const struct policy *policy,
                          const struct policy_limit *limit, const struct reading *reading, uint64_t now_ns)
{
    /* By the rate the bucket was last charged at: of a tier, an entry of the key's own, or an earlier policy. */
    struct rule rule = limit->rule;
    rule_rescale(&rule, bucket_scale(reading->state));
    const uint64_t reported = note->now.reported;
    const uint64_t more = (bucket_total(reading->state) - reported) & BUCKET_TOTAL_MASK;
    store_relaxed(&note->tag, 0);
    struct report *report = report_add(fleet, cell, note, false);
    (void) report_record(fleet, report->record, policy, limit, note);
    report->kind = REPORT_BUCKET;
    report->count = reported + more;
    report->asked = report->count + load_relaxed(&note->denied);
    report->back = reading->back[0];
    report->reset_us = report_reset_us(note);
    report->reset_kept = load_relaxed(&note->reset_emptied) != 0 ? bucket_owed_up(&rule, reading->state, now_ns) : 0;
    report->scale = rule.scale;
    report->acked = max_u64(reported, note->before.reported);
    report->acked_back = max_u64(note->now.reported_back, note->before.reported_back);
    report->known_back = report->back + load_relaxed(&note->now.others_back);
    report->tat_us = bucket_full_ns(&rule, reading->state, now_ns) / NS_PER_US;
    /* New units came, on average, half an interval ago. */
    report->from_us = (now_ns - (uint64_t) fleet->interval_ms * NS_PER_MS / 2) / NS_PER_US;
    report->unit_ps = max_u64(rule.unit * 1000 >> BUCKET_FRACTION_BITS, 1);
    report->expire_ms = BUCKET_SLACK_MS;
}

/* The limit a note is counted by, where it has something to tell; NULL: it has not. */
static const struct policy_limit *limit_told(const struct policy_set *set, const struct note *note,
                                             const struct policy **policy)
{
    if ((note->flags & NOTE_FLEET) == 0) {
        return NULL;
    }
    return policy_set_limit(set, load_relaxed(&note->group), load_relaxed(&note->limit_tag), policy);
}

static void report_counts(struct fleet *fleet, uint32_t cell, struct note *note, const struct policy *policy,
                          const struct policy_limit *limit, const struct reading *reading, uint64_t now_ns)
{
    if (rule_is_bucket(&limit->rule)) {
        bucket_report(fleet, cell, note, policy, limit, reading, now_ns);
    } else {
        window_report(fleet, cell, note, policy, limit, reading, now_ns);
    }
}

/* One dirty cell. It is pinned meanwhile, so that its note stays its key's. False: it wants another round. */
static bool gather_cell(struct fleet *fleet, const struct policy_set *set, uint32_t at, uint64_t now_ns)
{
    struct table *table = &fleet->tier->table;
    struct cell *cell = &table->cells[at];
    struct note *note = &table->notes[at];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return true; /* forgotten, and gone to the orphans */
    }
    bool all = true;
    const struct policy *policy = NULL;
    const struct policy_limit *limit = limit_told(set, note, &policy);
    if (limit != NULL && rule_is_log(&limit->rule)) {
        all = report_log(fleet, at, note, policy, limit, now_ns);
    } else if (limit != NULL) {
        const struct reading reading = report_read(cell, note);
        report_counts(fleet, at, note, policy, limit, &reading, now_ns);
    }
    cell_unpin(cell);
    return all;
}

static bool gather_orphan(struct fleet *fleet, const struct policy_set *set, const struct orphan *from, uint64_t now_ns)
{
    /* A copy: a failed round makes the reports anew, from the note as it was. */
    struct orphan orphan;
    memcpy((void *) &orphan, (const void *) from, sizeof(orphan));
    const struct policy *policy = NULL;
    const struct policy_limit *limit = limit_told(set, &orphan.note, &policy);
    if (limit == NULL) {
        return true;
    }
    if (rule_is_log(&limit->rule)) {
        return report_log_orphan(fleet, &orphan, policy, limit, now_ns);
    }
    const struct reading reading = {.back = {load_relaxed(&orphan.note.back[0]), load_relaxed(&orphan.note.back[1])},
                                    .state = orphan.state};
    report_counts(fleet, TABLE_NONE, &orphan.note, policy, limit, &reading, now_ns);
    return true;
}

void report_gather(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns)
{
    struct table *table = &fleet->tier->table;
    uint32_t again[ROUND_LOGS];
    size_t again_count = 0;
    fleet->round.report_count = 0;
    fleet->log_count = 0;
    fleet->given_back = false;
    while (fleet->orphan_count < ROUND_ORPHANS && orphans_take(fleet->tier, &fleet->orphans[fleet->orphan_count])) {
        fleet->orphan_count++;
    }
    fleet->orphans_told = 0;
    while (fleet->orphans_told < fleet->orphan_count &&
           gather_orphan(fleet, set, &fleet->orphans[fleet->orphans_told], now_ns)) {
        fleet->orphans_told++;
    }
    /* From where the last round ended, and once around: no key waits for ever behind busier ones. */
    bool around = false;
    bool all = false;
    /* Room for two: a window's cell may have two reports. */
    while (fleet->round.report_count + 2 <= ROUND_REPORTS && again_count < ROUND_LOGS) {
        const uint32_t at = table_next_dirty(table, &fleet->cursor);
        if (at != TABLE_NONE) {
            if (!gather_cell(fleet, set, at, now_ns)) {
                again[again_count++] = at;
            }
            continue;
        }
        fleet->cursor = 0;
        if (around) {
            all = true;
            break;
        }
        around = true;
    }
    /* Logs that had more to tell than fits are dirty again; not before the end, or they would be met twice. */
    for (size_t i = 0; i < again_count; i++) {
        table_set_dirty(table, again[i]);
    }
    fleet->drained =
        all && again_count == 0 && fleet->orphans_told == fleet->orphan_count && fleet->orphan_count < ROUND_ORPHANS;
}

/*
 * Brings the state of a window up to date with an answer: what the others admitted and gave back since the last one,
 * and `reset` units of anybody's that were given back in this node's name. True: something was given back.
 */
static bool window_fold(struct cell *cell, struct note *note, bool before, const struct report *report)
{
    struct told *told = before ? &note->before : &note->now;
    const uint32_t tag = (load_relaxed(&note->tag) - before) & WINDOW_TAG_MASK;
    const uint64_t others = saturating_sub(report->sum, report->mine);
    const uint64_t others_back = saturating_sub(report->sum_back, report->mine_back);
    const uint64_t had = load_relaxed(&told->others);
    const uint64_t more = saturating_sub(others, had);
    const uint64_t less = load_relaxed(&note->cold) != 0 && !before ? saturating_sub(had, others) : 0;
    const uint64_t back = saturating_sub(others_back, load_relaxed(&told->others_back));
    const uint64_t reset = saturating_sub(report->mine_back, report->back);
    told->reported = max_u64(told->reported, report->count);
    told->reported_back = max_u64(told->reported_back, report->back);
    if (!before) {
        store_relaxed(&note->cold, 0);
    }
    if (more == 0 && less == 0 && back == 0 && reset == 0) {
        return false; /* R3 */
    }
    const uint64_t off = less + back + reset + told->deficit;
    struct pair_value value = pair_read(&cell->state);
    struct state folded;
    uint64_t there;
    do {
        folded = window_charge_tag(cell_state(value), tag, more);
        there = window_count_tag(folded, tag);
        folded = window_discharge_tag(folded, tag, off);
    } while (!pair_cas(&cell->state, &value, cell_value(folded, value)));
    told->deficit = saturating_sub(off, there);      /* R1 */
    store_relaxed(&told->others, had + more - less); /* R1 */
    store_relaxed(&told->others_back, load_relaxed(&told->others_back) + back);
    if (reset != 0) {
        adjust_back_window(note, tag, reset); /* [A1] */
    }
    return less + back + reset != 0;
}

/* The same for a bucket. */
static bool bucket_fold(struct cell *cell, struct note *note, const struct rule *rule, const struct report *report,
                        uint64_t now_ns)
{
    const uint64_t others_back = saturating_sub(report->sum_back, report->mine_back);
    const uint64_t back = saturating_sub(others_back, load_relaxed(&note->now.others_back));
    const uint64_t reset = saturating_sub(report->mine_back, report->back);
    struct rule as = *rule;
    rule_rescale(&as, report->scale);
    rule = &as;
    note->now.reported = report->count;
    note->now.reported_back = max_u64(note->now.reported_back, report->mine_back);
    const uint64_t unseen_back = load_acquire(&note->back[0]) - report->back; /* [A1] */
    struct pair_value value = pair_read(&cell->state);
    struct state folded;
    do {
        const struct state state = cell_state(value);
        const uint64_t unseen = (bucket_total(state) - report->count) & BUCKET_TOTAL_MASK;
        folded = bucket_merge(rule, state, now_ns, saturating_mul(report->tat_answer_us, NS_PER_US), unseen,
                              unseen_back, back + reset);
    } while (!pair_cas(&cell->state, &value, cell_value(folded, value)));
    store_relaxed(&note->now.others_back, load_relaxed(&note->now.others_back) + back);
    if (reset != 0) {
        (void) add_release(&note->back[0], reset); /* [A1] */
    }
    return back + reset != 0;
}

static void apply_one(struct fleet *fleet, const struct policy_set *set, const struct origin *origin,
                      const struct report *report, uint64_t now_ns)
{
    struct table *table = &fleet->tier->table;
    struct cell *cell = &table->cells[origin->cell];
    struct note *note = &table->notes[origin->cell];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    const struct policy *policy = NULL;
    const struct policy_limit *limit = limit_told(set, note, &policy);
    if (note->incarnation == origin->incarnation && load_relaxed(&note->tag) == origin->tag && limit != NULL) {
        /* As configured: the ladder's numbers are for requests. */
        struct rule rule = limit->rule;
        rule.log_most = load_relaxed(&limit->log_most);
        bool returned = false;
        if (report->kind == REPORT_BUCKET) {
            returned = bucket_fold(cell, note, &rule, report, now_ns);
        } else if (report->kind == REPORT_LOG) {
            returned = report_log_fold(fleet, origin->cell, &rule, report, now_ns);
        } else {
            returned = window_fold(cell, note, origin->before, report);
        }
        fleet->given_back = fleet->given_back || returned;
        if (report->reset_us != 0 && !origin->before) {
            uint64_t reset = load_relaxed(&note->reset);
            if (report_time_us(reset) == report->reset_us) {
                (void) cas_relaxed(&note->reset, &reset, 0); /* a later one stays */
            }
        }
    }
    cell_unpin(cell);
}

/* A record that the fleet refuses is limited by this node's own counts: not by a guess of what the others have. */
static void unguess(struct fleet *fleet, const struct origin *origin)
{
    struct table *table = &fleet->tier->table;
    struct cell *cell = &table->cells[origin->cell];
    struct note *note = &table->notes[origin->cell];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    if (note->incarnation == origin->incarnation && load_relaxed(&note->cold) != 0) {
        struct pair_value value = pair_read(&cell->state);
        struct state state;
        do {
            state = window_discharge_tag(cell_state(value), load_relaxed(&note->tag), load_relaxed(&note->now.others));
        } while (!pair_cas(&cell->state, &value, cell_value(state, value)));
        store_relaxed(&note->now.others, 0);
        store_relaxed(&note->cold, 0);
    }
    cell_unpin(cell);
}

size_t report_apply(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns,
                    const struct report **first_refused)
{
    size_t refused = 0;
    for (size_t i = 0; i < fleet->round.report_count; i++) {
        const struct report *report = &fleet->reports[i];
        if (report->status != 0) {
            *first_refused = refused++ == 0 ? report : *first_refused;
            if (fleet->origins[i].cell != TABLE_NONE) {
                unguess(fleet, &fleet->origins[i]);
            }
            continue;
        }
        if (fleet->origins[i].cell != TABLE_NONE) {
            apply_one(fleet, set, &fleet->origins[i], report, now_ns);
        }
    }
    fleet->orphan_count -= fleet->orphans_told;
    memmove((void *) fleet->orphans, (const void *) (fleet->orphans + fleet->orphans_told),
            fleet->orphan_count * sizeof(*fleet->orphans));
    fleet->orphans_told = 0;
    return refused;
}

void report_retry(struct fleet *fleet)
{
    for (size_t i = 0; i < fleet->round.report_count; i++) {
        if (fleet->origins[i].cell == TABLE_NONE) {
            continue;
        }
        if (fleet->reports[i].kind == REPORT_LOG) {
            report_log_retry(fleet, &fleet->origins[i]);
        }
        table_set_dirty(&fleet->tier->table, fleet->origins[i].cell);
    }
    fleet->round.report_count = 0; /* the forgotten keys stay in fleet->orphans */
}

void report_all_again(struct fleet *fleet)
{
    struct table *table = &fleet->tier->table;
    for (uint32_t at = 0; at < table->cell_count; at++) {
        if (load_relaxed(&table->cells[at].hash) != 0) {
            table_set_dirty(table, at);
        }
    }
}
