/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three processes and a real Redis: after quiet, the sums in Redis are what the nodes admitted, to the unit, whatever
 * happened to Redis in the middle.
 *
 * Guards: src/transport/redis/batch.c, src/fleet/keys/merge.c, src/fleet/keys/report.c,
 * src/transport/redis/scripts/report_window.lua, src/transport/redis/scripts/report_bucket.lua
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/server.h"
#include "support/support.h"

#define NODES    3
#define POLICIES 4
#define KEYS     50

#define TIMEOUT_MS 1000  /* of a round; a busy machine is slower now and then, and the round is repeated */
#define SYNC_MS    60000 /* until one has succeeded */
/* Costs are mostly 1 and at most a packet, so that no policy but the tight one comes near its limit. */
#define COST_MOST 100

/* Long windows, so that nothing expires; one policy that is far over its limit. */
static const weir_limit limits[POLICIES] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000000, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 1000000000, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000000000, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 200, .period_ns = 24 * HOUR},
};
static const char *const names[POLICIES] = {"fixed", "sliding", "bucket", "tight"};

struct node {
    pid_t pid;
    int to, from; /* commands, and answers */
};

struct worker {
    weir *w;
    weir_policy_id policies[POLICIES];
    uint64_t seed, for_ns;
    uint64_t admitted[POLICIES];
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    weir_thread *t = weir_attach(worker->w);
    uint64_t rng = worker->seed;
    const uint64_t until_ns = real_ns() + worker->for_ns;
    while (real_ns() < until_ns) {
        for (int i = 0; i < 200; i++) {
            const size_t policy = random_below(&rng, POLICIES);
            /* One key is hot. */
            const uint32_t name = (uint32_t) (random_below(&rng, 2) == 0 ? 0 : random_below(&rng, KEYS));
            char text[16];
            const int length = snprintf(text, sizeof(text), "key-%" PRIu32, name);
            const weir_key key = weir_make_key(worker->w, worker->policies[policy], text, (size_t) length);
            const uint64_t cost = draw_cost(&rng, COST_MOST);
            worker->admitted[policy] += weir_check(t, &key, cost, NULL) ? cost : 0;
        }
        const struct timespec pause = {.tv_nsec = 200000};
        (void) nanosleep(&pause, NULL);
    }
    weir_detach(t);
    return NULL;
}

static weir *node_open(const char *url)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = 50;
    options.redis_timeout_ms = TIMEOUT_MS;
    weir *w = NULL;
    weir_error error;
    weir_policy policies[POLICIES];
    for (size_t i = 0; i < POLICIES; i++) {
        policies[i] =
            (weir_policy){.name = names[i], .limits = &limits[i], .limit_count = 1, .on_outage = WEIR_OUTAGE_LOCAL};
    }
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, policies, POLICIES, &error) != 0) {
        _exit(10);
    }
    return w;
}

/* A node's process: for each byte it reads, 'r' works for a while, 's' syncs; anything else ends it. Exits by _exit. */
static void node_main(const char *url, int from, int to, uint64_t seed)
{
    weir *w = node_open(url);
    struct worker workers[2] = {{.w = w, .seed = seed}, {.w = w, .seed = seed + 1}};
    for (size_t i = 0; i < POLICIES; i++) {
        workers[0].policies[i] = workers[1].policies[i] = weir_find_policy(w, names[i]);
    }
    char command = 0;
    while (read(from, &command, 1) == 1 && (command == 'r' || command == 's')) {
        uint64_t answer[POLICIES + 1] = {0};
        if (command == 'r') {
            pthread_t threads[2];
            for (int i = 0; i < 2; i++) {
                workers[i].for_ns = 300 * MILLISECOND;
                (void) pthread_create(&threads[i], NULL, work, &workers[i]);
            }
            (void) pthread_join(threads[0], NULL);
            (void) pthread_join(threads[1], NULL);
        } else {
            answer[POLICIES] = (uint64_t) -weir_sync(w, SYNC_MS);
        }
        for (size_t i = 0; i < POLICIES; i++) {
            answer[i] = workers[0].admitted[i] + workers[1].admitted[i];
        }
        if (write(to, answer, sizeof(answer)) != (ssize_t) sizeof(answer)) {
            _exit(11);
        }
    }
    weir_close(w);
    _exit(0);
}

static void node_start(struct node *node, const char *url, uint64_t seed)
{
    int to[2];
    int from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    node->pid = fork();
    assert_true(node->pid >= 0);
    if (node->pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) close(to[1]);
        (void) close(from[0]);
        node_main(url, to[0], from[1], seed);
    }
    (void) close(to[0]);
    (void) close(from[1]);
    node->to = to[1];
    node->from = from[0];
}

static void order(const struct node *nodes, char command)
{
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(write(nodes[i].to, &command, 1), 1);
    }
}

/* Waits for all answers; adds up what was admitted. */
static void collect(const struct node *nodes, uint64_t admitted[POLICIES])
{
    memset(admitted, 0, POLICIES * sizeof(admitted[0]));
    for (int i = 0; i < NODES; i++) {
        uint64_t answer[POLICIES + 1];
        assert_int_equal(read(nodes[i].from, answer, sizeof(answer)), sizeof(answer));
        assert_int_equal(answer[POLICIES], 0); /* weir_sync came through */
        for (size_t p = 0; p < POLICIES; p++) {
            admitted[p] += answer[p];
        }
    }
}

static void stop_nodes(const struct node *nodes)
{
    order(nodes, 'q');
    for (int i = 0; i < NODES; i++) {
        int status = 0;
        assert_int_equal(waitpid(nodes[i].pid, &status, 0), nodes[i].pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
        (void) close(nodes[i].to);
        (void) close(nodes[i].from);
    }
}

static void compare(const struct server *server, const uint64_t admitted[POLICIES])
{
    for (size_t p = 0; p < POLICIES; p++) {
        char pattern[64];
        (void) snprintf(pattern, sizeof(pattern), "weir:*:%s:*", names[p]);
        assert_true(admitted[p] > 0);
        assert_int_equal(server_sum(server, pattern), admitted[p]);
    }
    /* Every record expires. */
    redisReply *keys = server_command(server, "KEYS weir:*");
    for (size_t i = 0; i < keys->elements; i++) {
        redisReply *ttl = server_command(server, "PTTL %s", keys->element[i]->str);
        assert_true(ttl->integer > 0);
        freeReplyObject(ttl);
    }
    freeReplyObject(keys);
}

static void nothing_happens(struct server *server)
{
    (void) server;
}

static void killed_and_empty(struct server *server)
{
    nap_ms(100);
    server_kill(server);
    nap_ms(100);
    server_restart(server);
}

static void hung_and_back(struct server *server)
{
    nap_ms(60);
    server_pause(server);
    nap_ms(2 * TIMEOUT_MS + 200); /* rounds fail */
    server_resume(server);
}

static void flushed(struct server *server)
{
    nap_ms(100);
    freeReplyObject(server_command(server, "FLUSHALL"));
}

static void conserve(void (*happens)(struct server *server), bool tcp)
{
    if (!server_available()) {
        skip();
    }
    struct server server;
    server_start(&server);
    char url[160];
    server_url(&server, tcp, url, sizeof(url));
    struct node nodes[NODES];
    const uint64_t seed = test_seed();
    for (int i = 0; i < NODES; i++) {
        node_start(&nodes[i], url, seed + 1000 * (uint64_t) i);
    }
    uint64_t admitted[POLICIES];
    for (int round = 0; round < 3; round++) {
        order(nodes, 'r');
        if (round == 1) {
            happens(&server);
        }
        collect(nodes, admitted);
    }
    /* Twice: the first sync may still find that Redis lost everything. */
    order(nodes, 's');
    collect(nodes, admitted);
    order(nodes, 's');
    collect(nodes, admitted);
    compare(&server, admitted);
    stop_nodes(nodes);
    compare(&server, admitted);
    server_stop(&server);
}

static void test_sums_in_redis_are_what_was_admitted(void **state)
{
    (void) state;
    conserve(nothing_happens, false);
}

static void test_sums_are_whole_after_redis_was_killed_and_came_back_empty(void **state)
{
    (void) state;
    conserve(killed_and_empty, false);
}

static void test_sums_are_whole_after_redis_hung_and_went_on(void **state)
{
    (void) state;
    conserve(hung_and_back, true);
}

static void test_sums_are_whole_after_redis_was_flushed(void **state)
{
    (void) state;
    conserve(flushed, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_in_redis_are_what_was_admitted),
        cmocka_unit_test(test_sums_are_whole_after_redis_was_killed_and_came_back_empty),
        cmocka_unit_test(test_sums_are_whole_after_redis_hung_and_went_on),
        cmocka_unit_test(test_sums_are_whole_after_redis_was_flushed),
    };
    return cmocka_run_group_tests_name("redis/conserve", tests, NULL, NULL);
}
