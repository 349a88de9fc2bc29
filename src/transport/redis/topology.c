/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See topology.h. Follows the Redis Cluster specification and the guidelines for Sentinel clients.
 *
 * Server: one of the URL's hosts at a time. When its connection is lost, the next host is the one whose attempt is due
 * first, so hosts that have just failed are passed over.
 *
 * Sentinel: one Sentinel at a time is asked for the primary's address: at first, once a second, and when the primary is
 * lost. The named server is a candidate until it says itself that it is a primary. Only then the old primary is left. A
 * Sentinel that names a replica or a dead server is passed over.
 *
 * Cluster: any server that is ready is asked for the slot map; if none is ready, a seed is connected. A redirection
 * holds until the next slot map. The slot map is asked for again after redirections and losses, and every 30 s.
 */
#include "transport/redis/topology.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "transport/redis/problem.h"
#include "transport/redis/server.h"

#define ASK_EVERY_NS (1 * NS_PER_S)

/* A server that a Sentinel names is tried again this soon after a failure. */
#define CANDIDATE_WAIT_NS (200 * NS_PER_MS)

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

uint16_t topology_cluster_slot(const char *key)
{
    const char *open = strchr(key, '{');
    const char *close = open != NULL ? strchr(open, '}') : NULL;
    const bool tagged = close != NULL && close != open + 1;
    const char *from = tagged ? open + 1 : key;
    return crc16(from, tagged ? (size_t) (close - from) : strlen(key)) % CLUSTER_SLOTS;
}

void topology_open(struct redis_transport *t, uint64_t now_ns)
{
    memset(t->slot_owner, SERVER_NONE, sizeof(t->slot_owner));
    for (unsigned seq = 0; seq < CLUSTER_TAGS; seq++) {
        char text[8];
        const int length = snprintf(text, sizeof(text), "%03x", seq);
        t->tag_cluster_slots[seq] = crc16(text, (size_t) length) % CLUSTER_SLOTS;
    }
    for (size_t i = 0; i < SERVERS_MAX; i++) {
        if (t->servers[i] != NULL) {
            t->servers[i]->next_try_ns = now_ns;
        }
    }
}

struct server_conn *topology_owner(const struct redis_transport *t, uint16_t cluster_slot)
{
    if (!t->cluster) {
        return t->primary;
    }
    return t->slot_owner[cluster_slot] != SERVER_NONE ? t->servers[t->slot_owner[cluster_slot]] : NULL;
}

/* The seed whose attempt is due first, of the seeds that are not wanted. */
static struct server_conn *next_seed(const struct redis_transport *t)
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

static void step_cluster(struct redis_transport *t, uint64_t now_ns)
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
        t->probe = next_seed(t);
        if (t->probe != NULL) {
            t->probe->wanted = true;
        }
    }
}

void topology_step(struct redis_transport *t, uint64_t now_ns)
{
    if (t->round == NULL) {
        free_unwanted(t);
    }
    if (t->cluster) {
        step_cluster(t, now_ns);
        return;
    }
    struct server_conn **seed = t->url.kind == REDIS_SENTINEL ? &t->sentinel : &t->primary;
    if (*seed == NULL) {
        *seed = next_seed(t);
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
    if (!t->cluster) {
        return t->primary != NULL && t->primary->stage == SERVER_READY;
    }
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

uint64_t topology_deadline(const struct redis_transport *t)
{
    if (t->cluster && t->slot_map_server == NULL) {
        bool has_source = t->probe == NULL && next_seed(t) != NULL;
        for (size_t i = 0; i < SERVERS_MAX && !has_source; i++) {
            has_source = t->servers[i] != NULL && t->servers[i]->stage == SERVER_READY;
        }
        if (!t->slot_map_wanted) {
            return t->slot_map_due_ns;
        }
        return has_source ? t->slot_map_earliest_ns : UINT64_MAX;
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
    if (gone == t->slot_map_server) {
        t->slot_map_server = NULL;
    }
    if (t->cluster) {
        if (gone == t->probe) {
            t->probe = NULL;
            gone->wanted = gone->in_slot_map;
        }
        topology_refresh(t);
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

void topology_refresh(struct redis_transport *t)
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

struct server_conn *topology_redirect(struct redis_transport *t, const struct server_conn *from, const char *text,
                                      uint16_t *cluster_slot)
{
    const char *at = strchr(text, ' ');
    char *end = NULL;
    const unsigned long number = at != NULL ? strtoul(at, &end, 10) : CLUSTER_SLOTS;
    const char *colon = strrchr(text, ':');
    if (number >= CLUSTER_SLOTS || end == NULL || *end != ' ' || colon == NULL || colon < end) {
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

void topology_take_slot_map(struct redis_transport *t, struct server_conn *server, const redisReply *reply,
                            uint64_t now_ns)
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
