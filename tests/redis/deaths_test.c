/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes share a weir under load and are killed at random moments, the leader among them: what each key has used
 * is in Redis afterwards, up to the request that a killed thread was deciding.
 *
 * Guards: src/thread/repair.c, src/thread/settling.c, src/process/mend.c, src/limiter/leader.c, src/fleet/fleet.c
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "limiter/background.h"
#include "limiter/leader.h"
#include "limiter/weir_private.h"
#include "support/independent.h"
#include "support/server.h"
#include "support/support.h"
#include "thread/joined.h"

#define CHILDREN    4
#define THREADS     2
#define POLICIES    4
#define KEYS        20
#define PATIENCE_NS (60 * SECOND)

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

/* A request that a thread is deciding: 0, or its policy, key and cost. */
#define FLIGHT(policy, name, cost) (UINT64_C(1) << 40 | (uint64_t) (policy) << 32 | (uint64_t) (name) << 16 | (cost))

/* What the processes tell each other; in memory that they share. */
struct board {
    _Atomic uint64_t admitted[POLICIES][KEYS];
    _Atomic uint64_t flight[CHILDREN][THREADS], checks[CHILDREN];
    _Atomic uint64_t longest_ns[CHILDREN][THREADS]; /* of a check */
    _Atomic uint64_t waited_ns[CHILDREN][THREADS];  /* likewise, without the time that the thread had no processor */
    _Atomic uint64_t stop;
};

static struct board *board;

/* Units of requests that killed threads were deciding. */
static uint64_t unknown[POLICIES][KEYS];

struct worker {
    weir *w;
    uint64_t seed;
    size_t child, thread;
};

/* How long this thread has been ready to run and had no processor; 0 where the kernel does not say. */
static uint64_t without_processor_ns(int schedstat)
{
    char text[96];
    const ssize_t length = schedstat >= 0 ? pread(schedstat, text, sizeof(text) - 1, 0) : 0;
    text[length > 0 ? length : 0] = '\0';
    char *end = text;
    (void) strtoull(text, &end, 10); /* the time on a processor */
    return strtoull(end, NULL, 10);
}

static void keep_longest(_Atomic uint64_t *longest_ns, uint64_t took_ns)
{
    if (took_ns > load_relaxed(longest_ns)) {
        store_relaxed(longest_ns, took_ns);
    }
}

static void *work(void *arg)
{
    const struct worker *self = arg;
    weir *w = self->w;
    weir_thread *t = weir_attach(w);
    uint64_t random = self->seed;
    const int schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    while (t != NULL && load_acquire(&board->stop) == 0) {
        const size_t policy = random_below(&random, POLICIES);
        /* One key is hot. */
        const uint32_t name = (uint32_t) (random_below(&random, 2) == 0 ? 0 : random_below(&random, KEYS));
        char text[16];
        const int length = snprintf(text, sizeof(text), "key-%" PRIu32 "-", name);
        const weir_key key = weir_make_key(w, weir_find_policy(w, names[policy]), text, (size_t) length);
        const uint64_t cost = draw_cost(&random, COST_MOST);
        store_release(&board->flight[self->child][self->thread], FLIGHT(policy, name, cost));
        fence_compiler();
        const uint64_t late_ns = without_processor_ns(schedstat);
        const uint64_t begun_ns = real_ns();
        const bool allowed = weir_check(t, &key, cost, NULL);
        const uint64_t took_ns = real_ns() - begun_ns;
        fence_compiler();
        (void) add_relaxed(&board->admitted[policy][name], allowed ? cost : 0);
        fence_compiler();
        store_release(&board->flight[self->child][self->thread], 0);
        keep_longest(&board->longest_ns[self->child][self->thread], took_ns);
        keep_longest(&board->waited_ns[self->child][self->thread],
                     took_ns - min_u64(took_ns, without_processor_ns(schedstat) - late_ns));
        (void) add_relaxed(&board->checks[self->child], 1);
    }
    if (t != NULL) {
        weir_detach(t);
    }
    (void) close(schedstat);
    return t;
}

static void run_child(weir *w, size_t number, uint64_t seed)
{
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    while (weir_join(w, NULL) == -ENOSPC) {
        nap_ms(1); /* until a dead process's place is free */
    }
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){w, seed + i, number, i};
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0) {
            _exit(1);
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        void *attached;
        if (pthread_join(threads[i], &attached) != 0 || attached == NULL) {
            _exit(2);
        }
    }
    weir_close(w);
    _exit(0);
}

static pid_t start_child(weir *w, size_t number, uint64_t seed)
{
    store_relaxed(&board->checks[number], 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        run_child(w, number, seed);
    }
    return child;
}

static void expect_good(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("a child ended with status 0x%x", (unsigned) status);
    }
}

static weir *open_shared(const struct server *server)
{
    char url[160];
    server_url(server, false, url, sizeof(url));
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = 50;
    options.redis_timeout_ms = 1000;
    options.max_threads = 64;
    options.shared = true;
    options.max_processes = 4 * CHILDREN;
    weir *w = NULL;
    weir_error error;
    weir_policy policies[POLICIES];
    for (size_t i = 0; i < POLICIES; i++) {
        policies[i] =
            (weir_policy){.name = names[i], .limits = &limits[i], .limit_count = 1, .on_outage = WEIR_OUTAGE_LOCAL};
    }
    if (weir_open(&options, &w, &error) != 0 || weir_set_policies(w, policies, POLICIES, &error) != 0) {
        fail_msg("%s", error.message);
    }
    return w;
}

/* Kills a child, and notes what its threads were deciding. */
static void kill_child(pid_t child, size_t number)
{
    (void) kill(child, SIGKILL);
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFSIGNALED(status)) {
        fail_msg("a child ended with status 0x%x", (unsigned) status);
    }
    for (size_t i = 0; i < THREADS; i++) {
        const uint64_t flight = exchange_relaxed(&board->flight[number][i], 0);
        if (flight != 0) {
            unknown[flight >> 32 & 0xff][flight >> 16 & 0xffff] += flight & 0xffff;
        }
    }
}

static void compare(const struct server *server)
{
    for (size_t p = 0; p < POLICIES; p++) {
        for (size_t name = 0; name < KEYS; name++) {
            char pattern[64];
            (void) snprintf(pattern, sizeof(pattern), "weir:*:%s:*key-%zu-*", names[p], name);
            const uint64_t admitted = load_relaxed(&board->admitted[p][name]);
            const uint64_t told = server_sum(server, pattern);
            if (told < admitted || told > admitted + unknown[p][name]) {
                fail_msg("%s, key %zu: Redis has %" PRIu64 ", %" PRIu64 " passed, and of %" PRIu64 " it is not known",
                         names[p], name, told, admitted, unknown[p][name]);
            }
        }
    }
}

static uint64_t kills_to_do(void)
{
    const char *text = getenv("WEIR_KILLS");
    return text != NULL ? strtoull(text, NULL, 10) : 200;
}

static void test_sums_are_whole_however_processes_die(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server server;
    server_start(&server);
    memset((void *) board, 0, sizeof(*board));
    weir *w = open_shared(&server);
    pid_t children[CHILDREN];
    uint64_t random = test_seed();
    for (size_t i = 0; i < CHILDREN; i++) {
        children[i] = start_child(w, i, random_next(&random));
    }
    /* A child leads, so that leaders die as well. */
    background_stop(w);
    leader_leave(w);
    const uint64_t kills = kills_to_do();
    for (uint64_t i = 0; i < kills; i++) {
        const size_t victim = random_below(&random, CHILDREN);
        const uint64_t until_ns = real_ns() + PATIENCE_NS;
        /* Of processes that have died some are repaired: a child that cannot join repairs none. */
        while (load_relaxed(&board->checks[victim]) < 1 + random_below(&random, 2000) ||
               load_relaxed(&w->limiter.shared->joined_count) > 2 * CHILDREN) {
            if (real_ns() > until_ns) {
                fail_msg("after %" PRIu64 " kills child %zu makes no checks", i, victim);
            }
            nap_ms(1);
        }
        kill_child(children[victim], victim);
        children[victim] = start_child(w, victim, random_next(&random));
    }
    nap_ms(200);
    store_release(&board->stop, 1);
    uint64_t longest_ns = 0;
    uint64_t waited_ns = 0;
    for (size_t i = 0; i < CHILDREN; i++) {
        expect_good(children[i]);
        for (size_t thread = 0; thread < THREADS; thread++) {
            longest_ns = max_u64(longest_ns, load_relaxed(&board->longest_ns[i][thread]));
            waited_ns = max_u64(waited_ns, load_relaxed(&board->waited_ns[i][thread]));
        }
    }
    assert_int_equal(background_start(w), 0);
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (load_relaxed(&w->limiter.shared->joined_count) != 1) {
        assert_true(real_ns() < until_ns);
        nap_ms(1);
    }
    assert_int_equal(weir_sync(w, PATIENCE_NS / MILLISECOND), 0);
    compare(&server);
    weir_close(w);
    server_stop(&server);
    print_message("# %" PRIu64 " kills; the longest check took %.1f ms, and %.1f ms without waiting for a processor\n",
                  kills, (double) longest_ns / 1e6, (double) waited_ns / 1e6);
}

int main(void)
{
    if (SANITIZED) {
        /* Children of a process with threads start threads; ThreadSanitizer's exchange of 16 bytes takes a lock. */
        (void) puts("1..0 # SKIP not under the sanitizers");
        return 0;
    }
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_are_whole_however_processes_die),
    };
    return cmocka_run_group_tests_name("redis/deaths", tests, NULL, NULL);
}
