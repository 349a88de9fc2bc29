/* SPDX-License-Identifier: Apache-2.0 */
#include "chaos/outages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "chaos/chaos.h"

#define NODES       4
#define BEFORE_MS   5000
#define AFTER_MS    10000
#define CATCH_UP_MS 20

struct outage_run {
    struct chaos *c;
    const struct outage_event *event;
    double rates;    /* as multiple of the limit */
    uint32_t limits; /* mask of those that are measured */
    uint64_t seed;
    uint64_t begin_ns; /* of the work, monotonic; the beginning of a second of the wall clock */
    uint32_t phase_ms; /* of what happens, in its second */
};

const char *const outage_limits[OUTAGE_LIMITS] = {"bucket, burst 500", "bucket, burst 2000", "fixed window",
                                                  "sliding window", "sliding log"};

/* What happens. */

static uint64_t end_ms(const struct outage_run *run)
{
    return BEFORE_MS + run->phase_ms + run->event->for_ms + AFTER_MS;
}

/* Waits until so long after it began to happen. */
static void at_ms(const struct outage_run *run, uint64_t ms)
{
    const uint64_t until_ns = run->begin_ns + (BEFORE_MS + run->phase_ms + ms) * MILLISECOND;
    const uint64_t now_ns = real_ns();
    if (until_ns > now_ns) {
        const uint64_t left_ns = until_ns - now_ns;
        const struct timespec pause = {.tv_sec = (time_t) (left_ns / SECOND), .tv_nsec = (long) (left_ns % SECOND)};
        (void) nanosleep(&pause, NULL);
    }
}

static const char *const no_options[] = {NULL};

static void redis_is_killed(const struct outage_run *run)
{
    server_kill(&run->c->primary);
    at_ms(run, run->event->for_ms);
    chaos_server(&run->c->primary, no_options, true);
}

/* Redis reads its dump as it starts, so it has what it had when it was killed. */
static void redis_is_killed_with_its_data(const struct outage_run *run)
{
    chaos_do(&run->c->primary, "SAVE");
    redis_is_killed(run);
}

static void redis_hangs(const struct outage_run *run)
{
    server_pause(&run->c->primary);
    at_ms(run, run->event->for_ms);
    server_resume(&run->c->primary);
}

static void redis_is_flushed(const struct outage_run *run)
{
    chaos_do(&run->c->primary, "FLUSHALL");
}

static void redis_is_slow(const struct outage_run *run)
{
    proxy_delay(&run->c->proxy, 150);
    at_ms(run, run->event->for_ms);
    proxy_delay(&run->c->proxy, 0);
}

static void redis_is_very_slow(const struct outage_run *run)
{
    proxy_delay(&run->c->proxy, 900);
    at_ms(run, run->event->for_ms);
    proxy_delay(&run->c->proxy, 0);
}

static void redis_flaps(const struct outage_run *run)
{
    for (uint32_t ms = 0; ms < run->event->for_ms; ms += 1000) {
        at_ms(run, ms);
        proxy_set(&run->c->proxy, PROXY_CUT);
        at_ms(run, ms + 500);
        proxy_set(&run->c->proxy, PROXY_PASS);
    }
}

static void connections_are_cut(const struct outage_run *run)
{
    proxy_set(&run->c->proxy, PROXY_CUT);
    at_ms(run, run->event->for_ms);
    proxy_set(&run->c->proxy, PROXY_PASS);
}

static void connections_are_dead(const struct outage_run *run)
{
    proxy_set(&run->c->proxy, PROXY_BLACKHOLE);
    at_ms(run, run->event->for_ms);
    proxy_set(&run->c->proxy, PROXY_PASS);
}

/* A replica that follows no more since 2 s takes the place of the primary. */
static void replica_takes_over(const struct outage_run *run)
{
    server_kill(&run->c->primary);
    at_ms(run, run->event->for_ms);
    proxy_retarget(&run->c->proxy, run->c->replica.socket);
}

static void replica_begins(const struct outage_run *run)
{
    struct chaos *c = run->c;
    server_start(&c->replica);
    chaos_do(&c->primary, "CONFIG SET repl-diskless-sync-delay 0");
    chaos_do(&c->replica, "REPLICAOF 127.0.0.1 %d", c->primary.port);
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    for (bool up = false; !up; chaos_nap_ms(5)) {
        redisReply *reply = server_command(&c->replica, "INFO replication");
        up = strstr(reply->str, "master_link_status:up") != NULL;
        freeReplyObject(reply);
        if (real_ns() > until_ns) {
            fail_msg("the replica does not follow");
        }
    }
}

static struct fleet_work node_work(const struct outage_run *run, size_t node, double fraction, uint64_t for_ms)
{
    return (struct fleet_work){.for_ms = (uint32_t) for_ms,
                               .threads = 1,
                               .rate = (uint64_t) (run->rates * OUTAGE_LIMIT * fraction),
                               .policies = run->limits,
                               .keys = 1,
                               .max_cost = 1,
                               .seed = run->seed + node,
                               .catch_up_ms = CATCH_UP_MS};
}

static void node_comes_expecting(const struct outage_run *run, uint32_t expected)
{
    struct chaos *c = run->c;
    c->config.expected_nodes = expected;
    chaos_nodes(c, 1);
    const uint64_t gone_ms = (real_ns() - run->begin_ns) / MILLISECOND;
    const struct fleet_work work = node_work(run, NODES, 1.0 / (NODES + 1), end_ms(run) - gone_ms);
    fleet_node_work(&c->nodes[NODES], &work);
}

static void node_comes(const struct outage_run *run)
{
    node_comes_expecting(run, NODES);
}

static void node_comes_unaware(const struct outage_run *run)
{
    node_comes_expecting(run, 0);
}

static void node_closes(const struct outage_run *run)
{
    struct fleet_answer answer;
    fleet_node_answer(&run->c->nodes[NODES - 1], &answer);
    (void) fleet_node_close(&run->c->nodes[NODES - 1]);
}

static void node_is_killed(const struct outage_run *run)
{
    fleet_node_kill(&run->c->nodes[NODES - 1]);
}

static void nothing_happens(const struct outage_run *run)
{
    (void) run;
}

const struct outage_event outage_events[OUTAGE_EVENTS] = {
    {"nothing", "nothing", nothing_happens, 3000},
    {"killed-1s", "Redis is killed, back empty after 1 s", redis_is_killed, 1000},
    {"killed-3s", "Redis is killed, back empty after 3 s", redis_is_killed, 3000, .in_test = true},
    {"killed-30s", "Redis is killed, back empty after 30 s", redis_is_killed, 30000},
    {"killed-300s", "Redis is killed, back empty after 300 s", redis_is_killed, 300000, .long_one = true},
    {"restart-3s", "Redis is killed, back with its data after 3 s", redis_is_killed_with_its_data, 3000},
    {"hung-1s", "Redis hangs for 1 s", redis_hangs, 1000},
    {"hung-3s", "Redis hangs for 3 s", redis_hangs, 3000, .in_test = true},
    {"hung-30s", "Redis hangs for 30 s", redis_hangs, 30000},
    {"hung-300s", "Redis hangs for 300 s", redis_hangs, 300000, .long_one = true},
    {"flushed", "FLUSHALL", redis_is_flushed, 0, .in_test = true},
    {"slow", "Redis answers after 150 ms, for 3 s", redis_is_slow, 3000, .proxied = 0xf},
    {"very-slow", "Redis answers after 900 ms, for 3 s", redis_is_very_slow, 3000, .proxied = 0xf},
    {"flaps", "Redis is there for half of each second, for 3 s", redis_flaps, 3000, .proxied = 0xf},
    {"cut-30s", "no node is let in by Redis for 30 s", connections_are_cut, 30000, .proxied = 0xf},
    {"half-cut", "two nodes are refused by Redis for 3 s", connections_are_cut, 3000, .proxied = 0x3, .in_test = true},
    {"half-dead", "two nodes get no answer from Redis for 3 s", connections_are_dead, 3000, .proxied = 0x3},
    {"failover", "a replica that is 2 s behind takes over after 3 s", replica_takes_over, 3000, .proxied = 0xf},
    {"joins", "a fifth node joins, `expected_nodes` 4", node_comes, 0, .comes = true, .in_test = true},
    {"joins-unaware", "a fifth node joins, `expected_nodes` 0", node_comes_unaware, 0, .comes = true},
    {"leaves", "a node leaves: weir_close", node_closes, 0, .goes = true},
    {"dies", "a node is killed", node_is_killed, 0, .goes = true, .in_test = true},
};

/* One run. */

static void nodes_of(struct chaos *c, const struct outage_event *event)
{
    static const struct {
        weir_algorithm algorithm;
        uint64_t burst;
    } limits[OUTAGE_LIMITS] = {{WEIR_TOKEN_BUCKET, 500},
                               {WEIR_TOKEN_BUCKET, 2000},
                               {WEIR_FIXED_WINDOW, 0},
                               {WEIR_SLIDING_WINDOW, 0},
                               {WEIR_SLIDING_LOG, 0}};
    c->config.interval_ms = 200;
    c->config.timeout_ms = 1000;
    c->config.expected_nodes = NODES;
    c->config.policy_count = OUTAGE_LIMITS;
    for (size_t i = 0; i < OUTAGE_LIMITS; i++) {
        struct fleet_policy *policy = &c->config.policies[i];
        *policy = (struct fleet_policy){.limit = {.algorithm = limits[i].algorithm,
                                                  .limit = OUTAGE_LIMIT,
                                                  .period_ns = SECOND,
                                                  .burst = limits[i].burst},
                                        .on_outage = WEIR_OUTAGE_SHARE};
        (void) snprintf(policy->name, sizeof(policy->name), "limit-%zu", i);
    }
    for (size_t i = 0; i < NODES; i++) {
        if ((event->proxied & 1u << i) != 0) {
            proxy_url(&c->proxy, c->config.url, sizeof(c->config.url));
        } else {
            server_url(&c->primary, true, c->config.url, sizeof(c->config.url));
        }
        chaos_nodes(c, 1);
    }
    chaos_wait_met(c);
}

/* All nodes work from the beginning of a second of the wall clock on. Returns that second. */
static int64_t work_begins(struct outage_run *run)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_REALTIME, &now);
    const struct timespec pause = {.tv_nsec = 999999999 - now.tv_nsec};
    (void) nanosleep(&pause, NULL);
    const int64_t first = fleet_wall_second();
    run->begin_ns = real_ns();
    const struct outage_event *event = run->event;
    for (size_t i = 0; i < NODES; i++) {
        const double fraction = 1.0 / (event->comes ? NODES + 1 : NODES);
        const uint64_t until_ms =
            event->goes && (i != NODES - 1 || event->happens == node_closes) ? BEFORE_MS + run->phase_ms : end_ms(run);
        const struct fleet_work work = node_work(run, i, fraction, until_ms);
        fleet_node_work(&run->c->nodes[i], &work);
        if (event->goes && i != NODES - 1) {
            const struct fleet_work more = node_work(run, i, 1.0 / (NODES - 1), end_ms(run) - until_ms);
            fleet_node_work(&run->c->nodes[i], &more);
        }
    }
    return first;
}

static void work_ends(const struct outage_run *run)
{
    at_ms(run, run->event->for_ms + AFTER_MS);
    for (size_t i = 0; i < run->c->node_count; i++) {
        const struct fleet_node *node = &run->c->nodes[i];
        for (uint32_t works = 0; node->pid != 0 && works <= (run->event->goes ? 1u : 0u); works++) {
            struct fleet_answer answer;
            fleet_node_answer(node, &answer);
        }
    }
}

static void measure(struct outage_run *run, struct outage_result *out)
{
    memset(out, 0, sizeof(*out));
    uint64_t rng = run->seed;
    run->phase_ms = (uint32_t) random_below(&rng, 1000);
    nodes_of(run->c, run->event);
    if (run->event->happens == replica_takes_over) {
        replica_begins(run);
    }
    const int64_t first = work_begins(run);
    if (run->event->happens == replica_takes_over) {
        const struct timespec pause = {.tv_sec = BEFORE_MS / 1000 - 2, .tv_nsec = (long) run->phase_ms * 1000000};
        (void) nanosleep(&pause, NULL);
        chaos_do(&run->c->replica, "REPLICAOF NO ONE");
    }
    at_ms(run, 0);
    run->event->happens(run);
    work_ends(run);
    out->seconds = (uint32_t) (end_ms(run) / 1000);
    out->began = (double) (BEFORE_MS + run->phase_ms) / 1000;
    for (size_t i = 0; i < run->c->node_count; i++) {
        for (uint32_t second = 0; second < out->seconds; second++) {
            const struct fleet_second of = fleet_node_second(&run->c->nodes[i], first + second);
            for (size_t limit = 0; limit < OUTAGE_LIMITS; limit++) {
                out->offered[limit][second] += of.offered[limit];
                out->admitted[limit][second] += of.admitted[limit];
            }
            out->late_ms[second] = of.late_ms > out->late_ms[second] ? of.late_ms : out->late_ms[second];
        }
    }
}

const struct outage_event *outage_event_named(const char *name)
{
    for (size_t i = 0; i < OUTAGE_EVENTS; i++) {
        if (strcmp(outage_events[i].name, name) == 0) {
            return &outage_events[i];
        }
    }
    (void) fprintf(stderr, "there is no event %s; there are:", name);
    for (size_t i = 0; i < OUTAGE_EVENTS; i++) {
        (void) fprintf(stderr, " %s", outage_events[i].name);
    }
    (void) fprintf(stderr, "\n");
    exit(2);
}

void outage_measure(const struct outage_event *event, double rates, uint64_t seed, uint32_t limits,
                    struct outage_result *out)
{
    void *state = NULL;
    if (chaos_setup(&state) != 0) {
        exit(1);
    }
    struct outage_run run = {.event = event, .rates = rates, .seed = seed, .limits = limits};
    run.c = chaos_begin(&state);
    measure(&run, out);
    (void) chaos_teardown(&state);
}
