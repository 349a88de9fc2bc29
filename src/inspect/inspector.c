/* SPDX-License-Identifier: Apache-2.0 */
/* See inspector.h. */
#include "inspect/inspector.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/numbers.h"
#include "limiter/options.h"
#include "transport/redis/redis.h"

/* How long a server may take for one answer, and the connections and all answers of a round: a shard that hangs is left
 * out after the first of them. */
#define ANSWER_MS 1500
#define ROUND_MS  5000

/* After so many failures for each host of the URL and each server, before a round has begun, a call gives up. */
#define FAILURES_EACH 2

/* A round that fails is tried again, so often in all: if it has not taken longer than this, and after this pause. */
#define TRIES_MOST   3
#define TRY_AGAIN_MS 500
#define SETTLE_MS    100

/* A signal may come before a wait begins: each part of the wait is so long. */
#define PART_MS 200

int weir_inspect_open(const char *redis_url, const char *prefix, weir_inspector **out, weir_error *error)
{
    weir_options options = WEIR_OPTIONS_INIT;
    const weir_options given = {.size = sizeof(given), .prefix = prefix};
    *out = NULL;
    if (redis_url == NULL) {
        return error_set(error, -EINVAL, "redis_url is NULL; give one, such as redis://10.0.0.5");
    }
    const int checked = options_complete(&given, &options, error);
    if (checked != 0) {
        return checked;
    }
    weir_inspector *in = calloc(1, sizeof(*in));
    if (in == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    (void) snprintf(in->prefix, sizeof(in->prefix), "%s", options.prefix);
    const uint64_t now_ns = clock_monotonic_ns(NULL);
    const struct transport_config config = {
        .url = redis_url, .prefix = in->prefix, .timeout_ms = ANSWER_MS, .jitter_seed = now_ns, .now_ns = now_ns};
    const int opened = redis_transport_open(&config, &in->transport, error);
    if (opened != 0) {
        free(in);
        return opened;
    }
    in->failures_most = FAILURES_EACH;
    for (const char *at = redis_url; *at != '\0'; at++) {
        in->failures_most += *at == ',' ? FAILURES_EACH : 0;
    }
    *out = in;
    return error_clear(error);
}

void weir_inspect_close(weir_inspector *in)
{
    if (in == NULL) {
        return;
    }
    in->transport->ops->close(in->transport);
    shelf_clear(&in->of_fleet);
    shelf_clear(&in->of_overrides);
    shelf_clear(&in->of_key);
    shelf_clear(&in->of_records);
    shelf_clear(&in->of_full_keys);
    free(in);
}

static bool is_ended(const weir_inspector *in)
{
    return in->ends != NULL && in->ends();
}

/* Waits for what the transport waits for, until `end_ns` at most. */
static void wait_for(const weir_inspector *in, uint64_t end_ns)
{
    struct pollfd fds[TRANSPORT_MAX_POLLFDS];
    uint64_t deadline_ns = end_ns;
    const size_t count = in->transport->ops->wait_for(in->transport, fds, &deadline_ns);
    const uint64_t wait_ns = saturating_sub(deadline_ns, clock_monotonic_ns(NULL));
    if (!is_ended(in)) {
        (void) poll(fds, count, (int) min_u64(wait_ns / NS_PER_MS + 1, PART_MS));
    }
}

/* Whether each part of a round has been answered. */
static bool is_whole(const struct round *round)
{
    bool whole = true;
    for (size_t i = 0; i < round->report_count; i++) {
        whole = whole && round->reports[i].status != -EAGAIN;
    }
    for (size_t i = 0; i < round->inspection_count; i++) {
        whole = whole && round->inspections[i].status == 0;
    }
    return whole;
}

/* A server without the word "redis" before it. */
static const char *without_word(const char *server)
{
    static const char word[] = "redis ";
    return strncmp(server, word, sizeof(word) - 1) == 0 ? server + sizeof(word) - 1 : server;
}

/* Whether waiting for a round to begin is in vain. */
static bool is_vain(const weir_inspector *in, uint64_t failures_before)
{
    const struct transport *t = in->transport;
    uint64_t most = in->failures_most;
    for (size_t i = 0; i < INSPECTOR_SHARDS && t->ops->shard(t, i) != NULL; i++) {
        most += FAILURES_EACH; /* servers close connections that were idle */
    }
    return t->ops->refused(t) || t->ops->counts(t).failures - failures_before >= most;
}

/* Lets connections be made anew for a while. */
static void settle(weir_inspector *in)
{
    struct transport *t = in->transport;
    const uint64_t end_ns = clock_monotonic_ns(NULL) + SETTLE_MS * NS_PER_MS;
    t->ops->retry(t, clock_monotonic_ns(NULL));
    for (uint64_t now = clock_monotonic_ns(NULL); now < end_ns && !is_ended(in); now = clock_monotonic_ns(NULL)) {
        (void) t->ops->step(t, now);
        wait_for(in, end_ns);
    }
}

/*
 * Has one round, which begins before `end_ns` or not at all. One that has begun ends within ANSWER_MS, and is waited
 * for: the transport writes to it. Where a signal ends the wait, nothing steps the transport any more.
 */
static enum transport_event try_round(weir_inspector *in, struct round *round, uint64_t end_ns)
{
    struct transport *t = in->transport;
    const uint64_t failures_before = t->ops->counts(t).failures;
    enum transport_event event = TRANSPORT_NOTHING;
    bool begun = false;
    t->ops->retry(t, clock_monotonic_ns(NULL));
    for (uint64_t now = clock_monotonic_ns(NULL);
         event == TRANSPORT_NOTHING && !is_ended(in) && (begun || (now < end_ns && !is_vain(in, failures_before)));
         now = clock_monotonic_ns(NULL)) {
        event = t->ops->step(t, now);
        if (event == TRANSPORT_NOTHING) {
            begun = begun || t->ops->begin(t, round, now) == 0;
            wait_for(in, now + ROUND_MS * NS_PER_MS);
        }
    }
    return event;
}

int inspector_round(weir_inspector *in, struct round *round, bool partly, weir_error *error)
{
    struct transport *t = in->transport;
    const uint64_t end_ns = clock_monotonic_ns(NULL) + (ROUND_MS - ANSWER_MS) * NS_PER_MS;
    /* A connection may have been lost since the last call, and is made anew. */
    for (unsigned tries = 0; tries < TRIES_MOST; tries++) {
        const uint64_t begun_ns = clock_monotonic_ns(NULL);
        const enum transport_event event = try_round(in, round, end_ns);
        if (event == TRANSPORT_ROUND_DONE && (partly || is_whole(round))) {
            return error_clear(error);
        }
        if (event == TRANSPORT_NOTHING || clock_monotonic_ns(NULL) - begun_ns > TRY_AGAIN_MS * NS_PER_MS) {
            break;
        }
        settle(in);
    }
    const char *problem = t->ops->problem(t);
    const char *server = t->ops->server(t);
    const bool sentinel = strncmp(server, "redis sentinel ", 15) == 0;
    const char *host = sentinel ? server + 15 : without_word(server);
    return error_set(error, -EIO, "%s%s%.60s: %.150s", sentinel ? "the Sentinel" : "Redis",
                     host != server ? " at " : "", host != server ? host : "", problem != NULL ? problem : "no answer");
}

void inspector_end_by(weir_inspector *in, bool (*ends)(void))
{
    in->ends = ends;
}

int inspector_ask(weir_inspector *in, struct inspection *asked, weir_error *error)
{
    struct round round = {.node = "reader", .reads = true, .inspections = asked, .inspection_count = 1};
    return inspector_round(in, &round, false, error);
}

const char *inspector_shard(const weir_inspector *in, size_t number)
{
    const char *server = in->transport->ops->shard(in->transport, number);
    return server != NULL ? without_word(server) : NULL;
}
