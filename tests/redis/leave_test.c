/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_leave on a Redis server of the test, while threads check: what was counted is in Redis, the background thread is
 * gone, checks go on by what the process knows and by the clock, and weir_close may follow or not.
 *
 * Guards: src/limiter/weir_open.c, src/limiter/background.c, src/limiter/weir.c, src/thread/tick.c
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "limiter/weir_private.h"
#include "support/independent.h"
#include "support/server.h"
#include "support/support.h"

#define THREADS     3
#define PATIENCE_NS (60 * SECOND)
#define PROGRAMS    (SLOWED ? 5 : 30)

static const weir_limit many = {.algorithm = WEIR_FIXED_WINDOW, .limit = 100000000, .period_ns = 24 * HOUR};
static const weir_limit few = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 50, .period_ns = SECOND, .burst = 10};

struct crew {
    weir *w;
    pthread_t threads[THREADS];
    _Atomic uint64_t admitted, asked;
    _Atomic uint32_t ends;
};

static void *work(void *arg)
{
    struct crew *crew = arg;
    weir_thread *t = weir_attach(crew->w);
    const weir_key key = weir_make_key(crew->w, weir_find_policy(crew->w, "p"), "k", 1);
    while (load_relaxed(&crew->ends) == 0) {
        const bool passes = weir_check(t, &key, 1, NULL);
        (void) add_relaxed(&crew->admitted, passes);
        (void) add_relaxed(&crew->asked, 1);
    }
    weir_detach(t);
    return NULL;
}

static void crew_open(struct crew *crew, const char *url, const weir_limit *limit, bool no_thread, bool shared)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = url;
    options.sync_interval_ms = 20;
    options.no_thread = no_thread;
    options.shared = shared;
    *crew = (struct crew){.w = open_or_fail(&options)};
    (void) set_one_policy(crew->w, limit, 1, WEIR_SCOPE_FLEET);
}

static void crew_start(struct crew *crew)
{
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&crew->threads[i], NULL, work, crew), 0);
    }
}

static void crew_end(struct crew *crew)
{
    store_relaxed(&crew->ends, 1);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(crew->threads[i], NULL), 0);
    }
}

/* Waits until a count has grown by so many. */
static void until_grown(_Atomic uint64_t *count, uint64_t more)
{
    const uint64_t wanted = load_relaxed(count) + more;
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (load_relaxed(count) < wanted) {
        assert_true(real_ns() < until_ns);
        (void) usleep(1000);
    }
}

static void until_asked(struct crew *crew, uint64_t more)
{
    until_grown(&crew->asked, more);
}

/* Four bursts of `few`: they need time. */
static void until_time_goes_on(struct crew *crew)
{
    until_grown(&crew->admitted, 40);
}

/* So many requests of the calling thread, which all pass. Returns its handle. */
static weir_thread *ask(weir *w, int count)
{
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    for (int i = 0; i < count; i++) {
        assert_true(weir_check(t, &key, 1, NULL));
    }
    return t;
}

static void until_synced(struct crew *crew)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    weir_stats stats;
    do {
        if (crew->w->options.no_thread) {
            assert_true(weir_poll(crew->w) >= 0);
        }
        (void) usleep(1000);
        weir_get_stats(crew->w, &stats);
        assert_true(real_ns() < until_ns);
    } while (stats.sync_count < 3);
}

/* Threads of this process by the name of the background thread. */
static int background_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *task = readdir(tasks); task != NULL; task = readdir(tasks)) {
        char path[300];
        char name[32] = "";
        (void) snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            count += fgets(name, sizeof(name), file) != NULL && strcmp(name, "weir\n") == 0;
            (void) fclose(file);
        }
    }
    (void) closedir(tasks);
    return count;
}

static void leave_with(const char *url, const struct server *server, bool no_thread, bool shared)
{
    struct crew crew;
    freeReplyObject(server_command(server, "FLUSHALL"));
    crew_open(&crew, url, &many, no_thread, shared);
    crew_start(&crew);
    until_synced(&crew);
    until_asked(&crew, 1000);
    const uint64_t before = load_relaxed(&crew.admitted);
    assert_int_equal(weir_leave(crew.w), 0);
    const uint64_t after = load_relaxed(&crew.admitted);
    const uint64_t told = server_sum(server, "weir:*p:*");
    assert_true(told >= before && told <= after + THREADS);
    assert_int_equal(background_threads(), 0);
    until_asked(&crew, 1000); /* checks go on */
    assert_int_equal(server_sum(server, "weir:*p:*"), told);
    assert_int_equal(weir_leave(crew.w), 0);
    assert_int_equal(weir_sync(crew.w, 1000), -ENOTCONN);
    assert_true(!no_thread || weir_poll(crew.w) >= 0);
    crew_end(&crew);
    weir_close(crew.w);
    assert_int_equal(server_sum(server, "weir:*p:*"), load_relaxed(&crew.admitted)); /* the rest */
}

static void test_what_was_counted_is_reported_while_threads_check(void **state)
{
    const struct server *server = *state;
    char url[300];
    server_url(server, false, url, sizeof(url));
    leave_with(url, server, false, false);
    leave_with(url, server, true, false);
    leave_with(url, server, false, true);
}

static void test_time_goes_on_behind_it(void **state)
{
    char url[300];
    server_url(*state, false, url, sizeof(url));
    for (int i = 0; i < 4; i++) {
        const bool has_fleet = i < 2;
        struct crew crew;
        crew_open(&crew, has_fleet ? url : NULL, &few, i % 2 != 0, false);
        crew_start(&crew);
        if (has_fleet) {
            until_synced(&crew);
        } else {
            until_asked(&crew, 100000); /* slots deny */
        }
        assert_int_equal(weir_leave(crew.w), 0);
        until_time_goes_on(&crew);
        crew_end(&crew);
        weir_close(crew.w);
    }
}

static void test_without_redis_it_says_so_and_checks_go_on(void **state)
{
    (void) state;
    struct crew crew;
    crew_open(&crew, "redis://127.0.0.1:1", &many, false, false);
    crew_start(&crew);
    until_asked(&crew, 100);
    const int result = weir_leave(crew.w);
    assert_int_equal(result, -ECONNREFUSED);
    until_asked(&crew, 100);
    crew_end(&crew);
    weir_close(crew.w);
    weir_options options = WEIR_OPTIONS_INIT;
    weir *alone = open_or_fail(&options);
    assert_int_equal(weir_leave(alone), 0);
    weir_close(alone);
}

/* Of a shared weir the other processes go on: what the one that leaves has counted is theirs to report. */
static void test_other_processes_go_on(void **state)
{
    const struct server *server = *state;
    char url[300];
    server_url(server, false, url, sizeof(url));
    struct crew crew;
    freeReplyObject(server_command(server, "FLUSHALL"));
    crew_open(&crew, url, &many, true, true);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        weir_error error;
        const bool joined = weir_join(crew.w, &error) == 0;
        weir_thread *t = ask(crew.w, 100);
        const weir_key key = weir_make_key(crew.w, weir_find_policy(crew.w, "p"), "k", 1);
        _exit(!joined || weir_leave(crew.w) != 0 || !weir_check(t, &key, 1, NULL)); /* and ends without weir_close */
    }
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (server_sum(server, "weir:*p:*") != 101) {
        assert_true(weir_poll(crew.w) >= 0 && real_ns() < until_ns);
        (void) usleep(1000);
    }
    weir_close(crew.w);
}

/* A handle that is attached has units in a grant, which have not passed: they are not reported. */
static void test_units_of_a_grant_are_not_reported(void **state)
{
    const struct server *server = *state;
    char url[300];
    server_url(server, false, url, sizeof(url));
    struct crew crew;
    freeReplyObject(server_command(server, "FLUSHALL"));
    crew_open(&crew, url, &many, true, false);
    until_synced(&crew);
    (void) ask(crew.w, 100);
    assert_int_equal(weir_leave(crew.w), 0);
    assert_int_equal(server_sum(server, "weir:*p:*"), 100);
    weir_close(crew.w);
}

/* One process leaves, and the others, whose background threads moved the time for it, die. */
static void test_time_goes_on_when_the_others_die(void **state)
{
    (void) state;
    char name[SEGMENT_NAME_SIZE];
    char byte = 0;
    int go[2];
    int is_in[2];
    segment_name(name, "leave");
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared_name = name;
    assert_true(pipe(go) == 0 && pipe(is_in) == 0);
    (void) fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        weir *w = NULL;
        if (read(go[0], &byte, 1) != 1 || weir_open(&options, &w, NULL) != 0 || write(is_in[1], &byte, 1) != 1) {
            _exit(1);
        }
        for (;;) {
            (void) pause();
        }
    }
    struct crew crew = {.w = open_or_fail(&options)};
    (void) set_one_policy(crew.w, &few, 1, WEIR_SCOPE_FLEET);
    assert_int_equal(write(go[1], &byte, 1), 1);
    (void) close(is_in[1]);
    assert_int_equal(read(is_in[0], &byte, 1), 1);
    crew_start(&crew);
    assert_int_equal(weir_leave(crew.w), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    until_time_goes_on(&crew);
    crew_end(&crew);
    weir_close(crew.w);
    assert_int_equal(weir_unlink(name), 0);
    (void) close(go[0]);
    (void) close(go[1]);
    (void) close(is_in[0]);
}

/* All processes leave, one after the other, and end without weir_close: the last one reports what all have counted. */
static void test_the_last_process_that_leaves_reports(void **state)
{
    const struct server *server = *state;
    char url[300];
    char byte = 0;
    int joined[2];
    int left[2];
    server_url(server, false, url, sizeof(url));
    struct crew crew;
    freeReplyObject(server_command(server, "FLUSHALL"));
    crew_open(&crew, url, &many, true, true);
    assert_true(pipe(joined) == 0 && pipe(left) == 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        weir_error error;
        const bool is_in = weir_join(crew.w, &error) == 0 && write(joined[1], &byte, 1) == 1;
        const bool parent_left = read(left[0], &byte, 1) == 1;
        (void) ask(crew.w, 100);
        _exit(!is_in || !parent_left || weir_leave(crew.w) != 0);
    }
    assert_int_equal(read(joined[0], &byte, 1), 1);
    (void) ask(crew.w, 50);
    assert_int_equal(weir_leave(crew.w), 0);
    assert_int_equal(write(left[1], &byte, 1), 1);
    int status = 1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(server_sum(server, "weir:*p:*"), 150);
    for (int i = 0; i < 2; i++) {
        (void) close(joined[i]);
        (void) close(left[i]);
    }
    weir_close(crew.w);
}

/* The descriptor of a loop is readable when there is work: behind weir_leave there is none. */
static void test_a_loop_does_not_turn_behind_it(void **state)
{
    char url[300];
    server_url(*state, false, url, sizeof(url));
    struct crew crew;
    crew_open(&crew, url, &many, true, false);
    struct pollfd fd = {.fd = weir_poll_fd(crew.w), .events = POLLIN};
    until_synced(&crew);
    assert_int_equal(weir_leave(crew.w), 0);
    int turns = 0;
    while (turns < 50 && poll(&fd, 1, 0) == 1) {
        assert_true(weir_poll(crew.w) > 0);
        turns++;
    }
    assert_true(turns < 50);
    weir_close(crew.w);
}

/*
 * A program that is told to end leaves, and returns from main while its threads check: again and again.
 */
static void test_a_program_ends_while_its_threads_check(void **state)
{
    const struct server *server = *state;
    char url[300];
    server_url(server, false, url, sizeof(url));
    freeReplyObject(server_command(server, "FLUSHALL"));
    for (int i = 0; i < PROGRAMS; i++) {
        (void) fflush(NULL);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            struct crew *crew = calloc(1, sizeof(*crew)); /* threads use it until the end */
            crew_open(crew, url, &many, false, false);
            crew_start(crew);
            until_asked(crew, 1000);
            exit(weir_leave(crew->w) != 0); /* with what a return from main runs */
        }
        int status = 1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
    }
    assert_true(server_sum(server, "weir:*p:*") > 0);
}

static int open_server(void **state)
{
    static struct server server;
    server_start(&server);
    *state = &server;
    return 0;
}

static int close_server(void **state)
{
    server_stop(*state);
    return 0;
}

int main(void)
{
    if (!server_available()) {
        return 77;
    }
    const struct CMUnitTest tests[] = {
        /* First those whose children have threads: with sanitizers the parent must not have had any until then. */
        cmocka_unit_test(test_a_program_ends_while_its_threads_check),
        cmocka_unit_test(test_time_goes_on_when_the_others_die),
        cmocka_unit_test(test_what_was_counted_is_reported_while_threads_check),
        cmocka_unit_test(test_time_goes_on_behind_it),
        cmocka_unit_test(test_without_redis_it_says_so_and_checks_go_on),
        cmocka_unit_test(test_other_processes_go_on),
        cmocka_unit_test(test_units_of_a_grant_are_not_reported),
        cmocka_unit_test(test_the_last_process_that_leaves_reports),
        cmocka_unit_test(test_a_loop_does_not_turn_behind_it),
    };
    return cmocka_run_group_tests_name("tests", tests, open_server, close_server);
}
