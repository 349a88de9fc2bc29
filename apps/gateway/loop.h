/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker works with: worker.c has its turns, run.c what it sends, frames.c what goes past the network stack. */
#ifndef WEIR_GATEWAY_LOOP_H
#define WEIR_GATEWAY_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "burst.h"
#include "decision.h"
#include "loops.h"
#include "outbox.h"
#include "proxy.h"
#include "session.h"
#include "xsk/frame.h"
#include "xsk/lane.h"

struct worker;

/* Of one thread. */
struct loop {
    struct worker *worker;
    struct decision decision;
    struct session_table sessions;
    uint64_t now_ms;                      /* of ports_now() */
    uint32_t now, sizes_forgotten;        /* seconds */
    uint64_t merged, without_session;     /* packets */
    uint64_t without_port;                /* of `without_session`: no port had rested */
    bool lacks_port;                      /* the client at hand has no session for that reason */
    uint64_t evicted_needed;              /* sessions that were ended while needed, when that was told last */
    uint64_t refused;                     /* errors of the backend's sockets when they were read or opened */
    uint64_t sent_before, refused_before; /* of `to_backend`, at the end of the last run */
    struct backends_view view;
    struct loops loops;
    unsigned char proxy_header[PROXY_HEADER_MAX]; /* of the client whose packets wait in `to_backend` */
    uint32_t listener;                            /* whose packets are in `requests` */
    bool has_locals;                              /* some of `locals` are set */
    struct in6_addr locals[BURST_COUNT];          /* of the messages in `requests` */
    struct datagram datagrams[BURST_COUNT];       /* of the burst at hand, as many as are dealt with at once */
    size_t run;                    /* message of the client whose packets wait in `to_backend`; or NO_RUN */
    const struct session *session; /* of that client; NULL: none to be had */
    size_t reply_count;            /* messages of `replies` whose packets wait in an outbox of the sockets */
    uint32_t replying;             /* a bit for each of these sockets */
    struct {
        uint64_t added, sent, sent_bytes, segmented;
        bool segments;
    } to_clients; /* what the outboxes of the sockets have counted */
    struct lane lane;
    struct frame frames[BURST_COUNT]; /* of `datagrams`, where these came by the lane */
    uint64_t run_frames;              /* packets of the client at hand that left by the lane */
    uint64_t frames_lost;             /* by the rings, as of `lost_read` */
    uint64_t frames_lost_before;      /* by rings that were given up */
    uint32_t lost_read;               /* second */
    struct outbox to_backend;
    struct burst requests, replies;
};

#define NO_RUN SIZE_MAX

#endif
