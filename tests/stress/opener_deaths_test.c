/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An opener of a named weir finds that all joined processes are dead, salvages alone, and is itself killed: after each
 * change of what says who is joined, and what a thread had. Whoever comes next, another opener or a forked child that
 * joins, goes on with what keys have used.
 *
 * Guards: src/thread/limiter_salvage.c, src/thread/joined.c, src/named/named.c, src/limiter/join.c
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "limiter/set_policies.h"
#include "limiter/weir_private.h"
#include "support/independent.h"
#include "support/single_step.h"
#include "support/support.h"
#include "support/watch.h"

#define PROCESSES 2
#define LIMIT     100
#define USED      7

/* By these signals an opener tells what is not to be stepped through. */
#define STEPS_NO_MORE SIGUSR1
#define STEPS_AGAIN   SIGUSR2

/* What the processes tell each other, in memory that they share. */
struct board {
    _Atomic uint64_t opened, die, join, joined;
};

static struct board *board;
static struct watch watch;
static char name[SEGMENT_NAME_SIZE];
static bool fleet; /* there is one to report to */
static bool stops; /* this process, when it is about to be alone with the table */

/* Where the parts that are watched lie in the segment, and their sizes. */
static struct part {
    size_t offset, size;
} parts[5];

static const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 300 * 24 * HOUR};

static weir_options some_options(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared_name = name;
    options.max_keys = 1000;
    options.max_threads = 2;
    options.max_processes = PROCESSES + 1;
    options.max_log_units = 1000;
    options.no_thread = true;
    if (fleet) {
        options.redis_url = "redis://127.0.0.1:1"; /* nobody is there */
        options.redis_timeout_ms = 10;
        options.prefix = "deaths";
    }
    return options;
}

/* What is left of the key "k" when so much was asked for; LIMIT + 1: no answer. */
static uint64_t ask(weir *w, uint32_t cost)
{
    weir_verdict verdict = {.remaining = LIMIT + 1};
    weir_thread *t = weir_attach(w);
    if (t != NULL) {
        const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
        (void) (cost != 0 ? weir_check(t, &key, cost, &verdict) : weir_peek(t, &key, 1, &verdict));
        weir_detach(t);
    }
    return verdict.remaining;
}

/* Opens, and is killed. The first one checks, and has forked a child that joins when all others have died. */
static int be_killed(void *arg)
{
    const bool first = arg != NULL;
    const weir_options options = some_options();
    weir *w = open_named_policy(name, &options, &limit);
    if (w == NULL) {
        return 1;
    }
    if (first) {
        if (ask(w, USED) != LIMIT - USED) {
            return 2;
        }
        if (fork() == 0) {
            (void) prctl(PR_SET_PDEATHSIG, 0);
            const bool told = wait_for_word(&board->join, 1);
            if (told && weir_join(w, NULL) == 0 && ask(w, 0) == LIMIT - USED &&
                (!fleet || strcmp(w->fleet->prefix, "deaths") == 0)) {
                store_release(&board->joined, 1);
            }
            weir_close(w);
            _exit(0);
        }
    }
    (void) add_relaxed(&board->opened, 1);
    for (;;) {
        (void) pause();
    }
}

/* Names that the linker gives. */
void __real_limiter_salvage_begin(struct limiter *limiter);
void __wrap_limiter_salvage_begin(struct limiter *limiter);

/* An opener stops where it has found that all others are dead. */
void __wrap_limiter_salvage_begin(struct limiter *limiter)
{
    if (stops) {
        (void) raise(SIGSTOP);
    }
    __real_limiter_salvage_begin(limiter);
}

/* Nothing that is watched changes in these, and to step through them takes most of the time. */
static void step(bool again)
{
    if (stops) {
        (void) raise(again ? STEPS_AGAIN : STEPS_NO_MORE);
    }
}

void __real_process_salvage(struct process *process, const struct policy_set *set, uint64_t now_ns,
                            uint64_t monotonic_ns);
void __wrap_process_salvage(struct process *process, const struct policy_set *set, uint64_t now_ns,
                            uint64_t monotonic_ns);

void __wrap_process_salvage(struct process *process, const struct policy_set *set, uint64_t now_ns,
                            uint64_t monotonic_ns)
{
    step(false);
    __real_process_salvage(process, set, now_ns, monotonic_ns);
    step(true);
}

void __real_process_salvage_held(struct process *process);
void __wrap_process_salvage_held(struct process *process);

void __wrap_process_salvage_held(struct process *process)
{
    step(false);
    __real_process_salvage_held(process);
    step(true);
}

int __real_policies_salvage(weir *w, weir_error *error);
int __wrap_policies_salvage(weir *w, weir_error *error);

int __wrap_policies_salvage(weir *w, weir_error *error)
{
    step(false);
    const int result = __real_policies_salvage(w, error);
    step(true);
    return result;
}

void __real_limiter_clear_thread(const struct limiter *limiter, uint32_t index);
void __wrap_limiter_clear_thread(const struct limiter *limiter, uint32_t index);

void __wrap_limiter_clear_thread(const struct limiter *limiter, uint32_t index)
{
    step(false);
    __real_limiter_clear_thread(limiter, index);
    step(true);
}

static int open_alone(void)
{
    const weir_options options = some_options();
    weir *w = NULL;
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        return 1;
    }
    stops = true;
    (void) weir_open(&options, &w, NULL);
    (void) raise(SIGSTOP);
    return 2;
}

static int go_on(void *arg)
{
    (void) arg;
    const weir_options options = some_options();
    weir *w = open_named_policy(name, &options, &limit);
    const bool good = w != NULL && ask(w, 0) == LIMIT - USED;
    weir_stats stats = {.process_count = 0};
    if (w != NULL) {
        weir_get_stats(w, &stats);
    }
    weir_close(w);
    return good && stats.process_count == 1 ? 0 : 1;
}

static void note_part(size_t i, const weir *w, const void *at, size_t size)
{
    parts[i] = (struct part){(size_t) ((const unsigned char *) at - w->named.segment.at), size};
}

/* The layout is the same in every segment of these options. */
static void find_parts(void)
{
    const weir_options options = some_options();
    weir *w = open_named(name, &options);
    const struct limiter *limiter = &w->limiter;
    note_part(0, w, limiter->joined, PROCESSES * sizeof(*limiter->joined));
    note_part(1, w, &limiter->process.shared->halted_by, sizeof(limiter->process.shared->halted_by));
    note_part(2, w, &limiter->shared->repairing, sizeof(limiter->shared->repairing));
    note_part(3, w, &limiter->shared->rcu.lock, sizeof(limiter->shared->rcu.lock));
    note_part(4, w, limiter->threads[0].shared, sizeof(*limiter->threads[0].shared));
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

/* This process's own view of the segment: it has opened no weir. */
static const unsigned char *look_into(size_t *size)
{
    *size = (size_t) segment_size(name);
    const int fd = shm_open(name, O_RDONLY, 0);
    const unsigned char *at = mmap(NULL, *size, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    (void) close(fd);
    watch_clear(&watch);
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        watch_add(&watch, at + parts[i].offset, parts[i].size);
    }
    return at;
}

/* Lets an opener go on up to its change of that number, and kills it. False: it had opened before. */
static bool kill_opener_at(unsigned change)
{
    size_t size = 0;
    int status = 0;
    const pid_t opener = fork();
    assert_true(opener >= 0);
    if (opener == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(open_alone());
    }
    assert_int_equal(waitpid(opener, &status, 0), opener);
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    const unsigned char *at = look_into(&size);
    unsigned changes = 0;
    bool opens = true;
    while (opens && changes < change) {
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, opener, NULL, NULL), 0);
        assert_int_equal(waitpid(opener, &status, 0), opener);
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) == STEPS_NO_MORE) {
            assert_int_equal(ptrace(PTRACE_CONT, opener, NULL, NULL), 0);
            assert_int_equal(waitpid(opener, &status, 0), opener);
            assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == STEPS_AGAIN);
            continue;
        }
        opens = WSTOPSIG(status) == SIGTRAP;
        changes += watch_changed(&watch);
    }
    kill_independent(opener);
    (void) munmap((void *) (uintptr_t) at, size);
    return changes == change;
}

/* False: the opener makes fewer changes. */
static bool try_change(unsigned change, bool by_child)
{
    pid_t processes[PROCESSES];
    memset((void *) board, 0, sizeof(*board));
    for (size_t i = 0; i < PROCESSES; i++) {
        processes[i] = start_independent(be_killed, i == 0 ? &processes : NULL);
        assert_true(wait_for_word(&board->opened, i + 1));
    }
    for (size_t i = 0; i < PROCESSES; i++) {
        kill_independent(processes[i]);
    }
    const bool killed = kill_opener_at(change);
    if (by_child) {
        store_release(&board->join, 1);
        if (!wait_for_word(&board->joined, 1)) {
            fail_msg("a child does not join after change %u of an opener that was killed", change);
        }
    } else {
        expect_end(start_independent(go_on, NULL));
    }
    store_release(&board->join, 1);
    assert_true(wait_for_word(&board->joined, 1));
    assert_int_equal(weir_unlink(name), 0);
    return killed;
}

static void try_all(bool by_child)
{
    unsigned change = 0;      /* it has found that it is alone, and no more */
    (void) weir_unlink(name); /* which the other test leaves when it fails */
    fleet = by_child;
    find_parts();
    while (try_change(change, by_child)) {
        change++;
    }
    print_message("# %u changes\n", change - 1);
    assert_true(change > 2 * PROCESSES); /* it salvages, and enters */
}

static void test_an_opener_that_salvages_alone_may_die_at_any_change(void **state)
{
    (void) state;
    try_all(false);
}

static void test_a_child_joins_whatever_an_opener_left_that_died(void **state)
{
    (void) state;
    try_all(true);
}

int main(void)
{
    if (SANITIZED || !can_step()) {
        (void) puts(SANITIZED ? "1..0 # SKIP a sanitizer's code is not single-stepped"
                              : "1..0 # SKIP no process can be single-stepped here");
        return 0;
    }
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    segment_name(name, "opener");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_opener_that_salvages_alone_may_die_at_any_change),
        cmocka_unit_test(test_a_child_joins_whatever_an_opener_left_that_died),
    };
    const int failed = cmocka_run_group_tests_name("stress/opener_deaths", tests, NULL, NULL);
    (void) weir_unlink(name);
    return failed;
}
