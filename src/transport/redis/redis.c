/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of struct transport_ops.
 *
 * A round ends when all of its batches are answered or lost. With one server the round fails if one batch is lost. In a
 * Cluster the other batches count, and the reports of lost batches have the status -EAGAIN. A round without fleet time
 * fails in any case, unless it reads.
 */
#include "transport/redis/redis.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/numbers.h"
#include "transport/redis/batch.h"
#include "transport/redis/problem.h"
#include "transport/redis/server.h"
#include "transport/redis/slot_map.h"
#include "transport/redis/topology.h"

/* Repetitions within one step: the reply of one server may be what another server waits for. */
#define TURNS_MAX 16

static struct redis_transport *redis_of(struct transport *t)
{
    return (struct redis_transport *) (void *) t;
}

static const struct redis_transport *const_redis_of(const struct transport *t)
{
    return (const struct redis_transport *) (const void *) t;
}

static enum transport_event finish(struct redis_transport *t)
{
    struct round *round = t->round;
    const bool good = batch_finish(t);
    round->sent_size = 0;
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        struct server_conn *server = t->servers[i];
        if (server == NULL) {
            continue;
        }
        round->sent_size += server->socket.sent - server->sent_before;
        if (good && server->stage == SERVER_READY && server->answered) {
            server->failures = 0;
        }
    }
    if (good && t->lost_count == 0) {
        t->problem[0] = '\0';
    }
    return good ? TRANSPORT_ROUND_DONE : TRANSPORT_ROUND_FAILED;
}

/* T4: takes the connections that were dropped. Their batches are lost, and the topology does without them. The topology
 * may drop one more for that. */
static void take_losses(struct redis_transport *t, uint64_t now_ns)
{
    for (struct server_conn *server = server_take_dropped(t); server != NULL; server = server_take_dropped(t)) {
        struct call call;
        while (server_take_lost_call(server, &call)) {
            if (call.kind == CALL_BATCH) {
                batch_lost(t, call.batch);
            }
        }
        topology_server_lost(t, server, now_ns);
    }
}

/* Gives a reply to the module that has sent the call. */
static void take_server_reply(struct redis_transport *t, struct server_conn *server, const struct server_reply *answer,
                              uint64_t now_ns)
{
    switch (answer->call.kind) {
    case CALL_BATCH:
        batch_answer(t, server, answer->call.batch, answer->reply, now_ns);
        break;
    case CALL_SLOT_MAP:
        slot_map_take(t, server, answer->reply, now_ns);
        break;
    case CALL_PRIMARY:
        topology_take_primary(t, server, answer->reply, now_ns);
        break;
    case CALL_ASKING:
        if (answer->reply->type == REDIS_REPLY_ERROR) {
            server_refuse(t, server, answer->reply, now_ns);
        }
        break;
    }
}

static void step_server(struct redis_transport *t, struct server_conn *server, uint64_t now_ns)
{
    if (server_step(t, server, now_ns)) {
        topology_server_ready(t, server, now_ns);
    }
    struct server_reply answer;
    while (server_read(t, server, &answer, now_ns)) {
        take_server_reply(t, server, &answer, now_ns);
        server_free_reply(server, &answer);
    }
    take_losses(t, now_ns);
}

static enum transport_event redis_step(struct transport *transport, uint64_t now_ns)
{
    struct redis_transport *t = redis_of(transport);
    for (int turn = 0; turn < TURNS_MAX; turn++) {
        t->progressed = false;
        topology_step(t, now_ns);
        take_losses(t, now_ns);
        for (size_t i = 0; i < SERVERS_MAX; i++) {
            if (t->servers[i] != NULL) {
                step_server(t, t->servers[i], now_ns);
            }
        }
        if (t->round != NULL) {
            batch_send_waiting(t, now_ns);
            take_losses(t, now_ns);
        }
        if (!t->progressed) {
            break;
        }
    }
    if (t->round != NULL && t->open_count != 0 && now_ns >= t->deadline_ns) {
        batch_expire(t, now_ns);
        take_losses(t, now_ns);
    }
    return t->round != NULL && t->open_count == 0 ? finish(t) : TRANSPORT_NOTHING;
}

static int redis_begin(struct transport *transport, struct round *round, uint64_t now_ns)
{
    struct redis_transport *t = redis_of(transport);
    if (t->round != NULL || !topology_ready(t)) {
        return t->round != NULL ? -EBUSY : -ENOTCONN;
    }
    t->round = round;
    round->sent_ns = now_ns;
    t->deadline_ns = now_ns + t->timeout_ns;
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL) {
            t->servers[i]->sent_before = t->servers[i]->socket.sent;
            t->servers[i]->answered = false;
        }
    }
    const int result = batch_queue(t, now_ns);
    take_losses(t, now_ns);
    if (result != 0) {
        problem_set(t, NULL, "out of memory");
        t->round = NULL;
        return -ENOTCONN;
    }
    /* A connection that is found lost here is dropped in the next step. */
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL && t->servers[i]->stage == SERVER_READY) {
            (void) socket_flush(&t->servers[i]->socket);
        }
    }
    return 0;
}

static enum transport_state redis_state(const struct transport *transport)
{
    const struct redis_transport *t = const_redis_of(transport);
    if (t->round != NULL) {
        return TRANSPORT_BUSY;
    }
    return topology_ready(t) ? TRANSPORT_READY : TRANSPORT_DOWN;
}

static size_t redis_wait_for(const struct transport *transport, struct pollfd *fds, uint64_t *deadline_ns)
{
    const struct redis_transport *t = const_redis_of(transport);
    size_t count = 0;
    *deadline_ns = min_u64(*deadline_ns, topology_deadline(t));
    if (t->round != NULL) {
        *deadline_ns = min_u64(*deadline_ns, t->open_count == 0 ? 0 : t->deadline_ns);
    }
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        const struct server_conn *server = t->servers[i];
        if (server == NULL) {
            continue;
        }
        if (server->stage != SERVER_OFF) {
            socket_wait_for(&server->socket, &fds[count++]);
        }
        if (server->stage == SERVER_OFF ? server->wanted : server->stage != SERVER_READY || server->call_count != 0) {
            *deadline_ns =
                min_u64(*deadline_ns, server->stage == SERVER_OFF ? server->next_try_ns : server->deadline_ns);
        }
    }
    return count;
}

static const char *redis_problem(const struct transport *transport)
{
    const struct redis_transport *t = const_redis_of(transport);
    return t->problem[0] != '\0' ? t->problem : NULL;
}

static const char *redis_server(const struct transport *transport)
{
    const struct redis_transport *t = const_redis_of(transport);
    if (t->problem[0] != '\0') {
        return t->problem_server;
    }
    return !t->cluster && t->primary != NULL ? t->primary->name : "redis";
}

static struct transport_counts redis_counts(const struct transport *transport)
{
    return const_redis_of(transport)->counts;
}

static const char *redis_shard(const struct transport *transport, size_t number)
{
    const struct redis_transport *t = const_redis_of(transport);
    const struct server_conn *server = t->cluster ? slot_map_shard(t, number) : number == 0 ? t->primary : NULL;
    return server != NULL ? server->name : NULL;
}

static void redis_retry(struct transport *transport, uint64_t now_ns)
{
    struct redis_transport *t = redis_of(transport);
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL) {
            server_retry(t->servers[i], now_ns);
        }
    }
}

static bool redis_refused(const struct transport *transport)
{
    const struct redis_transport *t = const_redis_of(transport);
    bool refused = true;
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        refused = refused && (t->servers[i] == NULL || t->servers[i]->refused);
    }
    return refused;
}

static void redis_close(struct transport *transport)
{
    struct redis_transport *t = redis_of(transport);
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL) {
            server_free(t, t->servers[i]);
        }
    }
    tls_context_close(t->tls);
    batch_close(t);
    free(t);
}

/* A server is in the list for as long as its memory is there (server_at, server_free). */
static void redis_abandon(struct transport *transport)
{
    struct redis_transport *t = redis_of(transport);
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL) {
            socket_abandon(&t->servers[i]->socket);
        }
    }
}

static const struct transport_ops redis_ops = {
    .begin = redis_begin,
    .step = redis_step,
    .state = redis_state,
    .wait_for = redis_wait_for,
    .problem = redis_problem,
    .server = redis_server,
    .counts = redis_counts,
    .shard = redis_shard,
    .retry = redis_retry,
    .refused = redis_refused,
    .close = redis_close,
    .abandon = redis_abandon,
};

/* Refuses a URL that needs what this build does not have. */
static int check_build(const struct redis_url *url, struct tls_context **tls, weir_error *error)
{
#ifndef REDIS_REPLY_MAP
    if (url->protocol == 3) {
        return error_set(error, -ENOTSUP,
                         "redis_url: protocol=3 needs hiredis 1.0 or later, and this weir was built with %d.%d; give "
                         "protocol=2, or build it with a later one",
                         HIREDIS_MAJOR, HIREDIS_MINOR);
    }
#endif
    return url->tls ? tls_context_open(url, tls, error) : 0;
}

static int add_seeds(struct redis_transport *t)
{
    const bool sentinels = t->url.kind == REDIS_SENTINEL;
    for (size_t i = 0; i < t->url.seed_count || i == 0; i++) {
        const struct redis_seed *seed = &t->url.seeds[i];
        struct server_conn *server = server_at(t, seed->host, seed->port, sentinels);
        if (server == NULL) {
            return -ENOMEM;
        }
        server->seed = true;
    }
    return 0;
}

int redis_transport_open(const struct transport_config *config, struct transport **out, weir_error *error)
{
    struct redis_transport *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    t->base.ops = &redis_ops;
    int result = url_parse(config->url, &t->url, error);
    result = result != 0 ? result : check_build(&t->url, &t->tls, error);
    if (result == 0 && add_seeds(t) != 0) {
        result = error_set(error, -ENOMEM, "out of memory");
    }
    if (result != 0) {
        redis_close(&t->base);
        return result;
    }
    t->timeout_ns = config->timeout_ms * NS_PER_MS;
    t->random = config->jitter_seed;
    t->cluster = t->slot_map_wanted = t->url.kind == REDIS_CLUSTER;
    batch_open(t, config->prefix);
    topology_open(t, config->now_ns);
    *out = &t->base;
    return error_clear(error);
}
