/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a round says and hears: a heartbeat, the entries of single keys where they have changed, then the reports in
 * script calls of up to BATCH_REPORTS (of logs BATCH_LOGS).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "redis/internal.h"

/* Arguments of a report, beside its key; as the scripts say. */
#define WINDOW_ARGUMENTS 7
#define BUCKET_ARGUMENTS 13
#define LOG_ARGUMENTS    (10 + REPORT_LOG_TIMES) /* at most */
#define WINDOW_ANSWERS   6
#define BUCKET_ANSWERS   7
#define LOG_ANSWERS      4 /* and two per group */

#define ARGUMENTS_MAX (3 + (size_t) BATCH_REPORTS * (1 + BUCKET_ARGUMENTS))

_Static_assert(BATCH_LOGS *(1 + LOG_ARGUMENTS) < BATCH_REPORTS * (1 + BUCKET_ARGUMENTS), "a batch of logs fits");

void problem_set(struct redis_transport *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void) vsnprintf(t->problem, sizeof(t->problem), format, arguments);
    va_end(arguments);
    /* It goes into a log line, and may hold what a stranger sent. */
    for (char *c = t->problem; *c != '\0'; c++) {
        if ((unsigned char) *c < ' ' || (unsigned char) *c >= 0x7f) {
            *c = '?';
        }
    }
}

/* Grows what a round of `count` reports needs; kept from round to round. */
static int reserve(struct redis_transport *t, size_t count)
{
    if (t->argv == NULL) {
        t->argv = calloc(ARGUMENTS_MAX, sizeof(*t->argv));
        t->lengths = calloc(ARGUMENTS_MAX, sizeof(*t->lengths));
        t->numbers = calloc(ARGUMENTS_MAX, sizeof(*t->numbers));
        if (t->argv == NULL || t->lengths == NULL || t->numbers == NULL) {
            return -ENOMEM;
        }
    }
    if (count > t->order_size) {
        uint32_t *order = realloc(t->order, count * sizeof(*order));
        if (order == NULL) {
            return -ENOMEM;
        }
        t->order = order;
        t->order_size = count;
    }
    const size_t batches = 2 + count / BATCH_LOGS + 3;
    if (batches > t->batch_size) {
        struct batch *grown = realloc(t->batches, batches * sizeof(*grown));
        if (grown == NULL) {
            return -ENOMEM;
        }
        t->batches = grown;
        t->batch_size = batches;
    }
    return 0;
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
    const int length = snprintf(text, sizeof(a->t->numbers[0]), "%" PRIu64, value);
    a->t->argv[a->count] = text;
    a->t->lengths[a->count++] = (size_t) length;
}

/* The beginning of a script call with one key, which is no batch of reports. */
static struct arguments call_begin(struct redis_transport *t, enum script script, const char *key)
{
    struct arguments a = {t, 0};
    put(&a, "EVALSHA");
    put(&a, t->shas[script]);
    put(&a, "1");
    put(&a, key);
    t->batches[t->batch_count++] = (struct batch){script, 0, 0};
    return a;
}

static int queue_heartbeat(struct redis_transport *t)
{
    struct arguments a = call_begin(t, SCRIPT_HEARTBEAT, t->nodes_key);
    put(&a, t->round->node);
    put_number(&a, t->round->node_lifetime_ms);
    return link_command(&t->link, a.count, t->argv, t->lengths);
}

static int queue_overrides(struct redis_transport *t)
{
    struct arguments a = call_begin(t, SCRIPT_OVERRIDES, t->overrides_key);
    put(&a, t->round->overrides_version);
    return link_command(&t->link, a.count, t->argv, t->lengths);
}

static void put_log(struct arguments *a, const struct report *report)
{
    const struct log_news *log = report->log;
    put_number(a, log->first);
    put_number(a, log->gone_from);
    put_number(a, log->gone_to);
    put_number(a, log->now_us);
    put_number(a, log->period_us);
    put_number(a, log->limit);
    put_number(a, report->reset_us);
    put_number(a, report->expire_ms);
    put_number(a, log->time_count);
    for (uint32_t i = 0; i < log->time_count; i++) {
        put_number(a, log->times_us[i]);
    }
}

static void put_counts(struct arguments *a, const struct report *report)
{
    put_number(a, report->count);
    put_number(a, report->asked);
    put_number(a, report->back);
    put_number(a, report->reset_us);
    put_number(a, report->reset_kept);
    if (report->kind == REPORT_BUCKET) {
        put_number(a, report->acked);
        put_number(a, report->acked_back);
        put_number(a, report->known_back);
        put_number(a, report->tat_us);
        put_number(a, report->from_us);
        put_number(a, report->unit_ps);
    }
    put_number(a, report->expire_ms);
}

static int queue_batch(struct redis_transport *t, const struct batch *batch)
{
    struct arguments a = {t, 0};
    put(&a, "EVALSHA");
    put(&a, t->shas[batch->script]);
    put_number(&a, batch->count);
    for (size_t i = 0; i < batch->count; i++) {
        put(&a, t->round->reports[t->order[batch->first + i]].record);
    }
    for (size_t i = 0; i < batch->count; i++) {
        const struct report *report = &t->round->reports[t->order[batch->first + i]];
        put(&a, report->author);
        if (report->kind == REPORT_LOG) {
            put_log(&a, report);
        } else {
            put_counts(&a, report);
        }
    }
    return link_command(&t->link, a.count, t->argv, t->lengths);
}

/* Queues the reports of one kind. */
static int queue_kind(struct redis_transport *t, enum report_kind kind, enum script script, size_t *ordered)
{
    const size_t first = *ordered;
    const size_t most = kind == REPORT_LOG ? BATCH_LOGS : BATCH_REPORTS;
    for (uint32_t i = 0; i < t->round->report_count; i++) {
        if (t->round->reports[i].kind == kind) {
            t->order[(*ordered)++] = i;
        }
    }
    for (size_t at = first; at < *ordered; at += most) {
        struct batch *batch = &t->batches[t->batch_count++];
        *batch = (struct batch){script, at, *ordered - at < most ? *ordered - at : most};
        const int result = queue_batch(t, batch);
        if (result != 0) {
            return result;
        }
    }
    return 0;
}

int round_queue(struct redis_transport *t)
{
    size_t ordered = 0;
    t->batch_count = t->batch_next = 0;
    int result = reserve(t, t->round->report_count);
    result = result != 0 ? result : queue_heartbeat(t);
    result = result != 0 ? result : queue_overrides(t);
    result = result != 0 ? result : queue_kind(t, REPORT_WINDOW, SCRIPT_WINDOW, &ordered);
    result = result != 0 ? result : queue_kind(t, REPORT_BUCKET, SCRIPT_BUCKET, &ordered);
    result = result != 0 ? result : queue_kind(t, REPORT_LOG, SCRIPT_LOG, &ordered);
    return result;
}

/* Whether a reply is `count` integers, none below 0. */
static bool are_numbers(const redisReply *reply, size_t count)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != count) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (reply->element[i]->type != REDIS_REPLY_INTEGER || reply->element[i]->integer < 0) {
            return false;
        }
    }
    return true;
}

static uint64_t number_at(const redisReply *reply, size_t i)
{
    return (uint64_t) reply->element[i]->integer;
}

static bool take_heartbeat(struct redis_transport *t, const redisReply *reply, uint64_t now_ns)
{
    if (!are_numbers(reply, 4)) {
        return false;
    }
    struct round *round = t->round;
    round->received_ns = now_ns;
    round->fleet_wall_ns = number_at(reply, 0) * NS_PER_S + number_at(reply, 1) * NS_PER_US;
    round->live_nodes = (uint32_t) number_at(reply, 3);
    const bool another = t->good_identity[0] != '\0' && strcmp(t->identity, t->good_identity) != 0;
    round->forgot = !round->first && (another || number_at(reply, 2) == 0);
    return true;
}

/* Whether a reply is strings: a version, and then fields with their values. */
static bool are_entries(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements % 2 != 1) {
        return false;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        if (reply->element[i]->type != REDIS_REPLY_STRING) {
            return false;
        }
        /* Bytes that a field must escape end it, and it is malformed. */
        for (size_t at = 0; at < reply->element[i]->len; at++) {
            reply->element[i]->str[at] = reply->element[i]->str[at] != '\0' ? reply->element[i]->str[at] : '%';
        }
    }
    return true;
}

static bool take_overrides(struct redis_transport *t, const redisReply *reply)
{
    struct round *round = t->round;
    if (!are_entries(reply)) {
        return false;
    }
    const char *version = reply->element[0]->str;
    const size_t count = (reply->elements - 1) / 2;
    /* To be told of none, and to know of none, is no news. */
    if (strcmp(version, round->overrides_version) == 0 || (count == 0 && round->overrides_version[0] == '\0')) {
        return true;
    }
    struct override_text *texts = calloc(count + 1, sizeof(*texts));
    bool whole = texts != NULL;
    for (size_t i = 0; i < count && whole; i++) {
        texts[i].field = strdup(reply->element[1 + 2 * i]->str);
        texts[i].value = strdup(reply->element[2 + 2 * i]->str);
        whole = texts[i].field != NULL && texts[i].value != NULL;
    }
    if (!whole) {
        overrides_drop(texts, count); /* the version stays, so it is tried again */
        return true;
    }
    round->overrides = texts;
    round->override_count = count;
    round->overrides_new = true;
    (void) snprintf(round->overrides_version, sizeof(round->overrides_version), "%s", version);
    return true;
}

static bool take_log(struct report *report, const redisReply *reply)
{
    const size_t groups = reply->elements >= LOG_ANSWERS ? (reply->elements - LOG_ANSWERS) / 2 : 0;
    if (groups > LOG_GROUPS || !are_numbers(reply, LOG_ANSWERS + 2 * groups)) {
        return false;
    }
    report->status = number_at(reply, 0) == 0 ? 0 : -EPROTO;
    report->mine = number_at(reply, 1);
    report->sum = number_at(reply, 2);
    report->log->reset_us = number_at(reply, 3);
    report->log->group_count = (uint32_t) groups;
    for (size_t i = 0; i < groups; i++) {
        report->log->groups[i] = (struct log_group){.time_ns = number_at(reply, LOG_ANSWERS + 2 * i),
                                                    .units = number_at(reply, LOG_ANSWERS + 2 * i + 1)};
    }
    return true;
}

static bool take_logs(struct redis_transport *t, const struct batch *batch, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != batch->count) {
        return false;
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (!take_log(&t->round->reports[t->order[batch->first + i]], reply->element[i])) {
            return false;
        }
    }
    return true;
}

static bool take_batch(struct redis_transport *t, const struct batch *batch, const redisReply *reply)
{
    const size_t answers = batch->script == SCRIPT_BUCKET ? BUCKET_ANSWERS : WINDOW_ANSWERS;
    if (!are_numbers(reply, batch->count * answers)) {
        return false;
    }
    for (size_t i = 0; i < batch->count; i++) {
        struct report *report = &t->round->reports[t->order[batch->first + i]];
        const size_t at = i * answers;
        report->status = number_at(reply, at) == 0 ? 0 : -EPROTO;
        report->mine = number_at(reply, at + 1);
        report->sum = number_at(reply, at + 2);
        report->sum_asked = number_at(reply, at + 3);
        report->mine_back = number_at(reply, at + 4);
        report->sum_back = number_at(reply, at + 5);
        report->tat_answer_us = batch->script == SCRIPT_BUCKET ? number_at(reply, at + 6) : 0;
    }
    return true;
}

int round_reply(struct redis_transport *t, const redisReply *reply, uint64_t now_ns)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        problem_set(t, "%.150s", reply->str);
        return -EPROTO;
    }
    const struct batch *batch = &t->batches[t->batch_next++];
    const bool good = batch->script == SCRIPT_HEARTBEAT   ? take_heartbeat(t, reply, now_ns)
                      : batch->script == SCRIPT_OVERRIDES ? take_overrides(t, reply)
                      : batch->script == SCRIPT_LOG       ? take_logs(t, batch, reply)
                                                          : take_batch(t, batch, reply);
    if (!good) {
        problem_set(t, "an answer that is not weir's: is this a Redis?");
        return -EPROTO;
    }
    return t->batch_next == t->batch_count;
}
