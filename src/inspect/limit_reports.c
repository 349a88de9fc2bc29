/* SPDX-License-Identifier: Apache-2.0 */
/* See limit_reports.h. */
#include "inspect/limit_reports.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "fleet/keys/record_text.h"
#include "fleet/tuning.h"

/* A bucket's times are kept from here: so long before now. Debts are shorter (WEIR_MAX_UNITS, weir.h). */
#define ORIGIN_BEFORE_NS (UINT64_C(366) * 86400 * NS_PER_S)

/* Bytes of a record's name without a window's number. */
#define NAME_MOST (REPORT_RECORD_SIZE - 22)

struct rule limit_reports_rule(const struct policy_limit *limit, uint64_t now_ns)
{
    struct rule rule = limit->rule; /* as configured or overridden: an outage of a node is no matter here */
    rule.history_max = load_relaxed(&limit->history_max);
    rule.origin_ns = saturating_sub(now_ns, ORIGIN_BEFORE_NS);
    return rule;
}

static void fill_history(const struct limit_records *of, const struct rule *rule, struct report *report,
                         uint64_t now_us, struct history_report *history)
{
    report->history = history;
    report->expire_ms = rule->period_ns / NS_PER_MS + HISTORY_SLACK_MS;
    record_text_write_demand(history->demand_record, of->prefix, of->limit, report->record);
    history->now_us = now_us;
    history->period_us = (rule->period_ns + NS_PER_US - 1) / NS_PER_US;
    history->limit = max_u64(rule->history_max, rule->limit);
}

size_t limit_reports(const struct limit_records *of, const char *author, uint64_t now_ns,
                     struct report reports[LIMIT_REPORTS], struct history_report *history)
{
    const struct rule rule = limit_reports_rule(of->limit, now_ns);
    const bool windows = rule_kind(&rule) == RULE_WINDOW;
    const uint64_t number = windows ? window_span_at(&rule, now_ns).number : 0;
    char name[REPORT_RECORD_SIZE];
    (void) record_text_write(name, of->prefix, of->policy, of->limit, of->text);
    memset(reports, 0, LIMIT_REPORTS * sizeof(*reports));
    const size_t count = windows ? 2 : 1;
    for (size_t i = 0; i < count; i++) {
        struct report *report = &reports[i];
        memcpy(report->record, name, sizeof(name));
        (void) snprintf(report->author, sizeof(report->author), "%s", author);
        report->now_us = report->from_us = now_ns / NS_PER_US;
        switch (rule_kind(&rule)) {
        case RULE_WINDOW:
            (void) snprintf(report->record, sizeof(report->record), "%.*s:%" PRIu64, NAME_MOST, name, number - i);
            report->kind = REPORT_WINDOW;
            report->expire_ms =
                saturating_sub(window_span_of(&rule, number - i + 1).end_ns, now_ns) / NS_PER_MS + WINDOW_SLACK_MS;
            break;
        case RULE_BUCKET:
            report->kind = REPORT_BUCKET;
            report->unit_ps = max_u64(rule.unit * 1000 >> BUCKET_FRACTION_BITS, 1);
            report->expire_ms = BUCKET_SLACK_MS;
            break;
        case RULE_HISTORY:
            report->kind = REPORT_HISTORY;
            fill_history(of, &rule, report, now_ns / NS_PER_US, history);
            break;
        }
    }
    return count;
}
