/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that share one weir are one node of the fleet, whichever of them leads: after quiet, the sums in a real
 * Redis are what all of them admitted, to the unit.
 *
 * Guards: src/limiter/leader.c, src/limiter/join.c, src/limiter/background.c, src/fleet/fleet.c,
 * src/fleet/keys/record.c
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
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
#include "support/server.h"
#include "support/support.h"
#include "thread/joined.h"

#define CHILDREN    4
#define POLICIES    4
#define KEYS        50
#define PATIENT_MS  60000
#define PATIENCE_NS (PATIENT_MS * MILLISECOND)

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

/* What the processes tell each other; in memory that they share. */
struct board {
    _Atomic uint64_t admitted[POLICIES];
    _Atomic uint64_t ready, stop;
};

static struct board *board;

static weir *open_shared(const struct server *server)
{
    char url[160];
    server_url(server, false, url, sizeof(url));
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = 50;
    options.redis_timeout_ms = PATIENT_MS; /* a Redis that is slow on a busy machine is not what is tried */
    options.shared = true;
    options.max_processes = CHILDREN + 1;
    options.no_thread = SANITIZED;
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

/* Checks keys at random until it is told to stop. Without a background thread the process polls between. */
static void work(weir *w, uint64_t seed)
{
    weir_thread *t = weir_attach(w);
    uint64_t rng = seed;
    for (uint64_t batch = 0; load_acquire(&board->stop) == 0; batch++) {
        for (int i = 0; i < 200; i++) {
            const size_t policy = random_below(&rng, POLICIES);
            /* One key is hot. */
            const uint32_t name = (uint32_t) (random_below(&rng, 2) == 0 ? 0 : random_below(&rng, KEYS));
            char text[16];
            const int length = snprintf(text, sizeof(text), "key-%" PRIu32, name);
            const weir_key key = weir_make_key(w, weir_find_policy(w, names[policy]), text, (size_t) length);
            const uint64_t cost = draw_cost(&rng, COST_MOST);
            (void) add_relaxed(&board->admitted[policy], weir_check(t, &key, cost, NULL) ? cost : 0);
        }
        if (SANITIZED) {
            (void) weir_poll(w);
        }
        if (batch == 0) {
            (void) add_relaxed(&board->ready, 1);
        }
        nap_ms(1);
    }
    weir_detach(t);
}

static pid_t start_child(weir *w, uint64_t seed)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (weir_join(w, NULL) != 0) {
            _exit(10);
        }
        work(w, seed);
        weir_close(w);
        _exit(0);
    }
    return child;
}

static void expect_good(pid_t child)
{
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static uint32_t leader_of(weir *w)
{
    (void) robust_mutex_lock(&w->limiter.process, &w->shared->work_lock);
    const uint32_t leader = load_relaxed(&w->shared->leader);
    robust_mutex_unlock(&w->shared->work_lock);
    return leader;
}

/* Lets the opener lead no more, and waits until a child does. */
static void hand_over(weir *w)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    background_stop(w);
    leader_leave(w);
    for (uint32_t leader = JOINED_NONE; leader == JOINED_NONE || leader == w->limiter.joined_as;) {
        assert_true(real_ns() < until_ns);
        nap_ms(1);
        leader = leader_of(w);
    }
}

/* Syncs by whoever leads; without a background thread this process polls meanwhile. */
static void sync_all(weir *w)
{
    assert_int_equal(weir_sync(w, PATIENT_MS), 0);
}

static void compare(const struct server *server)
{
    for (size_t p = 0; p < POLICIES; p++) {
        char pattern[64];
        (void) snprintf(pattern, sizeof(pattern), "weir:*:%s:*", names[p]);
        const uint64_t admitted = load_relaxed(&board->admitted[p]);
        assert_true(admitted > 0);
        assert_int_equal(server_sum(server, pattern), admitted);
    }
}

/* Skips where there is no Redis, or no exchange of sixteen bytes between processes. */
static void need_server(void)
{
    if (!server_available()) {
        skip();
    }
}

/* `leads`: the opener leads to the end; else a child does from the middle on, and leaves as all children do. */
static void share(bool leads)
{
    need_server();
    struct server server;
    server_start(&server);
    memset((void *) board, 0, sizeof(*board));
    weir *w = open_shared(&server);
    const uint64_t seed = test_seed();
    pid_t children[CHILDREN];
    for (size_t i = 0; i < CHILDREN; i++) {
        children[i] = start_child(w, seed + i);
    }
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (load_acquire(&board->ready) < CHILDREN) {
        assert_true(real_ns() < until_ns);
        nap_ms(1);
    }
    nap_ms(300);
    if (!leads) {
        hand_over(w);
        if (!SANITIZED) {
            assert_int_equal(background_start(w), 0);
        }
    }
    const uint64_t began_ns = real_ns();
    sync_all(w);
    assert_true(real_ns() - began_ns < PATIENCE_NS / 2); /* who is not told of its end waits for the time-out */
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_int_equal(stats.live_nodes, 1); /* all of them are one node */
    store_release(&board->stop, 1);
    for (size_t i = 0; i < CHILDREN; i++) {
        expect_good(children[i]);
    }
    sync_all(w);
    compare(&server);
    weir_close(w);
    compare(&server);
    server_stop(&server);
}

static void test_sums_in_redis_are_what_all_processes_admitted(void **state)
{
    (void) state;
    share(true);
}

static void test_sums_are_whole_when_another_process_leads(void **state)
{
    (void) state;
    share(false);
}

/* The opener closes while the children work; the last child out tells the rest. */
static void test_the_last_process_out_tells_the_rest(void **state)
{
    (void) state;
    need_server();
    struct server server;
    server_start(&server);
    memset((void *) board, 0, sizeof(*board));
    weir *w = open_shared(&server);
    pid_t children[CHILDREN];
    const uint64_t seed = test_seed();
    for (size_t i = 0; i < CHILDREN; i++) {
        children[i] = start_child(w, seed + i);
    }
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (load_acquire(&board->ready) < CHILDREN) {
        assert_true(real_ns() < until_ns);
        nap_ms(1);
    }
    weir_close(w);
    nap_ms(300);
    store_release(&board->stop, 1);
    for (size_t i = 0; i < CHILDREN; i++) {
        expect_good(children[i]);
    }
    compare(&server);
    server_stop(&server);
}

/* A daemon's parent forks, and closes before the child has joined: it was the last one, and the child is the next. */
static void test_a_node_that_is_joined_after_all_have_left_is_live(void **state)
{
    (void) state;
    need_server();
    struct server server;
    server_start(&server);
    memset((void *) board, 0, sizeof(*board));
    weir *w = open_shared(&server);
    sync_all(w);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (load_acquire(&board->stop) == 0) {
            nap_ms(1);
        }
        weir_stats stats = {.live_nodes = 0};
        int result = weir_join(w, NULL) == 0 && weir_sync(w, PATIENT_MS) == 0 && weir_sync(w, PATIENT_MS) == 0 ? 0 : 1;
        weir_get_stats(w, &stats);
        result = result == 0 && stats.live_nodes != 1 ? 2 : result;
        result = result == 0 && server_number(&server, "ZCOUNT weir:nodes 0 %s", "(inf") != 1 ? 3 : result;
        weir_close(w);
        result = result == 0 && server_number(&server, "ZCOUNT weir:nodes 0 %s", "(inf") != 0 ? 4 : result;
        _exit(result);
    }
    weir_close(w);
    assert_int_equal(server_number(&server, "ZCOUNT weir:nodes 0 %s", "(inf"), 0);
    store_release(&board->stop, 1);
    expect_good(child);
    server_stop(&server);
}

/* A child sets policies, and the opener leads: the opener names records by its own forms. */
static void test_a_leader_knows_the_forms_of_policies_that_another_process_sets(void **state)
{
    (void) state;
    need_server();
    struct server server;
    server_start(&server);
    weir *w = open_shared(&server);
    assert_int_equal(weir_set_key_form(w, "late", weir_address_form(64), NULL), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        const weir_policy late = {.name = "late", .limits = limits, .limit_count = 1};
        int result = weir_join(w, NULL) == 0 && weir_set_policies(w, &late, 1, NULL) == 0 ? 0 : 1;
        const unsigned char address[] = {198, 51, 100, 7};
        const weir_key key = weir_make_key(w, weir_find_policy(w, "late"), address, sizeof(address));
        weir_thread *t = weir_attach(w); /* weir_close detaches it */
        result = result == 0 && !weir_check(t, &key, 3, NULL) ? 2 : result;
        weir_close(w); /* the opener leads to the end */
        _exit(result);
    }
    expect_good(child);
    sync_all(w);
    assert_int_equal(server_sum(&server, "weir:*:late:198.51.100.7*"), 3);
    weir_close(w);
    server_stop(&server);
}

int main(void)
{
#ifdef COMPILER_THREAD_SANITIZER
    (void) puts("1..0 # SKIP ThreadSanitizer's sixteen-byte exchange takes a lock of the process");
    return 0;
#endif
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_in_redis_are_what_all_processes_admitted),
        cmocka_unit_test(test_sums_are_whole_when_another_process_leads),
        cmocka_unit_test(test_the_last_process_out_tells_the_rest),
        cmocka_unit_test(test_a_node_that_is_joined_after_all_have_left_is_live),
        cmocka_unit_test(test_a_leader_knows_the_forms_of_policies_that_another_process_sets),
    };
    return cmocka_run_group_tests_name("redis/processes", tests, NULL, NULL);
}
