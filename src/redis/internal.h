/* SPDX-License-Identifier: Apache-2.0 */
/* Between redis.c (the connection's life) and round.c (what a round says and hears). */
#ifndef WEIR_REDIS_INTERNAL_H
#define WEIR_REDIS_INTERNAL_H

#include "fleet/transport.h"
#include "redis/link.h"

#define SHA_SIZE      41
#define IDENTITY_SIZE 128
#define BATCH_REPORTS 500
#define BATCH_LOGS    16

enum script { SCRIPT_HEARTBEAT, SCRIPT_OVERRIDES, SCRIPT_WINDOW, SCRIPT_BUCKET, SCRIPT_LOG, SCRIPT_COUNT };

enum redis_stage {
    STAGE_WAITING, /* for the next attempt */
    STAGE_CONNECTING,
    STAGE_GREETING, /* asking who it is, loading scripts */
    STAGE_READY,
    STAGE_ROUND,
};

/* Part of a round: one script call, and the reports it holds. */
struct batch {
    enum script script;
    size_t first, count; /* of `order` */
};

struct redis_transport {
    struct transport base;
    struct link link;
    struct redis_url url;
    char nodes_key[64], overrides_key[64];
    uint64_t timeout_ns;
    uint64_t random;
    enum redis_stage stage;
    uint64_t deadline_ns; /* of the attempt, or of the round */
    uint64_t next_try_ns;
    unsigned failures; /* in a row */
    uint64_t connect_count;
    char problem[200]; /* "": none since the last good round */
    /* Greeting. */
    unsigned greetings_due; /* replies still to come */
    unsigned greeting;      /* which comes next; an index of the greeting's steps */
    char shas[SCRIPT_COUNT][SHA_SIZE];
    char identity[IDENTITY_SIZE];      /* run id and replication id of this connection */
    char good_identity[IDENTITY_SIZE]; /* and of the last good round; "": there was none */
    /* Round. */
    struct round *round;
    uint32_t *order; /* reports, windows first */
    size_t order_size;
    struct batch *batches;
    size_t batch_size, batch_count, batch_next;
    size_t sent_before;
    const char **argv; /* of the command being formatted */
    size_t *lengths;
    char (*numbers)[24];
};

/* Queues the whole round. 0 or -ENOMEM. */
int round_queue(struct redis_transport *t);

/* Takes in one reply. 1: it was the last; 0: more to come; negative: the round has failed, and `problem` says why. */
int round_reply(struct redis_transport *t, const redisReply *reply, uint64_t now_ns);

/* Words for the log. */
void problem_set(struct redis_transport *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
