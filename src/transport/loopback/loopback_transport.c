/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See loopback_transport.h. A round is one message to the fleet and one back (network.c).
 *
 * Progress: blocking. Every call takes the fleet's lock, so that nodes with background threads can share a fleet.
 */
#include "transport/loopback/loopback_transport.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "transport/loopback/network.h"
#include "transport/redis/batch.h"

/* The backoff of redis/server.c. */
#define BACKOFF_FIRST_NS (50 * NS_PER_MS)
#define BACKOFF_MOST_NS  (TRANSPORT_BACKOFF_MOST_MS * NS_PER_MS)

static struct loopback_transport *loopback_of(struct transport *t)
{
    return (struct loopback_transport *) (void *) t;
}

static const struct loopback_transport *const_loopback_of(const struct transport *t)
{
    return (const struct loopback_transport *) (const void *) t;
}

void loopback_transport_set_link(struct transport *transport, const struct loopback_link *link)
{
    struct loopback_transport *t = loopback_of(transport);
    (void) network_lock(t->fleet);
    t->link = *link;
    network_unlock(t->fleet);
}

static void set_transport_flag(struct loopback_transport *t, bool *flag, bool value)
{
    (void) network_lock(t->fleet);
    *flag = value;
    network_unlock(t->fleet);
}

void loopback_transport_set_cut(struct transport *transport, bool cut)
{
    set_transport_flag(loopback_of(transport), &loopback_of(transport)->cut, cut);
}

void loopback_transport_set_deaf(struct transport *transport, bool deaf)
{
    set_transport_flag(loopback_of(transport), &loopback_of(transport)->deaf, deaf);
}

void loopback_transport_set_stuck(struct transport *transport, bool stuck)
{
    struct loopback_transport *t = loopback_of(transport);
    (void) network_lock(t->fleet);
    t->stuck = stuck;
    if (!stuck) {
        network_release(t);
    }
    network_unlock(t->fleet);
}

void loopback_transport_kill(struct transport *transport)
{
    struct loopback_transport *t = loopback_of(transport);
    (void) network_lock(t->fleet);
    t->dead = true;
    t->problem = "the node is dead";
    network_unlock(t->fleet);
}

/* Reads the node's time and the network's time. */
static void look_at_clocks(struct loopback_transport *t, uint64_t now_ns)
{
    t->stepped_ns = now_ns;
    t->stepped_network_ns = network_time(t->fleet);
}

static int loopback_begin(struct transport *transport, struct round *round, uint64_t now_ns)
{
    struct loopback_transport *t = loopback_of(transport);
    if (t->redis.round != NULL) {
        return -EBUSY;
    }
    (void) network_lock(t->fleet);
    look_at_clocks(t, now_ns);
    t->redis.round = round;
    if (t->fleet->down || t->dead || !network_send(t)) {
        t->redis.round = NULL;
    } else {
        round->sent_ns = now_ns;
        t->redis.deadline_ns = now_ns + t->redis.timeout_ns;
        t->redis.counts.attempts++;
        t->redis.counts.connections++;
    }
    network_unlock(t->fleet);
    return t->redis.round != NULL ? 0 : -ENOTCONN;
}

/* Backs off: the wait doubles with each failure and is jittered. */
static void back_off(struct loopback_transport *t, uint64_t now_ns)
{
    if (t->link.backs_off) {
        const uint64_t wait_ns = min_u64(BACKOFF_FIRST_NS << (t->failures < 6 ? t->failures : 6), BACKOFF_MOST_NS);
        t->failures++;
        t->next_try_ns = now_ns + wait_ns / 2 + network_random(&t->redis.random, wait_ns / 2 + 1);
    }
}

static enum transport_event fail(struct loopback_transport *t, const char *problem, uint64_t now_ns)
{
    for (uint32_t i = 0; i < t->redis.batch_count; i++) {
        batch_lost(&t->redis, i);
    }
    (void) batch_finish(&t->redis);
    network_abandon(t);
    back_off(t, now_ns);
    t->redis.counts.failures++;
    t->problem = problem;
    return TRANSPORT_ROUND_FAILED;
}

/* The outcome of the round under way. */
static enum transport_event outcome(struct loopback_transport *t, uint64_t now_ns)
{
    if (t->fleet->down) {
        return fail(t, "the fleet went down", now_ns);
    }
    if (t->answer != NULL && t->fleet->loses_answers) {
        t->fleet->counts.answers_lost++;
        return fail(t, "the answer was lost", now_ns);
    }
    if (t->answer != NULL && t->answer->due_ns <= t->stepped_network_ns && !t->cut && !t->stuck) {
        network_deliver(t);
        t->failures = 0;
        t->problem = NULL;
        return batch_finish(&t->redis) ? TRANSPORT_ROUND_DONE : TRANSPORT_ROUND_FAILED;
    }
    return now_ns >= t->redis.deadline_ns ? fail(t, "no answer", now_ns) : TRANSPORT_NOTHING;
}

static enum transport_event loopback_step(struct transport *transport, uint64_t now_ns)
{
    struct loopback_transport *t = loopback_of(transport);
    struct loopback_fleet *fleet = t->fleet;
    enum transport_event event = TRANSPORT_NOTHING;
    (void) network_lock(fleet);
    network_run(fleet, t);
    look_at_clocks(t, now_ns);
    if (t->dead) {
        event = t->redis.round != NULL ? fail(t, "the node is dead", now_ns) : TRANSPORT_NOTHING;
    } else {
        if (fleet->down && t->redis.round == NULL && now_ns >= t->next_try_ns) {
            back_off(t, now_ns); /* an attempt to connect was refused */
            t->redis.counts.attempts++;
            t->redis.counts.failures++;
        }
        t->problem = fleet->down ? "the fleet is down" : t->problem;
        event = t->redis.round != NULL ? outcome(t, now_ns) : TRANSPORT_NOTHING;
    }
    network_unlock(fleet);
    return event;
}

static enum transport_state loopback_state(const struct transport *transport)
{
    const struct loopback_transport *t = const_loopback_of(transport);
    struct loopback_fleet *fleet = network_lock(t->fleet);
    const bool down = fleet->down || t->dead || t->stepped_ns < t->next_try_ns;
    network_unlock(fleet);
    if (t->redis.round != NULL) {
        return TRANSPORT_BUSY;
    }
    return down ? TRANSPORT_DOWN : TRANSPORT_READY;
}

static size_t loopback_wait_for(const struct transport *transport, struct pollfd *fds, uint64_t *deadline_ns)
{
    const struct loopback_transport *t = const_loopback_of(transport);
    (void) fds;
    if (t->redis.round != NULL) {
        struct loopback_fleet *fleet = network_lock(t->fleet);
        /* Messages are queued by the network's time; the node waits by its own time. */
        const struct message *next = fleet->hung ? NULL : t->request;
        if (t->answer != NULL && !t->cut) {
            next = t->answer;
        }
        next = t->stuck ? NULL : next;
        const uint64_t event_ns =
            next != NULL ? t->stepped_ns + saturating_sub(next->due_ns, t->stepped_network_ns) : UINT64_MAX;
        *deadline_ns = min_u64(*deadline_ns, min_u64(t->redis.deadline_ns, event_ns));
        network_unlock(fleet);
    } else if (t->stepped_ns < t->next_try_ns) {
        *deadline_ns = min_u64(*deadline_ns, t->next_try_ns);
    }
    return 0;
}

static const char *loopback_problem(const struct transport *transport)
{
    return const_loopback_of(transport)->problem;
}

static const char *loopback_server(const struct transport *transport)
{
    (void) transport;
    return "fleet in memory";
}

static const char *loopback_shard(const struct transport *transport, size_t number)
{
    return number == 0 ? loopback_server(transport) : NULL;
}

static struct transport_counts loopback_counts(const struct transport *transport)
{
    return const_loopback_of(transport)->redis.counts;
}

static void loopback_close(struct transport *transport)
{
    struct loopback_transport *t = loopback_of(transport);
    (void) network_lock(t->fleet);
    network_abandon(t);
    network_release(t); /* a message that was sent arrives */
    network_unlock(t->fleet);
    batch_close(&t->redis);
    free(t);
}

/* It connects at each step. */
static void loopback_retry(struct transport *transport, uint64_t now_ns)
{
    (void) transport;
    (void) now_ns;
}

/* This network loses what is sent, and refuses nothing. */
static bool loopback_refused(const struct transport *transport)
{
    (void) transport;
    return false;
}

/* It has no descriptors. */
static void loopback_abandon(struct transport *transport)
{
    (void) transport;
}

static const struct transport_ops loopback_ops = {
    .begin = loopback_begin,
    .step = loopback_step,
    .state = loopback_state,
    .wait_for = loopback_wait_for,
    .problem = loopback_problem,
    .server = loopback_server,
    .counts = loopback_counts,
    .shard = loopback_shard,
    .retry = loopback_retry,
    .refused = loopback_refused,
    .close = loopback_close,
    .abandon = loopback_abandon,
};

int loopback_transport_open(struct loopback_fleet *fleet, const struct transport_config *config, struct transport **out,
                            weir_error *error)
{
    struct loopback_transport *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    t->redis.base.ops = &loopback_ops;
    batch_open(&t->redis, config->prefix);
    memcpy(t->redis.overrides_key, LOOPBACK_OVERRIDES, sizeof(LOOPBACK_OVERRIDES));
    t->fleet = fleet;
    t->redis.timeout_ns = config->timeout_ms * NS_PER_MS;
    (void) network_lock(fleet);
    t->link = fleet->link;
    /* Each transport draws from a sequence of its own, so one node's messages do not depend on the others' rounds. */
    t->redis.random = hash_mix(fleet->random + ++fleet->transport_count);
    network_unlock(fleet);
    *out = &t->redis.base;
    return error_clear(error);
}
