/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a backend is up, as far as UDP tells. It is down for as long as there is a reason:
 *
 *   refuses   a host answers a packet to a port that nobody listens on with an ICMP message, which the kernel keeps as
 *             an error of the socket until it is read. One error may stand for several packets, and hosts limit how
 *             many of these messages they send: what is counted is the least.
 *   silent    clients' packets went to it for a time, and no reply came
 *   no answer probes went to it, and were not answered
 *
 * The first is over with a reply, or when packets were sent for BACKEND_TRIED_SECONDS without an error, as not every
 * backend replies. Both are looked at from the second after the last error on: replies that had been under way say
 * nothing. What ends the others is in checker.c.
 *
 * Threads: any. Each change between up and down is logged once.
 */
#ifndef WEIR_GATEWAY_BACKENDS_HEALTH_H
#define WEIR_GATEWAY_BACKENDS_HEALTH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define BACKEND_TRIED_SECONDS 3

enum backend_reason {
    BACKEND_REFUSES = 1,
    BACKEND_IS_SILENT = 2,
    BACKEND_HAS_NO_ANSWER = 4,
};

struct backend_health {
    _Atomic uint32_t reasons;    /* a bit for each enum backend_reason; 0: it is up */
    _Atomic uint32_t refused_at; /* second of the last error */
    _Atomic uint32_t tried_at;   /* second of the first packet since the last error; 0: none */
};

/* A second, by the clock that all of this goes by. */
uint32_t health_now(void);

void health_init(struct backend_health *health);

static inline uint32_t health_reasons(const struct backend_health *health)
{
    return atomic_load_explicit(&health->reasons, memory_order_relaxed);
}

/* There is a reason that there was not. Whether the backend went down by it. `backend` and `why` are for the log. */
bool health_lower(struct backend_health *health, enum backend_reason reason, const char *backend, const char *why);

/* A reason is over. Whether the backend came up by it. */
bool health_raise(struct backend_health *health, enum backend_reason reason, const char *backend, const char *why);

/* The backend, or the way to it, has refused a packet. Whether it went down by it: by no error of this host's rules. */
bool health_refused(struct backend_health *health, const char *backend, int error, uint32_t now);

/* A backend that refuses was sent a packet without an error. */
void health_sent_slow(struct backend_health *health, uint32_t now);

/* A backend that refuses has replied. Whether it came up by it. */
bool health_replied_slow(struct backend_health *health, const char *backend, uint32_t now);

#endif
