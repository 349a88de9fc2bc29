/* SPDX-License-Identifier: Apache-2.0 */
/* See standing.h. The arithmetic is all of src/algorithm. */
#include "standing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/error.h"
#include "base/numbers.h"
#include "fleet/keys/record_text.h"
#include "fleet/tuning.h"
#include "fleet_round.h"

/* A bucket's times are kept from here: so long before now. Debts are shorter (WEIR_MAX_UNITS, weir.h). */
#define ORIGIN_BEFORE_NS (UINT64_C(366) * 86400 * NS_PER_S)

/* Bytes of a record's name without a window's number. */
#define NAME_MOST (REPORT_RECORD_SIZE - 22)

size_t standing_reports(const struct standing *s, const struct fleet_key *key, const char *author, uint64_t fleet_us,
                        struct report reports[STANDING_REPORTS], struct history_report *history)
{
    const size_t count = rule_kind(&s->rule) == RULE_WINDOW ? 2 : 1;
    memset(reports, 0, STANDING_REPORTS * sizeof(*reports));
    for (size_t i = 0; i < count; i++) {
        struct report *report = &reports[i];
        memcpy(report->record, i == 0 ? s->now.name : s->before.name, sizeof(report->record));
        (void) snprintf(report->author, sizeof(report->author), "%s", author);
        report->now_us = report->from_us = fleet_us;
        switch (rule_kind(&s->rule)) {
        case RULE_WINDOW: {
            const uint64_t end_ns = window_span_of(&s->rule, s->window_number - i + 1).end_ns;
            report->kind = REPORT_WINDOW;
            report->expire_ms = saturating_sub(end_ns, fleet_us * NS_PER_US) / NS_PER_MS + WINDOW_SLACK_MS;
            break;
        }
        case RULE_BUCKET:
            report->kind = REPORT_BUCKET;
            report->unit_ps = max_u64(s->rule.unit * 1000 >> BUCKET_FRACTION_BITS, 1);
            report->expire_ms = BUCKET_SLACK_MS;
            break;
        case RULE_HISTORY:
            report->kind = REPORT_HISTORY;
            report->history = history;
            record_text_write_demand(history->demand_record, key->prefix, s->limit, report->record);
            history->now_us = fleet_us;
            history->period_us = (s->rule.period_ns + NS_PER_US - 1) / NS_PER_US;
            history->limit = max_u64(s->rule.history_max, s->rule.limit);
            report->expire_ms = s->rule.period_ns / NS_PER_MS + HISTORY_SLACK_MS;
            break;
        }
    }
    return count;
}

/* Reads the records and their authors, in one round. `reports` and `history`: the answers. */
static bool read_records(struct standing *s, struct redis_link *link, const struct fleet_key *key,
                         const struct fleet_nodes *nodes, struct report reports[STANDING_REPORTS],
                         struct history_report *history, bool with_authors, weir_error *error)
{
    struct inspection authors[STANDING_REPORTS] = {{.count = 0}, {.count = 0}};
    const size_t count = standing_reports(s, key, "", nodes->fleet_us, reports, history);
    for (size_t i = 0; i < count && with_authors; i++) {
        authors[i] = (struct inspection){
            .kind = INSPECT_AUTHORS,
            .words = {reports[i].record, reports[i].history != NULL ? history->demand_record : NULL},
            .key_count = reports[i].history != NULL ? 2 : 1};
    }
    struct round round = {.node = "reader",
                          .reads = true,
                          .reports = reports,
                          .report_count = count,
                          .inspections = authors,
                          .inspection_count = with_authors ? count : 0};
    bool good = fleet_round(link, key->prefix, &round, error);
    for (size_t i = 0; i < count; i++) {
        good = good && key_record_take(i == 0 ? &s->now : &s->before, &reports[i], &authors[i], nodes, error);
        inspection_free(&authors[i]);
    }
    return good;
}

static struct state window_standing(struct standing *s, uint64_t now_ns)
{
    const uint32_t seq = window_seq_at(&s->rule, now_ns);
    const struct state before = window_charge_seq(window_fresh(&s->rule, now_ns), seq - 1, s->before.net);
    s->carried = rule_slides(&s->rule) ? s->rule.limit - rule_headroom(&s->rule, before, now_ns) : 0;
    s->count = saturating_add(s->now.net, s->carried);
    return window_charge_seq(before, seq, s->now.net);
}

static struct state bucket_standing(struct standing *s, uint64_t tat_us, uint64_t now_ns)
{
    const struct state fresh = rule_fresh(&s->rule, now_ns);
    const uint64_t tat = bucket_time(&s->rule, saturating_mul(tat_us, NS_PER_US));
    const uint64_t now = bucket_time(&s->rule, now_ns);
    if (tat <= now) {
        return fresh;
    }
    const struct state charged = rule_charge(&s->rule, bucket_with_tat(fresh, now), now_ns, 1);
    const struct state state = bucket_with_tat(charged, tat); /* and with the number of the rate */
    s->count = bucket_owed_up(&s->rule, state, now_ns);
    return state;
}

/* NULL: out of memory. The caller frees it. */
static struct history *history_standing(struct standing *s, const struct history_report *answer, uint64_t now_ns)
{
    uint32_t capacity = 1;
    while (capacity < s->now.net) {
        capacity *= 2;
    }
    struct history *history = calloc(1, history_size(capacity, 0));
    if (history == NULL) {
        return NULL;
    }
    history_init(history, capacity, 0);
    for (uint32_t i = 0; i < answer->group_count; i++) {
        history_push(history, answer->groups[i].time_ns * NS_PER_US, answer->groups[i].units);
    }
    history_expire(history, &s->rule, now_ns);
    return history;
}

static bool judge(struct standing *s, const struct report *report, uint64_t now_ns, uint64_t cost, weir_error *error)
{
    struct state state = {.a = 0};
    struct history *history = NULL;
    switch (rule_kind(&s->rule)) {
    case RULE_WINDOW:
        state = window_standing(s, now_ns);
        break;
    case RULE_BUCKET:
        state = bucket_standing(s, report->tat_answer_us, now_ns);
        break;
    case RULE_HISTORY:
        history = history_standing(s, report->history, now_ns);
        if (history == NULL) {
            return error_set(error, -ENOMEM, "out of memory") == 0;
        }
        state = history_summary(history, &s->rule);
        s->count = history_units(history);
        break;
    }
    const struct queue_request request = {.cost = cost};
    s->remaining = rule_headroom(&s->rule, state, now_ns);
    s->fits = rule_queue(&s->rule, state, now_ns, &request, &s->retry_after_ns);
    s->retry_after_ns = s->fits           ? 0
                        : history != NULL ? history_retry_after(history, &s->rule, now_ns, cost)
                                          : rule_retry_after(&s->rule, state, now_ns, cost);
    s->reset_after_ns = rule_reset_after(&s->rule, state, now_ns);
    free(history);
    return true;
}

static void name_records(struct standing *s, const struct fleet_key *key)
{
    char name[REPORT_RECORD_SIZE];
    const size_t length = record_text_write(name, key->prefix, key->policy, s->limit, key->text);
    memcpy(s->now.name, name, length + 1);
    if (rule_kind(&s->rule) == RULE_WINDOW) {
        (void) snprintf(s->now.name, sizeof(s->now.name), "%.*s:%" PRIu64, NAME_MOST, name, s->window_number);
        (void) snprintf(s->before.name, sizeof(s->before.name), "%.*s:%" PRIu64, NAME_MOST, name, s->window_number - 1);
    }
}

bool standing_read(struct standing *out, struct redis_link *link, const struct fleet_key *key,
                   const struct policy_limit *limit, const struct fleet_nodes *nodes, uint64_t cost, bool with_authors,
                   weir_error *error)
{
    const uint64_t now_ns = nodes->fleet_us * NS_PER_US;
    *out = (struct standing){.limit = limit};
    out->rule = policy_rule(out->limit);
    out->rule.origin_ns = saturating_sub(now_ns, ORIGIN_BEFORE_NS);
    out->at_once = out->rule.limit;
    if (rule_kind(&out->rule) == RULE_WINDOW) {
        const struct window_span span = window_span_at(&out->rule, now_ns);
        out->window_number = span.number;
        out->start_ns = span.start_ns;
        out->end_ns = span.end_ns;
        out->ends_after_ns = span.end_ns - now_ns;
    }
    struct report reports[STANDING_REPORTS];
    struct history_report history = {.group_count = 0};
    name_records(out, key);
    return read_records(out, link, key, nodes, reports, &history, with_authors, error) &&
           judge(out, &reports[0], now_ns, cost, error);
}

void standing_free(struct standing *standing)
{
    key_record_free(&standing->now);
    key_record_free(&standing->before);
}
