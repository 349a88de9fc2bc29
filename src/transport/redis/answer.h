/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the replies to a round's script calls. */
#ifndef WEIR_TRANSPORT_REDIS_ANSWER_H
#define WEIR_TRANSPORT_REDIS_ANSWER_H

#include "transport/redis/redis_state.h"

/* What a reply to a batch says. */
enum answer_kind {
    ANSWER_GOOD,         /* the script's answer: the round and its reports are filled in */
    ANSWER_FOREIGN,      /* no script of weir's answers that */
    ANSWER_NO_SCRIPT,    /* the server does not have the script */
    ANSWER_MOVED,        /* "MOVED": another server owns the cluster slot */
    ANSWER_ASK,          /* "ASK": the cluster slot is moving, and another server takes this call */
    ANSWER_SLOTS,        /* "CROSSSLOT": the keys are of several cluster slots */
    ANSWER_SPLIT_SLOT,   /* "TRYAGAIN": the cluster slot is moving, and its keys are on two servers */
    ANSWER_CLUSTER_DOWN, /* "CLUSTERDOWN": the Cluster does not serve the slot now */
    ANSWER_ERROR,        /* any other error: the server is of no use now */
};

/* Reads the reply to a batch that was sent. */
enum answer_kind answer_read(struct redis_transport *t, const struct server_conn *server, const struct batch *batch,
                             const redisReply *reply, uint64_t now_ns);

/* An error without its prefix: Redis 6.2 puts the script's name and line before it. */
const char *answer_cause(const char *text);

#endif
