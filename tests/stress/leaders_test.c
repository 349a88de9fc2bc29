/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who leads after a leader that died, and what a leader keeps that stands still in its work. Nobody has a background
 * thread here: a process works when it polls.
 *
 * Guards: src/limiter/leader.c, src/thread/repair.c
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "limiter/weir_private.h"
#include "support/independent.h"
#include "support/support.h"
#include "thread/repair.h"

/* What the processes tell each other, in memory that they share. */
struct board {
    _Atomic uint64_t ready;
};

static struct board *board;

static weir *open_polled(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared = true;
    options.max_keys = 1000;
    options.max_processes = 4;
    options.no_thread = true;
    memset((void *) board, 0, sizeof(*board));
    return open_or_fail(&options);
}

static int lead(void *arg)
{
    weir *w = arg;
    if (weir_join(w, NULL) != 0) {
        return 1;
    }
    for (;;) {
        (void) weir_poll(w);
        if (load_relaxed(&w->shared->leader) == w->limiter.joined_as) {
            store_release(&board->ready, 1);
        }
        nap_ms(1);
    }
}

/* A process that leads no more frees the dead leader's place, as one does whose call waits for a lock. */
static void test_a_dead_leader_is_replaced_at_once_though_its_place_is_free(void **state)
{
    (void) state;
    weir *w = open_polled();
    const pid_t leader = start_independent(lead, w);
    assert_true(wait_for_word(&board->ready, 1));
    (void) robust_mutex_lock(&w->limiter.process, &w->shared->work_lock); /* so it does not die with the lock */
    store_relaxed(&w->shared->worked_ns, real_ns() + HOUR);               /* and is replaced for its death alone */
    kill_independent(leader);
    robust_mutex_unlock(&w->shared->work_lock);
    repair_all(&w->limiter);
    assert_int_equal(load_relaxed(&w->limiter.shared->joined_count), 1);
    (void) weir_poll(w);
    assert_int_equal(load_relaxed(&w->shared->leader), w->limiter.joined_as);
    weir_close(w);
}

static int stand_still(void *arg)
{
    weir *w = arg;
    if (weir_join(w, NULL) != 0 || robust_mutex_lock(&w->limiter.process, &w->shared->work_lock) != ROBUST_TAKEN) {
        return 1;
    }
    store_release(&board->ready, 1);
    for (;;) {
        (void) pause();
    }
}

static int join_and_close(void *arg)
{
    const int joined = weir_join(arg, NULL);
    weir_close(arg);
    return joined == 0 ? 0 : 1;
}

static void test_a_process_closes_while_the_leader_stands_still_in_its_work(void **state)
{
    (void) state;
    weir *w = open_polled();
    const pid_t still = start_independent(stand_still, w);
    assert_true(wait_for_word(&board->ready, 1));
    expect_end(start_independent(join_and_close, w));
    kill_independent(still);
    weir_close(w);
}

int main(void)
{
#ifdef EMULATED
    (void) puts("1..0 # SKIP an emulator forks the locks of its own threads with the guest");
    return 0;
#endif
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_dead_leader_is_replaced_at_once_though_its_place_is_free),
        cmocka_unit_test(test_a_process_closes_while_the_leader_stands_still_in_its_work),
    };
#ifdef COMPILER_THREAD_SANITIZER
    /* To ThreadSanitizer a pthread_mutex_timedlock that tells of a dead owner has taken nothing. */
    const struct CMUnitTest without_death[] = {tests[0]};
    return cmocka_run_group_tests_name("stress/leaders", without_death, NULL, NULL);
#else
    return cmocka_run_group_tests_name("stress/leaders", tests, NULL, NULL);
#endif
}
