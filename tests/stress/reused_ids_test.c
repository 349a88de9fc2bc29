/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The process that opened a weir has ended, as a daemon's first process does, and a descendant gets its id: that is no
 * process which has joined. In a PID namespace, where a test may say which id is next. And ids of another namespace say
 * nothing at all.
 *
 * Guards: src/thread/fork_mark.c, src/thread/joined.c, src/limiter/join.c, src/limiter/weir_open.c, src/thread/thread.c
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "support/independent.h"
#include "support/support.h"

#define LIMIT    5
#define NOT_HERE 77 /* the system does not let a test choose ids */
#define GIVES_UP 78

/* What the processes tell each other, in memory that they share. */
struct board {
    _Atomic uint64_t go, beside, done, result;
};

static struct board *board;

/* What a process with the opener's id does with a weir of its parent's: 0, or the step that failed. */
typedef int (*scenario)(weir *w, weir_thread *parents);

static int join_with_the_id(weir *w, weir_thread *parents)
{
    (void) parents;
    if (weir_join(w, NULL) != 0) {
        return 1;
    }
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    weir_stats stats;
    weir_get_stats(w, &stats);
    if (t == NULL || !weir_check(t, &key, LIMIT, NULL) || weir_check(t, &key, 1, NULL) || stats.process_count != 2) {
        return 2;
    }
    if (weir_join(w, NULL) == 0) {
        return 3;
    }
    weir_close(w);
    return 0;
}

static int close_with_the_id(weir *w, weir_thread *parents)
{
    weir_detach(parents);
    weir_close(w);
    return 0;
}

/* A worker that has the opener's place when the one with the opener's id comes. It stays as it is. */
static int be_beside(weir *w)
{
    weir_stats stats = {.process_count = 1, .thread_count = 1};
    const bool joined = weir_join(w, NULL) == 0; /* else the weir is not shared */
    const bool attached = !joined || weir_attach(w) != NULL;
    store_release(&board->beside, 1);
    const bool done = wait_for_word(&board->done, 1);
    if (joined) {
        weir_get_stats(w, &stats);
    }
    weir_close(w);
    return attached && done && stats.process_count == 1 && stats.thread_count == 1 ? 0 : 4;
}

/* Makes the id the next one of this namespace. */
static bool choose_next(pid_t id)
{
    char text[16];
    const int length = snprintf(text, sizeof(text), "%d", (int) id - 1);
    const int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    const bool chosen = fd >= 0 && write(fd, text, (size_t) length) == length;
    if (fd >= 0) {
        (void) close(fd);
    }
    return chosen;
}

static uint64_t result_of(pid_t process)
{
    int status = 0;
    return waitpid(process, &status, 0) == process && WIFEXITED(status) ? (uint64_t) WEXITSTATUS(status) : GIVES_UP;
}

/* The daemon's second process: forks workers when the first one has ended. */
static void serve(weir *w, weir_thread *parents, pid_t first, scenario run)
{
    if (!wait_for_word(&board->go, 1)) {
        _exit(GIVES_UP);
    }
    const pid_t neighbour = fork();
    if (neighbour == 0) {
        _exit(be_beside(w));
    }
    (void) wait_for_word(&board->beside, 1);
    const pid_t worker = choose_next(first) ? fork() : first;
    if (worker == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getpid() == first ? run(w, parents) : NOT_HERE);
    }
    const uint64_t result = worker == first ? result_of(worker) : NOT_HERE;
    store_release(&board->done, 1);
    const uint64_t beside = result_of(neighbour);
    store_relaxed(&board->result, result != 0 ? result : beside);
    _exit(0);
}

/* The daemon's first process. */
static void open_and_end(bool shared, scenario run)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared = shared;
    options.max_keys = 1000;
    options.no_thread = SANITIZED; /* a child of a process with threads may start none, under the sanitizers */
    weir *w = open_or_fail(&options);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 300 * 24 * HOUR};
    (void) set_one_policy(w, &limit, 1, WEIR_SCOPE_PROCESS);
    weir_thread *t = weir_attach(w);
    const pid_t first = getpid();
    if (fork() == 0) {
        serve(w, t, first, run);
    }
    weir_close(w);
    _exit(0);
}

struct daemon {
    bool shared;
    scenario run;
};

/* The namespace's first process, which waits for all others. */
static int run_namespace(const struct daemon *daemon)
{
    const pid_t first = fork();
    if (first == 0) {
        open_and_end(daemon->shared, daemon->run);
    }
    int status = 0;
    if (waitpid(first, &status, 0) != first || status != 0) {
        return GIVES_UP;
    }
    store_release(&board->go, 1);
    while (wait(NULL) > 0) {
    }
    return (int) load_relaxed(&board->result);
}

static int make_namespace(void *arg)
{
    const struct daemon *daemon = arg;
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        return NOT_HERE;
    }
    const pid_t init = fork();
    if (init == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(run_namespace(daemon));
    }
    int status = 0;
    (void) waitpid(init, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : GIVES_UP;
}

static void run_daemon(bool shared, scenario run)
{
    struct daemon daemon = {shared, run};
    int status = 0;
    memset((void *) board, 0, sizeof(*board));
    store_relaxed(&board->result, NOT_HERE); /* where no worker gets the id */
    const pid_t process = start_independent(make_namespace, &daemon);
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NOT_HERE) {
        print_message("# no process gets an id of the test's choice here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_a_worker_with_the_id_of_the_opener_joins(void **state)
{
    (void) state;
    run_daemon(true, join_with_the_id);
}

static void test_a_child_with_the_id_of_the_opener_closes_its_copy_alone(void **state)
{
    (void) state;
    run_daemon(true, close_with_the_id);
    run_daemon(false, close_with_the_id);
}

/* Joins in a PID namespace of its own, where ids of the others mean nothing. */
static int join_elsewhere(void *arg)
{
    weir_error error = {.code = 0};
    if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0) {
        return NOT_HERE;
    }
    const pid_t child = fork();
    if (child == 0) {
        const bool refused = weir_join(arg, &error) == -EXDEV && strstr(error.message, "PID namespace") != NULL;
        weir_close(arg);
        _exit(refused ? 0 : 1);
    }
    return (int) result_of(child);
}

static void test_a_child_in_another_pid_namespace_does_not_join(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared = true;
    options.max_keys = 1000;
    options.no_thread = SANITIZED;
    weir *w = open_or_fail(&options);
    int status = 0;
    const pid_t process = start_independent(join_elsewhere, w);
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_true(WIFEXITED(status));
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_int_equal(stats.process_count, 1);
    weir_close(w);
    if (WEXITSTATUS(status) == NOT_HERE) {
        print_message("# no PID namespace is to be had here\n");
        skip();
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_with_the_id_of_the_opener_joins),
        cmocka_unit_test(test_a_child_with_the_id_of_the_opener_closes_its_copy_alone),
        cmocka_unit_test(test_a_child_in_another_pid_namespace_does_not_join),
    };
    return cmocka_run_group_tests_name("stress/reused_ids", tests, NULL, NULL);
}
