/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replies to a round: the answers of the scripts, and errors. This file reads them, and batch.c acts on them.
 */
#include "transport/redis/answer.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"

/* Numbers in the answer of each script: of a heartbeat, or for each report. */
#define HEARTBEAT_ANSWERS 8 /* the last one may be below 0 */
#define MERGED_ANSWERS    5 /* after MERGED */
#define HISTORY_ANSWERS   6 /* and two for each group */

/* What the answer to a report of a window or a bucket begins with, unless with a sum (counts.lua). NEW may stand before
 * MERGED or the sum. */
#define MERGED  (-1)
#define REFUSED (-2)
#define NEW     (-3)

/* How far fleet time may be from a server's clock: 100 years, as in heartbeat.lua. */
#define AHEAD_MOST_MS (INT64_C(3155760000) * 1000)

/* The latest fleet time: 2^63 nanoseconds, in the year 2262. */
#define FLEET_MOST_NS UINT64_C(0x7fffffffffffffff)

/* Sums have 63 bits, and all other numbers 53 (scripts/counts.lua). */
#define NUMBER_MOST (INT64_MAX - 1023)

/* True if a reply is an array of `count` integers. */
static bool are_integers(const redisReply *reply, size_t count)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != count) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (reply->element[i]->type != REDIS_REPLY_INTEGER) {
            return false;
        }
    }
    return true;
}

/* True if a script can have answered these integers. Others come from data that weir did not write. */
static bool in_range(const redisReply *reply, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++) {
        if (reply->element[i]->integer < 0 || reply->element[i]->integer > NUMBER_MOST) {
            return false;
        }
    }
    return true;
}

static uint64_t number_at(const redisReply *reply, size_t i)
{
    return (uint64_t) reply->element[i]->integer;
}

/* True if a primary of this identity is still connected. Its slots were then moved, and nothing was lost. */
static bool is_still_primary(const struct redis_transport *t, const char *identity)
{
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        const struct server_conn *server = t->servers[i];
        if (t->cluster && server != NULL && server->in_slot_map && server->stage == SERVER_READY &&
            strcmp(server->identity, identity) == 0) {
            return true;
        }
    }
    return false;
}

static bool take_heartbeat(struct redis_transport *t, const struct server_conn *server, const struct batch *batch,
                           const redisReply *reply, uint64_t now_ns)
{
    if (!are_integers(reply, HEARTBEAT_ANSWERS) || !in_range(reply, 0, HEARTBEAT_ANSWERS - 1)) {
        return false;
    }
    const int64_t ahead_ms = reply->element[7]->integer;
    if (ahead_ms > AHEAD_MOST_MS || ahead_ms < -AHEAD_MOST_MS || number_at(reply, 0) >= FLEET_MOST_NS / NS_PER_S ||
        number_at(reply, 1) >= NS_PER_S / NS_PER_US || number_at(reply, 5) > FLEET_MOST_NS / NS_PER_MS) {
        return false;
    }
    struct round *round = t->round;
    struct heartbeat *heartbeat = &t->heartbeats[batch->first];
    const bool another = strcmp(server->identity, heartbeat->identity) != 0;
    /* An older heartbeat: the data was lost, and a late copy of an old round has come since. */
    const uint64_t last_ms = number_at(reply, 2);
    const uint64_t now_ms = number_at(reply, 0) * 1000 + number_at(reply, 1) / 1000;
    const bool older =
        last_ms < heartbeat->last_ms && now_ms >= heartbeat->last_ms; /* else the server's clock has stepped back */
    /* Other nodes have removed the heartbeat of a node that was silent for longer than its lifetime. */
    const bool failed = last_ms == 0 && now_ms > heartbeat->last_ms + round->node_lifetime_ms;
    const bool lost = (older && !failed) || number_at(reply, 6) != heartbeat->created_us;
    if (heartbeat->known && !round->leaves && (lost || (another && !is_still_primary(t, heartbeat->identity)))) {
        t->lost_state = true;
    }
    heartbeat->known = true;
    const uint64_t told_ms = round->fleet_ns != 0 ? min_u64(round->fleet_ns / NS_PER_MS, now_ms) : now_ms;
    /* A round that asks is no heartbeat: the next round has to find the heartbeat that was there. */
    heartbeat->last_ms = round->asks ? last_ms : max_u64(told_ms, last_ms);
    heartbeat->created_us = number_at(reply, 6);
    memcpy(heartbeat->identity, server->identity, sizeof(heartbeat->identity));
    /* Fleet time is that of the fleet's record; if that answer is lost, that of another record. */
    if (!t->has_time || (batch->first == 0 && !t->has_first_time)) {
        t->has_time = true;
        t->has_first_time = batch->first == 0;
        round->received_ns = now_ns;
        round->fleet_wall_ns = number_at(reply, 0) * NS_PER_S + number_at(reply, 1) * NS_PER_US;
        round->ahead_ns = ahead_ms * (int64_t) NS_PER_MS;
        t->live_nodes = (uint32_t) number_at(reply, 3);
        t->suspect_nodes = (uint32_t) number_at(reply, 4);
        t->watermark_ms = number_at(reply, 5);
    }
    return true;
}

/* Replaces each byte 0 of a text, which would end there and be another one. weir writes none. */
static void replace_zeros(const redisReply *text, char by)
{
    for (size_t at = 0; at < text->len; at++) {
        text->str[at] = text->str[at] != '\0' ? text->str[at] : by;
    }
}

/* True if a reply is a version, or a version, the number of entries left out, and the entries. */
static bool are_entries(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 ||
        (reply->elements != 1 && reply->elements % 2 != 0)) {
        return false;
    }
    for (size_t i = 0; i < reply->elements; i++) {
        const redisReply *element = reply->element[i];
        if (i == 1 ? element->type != REDIS_REPLY_INTEGER || element->integer < 0
                   : element->type != REDIS_REPLY_STRING) {
            return false;
        }
        if (i != 1) {
            replace_zeros(element, '%'); /* a field escapes byte 0: an entry with a "%" for it is refused */
        }
    }
    return true;
}

static bool take_override_entries(struct redis_transport *t, const redisReply *reply, uint64_t now_ns)
{
    struct round *round = t->round;
    if (!are_entries(reply)) {
        return false;
    }
    const char *version = reply->element[0]->str;
    const size_t count = reply->elements > 1 ? (reply->elements - 2) / 2 : 0;
    const uint64_t left_out = reply->elements > 1 ? number_at(reply, 1) : t->overrides_left_out;
    t->overrides_left_out = left_out;
    t->overrides_ns = now_ns;
    /* There are no overrides, and the node has none. */
    if (strcmp(version, round->overrides_version) == 0 ||
        (count == 0 && left_out == 0 && round->overrides_version[0] == '\0')) {
        return true;
    }
    struct override_text *texts = calloc(count + 1, sizeof(*texts));
    bool complete = texts != NULL;
    for (size_t i = 0; i < count && complete; i++) {
        texts[i].field = strdup(reply->element[2 + 2 * i]->str);
        texts[i].value = strdup(reply->element[3 + 2 * i]->str);
        complete = texts[i].field != NULL && texts[i].value != NULL;
    }
    if (!complete) {
        overrides_drop(texts, count); /* the round keeps its version, so the next round asks again */
        return true;
    }
    round->overrides = texts;
    round->override_count = count;
    round->overrides_left_out = left_out;
    round->overrides_new = true;
    (void) snprintf(round->overrides_version, sizeof(round->overrides_version), "%s", version);
    return true;
}

/* A version, and texts of other nodes. */
static bool take_limits(struct redis_transport *t, const redisReply *reply)
{
    struct round_limits *limits = &t->round->limits;
    bool good = reply->type == REDIS_REPLY_ARRAY && reply->elements != 0;
    for (size_t i = 0; good && i < reply->elements; i++) {
        const redisReply *element = reply->element[i];
        good = element->type == REDIS_REPLY_STRING;
        if (good) {
            replace_zeros(element, '?');
        }
    }
    if (!good || reply->element[0]->len >= sizeof(limits->version)) {
        return false;
    }
    if (limits->news || strcmp(reply->element[0]->str, limits->version) == 0) {
        return true; /* the call was repeated, and has its answer; or nothing is new */
    }
    const size_t count = reply->elements - 1;
    struct override_text *texts = calloc(count + 1, sizeof(*texts));
    bool complete = texts != NULL;
    for (size_t i = 0; i < count && complete; i++) {
        texts[i].value = strdup(reply->element[1 + i]->str);
        complete = texts[i].value != NULL;
    }
    if (!complete) {
        overrides_drop(texts, count); /* the node keeps its version, and asks again */
        return true;
    }
    limits->others = texts;
    limits->other_count = count;
    limits->news = true;
    (void) snprintf(limits->version, sizeof(limits->version), "%s", reply->element[0]->str);
    return true;
}

static bool take_history(struct report *report, const redisReply *reply)
{
    const size_t groups = reply->elements >= HISTORY_ANSWERS ? (reply->elements - HISTORY_ANSWERS) / 2 : 0;
    if (groups > HISTORY_GROUPS || !are_integers(reply, HISTORY_ANSWERS + 2 * groups)) {
        return false;
    }
    if (number_at(reply, 0) != 0 || !in_range(reply, 0, reply->elements)) {
        report->status = -EPROTO;
        return true;
    }
    report->status = 0;
    report->author_count = number_at(reply, 1);
    report->sum = number_at(reply, 2);
    report->history->reset_us = number_at(reply, 3);
    report->sum_demand = number_at(reply, 4);
    report->history->other_authors = (uint32_t) number_at(reply, 5);
    report->history->group_count = (uint32_t) groups;
    for (size_t i = 0; i < groups; i++) {
        report->history->groups[i] = (struct history_group){.time_ns = number_at(reply, HISTORY_ANSWERS + 2 * i),
                                                            .units = number_at(reply, HISTORY_ANSWERS + 2 * i + 1)};
    }
    return true;
}

static bool take_histories(struct redis_transport *t, const struct batch *batch, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != batch->count) {
        return false;
    }
    for (size_t i = 0; i < batch->count; i++) {
        if (!take_history(&t->round->reports[t->report_order[batch->first + i]], reply->element[i])) {
            return false;
        }
    }
    return true;
}

static bool take_inspection(struct inspection *inspection, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 || reply->element[0]->type != REDIS_REPLY_INTEGER) {
        return false;
    }
    inspection_free(inspection); /* of a call that was repeated */
    inspection->all = calloc(reply->elements, sizeof(*inspection->all));
    for (size_t i = 0; i < reply->elements && inspection->all != NULL; i++) {
        const redisReply *element = reply->element[i];
        struct inspected *value = &inspection->all[inspection->count++];
        if (element->type == REDIS_REPLY_STRING) {
            replace_zeros(element, '%');
            value->text = strdup(element->str);
            if (value->text == NULL) {
                return false;
            }
        }
        value->number = element->type == REDIS_REPLY_INTEGER ? element->integer : 0;
    }
    inspection->status = 0;
    return inspection->all != NULL;
}

/* Takes the answer to one report of a window or a bucket, which begins at *at, and moves *at behind it. False: there
 * are not enough elements. */
static bool take_count(struct report *report, const redisReply *reply, size_t *at)
{
    const bool bucket = report->kind == REPORT_BUCKET;
    const bool is_new = *at < reply->elements && reply->element[*at]->integer == NEW;
    const size_t first = *at + is_new;
    const int64_t word = first < reply->elements ? reply->element[first]->integer : 0;
    const size_t merged = word == MERGED ? MERGED_ANSWERS : 0;
    const size_t count = word == REFUSED ? 1 : 1 + merged + bucket;
    report->status = -EPROTO;
    *at = first + count;
    if (*at > reply->elements) {
        return false;
    }
    if (word == REFUSED || !in_range(reply, first + (merged != 0), count - (merged != 0))) {
        return true;
    }
    report->status = 0;
    report->is_new = is_new;
    report->author_count = merged != 0 ? number_at(reply, first + 1) : report->count;
    report->sum = number_at(reply, merged != 0 ? first + 2 : first);
    report->sum_demand = number_at(reply, merged != 0 ? first + 3 : first);
    report->author_refunds = merged != 0 ? number_at(reply, first + 4) : 0;
    report->sum_refunds = merged != 0 ? number_at(reply, first + 5) : 0;
    report->tat_answer_us = bucket ? number_at(reply, first + count - 1) : 0;
    return true;
}

static bool take_counts(struct redis_transport *t, const struct batch *batch, const redisReply *reply)
{
    if (!are_integers(reply, reply->elements)) {
        return false;
    }
    size_t at = 0;
    for (size_t i = 0; i < batch->count; i++) {
        if (!take_count(&t->round->reports[t->report_order[batch->first + i]], reply, &at)) {
            return false;
        }
    }
    return at == reply->elements;
}

static bool has_prefix(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

const char *answer_cause(const char *text)
{
    static const char place[] = "@user_script: ";
    const char *at = has_prefix(text, "ERR Error running script") ? strstr(text, place) : NULL;
    if (at == NULL) {
        return text;
    }
    at += sizeof(place) - 1;
    at += strspn(at, "0123456789");
    return at + strspn(at, ": -");
}

/* Reads a script's answer. False: the script cannot have answered it. */
static bool take_reply(struct redis_transport *t, const struct server_conn *server, const struct batch *batch,
                       const redisReply *reply, uint64_t now_ns)
{
    switch (batch->script) {
    case SCRIPT_NODES:
    case SCRIPT_AUTHORS:
    case SCRIPT_ENTRIES:
    case SCRIPT_USE:
    case SCRIPT_PAGE:
        return take_inspection(&t->round->inspections[batch->first], reply);
    case SCRIPT_HEARTBEAT:
        return take_heartbeat(t, server, batch, reply, now_ns);
    case SCRIPT_OVERRIDES:
        return take_override_entries(t, reply, now_ns);
    case SCRIPT_LIMITS:
        return take_limits(t, reply);
    case SCRIPT_HISTORY:
        return take_histories(t, batch, reply);
    default:
        return take_counts(t, batch, reply);
    }
}

/* What an error says. */
static enum answer_kind error_of(const char *text)
{
    static const struct {
        const char *word;
        enum answer_kind kind;
    } errors[] = {
        {"NOSCRIPT", ANSWER_NO_SCRIPT}, {"MOVED ", ANSWER_MOVED},        {"ASK ", ANSWER_ASK},
        {"CROSSSLOT", ANSWER_SLOTS},    {"TRYAGAIN", ANSWER_SPLIT_SLOT}, {"CLUSTERDOWN", ANSWER_CLUSTER_DOWN},
    };
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        if (has_prefix(text, errors[i].word)) {
            return errors[i].kind;
        }
    }
    return ANSWER_ERROR;
}

enum answer_kind answer_read(struct redis_transport *t, const struct server_conn *server, const struct batch *batch,
                             const redisReply *reply, uint64_t now_ns)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        return error_of(reply->str);
    }
    return take_reply(t, server, batch, reply, now_ns) ? ANSWER_GOOD : ANSWER_FOREIGN;
}
