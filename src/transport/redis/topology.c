/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which server is asked for what. Follows the Redis Cluster specification, and the guidelines for Sentinel clients.
 *
 * Server: one of the URL's hosts at a time; when it is lost, the one whose turn comes first, which passes over those
 * that have just failed.
 *
 * Sentinel: one Sentinel at a time, asked for the primary's address at first, once a second, and when the primary is
 * lost. What it names is a candidate until it has said itself that it is a primary; only then the old one is left. A
 * Sentinel that names a replica or a dead server is passed over.
 *
 * Cluster: any server that is ready is asked for the map; with none, a seed. What a redirection says holds until the
 * next map. The map is asked for again after redirections and losses, and every half minute.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"
#include "transport/redis/state.h"

#define ASK_EVERY_NS (1 * NS_PER_S)

/* How soon a server that a Sentinel names is tried again after a failure. */
#define CANDIDATE_WAIT_NS (200 * NS_PER_MS)

#define MAP_LEAST_NS  (100 * NS_PER_MS) /* between two questions for the map */
#define MAP_BROKEN_NS (300 * NS_PER_MS) /* while a part of it is not served */
#define MAP_EVERY_NS  (30 * NS_PER_S)

/* CRC-16/XMODEM, as Redis Cluster takes it. */
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

uint16_t route_slot(const char *key)
{
    const char *open = strchr(key, '{');
    const char *close = open != NULL ? strchr(open, '}') : NULL;
    const bool tagged = close != NULL && close != open + 1;
    const char *from = tagged ? open + 1 : key;
    return crc16(from, tagged ? (size_t) (close - from) : strlen(key)) % CLUSTER_SLOTS;
}

void route_open(struct redis_transport *t, uint64_t now_ns)
{
    memset(t->owner, PEER_NONE, sizeof(t->owner));
    for (unsigned seq = 0; seq < CLUSTER_TAGS; seq++) {
        char text[8];
        const int length = snprintf(text, sizeof(text), "%03x", seq);
        t->tag_slots[seq] = crc16(text, (size_t) length) % CLUSTER_SLOTS;
    }
    for (size_t i = 0; i < PEERS_MAX; i++) {
        if (t->peers[i] != NULL) {
            t->peers[i]->next_try_ns = now_ns;
        }
    }
}

struct peer *route_owner(const struct redis_transport *t, uint16_t slot)
{
    if (!t->cluster) {
        return t->primary;
    }
    return t->owner[slot] != PEER_NONE ? t->peers[t->owner[slot]] : NULL;
}

/* The seed whose turn comes first, of those that are not wanted already. */
static struct peer *next_seed(const struct redis_transport *t)
{
    struct peer *next = NULL;
    for (size_t i = 0; i < PEERS_MAX; i++) {
        struct peer *peer = t->peers[i];
        if (peer != NULL && peer->seed && !peer->wanted && (next == NULL || peer->next_try_ns < next->next_try_ns)) {
            next = peer;
        }
    }
    return next;
}

/* Lets go of one that is no longer needed. */
static void leave(struct peer *peer)
{
    if (peer != NULL) {
        peer->wanted = false;
        if (peer->call_count == 0) {
            peer_close(peer);
        }
    }
}

/* T3: what nobody wants any more. */
static void sweep(struct redis_transport *t)
{
    for (size_t i = 0; i < PEERS_MAX; i++) {
        struct peer *peer = t->peers[i];
        if (peer == NULL || peer->wanted || peer->call_count != 0) {
            continue;
        }
        if (peer->stage != PEER_OFF) {
            peer_close(peer);
        }
        if (!peer->seed) {
            peer_free(t, peer);
        }
    }
}

static void ask_sentinel(struct redis_transport *t, uint64_t now_ns)
{
    const char *argv[3] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", t->url.primary};
    const size_t lengths[3] = {strlen(argv[0]), strlen(argv[1]), strlen(argv[2])};
    t->sentinel_asked = true;
    peer_call(t, t->sentinel, (struct call){.kind = CALL_PRIMARY}, 3, argv, lengths, now_ns);
}

/* Somebody who can be asked for the map; everyone has a turn, as one may know less than the others. */
static struct peer *map_teller(struct redis_transport *t)
{
    for (unsigned i = 0; i < PEERS_MAX; i++) {
        struct peer *peer = t->peers[(t->map_turn + i) % PEERS_MAX];
        if (peer != NULL && !peer->sentinel && peer->stage == PEER_READY) {
            t->map_turn = (t->map_turn + i + 1) % PEERS_MAX;
            return peer;
        }
    }
    return NULL;
}

static void step_cluster(struct redis_transport *t, uint64_t now_ns)
{
    t->map_wanted = t->map_wanted || now_ns >= t->map_due_ns;
    if (!t->map_wanted || t->map_peer != NULL || now_ns < t->map_ns) {
        return;
    }
    struct peer *peer = map_teller(t);
    if (peer != NULL) {
        const char *argv[2] = {"CLUSTER", "SLOTS"};
        const size_t lengths[2] = {7, 5};
        t->map_peer = peer;
        t->map_ns = now_ns + MAP_LEAST_NS;
        peer_call(t, peer, (struct call){.kind = CALL_MAP}, 2, argv, lengths, now_ns);
    } else if (t->probe == NULL) {
        t->probe = next_seed(t);
        if (t->probe != NULL) {
            t->probe->wanted = true;
        }
    }
}

void route_step(struct redis_transport *t, uint64_t now_ns)
{
    if (t->round == NULL) {
        sweep(t);
    }
    if (t->cluster) {
        step_cluster(t, now_ns);
        return;
    }
    struct peer **seed = t->url.kind == REDIS_SENTINEL ? &t->sentinel : &t->primary;
    if (*seed == NULL) {
        *seed = next_seed(t);
        if (*seed != NULL) {
            (*seed)->wanted = true;
        }
    }
    if (t->sentinel != NULL && t->sentinel->stage == PEER_READY && !t->sentinel_asked && t->candidate == NULL &&
        now_ns >= t->ask_ns) {
        ask_sentinel(t, now_ns);
    }
}

bool route_ready(const struct redis_transport *t)
{
    if (!t->cluster) {
        return t->primary != NULL && t->primary->stage == PEER_READY;
    }
    bool some = false;
    for (size_t i = 0; i < PEERS_MAX; i++) {
        const struct peer *peer = t->peers[i];
        if (peer == NULL || !peer->in_map) {
            continue;
        }
        some = some || peer->stage == PEER_READY;
        /* One that has not failed yet is waited for; one that has is not. */
        if (peer->stage != PEER_READY && peer->failures == 0) {
            return false;
        }
    }
    return t->map_known && some;
}

uint64_t route_deadline(const struct redis_transport *t)
{
    if (t->cluster && t->map_peer == NULL) {
        bool teller = t->probe == NULL && next_seed(t) != NULL;
        for (size_t i = 0; i < PEERS_MAX && !teller; i++) {
            teller = t->peers[i] != NULL && t->peers[i]->stage == PEER_READY;
        }
        return !t->map_wanted ? t->map_due_ns : teller ? t->map_ns : UINT64_MAX;
    }
    const bool asks = t->sentinel != NULL && t->sentinel->stage == PEER_READY && !t->sentinel_asked;
    return asks && t->candidate == NULL ? t->ask_ns : UINT64_MAX;
}

/* A server has said that it is a primary: from now on it is ours. */
static void take_primary(struct redis_transport *t, struct peer *peer)
{
    if (t->primary != NULL && t->primary != peer) {
        leave(t->primary);
    }
    t->primary = peer;
    t->candidate = NULL;
    if (t->sentinel != NULL) {
        t->sentinel->failures = 0;
    }
}

void route_is_cluster(struct redis_transport *t)
{
    t->cluster = t->map_wanted = true;
    t->probe = t->primary; /* stays, until the map says whether it is of use */
    t->primary = NULL;
}

void route_peer_ready(struct redis_transport *t, struct peer *peer, uint64_t now_ns)
{
    if (peer->sentinel || t->cluster) {
        return; /* the next step asks it */
    }
    if (t->url.kind == REDIS_SERVER && peer->cluster) {
        route_is_cluster(t);
    } else if (peer->replica && (t->url.kind == REDIS_SENTINEL || t->url.seed_count > 1)) {
        problem_set(t, peer, "is a replica, not a primary");
        peer_drop(t, peer, now_ns);
    } else if (peer == t->candidate) {
        take_primary(t, peer);
    }
}

void route_peer_lost(struct redis_transport *t, const struct peer *peer, uint64_t now_ns)
{
    struct peer *gone = t->peers[peer->index];
    if (gone == t->map_peer) {
        t->map_peer = NULL;
    }
    if (t->cluster) {
        if (gone == t->probe) {
            t->probe = NULL;
            gone->wanted = gone->in_map;
        }
        route_refresh(t);
        return;
    }
    gone->wanted = false;
    if (gone == t->primary) {
        t->primary = NULL;
        t->ask_ns = now_ns;
    }
    if (gone == t->sentinel) {
        t->sentinel = NULL;
        t->sentinel_asked = false;
    }
    if (gone == t->candidate) {
        t->candidate = NULL;
        t->ask_ns = now_ns;
        if (t->sentinel != NULL) {
            peer_drop(t, t->sentinel, now_ns); /* it knows no better: another one may */
        }
    }
}

void route_primary(struct redis_transport *t, struct peer *peer, const redisReply *reply, uint64_t now_ns)
{
    t->sentinel_asked = false;
    t->ask_ns = now_ns + ASK_EVERY_NS;
    if (reply->type == REDIS_REPLY_ERROR) {
        problem_set(t, peer, "%.150s", reply->str);
        peer_drop(t, peer, now_ns);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 || reply->element[0]->type != REDIS_REPLY_STRING ||
        reply->element[1]->type != REDIS_REPLY_STRING || reply->element[0]->len >= URL_FIELD_SIZE ||
        reply->element[1]->len >= sizeof(peer->port)) {
        problem_set(t, peer, "knows no primary named \"%.80s\"", t->url.primary);
        peer_drop(t, peer, now_ns);
        return;
    }
    struct peer *named = peer_at(t, reply->element[0]->str, reply->element[1]->str, false);
    if (named == NULL) {
        return;
    }
    if (named == t->primary) {
        peer->failures = 0;
        return;
    }
    t->candidate = named;
    named->wanted = true;
    named->next_try_ns = min_u64(named->next_try_ns, now_ns + CANDIDATE_WAIT_NS);
    t->again = true;
}

void route_refresh(struct redis_transport *t)
{
    t->map_wanted = t->cluster;
}

/* A host and a port as a map or a redirection give them; an empty host is the teller's own. */
static struct peer *place(struct redis_transport *t, const struct peer *teller, const char *host, size_t length,
                          long long port)
{
    char name[URL_FIELD_SIZE];
    char number[8];
    if (length >= sizeof(name) || port < 1 || port > 65535) {
        return NULL;
    }
    (void) snprintf(name, sizeof(name), "%.*s", (int) length, host);
    (void) snprintf(number, sizeof(number), "%lld", port);
    const bool unknown = length == 0 || strcmp(name, "?") == 0;
    struct peer *peer = peer_at(t, unknown && teller->host[0] != '\0' ? teller->host : name, number, false);
    if (peer != NULL) {
        peer->wanted = true;
    }
    return peer;
}

struct peer *route_redirect(struct redis_transport *t, const struct peer *from, const char *text, uint16_t *slot)
{
    const char *at = strchr(text, ' ');
    char *end = NULL;
    const unsigned long number = at != NULL ? strtoul(at, &end, 10) : CLUSTER_SLOTS;
    const char *colon = strrchr(text, ':');
    if (number >= CLUSTER_SLOTS || end == NULL || *end != ' ' || colon == NULL || colon < end) {
        return NULL;
    }
    const char *host = end + 1;
    struct peer *peer = place(t, from, host, (size_t) (colon - host), strtoll(colon + 1, NULL, 10));
    *slot = (uint16_t) number;
    if (peer != NULL && strncmp(text, "MOVED", 5) == 0) {
        peer->in_map = true;
        t->owner[number] = peer->index;
    }
    return peer;
}

static bool is_integer(const redisReply *reply, long long most)
{
    return reply->type == REDIS_REPLY_INTEGER && reply->integer >= 0 && reply->integer <= most;
}

/* One range of the map: {first, last, {host, port, ...}, replicas...}. False: it is malformed. */
static bool take_range(struct redis_transport *t, const struct peer *teller, const redisReply *range)
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
    struct peer *peer = place(t, teller, named ? host->str : "", named ? host->len : 0, where->element[1]->integer);
    if (peer != NULL) {
        peer->in_map = true;
        for (long long slot = range->element[0]->integer; slot <= range->element[1]->integer; slot++) {
            t->owner[slot] = peer->index;
        }
    }
    return true; /* without room for its peer its slots are nobody's */
}

/* A beat of its own for every shard that has none, at its first tag. */
static void choose_beats(struct redis_transport *t)
{
    bool has[PEERS_MAX] = {false};
    for (size_t i = 1; i < t->beat_count; i++) {
        const uint8_t owner = t->owner[t->beats[i].slot];
        if (owner != PEER_NONE) {
            has[owner] = true;
        }
    }
    for (unsigned seq = 0; seq < CLUSTER_TAGS && t->beat_count < BEATS_MAX; seq++) {
        const uint8_t owner = t->owner[t->tag_slots[seq]];
        if (owner == PEER_NONE || has[owner]) {
            continue;
        }
        struct beat *beat = &t->beats[t->beat_count++];
        *beat = (struct beat){.slot = t->tag_slots[seq]};
        (void) snprintf(beat->key, sizeof(beat->key), "%s:{%03x}:nodes", t->prefix, seq);
        has[owner] = true;
    }
}

/* Whether every part of the map is served by a server that has not failed. */
static bool is_whole(const struct redis_transport *t)
{
    for (unsigned seq = 0; seq < CLUSTER_TAGS; seq++) {
        const uint8_t owner = t->owner[t->tag_slots[seq]];
        if (owner == PEER_NONE || t->peers[owner]->failures != 0) {
            return false;
        }
    }
    return true;
}

void route_map(struct redis_transport *t, struct peer *peer, const redisReply *reply, uint64_t now_ns)
{
    t->map_peer = NULL;
    t->again = true;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0) {
        t->map_ns = now_ns + MAP_BROKEN_NS;
        problem_set(t, peer, "%.120s%s", reply->type == REDIS_REPLY_ERROR ? reply->str : "the Cluster serves no slots",
                    reply->type == REDIS_REPLY_ERROR ? " (to CLUSTER SLOTS)" : "");
        if (reply->type == REDIS_REPLY_ERROR) {
            peer_drop(t, peer, now_ns);
        }
        return;
    }
    for (size_t i = 0; i < PEERS_MAX; i++) {
        if (t->peers[i] != NULL) {
            t->peers[i]->in_map = false;
        }
    }
    memset(t->owner, PEER_NONE, sizeof(t->owner));
    bool good = true;
    for (size_t i = 0; i < reply->elements; i++) {
        good = take_range(t, peer, reply->element[i]) && good;
    }
    for (size_t i = 0; i < PEERS_MAX; i++) {
        if (t->peers[i] != NULL) {
            t->peers[i]->wanted = t->peers[i]->in_map;
        }
    }
    t->probe = NULL;
    t->map_known = true;
    t->map_wanted = !good || !is_whole(t);
    t->map_ns = now_ns + (t->map_wanted ? MAP_BROKEN_NS : MAP_LEAST_NS);
    t->map_due_ns = now_ns + MAP_EVERY_NS;
    choose_beats(t);
}
