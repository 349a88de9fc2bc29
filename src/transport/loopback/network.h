/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a fleet within one process: script calls on their way to the fleet, and its replies on their way
 * back. A round may end by a timeout while its message is still on its way.
 */
#ifndef WEIR_TRANSPORT_LOOPBACK_NETWORK_H
#define WEIR_TRANSPORT_LOOPBACK_NETWORK_H

#include <pthread.h>

#include "transport/loopback/script_host.h"

struct loopback_transport;

/* The fleet's overrides, whatever its nodes' prefix is. */
#define LOOPBACK_OVERRIDES "weir:overrides"

/* One script call, in memory of its own. */
struct script_words {
    enum script script;
    struct command command;
};

struct message_call {
    struct script_words *words; /* NULL: the fleet is not told of this batch */
    redisReply *reply;          /* NULL: none yet */
};

struct message {
    struct message *next;
    struct loopback_transport *from; /* the transport that waits for the answer; NULL: none */
    uint64_t due_ns, number;         /* of two messages due at one time the lower number is first */
    uint64_t run;                    /* of the fleet that has replied */
    bool answer_lost;
    size_t count;
    struct message_call *calls; /* one for each batch of the round */
};

struct loopback_fleet {
    pthread_mutex_t lock;
    uint64_t (*wall_ns)(void *arg);
    void *arg;
    uint64_t (*network_ns)(void *arg); /* NULL: by wall_ns */
    void *network_arg;
    uint64_t network_now_ns; /* the latest reading */
    uint64_t random, transport_count, message_count;
    struct loopback_link link; /* of new transports */
    struct script_host *host;
    uint64_t override_version;
    uint64_t run;          /* changes when the fleet loses its data as another run */
    struct message *queue; /* messages on their way, the next to arrive first */
    char refused[64];      /* part of the names of refused records; "": none */
    int refusal;
    bool down, hung, loses_answers;
    uint64_t slow_ns; /* answers are sent later by this much */
    struct loopback_counts counts;
};

/* A transport over Redis whose one server is in this process: it makes the calls of its rounds and reads the replies,
 * and the fleet's network carries them. */
struct loopback_transport {
    struct redis_transport redis; /* its base is the transport; its round the one under way */
    struct server_conn server;    /* as whom the fleet replies */
    struct loopback_fleet *fleet;
    struct loopback_link link;
    bool cut, deaf, stuck, dead;
    struct message *held;                    /* kept in a dead path; NULL: none */
    struct message *request;                 /* the round's request, on its way; NULL: it has arrived or is lost */
    struct message *answer;                  /* the round's answer, on its way */
    unsigned failures;                       /* in a row */
    uint64_t next_try_ns;                    /* no round begins before then */
    uint64_t stepped_ns, stepped_network_ns; /* the node's time and the network's time in the last step */
    const char *problem;
};

/* Takes the fleet's lock, which guards the fleet and its transports. Returns the fleet, without const. */
struct loopback_fleet *network_lock(const struct loopback_fleet *fleet);
void network_unlock(struct loopback_fleet *fleet);

/* A random number below `bound`; 0 if `bound` is 0. */
uint64_t network_random(uint64_t *state, uint64_t bound);

/* The network's time. */
uint64_t network_time(struct loopback_fleet *fleet);

/* Sends the round under way and draws what happens to it. False: out of memory, and nothing is sent. */
bool network_send(struct loopback_transport *t);

/* Applies the messages that have arrived, and sends the answers. `stepped`: the transport whose step this is; NULL:
 * none. */
void network_run(struct loopback_fleet *fleet, const struct loopback_transport *stepped);

/* The transport no longer waits for its round. Messages that were sent still arrive. */
void network_abandon(struct loopback_transport *t);

/* Sends the message that a dead path has kept. */
void network_release(struct loopback_transport *t);

/* Reads the replies that have arrived into the round under way, which then waits for nothing more. */
void network_deliver(struct loopback_transport *t);

/* Drops all messages. */
void network_clear(struct loopback_fleet *fleet);

#endif
