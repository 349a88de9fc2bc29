/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of a round, in this order: heartbeats, the question for the overrides, limits where the round tells
 * them, then the reports. One script call has up to BATCH_REPORTS reports, or BATCH_HISTORIES sliding logs. In a
 * Cluster all keys of a call share a slot.
 */
#include "transport/redis/batch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "transport/redis/answer.h"
#include "transport/redis/problem.h"
#include "transport/redis/script_call.h"
#include "transport/redis/server.h"
#include "transport/redis/slot_map.h"
#include "transport/redis/topology.h"

/* If there are more overrides than are answered, reading them takes Redis some 30 ms. They are then asked for at this
 * interval. */
#define OVERRIDES_PAUSE_NS (5 * NS_PER_S)

/* A batch is sent again at most so often in a round: after a redirection, or with its script. */
#define TRIES_MAX 8

void batch_open(struct redis_transport *t, const char *prefix)
{
    (void) snprintf(t->prefix, sizeof(t->prefix), "%s", prefix);
    (void) snprintf(t->overrides_key, sizeof(t->overrides_key), "%s:overrides", t->prefix);
    (void) snprintf(t->limits_key, sizeof(t->limits_key), "%s:limits", t->prefix);
    (void) snprintf(t->heartbeats[0].key, sizeof(t->heartbeats[0].key), "%s:nodes", t->prefix);
    t->heartbeats[0].cluster_slot = slot_map_cluster_slot(t->heartbeats[0].key);
    t->heartbeat_count = 1;
}

void batch_close(struct redis_transport *t)
{
    free(t->report_order);
    free(t->cluster_slots);
    free(t->batches);
    free(t->argv);
    free(t->lengths);
    free(t->texts);
}

/* Makes room for a round of `count` reports. The memory is kept from round to round. */
static int make_room(struct redis_transport *t, size_t count)
{
    if (script_call_make_room(t) != 0) {
        return -ENOMEM;
    }
    if (count > t->report_order_size) {
        uint32_t *order = realloc(t->report_order, count * sizeof(*order));
        if (order == NULL) {
            return -ENOMEM;
        }
        t->report_order = order;
        uint16_t *cluster_slots = realloc(t->cluster_slots, count * sizeof(*cluster_slots));
        if (cluster_slots == NULL) {
            return -ENOMEM;
        }
        t->cluster_slots = cluster_slots;
        t->report_order_size = count;
    }
    /* In a Cluster every report may have a batch of its own, and another one after a split. */
    const size_t batches =
        t->round->inspection_count + 2 + HEARTBEATS_MAX + 3 + (t->cluster ? 2 * count : count / BATCH_HISTORIES);
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

/* Sends a batch to a server that is ready. */
static void send_batch(struct redis_transport *t, struct server_conn *server, uint32_t number, uint64_t now_ns)
{
    struct batch *batch = &t->batches[number];
    if (batch->asking) {
        const char *word = "ASKING";
        const size_t length = strlen(word);
        if (!server_call(t, server, (struct call){.kind = CALL_ASKING}, &(struct command){1, &word, &length}, now_ns)) {
            batch_lost(t, number);
            return;
        }
    }
    const struct command command = script_call_words(t, batch);
    batch->state = BATCH_SENT;
    batch->server = server->index;
    batch->sequence = server->sequence + 1;
    if (batch->with_source) {
        server->sourced_at[batch->script] = batch->sequence;
    }
    if (!server_call(t, server, (struct call){CALL_BATCH, number}, &command, now_ns)) {
        batch_lost(t, number);
    }
}

/* Sends a batch to the owner of its slot. If that server is connecting, the batch waits; otherwise the batch is lost.
 */
static void dispatch(struct redis_transport *t, uint32_t number, uint64_t now_ns)
{
    struct batch *batch = &t->batches[number];
    struct server_conn *server = batch->asking ? t->servers[batch->server] : topology_owner(t, batch->cluster_slot);
    if (server == NULL) {
        batch_lost(t, number);
        slot_map_refresh(t);
    } else if (server->stage == SERVER_READY) {
        send_batch(t, server, number, now_ns);
    } else if (server->failures == 0 && server->wanted) {
        batch->state = BATCH_WAITING;
        batch->server = server->index;
        t->waiting_count++;
    } else {
        batch_lost(t, number);
    }
}

void batch_send_waiting(struct redis_transport *t, uint64_t now_ns)
{
    if (t->waiting_count == 0) {
        return;
    }
    t->waiting_count = 0;
    const size_t count = t->batch_count;
    for (uint32_t i = 0; i < count; i++) {
        if (t->batches[i].state == BATCH_WAITING) {
            dispatch(t, i, now_ns);
        }
    }
}

void batch_lost(struct redis_transport *t, uint32_t number)
{
    struct batch *batch = &t->batches[number];
    if (t->round == NULL || batch->state == BATCH_LOST || batch->state == BATCH_DONE) {
        return;
    }
    batch->state = BATCH_LOST;
    t->open_count--;
    t->lost_count++;
    for (size_t i = 0; i < batch->count; i++) {
        t->round->reports[t->report_order[batch->first + i]].status = -EAGAIN;
    }
    if (batch->script <= SCRIPT_PAGE) {
        t->round->inspections[batch->first].status = -EAGAIN;
    }
}

static uint32_t batch_add(struct redis_transport *t, enum script script, size_t first, size_t count,
                          uint16_t cluster_slot)
{
    const uint32_t number = (uint32_t) t->batch_count++;
    t->batches[number] = (struct batch){.script = script,
                                        .first = (uint32_t) first,
                                        .count = (uint32_t) count,
                                        .cluster_slot = cluster_slot,
                                        .state = BATCH_WAITING};
    t->open_count++;
    return number;
}

/* Sends a batch again, to the server that owns its slot now. `split`: each report in a batch of its own. */
static void retry(struct redis_transport *t, uint32_t number, bool split, uint64_t now_ns)
{
    struct batch *batch = &t->batches[number];
    if (++batch->tries > TRIES_MAX) {
        batch_lost(t, number);
        return;
    }
    if (!split || batch->count < 2) {
        dispatch(t, number, now_ns);
        return;
    }
    const struct batch all = *batch;
    batch->state = BATCH_DONE;
    batch->count = 0;
    t->open_count--;
    for (uint32_t i = 0; i < all.count; i++) {
        const uint32_t part = batch_add(t, all.script, all.first + i, 1, all.cluster_slot);
        t->batches[part].tries = all.tries;
        dispatch(t, part, now_ns);
    }
}

/* The server does not have the script. The batch is sent again with the script's source, unless an earlier call in the
 * queue has it. */
static void retry_with_source(struct redis_transport *t, const struct server_conn *server, uint32_t number,
                              uint64_t now_ns)
{
    struct batch *batch = &t->batches[number];
    batch->with_source = batch->sequence > server->sourced_at[batch->script];
    retry(t, number, false, now_ns);
}

/* "MOVED slot host:port" or "ASK slot host:port": the batch is sent there. */
static void redirect(struct redis_transport *t, const struct server_conn *server, uint32_t number, const char *text,
                     uint64_t now_ns)
{
    struct batch *batch = &t->batches[number];
    const bool moved = text[0] == 'M';
    uint16_t cluster_slot = 0;
    struct server_conn *to = slot_map_redirect(t, server, text, &cluster_slot);
    if (to == NULL) {
        batch_lost(t, number);
        slot_map_refresh(t);
        return;
    }
    batch->asking = !moved;
    batch->server = to->index;
    if (moved) {
        slot_map_refresh(t);
    }
    retry(t, number, false, now_ns);
    batch->asking = false; /* ASK holds for one call: the slot may be anywhere at the next call */
}

/* The server is of no use now. */
static void give_server_up(struct redis_transport *t, struct server_conn *server, uint32_t number, uint64_t now_ns)
{
    batch_lost(t, number);
    server_drop(t, server, now_ns);
}

/* An error that no other server and no repetition can mend. */
static void refused_by_error(struct redis_transport *t, struct server_conn *server, uint32_t number, const char *text,
                             uint64_t now_ns)
{
    const char *cause = answer_cause(text);
    const bool rights =
        strncmp(cause, "NOPERM", 6) == 0 || strstr(cause, "ACL") != NULL || strstr(cause, "user executing") != NULL;
    problem_set(t, server, "%.110s%s", cause, rights ? " (docs/redis.md lists the rights that are needed)" : "");
    give_server_up(t, server, number, now_ns);
}

void batch_answer(struct redis_transport *t, struct server_conn *server, uint32_t number, const redisReply *reply,
                  uint64_t now_ns)
{
    struct batch *batch = &t->batches[number];
    if (t->round == NULL || batch->state != BATCH_SENT) {
        return;
    }
    const enum answer_kind kind = answer_read(t, server, batch, reply, now_ns);
    if (!t->cluster && (kind == ANSWER_MOVED || kind == ANSWER_SLOTS)) {
        topology_is_cluster(t); /* the server did not say so: this user may not run INFO */
        batch_lost(t, number);
        return;
    }
    switch (kind) {
    case ANSWER_GOOD:
        batch->state = BATCH_DONE;
        t->open_count--;
        server->answered = true;
        break;
    case ANSWER_FOREIGN:
        problem_set(t, server, "an answer that is not weir's: is this a Redis?");
        give_server_up(t, server, number, now_ns);
        break;
    case ANSWER_NO_SCRIPT:
        retry_with_source(t, server, number, now_ns);
        break;
    case ANSWER_MOVED:
    case ANSWER_ASK:
        redirect(t, server, number, reply->str, now_ns);
        break;
    case ANSWER_SPLIT_SLOT:
        retry(t, number, true, now_ns); /* a single key is on one of the two servers */
        break;
    case ANSWER_CLUSTER_DOWN:
        problem_set(t, server, "%.150s", reply->str);
        slot_map_refresh(t);
        batch_lost(t, number);
        break;
    case ANSWER_SLOTS:
    case ANSWER_ERROR:
        refused_by_error(t, server, number, reply->str, now_ns);
        break;
    }
}

void batch_expire(struct redis_transport *t, uint64_t now_ns)
{
    for (size_t i = 0; i < SERVERS_MAX && t->open_count != 0; i++) {
        struct server_conn *server = t->servers[i];
        bool awaited = false;
        for (size_t c = 0; server != NULL && c < server->call_count && !awaited; c++) {
            awaited = server->calls[(server->call_first + c) % server->call_size].kind == CALL_BATCH;
        }
        if (awaited) {
            problem_set(t, server, "no answer after %" PRIu64 " ms", t->timeout_ns / NS_PER_MS);
            server_drop(t, server, now_ns);
        }
    }
    for (uint32_t i = 0; i < t->batch_count && t->open_count != 0; i++) {
        batch_lost(t, i); /* batches that wait for a server */
    }
}

struct by_cluster_slot {
    uint16_t cluster_slot;
    uint32_t report;
};

static int compare_cluster_slots(const void *a, const void *b)
{
    const struct by_cluster_slot *x = a;
    const struct by_cluster_slot *y = b;
    const int cluster_slots = (x->cluster_slot > y->cluster_slot) - (x->cluster_slot < y->cluster_slot);
    return cluster_slots != 0 ? cluster_slots : (x->report > y->report) - (x->report < y->report);
}

/* Sorts report_order[first, ordered) by cluster slot. 0 or -ENOMEM. */
static int sort_by_cluster_slot(struct redis_transport *t, size_t first, size_t ordered)
{
    struct by_cluster_slot *by_cluster_slot = malloc((ordered - first + 1) * sizeof(*by_cluster_slot));
    if (by_cluster_slot == NULL) {
        return -ENOMEM;
    }
    for (size_t i = first; i < ordered; i++) {
        by_cluster_slot[i - first] = (struct by_cluster_slot){t->cluster_slots[t->report_order[i]], t->report_order[i]};
    }
    qsort(by_cluster_slot, ordered - first, sizeof(*by_cluster_slot), compare_cluster_slots);
    for (size_t i = first; i < ordered; i++) {
        t->report_order[i] = by_cluster_slot[i - first].report;
    }
    free(by_cluster_slot);
    return 0;
}

/* Makes batches of the reports of one kind. 0 or -ENOMEM. */
static int batch_kind(struct redis_transport *t, enum report_kind kind, enum script script, size_t *ordered)
{
    const size_t first = *ordered;
    const size_t most = kind == REPORT_HISTORY ? BATCH_HISTORIES : BATCH_REPORTS;
    for (uint32_t i = 0; i < t->round->report_count; i++) {
        if (t->round->reports[i].kind == kind) {
            t->cluster_slots[i] = t->cluster ? slot_map_cluster_slot(t->round->reports[i].record) : 0;
            t->report_order[(*ordered)++] = i;
        }
    }
    if (t->cluster && sort_by_cluster_slot(t, first, *ordered) != 0) {
        return -ENOMEM;
    }
    for (size_t at = first; at < *ordered;) {
        const uint16_t cluster_slot = t->cluster_slots[t->report_order[at]];
        size_t end = at + 1;
        while (end < *ordered && end - at < most && t->cluster_slots[t->report_order[end]] == cluster_slot) {
            end++;
        }
        (void) batch_add(t, script, at, end - at, cluster_slot);
        at = end;
    }
    return 0;
}

/* The calls of a round that are not of reports. */
static void batch_fleet(struct redis_transport *t, uint64_t now_ns)
{
    const struct round *round = t->round;
    for (size_t i = 0; i < round->inspection_count; i++) {
        const struct inspection *asked = &round->inspections[i];
        const uint16_t slot =
            asked->key_count != 0 ? slot_map_cluster_slot(asked->words[0]) : slot_map_shard_slot(t, asked->shard);
        (void) batch_add(t, (enum script)(SCRIPT_NODES + (int) asked->kind), i, 0, slot);
    }
    for (size_t i = 0; i < t->heartbeat_count && !round->reads; i++) {
        (void) batch_add(t, SCRIPT_HEARTBEAT, i, 0, t->heartbeats[i].cluster_slot);
    }
    if (!round->reads && (t->overrides_left_out == 0 || now_ns >= t->overrides_ns + OVERRIDES_PAUSE_NS)) {
        (void) batch_add(t, SCRIPT_OVERRIDES, 0, 0, slot_map_cluster_slot(t->overrides_key));
    }
    if (round->limits.told) {
        (void) batch_add(t, SCRIPT_LIMITS, 0, 0, slot_map_cluster_slot(t->limits_key));
    }
}

int batch_make(struct redis_transport *t, uint64_t now_ns)
{
    size_t ordered = 0;
    t->batch_count = t->open_count = t->waiting_count = t->lost_count = 0;
    t->has_time = t->has_first_time = false;
    int result = make_room(t, t->round->report_count);
    if (result != 0) {
        return result;
    }
    batch_fleet(t, now_ns);
    result = batch_kind(t, REPORT_WINDOW, SCRIPT_WINDOW, &ordered);
    result = result != 0 ? result : batch_kind(t, REPORT_BUCKET, SCRIPT_BUCKET, &ordered);
    return result != 0 ? result : batch_kind(t, REPORT_HISTORY, SCRIPT_HISTORY, &ordered);
}

int batch_queue(struct redis_transport *t, uint64_t now_ns)
{
    const int result = batch_make(t, now_ns);
    for (uint32_t i = 0; result == 0 && i < t->batch_count; i++) {
        if (t->batches[i].state == BATCH_WAITING) {
            dispatch(t, i, now_ns);
        }
    }
    return result;
}

bool batch_finish(struct redis_transport *t)
{
    struct round *round = t->round;
    const bool good = (t->has_time || round->reads) && (t->cluster || t->lost_count == 0);
    t->round = NULL;
    t->doubtful = t->lost_count != 0 || t->lost_state;
    if (good && !round->reads) {
        round->live_nodes = t->live_nodes;
        round->suspect_nodes = t->suspect_nodes;
        round->watermark_ns = t->watermark_ms * NS_PER_MS;
        round->lost_state = t->lost_state && !round->first;
        t->lost_state = false;
    }
    return good;
}
