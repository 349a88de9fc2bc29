/* SPDX-License-Identifier: Apache-2.0 */
/* See standing.h. The arithmetic is all of src/algorithm. */
#include "inspect/standing.h"

#include <errno.h>
#include <stdlib.h>

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/error.h"
#include "base/numbers.h"
#include "inspect/authors.h"

/* A reading of a key's records under all limits of a policy. */
struct reading {
    struct report reports[LIMIT_REPORTS * WEIR_MAX_LIMITS];
    struct inspection authors[LIMIT_REPORTS * WEIR_MAX_LIMITS];
    struct history_report histories[WEIR_MAX_LIMITS];
    size_t first[WEIR_MAX_LIMITS + 1]; /* of each limit, among the reports */
};

static struct state state_of_window(weir_inspected_limit *s, const struct rule *rule, uint64_t now_ns)
{
    const uint32_t seq = window_seq_at(rule, now_ns);
    const struct state before = window_charge_seq(window_fresh(rule, now_ns), seq - 1, s->before.used);
    const struct window_span span = window_span_at(rule, now_ns);
    s->start_ns = span.start_ns;
    s->end_ns = span.end_ns;
    s->carried = rule_slides(rule) ? rule->limit - rule_headroom(rule, before, now_ns) : 0;
    s->used = saturating_add(s->record.used, s->carried);
    return window_charge_seq(before, seq, s->record.used);
}

static struct state state_of_bucket(weir_inspected_limit *s, const struct rule *rule, uint64_t tat_us, uint64_t now_ns)
{
    const struct state fresh = rule_fresh(rule, now_ns);
    const uint64_t tat = bucket_time(rule, saturating_mul(tat_us, NS_PER_US));
    const uint64_t now = bucket_time(rule, now_ns);
    if (tat <= now) {
        return fresh;
    }
    const struct state charged = rule_charge(rule, bucket_with_tat(fresh, now), now_ns, 1);
    const struct state state = bucket_with_tat(charged, tat); /* and with the number of the rate */
    s->used = bucket_owed_up(rule, state, now_ns);
    return state;
}

/* NULL: no memory. The caller frees it. */
static struct history *history_of(const struct rule *rule, const struct report *report, uint64_t now_ns)
{
    uint32_t capacity = 1;
    while (capacity < report->sum && capacity < WEIR_MAX_LOG_UNITS) { /* more of them are not weir's */
        capacity *= 2;
    }
    struct history *history = calloc(1, history_size(capacity, 0));
    if (history == NULL) {
        return NULL;
    }
    history_init(history, capacity, 0);
    for (uint32_t i = 0; i < report->history->group_count; i++) {
        history_push(history, report->history->groups[i].time_ns * NS_PER_US, report->history->groups[i].units);
    }
    history_expire(history, rule, now_ns);
    return history;
}

/* What the limit says to a request. False: no memory. */
static bool judge(weir_inspected_limit *s, const struct rule *rule, const struct report *report,
                  const struct standing_question *question)
{
    const uint64_t now_ns = question->fleet->time_ns;
    struct state state = {.a = 0};
    struct history *history = NULL;
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        state = state_of_window(s, rule, now_ns);
        break;
    case RULE_BUCKET:
        state = state_of_bucket(s, rule, report->tat_answer_us, now_ns);
        break;
    case RULE_HISTORY:
        history = history_of(rule, report, now_ns);
        if (history == NULL) {
            return false;
        }
        state = history_summary(history, rule);
        s->used = history_units(history);
        break;
    }
    const struct queue_request request = {.cost = question->cost};
    s->remaining = rule_headroom(rule, state, now_ns);
    s->fits = rule_queue(rule, state, now_ns, &request, &s->retry_after_ns);
    s->retry_after_ns = s->fits           ? 0
                        : history != NULL ? history_retry_after(history, rule, now_ns, question->cost)
                                          : rule_retry_after(rule, state, now_ns, question->cost);
    s->reset_after_ns = rule_reset_after(rule, state, now_ns);
    free(history);
    return true;
}

/* Makes the reports, and asks for the authors of each. */
static struct round make_round(struct reading *r, const struct limit_records *of, size_t count,
                               const struct standing_question *question)
{
    for (size_t i = 0; i < count; i++) {
        r->first[i + 1] = r->first[i] + limit_reports(&of[i], "", question->fleet->time_ns, &r->reports[r->first[i]],
                                                      &r->histories[i]);
    }
    const size_t reports = r->first[count];
    for (size_t i = 0; i < reports; i++) {
        const struct history_report *history = r->reports[i].history;
        r->authors[i] =
            (struct inspection){.kind = INSPECT_AUTHORS,
                                .words = {r->reports[i].record, history != NULL ? history->demand_record : NULL},
                                .key_count = history != NULL ? 2 : 1};
    }
    return (struct round){.node = "reader",
                          .reads = true,
                          .reports = r->reports,
                          .report_count = reports,
                          .inspections = r->authors,
                          .inspection_count = question->with_authors ? reports : 0};
}

/* Takes the answers for one limit. False: no memory. */
static bool take(struct shelf *shelf, const struct limit_records *of, const struct reading *r, size_t limit,
                 const struct standing_question *question, weir_inspected_limit *out)
{
    const struct rule rule = limit_reports_rule(of->limit, question->fleet->time_ns);
    const size_t first = r->first[limit];
    *out = (weir_inspected_limit){.limit = {.algorithm = rule.algorithm,
                                            .limit = of->limit->per_period,
                                            .period_ns = rule.period_ns,
                                            .burst = rule.limit,
                                            .calendar = rule.calendar,
                                            .delay = rule.ahead,
                                            .name = shelf_text(shelf, of->limit->name)},
                                  .at_once = rule.limit};
    return out->limit.name != NULL &&
           authors_take(shelf, &r->reports[first], &r->authors[first], question->fleet, &out->record) &&
           (r->first[limit + 1] - first < 2 ||
            authors_take(shelf, &r->reports[first + 1], &r->authors[first + 1], question->fleet, &out->before)) &&
           judge(out, &rule, &r->reports[first], question);
}

int standing_read(weir_inspector *in, struct shelf *shelf, const struct limit_records *of, size_t count,
                  const struct standing_question *question, weir_inspected_limit *out, weir_error *error)
{
    struct reading *r = calloc(1, sizeof(*r));
    if (r == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    struct round round = make_round(r, of, count, question);
    int result = inspector_round(in, &round, false, error);
    for (size_t i = 0; i < count && result == 0; i++) {
        if (!take(shelf, &of[i], r, i, question, &out[i])) {
            result = error_set(error, -ENOMEM, "out of memory");
        }
    }
    for (size_t i = 0; i < r->first[count]; i++) {
        inspection_free(&r->authors[i]);
    }
    free(r);
    return result;
}
