/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tick, by a clock that the test moves: time, epochs, sleep, and when a thread looks at the clock itself. What a
 * thread caches of a policy for an epoch.
 *
 * Guards: src/thread/tick.c, src/thread/policy_snapshot.c, src/thread/policy_snapshot.h, src/thread/thread.h
 */
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "limiter/weir_private.h"
#include "support/bare_process.h"
#include "thread/policy_snapshot.h"
#include "thread/slot_word.h"
#include "thread/tick.h"

#define MONOTONIC_NS (1000 * SECOND)
#define OFFSET_NS    (UINT64_C(1760000000) * SECOND)

static struct {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
    struct limiter *limiter;
    struct tick_line *line;
} d;

static void begin(void)
{
    fake_clock_init(&d.clock, OFFSET_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    options.max_threads = 2;
    options.max_keys = 1000;
    d.w = open_or_fail(&options);
    d.t = weir_attach(d.w);
    d.limiter = &d.w->limiter;
    d.line = &d.limiter->shared->line;
    d.clock.monotonic_ns = MONOTONIC_NS;
    tick_start(d.limiter, MONOTONIC_NS, OFFSET_NS);
}

static void end(void)
{
    weir_detach(d.t);
    weir_close(d.w);
}

static void expect_line(uint32_t epoch, uint64_t now_ns, uint64_t next_ns)
{
    assert_int_equal(load_relaxed(&d.line->epoch), epoch);
    assert_int_equal(load_relaxed(&d.line->now_ns) - OFFSET_NS, now_ns);
    assert_int_equal(load_relaxed(&d.line->next_ns), next_ns);
}

static void test_time_and_epoch_move_together_when_a_tick_is_due(void **state)
{
    (void) state;
    begin();
    const uint64_t tick_ns = d.limiter->tick_ns;
    assert_in_range(tick_ns, 1, SECOND);
    expect_line(1, MONOTONIC_NS, MONOTONIC_NS + tick_ns);
    tick_if_due(d.limiter, MONOTONIC_NS + tick_ns - 1);
    expect_line(1, MONOTONIC_NS, MONOTONIC_NS + tick_ns);
    tick_if_due(d.limiter, MONOTONIC_NS + tick_ns);
    expect_line(2, MONOTONIC_NS + tick_ns, MONOTONIC_NS + 2 * tick_ns);
    tick_if_due(d.limiter, MONOTONIC_NS + 5 * tick_ns + 3);
    expect_line(3, MONOTONIC_NS + 5 * tick_ns + 3, MONOTONIC_NS + 6 * tick_ns + 3);
    assert_int_equal(load_relaxed(&d.line->last_epoch), 3);
    /* A clock that is read later shows no earlier time, and no new epoch. */
    tick_raise(d.limiter, MONOTONIC_NS);
    expect_line(3, MONOTONIC_NS + 5 * tick_ns + 3, MONOTONIC_NS + 6 * tick_ns + 3);
    tick_raise(d.limiter, MONOTONIC_NS + 8 * tick_ns);
    expect_line(3, MONOTONIC_NS + 8 * tick_ns, MONOTONIC_NS + 6 * tick_ns + 3);
    end();
}

static void test_the_last_epoch_is_followed_by_the_first_and_never_by_sleep_or_none(void **state)
{
    (void) state;
    begin();
    store_relaxed(&d.line->last_epoch, EPOCH_ASLEEP - 2);
    tick_epoch(d.limiter);
    assert_int_equal(load_relaxed(&d.line->epoch), EPOCH_ASLEEP - 1);
    tick_epoch(d.limiter);
    assert_int_equal(load_relaxed(&d.line->epoch), 1);
    assert_int_equal(load_relaxed(&d.line->last_epoch), 1);
    end();
}

static void test_no_epoch_begins_while_all_sleep_and_a_new_one_does_when_they_wake(void **state)
{
    (void) state;
    begin();
    const uint64_t tick_ns = d.limiter->tick_ns;
    tick_sleep(d.limiter);
    expect_line(EPOCH_ASLEEP, MONOTONIC_NS, MONOTONIC_NS + tick_ns);
    tick_epoch(d.limiter);
    expect_line(EPOCH_ASLEEP, MONOTONIC_NS, MONOTONIC_NS + tick_ns);
    assert_int_equal(load_relaxed(&d.line->last_epoch), 2);
    tick_wake(d.limiter, MONOTONIC_NS + SECOND);
    expect_line(3, MONOTONIC_NS + SECOND, MONOTONIC_NS + SECOND + tick_ns);
    assert_int_equal(load_relaxed(&d.line->last_epoch), 3);
    tick_wake(d.limiter, MONOTONIC_NS + 2 * SECOND); /* nobody slept */
    expect_line(3, MONOTONIC_NS + 2 * SECOND, MONOTONIC_NS + 2 * SECOND + tick_ns);
    end();
}

static void test_fleet_time_goes_back_by_a_step_alone_and_each_change_ends_all_grants(void **state)
{
    (void) state;
    begin();
    const uint64_t next_ns = MONOTONIC_NS + d.limiter->tick_ns;
    tick_set_offset(d.limiter, MONOTONIC_NS, OFFSET_NS + SECOND, false);
    expect_line(2, MONOTONIC_NS + SECOND, next_ns);
    tick_set_offset(d.limiter, MONOTONIC_NS, OFFSET_NS, false);
    expect_line(3, MONOTONIC_NS + SECOND, next_ns); /* it stands still */
    assert_int_equal(load_relaxed(&d.line->offset_ns), OFFSET_NS);
    tick_set_offset(d.limiter, MONOTONIC_NS + 7, OFFSET_NS - SECOND, true);
    expect_line(4, MONOTONIC_NS + 7 - SECOND, next_ns);
    assert_int_equal(load_relaxed(&d.line->offset_ns), OFFSET_NS - SECOND);
    end();
}

/* What another thread does between two instructions of this one: at its first write to the page of the line. */
static struct {
    void *page;
    size_t size;
    uint64_t offset_ns, now_ns;
} between;

static void write_is_stopped(int number)
{
    (void) number;
    (void) mprotect(between.page, between.size, PROT_READ | PROT_WRITE);
    store_relaxed(&d.line->offset_ns, between.offset_ns);
    store_relaxed(&d.line->now_ns, between.now_ns);
}

/* A thread has read the clock and the old offset, and writes the time when the offset has moved. */
static void test_a_thread_that_is_late_with_its_time_does_not_undo_a_step_back(void **state)
{
    (void) state;
    static const struct {
        int64_t step_ns;              /* of the offset */
        uint64_t now_ns, expected_ns; /* since the start: what the other thread writes, and what it is in the end */
    } rows[] = {{-(int64_t) SECOND, 0, SECOND},
                {-(int64_t) (10 * MILLISECOND), 0, 2 * SECOND - 10 * MILLISECOND},
                {1 - (int64_t) (10 * MILLISECOND), 0, 2 * SECOND}, /* slewing: time stands still instead */
                {0, 2 * SECOND - 1, 2 * SECOND},
                {0, 5 * SECOND, 5 * SECOND},
                {(int64_t) SECOND, 0, 2 * SECOND}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        begin();
        between.size = (size_t) sysconf(_SC_PAGESIZE);
        between.page = (void *) ((uintptr_t) d.line & ~(uintptr_t) (between.size - 1));
        between.offset_ns = OFFSET_NS + (uint64_t) rows[i].step_ns;
        between.now_ns = OFFSET_NS + MONOTONIC_NS + rows[i].now_ns;
        const struct sigaction action = {.sa_handler = write_is_stopped};
        struct sigaction before;
        assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
        assert_int_equal(mprotect(between.page, between.size, PROT_READ), 0);
        tick_raise(d.limiter, MONOTONIC_NS + 2 * SECOND);
        assert_int_equal(sigaction(SIGSEGV, &before, NULL), 0);
        assert_int_equal(load_relaxed(&d.line->offset_ns), between.offset_ns);
        assert_int_equal(load_relaxed(&d.line->now_ns) - OFFSET_NS - MONOTONIC_NS, rows[i].expected_ns);
        end();
    }
}

static void test_the_age_of_the_fleets_news_is_that_at_the_tick(void **state)
{
    (void) state;
    begin();
    assert_true(load_relaxed(&d.line->age_ns) == UINT64_MAX); /* there is none yet */
    tick_news(d.limiter, OFFSET_NS + MONOTONIC_NS - SECOND);
    assert_int_equal(load_relaxed(&d.line->age_ns), SECOND);
    tick_raise(d.limiter, MONOTONIC_NS + SECOND);
    assert_int_equal(load_relaxed(&d.line->age_ns), 2 * SECOND);
    tick_set_offset(d.limiter, MONOTONIC_NS, OFFSET_NS, true);
    assert_int_equal(load_relaxed(&d.line->age_ns), SECOND);
    tick_news(d.limiter, OFFSET_NS + MONOTONIC_NS + SECOND); /* later than the tick */
    assert_int_equal(load_relaxed(&d.line->age_ns), 0);
    tick_news(d.limiter, 0); /* at the very first moment: it is news */
    assert_int_equal(load_relaxed(&d.limiter->process.shared->news_ns), 1);
    assert_int_equal(load_relaxed(&d.line->age_ns), OFFSET_NS + MONOTONIC_NS - 1);
    tick_start(d.limiter, MONOTONIC_NS + 5, OFFSET_NS);
    assert_int_equal(load_relaxed(&d.line->age_ns), OFFSET_NS + MONOTONIC_NS + 4);
    end();
}

/* Every 64 slow passes; under a fine clock always; while all sleep always, and without a tick. */
static void test_a_thread_decides_by_the_tick_and_looks_at_the_clock_now_and_then(void **state)
{
    (void) state;
    static const struct {
        bool fine, asleep, host_time;
        uint64_t passes; /* since its last look */
        bool looks, ticks;
    } rows[] = {{false, false, false, 63, false, false}, {false, false, false, 64, true, true},
                {false, false, false, 65, true, true},   {true, false, false, 0, true, true},
                {false, true, false, 0, true, false},    {true, true, false, 64, true, false},
                {false, false, true, 64, false, false},  {true, true, true, 64, false, false}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        begin();
        struct policy policy = {.fine_clock = rows[i].fine};
        store_relaxed(&d.t->shared->slow_count, 1000 + rows[i].passes);
        d.t->shared->looked_count = 1000;
        d.limiter->host_time = rows[i].host_time;
        if (rows[i].asleep) {
            tick_sleep(d.limiter);
        }
        d.clock.monotonic_ns = MONOTONIC_NS + 3 * SECOND;
        const uint64_t now_ns = tick_now(d.t, &policy);
        assert_int_equal(now_ns - OFFSET_NS, MONOTONIC_NS + (rows[i].looks ? 3 * SECOND : 0));
        expect_line(rows[i].asleep  ? EPOCH_ASLEEP
                    : rows[i].ticks ? 2
                                    : 1,
                    MONOTONIC_NS + (rows[i].ticks ? 3 * SECOND : 0),
                    MONOTONIC_NS + (rows[i].ticks ? 3 * SECOND : 0) + d.limiter->tick_ns);
        const bool due = rows[i].passes >= 64;
        assert_int_equal(d.t->shared->looked_count, 1000 + (due ? rows[i].passes : 0));
        assert_int_equal(tick_time(d.limiter) - OFFSET_NS, MONOTONIC_NS + (rows[i].host_time ? 0 : 3 * SECOND));
        /* A look without a decision ticks as well. */
        d.t->shared->looked_count = 1000;
        d.clock.monotonic_ns = MONOTONIC_NS + 9 * SECOND;
        tick_look(d.t);
        const bool ticks = due && !rows[i].asleep && !rows[i].host_time;
        assert_int_equal(load_relaxed(&d.line->now_ns) - OFFSET_NS, MONOTONIC_NS + (ticks           ? 9 * SECOND
                                                                                    : rows[i].ticks ? 3 * SECOND
                                                                                                    : 0));
        assert_int_equal(d.t->shared->looked_count, 1000 + (due ? rows[i].passes : 0));
        d.limiter->host_time = false;
        end();
    }
}

static void test_a_snapshot_has_the_numbers_of_a_policy_with_one_limit_of_its_own(void **state)
{
    (void) state;
    enum { PLAIN, TWO_LIMITS, OVERRIDDEN, OUTAGE, QUEUE, LOG, CASES };
    for (int which = 0; which < CASES; which++) {
        struct process process;
        struct policy policy;
        bare_process_open(&process, 100, true);
        bare_policy_init(&policy,
                         which == QUEUE ? WEIR_LEAKY_BUCKET
                         : which == LOG ? WEIR_SLIDING_LOG
                                        : WEIR_TOKEN_BUCKET,
                         100);
        policy.id = 7;
        policy.group = 5;
        policy.group_key_mask = 0xabcd;
        policy.mode = WEIR_SHADOW;
        policy.limit_count = which == TWO_LIMITS ? 2 : 1;
        policy.override = which == OVERRIDDEN ? OVERRIDE_ALLOW : OVERRIDE_NONE;
        store_relaxed(&policy.outage_mode, which == OUTAGE ? OUTAGE_MODE_SHARE : OUTAGE_MODE_NONE);
        const struct policy_snapshot snapshot = policy_snapshot_of(&process, &policy, BARE_NOW_NS);
        assert_int_equal(policy_snapshot_is_plain(&snapshot), which == PLAIN);
        assert_ptr_equal(snapshot.policy, &policy);
        assert_int_equal(snapshot.now_ns, BARE_NOW_NS);
        assert_int_equal(snapshot.id, 7);
        assert_true(snapshot.fleet);
        assert_int_equal(snapshot.epoch, 0);
        const bool has_numbers = which == PLAIN || which == QUEUE || which == LOG;
        const weir_key key = {.hash = 0x1234567890};
        if (has_numbers) {
            assert_int_equal(policy_snapshot_hash(&snapshot, &key), cell_hash(&policy, &key, 0));
        }
        assert_int_equal(snapshot.group, has_numbers ? 5 : 0);
        assert_int_equal(snapshot.limit_tag, has_numbers ? 0x12345678 : 0);
        assert_int_equal(snapshot.rule.unit, has_numbers ? policy.limits[0].rule.unit : 0);
        const struct slot_meta meta = slot_meta_unpack(snapshot.meta);
        assert_int_equal(meta.policy_id, has_numbers ? 7 : 0);
        assert_int_equal(meta.shadow, has_numbers);
        if (which == PLAIN) {
            assert_int_equal(snapshot.limit_at.now_ns, BARE_NOW_NS);
            assert_int_equal(snapshot.limit_at.unit, policy.limits[0].rule.unit);
        }
        /* A queue that no other node shares has numbers of its own. */
        struct policy_queue queue;
        assert_false(policy_queue_of(&process, &policy, &queue));
        policy.scope = WEIR_SCOPE_PROCESS;
        queue.epoch = 99;
        assert_int_equal(policy_queue_of(&process, &policy, &queue), which == QUEUE);
        if (which == QUEUE) {
            assert_int_equal(queue.epoch, 0);
            assert_int_equal(queue.id, 7);
            assert_int_equal(cell_hash_salted(key.hash, queue.mix), cell_hash(&policy, &key, 0));
            assert_int_equal(queue.numbers.unit, policy.limits[0].rule.unit);
            policy.limit_count = 2;
            assert_false(policy_queue_of(&process, &policy, &queue));
            policy.limit_count = 1;
            policy.override = OVERRIDE_DENY;
            assert_false(policy_queue_of(&process, &policy, &queue));
        }
        process_close(&process);
    }
}

static void test_a_thread_caches_what_holds_for_all_keys_of_a_policy_in_an_epoch(void **state)
{
    (void) state;
    enum { KEPT, ASLEEP, NOT_PLAIN, FINE, ENTRIES, SHADOW, CASES };
    for (int which = 0; which < CASES; which++) {
        begin();
        struct policy policy;
        bare_policy_init(&policy, which == NOT_PLAIN ? WEIR_LEAKY_BUCKET : WEIR_FIXED_WINDOW, 100);
        policy.id = 8 + 3;
        policy.fine_clock = which == FINE;
        policy.mode = which == SHADOW ? WEIR_SHADOW : WEIR_ENFORCE;
        struct policy_set *set = bare_set_of(&policy);
        reference_set(&set->overrides, which == ENTRIES ? set + 1 : NULL);
        const uint32_t epoch = which == ASLEEP ? EPOCH_ASLEEP : 6;
        const struct policy_snapshot snapshot = policy_snapshot_of(d.t->process, &policy, BARE_NOW_NS);
        policy_snapshot_keep(d.t, set, &snapshot, epoch);
        const struct policy_snapshot *place = policy_snapshot_place(d.t, 3);
        assert_ptr_equal(place, &d.t->snapshots[3]);
        const bool kept = which == KEPT || which == SHADOW;
        assert_int_equal(place->epoch, kept ? 6 : 0);
        assert_int_equal(place->id, kept ? 11 : 0);
        const struct policy_queue queue = {.mix = 77, .epoch = 1, .id = 11};
        policy_queue_keep(d.t, set, &policy, &queue, epoch);
        struct policy_queue *queue_place = policy_queue_place(d.t, 3);
        assert_ptr_equal(queue_place, &d.t->queues[3]);
        const bool queue_kept = which == KEPT || which == NOT_PLAIN || which == FINE;
        assert_int_equal(queue_place->epoch, queue_kept ? 6 : 0);
        assert_int_equal(queue_place->mix, queue_kept ? 77 : 0);
        /* A handle that is attached anew has none. */
        d.t->snapshots[7].epoch = d.t->queues[7].epoch = d.t->snapshots[0].epoch = 6;
        policy_snapshot_drop(d.t);
        for (size_t i = 0; i < POLICY_SNAPSHOTS_KEPT; i++) {
            assert_int_equal(d.t->snapshots[i].epoch, 0);
            assert_int_equal(d.t->queues[i].epoch, 0);
        }
        free(set);
        end();
    }
}

static void test_a_handle_drops_the_epochs_of_its_snapshots_and_nothing_else(void **state)
{
    (void) state;
    begin();
    struct weir_thread *t = d.t;
    unsigned char *const first = (unsigned char *) t->snapshots;
    const unsigned char *const last = (unsigned char *) (t->queues + POLICY_SNAPSHOTS_KEPT);
    const unsigned char *const all = (unsigned char *) t->slots + d.limiter->thread_size;
    const size_t size = (size_t) (last - first);
    const size_t more = size + sizeof(struct policy_queue); /* what lies behind */
    assert_true(first + more <= all);
    memset(first, 0x55, more);
    policy_snapshot_drop(t);
    for (size_t i = 0; i < POLICY_SNAPSHOTS_KEPT; i++) {
        assert_int_equal(t->snapshots[i].epoch, 0);
        assert_int_equal(t->queues[i].epoch, 0);
        t->snapshots[i].epoch = t->queues[i].epoch = UINT32_C(0x55555555);
    }
    for (size_t i = 0; i < more; i++) {
        assert_int_equal(first[i], 0x55);
    }
    memset(first, 0, more);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_and_epoch_move_together_when_a_tick_is_due),
        cmocka_unit_test(test_the_last_epoch_is_followed_by_the_first_and_never_by_sleep_or_none),
        cmocka_unit_test(test_no_epoch_begins_while_all_sleep_and_a_new_one_does_when_they_wake),
        cmocka_unit_test(test_fleet_time_goes_back_by_a_step_alone_and_each_change_ends_all_grants),
        cmocka_unit_test(test_a_thread_that_is_late_with_its_time_does_not_undo_a_step_back),
        cmocka_unit_test(test_the_age_of_the_fleets_news_is_that_at_the_tick),
        cmocka_unit_test(test_a_thread_decides_by_the_tick_and_looks_at_the_clock_now_and_then),
        cmocka_unit_test(test_a_snapshot_has_the_numbers_of_a_policy_with_one_limit_of_its_own),
        cmocka_unit_test(test_a_thread_caches_what_holds_for_all_keys_of_a_policy_in_an_epoch),
        cmocka_unit_test(test_a_handle_drops_the_epochs_of_its_snapshots_and_nothing_else),
    };
    return cmocka_run_group_tests_name("unit/thread/tick", tests, NULL, NULL);
}
