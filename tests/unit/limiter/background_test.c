/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the background thread does for threads that have stopped checking, in real time. The test is that thread itself:
 * it calls weir_poll.
 *
 * Guards: src/limiter/background.c, src/thread/settle_pass.c
 */
#include <string.h>

#include "limiter/weir_private.h"
#include "support/support.h"
#include "thread/slot_account.h"
#include "thread/tick.h"

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
        assert_true(be_granted(w, t, policy) > 2 * BATCH);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_pass_goes_by_pieces_and_a_late_caller_makes_up_for_it),
        cmocka_unit_test(test_what_an_idle_thread_holds_comes_back_while_others_are_busy),
    };
    return cmocka_run_group_tests_name("unit/limiter/background", tests, NULL, NULL);
}
