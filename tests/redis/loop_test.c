/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A host's loop that waits for weir_poll_fd and does nothing but weir_poll when it is readable: syncs are as prompt as
 * with a thread, whatever becomes of the connections, and the loop does not turn for nothing.
 *
 * Guards: src/limiter/poll_set.c, src/limiter/background.c, src/transport/redis/redis.c
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "limiter/weir_private.h"
#include "support/cluster.h"
#include "support/support.h"

#define PATIENCE_NS (30 * SECOND)
#define ROUNDS      20

/* Between a round trip that is seen at once, and one that is seen at the next look of a weir that is idle: 100 ms. */
#define PROMPT_NS (20 * MILLISECOND)

static const weir_limit many = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};

/* A host and its loop, which has nothing else to wait for. */
struct host {
    weir *w;
    weir_thread *t;
    weir_policy_id policy;
    int epoll_fd;
    uint64_t turns;
};

static void host_open(struct host *host, const char *url)
{
    *host = (struct host){.epoll_fd = epoll_create1(EPOLL_CLOEXEC)};
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.redis_url = url;
    options.max_keys = 1000;
    options.sync_interval_ms = 20;
    host->w = open_or_fail(&options);
    host->policy = set_one_policy(host->w, &many, 1, WEIR_SCOPE_FLEET);
    host->t = weir_attach(host->w);
    struct epoll_event event = {.events = EPOLLIN};
    assert_int_equal(epoll_ctl(host->epoll_fd, EPOLL_CTL_ADD, weir_poll_fd(host->w), &event), 0);
}

static void host_close(struct host *host)
{
    (void) close(host->epoll_fd);
    weir_close(host->w);
}

/* One poll of the loop, with no bound on its time. */
static void scan_cursor(struct host *host)
{
    struct epoll_event event;
    int count;
    do { /* a process that is stopped and goes on finds the call interrupted */
        count = epoll_wait(host->epoll_fd, &event, 1, (int) (PATIENCE_NS / MILLISECOND));
    } while (count < 0 && errno == EINTR);
    assert_true(count == 1); /* the longest it may have nothing to do is far below */
    assert_true(weir_poll(host->w) >= 0);
    host->turns++;
}

static weir_stats stats_of(const struct host *host)
{
    weir_stats stats;
    weir_get_stats(host->w, &stats);
    return stats;
}

/* Polls until `rounds` more rounds have been answered. */
static void poll_for_rounds(struct host *host, uint64_t rounds)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    const uint64_t before = stats_of(host).sync_count;
    while (stats_of(host).sync_count < before + rounds) {
        scan_cursor(host);
        assert_true(real_ns() < until_ns);
    }
}

static int by_size(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *) a;
    const uint64_t y = *(const uint64_t *) b;
    return x < y ? -1 : x > y;
}

static uint64_t median_round_trip(struct host *host)
{
    uint64_t trips[ROUNDS];
    for (size_t i = 0; i < ROUNDS; i++) {
        poll_for_rounds(host, 1);
        trips[i] = stats_of(host).round_trip_ns;
    }
    qsort(trips, ROUNDS, sizeof(trips[0]), by_size);
    return trips[ROUNDS / 2];
}

/* Polls until round trips are prompt: not at once, as other processes may have the machine. */
static void expect_prompt_rounds(struct host *host)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    for (uint64_t median_ns = UINT64_MAX; median_ns >= PROMPT_NS;) {
        median_ns = median_round_trip(host);
        if (median_ns >= PROMPT_NS && real_ns() >= until_ns) {
            fail_msg("the median of %d round trips is %llu us", ROUNDS, (unsigned long long) median_ns / 1000);
        }
    }
}

/* How far the fleet's time, by this node, is from this host's clock, which is Redis's. */
static uint64_t time_error(const struct host *host)
{
    struct timespec wall;
    (void) clock_gettime(CLOCK_REALTIME, &wall);
    const uint64_t offset_ns = (uint64_t) wall.tv_sec * SECOND + (uint64_t) wall.tv_nsec - real_ns();
    const uint64_t error_ns = load_relaxed(&host->w->limiter.shared->line.offset_ns) - offset_ns;
    return error_ns < UINT64_MAX / 2 ? error_ns : 0 - error_ns;
}

static void test_round_trips_are_as_short_as_with_a_thread_and_the_time_is_right(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server server;
    server_start(&server);
    for (int tcp = 0; tcp < 2; tcp++) {
        char url[128];
        server_url(&server, tcp != 0, url, sizeof(url));
        struct host host;
        host_open(&host, url);
        expect_prompt_rounds(&host); /* of an idle weir */
        const uint64_t until_ns = real_ns() + PATIENCE_NS;
        while (time_error(&host) >= 5 * MILLISECOND) {
            scan_cursor(&host);
            if (real_ns() >= until_ns) {
                fail_msg("fleet time is %llu us off", (unsigned long long) time_error(&host) / 1000);
            }
        }
        host_close(&host);
    }
    server_stop(&server);
}

/* Fails if the loop has polled more often than there was something to do: some ticks of 1 ms, some answers. */
static void expect_few_turns(const struct host *host, uint64_t turns_before, uint64_t since_ns)
{
    const uint64_t turns = host->turns - turns_before;
    const uint64_t ms = (real_ns() - since_ns) / MILLISECOND;
    if (turns > 200 + 5 * ms) {
        fail_msg("%llu turns in %llu ms", (unsigned long long) turns, (unsigned long long) ms);
    }
}

/* Polls for `for_ns`, with nothing to do that takes more than one poll. */
static void poll_quietly(struct host *host, uint64_t for_ns)
{
    const uint64_t since_ns = real_ns();
    const uint64_t before = host->turns;
    while (real_ns() < since_ns + for_ns) {
        scan_cursor(host);
    }
    expect_few_turns(host, before, since_ns);
}

static void test_connections_that_go_and_come_are_followed_without_idle_turns(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server server;
    server_start(&server);
    char url[128];
    server_url(&server, true, url, sizeof(url));
    struct host host;
    host_open(&host, url);
    poll_for_rounds(&host, 3);
    for (int time = 0; time < 3; time++) {
        /* A child that keeps copies of all sockets: those that the weir closes are not gone. */
        const pid_t child = fork();
        if (child == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL); /* also where the test fails */
            (void) pause();
            _exit(0);
        }
        assert_true(child > 0);
        server_kill(&server);
        poll_quietly(&host, SECOND / 2);
        assert_int_equal(stats_of(&host).link, WEIR_LINK_DOWN);
        server_restart(&server);
        poll_for_rounds(&host, 3);
        poll_quietly(&host, SECOND / 4);
        expect_prompt_rounds(&host);
        (void) kill(child, SIGKILL);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    host_close(&host);
    server_stop(&server);
}

static void check_keys(struct host *host, int keys)
{
    for (int i = 0; i < keys; i++) {
        char name[16];
        const int length = snprintf(name, sizeof(name), "key%d", i);
        const weir_key key = weir_make_key(host->w, host->policy, name, (size_t) length);
        assert_true(weir_check(host->t, &key, 1, NULL));
    }
}

static void test_every_server_of_a_cluster_is_waited_for(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    static struct cluster c;
    cluster_start(&c, 0);
    char url[200];
    cluster_url(&c, "redis+cluster", 1, url, sizeof(url));
    struct host host;
    host_open(&host, url);
    poll_for_rounds(&host, 1);
    check_keys(&host, 300);
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    uint64_t inspected_ns = 0;
    for (uint64_t sum = 0; sum < 300;) {
        scan_cursor(&host);
        if (real_ns() > inspected_ns + SECOND / 10) {
            sum = cluster_sum(&c, "weir:*");
            inspected_ns = real_ns();
        }
        assert_true(real_ns() < until_ns);
    }
    expect_prompt_rounds(&host);
    poll_quietly(&host, SECOND / 2);
    host_close(&host);
    cluster_stop(&c);
}

static void sentinel_start(struct server *sentinel, int port)
{
    server_init(sentinel);
    sentinel->sentinel = true;
    char path[128];
    (void) snprintf(path, sizeof(path), "%s/sentinel.conf", sentinel->directory);
    FILE *conf = fopen(path, "w");
    assert_non_null(conf);
    (void) fprintf(conf,
                   "port %d\nbind 127.0.0.1\nunixsocket %s\ndir %s\nsentinel monitor p 127.0.0.1 %d 1\n"
                   "sentinel down-after-milliseconds p 60000\n",
                   sentinel->port, sentinel->socket, sentinel->directory, port);
    (void) fclose(conf);
    server_launch(sentinel);
}

static void test_a_sentinel_and_the_primary_it_names_are_waited_for(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server first;
    struct server second;
    struct server sentinel;
    server_start(&first);
    server_start(&second);
    sentinel_start(&sentinel, first.port);
    char url[200];
    (void) snprintf(url, sizeof(url), "redis+sentinel://127.0.0.1:%d/p", sentinel.port);
    struct host host;
    host_open(&host, url);
    expect_prompt_rounds(&host);
    server_must(&sentinel, "SENTINEL REMOVE p");
    server_must(&sentinel, "SENTINEL MONITOR p 127.0.0.1 %d 1", second.port);
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (server_sum(&second, "weir:*") == 0) {
        check_keys(&host, 1);
        poll_quietly(&host, SECOND / 10);
        assert_true(real_ns() < until_ns);
    }
    expect_prompt_rounds(&host);
    host_close(&host);
    server_stop(&sentinel);
    server_stop(&second);
    server_stop(&first);
}

static bool readable(int fd, int timeout_ms)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, timeout_ms) == 1;
}

static void test_with_a_clock_of_the_hosts_own_the_descriptor_tells_of_redis(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server server;
    server_start(&server);
    char url[128];
    server_url(&server, false, url, sizeof(url));
    struct fake_clock fake;
    fake_clock_init(&fake, UINT64_C(1760000000) * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &fake.clock;
    options.redis_url = url;
    options.max_keys = 1000;
    weir *w = open_or_fail(&options);
    const int fd = weir_poll_fd(w);
    assert_true(fd >= 0);
    weir_stats stats = {0};
    for (int turns = 0; stats.sync_count == 0; turns++) { /* a connection, a greeting, and a round */
        assert_true(weir_poll(w) >= 0);
        weir_get_stats(w, &stats);
        if (stats.sync_count == 0 && !readable(fd, (int) (PATIENCE_NS / MILLISECOND))) {
            fail_msg("Redis's answer was not told of, after %d turns", turns);
        }
    }
    /* The host's clock stands still: the node reports what it has, and then nothing is due. */
    int more = 0;
    for (; readable(fd, 100) && more < 100; more++) {
        (void) weir_poll(w);
    }
    assert_in_range(more, 0, 99);
    weir_close(w);
    server_stop(&server);
}

/* Threads that check, and one that wants syncs, beside the loop. */
struct beside {
    struct host host;
    _Atomic uint32_t stop, syncs, failed;
};

static void *checker(void *arg)
{
    struct beside *beside = arg;
    weir_thread *t = weir_attach(beside->host.w);
    const weir_key key = weir_make_key(beside->host.w, beside->host.policy, "shared", 6);
    while (load_relaxed(&beside->stop) == 0) {
        (void) weir_check(t, &key, 1, NULL);
    }
    weir_detach(t);
    return NULL;
}

static void *syncer(void *arg)
{
    struct beside *beside = arg;
    for (int i = 0; i < 5; i++) {
        const int result = weir_sync(beside->host.w, (uint32_t) (PATIENCE_NS / MILLISECOND));
        (void) add_relaxed(&beside->failed, result != 0);
        (void) add_relaxed(&beside->syncs, 1);
    }
    return NULL;
}

static void test_other_threads_check_and_sync_beside_the_loop(void **state)
{
    (void) state;
    if (!server_available()) {
        skip();
    }
    struct server server;
    server_start(&server);
    char url[128];
    server_url(&server, false, url, sizeof(url));
    struct beside beside = {.stop = 0};
    host_open(&beside.host, url);
    pthread_t threads[3];
    assert_int_equal(pthread_create(&threads[0], NULL, checker, &beside), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, checker, &beside), 0);
    assert_int_equal(pthread_create(&threads[2], NULL, syncer, &beside), 0);
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (load_relaxed(&beside.syncs) < 5) {
        scan_cursor(&beside.host);
        assert_true(real_ns() < until_ns);
    }
    assert_int_equal(load_relaxed(&beside.failed), 0);
    expect_prompt_rounds(&beside.host);
    store_relaxed(&beside.stop, 1);
    for (int i = 0; i < 3; i++) {
        (void) pthread_join(threads[i], NULL);
    }
    expect_prompt_rounds(&beside.host);
    host_close(&beside.host);
    server_stop(&server);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips_are_as_short_as_with_a_thread_and_the_time_is_right),
        cmocka_unit_test(test_connections_that_go_and_come_are_followed_without_idle_turns),
        cmocka_unit_test(test_every_server_of_a_cluster_is_waited_for),
        cmocka_unit_test(test_a_sentinel_and_the_primary_it_names_are_waited_for),
        cmocka_unit_test(test_with_a_clock_of_the_hosts_own_the_descriptor_tells_of_redis),
        cmocka_unit_test(test_other_threads_check_and_sync_beside_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
