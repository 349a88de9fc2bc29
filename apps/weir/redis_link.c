/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See redis_link.h. Which server is the present one follows src/transport/redis/topology.c: a replica is of no use
 * where the primary can be found elsewhere, and what a Sentinel names must say itself that it is a primary.
 */
#include "redis_link.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "transport/redis/tls.h"

/* The most redirections of one command: Clusters need one, and two while a slot moves. */
#define MOVES_MOST 5

/* The server at an address, which is added if there is none. NULL: there is no room, and `error` has a sentence. */
static struct redis_connection *server_at(struct redis_link *link, const char *host, const char *port, bool sentinel,
                                          weir_error *error)
{
    for (size_t i = 0; i < link->server_count; i++) {
        struct redis_connection *server = link->servers[i];
        if (server->sentinel == sentinel && strcmp(server->host, host) == 0 && strcmp(server->port, port) == 0) {
            return server;
        }
    }
    if (link->server_count == REDIS_LINK_SERVERS) {
        (void) error_set(error, -E2BIG, "Redis has more than %d servers", REDIS_LINK_SERVERS);
        return NULL;
    }
    struct redis_connection *made = redis_connection_make(&link->url, host, port, sentinel);
    if (made == NULL) {
        (void) error_set(error, -ENOMEM, "out of memory");
        return NULL;
    }
    link->servers[link->server_count++] = made;
    return made;
}

/* Connects to a server. NULL: `error` has a sentence. */
static struct redis_connection *connect_to(struct redis_link *link, const char *host, const char *port, bool sentinel,
                                           weir_error *error)
{
    struct redis_connection *server = server_at(link, host, port, sentinel, error);
    return server != NULL && redis_connection_open(server, &link->url, link->tls, error) ? server : NULL;
}

/* Whether the server is of use: it is no replica, where the primary can be found elsewhere. */
static bool is_primary(const struct redis_link *link, struct redis_connection *server, weir_error *error)
{
    const bool matters =
        link->url.kind == REDIS_SENTINEL || (link->url.kind == REDIS_SERVER && link->url.seed_count > 1);
    const char *ask[] = {"ROLE"};
    redisReply *reply = matters ? redis_connection_ask(server, 1, ask, error) : NULL;
    if (reply == NULL) {
        return !matters;
    }
    const bool told = reply->type == REDIS_REPLY_ARRAY && reply->elements != 0 && reply->element[0]->str != NULL;
    const bool good = !told || strcmp(reply->element[0]->str, "master") == 0;
    if (!good) {
        (void) error_set(error, -EIO, "%s: is a replica, not a primary", server->name);
    }
    freeReplyObject(reply);
    return good;
}

/* Connects to a primary that a command can go to. False: `error` has a sentence. */
static bool connect_primary(struct redis_link *link, const char *host, const char *port, weir_error *error)
{
    struct redis_connection *server = connect_to(link, host, port, false, error);
    if (server == NULL || !is_primary(link, server, error)) {
        return false;
    }
    link->present = server;
    return true;
}

/* Asks a Sentinel for the primary, and connects to that. False: `error` has a sentence. */
static bool connect_named(struct redis_link *link, const struct redis_seed *seed, weir_error *error)
{
    struct redis_connection *sentinel = connect_to(link, seed->host, seed->port, true, error);
    const char *ask[] = {"SENTINEL", "GET-MASTER-ADDR-BY-NAME", link->url.primary};
    redisReply *reply = sentinel != NULL ? redis_connection_ask(sentinel, 3, ask, error) : NULL;
    if (reply == NULL) {
        return false;
    }
    bool good = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 && reply->element[0]->str != NULL &&
                reply->element[1]->str != NULL;
    if (good) {
        good = connect_primary(link, reply->element[0]->str, reply->element[1]->str, error);
    } else if (reply->type == REDIS_REPLY_ERROR) {
        redis_connection_fail(sentinel, reply, error);
    } else {
        (void) error_set(error, -EIO, "%s: knows no primary named \"%.80s\"", sentinel->name, link->url.primary);
    }
    freeReplyObject(reply);
    return good;
}

/* Connects by the hosts of the URL from `first` on. Returns the number of the one that has led to a primary; the count
 * of them: none has. */
static size_t connect_from(struct redis_link *link, size_t first, weir_error *error)
{
    const struct redis_url *url = &link->url;
    if (url->seed_count == 0) {
        return connect_primary(link, "", "", error) ? 0 : 1;
    }
    for (size_t i = first; i < url->seed_count; i++) {
        const struct redis_seed *seed = &url->seeds[i];
        if (url->kind == REDIS_SENTINEL ? connect_named(link, seed, error)
                                        : connect_primary(link, seed->host, seed->port, error)) {
            return i;
        }
    }
    return url->seed_count;
}

enum redis_link_result redis_link_open(struct redis_link *out, const char *url, weir_error *error)
{
    memset(out, 0, sizeof(*out));
    if (url_parse(url, &out->url, error) != 0 || (out->url.tls && tls_context_open(&out->url, &out->tls, error) != 0)) {
        return REDIS_LINK_URL;
    }
    const size_t count = out->url.seed_count != 0 ? out->url.seed_count : 1;
    return connect_from(out, 0, error) < count ? REDIS_LINK_GOOD : REDIS_LINK_FAILED;
}

static bool is_error(const redisReply *reply, const char *kind)
{
    return reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, kind, strlen(kind)) == 0;
}

/* The server of a Cluster at a host and port. Without a host it is that of the present server. */
static struct redis_connection *named_server(struct redis_link *link, const char *host, size_t length, const char *port,
                                             bool connects, weir_error *error)
{
    char name[URL_FIELD_SIZE];
    if (length >= sizeof(name)) {
        (void) error_set(error, -EPROTO, "%s: names a host that is too long", link->present->name);
        return NULL;
    }
    (void) snprintf(name, sizeof(name), "%.*s", (int) length, host);
    if (length == 0 || strcmp(name, "?") == 0) {
        const char *own = link->present->host;
        (void) snprintf(name, sizeof(name), "%s", *own != '\0' ? own : "127.0.0.1");
    }
    return connects ? connect_to(link, name, port, false, error) : server_at(link, name, port, false, error);
}

/* Makes the server present to which "MOVED slot host:port" or "ASK slot host:port" leads. */
static bool follow(struct redis_link *link, const redisReply *reply, weir_error *error)
{
    const char *at = strrchr(reply->str, ' ');
    const char *colon = at != NULL ? strrchr(at, ':') : NULL;
    if (colon == NULL) {
        redis_connection_fail(link->present, reply, error);
        return false;
    }
    struct redis_connection *server = named_server(link, at + 1, (size_t) (colon - at - 1), colon + 1, true, error);
    if (server == NULL) {
        return false;
    }
    link->present = server;
    link->redirected = true;
    if (is_error(reply, "MOVED ")) {
        return true;
    }
    const char *ask[] = {"ASKING"};
    redisReply *allowed = redis_connection_ask(server, 1, ask, error);
    freeReplyObject(allowed);
    return allowed != NULL;
}

redisReply *redis_link_try(struct redis_link *link, int argc, const char **argv, weir_error *error)
{
    const bool has_others = link->url.kind != REDIS_SENTINEL;
    size_t next = 1; /* host of the URL */
    for (unsigned moves = 0;;) {
        redisReply *reply = redis_connection_ask(link->present, argc, argv, error);
        if (reply == NULL) {
            return NULL;
        }
        bool again;
        if ((is_error(reply, "MOVED ") || is_error(reply, "ASK ")) && moves++ < MOVES_MOST) {
            again = follow(link, reply, error);
        } else if (is_error(reply, "READONLY") && has_others && next < link->url.seed_count) {
            next = connect_from(link, next, error) + 1;
            again = next <= link->url.seed_count;
        } else {
            return reply;
        }
        freeReplyObject(reply);
        if (!again) {
            return NULL;
        }
    }
}

redisReply *redis_link_call(struct redis_link *link, int argc, const char **argv, weir_error *error)
{
    redisReply *reply = redis_link_try(link, argc, argv, error);
    if (reply != NULL && reply->type == REDIS_REPLY_ERROR) {
        redis_connection_fail(link->present, reply, error);
        freeReplyObject(reply);
        return NULL;
    }
    return reply;
}

redisReply *redis_link_ask(struct redis_link *link, int argc, const char **argv, weir_error *error)
{
    return redis_connection_ask(link->present, argc, argv, error);
}

/* Takes one range of a slot map: {first, last, {host, port, ...}, replicas...}. */
static bool take_range(struct redis_link *link, const redisReply *range, weir_error *error)
{
    const bool whole = range->type == REDIS_REPLY_ARRAY && range->elements >= 3;
    const redisReply *where = whole ? range->element[2] : NULL;
    if (where == NULL || where->type != REDIS_REPLY_ARRAY || where->elements < 2 ||
        where->element[1]->type != REDIS_REPLY_INTEGER) {
        return error_set(error, -EPROTO, "%s: CLUSTER SLOTS has an answer of an unknown form", link->present->name) ==
               0;
    }
    char port[8];
    const redisReply *host = where->element[0];
    const bool named = host->type == REDIS_REPLY_STRING;
    (void) snprintf(port, sizeof(port), "%u", (unsigned) (uint16_t) where->element[1]->integer);
    struct redis_connection *server =
        named_server(link, named ? host->str : "", named ? host->len : 0, port, false, error);
    for (size_t i = 0; i < link->shard_count && server != NULL; i++) {
        if (link->shards[i] == server) {
            return true;
        }
    }
    if (server != NULL) {
        link->shards[link->shard_count++] = server;
    }
    return server != NULL;
}

bool redis_link_find_shards(struct redis_link *link, weir_error *error)
{
    const char *ask[] = {"CLUSTER", "SLOTS"};
    redisReply *reply = redis_connection_ask(link->present, 2, ask, error);
    if (reply == NULL) {
        return false;
    }
    bool good = true;
    link->shard_count = 0;
    if (reply->type == REDIS_REPLY_ARRAY) {
        for (size_t i = 0; i < reply->elements && good; i++) {
            good = take_range(link, reply->element[i], error);
        }
    } else if (link->url.kind == REDIS_CLUSTER || link->redirected) {
        redis_connection_fail(link->present, reply, error);
        good = false;
    }
    freeReplyObject(reply);
    for (size_t i = 0; i < link->shard_count; i++) {
        if (link->shards[i] == link->present) {
            link->shards[i] = link->shards[0];
            link->shards[0] = link->present;
        }
    }
    if (link->shard_count == 0) {
        link->shards[link->shard_count++] = link->present; /* no Cluster, or one without slots */
    }
    return good;
}

bool redis_link_choose(struct redis_link *link, size_t shard, weir_error *error)
{
    struct redis_connection *server = link->shards[shard];
    if (!redis_connection_open(server, &link->url, link->tls, error)) {
        return false;
    }
    link->present = server;
    return true;
}

const char *redis_link_server(const struct redis_link *link)
{
    return link->present->name + strlen("Redis at ");
}

const char *redis_link_shard(const struct redis_link *link, size_t shard)
{
    return link->shards[shard]->name + strlen("Redis at ");
}

char *redis_link_take_url(const char *given)
{
    const char *url = given != NULL ? given : getenv("WEIR_REDIS_URL");
    char *copy = url != NULL && *url != '\0' ? strdup(url) : NULL;
    char *rest = given != NULL ? strstr(given, "://") : NULL;
    if (rest != NULL) {
        memset(rest + 3, '*', strlen(rest + 3));
    }
    return copy;
}

void redis_link_drop_url(char *url)
{
    if (url != NULL) {
        explicit_bzero(url, strlen(url));
    }
    free(url);
}

void redis_link_close(struct redis_link *link)
{
    for (size_t i = 0; i < link->server_count; i++) {
        redis_connection_free(link->servers[i]);
    }
    tls_context_close(link->tls);
    explicit_bzero(link, sizeof(*link));
}
