/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a shared weir leaves behind: rounds of open, fork, join and close; children that are forked amid checks, or of a
 * parent that closes first; programs that are started amid checks.
 *
 * Guards: src/limiter/join.c, src/limiter/leader.c, src/limiter/weir_open.c, src/limiter/background.c,
 * src/limiter/shared_policies.c, src/limiter/poll_set.c, src/thread/limiter.c, src/base/pages.c,
 * src/transport/redis/socket.c
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "limiter/weir_private.h"
#include "support/support.h"
#include "thread/joined.h"

#define ROUNDS       200
#define WARM_ROUNDS  5 /* what libraries keep is there then: stacks of threads, the heap */
#define THREADS      2
#define FORKS        10
#define HELPERS      20
#define LISTING_SIZE 4096
#define PATIENCE_NS  (60 * SECOND)

/* What the processes tell each other; in memory that they share. */
struct board {
    _Atomic uint64_t allowed, checked, ready, go, stop;
};

static struct board *board;

/* Fails where a child does not end by itself, with status 0. */
static void expect_end(pid_t child)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (real_ns() > until_ns) {
            (void) kill(child, SIGKILL);
        }
        nap_ms(1);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        fail_msg("a child ended with status 0x%x, at step %d", (unsigned) status, WEXITSTATUS(status));
    }
}

static bool wait_until_least(_Atomic uint64_t *word, uint64_t least)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (load_acquire(word) < least && real_ns() < until_ns) {
        nap_ms(1);
    }
    return load_acquire(word) >= least;
}

/* A shared weir with a limit that is not refilled within the test. */
static weir *open_limited(uint64_t limit)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared = true;
    options.max_processes = 8;
    options.max_keys = 1000;
    options.no_thread = SANITIZED; /* a child of a process with threads may start none, under the sanitizers */
    weir *w = open_or_fail(&options);
    const weir_limit one = {.algorithm = WEIR_FIXED_WINDOW, .limit = limit, .period_ns = 300 * 24 * HOUR};
    (void) set_one_policy(w, &one, 1, WEIR_SCOPE_PROCESS);
    memset((void *) board, 0, sizeof(*board));
    return w;
}

/* So many checks of the key "k": returns how many were allowed. */
static uint64_t check_times(weir *w, uint64_t count)
{
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    uint64_t allowed = 0;
    for (uint64_t i = 0; t != NULL && i < count; i++) {
        allowed += weir_check(t, &key, 1, NULL);
    }
    weir_detach(t);
    return allowed;
}

/* What a process has of the system. */
struct holdings {
    size_t mappings, shared_mappings, shared_size, descriptors;
};

static struct holdings holdings_now(void)
{
    struct holdings now = {.descriptors = count_descriptors()};
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        unsigned long from = 0;
        unsigned long to = 0;
        char rights[8] = "";
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3) {
            now.mappings++;
            now.shared_mappings += rights[3] == 's';
            now.shared_size += rights[3] == 's' ? to - from : 0;
        }
    }
    if (maps != NULL) {
        (void) fclose(maps);
    }
    return now;
}

static bool holds_as_much(const struct holdings *now, const struct holdings *before)
{
    /* The sanitizers map memory of their own, which is not shared. */
    return (SANITIZED || now->mappings == before->mappings) && now->shared_mappings == before->shared_mappings &&
           now->shared_size == before->shared_size && now->descriptors == before->descriptors;
}

/* Joins, checks, and closes. What the child has then is what its parent had before weir_open. */
static int child_of_round(weir *w, const struct holdings *before, bool last)
{
    if (weir_join(w, NULL) != 0) {
        return 1;
    }
    const bool allowed = check_times(w, 1) == 1;
    store_release(&board->ready, 1);
    if (last && !wait_until_least(&board->go, 1)) {
        return 2;
    }
    weir_close(w);
    const struct holdings now = holdings_now();
    if (now.shared_mappings != before->shared_mappings || now.shared_size != before->shared_size) {
        return 3;
    }
    if (now.descriptors != before->descriptors) {
        return 4;
    }
    return allowed ? 0 : 5;
}

/* In every other round the parent closes first. */
static void run_round(const struct holdings *before, bool parent_first)
{
    weir *w = open_limited(10);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(child_of_round(w, before, parent_first));
    }
    assert_int_equal(check_times(w, 1), 1);
    if (parent_first) {
        assert_true(wait_until_least(&board->ready, 1));
        weir_close(w);
        store_release(&board->go, 1);
        expect_end(child);
    } else {
        expect_end(child);
        weir_close(w);
    }
}

static void test_rounds_leave_nothing(void **state)
{
    (void) state;
    const size_t threads = count_threads();
    struct holdings before = holdings_now();
    for (int round = 0; round < WARM_ROUNDS + ROUNDS; round++) {
        if (round == WARM_ROUNDS) {
            expect_no_more_threads(threads);
            before = holdings_now();
        }
        run_round(&before, round % 2 == 0);
    }
    expect_no_more_threads(threads);
    const struct holdings now = holdings_now();
    if (!holds_as_much(&now, &before)) {
        fail_msg("mappings %zu, before %zu; shared %zu, %zu; their bytes %zu, %zu; descriptors %zu, %zu", now.mappings,
                 before.mappings, now.shared_mappings, before.shared_mappings, now.shared_size, before.shared_size,
                 now.descriptors, before.descriptors);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child of any kind */
    assert_int_equal(errno, ECHILD);
}

/* Checks until it is told to stop. */
static void *check_on(void *arg)
{
    weir *w = arg;
    while (load_relaxed(&board->stop) == 0) {
        (void) add_relaxed(&board->allowed, check_times(w, 100));
        (void) add_relaxed(&board->checked, 100);
    }
    return NULL;
}

static void *check_a_part(void *arg)
{
    (void) add_relaxed(&board->allowed, check_times(arg, 20000));
    return NULL;
}

static int child_with_threads(weir *w)
{
    pthread_t threads[THREADS];
    if (weir_join(w, NULL) != 0) {
        return 1;
    }
    for (size_t i = 0; i < THREADS; i++) {
        if (pthread_create(&threads[i], NULL, check_a_part, w) != 0) {
            return 2;
        }
    }
    for (size_t i = 0; i < THREADS; i++) {
        (void) pthread_join(threads[i], NULL);
    }
    weir_close(w);
    return 0;
}

/* What is left in the end is what the threads of all of them did not use. */
static void test_children_forked_amid_checks_have_threads_of_their_own(void **state)
{
    (void) state;
    if (SANITIZED) {
        return; /* a child of a process with threads may start none */
    }
    const uint64_t limit = UINT64_C(1000000000000);
    weir *w = open_limited(limit);
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, check_on, w), 0);
    }
    assert_true(wait_until_least(&board->checked, 1000));
    for (int i = 0; i < FORKS; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(child_with_threads(w));
        }
        expect_end(child);
    }
    store_relaxed(&board->stop, 1);
    for (size_t i = 0; i < THREADS; i++) {
        (void) pthread_join(threads[i], NULL);
    }
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    const uint64_t used = load_relaxed(&board->allowed);
    assert_in_range(used, (uint64_t) FORKS * THREADS * 20000, limit - 1);
    assert_false(weir_check(t, &key, limit - used + 1, NULL));
    assert_true(weir_check(t, &key, limit - used, NULL));
    weir_close(w);
}

/* Waits until a joined process does the background work; without a background thread this one polls. */
static bool is_led(weir *w)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    uint32_t leader = JOINED_NONE;
    while (leader == JOINED_NONE && real_ns() < until_ns) {
        nap_ms(1);
        (void) weir_poll(w);
        leader = load_relaxed(&w->shared->leader);
    }
    return leader != JOINED_NONE && load_relaxed(&w->limiter.joined[leader].pid) != 0;
}

static int child_of_daemon(weir *w, uint64_t limit)
{
    weir_stats stats;
    if (!wait_until_least(&board->go, 1) || weir_join(w, NULL) != 0) {
        return 1;
    }
    if (threads_meet(&board->ready, 2) == 0) {
        weir_get_stats(w, &stats);
        if (stats.process_count != 2) {
            return 2;
        }
    }
    (void) add_relaxed(&board->allowed, check_times(w, limit));
    if (!is_led(w)) {
        return 3;
    }
    (void) add_relaxed(&board->checked, 1);
    if (!wait_until_least(&board->checked, 2)) {
        return 4;
    }
    weir_close(w);
    return 0;
}

/* Its children join when it has left: nobody is joined in between. */
static void test_a_parent_need_not_check_and_may_close_before_its_children_join(void **state)
{
    (void) state;
    const uint64_t limit = 50000;
    weir *w = open_limited(limit);
    pid_t children[2];
    for (size_t i = 0; i < 2; i++) {
        children[i] = fork();
        assert_true(children[i] >= 0);
        if (children[i] == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(child_of_daemon(w, limit));
        }
    }
    weir_close(w);
    store_release(&board->go, 1);
    expect_end(children[0]);
    expect_end(children[1]);
    /* A request that was under way when a grant was taken back may be late: one a thread. */
    assert_in_range(load_relaxed(&board->allowed), limit, limit + 2);
}

/* What a helper says of its descriptors; the text is the caller's. */
static void list_descriptors(bool by_vfork, char *text)
{
    static char program[] = "/bin/sh";
    static char option[] = "-c";
    static char command[] = "cd /proc/self/fd && echo *";
    static char *const arguments[] = {program, option, command, NULL};
    static char *const environment[] = {NULL};
    int ends[2];
    pid_t helper = 0;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    if (by_vfork) {
        helper = vfork(); /* NOLINT: what servers do that start helpers */
        if (helper == 0) {
            (void) dup2(ends[1], 1);
            (void) execve(program, arguments, environment);
            _exit(1);
        }
    } else {
        posix_spawn_file_actions_t actions;
        assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
        assert_int_equal(posix_spawn_file_actions_adddup2(&actions, ends[1], 1), 0);
        assert_int_equal(posix_spawn(&helper, program, &actions, NULL, arguments, environment), 0);
        (void) posix_spawn_file_actions_destroy(&actions);
    }
    (void) close(ends[1]);
    size_t length = 0;
    for (ssize_t more = 1; more > 0 && length<LISTING_SIZE - 1; length += more> 0 ? (size_t) more : 0) {
        more = read(ends[0], text + length, LISTING_SIZE - 1 - length);
    }
    text[length] = '\0';
    (void) close(ends[0]);
    expect_end(helper);
}

/* A socket that takes connections and answers nothing, as a Redis that hangs. */
static int listen_silently(char *url, size_t size)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *) &address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *) &address, &length), 0);
    (void) snprintf(url, size, "redis://127.0.0.1:%u", (unsigned) ntohs(address.sin_port));
    return fd;
}

/* A weir that is connected to that socket; `polled`: by the host's loop. */
static weir *open_connected(const char *url, bool polled)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared = true;
    options.max_keys = 1000;
    options.redis_url = url;
    options.redis_timeout_ms = 2000;
    options.no_thread = polled;
    const size_t before = count_descriptors();
    weir *w = open_or_fail(&options);
    if (polled) {
        assert_true(weir_poll_fd(w) >= 0);
    }
    /* A descriptor of the thread, or two of the set, and the connection. */
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (count_descriptors() < before + (polled ? 3 : 2)) {
        assert_true(real_ns() < until_ns);
        nap_ms(1);
        (void) weir_poll(w);
    }
    return w;
}

static void test_programs_started_amid_checks_inherit_nothing_and_disturb_nothing(void **state)
{
    (void) state;
    char before[LISTING_SIZE];
    char now[LISTING_SIZE];
    char url[64];
    const int silent = listen_silently(url, sizeof(url));
    list_descriptors(false, before);
    assert_non_null(strchr(before, '2')); /* 0, 1, 2, and that of the directory */
    const uint64_t limit = UINT64_C(1000000000000);
    weir *w = open_limited(limit);
    weir *connected[2] = {open_connected(url, true), SANITIZED ? NULL : open_connected(url, false)};
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, check_on, w), 0);
    }
    for (int i = 0; i < HELPERS; i++) {
        const uint64_t checked = load_relaxed(&board->checked);
        list_descriptors(i % 2 == 0, now);
        assert_string_equal(now, before);
        assert_true(wait_until_least(&board->checked, checked + 100));
    }
    store_relaxed(&board->stop, 1);
    for (size_t i = 0; i < THREADS; i++) {
        (void) pthread_join(threads[i], NULL);
    }
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_int_equal(stats.process_count, 1);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    assert_false(weir_check(t, &key, limit - load_relaxed(&board->allowed) + 1, NULL));
    assert_true(weir_check(t, &key, limit - load_relaxed(&board->allowed), NULL));
    weir_close(w);
    weir_close(connected[0]);
    weir_close(connected[1]);
    (void) close(silent);
}

int main(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_leave_nothing),
        cmocka_unit_test(test_programs_started_amid_checks_inherit_nothing_and_disturb_nothing),
        cmocka_unit_test(test_children_forked_amid_checks_have_threads_of_their_own),
        cmocka_unit_test(test_a_parent_need_not_check_and_may_close_before_its_children_join),
    };
#ifdef COMPILER_THREAD_SANITIZER
    /* Its sixteen-byte exchange takes a lock of the process, so it is no exchange between two processes. */
    const struct CMUnitTest without_exchanges[] = {tests[1]};
    return cmocka_run_group_tests_name("stress/rounds", without_exchanges, NULL, NULL);
#else
    return cmocka_run_group_tests_name("stress/rounds", tests, NULL, NULL);
#endif
}
