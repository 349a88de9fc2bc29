/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See slot_map.h. Follows the Redis Cluster specification.
 *
 * Any server that is ready is asked for the slot map; if none is ready, a seed is connected. A redirection holds until
 * the next slot map. The slot map is asked for again after redirections and losses, and every 30 s.
 */
#include "transport/redis/slot_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "transport/redis/problem.h"
#include "transport/redis/server.h"

#define SLOT_MAP_LEAST_NS  (100 * NS_PER_MS) /* between two questions for the slot map */
#define SLOT_MAP_BROKEN_NS (300 * NS_PER_MS) /* while some slots are not served */
#define SLOT_MAP_EVERY_NS  (30 * NS_PER_S)

/* CRC-16/XMODEM, as the Redis Cluster specification defines it. */
static uint16_t crc16(const char *bytes, size_t length)
{
    unsigned crc = 0;
    for (size_t i = 0; i < length; i++) {
        crc ^= (unsigned) (unsigned char) bytes[i] << 8;
        for (int bit = 0; bit < 8; bit++) {
            crc = ((crc << 1) ^ ((crc & 0x8000) != 0 ? 0x1021U : 0U)) & 0xffff;
        }
    }
    return (uint16_t) crc;
}

uint16_t slot_map_cluster_slot(const char *key)
{
    const char *open = strchr(key, '{');
    const char *close = open != NULL ? strchr(open, '}') : NULL;
    const bool tagged = close != NULL && close != open + 1;
    const char *from = tagged ? open + 1 : key;
    return crc16(from, tagged ? (size_t) (close - from) : strlen(key)) % CLUSTER_SLOTS;
}

void slot_map_open(struct redis_transport *t)
{
    memset(t->slot_owner, SERVER_NONE, sizeof(t->slot_owner));
    for (unsigned seq = 0; seq < CLUSTER_TAGS; seq++) {
        char text[8];
        const int length = snprintf(text, sizeof(text), "%03x", seq);
        t->tag_cluster_slots[seq] = crc16(text, (size_t) length) % CLUSTER_SLOTS;
    }
}

struct server_conn *slot_map_owner(const struct redis_transport *t, uint16_t cluster_slot)
{
    const uint8_t owner = t->slot_owner[cluster_slot];
    return owner != SERVER_NONE ? t->servers[owner] : NULL;
}

const struct server_conn *slot_map_shard(const struct redis_transport *t, size_t number)
{
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL && t->servers[i]->in_slot_map && number-- == 0) {
            return t->servers[i];
        }
    }
    return NULL;
}

uint16_t slot_map_shard_slot(const struct redis_transport *t, size_t number)
{
    const struct server_conn *server = slot_map_shard(t, number);
    uint16_t slot = 0;
    while (server != NULL && slot < CLUSTER_SLOTS - 1 && t->slot_owner[slot] != server->index) {
        slot++;
    }
    return slot;
}

/* The next server to ask for the slot map. The servers take turns, because one may know less than the others. */
static struct server_conn *next_slot_map_source(struct redis_transport *t)
{
    for (unsigned i = 0; i < SERVERS_MAX; i++) {
        struct server_conn *server = t->servers[(t->slot_map_turn + i) % SERVERS_MAX];
        if (server != NULL && !server->sentinel && server->stage == SERVER_READY) {
            t->slot_map_turn = (t->slot_map_turn + i + 1) % SERVERS_MAX;
            return server;
        }
    }
    return NULL;
}

void slot_map_step(struct redis_transport *t, uint64_t now_ns)
{
    t->slot_map_wanted = t->slot_map_wanted || now_ns >= t->slot_map_due_ns;
    if (!t->slot_map_wanted || t->slot_map_server != NULL || now_ns < t->slot_map_earliest_ns) {
        return;
    }
    struct server_conn *server = next_slot_map_source(t);
    if (server != NULL) {
        const char *argv[2] = {"CLUSTER", "SLOTS"};
        const size_t lengths[2] = {7, 5};
        t->slot_map_server = server;
        t->slot_map_earliest_ns = now_ns + SLOT_MAP_LEAST_NS;
        (void) server_call(t, server, (struct call){.kind = CALL_SLOT_MAP}, &(struct command){2, argv, lengths},
                           now_ns);
    } else if (t->probe == NULL) {
        t->probe = server_next_seed(t);
        if (t->probe != NULL) {
            t->probe->wanted = true;
        }
    }
}

bool slot_map_ready(const struct redis_transport *t)
{
    bool some = false;
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        const struct server_conn *server = t->servers[i];
        if (server == NULL || !server->in_slot_map) {
            continue;
        }
        some = some || server->stage == SERVER_READY;
        /* A server that has not failed is waited for; one that has failed is not. */
        if (server->stage != SERVER_READY && server->failures == 0) {
            return false;
        }
    }
    return t->slot_map_known && some;
}

uint64_t slot_map_deadline(const struct redis_transport *t)
{
    if (t->slot_map_server != NULL) {
        return UINT64_MAX;
    }
    if (!t->slot_map_wanted) {
        return t->slot_map_due_ns;
    }
    bool has_source = t->probe == NULL && server_next_seed(t) != NULL;
    for (size_t i = 0; i < SERVERS_MAX && !has_source; i++) {
        has_source = t->servers[i] != NULL && t->servers[i]->stage == SERVER_READY;
    }
    return has_source ? t->slot_map_earliest_ns : UINT64_MAX;
}

void slot_map_server_lost(struct redis_transport *t, struct server_conn *server)
{
    if (server == t->slot_map_server) {
        t->slot_map_server = NULL;
    }
    if (server == t->probe) {
        t->probe = NULL;
        server->wanted = server->in_slot_map;
    }
    slot_map_refresh(t);
}

void slot_map_refresh(struct redis_transport *t)
{
    t->slot_map_wanted = t->cluster;
}

/* The server at a host and port of a slot map or a redirection. An empty host stands for the host of `teller`. */
static struct server_conn *server_named(struct redis_transport *t, const struct server_conn *teller, const char *host,
                                        size_t length, long long port)
{
    char name[URL_FIELD_SIZE];
    char number[8];
    if (length >= sizeof(name) || port < 1 || port > 65535) {
        return NULL;
    }
    (void) snprintf(name, sizeof(name), "%.*s", (int) length, host);
    (void) snprintf(number, sizeof(number), "%lld", port);
    const bool unknown = length == 0 || strcmp(name, "?") == 0;
    struct server_conn *server = server_at(t, unknown && teller->host[0] != '\0' ? teller->host : name, number, false);
    if (server != NULL) {
        server->wanted = true;
    }
    return server;
}

struct server_conn *slot_map_redirect(struct redis_transport *t, const struct server_conn *from, const char *text,
                                      uint16_t *cluster_slot)
{
    const char *at = strchr(text, ' ');
    char *end = NULL;
    const unsigned long number = at != NULL ? strtoul(at, &end, 10) : CLUSTER_SLOTS;
    const char *colon = strrchr(text, ':');
    if (number >= CLUSTER_SLOTS || end == NULL || end == at || *end != ' ' || colon == NULL || colon < end) {
        return NULL;
    }
    const char *host = end + 1;
    struct server_conn *server = server_named(t, from, host, (size_t) (colon - host), strtoll(colon + 1, NULL, 10));
    *cluster_slot = (uint16_t) number;
    if (server != NULL && strncmp(text, "MOVED", 5) == 0) {
        server->in_slot_map = true;
        t->slot_owner[number] = server->index;
    }
    return server;
}

static bool is_integer(const redisReply *reply, long long most)
{
    return reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0 && reply->integer <= most;
}

/* Reads one range of a slot map: {first, last, {host, port, ...}, replicas...}. False: malformed. */
static bool take_range(struct redis_transport *t, const struct server_conn *teller, const redisReply *range)
{
    if (range->type != REDIS_REPLY_ARRAY || range->elements < 3 || !is_integer(range->element[0], CLUSTER_SLOTS - 1) ||
        !is_integer(range->element[1], CLUSTER_SLOTS - 1)) {
        return false;
    }
    const redisReply *where = range->element[2];
    if (where->type != REDIS_REPLY_ARRAY || where->elements < 2 || !is_integer(where->element[1], 65535)) {
        return false;
    }
    const redisReply *host = where->element[0];
    const bool named = host->type == REDIS_REPLY_STRING;
    struct server_conn *server =
        server_named(t, teller, named ? host->str : "", named ? host->len : 0, where->element[1]->integer);
    if (server != NULL) {
        server->in_slot_map = true;
        for (long long cluster_slot = range->element[0]->integer; cluster_slot <= range->element[1]->integer;
             cluster_slot++) {
            t->slot_owner[cluster_slot] = server->index;
        }
    }
    return true; /* without room for the server its slots have no owner */
}

/* Adds a heartbeat record for every primary that has none, at its first tag. */
static void choose_heartbeats(struct redis_transport *t)
{
    bool has[SERVERS_MAX] = {false};
    for (size_t i = 1; i < t->heartbeat_count; i++) {
        const uint8_t owner = t->slot_owner[t->heartbeats[i].cluster_slot];
        if (owner != SERVER_NONE) {
            has[owner] = true;
        }
    }
    for (unsigned seq = 0; seq < CLUSTER_TAGS && t->heartbeat_count < HEARTBEATS_MAX; seq++) {
        const uint8_t owner = t->slot_owner[t->tag_cluster_slots[seq]];
        if (owner == SERVER_NONE || has[owner]) {
            continue;
        }
        struct heartbeat *heartbeat = &t->heartbeats[t->heartbeat_count++];
        *heartbeat = (struct heartbeat){.cluster_slot = t->tag_cluster_slots[seq]};
        (void) snprintf(heartbeat->key, sizeof(heartbeat->key), "%s:{%03x}:nodes", t->prefix, seq);
        has[owner] = true;
    }
}

/* True if all slots of the tags are served by servers that have not failed. */
static bool is_complete(const struct redis_transport *t)
{
    for (unsigned seq = 0; seq < CLUSTER_TAGS; seq++) {
        const uint8_t owner = t->slot_owner[t->tag_cluster_slots[seq]];
        if (owner == SERVER_NONE || t->servers[owner]->failures != 0) {
            return false;
        }
    }
    return true;
}

void slot_map_take(struct redis_transport *t, struct server_conn *server, const redisReply *reply, uint64_t now_ns)
{
    t->slot_map_server = NULL;
    t->progressed = true;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
        t->slot_map_earliest_ns = now_ns + SLOT_MAP_BROKEN_NS;
        problem_set(t, server, "%.120s%s",
                    reply->type == REDIS_REPLY_ERROR ? reply->str : "the Cluster serves no slots",
                    reply->type == REDIS_REPLY_ERROR ? " (to CLUSTER SLOTS)" : "");
        if (reply->type == REDIS_REPLY_ERROR) {
            server_drop(t, server, now_ns);
        }
        return;
    }
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL) {
            t->servers[i]->in_slot_map = false;
        }
    }
    memset(t->slot_owner, SERVER_NONE, sizeof(t->slot_owner));
    bool good = true;
    for (size_t i = 0; i < reply->elements; i++) {
        good = take_range(t, server, reply->element[i]) && good;
    }
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL) {
            t->servers[i]->wanted = t->servers[i]->in_slot_map;
        }
    }
    t->probe = NULL;
    t->slot_map_known = true;
    t->slot_map_wanted = !good || !is_complete(t);
    t->slot_map_earliest_ns = now_ns + (t->slot_map_wanted ? SLOT_MAP_BROKEN_NS : SLOT_MAP_LEAST_NS);
    t->slot_map_due_ns = now_ns + SLOT_MAP_EVERY_NS;
    choose_heartbeats(t);
}
