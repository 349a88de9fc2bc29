/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named weirs in surroundings that are not kind: large tables, a strange umask, a limit on the size of files, several
 * openers of a damaged segment, a dead process with the lock of the logs' blocks.
 *
 * Guards: src/named/named.c, src/base/memory/segment.c, src/algorithm/rate_table.c, src/limiter/weir_open.c,
 * src/process/history_store.c, src/process/process.h, src/thread/repair.c
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/atomics.h"
#include "limiter/weir_private.h"
#include "support/independent.h"
#include "support/support.h"

#define OPENERS 12

static char name[SEGMENT_NAME_SIZE];

/* What processes tell each other, in memory that they share. */
struct board {
    _Atomic uint64_t opened, together;
};

static struct board *board;

static weir_options some_options(void)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.shared_name = name;
    options.max_keys = 2000;
    options.max_threads = 4;
    options.max_processes = 2 * OPENERS;
    options.max_log_units = 100000;
    options.no_thread = true;
    return options;
}

/* A bucket that owes what was used under one rate owes the same time under the next one. */
static void test_rates_are_converted_in_a_large_segment(void **state)
{
    (void) state;
    weir_options options = some_options();
    options.max_keys = 150000;
    options.max_threads = 64;
    options.max_log_units = 0; /* the default: the parts are larger than a handle reaches */
    weir *w = open_named(name, &options);
    weir_thread *t = weir_attach(w);
    const weir_limit slow = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = HOUR};
    const weir_policy_id id = set_one_policy(w, &slow, 1, WEIR_SCOPE_PROCESS);
    const weir_key key = weir_make_key(w, id, "k", 1);
    assert_true(weir_check(t, &key, 100, NULL));
    const weir_limit fast = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = HOUR};
    (void) set_one_policy(w, &fast, 1, WEIR_SCOPE_PROCESS);
    weir_verdict verdict;
    (void) weir_peek(t, &key, 1, &verdict);
    assert_in_range(verdict.remaining, 900, 901);
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

static void test_the_mode_is_0600_whatever_the_umask(void **state)
{
    (void) state;
    const weir_options options = some_options();
    const mode_t before = umask(0777);
    weir *w = open_named(name, &options);
    (void) umask(before);
    struct stat about;
    assert_int_equal(fstat(w->named.segment.fd, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

static int open_with_small_files(void *arg)
{
    const struct rlimit limit = {16 << 20, 16 << 20};
    weir *w = NULL;
    weir_error error;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) {
        return 1;
    }
    const int result = weir_open(arg, &w, &error);
    return result == -EFBIG && w == NULL && strstr(error.message, "RLIMIT_FSIZE) is 16 MiB") != NULL ? 0 : 2;
}

static void test_a_limit_on_files_is_an_error_and_no_signal(void **state)
{
    (void) state;
    weir_options options = some_options();
    expect_end(start_independent(open_with_small_files, &options));
    assert_int_equal(segment_size(name), -1);
}

/* Opens, waits for the others, and counts those that are in the same segment. */
static int open_together(void *arg)
{
    weir *w = NULL;
    if (weir_open(arg, &w, NULL) != 0) {
        return 1;
    }
    (void) add_relaxed(&board->opened, 1);
    if (!wait_for_word(&board->opened, OPENERS)) {
        return 2;
    }
    weir_stats stats;
    weir_get_stats(w, &stats);
    const bool all = stats.process_count == OPENERS;
    (void) add_relaxed(&board->together, 1);
    if (!wait_for_word(&board->together, OPENERS)) {
        return 3;
    }
    weir_close(w);
    return all ? 0 : 4;
}

static const weir_limit daily = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};

static void test_openers_of_a_damaged_segment_meet_in_one(void **state)
{
    (void) state;
    weir_options options = some_options();
    for (int round = 0; round < 20; round++) {
        const weir_policy policy = {.name = "to-be-damaged", .limits = &daily, .limit_count = 1};
        weir *w = open_named(name, &options);
        assert_int_equal(weir_set_policies(w, &policy, 1, NULL), 0);
        weir_close(w);
        damage_policies(name, policy.name);
        memset((void *) board, 0, sizeof(*board));
        pid_t openers[OPENERS];
        for (size_t i = 0; i < OPENERS; i++) {
            openers[i] = start_independent(open_together, &options);
        }
        for (size_t i = 0; i < OPENERS; i++) {
            expect_end(openers[i]);
        }
        assert_int_equal(weir_unlink(name), 0);
    }
}

/* Dies with the lock of the logs' blocks. */
static int die_with_blocks(void *arg)
{
    weir *w = NULL;
    if (weir_open(arg, &w, NULL) != 0) {
        return 1;
    }
    store_relaxed(&w->limiter.process.histories.shared->lock, w->limiter.process.lock_word);
    (void) raise(SIGKILL);
    return 2;
}

/* The one process that lives has one thread, which both checks and repairs. */
static void test_a_lone_survivor_does_not_wait_for_a_dead_one(void **state)
{
    (void) state;
    weir_options options = some_options();
    weir *w = open_named(name, &options);
    const weir_limit log = {.algorithm = WEIR_SLIDING_LOG, .limit = 10, .period_ns = HOUR};
    const weir_policy_id id = set_one_policy(w, &log, 1, WEIR_SCOPE_PROCESS);
    weir_thread *t = weir_attach(w);
    const pid_t process = start_independent(die_with_blocks, &options);
    int status = 0;
    assert_int_equal(waitpid(process, &status, 0), process);
    assert_true(WIFSIGNALED(status));
    const weir_key key = weir_make_key(w, id, "k", 1);
    (void) weir_check(t, &key, 1, NULL);
    for (int i = 0; load_relaxed(&w->limiter.process.histories.shared->lock) != 0 && i < 10000; i++) {
        (void) weir_poll(w);
        nap_ms(1);
    }
    assert_int_equal(load_relaxed(&w->limiter.process.histories.shared->lock), 0);
    const weir_key next = weir_make_key(w, id, "next", 4);
    for (int i = 0; i < 10; i++) {
        assert_true(weir_check(t, &next, 1, NULL));
    }
    assert_false(weir_check(t, &next, 1, NULL));
    weir_close(w);
    assert_int_equal(weir_unlink(name), 0);
}

int main(void)
{
    segment_name(name, "faults");
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rates_are_converted_in_a_large_segment),
        cmocka_unit_test(test_the_mode_is_0600_whatever_the_umask),
        cmocka_unit_test(test_a_limit_on_files_is_an_error_and_no_signal),
        cmocka_unit_test(test_openers_of_a_damaged_segment_meet_in_one),
        cmocka_unit_test(test_a_lone_survivor_does_not_wait_for_a_dead_one),
    };
    const int failed = cmocka_run_group_tests_name("stress/named_faults", tests, NULL, NULL);
    (void) weir_unlink(name);
    return failed;
}
