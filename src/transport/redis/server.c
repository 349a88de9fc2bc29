/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connection to one server: attempts with jittered backoff, the greeting (greeting.c), then calls. After any error
 * the connection is dropped, so a late reply is never taken for the reply to another call.
 */
#include "transport/redis/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/numbers.h"
#include "base/plain.h"
#include "transport/redis/greeting.h"
#include "transport/redis/problem.h"

#define BACKOFF_FIRST_NS (50 * NS_PER_MS)
#define BACKOFF_MOST_NS  (TRANSPORT_BACKOFF_MOST_MS * NS_PER_MS)

/* A Sentinel is tried again sooner: a failover takes seconds, and a question costs a Sentinel little. */
#define BACKOFF_SENTINEL_NS (500 * NS_PER_MS)

/* Makes the name of a server for the log. */
static void name_server(const struct redis_transport *t, struct server_conn *server)
{
    char text[sizeof(server->name)];
    const bool brackets = strchr(server->host, ':') != NULL; /* an IPv6 address has brackets, as in a URL */
    if (server->host[0] == '\0') {
        (void) snprintf(text, sizeof(text), "redis %s", t->url.path);
    } else {
        (void) snprintf(text, sizeof(text), "redis %s%s%.80s%s:%s", server->sentinel ? "sentinel " : "",
                        brackets ? "[" : "", server->host, brackets ? "]" : "", server->port);
    }
    (void) plain_line(server->name, sizeof(server->name), text); /* a Sentinel or a slot map may have sent the host */
}

struct server_conn *server_at(struct redis_transport *t, const char *host, const char *port, bool sentinel)
{
    size_t vacant = SERVERS_MAX;
    for (size_t i = SERVERS_MAX; i-- > 0;) {
        struct server_conn *server = t->servers[i];
        if (server == NULL) {
            vacant = i;
        } else if (server->sentinel == sentinel && strcmp(server->host, host) == 0 && strcmp(server->port, port) == 0) {
            return server;
        }
    }
    struct server_conn *server = vacant < SERVERS_MAX ? calloc(1, sizeof(*server)) : NULL;
    if (server == NULL) {
        return NULL;
    }
    (void) snprintf(server->host, sizeof(server->host), "%s", host);
    (void) snprintf(server->port, sizeof(server->port), "%s", port);
    server->index = (uint8_t) vacant;
    server->sentinel = sentinel;
    name_server(t, server);
    socket_init(&server->socket);
    t->servers[vacant] = server;
    return server;
}

struct server_conn *server_next_seed(const struct redis_transport *t)
{
    struct server_conn *next = NULL;
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        struct server_conn *server = t->servers[i];
        if (server != NULL && server->seed && !server->wanted &&
            (next == NULL || server->next_try_ns < next->next_try_ns)) {
            next = server;
        }
    }
    return next;
}

void server_free(struct redis_transport *t, struct server_conn *server)
{
    socket_free(&server->socket);
    t->servers[server->index] = NULL;
    free(server->calls);
    free(server);
}

void server_close(struct server_conn *server)
{
    socket_close(&server->socket);
    server->stage = SERVER_OFF;
    server->call_count = 0;
}

void server_drop(struct redis_transport *t, struct server_conn *server, uint64_t now_ns)
{
    socket_close(&server->socket);
    server->stage = SERVER_OFF;
    const unsigned doublings = server->failures < 6 ? server->failures : 6;
    const uint64_t most_ns = server->sentinel ? BACKOFF_SENTINEL_NS : BACKOFF_MOST_NS;
    const uint64_t wait_ns = min_u64(BACKOFF_FIRST_NS << doublings, most_ns);
    server->failures++;
    t->counts.failures++;
    t->random = hash_mix(t->random + UINT64_C(0x9e3779b97f4a7c15));
    server->next_try_ns = now_ns + wait_ns / 2 + t->random % (wait_ns / 2 + 1);
    server->dropped = t->has_dropped = true;
    t->progressed = true;
}

struct server_conn *server_take_dropped(struct redis_transport *t)
{
    for (size_t i = 0; t->has_dropped && i < SERVERS_MAX; i++) {
        struct server_conn *server = t->servers[i];
        if (server != NULL && server->dropped) {
            server->dropped = false;
            return server;
        }
    }
    t->has_dropped = false;
    return NULL;
}

void server_retry(struct server_conn *server, uint64_t now_ns)
{
    server->refused = false;
    if (server->stage == SERVER_OFF) {
        server->next_try_ns = min_u64(server->next_try_ns, now_ns);
    }
}

/* Whether waiting does not help: another password or other rights are needed. */
static bool refuses_login(const redisReply *reply)
{
    static const char *const codes[] = {"NOAUTH", "WRONGPASS", "NOPERM", "ERR invalid password"};
    bool refuses = false;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        refuses = refuses || strncmp(reply->str, codes[i], strlen(codes[i])) == 0;
    }
    return refuses;
}

/* Takes the oldest call from the ring. */
static struct call take_call(struct server_conn *server)
{
    const struct call call = server->calls[server->call_first];
    server->call_first = (server->call_first + 1) % server->call_size;
    server->call_count--;
    return call;
}

bool server_take_lost_call(struct server_conn *server, struct call *call)
{
    if (server->call_count == 0) {
        return false;
    }
    *call = take_call(server);
    return true;
}

static void connection_lost(struct redis_transport *t, struct server_conn *server, int result, uint64_t now_ns)
{
    const char *tls = tls_problem(server->socket.tls);
    if (result == -EPROTO) {
        problem_set(t, server, "an answer that is not Redis's protocol");
    } else if (tls != NULL) {
        problem_set(t, server, "connection lost: %s", tls);
    } else {
        problem_set(t, server, "connection lost: %s", strerror(-result));
    }
    server_drop(t, server, now_ns);
}

void server_refuse(struct redis_transport *t, struct server_conn *server, const redisReply *reply, uint64_t now_ns)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        problem_set(t, server, "%.150s", reply->str);
        server->refused = refuses_login(reply);
    } else {
        problem_set(t, server, "an answer that is not weir's: is this a Redis?");
    }
    server_drop(t, server, now_ns);
}

static void begin_connecting(struct redis_transport *t, struct server_conn *server, uint64_t now_ns)
{
    struct socket_target target = {.host = server->host, .port = server->port, .tls = t->tls};
    target.path = server->host[0] == '\0' ? t->url.path : NULL;
    target.name = t->url.servername[0] != '\0' ? t->url.servername : server->host;
    server->deadline_ns = now_ns + t->timeout_ns;
    server->refused = false;
    t->counts.attempts++;
    const int result = socket_open(&server->socket, &target);
    if (result != 0) {
        problem_set(t, server, "cannot connect: %s", socket_failure(&server->socket, result));
        server->refused = true;
        server_drop(t, server, now_ns);
        return;
    }
    server->stage = SERVER_CONNECTING;
}

static void step_connecting(struct redis_transport *t, struct server_conn *server, uint64_t now_ns)
{
    const int result = socket_connected(&server->socket);
    if (result == -EINPROGRESS) {
        return;
    }
    if (result != 0) {
        problem_set(t, server, "cannot connect: %s", strerror(-result));
        server->refused = true;
        server_drop(t, server, now_ns);
        return;
    }
    t->counts.connections++;
    server->stage = SERVER_GREETING;
    if (greeting_send(t, server) != 0) {
        problem_set(t, server, "out of memory");
        server_drop(t, server, now_ns);
    }
}

/* True: the greeting has ended. */
static bool step_greeting(struct redis_transport *t, struct server_conn *server, uint64_t now_ns)
{
    int result = socket_flush(&server->socket);
    while (result == 0 && server->greetings_due != 0) {
        redisReply *reply = NULL;
        result = socket_reply(&server->socket, &reply);
        if (result == 0) {
            return false;
        }
        if (result > 0) {
            const bool good = greeting_read(t, server, reply);
            if (!good) {
                server_refuse(t, server, reply, now_ns);
            }
            socket_free_reply(&server->socket, reply);
            if (!good) {
                return false;
            }
            result = 0;
        }
    }
    if (result != 0) {
        connection_lost(t, server, result, now_ns);
        return false;
    }
    server->stage = SERVER_READY;
    t->progressed = true;
    return true;
}

bool server_call(struct redis_transport *t, struct server_conn *server, struct call call, const struct command *command,
                 uint64_t now_ns)
{
    if (server->call_count == server->call_size) {
        const size_t size = server->call_size != 0 ? 2 * server->call_size : 16;
        struct call *calls = malloc(size * sizeof(*calls));
        if (calls == NULL) {
            goto failed;
        }
        for (size_t i = 0; i < server->call_count; i++) {
            calls[i] = server->calls[(server->call_first + i) % server->call_size];
        }
        free(server->calls);
        server->calls = calls;
        server->call_size = size;
        server->call_first = 0;
    }
    if (socket_command(&server->socket, command) != 0) {
        goto failed;
    }
    if (server->call_count == 0) {
        server->deadline_ns = now_ns + t->timeout_ns;
    }
    server->calls[(server->call_first + server->call_count++) % server->call_size] = call;
    server->sequence++;
    return true;
failed:
    problem_set(t, server, "out of memory");
    server_drop(t, server, now_ns);
    return false;
}

/* A reply that answers no call. */
static void unasked(struct redis_transport *t, struct server_conn *server, const redisReply *reply, uint64_t now_ns)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        problem_set(t, server, "%.150s", reply->str);
    } else {
        problem_set(t, server, "an answer to no question");
    }
    server_drop(t, server, now_ns);
}

bool server_read(struct redis_transport *t, struct server_conn *server, struct server_reply *out, uint64_t now_ns)
{
    if (server->stage != SERVER_READY) {
        return false;
    }
    int result = socket_reply(&server->socket, &out->reply);
    if (result > 0 && server->call_count != 0) {
        out->call = take_call(server);
        server->deadline_ns = now_ns + t->timeout_ns; /* of the next call; a round has a deadline of its own */
        return true;
    }
    if (result > 0) {
        unasked(t, server, out->reply, now_ns);
        socket_free_reply(&server->socket, out->reply);
        return false;
    }
    if (result == 0) {
        result = socket_flush(&server->socket);
    }
    if (result != 0) {
        connection_lost(t, server, result, now_ns);
    }
    return false;
}

void server_free_reply(struct server_conn *server, struct server_reply *answer)
{
    socket_free_reply(&server->socket, answer->reply);
    answer->reply = NULL;
}

bool server_step(struct redis_transport *t, struct server_conn *server, uint64_t now_ns)
{
    const bool due = server->stage == SERVER_READY ? server->call_count != 0 : server->stage != SERVER_OFF;
    if (due && now_ns >= server->deadline_ns) {
        problem_set(t, server, "%s after %" PRIu64 " ms",
                    server->stage == SERVER_CONNECTING ? "no connection" : "no answer", t->timeout_ns / NS_PER_MS);
        server_drop(t, server, now_ns);
        return false;
    }
    if (server->stage == SERVER_READY) {
        const int result = socket_flush(&server->socket);
        if (result != 0) {
            connection_lost(t, server, result, now_ns);
        }
        return false;
    }
    /* A stage may lead to the next one at once. */
    if (server->stage == SERVER_OFF && server->wanted && now_ns >= server->next_try_ns) {
        begin_connecting(t, server, now_ns);
    }
    if (server->stage == SERVER_CONNECTING) {
        step_connecting(t, server, now_ns);
    }
    return server->stage == SERVER_GREETING && step_greeting(t, server, now_ns);
}
