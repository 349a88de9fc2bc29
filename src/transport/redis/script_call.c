/* SPDX-License-Identifier: Apache-2.0 */
/* See script_call.h. The opening comment of each script lists its keys and arguments. */
#include "transport/redis/script_call.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "base/digits.h"
#include "base/numbers.h"
#include "transport/redis/scripts.h"

/* Arguments of a report beside its key, as the scripts say. */
#define BUCKET_ARGUMENTS  14
#define HISTORY_ARGUMENTS (11 + REPORT_HISTORY_TIMES) /* at most */

#define ARGUMENTS_MAX (4 + (size_t) BATCH_REPORTS * (1 + BUCKET_ARGUMENTS))

_Static_assert(BATCH_HISTORIES *(2 + HISTORY_ARGUMENTS) < BATCH_REPORTS * (1 + BUCKET_ARGUMENTS),
               "a batch of logs fits");

static const struct {
    const char *text, *sha;
} scripts[SCRIPT_COUNT] = {
    [SCRIPT_HEARTBEAT] = {script_heartbeat, script_heartbeat_sha},
    [SCRIPT_OVERRIDES] = {script_overrides, script_overrides_sha},
    [SCRIPT_WINDOW] = {script_report_window, script_report_window_sha},
    [SCRIPT_BUCKET] = {script_report_bucket, script_report_bucket_sha},
    [SCRIPT_HISTORY] = {script_report_history, script_report_history_sha},
};

int script_call_make_room(struct redis_transport *t)
{
    /* Each for itself: an earlier call may have found memory for some of them. */
    t->argv = t->argv != NULL ? t->argv : calloc(ARGUMENTS_MAX, sizeof(*t->argv));
    t->lengths = t->lengths != NULL ? t->lengths : calloc(ARGUMENTS_MAX, sizeof(*t->lengths));
    t->numbers = t->numbers != NULL ? t->numbers : calloc(ARGUMENTS_MAX, sizeof(*t->numbers));
    return t->argv != NULL && t->lengths != NULL && t->numbers != NULL ? 0 : -ENOMEM;
}

struct arguments {
    struct redis_transport *t;
    int count;
};

static void put(struct arguments *a, const char *text)
{
    a->t->argv[a->count] = text;
    a->t->lengths[a->count++] = strlen(text);
}

static void put_number(struct arguments *a, uint64_t value)
{
    char *text = a->t->numbers[a->count];
    a->t->argv[a->count] = text;
    a->t->lengths[a->count++] = decimal_write(text, value);
}

static void put_history(struct arguments *a, const struct report *report)
{
    const struct history_report *history = report->history;
    put_number(a, history->first);
    put_number(a, history->refund_from);
    put_number(a, history->refund_to);
    put_number(a, history->now_us);
    put_number(a, history->period_us);
    put_number(a, history->limit);
    put_number(a, report->demand);
    put_number(a, report->reset_us);
    put_number(a, report->expire_ms);
    put_number(a, history->time_count);
    for (uint32_t i = 0; i < history->time_count; i++) {
        put_number(a, history->times_us[i]);
    }
}

static void put_counts(struct arguments *a, const struct report *report)
{
    put_number(a, count_wire(report->count));
    put_number(a, count_wire(report->demand));
    put_number(a, count_wire(report->refunds));
    put_number(a, report->reset_us);
    put_number(a, report->reset_kept);
    if (report->kind == REPORT_BUCKET) {
        put_number(a, count_wire(report->acked));
        put_number(a, count_wire(report->acked_refunds));
        put_number(a, count_wire(report->known_refunds));
        put_number(a, report->tat_us);
        put_number(a, report->moves != 0 ? report->most_us : report->from_us);
        put_number(a, report->moves);
        put_number(a, report->unit_ps);
    }
    put_number(a, report->expire_ms);
}

static void put_heartbeat(struct arguments *a, const struct batch *batch)
{
    struct redis_transport *t = a->t;
    const struct round *round = t->round;
    const uint32_t suspect_ms = round->suspect_ms != 0 ? round->suspect_ms : round->node_lifetime_ms;
    (void) snprintf(t->member, sizeof(t->member), "%s:%" PRIu32 ":%" PRIu32, round->node, suspect_ms,
                    round->node_lifetime_ms);
    put(a, "1");
    put(a, t->heartbeats[batch->first].key);
    put(a, t->member);
    put_number(a, suspect_ms);
    put_number(a, round->node_lifetime_ms);
    const char *const asks = round->asks ? "2" : "0";
    put(a, round->leaves ? "1" : asks);
    put_number(a, round->fleet_ns / NS_PER_US);
    put_number(a, round->wall_ns / NS_PER_US);
}

static void put_reports(struct arguments *a, const struct batch *batch)
{
    const struct redis_transport *t = a->t;
    const struct report *first = &t->round->reports[t->report_order[batch->first]];
    const bool histories = first->kind == REPORT_HISTORY;
    put_number(a, histories ? UINT64_C(2) * batch->count : batch->count);
    for (size_t i = 0; i < batch->count; i++) {
        put(a, t->round->reports[t->report_order[batch->first + i]].record);
    }
    for (size_t i = 0; histories && i < batch->count; i++) {
        put(a, t->round->reports[t->report_order[batch->first + i]].history->demand_record);
    }
    if (first->kind == REPORT_BUCKET) {
        put_number(a, first->now_us); /* all reports of a round have one time */
    }
    for (size_t i = 0; i < batch->count; i++) {
        const struct report *report = &t->round->reports[t->report_order[batch->first + i]];
        put(a, report->author);
        if (report->kind == REPORT_HISTORY) {
            put_history(a, report);
        } else {
            put_counts(a, report);
        }
    }
}

struct command script_call_words(struct redis_transport *t, const struct batch *batch)
{
    struct arguments a = {t, 0};
    put(&a, batch->with_source ? "EVAL" : "EVALSHA");
    put(&a, batch->with_source ? scripts[batch->script].text : scripts[batch->script].sha);
    if (batch->script == SCRIPT_HEARTBEAT) {
        put_heartbeat(&a, batch);
    } else if (batch->script == SCRIPT_OVERRIDES) {
        put(&a, "1");
        put(&a, t->overrides_key);
        put(&a, t->round->overrides_version);
    } else {
        put_reports(&a, batch);
    }
    return (struct command){a.count, t->argv, t->lengths};
}
