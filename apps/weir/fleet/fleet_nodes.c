/* SPDX-License-Identifier: Apache-2.0 */
/* See fleet_nodes.h, and src/transport/redis/scripts/heartbeat.lua, whose members these are. Nothing is written. */
#include "fleet_nodes.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Of heartbeat.lua: an offset is worked off by 1/256; a step of more than an hour needs a witness. */
#define SLOWER           256
#define STEP_MOST_US     INT64_C(3600000000)
#define LIFETIME_MOST_MS 1200000
#define TIME_MOST_MS     9007199254740992.0
#define OFFSET_MOST_US   (INT64_C(3155760000) * 1000000)

/* The most seconds of a server's clock: sums of microseconds of it and of the others have room. */
#define CLOCK_MOST_S UINT64_C(100000000000)

/* What the member at the end of the set says. */
struct creation {
    int64_t offset_us, noted_us;
};

/* Asks for the server's clock. */
static bool read_clock(struct redis_link *link, uint64_t *out, weir_error *error)
{
    const char *call[] = {"TIME"};
    redisReply *reply = redis_link_call(link, 1, call, error);
    const bool told = reply != NULL && reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                      reply->element[0]->str != NULL && reply->element[1]->str != NULL;
    const uint64_t seconds = told ? strtoull(reply->element[0]->str, NULL, 10) : 0;
    const uint64_t rest_us = told ? strtoull(reply->element[1]->str, NULL, 10) : 0;
    const bool good = told && seconds <= CLOCK_MOST_S && rest_us < 1000000;
    if (good) {
        *out = seconds * 1000000 + rest_us;
    } else if (reply != NULL) {
        (void) error_set(error, -EPROTO, "Redis at %s gave a time of an unknown form", redis_link_server(link));
    }
    freeReplyObject(reply);
    return good;
}

/* "!microseconds", or "!microseconds:offset:clock when it was noted". */
static bool read_creation(const char *member, double score, struct creation *out)
{
    uint64_t created;
    int taken = 0;
    struct creation read = {.offset_us = 0};
    /* NOLINTNEXTLINE(cert-err34-c): a number that is none leaves `taken` at 0 */
    if (!isinf(score) || sscanf(member, "!%" SCNu64 "%n", &created, &taken) != 1) {
        return false;
    }
    if (member[taken] == ':') {
        /* NOLINTNEXTLINE(cert-err34-c) */
        if (sscanf(member + taken, ":%" SCNd64 ":%" SCNd64, &read.offset_us, &read.noted_us) != 2) {
            return false;
        }
    } else if (member[taken] != '\0') {
        return false;
    }
    if (read.offset_us < -OFFSET_MOST_US || read.offset_us > OFFSET_MOST_US || read.noted_us < 0 ||
        (double) read.noted_us > TIME_MOST_MS) {
        read = (struct creation){.offset_us = 0};
    }
    *out = read;
    return true;
}

/* "node:suspect:lifetime" */
static bool read_node(const char *member, double score, struct fleet_node *out)
{
    const size_t length = strcspn(member, ":");
    int taken = 0;
    if (length == 0 || length >= sizeof(out->id) || *member == '!' || !(score >= 0 && score <= TIME_MOST_MS)) {
        return false;
    }
    /* NOLINTNEXTLINE(cert-err34-c): a number that is none leaves `taken` at 0 */
    (void) sscanf(member + length, ":%" SCNu64 ":%" SCNu64 "%n", &out->suspect_ms, &out->lifetime_ms, &taken);
    if (taken == 0 || member[length + (size_t) taken] != '\0' || out->lifetime_ms > LIFETIME_MOST_MS) {
        return false;
    }
    memcpy(out->id, member, length);
    out->id[length] = '\0';
    out->reported_ms = (uint64_t) score;
    return true;
}

/* By how much fleet time is ahead of the server's clock. */
static int64_t ahead_of(const struct creation *creation, int64_t clock_us, int64_t latest_us)
{
    int64_t offset_us = creation->offset_us;
    if (offset_us > 0) {
        const int64_t passed_us = clock_us - creation->noted_us;
        offset_us -= (passed_us > 0 ? passed_us : 0) / SLOWER;
        offset_us = offset_us > 0 && passed_us >= -STEP_MOST_US ? offset_us : 0;
    }
    /* The clock has stepped back: the next heartbeat notes it. */
    const int64_t ahead_us = latest_us - (clock_us + offset_us);
    return ahead_us > 0 && ahead_us <= STEP_MOST_US ? offset_us + ahead_us : offset_us;
}

static int compare_nodes(const void *left, const void *right)
{
    const struct fleet_node *a = left;
    const struct fleet_node *b = right;
    if (a->reported_ms != b->reported_ms) {
        return a->reported_ms > b->reported_ms ? -1 : 1;
    }
    return strcmp(a->id, b->id);
}

/* Takes {member, score, ...}. False: out of memory. */
static bool take_members(const redisReply *reply, struct fleet_nodes *out, struct creation *creation)
{
    out->exists = reply->elements != 0;
    out->all = calloc(reply->elements / 2 + 1, sizeof(*out->all));
    for (size_t i = 0; i + 1 < reply->elements && out->all != NULL; i += 2) {
        const char *member = reply->element[i]->str;
        const char *score = reply->element[i + 1]->str;
        const double number = score != NULL ? strtod(score, NULL) : -1;
        if (member == NULL ||
            (!read_creation(member, number, creation) && !read_node(member, number, &out->all[out->count++]))) {
            out->foreign++;
            out->count -= member != NULL;
        }
    }
    return out->all != NULL;
}

static void judge(struct fleet_nodes *out, const struct creation *creation)
{
    uint64_t latest_ms = 0;
    for (size_t i = 0; i < out->count; i++) {
        latest_ms = out->all[i].reported_ms > latest_ms ? out->all[i].reported_ms : latest_ms;
    }
    out->ahead_us = ahead_of(creation, (int64_t) out->server_us, (int64_t) latest_ms * 1000);
    const int64_t fleet_us = (int64_t) out->server_us + out->ahead_us;
    out->fleet_us = fleet_us > 0 ? (uint64_t) fleet_us : 0;
    for (size_t i = 0; i < out->count; i++) {
        struct fleet_node *node = &out->all[i];
        const uint64_t age_ms = fleet_node_age_ms(out, node);
        node->state = age_ms >= node->lifetime_ms  ? FLEET_NODE_FAILED
                      : age_ms >= node->suspect_ms ? FLEET_NODE_SUSPECT
                                                   : FLEET_NODE_LIVE;
    }
    if (out->count != 0) {
        qsort(out->all, out->count, sizeof(*out->all), compare_nodes);
    }
}

bool fleet_nodes_read(struct redis_link *link, const char *prefix, struct fleet_nodes *out, weir_error *error)
{
    struct creation creation = {.offset_us = 0};
    *out = (struct fleet_nodes){.exists = false};
    (void) snprintf(out->key, sizeof(out->key), "%s:nodes", prefix);
    const char *call[] = {"ZRANGE", out->key, "0", "-1", "WITHSCORES"};
    redisReply *reply = redis_link_call(link, 5, call, error);
    bool good = reply != NULL;
    if (!good && redis_link_is_wrong_type(error)) {
        out->wrong_type = out->exists = good = true;
    } else if (good && reply->type != REDIS_REPLY_ARRAY) {
        good = error_set(error, -EPROTO, "%s: Redis gave an answer of an unknown form", out->key) == 0;
    } else if (good && !take_members(reply, out, &creation)) {
        good = error_set(error, -ENOMEM, "out of memory") == 0;
    }
    freeReplyObject(reply);
    /* The clock of the server that has the set: in a Cluster, fleet time is its. */
    good = good && read_clock(link, &out->server_us, error);
    judge(out, &creation);
    return good;
}

void fleet_nodes_free(struct fleet_nodes *nodes)
{
    free(nodes->all);
    nodes->all = NULL;
    nodes->count = 0;
}

const struct fleet_node *fleet_nodes_find(const struct fleet_nodes *nodes, const char *id)
{
    for (size_t i = 0; i < nodes->count; i++) {
        if (strcmp(nodes->all[i].id, id) == 0) {
            return &nodes->all[i];
        }
    }
    return NULL;
}

const char *fleet_node_state_name(enum fleet_node_state state)
{
    static const char *const names[] = {
        [FLEET_NODE_LIVE] = "live", [FLEET_NODE_SUSPECT] = "suspect", [FLEET_NODE_FAILED] = "failed"};
    return names[state];
}

uint64_t fleet_node_age_ms(const struct fleet_nodes *nodes, const struct fleet_node *node)
{
    const uint64_t now_ms = nodes->fleet_us / 1000;
    return now_ms > node->reported_ms ? now_ms - node->reported_ms : 0;
}
