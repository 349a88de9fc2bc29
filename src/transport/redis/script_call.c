/* SPDX-License-Identifier: Apache-2.0 */
/* See script_call.h. The opening comment of each script lists its keys and arguments. */
#include "transport/redis/script_call.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "base/numbers.h"
#include "transport/redis/scripts.h"

/* Words of a call: command, script, number of keys, and what the opening comments of the scripts list. */
#define HISTORY_WORDS (2 + 11 + REPORT_HISTORY_TIMES) /* of a log, at most */
#define BUCKET_WORDS  (1 + 3 + 2)                     /* of a bucket, with a rate of its own */
#define WORDS_MAX     (6 + (size_t) BATCH_HISTORIES * HISTORY_WORDS)

/* Bytes of what the numbers of a call take as texts, and in the scripts' binary form. */
#define MERGED_SIZE  (9 * sizeof(double))                    /* of a bucket whose report is merged */
#define RECORD_SIZE  (5 * sizeof(double) + sizeof(uint16_t)) /* of a bucket, in binary */
#define RATE_SIZE    (2 * (size_t) DECIMAL_SIZE)
#define HISTORY_SIZE (HISTORY_WORDS * (size_t) DECIMAL_SIZE)
#define ADDED_SIZE   (2 * (size_t) DECIMAL_SIZE) /* of a bucket whose new units are added */
#define TEXTS_SIZE                                                                                                     \
    (3 * (size_t) DECIMAL_SIZE + BATCH_REPORTS * (RECORD_SIZE + RATE_SIZE + MERGED_SIZE + ADDED_SIZE) +                \
     BATCH_HISTORIES * HISTORY_SIZE)

#define PS_PER_US UINT64_C(1000000) /* a unit is in picoseconds, tat in microseconds */

/* tat is at most so far ahead, as in report_bucket.lua: some nine years. */
#define TAT_AHEAD_US UINT64_C(280000000000000)

_Static_assert(6 + BATCH_REPORTS * BUCKET_WORDS <= WORDS_MAX, "a batch of buckets fits");
static const struct {
    const char *text, *sha;
} scripts[SCRIPT_COUNT] = {
    [SCRIPT_NODES] = {script_read_nodes, script_read_nodes_sha},
    [SCRIPT_AUTHORS] = {script_read_authors, script_read_authors_sha},
    [SCRIPT_ENTRIES] = {script_read_entries, script_read_entries_sha},
    [SCRIPT_USE] = {script_read_use, script_read_use_sha},
    [SCRIPT_PAGE] = {script_read_page, script_read_page_sha},
    [SCRIPT_HEARTBEAT] = {script_heartbeat, script_heartbeat_sha},
    [SCRIPT_OVERRIDES] = {script_overrides, script_overrides_sha},
    [SCRIPT_LIMITS] = {script_limits, script_limits_sha},
    [SCRIPT_WINDOW] = {script_report_window, script_report_window_sha},
    [SCRIPT_BUCKET] = {script_report_bucket, script_report_bucket_sha},
    [SCRIPT_HISTORY] = {script_report_history, script_report_history_sha},
};

int script_call_make_room(struct redis_transport *t)
{
    /* Each for itself: an earlier call may have found memory for some of them. */
    t->argv = t->argv != NULL ? t->argv : calloc(WORDS_MAX, sizeof(*t->argv));
    t->lengths = t->lengths != NULL ? t->lengths : calloc(WORDS_MAX, sizeof(*t->lengths));
    t->texts = t->texts != NULL ? t->texts : calloc(TEXTS_SIZE, 1);
    return t->argv != NULL && t->lengths != NULL && t->texts != NULL ? 0 : -ENOMEM;
}

struct arguments {
    struct redis_transport *t;
    int count;
    char *text; /* the room in t->texts that is left */
};

static void put_bytes(struct arguments *a, const char *bytes, size_t length)
{
    a->t->argv[a->count] = bytes;
    a->t->lengths[a->count++] = length;
}

static void put(struct arguments *a, const char *text)
{
    put_bytes(a, text, strlen(text));
}

static void put_number(struct arguments *a, uint64_t value)
{
    const size_t length = decimal_write(a->text, value);
    put_bytes(a, a->text, length);
    a->text += length + 1;
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

/* True if a report of a window or a bucket says nothing but a count. */
static bool is_plain(const struct report *report)
{
    return report->demand == report->count && report->refunds == 0 && report->reset_us == 0;
}

/* Microseconds in which a bucket's new units refill. */
static uint64_t units_us(const struct report *report)
{
    return muldiv_ceil(report->count - report->acked, report->unit_ps, PS_PER_US);
}

/*
 * True if a report's new units are added to its record, unless the script finds that the record does not hold what was
 * answered last. Only a guess: a merged report has the same effect, and takes more of Redis.
 */
static bool is_added(const struct redis_transport *t, const struct report *report)
{
    if (t->doubtful || !is_plain(report) || report->acked >= report->count) {
        return false;
    }
    if (report->kind == REPORT_WINDOW) {
        return true;
    }
    return report->acked != 0 && report->acked_refunds == 0 && report->known_refunds == 0 && report->moves == 0 &&
           units_us(report) < TAT_AHEAD_US;
}

/* Puts the words of one report of a window or a bucket. */
static void put_units(struct arguments *a, const struct report *report)
{
    put(a, report->author);
    if (is_added(a->t, report)) {
        put_number(a, report->count - report->acked);
        if (report->kind == REPORT_BUCKET) {
            put_number(a, units_us(report));
        }
    }
}

/* Writes a double, the least byte first. */
static void write_double(struct arguments *a, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    for (size_t i = 0; i < sizeof(bits); i++) {
        *a->text++ = (char) (bits >> (8 * i));
    }
}

static void write_index(struct arguments *a, size_t index)
{
    *a->text++ = (char) index;
    *a->text++ = (char) (index >> 8);
}

/* True if two reports share the arguments that a batch has once: a window's time to live, a bucket's rate. */
static bool is_alike(const struct report *x, const struct report *y)
{
    return x->expire_ms == y->expire_ms && (x->kind == REPORT_WINDOW || x->unit_ps == y->unit_ps);
}

/* What a batch's reports have in common, each with the first report that has it. */
struct shared {
    const struct report *reports[BATCH_REPORTS];
    size_t count;
};

/* The index of what a report shares, from 1. */
static size_t shared_index(struct shared *shared, const struct report *report)
{
    size_t i = 0;
    while (i < shared->count && !is_alike(shared->reports[i], report)) {
        i++;
    }
    if (i == shared->count) {
        shared->reports[shared->count++] = report;
    }
    return i + 1;
}

static const struct report *report_at(const struct arguments *a, const struct batch *batch, size_t i)
{
    const struct redis_transport *t = a->t;
    return &t->round->reports[t->report_order[batch->first + i]];
}

/* The numbers of the reports that are merged, in one word. */
static void put_merged(struct arguments *a, const struct batch *batch)
{
    const char *const from = a->text;
    for (size_t i = 0; i < batch->count; i++) {
        const struct report *report = report_at(a, batch, i);
        if (is_added(a->t, report)) {
            continue;
        }
        write_double(a, (double) report->count);
        write_double(a, (double) report->demand);
        write_double(a, (double) report->refunds);
        write_double(a, (double) report->reset_us);
        write_double(a, (double) report->reset_kept);
        if (report->kind == REPORT_BUCKET) {
            write_double(a, (double) report->acked);
            write_double(a, (double) report->acked_refunds);
            write_double(a, (double) report->known_refunds);
            write_double(a, (double) report->moves);
        }
    }
    put_bytes(a, from, (size_t) (a->text - from));
}

/* The numbers of windows: all counts, then all indices. */
static void put_windows(struct arguments *a, const struct batch *batch, struct shared *shared)
{
    const char *const counts = a->text;
    for (size_t i = 0; i < batch->count; i++) {
        const struct report *report = report_at(a, batch, i);
        const double count = is_added(a->t, report) ? (double) report->count : 0;
        write_double(a, report->acked == 0 ? -count : count);
    }
    put_bytes(a, counts, (size_t) (a->text - counts));
    const char *const indices = a->text;
    for (size_t i = 0; i < batch->count; i++) {
        write_index(a, shared_index(shared, report_at(a, batch, i)));
    }
    put_bytes(a, indices, (size_t) (a->text - indices));
    put_merged(a, batch);
    for (size_t i = 0; i < shared->count; i++) {
        put_number(a, shared->reports[i]->expire_ms);
    }
}

/* The time, and the numbers of buckets. */
static void put_buckets(struct arguments *a, const struct batch *batch, struct shared *shared)
{
    put_number(a, report_at(a, batch, 0)->now_us); /* all reports of a round have one time */
    const char *const from = a->text;
    for (size_t i = 0; i < batch->count; i++) {
        const struct report *report = report_at(a, batch, i);
        const bool added = is_added(a->t, report);
        write_double(a, added ? (double) report->count : 0);
        write_double(a, (double) report->tat_us);
        write_double(a, (double) (report->moves != 0 ? report->most_us : report->from_us));
        write_double(a, added ? (double) units_us(report) : 0);
        write_double(a, (double) report->known);
        write_index(a, shared_index(shared, report));
    }
    put_bytes(a, from, (size_t) (a->text - from));
    put_merged(a, batch);
    for (size_t i = 0; i < shared->count; i++) {
        put_number(a, shared->reports[i]->unit_ps);
        put_number(a, shared->reports[i]->expire_ms);
    }
}

/* Reports of windows, or of buckets. */
static void put_counts(struct arguments *a, const struct batch *batch)
{
    struct shared shared = {.count = 0};
    /* Of a Cluster's slot that is half moved, a part would be taken for lost that is on the other server. */
    if (a->t->round->part != 0 && !a->t->cluster) {
        put_number(a, a->t->round->part);
    } else {
        put(a, "");
    }
    if (batch->script == SCRIPT_WINDOW) {
        put_windows(a, batch, &shared);
    } else {
        put_buckets(a, batch, &shared);
    }
    for (size_t i = 0; i < batch->count; i++) {
        put_units(a, report_at(a, batch, i));
    }
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

static void put_histories(struct arguments *a, const struct batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        put(a, report_at(a, batch, i)->history->demand_record);
    }
    for (size_t i = 0; i < batch->count; i++) {
        const struct report *report = report_at(a, batch, i);
        put(a, report->author);
        put_history(a, report);
    }
}

static void put_reports(struct arguments *a, const struct batch *batch)
{
    const bool histories = batch->script == SCRIPT_HISTORY;
    put_number(a, histories ? UINT64_C(2) * batch->count : batch->count);
    for (size_t i = 0; i < batch->count; i++) {
        put(a, report_at(a, batch, i)->record);
    }
    if (histories) {
        put_histories(a, batch);
    } else {
        put_counts(a, batch);
    }
}

struct command script_call_words(struct redis_transport *t, const struct batch *batch)
{
    struct arguments a = {t, 0, t->texts};
    put(&a, batch->with_source ? "EVAL" : "EVALSHA");
    put(&a, batch->with_source ? scripts[batch->script].text : scripts[batch->script].sha);
    if (batch->script <= SCRIPT_PAGE) {
        const struct inspection *inspection = &t->round->inspections[batch->first];
        put_number(&a, inspection->key_count);
        for (size_t i = 0; i < INSPECTION_WORDS && inspection->words[i] != NULL; i++) {
            put(&a, inspection->words[i]);
        }
    } else if (batch->script == SCRIPT_HEARTBEAT) {
        put_heartbeat(&a, batch);
    } else if (batch->script == SCRIPT_OVERRIDES) {
        put(&a, "1");
        put(&a, t->overrides_key);
        put(&a, t->round->overrides_version);
    } else if (batch->script == SCRIPT_LIMITS) {
        const struct round_limits *limits = &t->round->limits;
        put(&a, "1");
        put(&a, t->limits_key);
        put(&a, limits->version);
        put(&a, limits->digest);
        put_number(&a, limits->life_ms);
        put(&a, limits->text);
        put(&a, limits->before);
    } else {
        put_reports(&a, batch);
    }
    return (struct command){a.count, t->argv, t->lengths};
}
