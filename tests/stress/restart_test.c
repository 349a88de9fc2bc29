/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All processes of a named weir are killed under load, and started again: a key that was denied stays denied until its
 * time, and passes then.
 *
 * Guards: src/named/named.c, src/thread/repair.c, src/process/mend.c, src/limiter/weir_open.c
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/atomics.h"
#include "base/compiler.h"
#include "base/numbers.h"
#include "support/independent.h"
#include "support/support.h"

#define PROCESSES 4
#define THREADS   2
#define LIVES     8
#define POLICIES  5
#define KEYS      6
#define LIMIT     12
#define PERIOD_NS (4 * SECOND)

/*
 * A denial counts when the thread was denied for so long: a denial while another thread stands still with units of the
 * key is not the last word.
 */
#define SURE_NS (300 * MILLISECOND)

/* The time of a denial is of the last tick, which a preempted process makes late. */
#define SLACK_NS (200 * MILLISECOND)

static const weir_algorithm algorithms[POLICIES] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET,
                                                    WEIR_SLIDING_LOG, WEIR_LEAKY_BUCKET};

/* What the processes tell each other, in memory that they share. */
struct board {
    _Atomic uint64_t until_ns[POLICIES][KEYS]; /* the key is denied until then, by the system's clock */
    _Atomic uint64_t sure, passed, early, early_by_ns, failed, stop;
};

static struct board *board;
static char name[SEGMENT_NAME_SIZE];

static weir *open_policies(void)
{
    static const char *const names[POLICIES] = {"fixed", "sliding", "bucket", "log", "leaky"};
    weir_limit limits[POLICIES];
    weir_policy policies[POLICIES];
    weir_options options = WEIR_OPTIONS_INIT;
    weir *w = NULL;
    options.shared_name = name;
    options.max_keys = 2000;
    options.no_thread = SANITIZED;
    for (size_t i = 0; i < POLICIES; i++) {
        limits[i] = (weir_limit){.algorithm = algorithms[i], .limit = LIMIT, .period_ns = PERIOD_NS};
        policies[i] = (weir_policy){.name = names[i], .limits = &limits[i], .limit_count = 1};
    }
    if (weir_open(&options, &w, NULL) != 0 || weir_set_policies(w, policies, POLICIES, NULL) != 0) {
        return NULL;
    }
    return w;
}

static void raise_to(_Atomic uint64_t *word, uint64_t value)
{
    uint64_t before = load_relaxed(word);
    while (before < value && !cas_acquire(word, &before, value)) {
    }
}

/* Since when this thread was denied a key; 0: it was not, at the last check. */
typedef uint64_t denied_since[POLICIES][KEYS];

static void check_one(weir_thread *t, const weir_key *key, size_t policy, size_t number, denied_since since)
{
    weir_verdict verdict;
    const uint64_t until_ns = load_acquire(&board->until_ns[policy][number]);
    const uint64_t before_ns = real_ns();
    const bool passed = weir_check(t, key, 1, &verdict);
    const uint64_t after_ns = real_ns();
    if (passed) {
        since[policy][number] = 0;
        (void) add_relaxed(&board->passed, 1);
        if (after_ns + SLACK_NS < until_ns) {
            raise_to(&board->early_by_ns, until_ns - after_ns);
            store_release(&board->early, policy + 1);
        }
        return;
    }
    if (since[policy][number] == 0) {
        since[policy][number] = before_ns;
    }
    if (before_ns - since[policy][number] >= SURE_NS) {
        raise_to(&board->until_ns[policy][number], before_ns + verdict.retry_after_ns);
        (void) add_relaxed(&board->sure, 1);
    }
}

static void *work(void *arg)
{
    static const char *const names[POLICIES] = {"fixed", "sliding", "bucket", "log", "leaky"};
    weir *w = arg;
    weir_thread *t = weir_attach(w);
    denied_since since;
    uint64_t random = real_ns();
    uint64_t last_ns = real_ns();
    memset(since, 0, sizeof(since));
    while (t != NULL && load_relaxed(&board->stop) == 0) {
        const size_t policy = random_below(&random, POLICIES);
        const size_t number = random_below(&random, KEYS);
        const weir_key key = weir_make_key(w, weir_find_policy(w, names[policy]), &number, sizeof(number));
        const uint64_t now_ns = real_ns();
        if (now_ns - last_ns > SLACK_NS) { /* the machine stood still, maybe, and the last tick is as late */
            memset(since, 0, sizeof(since));
        }
        last_ns = now_ns;
        check_one(t, &key, policy, number, since);
        if (SANITIZED) {
            (void) weir_poll(w);
        }
    }
    if (t != NULL) {
        weir_detach(t);
    }
    return t;
}

static int serve(void *arg)
{
    (void) arg;
    pthread_t threads[THREADS];
    bool good = true;
    weir *w = open_policies();
    for (size_t i = 0; i < THREADS && w != NULL; i++) {
        good = good && pthread_create(&threads[i], NULL, work, w) == 0;
    }
    for (size_t i = 0; i < THREADS && w != NULL && good; i++) {
        void *attached = NULL;
        good = pthread_join(threads[i], &attached) == 0 && attached != NULL;
    }
    weir_close(w);
    return w != NULL && good ? 0 : 1;
}

static void start(pid_t *processes)
{
    for (size_t i = 0; i < PROCESSES; i++) {
        processes[i] = start_independent(serve, NULL);
    }
}

static void expect_none_early(int life)
{
    const uint64_t early = load_acquire(&board->early);
    if (early != 0) {
        fail_msg("life %d: a key of algorithm %d passed %" PRIu64 " ms before its time", life,
                 (int) algorithms[early - 1], load_relaxed(&board->early_by_ns) / MILLISECOND);
    }
}

static void test_denied_keys_stay_denied_until_their_time_over_restarts_under_load(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    pid_t processes[PROCESSES];
    memset((void *) board, 0, sizeof(*board));
    for (int life = 0; life < LIVES; life++) {
        const uint64_t sure = load_relaxed(&board->sure);
        start(processes);
        assert_true(wait_for_word(&board->sure, sure + 1));
        nap_ms((long) random_below(&rng, 300));
        for (size_t i = 0; i < PROCESSES; i++) {
            kill_independent(processes[i]);
        }
        expect_none_early(life);
    }
    /* And all of them pass when it is time. */
    const uint64_t passed = load_relaxed(&board->passed);
    start(processes);
    assert_true(wait_for_word(&board->passed, passed + (uint64_t) POLICIES * KEYS * LIMIT));
    store_relaxed(&board->stop, 1);
    for (size_t i = 0; i < PROCESSES; i++) {
        expect_end(processes[i]);
    }
    expect_none_early(LIVES);
    print_message("# %" PRIu64 " denials, %" PRIu64 " passed\n", load_relaxed(&board->sure),
                  load_relaxed(&board->passed));
    assert_int_equal(weir_unlink(name), 0);
}

int main(void)
{
#ifdef EMULATED
    (void) puts("1..0 # SKIP an emulator forks the locks of its own threads with the guest");
    return 0;
#endif
#ifdef COMPILER_THREAD_SANITIZER
    (void) puts("1..0 # SKIP ThreadSanitizer's sixteen-byte exchange takes a lock of the process");
    return 0;
#endif
    /* cppcheck-suppress invalidFunctionArg ; an anonymous mapping takes -1 */
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    segment_name(name, "restart");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_denied_keys_stay_denied_until_their_time_over_restarts_under_load),
    };
    const int failed = cmocka_run_group_tests_name("stress/restart", tests, NULL, NULL);
    (void) weir_unlink(name);
    return failed;
}
