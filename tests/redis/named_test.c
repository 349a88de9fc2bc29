/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes of a named weir are one node of the fleet over all their lives: whether they close or are killed, and
 * whichever of them leads, Redis has each unit once.
 *
 * Guards: src/named/named.c, src/limiter/weir_parts.c, src/limiter/leader.c, src/limiter/weir_open.c,
 * src/fleet/fleet.c
 */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "fleet/state.h"
#include "limiter/weir_private.h"
#include "support/independent.h"
#include "support/server.h"
#include "support/support.h"

#define LIVES     24
#define PROCESSES 3
#define POLICIES  4
#define KEYS      20

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

/* A request that a process is deciding: 0, or its policy, key and cost. */
#define FLIGHT(policy, key, cost) (UINT64_C(1) << 40 | (uint64_t) (policy) << 32 | (uint64_t) (key) << 16 | (cost))

struct board {
    _Atomic uint64_t admitted[POLICIES][KEYS];
    _Atomic uint64_t flight[PROCESSES], checks[PROCESSES];
    _Atomic uint64_t stop;
};

static struct board *board;
static char name[SEGMENT_NAME_SIZE];

/* Units of requests that killed processes were deciding. */
static uint64_t unknown[POLICIES][KEYS];

struct worker {
    const char *url;
    uint64_t seed;
    size_t number;
};

static weir *open_node(const char *url)
{
    weir_options options = WEIR_OPTIONS_INIT;
    weir_policy policies[POLICIES];
    weir_error error;
    weir *w = NULL;
    options.redis_url = url;
    options.sync_interval_ms = 50;
    options.shared_name = name;
    options.no_thread = SANITIZED;
    for (size_t i = 0; i < POLICIES; i++) {
        policies[i] =
            (weir_policy){.name = names[i], .limits = &limits[i], .limit_count = 1, .on_outage = WEIR_OUTAGE_LOCAL};
    }
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, policies, POLICIES, &error) != 0) {
        (void) fprintf(stderr, "# %s\n", error.message);
        return NULL;
    }
    return w;
}

static void check_one(weir_thread *t, weir *w, const struct worker *self, uint64_t *random)
{
    const size_t policy = random_below(random, POLICIES);
    /* One key is hot. */
    const uint32_t number = (uint32_t) (random_below(random, 2) == 0 ? 0 : random_below(random, KEYS));
    char text[16];
    const int length = snprintf(text, sizeof(text), "key-%" PRIu32 "-", number);
    const weir_key key = weir_make_key(w, weir_find_policy(w, names[policy]), text, (size_t) length);
    const uint64_t cost = draw_cost(random, COST_MOST);
    store_release(&board->flight[self->number], FLIGHT(policy, number, cost));
    fence_compiler();
    const bool allowed = weir_check(t, &key, cost, NULL);
    fence_compiler();
    (void) add_relaxed(&board->admitted[policy][number], allowed ? cost : 0);
    fence_compiler();
    store_release(&board->flight[self->number], 0);
    (void) add_relaxed(&board->checks[self->number], 1);
}

static int work(void *arg)
{
    const struct worker *self = arg;
    uint64_t random = self->seed;
    weir *w = open_node(self->url);
    weir_thread *t = w != NULL ? weir_attach(w) : NULL;
    if (t == NULL) {
        return 1;
    }
    for (uint64_t i = 0; load_acquire(&board->stop) == 0; i++) {
        check_one(t, w, self, &random);
        if (SANITIZED && i % 64 == 0) {
            (void) weir_poll(w);
        }
    }
    weir_close(w);
    return 0;
}

/* Kills a process, and notes what it was deciding. */
static void kill_worker(pid_t process, size_t number)
{
    kill_independent(process);
    const uint64_t flight = exchange_relaxed(&board->flight[number], 0);
    if (flight != 0) {
        unknown[flight >> 32 & 0xff][flight >> 16 & 0xffff] += flight & 0xffff;
    }
}

/* A life: some processes under load, of which each closes or is killed. */
static void live(const char *url, uint64_t *random)
{
    struct worker workers[PROCESSES];
    pid_t processes[PROCESSES];
    store_relaxed(&board->stop, 0);
    for (size_t i = 0; i < PROCESSES; i++) {
        store_relaxed(&board->checks[i], 0);
        workers[i] = (struct worker){url, random_next(random), i};
        processes[i] = start_independent(work, &workers[i]);
    }
    for (size_t i = 0; i < PROCESSES; i++) {
        assert_true(wait_for_word(&board->checks[i], 1 + random_below(random, 5000)));
    }
    nap_ms((long) random_below(random, 120)); /* two syncs and a half at most */
    const uint64_t killed = random_below(random, 1 << PROCESSES);
    for (size_t i = 0; i < PROCESSES; i++) {
        if ((killed >> i & 1) != 0) {
            kill_worker(processes[i], i);
        }
    }
    store_release(&board->stop, 1);
    for (size_t i = 0; i < PROCESSES; i++) {
        if ((killed >> i & 1) == 0) {
            expect_end(processes[i]);
        }
    }
}

static void compare(const struct server *server)
{
    for (size_t p = 0; p < POLICIES; p++) {
        for (size_t key = 0; key < KEYS; key++) {
            char pattern[64];
            (void) snprintf(pattern, sizeof(pattern), "weir:*:%s:*key-%zu-*", names[p], key);
            const uint64_t admitted = load_relaxed(&board->admitted[p][key]);
            const uint64_t told = server_sum(server, pattern);
            if (told < admitted || told > admitted + unknown[p][key]) {
                fail_msg("%s, key %zu: Redis has %" PRIu64 ", %" PRIu64 " passed, and of %" PRIu64 " it is not known",
                         names[p], key, told, admitted, unknown[p][key]);
            }
        }
    }
}

static void test_each_unit_is_told_once_over_many_lives(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server server;
    char url[160];
    char node[NODE_ID_SIZE];
    server_start(&server);
    server_url(&server, false, url, sizeof(url));
    memset((void *) board, 0, sizeof(*board));
    uint64_t random = test_seed();
    weir *w = open_node(url);
    assert_non_null(w);
    memcpy(node, w->fleet->node, sizeof(node));
    weir_close(w);
    for (int i = 0; i < LIVES; i++) {
        live(url, &random);
    }
    w = open_node(url);
    assert_non_null(w);
    assert_memory_equal(node, w->fleet->node, sizeof(node));
    assert_int_equal(weir_sync(w, 60000), 0);
    compare(&server);
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_int_equal(stats.process_count, 1);
    assert_int_equal(stats.live_nodes, 1);
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
    server_stop(&server);
}

int main(void)
{
#ifdef COMPILER_THREAD_SANITIZER
    (void) puts("1..0 # SKIP ThreadSanitizer's sixteen-byte exchange takes a lock of the process");
    return 0;
#endif
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    segment_name(name, "redis");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_unit_is_told_once_over_many_lives),
    };
    const int failed = cmocka_run_group_tests_name("redis/named", tests, NULL, NULL);
    (void) weir_unlink(name);
    return failed;
}
