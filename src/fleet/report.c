/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From cells to reports, and from answers back to cells.
 *
 * A cell's state counts what this node admitted and, folded in, what the others did as of the last answer; its note
 * knows the second part (told.others), so the first is the difference, and that is reported. Units of grants are
 * counted when they are settled, so a count never decreases.
 *
 * Invariants
 *   R1  window: state count (or previous) = own units + told.others of that window
 *   R2  reported <= own units counted; what is counted later makes the cell dirty again
 *   R3  told.others never decreases within a window: what the fleet has lost is told again, and not admitted again
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

/* "{prefix}:{slot tag}:label:policy:key", without a window's number. */
static size_t record_write(const struct fleet *fleet, char record[REPORT_RECORD_SIZE], const struct policy *policy,
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
    const int length = snprintf(partition, sizeof(partition), "%s:%s", policy->name, key);
    uint64_t hash[2];
    hash_shared(partition, (size_t) length, hash);
    return (size_t) snprintf(record, REPORT_RECORD_SIZE, "%s:{%03x}:%s:%s:%s", fleet->prefix,
                             (unsigned) (hash[0] % SLOT_TAGS), limit->label, policy->name, key);
}

static struct report *report_add(struct fleet *fleet, uint32_t cell, const struct note *note, bool before)
{
    const size_t index = fleet->round.report_count++;
    struct report *report = &fleet->reports[index];
    fleet->origins[index] =
        (struct origin){.cell = cell, .tag = note->tag, .incarnation = note->incarnation, .before = before};
    memset(report, 0, sizeof(*report));
    (void) snprintf(report->author, sizeof(report->author), "%s.%" PRIx64, fleet->node, note->incarnation);
    return report;
}

/* Lets the note follow the state into the window with this tag. */
static void note_follow(struct note *note, uint32_t tag)
{
    if (note->tag == tag) {
        return;
    }
    const uint32_t moved = (tag - note->tag) & WINDOW_TAG_MASK;
    note->before = note->tag != UINT32_MAX && moved == 1 ? note->now : (struct told){0, 0};
    note->now = (struct told){0, 0};
    note->denied_before = note->tag != UINT32_MAX ? load_relaxed(&note->denied) : 0; /* statistics */
    note->tag = tag;
}

static void window_report(struct fleet *fleet, uint32_t cell, struct note *note, const struct policy *policy,
                          const struct policy_limit *limit, struct state state, uint64_t now_ns)
{
    const uint32_t tag = window_tag(state);
    const uint64_t period_ns = limit->rule.period_ns;
    const uint64_t number = window_number(&limit->rule, tag, now_ns);
    note_follow(note, tag);
    for (int before = 0; before < 2; before++) {
        const struct told *told = before ? &note->before : &note->now;
        const uint64_t count = before ? window_previous(state) : window_count(state);
        const uint64_t own = max_u64(saturating_sub(count, told->others), told->reported); /* R2 */
        const uint64_t end_ns = (number + 2 - (uint64_t) before) * period_ns;
        if ((before && own == told->reported) || end_ns <= now_ns) {
            continue;
        }
        struct report *report = report_add(fleet, cell, note, before);
        const size_t length = record_write(fleet, report->record, policy, limit, note);
        (void) snprintf(report->record + length, sizeof(report->record) - length, ":%" PRIu64,
                        number - (uint64_t) before);
        report->kind = REPORT_WINDOW;
        report->count = own;
        report->asked = own + (before ? 0 : load_relaxed(&note->denied) - note->denied_before);
        report->expire_ms = (end_ns - now_ns) / NS_PER_MS + WINDOW_SLACK_MS;
    }
}

static void bucket_report(struct fleet *fleet, uint32_t cell, struct note *note, const struct policy *policy,
                          const struct policy_limit *limit, struct state state, uint64_t now_ns)
{
    const uint64_t reported = note->now.reported;
    const uint64_t more = (bucket_total(state) - reported) & BUCKET_TOTAL_MASK;
    note->tag = 0;
    struct report *report = report_add(fleet, cell, note, false);
    (void) record_write(fleet, report->record, policy, limit, note);
    report->kind = REPORT_BUCKET;
    report->count = reported + more;
    report->asked = report->count + load_relaxed(&note->denied);
    report->acked = max_u64(reported, note->before.reported);
    report->tat_us = bucket_time_ns(&limit->rule, state.a) / NS_PER_US;
    /* New units came, on average, half an interval ago. */
    report->from_us = (now_ns - (uint64_t) fleet->interval_ms * NS_PER_MS / 2) / NS_PER_US;
    report->unit_ps = max_u64(limit->rule.unit * 1000 >> BUCKET_FRACTION_BITS, 1);
    report->expire_ms = BUCKET_SLACK_MS;
}

static void report_make(struct fleet *fleet, const struct policy_set *set, uint32_t cell, struct note *note,
                        struct state state, uint64_t now_ns)
{
    const struct policy *policy = set->by_id[load_relaxed(&note->policy)];
    const size_t index = load_relaxed(&note->limit_index);
    if ((note->flags & NOTE_FLEET) == 0 || policy == NULL || index >= policy->limit_count) {
        return;
    }
    const struct policy_limit *limit = &policy->limits[index];
    if (limit->rule.algorithm == WEIR_TOKEN_BUCKET) {
        bucket_report(fleet, cell, note, policy, limit, state, now_ns);
    } else {
        window_report(fleet, cell, note, policy, limit, state, now_ns);
    }
}

/* One dirty cell. It is pinned meanwhile, so that its note stays its key's. */
static void gather_cell(struct fleet *fleet, const struct policy_set *set, uint32_t at, uint64_t now_ns)
{
    struct table *table = &fleet->tier->table;
    struct cell *cell = &table->cells[at];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return; /* forgotten, and gone to the orphans */
    }
    report_make(fleet, set, at, &table->notes[at], cell_state(pair_read(&cell->state)), now_ns);
    cell_unpin(cell);
}

void report_gather(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns)
{
    fleet->round.report_count = 0;
    while (fleet->orphan_count < ROUND_ORPHANS && orphans_take(fleet->tier, &fleet->orphans[fleet->orphan_count])) {
        fleet->orphan_count++;
    }
    for (size_t i = 0; i < fleet->orphan_count; i++) {
        /* A copy: a failed round makes the reports anew, from the note as it was. */
        struct orphan orphan;
        memcpy((void *) &orphan, (const void *) &fleet->orphans[i], sizeof(orphan));
        report_make(fleet, set, TABLE_NONE, &orphan.note, orphan.state, now_ns);
    }
    /* From where the last round ended, and once around: no key waits for ever behind busier ones. */
    bool around = false;
    bool all = false;
    /* Room for two: a window's cell may have two reports. */
    while (fleet->round.report_count + 2 <= ROUND_REPORTS) {
        const uint32_t at = table_next_dirty(&fleet->tier->table, &fleet->cursor);
        if (at != TABLE_NONE) {
            gather_cell(fleet, set, at, now_ns);
            continue;
        }
        fleet->cursor = 0;
        if (around) {
            all = true;
            break;
        }
        around = true;
    }
    fleet->drained = all && fleet->orphan_count < ROUND_ORPHANS;
}

/* Adds what the others admitted in one window to the state it belongs to. */
static void window_fold(struct cell *cell, struct told *told, uint32_t tag, uint64_t others)
{
    if (others <= told->others) {
        return; /* R3 */
    }
    const uint64_t news = others - told->others;
    struct pair_value value = pair_read(&cell->state);
    struct state folded;
    do {
        folded = window_charge_tag(cell_state(value), tag, news);
    } while (!pair_cas(&cell->state, &value, cell_value(folded, value)));
    told->others = others; /* R1 */
}

static void bucket_fold(struct cell *cell, struct note *note, const struct rule *rule, const struct report *report)
{
    note->now.reported = report->count;
    struct pair_value value = pair_read(&cell->state);
    struct state folded;
    do {
        const struct state state = cell_state(value);
        const uint64_t unseen = (bucket_total(state) - report->count) & BUCKET_TOTAL_MASK;
        folded = bucket_merge(rule, state, report->tat_answer_us * NS_PER_US, unseen);
    } while (!pair_cas(&cell->state, &value, cell_value(folded, value)));
}

static void apply_one(struct fleet *fleet, const struct policy_set *set, const struct origin *origin,
                      const struct report *report)
{
    struct table *table = &fleet->tier->table;
    struct cell *cell = &table->cells[origin->cell];
    struct note *note = &table->notes[origin->cell];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    const struct policy *policy = set->by_id[load_relaxed(&note->policy)];
    const size_t index = load_relaxed(&note->limit_index);
    if (note->incarnation == origin->incarnation && note->tag == origin->tag && policy != NULL &&
        index < policy->limit_count) {
        if (report->kind == REPORT_BUCKET) {
            const struct rule rule = policy_rule(&policy->limits[index]);
            bucket_fold(cell, note, &rule, report);
        } else {
            struct told *told = origin->before ? &note->before : &note->now;
            told->reported = max_u64(told->reported, report->count);
            window_fold(cell, told, (note->tag - origin->before) & WINDOW_TAG_MASK,
                        saturating_sub(report->sum, report->mine));
        }
    }
    cell_unpin(cell);
}

size_t report_apply(struct fleet *fleet, const struct policy_set *set, const struct report **first_refused)
{
    size_t refused = 0;
    for (size_t i = 0; i < fleet->round.report_count; i++) {
        const struct report *report = &fleet->reports[i];
        if (report->status != 0) {
            *first_refused = refused++ == 0 ? report : *first_refused;
            continue;
        }
        if (fleet->origins[i].cell != TABLE_NONE) {
            apply_one(fleet, set, &fleet->origins[i], report);
        }
    }
    fleet->orphan_count = 0;
    return refused;
}

void report_retry(struct fleet *fleet)
{
    for (size_t i = 0; i < fleet->round.report_count; i++) {
        if (fleet->origins[i].cell != TABLE_NONE) {
            table_set_dirty(&fleet->tier->table, fleet->origins[i].cell);
        }
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

/* Pins cell by cell and calls `visit` where the note's policy is as asked for (NULL: any). */
static void for_each_cell(struct fleet *fleet, const struct policy *only,
                          void (*visit)(struct cell *cell, struct note *note, void *arg), void *arg)
{
    struct table *table = &fleet->tier->table;
    for (uint32_t at = 0; at < table->cell_count; at++) {
        struct cell *cell = &table->cells[at];
        const uint64_t hash = load_acquire(&cell->hash);
        if (hash == 0 || (only != NULL && load_relaxed(&table->notes[at].policy) != only->id) ||
            !cell_pin(cell, hash)) {
            continue;
        }
        visit(cell, &table->notes[at], arg);
        cell_unpin(cell);
    }
}

static void unfold(struct cell *cell, struct note *note, void *arg)
{
    const struct policy *policy = arg;
    const size_t index = load_relaxed(&note->limit_index);
    if (index >= policy->limit_count || policy->limits[index].rule.algorithm == WEIR_TOKEN_BUCKET ||
        (note->now.others == 0 && note->before.others == 0)) {
        return;
    }
    struct pair_value value = pair_read(&cell->state);
    struct state state;
    do {
        state = window_discharge_tag(cell_state(value), note->tag, note->now.others);
        state = window_discharge_tag(state, (note->tag - 1) & WINDOW_TAG_MASK, note->before.others);
    } while (!pair_cas(&cell->state, &value, cell_value(state, value)));
    note->now.others = 0;
    note->before.others = 0;
}

void report_forget_others(struct fleet *fleet, const struct policy *policy)
{
    for_each_cell(fleet, policy, unfold, (void *) (uintptr_t) policy);
}

static void forgive(struct cell *cell, struct note *note, void *arg)
{
    const struct policy *policy = arg;
    const size_t index = load_relaxed(&note->limit_index);
    if (index < policy->limit_count && policy->limits[index].rule.algorithm == WEIR_TOKEN_BUCKET) {
        const uint64_t total = bucket_total(cell_state(pair_read(&cell->state)));
        note->before.reported = note->now.reported + ((total - note->now.reported) & BUCKET_TOTAL_MASK);
    }
}

void report_forgive(struct fleet *fleet, const struct policy *policy)
{
    for_each_cell(fleet, policy, forgive, (void *) (uintptr_t) policy);
}

struct shift {
    const struct policy_set *set;
    uint64_t now_ns;
    int64_t delta_ns;
};

static void shift_cell(struct cell *cell, struct note *note, void *arg)
{
    const struct shift *shift = arg;
    const struct policy *policy = shift->set->by_id[load_relaxed(&note->policy)];
    const size_t index = load_relaxed(&note->limit_index);
    if (policy == NULL || index >= policy->limit_count) {
        return;
    }
    const struct rule *rule = &policy->limits[index].rule;
    const uint64_t later_ns = shift->now_ns + (uint64_t) shift->delta_ns;
    const uint32_t windows = (uint32_t) (later_ns / rule->period_ns) - (uint32_t) (shift->now_ns / rule->period_ns);
    struct pair_value value = pair_read(&cell->state);
    struct state state;
    do {
        state = cell_state(value);
        if (rule->algorithm == WEIR_TOKEN_BUCKET) {
            const uint64_t moved = state.a + ((uint64_t) shift->delta_ns << BUCKET_FRACTION_BITS);
            const bool back_too_far = shift->delta_ns < 0 && moved > state.a;
            state.a = state.a == 0 || back_too_far ? 0 : moved;
        } else {
            state = window_state(window_tag(state) + windows, window_count(state), window_previous(state));
        }
    } while (!pair_cas(&cell->state, &value, cell_value(state, value)));
    if (rule->algorithm != WEIR_TOKEN_BUCKET && note->tag != UINT32_MAX) {
        note->tag = (note->tag + windows) & WINDOW_TAG_MASK;
    }
}

void report_shift_time(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns, int64_t delta_ns)
{
    struct shift shift = {.set = set, .now_ns = now_ns, .delta_ns = delta_ns};
    for_each_cell(fleet, NULL, shift_cell, &shift);
}
