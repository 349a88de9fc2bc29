/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks amid what threads do. A child has the parent's locks and lists as they were at that moment, and none of its
 * threads: it closes its copy of the weir, opens one of its own, and uses it.
 *
 * Guards: src/limiter/weir_open.c, src/limiter/background.c, src/limiter/leader.c, src/thread/handle.c,
 * src/thread/rcu.c
 */
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/atomics.h"
#include "limiter/weir_private.h"
#include "support/support.h"
#include "thread/rcu.h"
#include "thread/rcu_lane.h"

#define FORKS       50
#define READERS     2
#define PATIENCE_NS (30 * SECOND)

static const weir_limit ten = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};

/*
 * A parent whose threads check while it forks. SANITIZED: the sanitizers do not take their own locks for a fork, those
 * of their allocator and of their list of threads. So no other thread allocates or begins then, and a child has none.
 */
struct parent {
    weir *w;
    weir_policy_id policy;
    _Atomic uint32_t stop, reading;
};

static void set_policy(weir *w)
{
    const weir_policy policy = {.name = "p", .limits = &ten, .limit_count = 1};
    (void) weir_set_policies(w, &policy, 1, NULL);
}

static bool stopped(struct parent *parent)
{
    return load_relaxed(&parent->stop) != 0;
}

/* New keys, each of which takes a read section. */
static void *check(void *arg)
{
    struct parent *parent = arg;
    weir_thread *t = weir_attach(parent->w);
    for (uint64_t name = 0; t != NULL && !stopped(parent); name++) {
        const weir_key key = weir_make_key(parent->w, parent->policy, &name, sizeof(name));
        (void) weir_check(t, &key, 1, NULL);
    }
    weir_detach(t);
    return NULL;
}

/* Is in a read section nearly always, as a thread is that was preempted in one. */
static void *linger(void *arg)
{
    struct parent *parent = arg;
    while (!stopped(parent)) {
        const unsigned lane = rcu_enter_lane(&parent->w->limiter);
        store_release(&parent->reading, 1);
        const struct timespec nap = {.tv_nsec = 2000000};
        (void) nanosleep(&nap, NULL);
        rcu_leave_lane(&parent->w->limiter, lane);
    }
    return NULL;
}

/* Waits for the end of read sections nearly always. */
static void *reload(void *arg)
{
    struct parent *parent = arg;
    while (!stopped(parent)) {
        set_policy(parent->w);
    }
    return NULL;
}

/* Its handle is given back when the thread ends. */
static void *attach_once(void *arg)
{
    struct parent *parent = arg;
    (void) weir_attach(parent->w);
    return arg;
}

/* Threads that attach, and end. */
static void *come_and_go(void *arg)
{
    struct parent *parent = arg;
    while (!stopped(parent)) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, attach_once, parent) == 0) {
            (void) pthread_join(thread, NULL);
        }
        const struct timespec nap = {.tv_nsec = 100000}; /* the children need the machine as well */
        (void) nanosleep(&nap, NULL);
    }
    return NULL;
}

/* Fails where a child does not end by itself, with status 0. */
static void expect_good(pid_t child)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(child, &status, WNOHANG)) == 0) {
        if (real_ns() > until_ns) {
            (void) kill(child, SIGKILL);
            (void) waitpid(child, &status, 0);
            fail_msg("the child hangs");
        }
        const struct timespec nap = {.tv_nsec = 1000000};
        (void) nanosleep(&nap, NULL);
    }
    assert_int_equal(ended, child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* What a worker does after the fork; 0, or which step failed. */
static int serve(weir *parents)
{
    weir_close(parents);
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = 2;
    options.no_thread = SANITIZED;
    weir *w = NULL;
    if (weir_open(&options, &w, NULL) != 0) {
        return 1;
    }
    for (int time = 0; time < 2; time++) {
        const weir_policy policy = {.name = "p", .limits = &ten, .limit_count = 1};
        if (weir_set_policies(w, &policy, 1, NULL) != 0) {
            return 2;
        }
    }
    weir_thread *t = weir_attach(w);
    if (t == NULL) {
        return 3;
    }
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    if (!weir_check(t, &key, 10, NULL) || weir_check(t, &key, 1, NULL)) {
        return 4;
    }
    sigset_t blocked;
    if (pthread_sigmask(SIG_SETMASK, NULL, &blocked) != 0 || sigismember(&blocked, SIGTERM) != 0) {
        return 5;
    }
    weir_close(w);
    return 0;
}

static void test_a_child_serves_with_a_weir_of_its_own(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 10000;
    options.no_thread = SANITIZED; /* it allocates, too */
    static struct parent parent;   /* of its threads, also where the test fails */
    parent = (struct parent){.w = open_or_fail(&options)};
    set_policy(parent.w);
    parent.policy = weir_find_policy(parent.w, "p");
    void *(*const runs[])(void *) = {check, linger, reload, come_and_go};
    const size_t count = SANITIZED ? 2 : sizeof(runs) / sizeof(runs[0]);
    pthread_t threads[sizeof(runs) / sizeof(runs[0])];
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, runs[i], &parent), 0);
    }
    while (load_acquire(&parent.reading) == 0) {
    }
    for (int i = 0; i < FORKS; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            _exit(serve(parent.w));
        }
        expect_good(child);
    }
    sigset_t blocked;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &blocked), 0);
    assert_int_equal(sigismember(&blocked, SIGTERM), 0);
    store_relaxed(&parent.stop, 1);
    for (size_t i = 0; i < count; i++) {
        (void) pthread_join(threads[i], NULL);
    }
    weir_close(parent.w);
}

/* A thread of the parent that waits for a Redis which does not answer. */
static void *wait_for_sync(void *arg)
{
    struct parent *parent = arg;
    while (!stopped(parent)) {
        (void) weir_sync(parent->w, 20);
    }
    return NULL;
}

static void test_a_child_closes_its_copy_while_the_parent_waits_for_a_sync(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.redis_url = "redis://127.0.0.1:1";
    options.redis_timeout_ms = 10;
    static struct parent parent; /* of its threads, also where the test fails */
    parent = (struct parent){.w = open_or_fail(&options)};
    pthread_t threads[READERS];
    for (size_t i = 0; i < READERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for_sync, &parent), 0);
    }
    for (int i = 0; i < 3 * FORKS; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            weir_close(parent.w);
            _exit(0);
        }
        expect_good(child);
    }
    store_relaxed(&parent.stop, 1);
    for (size_t i = 0; i < READERS; i++) {
        (void) pthread_join(threads[i], NULL);
    }
    weir_close(parent.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_child_serves_with_a_weir_of_its_own),
        cmocka_unit_test(test_a_child_closes_its_copy_while_the_parent_waits_for_a_sync),
    };
    const struct CMUnitTest sanitized[] = {tests[0]};
    return SANITIZED ? cmocka_run_group_tests_name("stress/forks", sanitized, NULL, NULL)
                     : cmocka_run_group_tests_name("stress/forks", tests, NULL, NULL);
}
