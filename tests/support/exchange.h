/* SPDX-License-Identifier: Apache-2.0 */
/* A transport without a weir: the test calls its functions. */
#ifndef WEIR_TESTS_EXCHANGE_H
#define WEIR_TESTS_EXCHANGE_H

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "support/server.h"
#include "support/support.h"
#include "transport/redis/redis.h"

/*
 * The time by which the transports of a test go. Between two looks at it the time is at most this much, so a machine
 * that stands still has no round time out.
 */
#define LOOK_MOST_NS (20 * MILLISECOND)

static inline uint64_t transport_ns(void)
{
    static uint64_t looked_ns;
    static uint64_t now_ns = SECOND;
    const uint64_t real = real_ns();
    const uint64_t passed_ns = looked_ns != 0 ? real - looked_ns : 0;
    looked_ns = real;
    return now_ns += passed_ns < LOOK_MOST_NS ? passed_ns : LOOK_MOST_NS;
}

/* Opens one on Redis, or fails the test. */
static inline struct transport *open_redis(const char *url, uint32_t timeout_ms)
{
    struct transport *t = NULL;
    struct transport_config config = {.url = url, .prefix = "weir", .timeout_ms = timeout_ms, .now_ns = transport_ns()};
    weir_error error = {0};
    if (redis_transport_open(&config, &t, &error) != 0) {
        fail_msg("%s", error.message);
    }
    return t;
}

/* Opens a transport on a server of this test, or fails the test. */
static inline struct transport *open_redis_on(const struct server *server, uint32_t timeout_ms)
{
    char url[160];
    server_url(server, false, url, sizeof(url));
    return open_redis(url, timeout_ms);
}

/* An empty Redis, and a transport on it. Skips the test where there is none. */
static inline struct transport *redis_start(struct server *server, uint32_t timeout_ms)
{
    if (!server_available()) {
        skip();
    }
    server_start(server);
    return open_redis_on(server, timeout_ms);
}

static inline void redis_stop(struct server *server, struct transport *t)
{
    t->ops->close(t);
    server_stop(server);
}

/* Steps until the round has ended or, without one, until one can begin. */
static inline enum transport_event step_until(struct transport *t, bool round)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND; /* for a machine under load */
    for (;;) {
        const enum transport_event event = t->ops->step(t, transport_ns());
        if (round ? event != TRANSPORT_NOTHING : t->ops->state(t) == TRANSPORT_READY) {
            return event;
        }
        if (real_ns() > until_ns) {
            fail_msg("nothing comes of it: %s", t->ops->problem(t) != NULL ? t->ops->problem(t) : "no problem");
        }
        struct pollfd fds[TRANSPORT_MAX_POLLFDS];
        uint64_t deadline_ns = UINT64_MAX;
        (void) poll(fds, (nfds_t) t->ops->wait_for(t, fds, &deadline_ns), 2);
    }
}

static inline enum transport_event exchange(struct transport *t, struct round *round)
{
    (void) step_until(t, false);
    assert_int_equal(t->ops->begin(t, round, transport_ns()), 0);
    assert_int_equal(t->ops->begin(t, round, transport_ns()), -EBUSY);
    return step_until(t, true);
}

static inline struct report window(const char *author, uint64_t count, uint64_t demand)
{
    struct report r = {.kind = REPORT_WINDOW, .count = count, .demand = demand, .expire_ms = 60000};
    (void) snprintf(r.record, sizeof(r.record), "weir:{001}:f1s:p:window");
    (void) snprintf(r.author, sizeof(r.author), "%s", author);
    return r;
}

#endif
