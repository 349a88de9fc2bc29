/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the fleet's answers to cells. Invariants: R1 to R3 in report.c.
 *
 * Only on the fleet's rung, and only when every node has told what it used: while some have not, after an outage or a
 * loss of records, an answer acknowledges what it was told, and no more.
 */
#include <errno.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/count.h"
#include "base/numbers.h"
#include "fleet/fleet.h"
#include "fleet/report.h"

/* What a record's answer says of the others and of the author. */
struct answer {
    uint64_t others, others_back; /* as this node goes by */
    uint64_t reset;               /* the author's units that were given back in its name */
};

static struct answer answer_of(const struct report *report, const struct told *told, bool listens)
{
    struct answer answer = {.others = load_relaxed(&told->others),
                            .others_back = load_relaxed(&told->others_back),
                            .reset = count_growth(count_told(report->back), report->mine_back)};
    if (listens) {
        /* R3 */
        answer.others = count_others(answer.others, report->sum, report->mine);
        answer.others_back = count_others(answer.others_back, report->sum_back, report->mine_back);
    }
    return answer;
}

/* Counts what is the difference to the last answer. True: something was given back. */
static bool window_fold(struct process *process, uint32_t at, struct note *note, bool before,
                        const struct report *report, bool listens)
{
    struct cell *cell = &process->table.cells[at];
    struct told *told = before ? &note->before : &note->now;
    const uint32_t tag = (load_relaxed(&note->mirror.tag) - before) & WINDOW_TAG_MASK;
    const struct answer answer = answer_of(report, told, listens);
    const uint64_t had = told_folded(told);
    const uint64_t back = answer.others_back - load_relaxed(&told->others_back);
    told->reported = max_u64(told->reported, report->count);
    told->reported_back = max_u64(told->reported_back, report->back);
    store_relaxed(&told->others, answer.others); /* R1 */
    store_relaxed(&told->others_back, answer.others_back);
    if (report->reset_us != 0) {
        store_relaxed(&told->remembered, 0); /* the fleet has given back all there was */
    }
    const uint64_t more = saturating_sub(told_folded(told), had);
    const uint64_t less = saturating_sub(had, told_folded(told));
    if (more == 0 && less == 0 && back == 0 && answer.reset == 0) {
        return false;
    }
    const uint64_t off = back + answer.reset + less + told->deficit;
    struct pair_value value = pair_read(&cell->state);
    struct state folded;
    uint64_t there;
    do {
        folded = window_charge_tag(cell_state(value), tag, more);
        there = window_count_tag(folded, tag);
        folded = window_discharge_tag(folded, tag, off);
    } while (!pair_cas(&cell->state, &value, cell_value(folded, value)));
    told->deficit = saturating_sub(off, there); /* R1 */
    if (answer.reset != 0) {
        given_add_window(given_make(process, at), tag, answer.reset); /* [A1] */
    }
    return back + answer.reset + less != 0;
}

/*
 * The same for a bucket. An answer that holds this node's own units alone changes nothing: the state has counted them
 * as they came.
 */
static bool bucket_fold(struct fleet *fleet, uint32_t at, struct note *note, const struct rule *rule,
                        const struct report *report, bool listens, uint64_t now_ns)
{
    struct process *process = fleet->process;
    struct cell *cell = &process->table.cells[at];
    const struct answer answer = answer_of(report, &note->now, listens);
    const uint64_t back = answer.others_back - load_relaxed(&note->now.others_back);
    struct rule as = *rule;
    rule_rescale(&as, report->scale);
    note->now.reported_back = max_u64(note->now.reported_back, report->back + answer.reset);
    const uint64_t unseen_back = load_acquire(&note->given->back[0]) - report->back; /* [A1] */
    /* Served in part, its units took more time than they were worth: the fleet's is the right one. */
    const bool in_parts = report_in_parts(note, fleet->gathered_ns - process->interval_ns);
    if (listens || !in_parts) {
        note->now.reported = report->count;
    } else {
        table_set_dirty(&process->table, at); /* what they are worth is known while they count as untold (note.c) */
    }
    if (report->moves != 0 && !fleet->tells) {
        table_set_dirty(&process->table, at); /* for what it held back: nobody may use the key again */
    }
    const uint64_t remembered = load_relaxed(&note->now.remembered);
    const bool forgiven = remembered != 0 && report->reset_us != 0;
    const bool alone = answer.others == 0 && !in_parts && !forgiven;
    struct bucket_news news = {.returned = back + answer.reset};
    if (listens && !alone) {
        news.tat_ns = saturating_mul(report->tat_answer_us, NS_PER_US);
        news.unseen_returned = unseen_back;
        news.more = in_parts || forgiven || note->lesson.learned_ns == 0
                        ? UINT64_MAX
                        : answer.others - load_relaxed(&note->now.others);
    }
    struct pair_value value = pair_read(&cell->state);
    struct state folded;
    do {
        struct state state = cell_state(value);
        news.unseen = listens && !alone ? (bucket_total(state) - report->count) & BUCKET_TOTAL_MASK : 0;
        if ((in_parts || forgiven) && listens) {
            /* That one may be a forgotten key's, which the fleet has yet to hear of. */
            state.a = forgiven ? 0 : remembered;
        }
        folded = bucket_merge(&as, state, now_ns, &news);
    } while (!pair_cas(&cell->state, &value, cell_value(folded, value)));
    if (forgiven && listens) {
        store_relaxed(&note->now.remembered, 0);
    }
    if (listens) {
        note->lesson.part_ns = note->lesson.shared ? fleet->gathered_ns : note->lesson.part_ns;
        note->lesson.shared = false;
        news.unseen = 0; /* as of the report */
        note->lesson.known_time = alone ? folded.a : bucket_news_time(&as, &news);
        note->lesson.known_scale = report->scale;
        note->lesson.known_total = alone ? bucket_total(folded) : report->count & BUCKET_TOTAL_MASK;
        note->lesson.known_back = report->back + unseen_back + answer.reset;
    }
    store_relaxed(&note->now.others, answer.others);
    store_relaxed(&note->now.others_back, answer.others_back);
    if (answer.reset != 0) {
        (void) add_release(&given_make(process, at)->back[0], answer.reset); /* [A1] */
    }
    return back + answer.reset != 0;
}

/* Somebody's units are no longer there, and perhaps ours are not, elsewhere. */
static bool lost_some(const struct report *report, const struct told *told)
{
    return count_lacks(load_relaxed(&told->others), report->sum, report->mine);
}

static void fold_bucket(struct fleet *fleet, uint32_t at, struct note *note, const struct rule *rule,
                        const struct report *report, bool listens, uint64_t now_ns)
{
    const uint64_t had = load_relaxed(&note->now.others);
    const bool first = note->lesson.learned_ns == 0;
    fleet->lost = fleet->lost || (listens && lost_some(report, &note->now));
    fleet->given_back = bucket_fold(fleet, at, note, rule, report, listens, now_ns) || fleet->given_back;
    if (listens) {
        learn_others(note, &note->now, report);
        learn_answer(fleet, &fleet->process->table.cells[at], note, rule, report,
                     first ? 0 : load_relaxed(&note->now.others) - had, 0, false);
    }
}

static void fold_windows(struct fleet *fleet, uint32_t at, struct note *note, const struct rule *rule,
                         const struct origin *origin, const struct report *report, bool listens)
{
    struct told *told = origin->before ? &note->before : &note->now;
    const uint64_t had = load_relaxed(&told->others);
    fleet->lost = fleet->lost || (listens && lost_some(report, told));
    fleet->given_back = window_fold(fleet->process, at, note, origin->before, report, listens) || fleet->given_back;
    if (!listens) {
        return;
    }
    learn_others(note, told, report);
    if (!origin->before) {
        const uint64_t number = window_number(rule, load_relaxed(&note->mirror.tag), fleet->gathered_ns);
        learn_answer(fleet, &fleet->process->table.cells[at], note, rule, report, load_relaxed(&told->others) - had,
                     window_span_of(rule, number).start_ns, origin->with_before);
    }
}

static void fold_one(struct fleet *fleet, const struct policy_set *set, const struct origin *origin,
                     const struct report *report, uint64_t now_ns)
{
    struct table *table = &fleet->process->table;
    struct cell *cell = &table->cells[origin->cell];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    struct note *note = note_of(&fleet->process->notes, origin->cell); /* while its round lasts it keeps it */
    const struct policy *policy = NULL;
    const struct policy_limit *limit = report_limit(set, &table->owners[origin->cell], &policy);
    if (limit != NULL && note != NULL && note->incarnation == origin->incarnation &&
        load_relaxed(&note->mirror.tag) == origin->tag) {
        note->given = given_of(fleet->process, origin->cell);
        /* As configured: the ladder's numbers are for requests. */
        struct rule rule = limit->rule;
        rule.log_most = load_relaxed(&limit->log_most);
        const bool listens = load_relaxed(&policy->rung) == RUNG_FLEET && !fleet->awaits;
        note->lesson.again =
            note->lesson.again && (origin->before || !origin->again); /* the present window's is the last */
        if (report->kind == REPORT_BUCKET) {
            fold_bucket(fleet, origin->cell, note, &rule, report, listens, now_ns);
        } else if (report->kind == REPORT_LOG && listens) {
            uint64_t others;
            fleet->given_back =
                report_log_fold(fleet, origin->cell, note, &rule, report, now_ns, &others) || fleet->given_back;
            learn_log(fleet, cell, note, &rule, report, others);
        } else if (report->kind == REPORT_WINDOW) {
            fold_windows(fleet, origin->cell, note, &rule, origin, report, listens);
        }
        if (fleet->awaits && load_relaxed(&note->mirror.since_ns) == 0) {
            table_set_dirty(table, origin->cell); /* it is told of again when answers are taken in */
        }
        if (report->reset_us != 0 && !origin->before) {
            uint64_t reset = load_relaxed(&note->given->reset);
            if (report_time_us(reset) == report->reset_us) {
                (void) cas_relaxed(&note->given->reset, &reset, 0); /* a later one stays */
            }
        }
    }
    cell_unpin(cell);
}

/*
 * A record that the fleet refuses: no answer is to be expected, and its key stays with an even part. In its turn it is
 * told again.
 */
static void refuse(struct fleet *fleet, const struct origin *origin)
{
    struct table *table = &fleet->process->table;
    struct cell *cell = &table->cells[origin->cell];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    struct note *note = note_of(&fleet->process->notes, origin->cell); /* while its round lasts it keeps it */
    if (note != NULL && note->incarnation == origin->incarnation) {
        store_relaxed(&note->mirror.quota_untold, 0);
        store_relaxed(&note->mirror.since_ns, max_u64(load_relaxed(&note->mirror.since_ns), 1));
        bitmap_set(&table->postponed, origin->cell);
    }
    cell_unpin(cell);
}

/* What could not be told is to be told again. */
static void again(struct fleet *fleet, size_t index)
{
    const struct origin *origin = &fleet->origins[index];
    if (origin->cell == TABLE_NONE) {
        return;
    }
    if (fleet->reports[index].kind == REPORT_LOG) {
        report_log_retry(fleet, origin);
    }
    table_set_dirty(&fleet->process->table, origin->cell);
}

/* Drops the forgotten keys that were told of; `kept`: by index, those that were not. */
static void drop_orphans(struct fleet *fleet, const bool *kept)
{
    size_t to = 0;
    for (size_t from = 0; from < fleet->orphan_count; from++) {
        if (from >= fleet->orphans_told || kept[from]) {
            memmove((void *) &fleet->orphans[to++], (const void *) &fleet->orphans[from], sizeof(*fleet->orphans));
        }
    }
    fleet->orphan_count = to;
    fleet->orphans_told = 0;
}

size_t report_apply(struct fleet *fleet, const struct policy_set *set, uint64_t now_ns,
                    const struct report **first_refused)
{
    bool kept[ROUND_ORPHANS] = {false};
    size_t refused = 0;
    fleet->retry_count = 0;
    for (size_t i = 0; i < fleet->round.report_count; i++) {
        const struct report *report = &fleet->reports[i];
        const struct origin *origin = &fleet->origins[i];
        const bool forgotten = origin->cell == TABLE_NONE;
        if (i + 2 < fleet->round.report_count && origin[2].cell != TABLE_NONE) {
            process_prefetch(fleet->process, origin[2].cell);
        }
        if (i + 1 < fleet->round.report_count && origin[1].cell != TABLE_NONE) {
            note_prefetch(&fleet->process->notes, origin[1].cell); /* its stub is there by now */
        }
        if (report->status == -EAGAIN) {
            fleet->retry_count++;
            again(fleet, i);
            if (forgotten) {
                kept[origin->orphan] = true;
            }
        } else if (report->status != 0) {
            *first_refused = refused++ == 0 ? report : *first_refused;
            if (!forgotten) {
                refuse(fleet, origin);
            }
        } else if (!forgotten) {
            fold_one(fleet, set, origin, report, now_ns);
        }
    }
    drop_orphans(fleet, kept);
    if (fleet->retry_count != 0) {
        report_flush_again(fleet);
    }
    return refused;
}

void report_retry(struct fleet *fleet)
{
    for (size_t i = 0; i < fleet->round.report_count; i++) {
        again(fleet, i);
    }
    fleet->round.report_count = 0; /* the forgotten keys stay in fleet->orphans */
    report_flush_again(fleet);
}
