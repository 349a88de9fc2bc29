/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a fleet within one process: rounds on their way. A message is a copy of its round. The caller gets
 * the round's memory back when the round ends, and a round may end by a timeout while its message is still on its way.
 */
#ifndef WEIR_TRANSPORT_LOOPBACK_NETWORK_H
#define WEIR_TRANSPORT_LOOPBACK_NETWORK_H

#include <pthread.h>

#include "transport/loopback/nodes.h"
#include "transport/loopback/records.h"

struct loopback_transport;

struct message {
    struct message *next;
    struct loopback_transport *from;        /* the transport that waits for the answer; NULL: none */
    uint64_t due_ns, number;                /* of two messages due at one time the lower number is first */
    uint64_t run, heartbeat_ns, created_ns; /* as the sender knew: the run, its last heartbeat, creation of the nodes */
    uint64_t last_ns;                       /* the sender's heartbeat before this one */
    char node[REPORT_AUTHOR_SIZE];
    struct round round; /* its reports and histories are copies too */
    struct history_report *logs;
    bool answer_lost;
};

/* As many different limits as scripts/limits.lua keeps. */
#define TOLD_LIMITS_MAX 16

/* The limits of some nodes. */
struct told_limits {
    char digest[20]; /* "": none */
    char text[ROUND_LIMITS_SIZE];
    uint64_t until_ns; /* the fleet's clock */
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
    uint64_t run;          /* changes when the fleet loses its data as another run */
    struct message *queue; /* messages on their way, the next to arrive first */
    struct override_text *overrides;
    size_t override_count;
    uint64_t override_version;
    struct told_limits told[TOLD_LIMITS_MAX]; /* by digest; those of which no life is left are as none */
    uint64_t told_version;
    char refused[64]; /* part of the names of refused records; "": none */
    int refusal;
    bool down, hung, loses_answers;
    uint64_t slow_ns; /* answers are sent later by this much */
    struct loopback_counts counts;
};

struct loopback_transport {
    struct transport base;
    struct loopback_fleet *fleet;
    struct loopback_link link;
    uint64_t random;
    bool cut, deaf, stuck, dead;
    struct message *held;    /* kept in a dead path; NULL: none */
    struct round *round;     /* the round under way; NULL: none */
    struct message *request; /* the round's request, on its way; NULL: it has arrived or is lost */
    struct message *answer;  /* the round's answer, on its way */
    uint64_t timeout_ns, deadline_ns;
    unsigned failures;                       /* in a row */
    uint64_t next_try_ns;                    /* no round begins before then */
    uint64_t stepped_ns, stepped_network_ns; /* the node's time and the network's time in the last step */
    uint64_t run, heartbeat_ns, created_ns;  /* of the last good round */
    const char *problem;
    struct transport_counts counts; /* each round counts as one connection */
};

/* Takes the fleet's lock, which guards the fleet and its transports. Returns the fleet, without const. */
struct loopback_fleet *network_lock(const struct loopback_fleet *fleet);
void network_unlock(struct loopback_fleet *fleet);

/* A random number below `bound`; 0 if `bound` is 0. */
uint64_t network_random(uint64_t *state, uint64_t bound);

/* The network's time. */
uint64_t network_time(struct loopback_fleet *fleet);

/* Sends t->round and draws what happens to it. False: out of memory, and nothing is sent. */
bool network_send(struct loopback_transport *t);

/* Applies the messages that have arrived, and sends the answers. `stepped`: the transport whose step this is; NULL:
 * none. */
void network_run(struct loopback_fleet *fleet, const struct loopback_transport *stepped);

/* The transport no longer waits for its round. Messages that were sent still arrive. */
void network_abandon(struct loopback_transport *t);

/* Sends the message that a dead path has kept. */
void network_release(struct loopback_transport *t);

/* Copies the answer that has arrived to its round, and frees the answer. */
void network_deliver(struct loopback_transport *t);

/* Drops all messages. */
void network_clear(struct loopback_fleet *fleet);

#endif
