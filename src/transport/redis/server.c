/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a connection: attempts with jittered backoff, a greeting (authentication, database, who are you), then
 * calls. Whatever goes wrong, the connection is dropped, so that a late answer can never be taken for another's.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/numbers.h"
#include "base/plain.h"
#include "transport/redis/state.h"

#define BACKOFF_FIRST_NS (50 * NS_PER_MS)
#define BACKOFF_MOST_NS  (TRANSPORT_BACKOFF_MOST_MS * NS_PER_MS)

/* A Sentinel is asked again sooner: a failover takes seconds, and a question costs it nothing. */
#define BACKOFF_SENTINEL_NS (500 * NS_PER_MS)

void problem_set(struct redis_transport *t, const struct peer *peer, const char *format, ...)
{
    const uint8_t of = peer != NULL ? peer->index : PEER_NONE;
    if (t->problem[0] != '\0' && of != t->problem_of) {
        return; /* of several, the first one stays: the log is not to alternate between them */
    }
    t->problem_of = of;
    (void) snprintf(t->problem_server, sizeof(t->problem_server), "%s", peer != NULL ? peer->name : "redis");
    char text[sizeof(t->problem)];
    va_list arguments;
    va_start(arguments, format);
    (void) vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    (void) plain_line(t->problem, sizeof(t->problem), text); /* it may hold what a stranger sent */
}

/* What the log calls a server. */
static void name_peer(const struct redis_transport *t, struct peer *peer)
{
    char text[sizeof(peer->name)];
    const bool brackets = strchr(peer->host, ':') != NULL; /* an IPv6 address, as a URL has it */
    if (peer->host[0] == '\0') {
        (void) snprintf(text, sizeof(text), "redis %s", t->url.path);
    } else {
        (void) snprintf(text, sizeof(text), "redis %s%s%.80s%s:%s", peer->sentinel ? "sentinel " : "",
                        brackets ? "[" : "", peer->host, brackets ? "]" : "", peer->port);
    }
    (void) plain_line(peer->name, sizeof(peer->name), text); /* likewise */
}

struct peer *peer_at(struct redis_transport *t, const char *host, const char *port, bool sentinel)
{
    size_t vacant = PEERS_MAX;
    for (size_t i = PEERS_MAX; i-- > 0;) {
        struct peer *peer = t->peers[i];
        if (peer == NULL) {
            vacant = i;
        } else if (peer->sentinel == sentinel && strcmp(peer->host, host) == 0 && strcmp(peer->port, port) == 0) {
            return peer;
        }
    }
    struct peer *peer = vacant < PEERS_MAX ? calloc(1, sizeof(*peer)) : NULL;
    if (peer == NULL) {
        return NULL;
    }
    (void) snprintf(peer->host, sizeof(peer->host), "%s", host);
    (void) snprintf(peer->port, sizeof(peer->port), "%s", port);
    peer->index = (uint8_t) vacant;
    peer->sentinel = sentinel;
    name_peer(t, peer);
    link_init(&peer->link);
    t->peers[vacant] = peer;
    return peer;
}

void peer_free(struct redis_transport *t, struct peer *peer)
{
    link_free(&peer->link);
    t->peers[peer->index] = NULL;
    free(peer->calls);
    free(peer);
}

void peer_close(struct peer *peer)
{
    link_close(&peer->link);
    peer->stage = PEER_OFF;
    peer->call_count = 0;
}

void peer_drop(struct redis_transport *t, struct peer *peer, uint64_t now_ns)
{
    link_close(&peer->link);
    peer->stage = PEER_OFF;
    const unsigned doublings = peer->failures < 6 ? peer->failures : 6;
    const uint64_t most_ns = peer->sentinel ? BACKOFF_SENTINEL_NS : BACKOFF_MOST_NS;
    const uint64_t wait_ns = min_u64(BACKOFF_FIRST_NS << doublings, most_ns);
    peer->failures++;
    t->counts.failures++;
    t->random = hash_mix(t->random + UINT64_C(0x9e3779b97f4a7c15));
    peer->next_try_ns = now_ns + wait_ns / 2 + t->random % (wait_ns / 2 + 1);
    while (peer->call_count != 0) {
        const struct call call = peer->calls[peer->call_first];
        peer->call_first = (peer->call_first + 1) % peer->call_size;
        peer->call_count--;
        if (call.kind == CALL_BATCH) {
            round_lost(t, call.batch);
        }
    }
    t->again = true;
    route_peer_lost(t, peer, now_ns);
}

static void lost(struct redis_transport *t, struct peer *peer, int result, uint64_t now_ns)
{
    const char *tls = tls_problem(peer->link.tls);
    if (result == -EPROTO) {
        problem_set(t, peer, "an answer that is not Redis's protocol");
    } else if (tls != NULL) {
        problem_set(t, peer, "connection lost: %s", tls);
    } else {
        problem_set(t, peer, "connection lost: %s", strerror(-result));
    }
    peer_drop(t, peer, now_ns);
}

/* An answer that ends the connection. */
static void refused(struct redis_transport *t, struct peer *peer, const redisReply *reply, uint64_t now_ns)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        problem_set(t, peer, "%.150s", reply->str);
    } else {
        problem_set(t, peer, "an answer that is not weir's: is this a Redis?");
    }
    peer_drop(t, peer, now_ns);
}

/* The greeting: what is said, in order. */
enum { GREET_HELLO, GREET_AUTH, GREET_SELECT, GREET_SERVER, GREET_REPLICATION, GREET_ROLE, GREET_END };

/* Whether a replica is of no use: there is somewhere else to go. */
static bool wants_role(const struct redis_transport *t, const struct peer *peer)
{
    return !peer->sentinel && t->url.kind != REDIS_CLUSTER && (t->url.kind == REDIS_SENTINEL || t->url.seed_count > 1);
}

/* The arguments of one step; 0: it is not needed. */
static int greeting_step(const struct redis_transport *t, const struct peer *peer, unsigned step, const char *argv[5],
                         char number[16])
{
    const struct redis_url *url = &t->url;
    const char *user = peer->sentinel ? url->sentinel_user : url->user;
    const char *password = peer->sentinel ? url->sentinel_password : url->password;
    switch (step) {
    case GREET_HELLO:
        argv[0] = "HELLO";
        argv[1] = "3";
        argv[2] = "AUTH";
        argv[3] = user[0] != '\0' ? user : "default";
        argv[4] = password;
        return url->protocol != 3 ? 0 : password[0] != '\0' ? 5 : 2;
    case GREET_AUTH:
        argv[0] = "AUTH";
        argv[1] = user[0] != '\0' ? user : password;
        argv[2] = password;
        return url->protocol == 3 || password[0] == '\0' ? 0 : user[0] != '\0' ? 3 : 2;
    case GREET_SELECT:
        (void) snprintf(number, 16, "%d", url->database);
        argv[0] = "SELECT";
        argv[1] = number;
        return url->database != 0 && !peer->sentinel ? 2 : 0;
    case GREET_SERVER:
    case GREET_REPLICATION:
        argv[0] = "INFO";
        argv[1] = step == GREET_SERVER ? "server" : "replication";
        return peer->sentinel ? 0 : 2;
    default:
        argv[0] = "ROLE";
        return wants_role(t, peer) ? 1 : 0;
    }
}

static int greet(const struct redis_transport *t, struct peer *peer)
{
    peer->greeting = 0;
    peer->greetings_due = 0;
    peer->identity[0] = '\0';
    peer->cluster = peer->replica = false;
    peer->good = false;
    peer->sequence = 0;
    memset(peer->evaluated, 0, sizeof(peer->evaluated));
    for (unsigned step = 0; step < GREET_END; step++) {
        const char *argv[5] = {NULL};
        size_t lengths[5];
        char number[16];
        const int argc = greeting_step(t, peer, step, argv, number);
        for (int i = 0; i < argc; i++) {
            lengths[i] = strlen(argv[i]);
        }
        const int result = argc != 0 ? link_command(&peer->link, argc, argv, lengths) : 0;
        if (result != 0) {
            return result;
        }
        peer->greetings_due += argc != 0;
    }
    return 0;
}

static bool is_text(const redisReply *reply)
{
#ifdef REDIS_REPLY_VERB
    if (reply->type == REDIS_REPLY_VERB) {
        return true;
    }
#endif
    return reply->type == REDIS_REPLY_STRING;
}

/* Takes in what INFO says. */
static void take_info(struct peer *peer, const char *info, const char *identity_field)
{
    const char *at = strstr(info, identity_field);
    if (at != NULL) {
        at += strlen(identity_field);
        const size_t used = strlen(peer->identity);
        (void) snprintf(peer->identity + used, sizeof(peer->identity) - used, "%.*s ", (int) strcspn(at, "\r\n"), at);
    }
    /* Redis's word for it, and Valkey's. */
    peer->cluster =
        peer->cluster || strstr(info, "redis_mode:cluster") != NULL || strstr(info, "server_mode:cluster") != NULL;
    peer->replica = peer->replica || strstr(info, "\nrole:slave") != NULL;
}

/* Takes in the next answer of the greeting. False: it is none, and the peer is dropped. */
static bool greeting_reply(struct redis_transport *t, struct peer *peer, const redisReply *reply, uint64_t now_ns)
{
    const char *argv[5];
    char number[16];
    while (peer->greeting < GREET_END && greeting_step(t, peer, peer->greeting, argv, number) == 0) {
        peer->greeting++;
    }
    const unsigned step = peer->greeting++;
    const bool informs = step >= GREET_SERVER;
    if (reply->type == REDIS_REPLY_ERROR) {
        /* A user may not be told who it speaks to: then a loss is noticed by the heartbeats alone. */
        if (informs && strncmp(reply->str, "NOPERM", 6) == 0) {
            peer->greetings_due--;
            return true;
        }
        refused(t, peer, reply, now_ns);
        return false;
    }
    if (step == GREET_ROLE && reply->type == REDIS_REPLY_ARRAY && reply->elements != 0 && is_text(reply->element[0])) {
        peer->replica = strcmp(reply->element[0]->str, "master") != 0;
    } else if (step == GREET_ROLE || (informs && !is_text(reply))) {
        refused(t, peer, reply, now_ns);
        return false;
    } else if (informs) {
        take_info(peer, reply->str, step == GREET_SERVER ? "run_id:" : "master_replid:");
    }
    peer->greetings_due--;
    return true;
}

static void begin(struct redis_transport *t, struct peer *peer, uint64_t now_ns)
{
    struct link_target target = {.host = peer->host, .port = peer->port, .tls = t->tls};
    target.path = peer->host[0] == '\0' ? t->url.path : NULL;
    target.name = t->url.servername[0] != '\0' ? t->url.servername : peer->host;
    peer->deadline_ns = now_ns + t->timeout_ns;
    t->counts.attempts++;
    const int result = link_open(&peer->link, &target);
    if (result != 0) {
        problem_set(t, peer, "cannot connect: %s", link_failure(&peer->link, result));
        peer_drop(t, peer, now_ns);
        return;
    }
    peer->stage = PEER_CONNECTING;
}

static void step_connecting(struct redis_transport *t, struct peer *peer, uint64_t now_ns)
{
    const int result = link_connected(&peer->link);
    if (result == -EINPROGRESS) {
        return;
    }
    if (result != 0) {
        problem_set(t, peer, "cannot connect: %s", strerror(-result));
        peer_drop(t, peer, now_ns);
        return;
    }
    t->counts.connections++;
    peer->stage = PEER_GREETING;
    if (greet(t, peer) != 0) {
        problem_set(t, peer, "out of memory");
        peer_drop(t, peer, now_ns);
    }
}

static void step_greeting(struct redis_transport *t, struct peer *peer, uint64_t now_ns)
{
    int result = link_flush(&peer->link);
    while (result == 0 && peer->greetings_due != 0) {
        redisReply *reply = NULL;
        result = link_reply(&peer->link, &reply);
        if (result == 0) {
            return;
        }
        if (result > 0) {
            const bool good = greeting_reply(t, peer, reply, now_ns);
            link_free_reply(&peer->link, reply);
            if (!good) {
                return;
            }
            result = 0;
        }
    }
    if (result != 0) {
        lost(t, peer, result, now_ns);
        return;
    }
    peer->stage = PEER_READY;
    t->again = true;
    route_peer_ready(t, peer, now_ns);
}

void peer_call(struct redis_transport *t, struct peer *peer, struct call call, int argc, const char **argv,
               const size_t *lengths, uint64_t now_ns)
{
    if (peer->call_count == peer->call_size) {
        const size_t size = peer->call_size != 0 ? 2 * peer->call_size : 16;
        struct call *calls = malloc(size * sizeof(*calls));
        if (calls == NULL) {
            goto failed;
        }
        for (size_t i = 0; i < peer->call_count; i++) {
            calls[i] = peer->calls[(peer->call_first + i) % peer->call_size];
        }
        free(peer->calls);
        peer->calls = calls;
        peer->call_size = size;
        peer->call_first = 0;
    }
    if (link_command(&peer->link, argc, argv, lengths) != 0) {
        goto failed;
    }
    if (peer->call_count == 0) {
        peer->deadline_ns = now_ns + t->timeout_ns;
    }
    peer->calls[(peer->call_first + peer->call_count++) % peer->call_size] = call;
    peer->sequence++;
    return;
failed:
    if (call.kind == CALL_BATCH) {
        round_lost(t, call.batch);
    }
    problem_set(t, peer, "out of memory");
    peer_drop(t, peer, now_ns);
}

/* An answer to the oldest call. */
static void answer(struct redis_transport *t, struct peer *peer, const redisReply *reply, uint64_t now_ns)
{
    if (peer->call_count == 0) {
        problem_set(t, peer, reply->type == REDIS_REPLY_ERROR ? "%.150s" : "an answer to no question",
                    reply->type == REDIS_REPLY_ERROR ? reply->str : "");
        peer_drop(t, peer, now_ns);
        return;
    }
    const struct call call = peer->calls[peer->call_first];
    peer->call_first = (peer->call_first + 1) % peer->call_size;
    peer->call_count--;
    peer->deadline_ns = now_ns + t->timeout_ns; /* of the next one; a round has its own */
    if (call.kind == CALL_BATCH) {
        answer_batch(t, peer, call.batch, reply, now_ns);
    } else if (call.kind == CALL_MAP) {
        route_map(t, peer, reply, now_ns);
    } else if (call.kind == CALL_PRIMARY) {
        route_primary(t, peer, reply, now_ns);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        refused(t, peer, reply, now_ns);
    }
}

static void step_ready(struct redis_transport *t, struct peer *peer, uint64_t now_ns)
{
    int result = link_flush(&peer->link);
    while (result == 0 && peer->stage == PEER_READY) {
        redisReply *reply = NULL;
        result = link_reply(&peer->link, &reply);
        if (result == 0) {
            /* What an answer asked for anew. */
            result = link_flush(&peer->link);
            break;
        }
        if (result > 0) {
            answer(t, peer, reply, now_ns);
            link_free_reply(&peer->link, reply);
            result = 0;
        }
    }
    if (result != 0) {
        lost(t, peer, result, now_ns);
    }
}

void peer_step(struct redis_transport *t, struct peer *peer, uint64_t now_ns)
{
    const bool due = peer->stage == PEER_READY ? peer->call_count != 0 : peer->stage != PEER_OFF;
    if (due && now_ns >= peer->deadline_ns) {
        problem_set(t, peer, "%s after %" PRIu64 " ms", peer->stage == PEER_CONNECTING ? "no connection" : "no answer",
                    t->timeout_ns / NS_PER_MS);
        peer_drop(t, peer, now_ns);
        return;
    }
    /* Each stage may lead straight to the next. */
    if (peer->stage == PEER_OFF && peer->wanted && now_ns >= peer->next_try_ns) {
        begin(t, peer, now_ns);
    }
    if (peer->stage == PEER_CONNECTING) {
        step_connecting(t, peer, now_ns);
    }
    if (peer->stage == PEER_GREETING) {
        step_greeting(t, peer, now_ns);
    }
    if (peer->stage == PEER_READY) {
        step_ready(t, peer, now_ns);
    }
}
