/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of loopback.h, and the transport of one node. The records are in records.c, the nodes in nodes.c, the
 * messages in network.c.
 *
 * Progress: blocking. Every call takes the fleet's lock, so that nodes with background threads can share a fleet.
 */
#include "transport/loopback/loopback.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "transport/loopback/network.h"

/* The backoff of redis/server.c. */
#define BACKOFF_FIRST_NS (50 * NS_PER_MS)
#define BACKOFF_MOST_NS  (TRANSPORT_BACKOFF_MOST_MS * NS_PER_MS)

struct loopback_snapshot {
    struct records records;
    struct nodes nodes;
};

static struct loopback_fleet *lock(const struct loopback_fleet *fleet)
{
    struct loopback_fleet *unlocked =
        (struct loopback_fleet *) (uintptr_t) fleet; /* a const fleet has a lock all the same */
    (void) pthread_mutex_lock(&unlocked->lock);
    return unlocked;
}

static void unlock(struct loopback_fleet *fleet)
{
    (void) pthread_mutex_unlock(&fleet->lock);
}

struct loopback_fleet *loopback_fleet_new(uint64_t (*wall_ns)(void *arg), void *arg)
{
    struct loopback_fleet *fleet = calloc(1, sizeof(*fleet));
    if (fleet != NULL) {
        (void) pthread_mutex_init(&fleet->lock, NULL);
        fleet->wall_ns = wall_ns;
        fleet->arg = arg;
        fleet->run = 1;
    }
    return fleet;
}

void loopback_fleet_free(struct loopback_fleet *fleet)
{
    network_clear(fleet);
    records_clear(&fleet->records);
    nodes_clear(&fleet->nodes);
    for (size_t i = 0; i < fleet->override_count; i++) {
        free(fleet->overrides[i].field);
        free(fleet->overrides[i].value);
    }
    free(fleet->overrides);
    (void) pthread_mutex_destroy(&fleet->lock);
    free(fleet);
}

void loopback_fleet_set_network_clock(struct loopback_fleet *fleet, uint64_t (*network_ns)(void *arg), void *arg)
{
    (void) lock(fleet);
    fleet->network_ns = network_ns;
    fleet->network_arg = arg;
    fleet->network_now_ns = 0;
    unlock(fleet);
}

void loopback_fleet_seed(struct loopback_fleet *fleet, uint64_t seed)
{
    (void) lock(fleet);
    fleet->random = seed;
    unlock(fleet);
}

void loopback_fleet_set_link(struct loopback_fleet *fleet, const struct loopback_link *link)
{
    (void) lock(fleet);
    fleet->link = *link;
    unlock(fleet);
}

static void set_flag(struct loopback_fleet *fleet, bool *flag, bool value)
{
    (void) lock(fleet);
    *flag = value;
    unlock(fleet);
}

void loopback_fleet_set_down(struct loopback_fleet *fleet, bool down)
{
    set_flag(fleet, &fleet->down, down);
}

void loopback_fleet_set_hung(struct loopback_fleet *fleet, bool hung)
{
    set_flag(fleet, &fleet->hung, hung);
}

void loopback_fleet_lose_answers(struct loopback_fleet *fleet, bool lose)
{
    set_flag(fleet, &fleet->loses_answers, lose);
}

void loopback_fleet_set_slow(struct loopback_fleet *fleet, uint64_t delay_ns)
{
    (void) lock(fleet);
    fleet->slow_ns = delay_ns;
    unlock(fleet);
}

void loopback_fleet_forget(struct loopback_fleet *fleet)
{
    (void) lock(fleet);
    records_clear(&fleet->records);
    nodes_clear(&fleet->nodes);
    fleet->run++;
    unlock(fleet);
}

void loopback_fleet_flush(struct loopback_fleet *fleet)
{
    (void) lock(fleet);
    records_clear(&fleet->records);
    nodes_clear(&fleet->nodes);
    unlock(fleet);
}

void loopback_fleet_refuse(struct loopback_fleet *fleet, const char *part, int status)
{
    (void) lock(fleet);
    (void) snprintf(fleet->refused, sizeof(fleet->refused), "%s", part != NULL ? part : "");
    fleet->refusal = status;
    unlock(fleet);
}

/* Copies records and nodes. False: out of memory, and the copies are empty. */
static bool copy_state(struct records *records, struct nodes *nodes, const struct records *from_records,
                       const struct nodes *from_nodes)
{
    if (records_copy(records, from_records) && nodes_copy(nodes, from_nodes)) {
        return true;
    }
    records_clear(records);
    nodes_clear(nodes);
    return false;
}

struct loopback_snapshot *loopback_fleet_snapshot(struct loopback_fleet *fleet)
{
    struct loopback_snapshot *snapshot = calloc(1, sizeof(*snapshot));
    if (snapshot == NULL) {
        return NULL;
    }
    (void) lock(fleet);
    const bool complete = copy_state(&snapshot->records, &snapshot->nodes, &fleet->records, &fleet->nodes);
    unlock(fleet);
    if (!complete) {
        free(snapshot);
        return NULL;
    }
    return snapshot;
}

void loopback_snapshot_free(struct loopback_snapshot *snapshot)
{
    if (snapshot != NULL) {
        records_clear(&snapshot->records);
        nodes_clear(&snapshot->nodes);
        free(snapshot);
    }
}

bool loopback_fleet_restore(struct loopback_fleet *fleet, const struct loopback_snapshot *snapshot, bool same_run)
{
    (void) lock(fleet);
    const bool complete = copy_state(&fleet->records, &fleet->nodes, &snapshot->records, &snapshot->nodes);
    fleet->run += same_run ? 0 : 1;
    unlock(fleet);
    return complete;
}

void loopback_fleet_set_override(struct loopback_fleet *fleet, const char *field, const char *value)
{
    (void) lock(fleet);
    size_t at = 0;
    while (at < fleet->override_count && strcmp(fleet->overrides[at].field, field) != 0) {
        at++;
    }
    if (at < fleet->override_count) {
        free(fleet->overrides[at].field);
        free(fleet->overrides[at].value);
        fleet->overrides[at] = fleet->overrides[--fleet->override_count];
    }
    if (value != NULL) {
        struct override_text *grown =
            realloc(fleet->overrides, (fleet->override_count + 1) * sizeof(*fleet->overrides));
        if (grown != NULL) {
            fleet->overrides = grown;
            grown[fleet->override_count++] = (struct override_text){.field = strdup(field), .value = strdup(value)};
        }
    }
    fleet->override_version++;
    unlock(fleet);
}

uint64_t loopback_fleet_sum(const struct loopback_fleet *fleet, const char *part)
{
    struct loopback_fleet *locked = lock(fleet);
    const uint64_t sum = records_total(&locked->records, locked->wall_ns(locked->arg), part, false);
    unlock(locked);
    return sum;
}

uint64_t loopback_fleet_record_count(const struct loopback_fleet *fleet)
{
    struct loopback_fleet *locked = lock(fleet);
    const uint64_t count = records_total(&locked->records, locked->wall_ns(locked->arg), "", true);
    unlock(locked);
    return count;
}

void loopback_fleet_each(const struct loopback_fleet *fleet, loopback_record_fn call, void *arg)
{
    struct loopback_fleet *locked = lock(fleet);
    records_each(&locked->records, locked->wall_ns(locked->arg), call, arg);
    unlock(locked);
}

void loopback_fleet_get_counts(const struct loopback_fleet *fleet, struct loopback_counts *counts)
{
    struct loopback_fleet *locked = lock(fleet);
    *counts = locked->counts;
    unlock(locked);
}

void loopback_fleet_run(struct loopback_fleet *fleet)
{
    (void) lock(fleet);
    network_run(fleet, NULL);
    unlock(fleet);
}

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
    (void) lock(t->fleet);
    t->link = *link;
    unlock(t->fleet);
}

void loopback_transport_set_cut(struct transport *transport, bool cut)
{
    set_flag(loopback_of(transport)->fleet, &loopback_of(transport)->cut, cut);
}

void loopback_transport_set_deaf(struct transport *transport, bool deaf)
{
    set_flag(loopback_of(transport)->fleet, &loopback_of(transport)->deaf, deaf);
}

void loopback_transport_set_stuck(struct transport *transport, bool stuck)
{
    struct loopback_transport *t = loopback_of(transport);
    (void) lock(t->fleet);
    t->stuck = stuck;
    if (!stuck) {
        network_release(t);
    }
    unlock(t->fleet);
}

void loopback_transport_kill(struct transport *transport)
{
    struct loopback_transport *t = loopback_of(transport);
    (void) lock(t->fleet);
    t->dead = true;
    t->problem = "the node is dead";
    unlock(t->fleet);
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
    if (t->round != NULL) {
        return -EBUSY;
    }
    (void) lock(t->fleet);
    look_at_clocks(t, now_ns);
    t->round = round;
    if (t->fleet->down || t->dead || !network_send(t)) {
        t->round = NULL;
    } else {
        round->sent_ns = now_ns;
        t->deadline_ns = now_ns + t->timeout_ns;
        t->counts.attempts++;
        t->counts.connections++;
    }
    unlock(t->fleet);
    return t->round != NULL ? 0 : -ENOTCONN;
}

/* Backs off: the wait doubles with each failure and is jittered. */
static void back_off(struct loopback_transport *t, uint64_t now_ns)
{
    if (t->link.backs_off) {
        const uint64_t wait_ns = min_u64(BACKOFF_FIRST_NS << (t->failures < 6 ? t->failures : 6), BACKOFF_MOST_NS);
        t->failures++;
        t->next_try_ns = now_ns + wait_ns / 2 + network_random(&t->random, wait_ns / 2 + 1);
    }
}

static enum transport_event fail(struct loopback_transport *t, const char *problem, uint64_t now_ns)
{
    network_abandon(t);
    back_off(t, now_ns);
    t->counts.failures++;
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
        t->round->received_ns = now_ns;
        network_deliver(t);
        t->failures = 0;
        t->problem = NULL;
        return TRANSPORT_ROUND_DONE;
    }
    return now_ns >= t->deadline_ns ? fail(t, "no answer", now_ns) : TRANSPORT_NOTHING;
}

static enum transport_event loopback_step(struct transport *transport, uint64_t now_ns)
{
    struct loopback_transport *t = loopback_of(transport);
    struct loopback_fleet *fleet = t->fleet;
    enum transport_event event = TRANSPORT_NOTHING;
    (void) lock(fleet);
    network_run(fleet, t);
    look_at_clocks(t, now_ns);
    if (t->dead) {
        event = t->round != NULL ? fail(t, "the node is dead", now_ns) : TRANSPORT_NOTHING;
    } else {
        if (fleet->down && t->round == NULL && now_ns >= t->next_try_ns) {
            back_off(t, now_ns); /* an attempt to connect was refused */
            t->counts.attempts++;
            t->counts.failures++;
        }
        t->problem = fleet->down ? "the fleet is down" : t->problem;
        event = t->round != NULL ? outcome(t, now_ns) : TRANSPORT_NOTHING;
    }
    unlock(fleet);
    return event;
}

static enum transport_state loopback_state(const struct transport *transport)
{
    const struct loopback_transport *t = const_loopback_of(transport);
    struct loopback_fleet *fleet = lock(t->fleet);
    const bool down = fleet->down || t->dead || t->stepped_ns < t->next_try_ns;
    unlock(fleet);
    if (t->round != NULL) {
        return TRANSPORT_BUSY;
    }
    return down ? TRANSPORT_DOWN : TRANSPORT_READY;
}

static size_t loopback_wait_for(const struct transport *transport, struct pollfd *fds, uint64_t *deadline_ns)
{
    const struct loopback_transport *t = const_loopback_of(transport);
    (void) fds;
    if (t->round != NULL) {
        struct loopback_fleet *fleet = lock(t->fleet);
        /* Messages are queued by the network's time; the node waits by its own time. */
        const struct message *next = fleet->hung ? NULL : t->request;
        if (t->answer != NULL && !t->cut) {
            next = t->answer;
        }
        next = t->stuck ? NULL : next;
        const uint64_t event_ns =
            next != NULL ? t->stepped_ns + saturating_sub(next->due_ns, t->stepped_network_ns) : UINT64_MAX;
        *deadline_ns = min_u64(*deadline_ns, min_u64(t->deadline_ns, event_ns));
        unlock(fleet);
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

static struct transport_counts loopback_counts(const struct transport *transport)
{
    return const_loopback_of(transport)->counts;
}

static void loopback_close(struct transport *transport)
{
    struct loopback_transport *t = loopback_of(transport);
    (void) lock(t->fleet);
    network_abandon(t);
    network_release(t); /* a message that was sent arrives */
    unlock(t->fleet);
    free(t);
}

static const struct transport_ops loopback_ops = {
    .begin = loopback_begin,
    .step = loopback_step,
    .state = loopback_state,
    .wait_for = loopback_wait_for,
    .problem = loopback_problem,
    .server = loopback_server,
    .counts = loopback_counts,
    .close = loopback_close,
};

int loopback_transport_open(struct loopback_fleet *fleet, const struct transport_config *config, struct transport **out,
                            weir_error *error)
{
    struct loopback_transport *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    t->base.ops = &loopback_ops;
    t->fleet = fleet;
    t->timeout_ns = config->timeout_ms * NS_PER_MS;
    (void) lock(fleet);
    t->link = fleet->link;
    /* Each transport draws from a sequence of its own, so one node's messages do not depend on the others' rounds. */
    t->random = hash_mix(fleet->random + ++fleet->transport_count);
    unlock(fleet);
    *out = &t->base;
    return error_clear(error);
}
