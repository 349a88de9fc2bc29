/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the background thread does for threads that have stopped checking, in real time. The test is that thread itself:
 * it calls weir_poll, or gives the time. And the thread, as the system sees it.
 *
 * Guards: src/limiter/background.c, src/thread/settle_pass.c
 */
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "limiter/background.h"
#include "limiter/weir_open.h"
#include "limiter/weir_private.h"
#include "support/support.h"
#include "thread/slot_account.h"
#include "thread/tick.h"
#include "transport/loopback/loopback.h"

#define LIMIT 1000

/* Grants of idle threads are settled every 32 ms; a loaded machine may take longer. */
#define PATIENCE_NS (60 * SECOND)

static weir_key key_of(const weir *w, weir_policy_id policy, const char *bytes)
{
    return weir_make_key(w, policy, bytes, strlen(bytes));
}

static uint64_t remaining(weir_thread *t, const weir_key *key)
{
    weir_verdict verdict;
    assert_true(weir_peek(t, key, 1, &verdict));
    return verdict.remaining;
}

static void test_what_an_idle_thread_holds_comes_back_while_others_are_busy(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR};
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_keys = 1000;
    options.max_threads = 2;
    weir *w = open_or_fail(&options);
    const weir_policy_id policy = set_one_policy(w, &limit, 1, WEIR_SCOPE_PROCESS);
    weir_thread *idle = weir_attach(w);
    weir_thread *busy = weir_attach(w);
    const weir_key key = key_of(w, policy, "key");
    /* Until the thread has a grant with units left. */
    uint64_t used = 0;
    do {
        (void) weir_poll(w);
        assert_true(weir_check(idle, &key, 1, NULL));
        used++;
    } while (remaining(busy, &key) == LIMIT - used && used < LIMIT / 2);
    assert_int_not_equal(remaining(busy, &key), LIMIT - used);
    /* The thread checks no more. Each peek of the other one is a slow check, so the process never falls asleep. */
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (remaining(busy, &key) != LIMIT - used && real_ns() < until_ns) {
        (void) weir_poll(w);
        assert_false(w->asleep);
    }
    assert_int_equal(remaining(busy, &key), LIMIT - used);
    weir_close(w);
}

static size_t count_granted(const weir_thread *t)
{
    size_t granted = 0;
    for (size_t i = 0; i < t->slot_count; i++) {
        granted += load_relaxed(&t->accounts[i].granted) != 0;
    }
    return granted;
}

/* Gives a thread grants of many keys. Returns how many. */
static size_t be_granted(weir *w, weir_thread *t, weir_policy_id policy)
{
    for (uint64_t name = 0; name < 2000; name++) {
        const weir_key key = weir_make_key(w, policy, &name, sizeof(name));
        for (int i = 0; i < 10; i++) {
            assert_true(weir_check(t, &key, 1, NULL));
        }
    }
    return count_granted(t);
}

/* A pass over many slots has some pieces, a millisecond apart; a caller that comes late does those that it missed. */
static void test_a_pass_goes_by_pieces_and_a_late_caller_makes_up_for_it(void **state)
{
    (void) state;
    enum { BATCH = 256 };
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_threads = 1;
    weir *w = open_or_fail(&options);
    const weir_policy_id policy = set_one_policy(w, &limit, 1, WEIR_SCOPE_PROCESS);
    weir_thread *t = weir_attach(w);
    bool in_time = false;
    for (int tries = 0; tries < 100 && !in_time; tries++) {
        assert_true(weir_poll(w) >= 0);
        if (be_granted(w, t, policy) <= 2 * BATCH) {
            continue; /* on a machine that stands still grants are short */
        }
        tick_epoch(&w->limiter);
        const size_t granted = count_granted(t);
        w->pass = (struct settle_pass){.slots = 0};
        w->settle_ns = real_ns(); /* one piece is due, but on a machine that is late */
        assert_true(weir_poll(w) >= 0);
        const size_t left = count_granted(t);
        in_time = granted - left == BATCH;
        if (in_time) {
            assert_true(w->settle_ns <= real_ns() + MILLISECOND);
            w->settle_ns = real_ns() - 10 * MILLISECOND;
            assert_true(weir_poll(w) >= 0);
            assert_int_equal(count_granted(t), 0);
            assert_true(settle_pass_begins(&w->pass));
            assert_true(w->settle_ns > w->pass_ns + 2 * MILLISECOND);
        }
    }
    assert_true(in_time);
    weir_detach(t);
    weir_close(w);
}

/* A weir of two handles that goes by times that the test gives, which are ahead of all that a check may read. */
static weir *open_timed(weir_thread *t[2], weir_key *key, uint64_t *now_ns)
{
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 366 * 24 * HOUR};
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_keys = 1000;
    options.max_threads = 3;
    weir *w = open_or_fail(&options);
    *key = key_of(w, set_one_policy(w, &limit, 1, WEIR_SCOPE_PROCESS), "key");
    t[0] = weir_attach(w);
    t[1] = weir_attach(w);
    *now_ns = real_ns() + HOUR;
    return w;
}

static uint32_t epoch_of(const weir *w)
{
    return load_relaxed(&w->limiter.shared->line.epoch);
}

static void test_it_ticks_each_millisecond_and_says_when_it_is_due_again(void **state)
{
    (void) state;
    weir_thread *t[2];
    weir_key key;
    uint64_t now_ns;
    weir *w = open_timed(t, &key, &now_ns);
    assert_true(weir_peek(t[0], &key, 1, NULL)); /* a slow one: it is awake */
    (void) background_poll(w, now_ns);
    for (int i = 0; i < 20; i++) {
        const uint32_t epoch = epoch_of(w);
        const uint64_t next_ns = background_poll(w, now_ns);
        assert_int_equal(epoch_of(w), epoch);
        assert_int_equal(next_ns, now_ns + MILLISECOND);
        assert_int_equal(background_poll(w, now_ns + MILLISECOND - 1), next_ns);
        assert_int_equal(epoch_of(w), epoch);
        now_ns = next_ns;
        assert_int_equal(background_poll(w, now_ns), now_ns + MILLISECOND);
        assert_int_equal(epoch_of(w), epoch + 1);
        assert_int_equal(load_relaxed(&w->limiter.shared->line.now_ns),
                         now_ns + load_relaxed(&w->limiter.shared->line.offset_ns));
    }
    weir_close(w);
}

static void test_with_a_clock_of_the_host_each_move_of_time_is_a_tick_and_nothing_else_is(void **state)
{
    (void) state;
    struct fake_clock clock;
    fake_clock_init(&clock, UINT64_C(1767225600) * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock.clock;
    options.max_keys = 1000;
    weir *w = open_or_fail(&options);
    assert_int_not_equal(load_relaxed(&w->limiter.shared->line.offset_ns), 0);
    assert_true(weir_poll(w) >= 0);
    static const uint64_t moves_ns[] = {1, MILLISECOND, HOUR, 1, 2};
    for (size_t i = 0; i < sizeof(moves_ns) / sizeof(moves_ns[0]); i++) {
        const uint32_t epoch = epoch_of(w);
        fake_clock_advance(&clock, moves_ns[i]);
        for (int j = 0; j < 3; j++) {
            const uint64_t now_ns = clock.clock.monotonic_ns(clock.clock.arg);
            assert_int_equal(background_poll(w, now_ns), now_ns + MILLISECOND);
            assert_int_equal(epoch_of(w), epoch + 1);
            assert_int_equal(load_relaxed(&w->limiter.shared->line.now_ns), clock.wall_ns);
        }
    }
    weir_close(w);
}

/* Polls at a time, after a slow check that keeps it awake. */
static void poll_awake(weir *w, weir_thread *t, const weir_key *key, uint64_t now_ns)
{
    assert_true(weir_peek(t, key, 1, NULL));
    (void) background_poll(w, now_ns);
    assert_false(w->asleep);
}

static void test_a_pass_waits_for_its_time_and_none_is_made_asleep(void **state)
{
    (void) state;
    weir_thread *t[2];
    weir_key key;
    uint64_t now_ns;
    weir *w = open_timed(t, &key, &now_ns);
    poll_awake(w, t[0], &key, now_ns);
    for (int pieces = 0; w->settle_ns <= now_ns + MILLISECOND; pieces++) {
        assert_true(pieces < 30);
        now_ns = w->settle_ns;
        poll_awake(w, t[0], &key, now_ns);
    }
    const uint64_t due_ns = w->settle_ns;
    assert_int_equal(due_ns, w->pass_ns + 32 * MILLISECOND);
    for (now_ns++; now_ns < due_ns; now_ns += MILLISECOND) {
        poll_awake(w, t[0], &key, now_ns);
        assert_int_equal(w->settle_ns, due_ns);
    }
    poll_awake(w, t[0], &key, due_ns);
    assert_true(w->settle_ns > due_ns && w->pass_ns == due_ns);
    (void) background_poll(w, due_ns + SECOND);
    assert_true(w->asleep);
    const uint64_t left_ns = w->settle_ns;
    (void) background_poll(w, due_ns + 2 * SECOND);
    assert_true(w->asleep && w->settle_ns == left_ns);
    weir_close(w);
}

/* Either handle keeps it awake, and wakes it. What threads were granted is taken back when it falls asleep. */
static void test_it_sleeps_after_50_ms_without_a_slow_check_and_wakes_at_the_next(void **state)
{
    (void) state;
    weir_thread *t[2];
    weir_key key;
    uint64_t now_ns;
    weir *w = open_timed(t, &key, &now_ns);
    for (int i = 0; i < 4; i++) {
        weir_thread *busy = t[i % 2];
        assert_true(weir_peek(busy, &key, 1000, NULL)); /* a slow one */
        (void) background_poll(w, now_ns);
        assert_false(w->asleep);
        for (int j = 0; j < 10; j++) {
            assert_true(weir_check(busy, &key, 1, NULL));
        }
        now_ns += MILLISECOND;
        assert_int_not_equal(count_granted(busy), 0);
        (void) background_poll(w, now_ns);
        now_ns += 50 * MILLISECOND - 1;
        (void) background_poll(w, now_ns);
        assert_false(w->asleep);
        assert_int_not_equal(epoch_of(w), EPOCH_ASLEEP);
        assert_true(weir_check(busy, &key, 1, NULL)); /* the last epoch's grant is renewed, or it is charged */
        (void) background_poll(w, now_ns);
        now_ns += 50 * MILLISECOND;
        counter_add(&w->limiter.threads[2].shared->slow_count, 1); /* nobody has this handle */
        assert_int_equal(background_poll(w, now_ns), now_ns + 100 * MILLISECOND);
        assert_true(w->asleep);
        assert_int_equal(epoch_of(w), EPOCH_ASLEEP);
        assert_int_equal(count_granted(busy), 0);
        now_ns += 100 * MILLISECOND;
        assert_int_equal(background_poll(w, now_ns), now_ns + 100 * MILLISECOND);
        assert_true(weir_peek(busy, &key, 1, NULL));
        now_ns += MILLISECOND;
        assert_true(background_poll(w, now_ns) <= now_ns + MILLISECOND);
        assert_false(w->asleep);
        assert_int_not_equal(epoch_of(w), EPOCH_ASLEEP);
        assert_int_equal(load_relaxed(&w->limiter.shared->line.next_ns), now_ns + MILLISECOND);
    }
    weir_close(w);
}

/* The status of the thread "weir" of this process. */
static bool find_thread(char *status, size_t size)
{
    bool found = false;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *task = readdir(tasks); !found && task != NULL; task = readdir(tasks)) {
        char path[sizeof(task->d_name) + 32];
        (void) snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
        FILE *in = fopen(path, "re");
        status[in != NULL ? fread(status, 1, size - 1, in) : 0] = '\0';
        if (in != NULL) {
            (void) fclose(in);
        }
        found = strncmp(status, "Name:\tweir\n", 11) == 0;
    }
    (void) closedir(tasks);
    return found;
}

/* Waits: for a moment /proc still shows a thread that has been joined. */
static void expect_no_thread(char *status, size_t size)
{
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    while (find_thread(status, size) && real_ns() < until_ns) {
        nap_ms(1);
    }
    assert_false(find_thread(status, size));
}

/* How often it has waited for something. */
static unsigned long long times_given_up(const char *status)
{
    static const char field[] = "\nvoluntary_ctxt_switches:";
    const char *at = strstr(status, field);
    return at != NULL ? strtoull(at + strlen(field), NULL, 10) : 0;
}

static void test_the_thread_has_a_name_and_takes_no_signals_of_the_host(void **state)
{
    (void) state;
    static char status[8192];
    sigset_t before;
    sigset_t after;
    memset(&before, 0, sizeof(before)); /* the system writes a part of them */
    memset(&after, 0, sizeof(after));
    expect_no_thread(status, sizeof(status)); /* of an earlier test */
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    weir *w = open_or_fail(NULL);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    assert_memory_equal(&before, &after, sizeof(before));
    const uint64_t until_ns = real_ns() + PATIENCE_NS;
    bool found = false;
    while (!(found = find_thread(status, sizeof(status))) && real_ns() < until_ns) {
        nap_ms(1);
    }
    if (!SLOWED || found) {
        assert_true(found);
        const char *blocked = strstr(status, "SigBlk:\t");
        assert_non_null(blocked);
        const unsigned long long mask = strtoull(blocked + strlen("SigBlk:\t"), NULL, 16);
        assert_true((mask >> (SIGTERM - 1) & 1) != 0 && (mask >> (SIGINT - 1) & 1) != 0 &&
                    (mask >> (SIGALRM - 1) & 1) != 0);
        /* Between two looks it waits, and gives its processor up. */
        const unsigned long long given_up = times_given_up(status);
        while (found && times_given_up(status) < given_up + 3 && real_ns() < until_ns) {
            nap_ms(10);
            found = find_thread(status, sizeof(status));
        }
        assert_true(found && times_given_up(status) >= given_up + 3);
    }
    weir_close(w);
    expect_no_thread(status, sizeof(status));
}

static uint64_t wall(void *arg)
{
    return real_wall_ns(arg);
}

static weir *open_in_fleet(struct loopback_fleet *fleet, bool no_thread)
{
    const struct transport_config config = {.timeout_ms = 1000};
    struct transport *transport = NULL;
    weir_options options = WEIR_OPTIONS_INIT;
    weir *w = NULL;
    options.max_keys = 1000;
    options.no_thread = no_thread;
    options.redis_timeout_ms = 10;
    assert_int_equal(loopback_transport_open(fleet, &config, &transport, NULL), 0);
    assert_int_equal(weir_open_on(&options, transport, &w, NULL), 0);
    return w;
}

/* With a thread and without one, where the fleet answers and where it does not. */
static void test_a_sync_is_done_or_its_time_is_over(void **state)
{
    (void) state;
    struct loopback_fleet *fleet = loopback_fleet_new(wall, NULL);
    for (int i = 0; i < 2; i++) {
        weir_stats stats;
        loopback_fleet_set_down(fleet, false);
        weir *w = open_in_fleet(fleet, i == 0);
        assert_int_equal(weir_sync(w, 60000), 0);
        weir_get_stats(w, &stats);
        assert_true(stats.sync_count >= 1);
        assert_int_equal(stats.link, WEIR_LINK_UP);
        assert_int_equal(weir_sync(w, 60000), 0);
        loopback_fleet_set_down(fleet, true);
        const uint64_t begin_ns = real_ns();
        assert_int_equal(weir_sync(w, 40), -ETIMEDOUT);
        assert_true(real_ns() - begin_ns >= 40 * MILLISECOND);
        assert_int_equal(weir_sync(w, 0), -ETIMEDOUT);
        weir_close(w);
    }
    loopback_fleet_free(fleet);
}

/* Lines of the log. */
struct lines {
    unsigned count;
    weir_log_level level;
    char last[512];
};

static void keep_line(void *arg, weir_log_level level, const char *message)
{
    struct lines *lines = arg;
    lines->count++;
    lines->level = level;
    (void) snprintf(lines->last, sizeof(lines->last), "%s", message);
}

static uint64_t attach_errors(const weir *w)
{
    weir_stats stats;
    weir_get_stats(w, &stats);
    return stats.attach_error_count;
}

/* What a thread checks without a handle passes, and nothing else would tell of it. */
static void test_threads_without_a_handle_are_counted_and_the_log_says_so_once_a_minute(void **state)
{
    (void) state;
    struct fake_clock fake;
    struct lines lines = {.count = 0};
    fake_clock_init(&fake, 1000 * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &fake.clock;
    options.max_keys = 1000;
    options.max_threads = 2;
    options.log = keep_line;
    options.log_arg = &lines;
    weir *w = open_or_fail(&options);
    weir_thread *t = weir_attach(w);
    assert_non_null(weir_attach(w));
    (void) weir_poll(w);
    assert_int_equal(attach_errors(w), 0);
    assert_int_equal(lines.count, 0);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_null(weir_attach(w));
        assert_int_equal(attach_errors(w), i);
    }
    assert_int_equal(lines.count, 0); /* no call of a thread logs */
    (void) weir_poll(w);
    assert_int_equal(lines.count, 1);
    assert_int_equal(lines.level, WEIR_LOG_ERROR);
    assert_string_equal(lines.last, "threads are not limited: 3 calls of weir_attach gave no handle, as all 2 handles "
                                    "are in use; raise max_threads");
    /* The next ones wait for their minute. */
    assert_null(weir_attach(w));
    fake_clock_advance(&fake, 60 * SECOND - 1);
    (void) weir_poll(w);
    assert_int_equal(lines.count, 1);
    fake_clock_advance(&fake, 1);
    (void) weir_poll(w);
    assert_int_equal(lines.count, 2);
    assert_string_equal(lines.last, "threads are not limited: 1 call of weir_attach gave no handle, as all 2 handles "
                                    "are in use; raise max_threads");
    /* Nothing new is nothing to say; and what was counted stays. */
    weir_detach(t);
    assert_non_null(weir_attach(w));
    fake_clock_advance(&fake, HOUR);
    (void) weir_poll(w);
    assert_int_equal(lines.count, 2);
    assert_int_equal(attach_errors(w), 4);
    /* After an hour of silence a line does not wait. A thread that found no room has a reason of its own. */
    store_relaxed(&w->limiter.shared->attach_failures[ATTACH_NO_ROOM], 1);
    (void) weir_poll(w);
    assert_int_equal(lines.count, 3);
    assert_string_equal(lines.last, "threads are not limited: 1 call of weir_attach gave no handle, as /dev/shm is "
                                    "full; make that file system larger");
    assert_int_equal(attach_errors(w), 5);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pass_goes_by_pieces_and_a_late_caller_makes_up_for_it),
        cmocka_unit_test(test_what_an_idle_thread_holds_comes_back_while_others_are_busy),
        cmocka_unit_test(test_it_ticks_each_millisecond_and_says_when_it_is_due_again),
        cmocka_unit_test(test_with_a_clock_of_the_host_each_move_of_time_is_a_tick_and_nothing_else_is),
        cmocka_unit_test(test_a_pass_waits_for_its_time_and_none_is_made_asleep),
        cmocka_unit_test(test_it_sleeps_after_50_ms_without_a_slow_check_and_wakes_at_the_next),
        cmocka_unit_test(test_the_thread_has_a_name_and_takes_no_signals_of_the_host),
        cmocka_unit_test(test_a_sync_is_done_or_its_time_is_over),
        cmocka_unit_test(test_threads_without_a_handle_are_counted_and_the_log_says_so_once_a_minute),
    };
    return cmocka_run_group_tests_name("unit/limiter/background", tests, NULL, NULL);
}
