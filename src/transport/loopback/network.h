/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of a fleet within one process: rounds on their way. A message is a copy, since the round's memory is the
 * caller's again as soon as the round has ended, and it may end by a timeout while the message still travels.
 */
#ifndef WEIR_TRANSPORT_LOOPBACK_NETWORK_H
#define WEIR_TRANSPORT_LOOPBACK_NETWORK_H

#include <pthread.h>

#include "transport/loopback/nodes.h"
#include "transport/loopback/records.h"

struct loopback_transport;

struct message {
    struct message *next;
    struct loopback_transport *from; /* who waits for the answer; NULL: nobody does any more */
    uint64_t due_ns, number;         /* of those that are due at the same time the lower number is first */
    uint64_t run, heartbeat_ns,
        created_ns;   /* of the fleet, of the last heartbeat there, of its memory, as the sender knew */
    uint64_t last_ns; /* the last heartbeat that was there, as it is answered */
    char node[REPORT_AUTHOR_SIZE];
    struct round round; /* with reports and logs of its own */
    struct history_report *logs;
    bool answer_lost;
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
    struct records records;
    struct nodes nodes;
    uint64_t run;          /* changes when everything is forgotten */
    struct message *queue; /* on their way, the next to arrive first */
    struct override_text *overrides;
    size_t override_count;
    uint64_t override_version;
    char refused[64]; /* part of the names of refused records; "": none */
    int refusal;
    bool down, hung, loses_answers;
    uint64_t slow_ns; /* answers are sent so much later */
    struct loopback_counts counts;
};

struct loopback_transport {
    struct transport base;
    struct loopback_fleet *fleet;
    struct loopback_link link;
    uint64_t random;
    bool cut, deaf, stuck, dead;
    struct message *held;    /* in a path that is dead */
    struct round *round;     /* under way */
    struct message *request; /* of it, on its way; NULL: it has arrived, or will not */
    struct message *answer;  /* to it, on its way */
    uint64_t timeout_ns, deadline_ns;
    unsigned failures;                       /* in a row */
    uint64_t next_try_ns;                    /* no round begins before then */
    uint64_t stepped_ns, stepped_network_ns; /* the node's time and the network's, as of the last step */
    uint64_t run, heartbeat_ns, created_ns;  /* of the last good round */
    const char *problem;
    struct transport_counts counts; /* each round is a connection of its own */
};

/* A number below `bound`, and 0 for 0. */
uint64_t network_random(uint64_t *state, uint64_t bound);

/* The network's time. */
uint64_t network_time(struct loopback_fleet *fleet);

/* Sends t->round, and draws what becomes of it. False: out of memory, and nothing is sent. */
bool network_send(struct loopback_transport *t);

/* Applies what has arrived, and sends the answers. `stepped`: whose step it is; NULL: nobody's. */
void network_run(struct loopback_fleet *fleet, const struct loopback_transport *stepped);

/* Nobody waits for this transport's round any more; what it sent still arrives. */
void network_abandon(struct loopback_transport *t);

/* What was held in a dead path goes its way. */
void network_release(struct loopback_transport *t);

/* Copies an answer that has arrived to the round it is for, and drops it. */
void network_deliver(struct loopback_transport *t);

/* Drops everything that is on its way. */
void network_clear(struct loopback_fleet *fleet);

#endif
