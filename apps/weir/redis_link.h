/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection to Redis that waits for each answer, for at most some seconds. Adapter to hiredis. The connection takes
 * no part in the fleet: no node sees it.
 */
#ifndef WEIR_REDIS_LINK_H
#define WEIR_REDIS_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include <hiredis/hiredis.h>

#include "transport/redis/url.h"

struct redis_link {
    struct redis_url url;
    redisContext *context;
    char server[URL_FIELD_SIZE + 16]; /* for error sentences: the host and port, or the path */
};

enum redis_link_result {
    REDIS_LINK_GOOD,
    REDIS_LINK_URL,   /* the URL is malformed, or of a form that this connection does not have */
    REDIS_LINK_FAILED /* no server answers as it should */
};

/* Reads the URL, as the library does, and connects. `error` has a sentence that never holds a password. */
enum redis_link_result redis_link_open(struct redis_link *out, const char *url, weir_error *error);

/*
 * Sends a command, and returns the answer, which the caller gives to freeReplyObject. It follows a Cluster's MOVED, and
 * goes on to the next host of the URL where a replica refuses to write. NULL: there is no answer, or it is an error,
 * and `error` has a sentence.
 */
redisReply *redis_link_call(struct redis_link *link, int argc, const char **argv, weir_error *error);

/* As redis_link_call, but an error that Redis answers is an answer. */
redisReply *redis_link_try(struct redis_link *link, int argc, const char **argv, weir_error *error);

/*
 * Many commands at once: each is sent without a wait for its answer, and the answers come in the order of the commands.
 * An error that Redis answers is an answer. The caller takes all answers, or closes the link. False and NULL: the link
 * is lost, and `error` has a sentence.
 */
bool redis_link_send(struct redis_link *link, int argc, const char **argv, weir_error *error);
redisReply *redis_link_receive(struct redis_link *link, weir_error *error);

/* Whether redis_link_call has failed because the key holds another type. */
bool redis_link_is_wrong_type(const weir_error *error);

/*
 * A copy of Redis's URL: of the command line, where `given` is not NULL, else of WEIR_REDIS_URL. On the command line,
 * which every user of the machine can read, the rest of the URL is overwritten. NULL: there is no URL, or no memory.
 */
char *redis_link_take_url(const char *given);

/* Overwrites and frees such a copy. NULL is allowed. */
void redis_link_drop_url(char *url);

void redis_link_close(struct redis_link *link);

#endif
