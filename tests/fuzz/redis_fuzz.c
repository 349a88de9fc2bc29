/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server sends that says it is a Redis. The same bytes give the same replies, in whatever pieces they come; and
 * whatever a reply is, the reader that it is for takes numbers within their bounds from it, or says that it is none.
 *
 * An input is the reader that the replies are for (1 byte), a digit that a reader may look at, and bytes of the
 * protocol.
 */
#include <errno.h>

#include "fuzz.h"
#include "redis_server.h"
#include "transport/redis/answer.h"
#include "transport/redis/greeting.h"
#include "transport/redis/redis.h"
#include "transport/redis/server.h"
#include "transport/redis/slot_map.h"
#include "transport/redis/topology.h"

#define NOW_NS       UINT64_C(100000000000)
#define NUMBER_MOST  (UINT64_C(1) << 53)
#define AHEAD_NS     (INT64_C(3155760000) * 1000000000)
#define REPORTS      3
#define REPLIES_MOST 64
#define SLOTS_APART  43 /* a look at each slot would take most of the time */

/* Where replies go. */
typedef void (*reply_fn)(void *arg, const redisReply *reply);

/* Reads replies until there are no more. Returns what ended it. */
static int read_replies(struct input in, size_t most, reply_fn each, void *arg)
{
    static const struct socket_target target = {.path = "/run/redis.sock"};
    struct socket sock;
    int result = 1;
    socket_init(&sock);
    server_sends = in;
    server_piece = most;
    CHECK(socket_open(&sock, &target) == 0);
    for (unsigned count = 0; result == 1 && count < REPLIES_MOST; count++) {
        redisReply *reply = NULL;
        result = socket_reply(&sock, &reply);
        if (result == 1) {
            each(arg, reply);
            socket_free_reply(&sock, reply);
        }
    }
    CHECK(result == 1 || result == -ECONNRESET || result == -EPROTO);
    socket_free(&sock);
    return result;
}

static void add(uint64_t *sum, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        *sum = (*sum ^ ((const unsigned char *) bytes)[i]) * UINT64_C(0x100000001b3);
    }
}

/* Mixes a reply and all within it into a sum. */
static void sum_up(void *arg, const redisReply *reply)
{
    uint64_t *sum = arg;
    add(sum, &reply->type, sizeof(reply->type));
    add(sum, &reply->elements, sizeof(reply->elements));
    if (reply->type == REDIS_REPLY_INTEGER) {
        add(sum, &reply->integer, sizeof(reply->integer));
    }
    if (reply->str != NULL) {
        add(sum, reply->str, reply->len + 1);
    }
    for (size_t i = 0; i < reply->elements; i++) {
        sum_up(arg, reply->element[i]);
    }
}

/* A transport, which is as it was before for each input. */
struct scene {
    struct redis_transport *t;
    struct redis_transport saved_transport;
    struct server_conn saved_seed;
    unsigned digit;
};

static void scene_open(struct scene *s, const char *url)
{
    struct transport *t = NULL;
    const struct transport_config config = {
        .url = url, .prefix = "weir", .timeout_ms = 1000, .jitter_seed = 7, .now_ns = NOW_NS};
    weir_error error;
    CHECK(redis_transport_open(&config, &t, &error) == 0);
    s->t = (struct redis_transport *) (void *) t;
    s->saved_transport = *s->t;
    s->saved_seed = *s->t->servers[0];
}

static void scene_reset(struct scene *s)
{
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        struct server_conn *server = s->t->servers[i];
        if (server != NULL && server != s->saved_transport.servers[i]) {
            server_free(s->t, server);
        }
    }
    *s->t = s->saved_transport;
    *s->t->servers[0] = s->saved_seed;
    s->t->servers[0]->stage = SERVER_READY;
}

/* Texts that reach the log. */
static void check_texts(const struct redis_transport *t)
{
    CHECK(memchr(t->problem, '\0', sizeof(t->problem)) != NULL);
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        const struct server_conn *server = t->servers[i];
        if (server != NULL) {
            CHECK(server->index == i && memchr(server->host, '\0', sizeof(server->host)) != NULL);
            CHECK(memchr(server->name, '\0', sizeof(server->name)) != NULL &&
                  strpbrk(server->name, "\r\n\x1b") == NULL);
            CHECK(memchr(server->identity, '\0', sizeof(server->identity)) != NULL);
        }
    }
    CHECK(strpbrk(t->problem, "\r\n\x1b") == NULL);
}

static void check_round(const struct redis_transport *t, const struct round *round)
{
    CHECK(round->ahead_ns >= -AHEAD_NS && round->ahead_ns <= AHEAD_NS);
    CHECK(memchr(round->overrides_version, '\0', sizeof(round->overrides_version)) != NULL);
    CHECK(round->overrides_new || round->overrides == NULL);
    CHECK(round->fleet_wall_ns <= INT64_MAX && t->watermark_ms <= INT64_MAX / 1000000);
    CHECK(round->overrides_left_out <= INT64_MAX);
    CHECK(memchr(t->heartbeats[0].identity, '\0', IDENTITY_SIZE) != NULL);
    for (size_t i = 0; i < round->override_count; i++) {
        CHECK(round->overrides[i].field != NULL && round->overrides[i].value != NULL);
    }
    CHECK(memchr(round->limits.version, '\0', sizeof(round->limits.version)) != NULL);
    CHECK(round->limits.news == (round->limits.others != NULL));
    for (size_t i = 0; i < round->limits.other_count; i++) {
        CHECK(round->limits.others[i].value != NULL);
    }
    for (size_t i = 0; i < round->report_count; i++) {
        const struct report *report = &round->reports[i];
        CHECK(report->status == 0 || report->status == -EPROTO);
        if (report->status == 0) {
            CHECK(report->author_count <= NUMBER_MOST && report->sum <= NUMBER_MOST);
            CHECK(report->sum_demand <= NUMBER_MOST && report->sum_refunds <= NUMBER_MOST);
            CHECK(report->author_refunds <= NUMBER_MOST && report->tat_answer_us <= NUMBER_MOST);
            CHECK(report->history->group_count <= HISTORY_GROUPS && report->history->reset_us <= NUMBER_MOST);
        }
    }
}

/* The answer of a script to a batch of reports. */
static void take_answer(struct scene *s, const redisReply *reply, enum script script)
{
    static const enum report_kind kinds[SCRIPT_COUNT] = {
        [SCRIPT_WINDOW] = REPORT_WINDOW, [SCRIPT_BUCKET] = REPORT_BUCKET, [SCRIPT_HISTORY] = REPORT_HISTORY};
    static struct history_report histories[REPORTS];
    static struct report reports[REPORTS];
    uint32_t order[REPORTS] = {2, 0, 1};
    struct inspection page = {.status = 1};
    struct round round = {.reports = reports,
                          .node = "n",
                          .fleet_ns = NOW_NS,
                          .node_lifetime_ms = 3000,
                          .inspections = &page,
                          .inspection_count = 1};
    const struct batch batch = {.script = script, .count = script >= SCRIPT_WINDOW ? REPORTS : 0};
    memset(reports, 0, sizeof(reports));
    for (size_t i = 0; i < REPORTS; i++) {
        histories[i].group_count = 0;
        reports[i] = (struct report){.kind = kinds[script], .history = &histories[i], .status = 1};
    }
    round.report_count = batch.count;
    round.asks = (s->digit & 1) != 0;
    s->t->round = &round;
    s->t->report_order = order;
    s->t->heartbeats[0].known = (s->digit & 2) != 0;
    const enum answer_kind kind = answer_read(s->t, s->t->servers[0], &batch, reply, NOW_NS);
    CHECK((reply->type == REDIS_REPLY_ERROR) == (kind != ANSWER_GOOD && kind != ANSWER_FOREIGN));
    if (kind == ANSWER_GOOD) {
        check_round(s->t, &round);
    } else if (kind != ANSWER_FOREIGN) {
        const char *cause = answer_cause(reply->str);
        CHECK(cause >= reply->str && cause <= reply->str + strlen(reply->str));
    }
    CHECK(script != SCRIPT_PAGE || (kind == ANSWER_GOOD) == (page.status == 0));
    inspection_free(&page);
    overrides_drop(round.overrides, round.override_count);
    overrides_drop(round.limits.others, round.limits.other_count);
    s->t->round = NULL;
    s->t->report_order = NULL;
}

static void check_slot_map(const struct redis_transport *t)
{
    for (size_t i = 0; i < CLUSTER_SLOTS; i += SLOTS_APART) {
        const struct server_conn *owner = slot_map_owner(t, (uint16_t) i);
        CHECK((owner == NULL) == (t->slot_owner[i] == SERVER_NONE));
        CHECK(owner == NULL || owner->in_slot_map);
    }
    CHECK(t->heartbeat_count >= 1 && t->heartbeat_count <= HEARTBEATS_MAX);
    for (size_t i = 1; i < t->heartbeat_count; i++) {
        CHECK(slot_map_cluster_slot(t->heartbeats[i].key) == t->heartbeats[i].cluster_slot);
    }
}

/* Scripts have readers, with their numbers, and so has each of these. */
enum { SLOT_MAP = SCRIPT_COUNT, REDIRECT, PRIMARY, GREETING };

/* By the digit of an input. What is inspected has one reader. */
static const unsigned readers[] = {SCRIPT_HEARTBEAT, SCRIPT_OVERRIDES, SCRIPT_LIMITS, SCRIPT_WINDOW,
                                   SCRIPT_BUCKET,    SCRIPT_HISTORY,   SLOT_MAP,      REDIRECT,
                                   PRIMARY,          GREETING,         SCRIPT_PAGE};

static void take_redirection(struct scene *s, const redisReply *reply)
{
    uint16_t slot = UINT16_MAX;
    const struct server_conn *to =
        reply->type == REDIS_REPLY_ERROR ? slot_map_redirect(s->t, s->t->servers[0], reply->str, &slot) : NULL;
    CHECK(to == NULL || (slot < CLUSTER_SLOTS && s->t->servers[to->index] == to && to->wanted));
}

static unsigned reader;

static void take_reply(void *arg, const redisReply *reply)
{
    struct scene *s = arg;
    struct server_conn *server = s->t->servers[0];
    switch (reader) {
    case SLOT_MAP:
        slot_map_take(s->t, server, reply, NOW_NS);
        check_slot_map(s->t);
        break;
    case REDIRECT:
        take_redirection(s, reply);
        break;
    case PRIMARY:
        topology_take_primary(s->t, server, reply, NOW_NS);
        CHECK(s->t->candidate == NULL || s->t->candidate->wanted);
        break;
    case GREETING:
        if (server->greetings_due != 0) {
            (void) greeting_read(s->t, server, reply);
        }
        break;
    default:
        take_answer(s, reply, (enum script) reader);
        break;
    }
    check_texts(s->t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct scene scenes[3];
    struct input in = {data, data + size};
    uint64_t whole = 0, pieces = 0;
    if (scenes[0].t == NULL) {
        scene_open(&scenes[0], "redis://u:p@10.0.0.1,10.0.0.2");
        scene_open(&scenes[1], "redis+cluster://10.0.0.1");
        scene_open(&scenes[2], "redis+sentinel://10.0.0.1/main");
    }
    reader = readers[input_choice(&in, COUNT_OF(readers))];
    struct scene *s = &scenes[reader == SLOT_MAP || reader == REDIRECT ? 1 : reader == PRIMARY ? 2 : 0];
    s->digit = input_choice(&in, 8);
    const int ended = read_replies(in, 16384, sum_up, &whole);
    CHECK(read_replies(in, 1 + s->digit, sum_up, &pieces) == ended && whole == pieces);
    scene_reset(s);
    if (reader == GREETING) {
        CHECK(greeting_send(s->t, s->t->servers[0]) == 0);
    }
    (void) read_replies(in, 16384, take_reply, s);
    socket_close(&s->t->servers[0]->socket);
    return 0;
}
