/* SPDX-License-Identifier: Apache-2.0 */
/* A transport over Redis without a connection: the replies of servers, and the commands that are queued for them. */
#ifndef WEIR_TESTS_REDIS_SCENE_H
#define WEIR_TESTS_REDIS_SCENE_H

#include <stdlib.h>
#include <string.h>

#include "support/support.h"
#include "transport/redis/redis.h"
#include "transport/redis/redis_state.h"

#define SCENE_NOW        (100 * SECOND)
#define SCENE_TIMEOUT_MS 1000

static inline struct redis_transport *scene_open(const char *url)
{
    struct transport *t = NULL;
    const struct transport_config config = {
        .url = url, .prefix = "weir", .timeout_ms = SCENE_TIMEOUT_MS, .jitter_seed = 7, .now_ns = SCENE_NOW};
    weir_error error;
    if (redis_transport_open(&config, &t, &error) != 0) {
        fail_msg("%s", error.message);
    }
    return (struct redis_transport *) (void *) t;
}

static inline void scene_close(struct redis_transport *t)
{
    t->base.ops->close(&t->base);
}

/* Replies as hiredis hands them over; freeReplyObject frees them. */
static inline redisReply *text_reply(int type, const char *text)
{
    redisReply *reply = calloc(1, sizeof(*reply));
    assert_non_null(reply);
    reply->type = type;
    if (type != REDIS_REPLY_NIL && type != REDIS_REPLY_INTEGER) { /* these have no text */
        reply->len = strlen(text);
        reply->str = strdup(text);
    }
    return reply;
}

static inline redisReply *number_reply(long long number)
{
    redisReply *reply = calloc(1, sizeof(*reply));
    assert_non_null(reply);
    reply->type = REDIS_REPLY_INTEGER;
    reply->integer = number;
    return reply;
}

static inline redisReply *array_reply(size_t count, redisReply *const *elements)
{
    redisReply *reply = calloc(1, sizeof(*reply));
    assert_non_null(reply);
    reply->type = REDIS_REPLY_ARRAY;
    reply->elements = count;
    reply->element = calloc(count + 1, sizeof(redisReply *));
    assert_non_null(reply->element);
    for (size_t i = 0; i < count; i++) {
        reply->element[i] = elements[i];
    }
    return reply;
}

/* The commands that are queued for a server, and are not any more: words with spaces between them, a command a line.
 * Valid until the next call. */
static inline const char *queued(struct server_conn *server)
{
    static char text[4096];
    struct socket *sock = &server->socket;
    size_t length = 0;
    redisReader *reader = redisReaderCreate();
    assert_int_equal(redisReaderFeed(reader, sock->out != NULL ? sock->out : "", sock->out_length), REDIS_OK);
    void *command = NULL;
    while (redisReaderGetReply(reader, &command) == REDIS_OK && command != NULL) {
        const redisReply *words = command;
        for (size_t i = 0; i < words->elements; i++) {
            length += (size_t) snprintf(text + length, sizeof(text) - length, "%.100s%s", words->element[i]->str,
                                        i + 1 < words->elements ? " " : "\n");
            assert_true(length < sizeof(text));
        }
        freeReplyObject(command);
    }
    redisReaderFree(reader);
    text[length] = '\0';
    sock->out_length = sock->out_sent = 0;
    return text;
}

#endif
