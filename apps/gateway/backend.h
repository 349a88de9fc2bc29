/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the backend takes packets, as far as UDP tells: a host answers a packet to a port that nobody listens on with
 * an ICMP message, which the kernel keeps as an error of the socket until it is read. One error may stand for several
 * packets, and hosts limit how many of these messages they send: what is counted is the least.
 *
 * The threads share one state. It says "refuses" from the first error on, and "ok" again when a reply has come, or when
 * packets have been sent for SILENT_SECONDS without an error, as not every backend replies. Both are looked at from the
 * second after the last error on: replies that had been under way say nothing.
 */
#ifndef WEIR_GATEWAY_BACKEND_H
#define WEIR_GATEWAY_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct backend {
    const char *text;            /* its address, for the log */
    _Atomic bool refuses;        /* each change is logged */
    _Atomic uint32_t refused_at; /* second of the last error */
};

/* What one thread has seen of the backend. */
struct backend_view {
    struct backend *backend;
    uint32_t tried_at; /* second of the first packet since the last error; 0: none */
};

/* Errors by which a backend, or the way to it, refuses packets. */
bool backend_is_refusal(int error);

/* The backend has refused a packet. */
void backend_refused(struct backend_view *view, int error, uint32_t now);

/* Called each turn, with whether packets were sent and replies came in it. */
void backend_watch(struct backend_view *view, bool sent, bool replied, uint32_t now);

#endif
