/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See topology.h. Follows the guidelines for Sentinel clients.
 *
 * Server: one of the URL's hosts at a time. When its connection is lost, the next host is the one whose attempt is due
 * first, so hosts that have just failed are passed over.
 *
 * Sentinel: one Sentinel at a time is asked for the primary's address: at first, once a second, and when the primary is
 * lost. The named server is a candidate until it says itself that it is a primary. Only then the old primary is left. A
 * Sentinel that names a replica or a dead server is passed over.
 *
 * Cluster: slot_map.c says which server owns which slot.
 */
#include "transport/redis/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "transport/redis/problem.h"
#include "transport/redis/server.h"
#include "transport/redis/slot_map.h"

#define ASK_EVERY_NS (1 * NS_PER_S)

/* A server that a Sentinel names is tried again this soon after a failure. */
#define CANDIDATE_WAIT_NS (200 * NS_PER_MS)

void topology_open(struct redis_transport *t, uint64_t now_ns)
{
    slot_map_open(t);
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL) {
            t->servers[i]->next_try_ns = now_ns;
        }
    }
}

struct server_conn *topology_owner(const struct redis_transport *t, uint16_t cluster_slot)
{
    return t->cluster ? slot_map_owner(t, cluster_slot) : t->primary;
}

/* Marks a server as no longer wanted. */
static void release(struct server_conn *server)
{
    if (server != NULL) {
        server->wanted = false;
        if (server->call_count == 0) {
            server_close(server);
        }
    }
}

/* T3: frees the servers that are no longer wanted. */
static void free_unwanted(struct redis_transport *t)
{
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        struct server_conn *server = t->servers[i];
        if (server == NULL || server->wanted || server->call_count != 0) {
            continue;
        }
        if (server->stage != SERVER_OFF) {
            server_close(server);
        }
        if (!server->seed) {
            server_free(t, server);
        }
    }
}

static void ask_sentinel(struct redis_transport *t, uint64_t now_ns)
{
    const char *argv[3] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", t->url.primary};
    const size_t lengths[3] = {strlen(argv[0]), strlen(argv[1]), strlen(argv[2])};
    t->sentinel_asked = true;
    (void) server_call(t, t->sentinel, (struct call){.kind = CALL_PRIMARY}, &(struct command){3, argv, lengths},
                       now_ns);
}

void topology_step(struct redis_transport *t, uint64_t now_ns)
{
    if (t->round == NULL) {
        free_unwanted(t);
    }
    if (t->cluster) {
        slot_map_step(t, now_ns);
        return;
    }
    struct server_conn **seed = t->url.kind == REDIS_SENTINEL ? &t->sentinel : &t->primary;
    if (*seed == NULL) {
        *seed = server_next_seed(t);
        if (*seed != NULL) {
            (*seed)->wanted = true;
        }
    }
    if (t->sentinel != NULL && t->sentinel->stage == SERVER_READY && !t->sentinel_asked && t->candidate == NULL &&
        now_ns >= t->sentinel_due_ns) {
        ask_sentinel(t, now_ns);
    }
}

bool topology_ready(const struct redis_transport *t)
{
    if (t->cluster) {
        return slot_map_ready(t);
    }
    return t->primary != NULL && t->primary->stage == SERVER_READY;
}

uint64_t topology_deadline(const struct redis_transport *t)
{
    if (t->cluster) {
        return slot_map_deadline(t);
    }
    const bool asks = t->sentinel != NULL && t->sentinel->stage == SERVER_READY && !t->sentinel_asked;
    return asks && t->candidate == NULL ? t->sentinel_due_ns : UINT64_MAX;
}

/* Makes a server that is known to be a primary the one of this transport. */
static void set_primary(struct redis_transport *t, struct server_conn *server)
{
    if (t->primary != NULL && t->primary != server) {
        release(t->primary);
    }
    t->primary = server;
    t->candidate = NULL;
    if (t->sentinel != NULL) {
        t->sentinel->failures = 0;
    }
}

void topology_is_cluster(struct redis_transport *t)
{
    t->cluster = t->slot_map_wanted = true;
    t->probe = t->primary; /* stays connected until the slot map has come */
    t->primary = NULL;
}

void topology_server_ready(struct redis_transport *t, struct server_conn *server, uint64_t now_ns)
{
    if (server->sentinel || t->cluster) {
        return; /* the next step sends the question */
    }
    if (t->url.kind == REDIS_SERVER && server->cluster) {
        topology_is_cluster(t);
    } else if (server->replica && (t->url.kind == REDIS_SENTINEL || t->url.seed_count > 1)) {
        problem_set(t, server, "is a replica, not a primary");
        server_drop(t, server, now_ns);
    } else if (server == t->candidate) {
        set_primary(t, server);
    }
}

void topology_server_lost(struct redis_transport *t, struct server_conn *gone, uint64_t now_ns)
{
    if (t->cluster) {
        slot_map_server_lost(t, gone);
        return;
    }
    gone->wanted = false;
    if (gone == t->primary) {
        t->primary = NULL;
        t->sentinel_due_ns = now_ns;
    }
    if (gone == t->sentinel) {
        t->sentinel = NULL;
        t->sentinel_asked = false;
    }
    if (gone == t->candidate) {
        t->candidate = NULL;
        t->sentinel_due_ns = now_ns;
        if (t->sentinel != NULL) {
            server_drop(t, t->sentinel, now_ns); /* another Sentinel may know better */
        }
    }
}

void topology_take_primary(struct redis_transport *t, struct server_conn *server, const redisReply *reply,
                           uint64_t now_ns)
{
    t->sentinel_asked = false;
    t->sentinel_due_ns = now_ns + ASK_EVERY_NS;
    if (reply->type == REDIS_REPLY_ERROR) {
        problem_set(t, server, "%.150s", reply->str);
        server_drop(t, server, now_ns);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING || reply->element[0]->len >= URL_FIELD_SIZE ||
        reply->element[1]->len >= sizeof(server->port)) {
        problem_set(t, server, "knows no primary named \"%.80s\"", t->url.primary);
        server_drop(t, server, now_ns);
        return;
    }
    struct server_conn *named = server_at(t, reply->element[0]->str, reply->element[1]->str, false);
    if (named == NULL) {
        return;
    }
    if (named == t->primary) {
        server->failures = 0;
        return;
    }
    t->candidate = named;
    named->wanted = true;
    named->next_try_ns = min_u64(named->next_try_ns, now_ns + CANDIDATE_WAIT_NS);
    t->progressed = true;
}
