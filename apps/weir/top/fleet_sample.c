/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet_sample.h. docs/operations.md ("Reading a record", "Nodes") has the forms of what is read here. */
#include "fleet_sample.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/plain.h"

#define SCAN_MOST    250
#define SCAN_LEAST   10
#define NODES_MOST   1000
#define RECORDS_MOST 256                    /* that are kept, the hottest */
#define SECONDS_MOST INT64_C(1000000000000) /* of a server's clock */
#define UNITS_MOST   1e18

/* A number of Redis, which may be any: sums of a few have room. */
static int64_t read_number(const char *text)
{
    const int64_t most = INT64_C(1) << 60;
    const int64_t number = strtoll(text, NULL, 10);
    return number > most ? most : number < -most ? -most : number;
}

bool fleet_sample_open(struct fleet_sample *sample, const char *prefix, size_t most)
{
    memset(sample, 0, sizeof(*sample));
    (void) snprintf(sample->prefix, sizeof(sample->prefix), "%s", prefix);
    sample->most = most;
    sample->record_capacity = RECORDS_MOST + most + 1000; /* a SCAN may give more names than it is asked for */
    sample->nodes = calloc(NODES_MOST, sizeof(*sample->nodes));
    sample->records = calloc(sample->record_capacity, sizeof(*sample->records));
    return sample->nodes != NULL && sample->records != NULL;
}

void fleet_sample_close(struct fleet_sample *sample)
{
    free(sample->nodes);
    free(sample->records);
    memset(sample, 0, sizeof(*sample));
}

/* Fleet time now, in microseconds: Redis's clock, and what the set of nodes says fleet time is ahead of it. */
static bool read_time(struct redis_link *link, int64_t *now_us, weir_error *error)
{
    const char *ask[] = {"TIME"};
    redisReply *reply = redis_link_call(link, 1, ask, error);
    const bool good = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                      reply->element[0]->str != NULL && reply->element[1]->str != NULL;
    if (good) {
        *now_us = read_number(reply->element[0]->str) % SECONDS_MOST * 1000000 + read_number(reply->element[1]->str);
    } else if (reply != NULL) {
        (void) error_set(error, -EPROTO, "Redis at %s: TIME has no answer", redis_link_server(link));
    }
    freeReplyObject(reply);
    return good;
}

/* A member "node:suspect_ms:lifetime_ms" with its time. False: it is of another form. */
static bool read_node(struct sample_node *node, const char *member, const char *score, int64_t now_ms)
{
    const char *colon = strchr(member, ':');
    char *end;
    if (colon == NULL || *member == '!') {
        return false;
    }
    const long long suspect_ms = strtoll(colon + 1, &end, 10);
    if (*end != ':') {
        return false;
    }
    const long long lifetime_ms = strtoll(end + 1, &end, 10);
    char id[TOP_NAME_SIZE];
    (void) snprintf(id, sizeof(id), "%.*s", (int) (colon - member < 64 ? colon - member : 64), member);
    (void) plain_line(node->id, sizeof(node->id), id);
    const int64_t age = now_ms - read_number(score);
    node->age_ms = age > 0 ? age : 0;
    node->state = node->age_ms > lifetime_ms ? "failed" : node->age_ms > suspect_ms ? "suspect" : "live";
    return *end == '\0';
}

/* An element of an answer as a text; one that is none is empty. */
static const char *text_at(const redisReply *reply, size_t index)
{
    return index < reply->elements && reply->element[index]->str != NULL ? reply->element[index]->str : "";
}

/* Takes {member, score, ...} at a time of the server's clock. Returns fleet time. */
static int64_t take_nodes(struct fleet_sample *sample, const redisReply *reply, int64_t clock_us)
{
    const char *first = text_at(reply, 0); /* with the score +inf */
    const char *offset = *first == '!' ? strchr(first, ':') : NULL;
    const int64_t now_us = clock_us + (offset != NULL ? read_number(offset + 1) : 0);
    sample->node_count = 0;
    for (size_t i = 0; i + 1 < reply->elements && sample->node_count < NODES_MOST; i += 2) {
        sample->node_count +=
            read_node(&sample->nodes[sample->node_count], text_at(reply, i), text_at(reply, i + 1), now_us / 1000);
    }
    return now_us;
}

/* Reads the set of nodes, and then the clock of the server that has the set. *now_us: fleet time. */
static bool read_nodes(struct fleet_sample *sample, struct redis_link *link, weir_error *error, int64_t *now_us)
{
    char key[64];
    char last[16];
    (void) snprintf(key, sizeof(key), "%s:nodes", sample->prefix);
    (void) snprintf(last, sizeof(last), "%d", NODES_MOST);
    const char *ask[] = {"ZREVRANGE", key, "0", last, "WITHSCORES"};
    redisReply *reply = redis_link_call(link, 5, ask, error);
    bool good = reply != NULL && read_time(link, now_us, error);
    if (good && reply->type != REDIS_REPLY_ARRAY) {
        good = error_set(error, -EPROTO, "Redis at %s: %s has no answer", redis_link_server(link), key) == 0;
    }
    if (good) {
        *now_us = take_nodes(sample, reply, *now_us);
    }
    freeReplyObject(reply);
    return good;
}

/* A name "PREFIX:{tag}:limit:policy:key" in its parts; a window has its number behind. False: it is another name. */
static bool read_name(const struct fleet_sample *sample, const char *name, struct sample_record *out)
{
    char plain[sizeof(out->name)];
    const size_t prefix = strlen(sample->prefix);
    if (strlen(name) >= sizeof(out->name) || strncmp(name, sample->prefix, prefix) != 0 ||
        strncmp(name + prefix, ":{", 2) != 0) {
        return false;
    }
    memset(out, 0, sizeof(*out));
    (void) snprintf(out->name, sizeof(out->name), "%s", name);
    (void) plain_line(plain, sizeof(plain), name);
    char *limit = strstr(plain, "}:");
    char *policy = limit != NULL ? strchr(limit + 2, ':') : NULL;
    char *key = policy != NULL ? strchr(policy + 1, ':') : NULL;
    if (key == NULL || memchr(limit, '?', (size_t) (policy - limit)) != NULL) {
        return false; /* what stands beside a log is no record */
    }
    *policy++ = *key++ = '\0';
    char *window = strrchr(key, ':');
    if (limit[2] == 'f' || limit[2] == 's') {
        if (window == NULL) {
            return false;
        }
        *window = '\0';
        out->window = strtoull(window + 1, NULL, 10);
    }
    (void) snprintf(out->limit, sizeof(out->limit), "%.15s", limit + 2);
    (void) snprintf(out->policy, sizeof(out->policy), "%.127s", policy);
    (void) snprintf(out->key, sizeof(out->key), "%.127s", key);
    return true;
}

static void take_name(struct fleet_sample *sample, const struct sample_shard *shard, const char *name)
{
    struct sample_record record;
    if (name == NULL || !read_name(sample, name, &record)) {
        return;
    }
    if (sample->record_count == sample->record_capacity) {
        return;
    }
    record.shard = shard;
    sample->records[sample->record_count++] = record; /* a second time where a reading before has kept it */
    sample->seen++;
}

/* Takes names of the present server until there are enough, or the walk over all of them has ended. */
static bool scan_names(struct fleet_sample *sample, struct sample_shard *shard, struct redis_link *link,
                       weir_error *error)
{
    char pattern[64];
    char count[16];
    const size_t most = sample->most / link->shard_count;
    const size_t page = most > SCAN_MOST ? SCAN_MOST : most < SCAN_LEAST ? SCAN_LEAST : most;
    (void) snprintf(pattern, sizeof(pattern), "%s:{*", sample->prefix);
    (void) snprintf(count, sizeof(count), "%zu", page);
    size_t names = 0;
    do {
        const char *ask[] = {"SCAN", shard->cursor, "MATCH", pattern, "COUNT", count};
        redisReply *reply = redis_link_call(link, 6, ask, error);
        if (reply == NULL) {
            return false;
        }
        if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[0]->str == NULL) {
            freeReplyObject(reply);
            return error_set(error, -EPROTO, "Redis at %s: SCAN has no answer", redis_link_server(link)) == 0;
        }
        (void) snprintf(shard->cursor, sizeof(shard->cursor), "%s", reply->element[0]->str);
        const redisReply *list = reply->element[1];
        for (size_t i = 0; i < list->elements; i++) {
            take_name(sample, shard, list->element[i]->str);
        }
        names += page;
        freeReplyObject(reply);
    } while (names < most && strcmp(shard->cursor, "0") != 0);
    return true;
}

/* The net units of a window, the first number of "sum". */
static double window_units(const redisReply *reply)
{
    const bool there = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->str != NULL;
    return there ? (double) strtoll(reply->element[0]->str, NULL, 10) : 0;
}

/* Whether a record is to be read from this shard. */
static bool is_of(const struct sample_record *record, const struct sample_shard *shard)
{
    return record->shard == shard;
}

/* Asks for "sum" and "unit" of every record of the shard; a set, which is a log, answers an error. */
static bool read_sums(struct fleet_sample *sample, const struct sample_shard *shard, struct redis_link *link,
                      long long *units_ps, weir_error *error)
{
    for (size_t i = 0; i < sample->record_count; i++) {
        if (is_of(&sample->records[i], shard)) {
            const bool is_log = sample->records[i].limit[0] == 'l';
            const char *ask[] = {is_log ? "ZCARD" : "HMGET", sample->records[i].name, "sum", "unit"};
            if (!redis_link_send(link, is_log ? 2 : 4, ask, error)) {
                return false;
            }
        }
    }
    for (size_t i = 0; i < sample->record_count; i++) {
        struct sample_record *record = &sample->records[i];
        if (!is_of(record, shard)) {
            continue;
        }
        redisReply *reply = redis_link_receive(link, error);
        if (reply == NULL) {
            return false;
        }
        record->units = reply->type == REDIS_REPLY_INTEGER ? (double) reply->integer : window_units(reply);
        const bool has_unit =
            reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[1]->str != NULL;
        units_ps[i] = has_unit ? strtoll(reply->element[1]->str, NULL, 10) : 0;
        freeReplyObject(reply);
    }
    return true;
}

/* What the times of buckets are held against: the rate of each record, 0 where it is no bucket, and fleet time. */
struct levels {
    const long long *units_ps;
    int64_t now_us;
};

/* Asks for the time at which each bucket is full again: its level is the time until then, in units. */
static bool read_levels(struct fleet_sample *sample, const struct sample_shard *shard, struct redis_link *link,
                        const struct levels *levels, weir_error *error)
{
    char field[40];
    for (size_t i = 0; i < sample->record_count; i++) {
        if (is_of(&sample->records[i], shard) && levels->units_ps[i] > 0) {
            (void) snprintf(field, sizeof(field), "tat:%lld", levels->units_ps[i]);
            const char *ask[] = {"HGET", sample->records[i].name, field};
            if (!redis_link_send(link, 3, ask, error)) {
                return false;
            }
        }
    }
    for (size_t i = 0; i < sample->record_count; i++) {
        if (!is_of(&sample->records[i], shard) || levels->units_ps[i] <= 0) {
            continue;
        }
        redisReply *reply = redis_link_receive(link, error);
        if (reply == NULL) {
            return false;
        }
        const int64_t left_us = reply->type == REDIS_REPLY_STRING ? read_number(reply->str) - levels->now_us : 0;
        const double units = left_us > 0 ? (double) left_us * 1e6 / (double) levels->units_ps[i] : 0;
        sample->records[i].units = units < UNITS_MOST ? units : UNITS_MOST;
        freeReplyObject(reply);
    }
    return true;
}

static int compare_records(const void *a, const void *b)
{
    const struct sample_record *one = a;
    const struct sample_record *other = b;
    if (one->units != other->units) {
        return one->units < other->units ? 1 : -1;
    }
    return strcmp(one->name, other->name);
}

/* The key, then its latest window, and of one name the most units. */
static int compare_windows(const void *a, const void *b)
{
    const struct sample_record *one = a;
    const struct sample_record *other = b;
    const int keys = strcmp(one->key, other->key);
    const int policies = keys != 0 ? keys : strcmp(one->policy, other->policy);
    const int limits = policies != 0 ? policies : strcmp(one->limit, other->limit);
    if (limits != 0 || one->window != other->window) {
        return limits != 0 ? limits : one->window < other->window ? 1 : -1;
    }
    const int names = strcmp(one->name, other->name);
    return names != 0 ? names : (one->units < other->units) - (one->units > other->units);
}

/* Whether a record behind `before`, as compare_windows orders them, says nothing more of its key. */
static bool is_outdated(const struct sample_record *record, const struct sample_record *before)
{
    const bool same = strcmp(before->key, record->key) == 0 && strcmp(before->policy, record->policy) == 0 &&
                      strcmp(before->limit, record->limit) == 0;
    return same && (before->window != record->window || strcmp(before->name, record->name) == 0);
}

/* Leaves the hottest records: of a key those of its latest window, and each name once. */
static void keep_hottest(struct fleet_sample *sample)
{
    struct sample_record *records = sample->records;
    size_t kept = 0;
    qsort(records, sample->record_count, sizeof(records[0]), compare_windows);
    for (size_t i = 0; i < sample->record_count; i++) {
        if (kept == 0 || !is_outdated(&records[i], &records[kept - 1])) {
            records[kept++] = records[i];
        }
    }
    qsort(records, kept, sizeof(records[0]), compare_records);
    sample->record_count = 0;
    while (sample->record_count < kept && sample->record_count < RECORDS_MOST &&
           records[sample->record_count].units > 0) {
        sample->record_count++;
    }
}

/* The row of a server among the shards, which a reading before may have given it. */
static struct sample_shard *row_of(struct fleet_sample *sample, const char *server)
{
    struct sample_shard *gone = NULL;
    for (size_t i = 0; i < sample->shard_count; i++) {
        if (strcmp(sample->shards[i].server, server) == 0) {
            return &sample->shards[i];
        }
        gone = sample->shards[i].index == REDIS_LINK_SERVERS ? &sample->shards[i] : gone;
    }
    struct sample_shard *row = sample->shard_count < REDIS_LINK_SERVERS ? &sample->shards[sample->shard_count++] : gone;
    *row = (struct sample_shard){.cursor = "0"};
    (void) snprintf(row->server, sizeof(row->server), "%.127s", server);
    return row;
}

static bool find_shards(struct fleet_sample *sample, struct redis_link *link, weir_error *error)
{
    if (!redis_link_find_shards(link, error)) {
        return false;
    }
    for (size_t i = 0; i < sample->shard_count; i++) {
        sample->shards[i].index = REDIS_LINK_SERVERS;
        sample->shards[i].up = false;
    }
    for (size_t i = 0; i < link->shard_count; i++) {
        row_of(sample, redis_link_shard(link, i))->index = i;
    }
    return true;
}

/* Reads names and records of one shard. False: no answer, and `error` has a sentence. */
static bool read_shard(struct fleet_sample *sample, struct sample_shard *shard, struct redis_link *link, int64_t now_us,
                       weir_error *error)
{
    if (!redis_link_choose(link, shard->index, error) || !scan_names(sample, shard, link, error)) {
        return false;
    }
    long long *units_ps = calloc(sample->record_count + 1, sizeof(*units_ps));
    if (units_ps == NULL) {
        return error_set(error, -ENOMEM, "out of memory") == 0;
    }
    const struct levels levels = {units_ps, now_us};
    const bool good =
        read_sums(sample, shard, link, units_ps, error) && read_levels(sample, shard, link, &levels, error);
    free(units_ps);
    return good;
}

bool fleet_sample_read(struct fleet_sample *sample, struct redis_link *link, weir_error *error)
{
    int64_t now_us = 0;
    size_t up = 0;
    if (!read_nodes(sample, link, error, &now_us) || !find_shards(sample, link, error)) {
        return false;
    }
    sample->seen = 0;
    size_t good = 0;
    /* What is read is read anew: records of a shard that gives no answer are left out. */
    for (size_t i = 0; i < sample->record_count; i++) {
        sample->records[i].units = 0;
    }
    for (size_t i = 0; i < sample->shard_count; i++) {
        struct sample_shard *shard = &sample->shards[i];
        if (shard->index == REDIS_LINK_SERVERS) {
            continue;
        }
        shard->up = read_shard(sample, shard, link, now_us, error);
        up += shard->up;
        good = shard->up ? shard->index : good;
        (void) snprintf(shard->error, sizeof(shard->error), "%.127s", shard->up ? "" : error->message);
    }
    keep_hottest(sample);
    /* The next reading begins at a shard that has answered. */
    return up != 0 && redis_link_choose(link, good, error);
}

size_t fleet_sample_lost(const struct fleet_sample *sample, size_t *count)
{
    size_t lost = 0;
    *count = 0;
    for (size_t i = 0; i < sample->shard_count; i++) {
        *count += sample->shards[i].index != REDIS_LINK_SERVERS;
        lost += sample->shards[i].index != REDIS_LINK_SERVERS && !sample->shards[i].up;
    }
    return lost;
}
