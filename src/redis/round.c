/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a round says and hears: a heartbeat, then the reports in script calls of up to BATCH_REPORTS.
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
#define WINDOW_ARGUMENTS 4
#define BUCKET_ARGUMENTS 8
#define WINDOW_ANSWERS   4
#define BUCKET_ANSWERS   5

#define ARGUMENTS_MAX (3 + (size_t) BATCH_REPORTS * (1 + BUCKET_ARGUMENTS))

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
    const size_t batches = 1 + count / BATCH_REPORTS + 2;
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

static int queue_heartbeat(struct redis_transport *t)
{
    struct arguments a = {t, 0};
    put(&a, "EVALSHA");
    put(&a, t->shas[SCRIPT_HEARTBEAT]);
    put(&a, "1");
    put(&a, t->nodes_key);
    put(&a, t->round->node);
    put_number(&a, t->round->node_lifetime_ms);
    t->batches[t->batch_count++] = (struct batch){SCRIPT_HEARTBEAT, 0, 0};
    return link_command(&t->link, a.count, t->argv, t->lengths);
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
        put_number(&a, report->count);
        put_number(&a, report->asked);
        if (batch->script == SCRIPT_BUCKET) {
            put_number(&a, report->acked);
            put_number(&a, report->tat_us);
            put_number(&a, report->from_us);
            put_number(&a, report->unit_ps);
        }
        put_number(&a, report->expire_ms);
    }
    return link_command(&t->link, a.count, t->argv, t->lengths);
}

/* Queues the reports of one kind. */
static int queue_kind(struct redis_transport *t, enum report_kind kind, enum script script, size_t *ordered)
{
    const size_t first = *ordered;
    for (uint32_t i = 0; i < t->round->report_count; i++) {
        if (t->round->reports[i].kind == kind) {
            t->order[(*ordered)++] = i;
        }
    }
    for (size_t at = first; at < *ordered; at += BATCH_REPORTS) {
        struct batch *batch = &t->batches[t->batch_count++];
        *batch = (struct batch){script, at, *ordered - at < BATCH_REPORTS ? *ordered - at : BATCH_REPORTS};
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
    result = result != 0 ? result : queue_kind(t, REPORT_WINDOW, SCRIPT_WINDOW, &ordered);
    result = result != 0 ? result : queue_kind(t, REPORT_BUCKET, SCRIPT_BUCKET, &ordered);
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
        report->tat_answer_us = batch->script == SCRIPT_BUCKET ? number_at(reply, at + 4) : 0;
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
    const bool good =
        batch->script == SCRIPT_HEARTBEAT ? take_heartbeat(t, reply, now_ns) : take_batch(t, batch, reply);
    if (!good) {
        problem_set(t, "an answer that is not weir's: is this a Redis?");
        return -EPROTO;
    }
    return t->batch_next == t->batch_count;
}
