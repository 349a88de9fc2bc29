/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections to Redis that wait for each answer, for at most some seconds. The URL, the sockets and TLS are the
 * library's. The connections take no part in the fleet: no node sees them.
 *
 * A link is to the servers of one Redis: to a primary, which Sentinels may have named, or to the shards of a Cluster.
 * One server is the present one: it gets the next command. A Cluster's MOVED and ASK make another server the present
 * one, and servers stay connected.
 */
#ifndef WEIR_REDIS_LINK_H
#define WEIR_REDIS_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include "redis_connection.h"

/* The most servers of a link. */
#define REDIS_LINK_SERVERS 80

struct redis_link {
    struct redis_url url;
    struct tls_context *tls; /* NULL: the URL has no TLS */
    struct redis_connection *servers[REDIS_LINK_SERVERS];
    size_t server_count;
    struct redis_connection *present;                    /* NULL: there is none */
    bool redirected;                                     /* a Cluster's server has named another one */
    struct redis_connection *shards[REDIS_LINK_SERVERS]; /* of redis_link_find_shards */
    size_t shard_count;
};

enum redis_link_result {
    REDIS_LINK_GOOD,
    REDIS_LINK_URL,   /* the URL is malformed, or needs what this build does not have */
    REDIS_LINK_FAILED /* no server answers as it should */
};

/* Reads the URL, as the library does, and connects. `error` has a sentence that never holds a password. The caller
 * closes in every case. */
enum redis_link_result redis_link_open(struct redis_link *out, const char *url, weir_error *error);

/*
 * Sends a command, and returns the answer, which the caller gives to freeReplyObject. It follows a Cluster's MOVED and
 * ASK, and goes on to the next host of the URL where a replica refuses to write. NULL: there is no answer, or it is an
 * error, and `error` has a sentence.
 */
redisReply *redis_link_call(struct redis_link *link, int argc, const char **argv, weir_error *error);

/* As redis_link_call, but an error that Redis answers is an answer. */
redisReply *redis_link_try(struct redis_link *link, int argc, const char **argv, weir_error *error);

/* As redis_link_try, and the answer is that of the present server: MOVED and READONLY are not followed. */
redisReply *redis_link_ask(struct redis_link *link, int argc, const char **argv, weir_error *error);

/*
 * Finds the primaries of a Cluster that serve slots, the present server first if it is one of them; without a Cluster
 * there is one shard. False: there is no answer, or none of use, and `error` has a sentence.
 */
bool redis_link_find_shards(struct redis_link *link, weir_error *error);

/* Makes a shard, by its index, the present server. False: it cannot be reached, and `error` has a sentence. */
bool redis_link_choose(struct redis_link *link, size_t shard, weir_error *error);

/* The present server, if there is one, in sentences: its host and port, or its path. */
const char *redis_link_server(const struct redis_link *link);
const char *redis_link_shard(const struct redis_link *link, size_t shard);

/*
 * A copy of Redis's URL: of the command line, where `given` is not NULL, else of WEIR_REDIS_URL. On the command line,
 * which every user of the machine can read, the rest of the URL is overwritten. NULL: there is no URL, or no memory.
 */
char *redis_link_take_url(const char *given);

/* Overwrites and frees such a copy. NULL is allowed. */
void redis_link_drop_url(char *url);

void redis_link_close(struct redis_link *link);

#endif
