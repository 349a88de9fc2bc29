/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loops: packets that answer each other without end. The gateway sends an answer to the address that the question names
 * as its source. If something at that address answers whatever comes, as another gateway before another backend does,
 * one forged packet is enough: each answer is the next question.
 *
 * Packets of sources that no client has are dropped: port 0, ports of services that answer everything, addresses that
 * this gateway listens on, and its backends.
 *
 * Other gateways and echoes are found: a client that has sent many packets is asked whether it is one. The question is
 * of LOOPS_QUESTION_SIZE bytes, 16 of which are random. It leaves from a port that the client has never sent to, so no
 * program takes it for an answer of the backend. A gateway answers with the random bytes, and so does an echo. Nobody
 * else knows them, so nobody can answer for a client. Packets of a client that has answered are dropped for
 * LOOPS_SECONDS.
 *
 * Threads: one, the worker's own.
 */
#ifndef WEIR_GATEWAY_LOOPS_H
#define WEIR_GATEWAY_LOOPS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "address.h"
#include "backends/view.h"
#include "burst.h"
#include "listeners.h"
#include "xdp/locals.h"

struct listen_socket;

#define LOOPS_QUESTION_SIZE 32
#define LOOPS_NONCE_SIZE    16

#define LOOPS_SECONDS 600

/* An address and port; IPv4 in its mapped form, the port in network byte order. */
struct loops_end {
    struct in6_addr address;
    uint16_t port;
};

/* Questions whose answer may still come. */
#define LOOPS_ASKED_MAX 64

/* Found clients whose packets are dropped. */
#define LOOPS_FOUND_MAX 64

struct loops {
    struct listeners *listeners;
    const struct backends_view *view;
    uint32_t generation;   /* of `listeners` */
    uint64_t view_version; /* of `view`; both are those of `refused` */
    uint64_t ports;        /* a bit for each port of `refused`, and of the services, by its last six bits */
    size_t refused_count;
    struct loops_refused {
        struct loops_end end;
        bool any; /* each address of this host */
    } refused[LISTENER_SLOTS + BACKEND_PLACES];
    struct locals locals;
    uint32_t locals_read; /* second; 0: never */
    int fd;               /* of the questions */
    bool is_v4;           /* the socket is of IPv4 alone */
    size_t asked_next;
    struct {
        struct loops_end end;
        uint32_t second; /* 0: answered, or never asked */
        unsigned char nonce[LOOPS_NONCE_SIZE];
    } asked[LOOPS_ASKED_MAX];
    size_t found_count;
    struct {
        struct loops_end end;
        uint32_t until; /* second */
    } found[LOOPS_FOUND_MAX];
    uint32_t answer_second, answers;         /* given in that second */
    _Atomic uint32_t *told;                  /* when the log said so, for log_is_due() */
    uint64_t invalid_sources, looped, loops; /* packets, packets, found clients */
};

/* Opens the socket of the questions. 0 or a negative errno value. `listeners`, `view` and `told` outlive it. */
int loops_open(struct loops *loops, struct listeners *listeners, const struct backends_view *view,
               _Atomic uint32_t *told);
void loops_close(struct loops *loops);

/* Learns what is new of listeners and backends. Costs two loads where nothing is. */
void loops_update(struct loops *loops);

/* A packet to a listener. */
struct loops_packet {
    const unsigned char *data;
    size_t size;
    const struct address *from;
    const struct in6_addr *local;       /* as for local_set() */
    const struct listen_socket *socket; /* the listener's */
};

/* Whether a packet is to be dropped here, or is a question, which is answered. `now`: in seconds, as below. */
bool loops_take(struct loops *loops, const struct loops_packet *packet, uint32_t now);

/* Counts for a client, by `*count`, that packets of it have passed; and asks it now and then. */
void loops_note(struct loops *loops, uint32_t *count, const struct address *client, uint32_t now);

/* Reads the answers that have come to `fd`. */
void loops_read(struct loops *loops, uint32_t now);

#endif
