/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that open one name share one weir: its limits are exact, and what keys have used outlives all of them.
 *
 * Guards: src/named/named.c, src/named/segment_header.c, src/base/memory/segment.c, src/algorithm/rate_table.c,
 * src/limiter/weir_parts.c, src/limiter/weir_open.c, src/thread/repair.c, src/process/mend.c,
 * src/process/robust_mutex.c
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "base/numbers.h"
#include "support/independent.h"
#include "support/support.h"

#define PROCESSES  8
#define THREADS    2
#define LIMIT_MOST 2000000
#define LONG_NS    (300 * 24 * HOUR) /* a limit that is not refilled within the test */

/* What the processes tell each other; in memory that they share. */
struct board {
    _Atomic uint64_t ready, allowed, failed, done;
};

static struct board *board;
static char name[SEGMENT_NAME_SIZE];

static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET, WEIR_SLIDING_LOG,
                                            WEIR_LEAKY_BUCKET};

#define ALGORITHMS (sizeof(algorithms) / sizeof(algorithms[0]))

static weir_limit long_limit(weir_algorithm algorithm, uint64_t limit)
{
    weir_limit one = {.algorithm = algorithm, .limit = limit, .period_ns = LONG_NS};
    one.delay = algorithm == WEIR_LEAKY_BUCKET ? limit : 0; /* the whole burst passes at once */
    return one;
}

/* A race of all threads of all processes for the key "k" of the policy "p". */
struct race {
    weir_limit limit;
    uint64_t requests; /* in all: each thread makes its part */
    uint64_t cost;
};

struct racer {
    const struct race *race;
    weir *w;
};

static void *race_thread(void *arg)
{
    const struct racer *racer = arg;
    weir_thread *t = weir_attach(racer->w);
    const weir_key key = weir_make_key(racer->w, weir_find_policy(racer->w, "p"), "k", 1);
    const uint64_t threads = PROCESSES * THREADS;
    const uint64_t number = threads_meet(&board->ready, threads);
    const uint64_t mine = racer->race->requests / threads + (number < racer->race->requests % threads);
    uint64_t allowed = 0;
    for (uint64_t i = 0; i < mine; i++) {
        allowed += weir_check(t, &key, (uint32_t) racer->race->cost, NULL);
    }
    (void) add_relaxed(&board->allowed, allowed * racer->race->cost);
    weir_detach(t);
    return NULL;
}

/* Each process sets the policies, as each worker of a server does that reads one file. */
static int race_process(void *arg)
{
    struct racer racer = {.race = arg};
    pthread_t threads[THREADS];
    racer.w = open_named_policy(name, NULL, &racer.race->limit);
    for (size_t i = 0; i < THREADS && racer.w != NULL; i++) {
        if (pthread_create(&threads[i], NULL, race_thread, &racer) != 0) {
            return 2;
        }
    }
    for (size_t i = 0; i < THREADS && racer.w != NULL; i++) {
        (void) pthread_join(threads[i], NULL);
    }
    weir_close(racer.w);
    return racer.w != NULL ? 0 : 1;
}

static uint64_t run_race(const struct race *race)
{
    pid_t processes[PROCESSES];
    memset((void *) board, 0, sizeof(*board));
    for (size_t i = 0; i < PROCESSES; i++) {
        processes[i] = start_independent(race_process, (void *) (uintptr_t) race);
    }
    for (size_t i = 0; i < PROCESSES; i++) {
        expect_end(processes[i]);
    }
    assert_int_equal(weir_unlink(name), 0);
    return load_relaxed(&board->allowed);
}

#define DRAWS     30
#define COST_MOST 5

static void test_drawn_limits_hold_for_processes_that_open_one_name(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (uint64_t i = 0; i < DRAWS; i++) {
        const weir_algorithm algorithm = algorithms[i % ALGORITHMS];
        const uint64_t most = algorithm == WEIR_SLIDING_LOG ? WEIR_MAX_LOG_UNITS : LIMIT_MOST;
        const uint64_t cost = 1 + random_below(&rng, COST_MOST);
        const uint64_t limit = i < ALGORITHMS ? most : max_u64(draw_magnitude(&rng, 1, most) / cost, 1) * cost;
        const bool exact = random_below(&rng, 2) == 0;
        const struct race race = {.limit = long_limit(algorithm, limit),
                                  .requests = exact ? limit : 2 * limit + 200,
                                  .cost = limit % cost == 0 ? cost : 1};
        const uint64_t allowed = run_race(&race);
        /* A request that was under way when a grant was taken back may be late: one a thread. */
        if (allowed < limit || allowed > limit + PROCESSES * THREADS * cost) {
            fail_msg("algorithm %d, limit %llu, cost %llu: %llu admitted", (int) algorithm, (unsigned long long) limit,
                     (unsigned long long) cost, (unsigned long long) allowed);
        }
    }
}

/* Checks one key until the process is killed, or until it was denied for some ticks. */
static int load_process(void *arg)
{
    const weir_limit *limit = arg;
    weir *w = open_named_policy(name, NULL, limit);
    weir_thread *t = w != NULL ? weir_attach(w) : NULL;
    if (t == NULL) {
        (void) add_relaxed(&board->failed, 1);
        return 1;
    }
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    (void) add_relaxed(&board->ready, 1);
    for (uint64_t denied = 0; denied < 20;) {
        if (weir_check(t, &key, 1, NULL)) {
            (void) add_relaxed(&board->allowed, 1);
            denied = 0;
        } else {
            denied++;
            nap_ms(1);
        }
    }
    weir_close(w);
    return 0;
}

#define LIVES 12

static void test_usage_is_kept_when_all_processes_are_killed(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t a = 0; a < ALGORITHMS; a++) {
        const uint64_t most = algorithms[a] == WEIR_SLIDING_LOG ? WEIR_MAX_LOG_UNITS : 1000000;
        const weir_limit limit = long_limit(algorithms[a], most);
        memset((void *) board, 0, sizeof(*board));
        for (int life = 0; life < LIVES; life++) {
            pid_t processes[PROCESSES];
            store_relaxed(&board->ready, 0);
            for (size_t i = 0; i < PROCESSES; i++) {
                processes[i] = start_independent(load_process, (void *) (uintptr_t) &limit);
            }
            assert_true(
                wait_for_word(&board->ready, life == LIVES - 1 ? PROCESSES : random_below(&rng, PROCESSES + 1)));
            if (life != LIVES - 1) {
                nap_ms((long) random_below(&rng, 5));
            }
            for (size_t i = 0; i < PROCESSES; i++) {
                life == LIVES - 1 ? expect_end(processes[i]) : kill_independent(processes[i]);
            }
        }
        assert_int_equal(load_relaxed(&board->failed), 0);
        const uint64_t allowed = load_relaxed(&board->allowed);
        /* Of each killed process one request may have been decided, and not counted here. */
        if (allowed > most + PROCESSES || allowed + (uint64_t) LIVES * PROCESSES < most) {
            fail_msg("algorithm %d: %llu of %llu admitted", (int) algorithms[a], (unsigned long long) allowed,
                     (unsigned long long) most);
        }
        assert_int_equal(weir_unlink(name), 0);
    }
}

/* Denials that may come after a key's time: they are a millisecond apart, and go by ticks that may be late. */
#define LATE_MOST 500

/* A denied key and when it may pass, as a process saw it. */
struct denial {
    weir_limit limit;
    bool dies;
};

static int deny_process(void *arg)
{
    const struct denial *denial = arg;
    weir *w = open_named_policy(name, NULL, &denial->limit);
    weir_thread *t = w != NULL ? weir_attach(w) : NULL;
    weir_verdict verdict;
    if (t == NULL) {
        return 1;
    }
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    /* A denial's time is of the last tick, which is late where the process did not run: so not the first denial's. */
    uint64_t until_ns = UINT64_MAX;
    for (int denials = 0; denials < 20;) {
        (void) (SANITIZED ? weir_poll(w) : 0);
        const uint64_t asked_ns = real_ns();
        const bool passed = weir_check(t, &key, 1, &verdict);
        until_ns = passed ? UINT64_MAX : min_u64(until_ns, asked_ns + verdict.retry_after_ns);
        denials = passed ? 0 : denials + 1;
        nap_ms(passed ? 0 : 1);
    }
    store_relaxed(&board->done, until_ns);
    if (denial->dies) {
        (void) kill(getpid(), SIGKILL);
    }
    weir_close(w);
    return 0;
}

static void test_a_denied_key_stays_denied_until_its_time_after_a_restart(void **state)
{
    (void) state;
    for (size_t i = 0; i < 2 * ALGORITHMS; i++) {
        struct denial denial = {.limit = {.algorithm = algorithms[i / 2], .limit = 4, .period_ns = 2 * SECOND},
                                .dies = i % 2 != 0};
        const pid_t process = start_independent(deny_process, &denial);
        if (denial.dies) {
            int status = 0;
            assert_int_equal(waitpid(process, &status, 0), process);
            assert_true(WIFSIGNALED(status));
        } else {
            expect_end(process);
        }
        const uint64_t until_ns = load_relaxed(&board->done);
        weir *w = open_named_policy(name, NULL, &denial.limit);
        assert_non_null(w);
        weir_thread *t = weir_attach(w);
        const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
        unsigned late = 0; /* denials after its time */
        uint64_t asked_ns = 0;
        for (bool passed = false; !passed && late <= LATE_MOST; nap_ms(1)) {
            (void) (SANITIZED ? weir_poll(w) : 0);
            asked_ns = real_ns();
            passed = weir_check(t, &key, 1, NULL);
            late += !passed && asked_ns > until_ns;
        }
        const uint64_t passed_ns = real_ns();
        if (passed_ns + 200 * MILLISECOND < until_ns || late > LATE_MOST) {
            fail_msg("algorithm %d passed %lld ms late, after %u denials", (int) algorithms[i / 2],
                     ((long long) asked_ns - (long long) until_ns) / (long long) MILLISECOND, late);
        }
        weir_close(w);
        assert_int_equal(weir_unlink(name), 0);
    }
}

static int set_rate(void *arg)
{
    weir *w = open_named_policy(name, NULL, arg);
    weir_close(w);
    return w != NULL ? 0 : 1;
}

/* Charges a bucket by a rule that another process has made, at other addresses. */
static int charge_bucket(void *arg)
{
    (void) arg;
    weir_options options = WEIR_OPTIONS_INIT;
    weir_verdict verdict;
    weir *w = NULL;
    options.shared_name = name;
    options.no_thread = SANITIZED;
    if (weir_open(&options, &w, NULL) != 0) {
        return 1;
    }
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    (void) weir_check(t, &key, 10, &verdict);
    store_relaxed(&board->allowed, verdict.remaining);
    weir_close(w);
    return 0;
}

/* The same in one weir that is not shared: what remains after each step. */
static void rates_alone(const weir_limit *limits, size_t count, uint64_t *remaining)
{
    weir *w = open_or_fail(NULL);
    weir_thread *t = weir_attach(w);
    for (size_t i = 0; i < count; i++) {
        weir_verdict verdict;
        const weir_policy_id id = set_one_policy(w, &limits[i], 1, WEIR_SCOPE_PROCESS);
        const weir_key key = weir_make_key(w, id, "k", 1);
        (void) weir_check(t, &key, 10, &verdict);
        remaining[i] = verdict.remaining;
    }
    weir_close(w);
}

static void test_rates_of_buckets_are_the_same_at_other_addresses(void **state)
{
    (void) state;
    enum { STEPS = 6 };
    weir_limit limits[STEPS];
    uint64_t expected[STEPS];
    for (size_t i = 0; i < STEPS; i++) {
        limits[i] = (weir_limit){
            .algorithm = WEIR_TOKEN_BUCKET, .limit = 100 + 37 * i, .period_ns = 24 * HOUR, .burst = 1000 + 10 * i};
    }
    rates_alone(limits, STEPS, expected);
    /* This process does not open the name: children would have its mapping, at one address. */
    for (size_t i = 0; i < STEPS; i++) {
        expect_end(start_independent(set_rate, &limits[i]));
        expect_end(start_independent(charge_bucket, NULL));
        assert_int_equal(load_relaxed(&board->allowed), expected[i]);
    }
    assert_int_equal(weir_unlink(name), 0);
}

static int read_policies(void *arg)
{
    (void) arg;
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared_name = name;
    options.no_thread = SANITIZED;
    weir *w = NULL;
    if (weir_open(&options, &w, NULL) != 0) {
        return 1;
    }
    const weir_policy_id id = weir_find_policy(w, "p");
    weir_thread *t = weir_attach(w);
    const weir_key vip = weir_make_key(w, id, "vip", 3);
    const weir_key other = weir_make_key(w, id, "k", 1);
    const bool good = id != WEIR_NO_POLICY && weir_peek(t, &vip, 9, NULL) && !weir_peek(t, &other, 3, NULL) &&
                      weir_peek(t, &other, 2, NULL);
    weir_close(w);
    return good ? 0 : 2;
}

static void test_an_opener_finds_the_policies_in_force(void **state)
{
    (void) state;
    const weir_limit limit = long_limit(WEIR_FIXED_WINDOW, 5);
    weir *w = open_named_policy(name, NULL, &limit);
    assert_int_equal(weir_set_override(w, "p:vip", "9", NULL), 0);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    assert_true(weir_check(t, &key, 3, NULL));
    expect_end(start_independent(read_policies, NULL)); /* beside this process */
    weir_close(w);
    expect_end(start_independent(read_policies, NULL)); /* after it */
    /* The same policies, set again, change nothing. */
    w = open_named_policy(name, NULL, &limit);
    expect_end(start_independent(read_policies, NULL));
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

int main(void)
{
#ifdef EMULATED
    (void) puts("1..0 # SKIP an emulator forks the locks of its own threads with the guest");
    return 0;
#endif
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    segment_name(name, "named");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_limits_hold_for_processes_that_open_one_name),
        cmocka_unit_test(test_usage_is_kept_when_all_processes_are_killed),
        cmocka_unit_test(test_a_denied_key_stays_denied_until_its_time_after_a_restart),
        cmocka_unit_test(test_rates_of_buckets_are_the_same_at_other_addresses),
        cmocka_unit_test(test_an_opener_finds_the_policies_in_force),
    };
#ifdef COMPILER_THREAD_SANITIZER
    /* Its sixteen-byte exchange takes a lock of the process, so it is no exchange between two processes. */
    const struct CMUnitTest without_exchanges[] = {tests[2], tests[3], tests[5]};
    const int failed = cmocka_run_group_tests_name("stress/named", without_exchanges, NULL, NULL);
#else
    const int failed = cmocka_run_group_tests_name("stress/named", tests, NULL, NULL);
#endif
    (void) weir_unlink(name);
    return failed;
}
