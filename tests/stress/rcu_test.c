/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Read sections: what is read in one is not taken away before the section ends, by a thread with a handle and by a
 * caller without one, with the asymmetric barrier and without.
 *
 * Guards: src/thread/rcu.c, src/thread/rcu.h
 */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "limiter/weir_private.h"
#include "support/support.h"
#include "thread/rcu.h"
#include "thread/rcu_lane.h"

#define READERS  4 /* every other one has a handle */
#define CHANGES  20000
#define LOOKS    20          /* in a section */
#define A_MOMENT MILLISECOND /* of a processor: some thousand looks */

/* What is published. Only a box that was taken away has two different numbers. */
struct box {
    _Atomic uint64_t number, same;
};

struct boxes {
    weir *w;
    struct box boxes[CHANGES + 1]; /* one after the other in force */
    _Atomic(struct box *) published;
    _Atomic uint64_t readers, reads[READERS];
    _Atomic uint32_t stop, broken;
};

static void boxes_open(struct boxes *b, bool grants)
{
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = READERS + 1;
    options.no_thread = true;
    *b = (struct boxes){.w = open_or_fail(&options)};
    b->w->limiter.grants = b->w->limiter.grants && grants;
}

/* Reads the box in force some times, in a section that is open. */
static void look(struct boxes *b)
{
    struct box *box = load_acquire(&b->published); /* pairs with publish() */
    for (int i = 0; i < LOOKS; i++) {
        /* Relaxed: the numbers of a box in force do not change. */
        if (load_relaxed(&box->number) != load_relaxed(&box->same)) {
            store_relaxed(&b->broken, 1);
        }
    }
}

static void *read_with_handle(void *arg)
{
    struct boxes *b = arg;
    weir_thread *t = weir_attach(b->w);
    _Atomic uint64_t *reads = &b->reads[add_relaxed(&b->readers, 1)];
    while (load_relaxed(&b->stop) == 0) {
        rcu_enter(t);
        look(b);
        rcu_enter(t); /* one within the other */
        rcu_leave(t);
        look(b);
        rcu_leave(t);
        counter_add(reads, 1);
        (void) sched_yield(); /* there are more threads than processors: most wait outside of a section */
    }
    weir_detach(t);
    return NULL;
}

static void *read_in_lane(void *arg)
{
    struct boxes *b = arg;
    _Atomic uint64_t *reads = &b->reads[add_relaxed(&b->readers, 1)];
    while (load_relaxed(&b->stop) == 0) {
        const unsigned lane = rcu_enter_lane(&b->w->limiter);
        look(b);
        rcu_leave_lane(&b->w->limiter, lane);
        counter_add(reads, 1);
        (void) sched_yield();
    }
    return NULL;
}

/* Puts the next box in force; takes the one before away when nobody reads it. */
static void publish(struct boxes *b, uint64_t number)
{
    struct box *old = load_relaxed(&b->published);   /* one writer */
    store_release(&b->published, &b->boxes[number]); /* pairs with look() */
    rcu_synchronize(&b->w->limiter);
    store_relaxed(&old->number, UINT64_MAX);
    (void) sched_yield();
}

static void wait_until_read(const struct boxes *b)
{
    for (int i = 0; i < READERS; i++) {
        while (load_relaxed(&b->reads[i]) == 0) {
            (void) sched_yield();
        }
    }
}

static void change_while_others_read(bool grants)
{
    static struct boxes b; /* of threads, also where the test fails */
    boxes_open(&b, grants);
    store_release(&b.published, &b.boxes[0]);
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, i % 2 == 0 ? read_with_handle : read_in_lane, &b), 0);
    }
    wait_until_read(&b);
    for (uint64_t i = 1; i <= CHANGES; i++) {
        publish(&b, i);
    }
    store_relaxed(&b.stop, 1);
    for (int i = 0; i < READERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_int_equal(load_relaxed(&b.broken), 0);
    weir_close(b.w);
}

static void test_what_is_read_is_not_taken_away(void **state)
{
    (void) state;
    change_while_others_read(true);
}

static void test_nor_where_there_is_no_asymmetric_barrier(void **state)
{
    (void) state;
    change_while_others_read(false);
}

/* A thread that waits for readers, and whether it still does. */
struct waiter {
    struct limiter *limiter;
    _Atomic uint32_t done;
    pthread_t thread;
};

static void *wait_for_readers(void *arg)
{
    struct waiter *waiter = arg;
    rcu_synchronize(waiter->limiter);
    store_release(&waiter->done, 1);
    return NULL;
}

/* For how long a thread has had a processor. One that has ended has had it for ever. */
static uint64_t processor_ns(clockid_t clock)
{
    struct timespec had;
    return clock_gettime(clock, &had) == 0 ? (uint64_t) had.tv_sec * SECOND + (uint64_t) had.tv_nsec : UINT64_MAX;
}

/* Lets a waiter look for a moment, however long other programs have the processors. */
static void waiter_looks(const struct waiter *waiter)
{
    const uint64_t until_ns = real_ns() + 60 * SECOND;
    clockid_t clock;
    assert_int_equal(pthread_getcpuclockid(waiter->thread, &clock), 0);
    for (const uint64_t had_ns = processor_ns(clock); processor_ns(clock) < had_ns + A_MOMENT;) {
        assert_true(real_ns() < until_ns);
        (void) sched_yield();
    }
}

static void waiter_start(struct waiter *waiter, struct limiter *limiter)
{
    *waiter = (struct waiter){.limiter = limiter};
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_for_readers, waiter), 0);
    waiter_looks(waiter);
}

static void waiter_expect(struct waiter *waiter, bool done)
{
    if (done) {
        assert_int_equal(pthread_join(waiter->thread, NULL), 0);
    }
    assert_int_equal(load_acquire(&waiter->done), done);
}

static void test_a_section_ends_with_the_outermost_one(void **state)
{
    (void) state;
    static struct boxes b;
    boxes_open(&b, true);
    weir_thread *t = weir_attach(b.w);
    struct waiter waiter;
    rcu_enter(t);
    rcu_enter(t);
    waiter_start(&waiter, &b.w->limiter);
    waiter_expect(&waiter, false);
    rcu_leave(t);
    waiter_looks(&waiter);
    waiter_expect(&waiter, false);
    rcu_leave(t);
    waiter_expect(&waiter, true);
    weir_close(b.w);
}

/* Readers of both phases are waited for, and several callers that wait do not spoil each other's phases. */
static void test_callers_without_a_handle_are_waited_for(void **state)
{
    (void) state;
    static struct boxes b;
    boxes_open(&b, true);
    struct limiter *limiter = &b.w->limiter;
    for (unsigned phase = 0; phase < 2; phase++) {
        store_relaxed(&limiter->shared->rcu.phase, phase);
        const unsigned lane = rcu_enter_lane(limiter);
        struct waiter waiters[2];
        waiter_start(&waiters[0], limiter);
        waiter_start(&waiters[1], limiter);
        waiter_expect(&waiters[0], false);
        waiter_expect(&waiters[1], false);
        rcu_leave_lane(limiter, lane);
        waiter_expect(&waiters[0], true);
        waiter_expect(&waiters[1], true);
    }
    /* A reader that found the phase long ago. */
    const unsigned late = rcu_enter_lane(limiter);
    store_relaxed(&limiter->shared->rcu.phase, load_relaxed(&limiter->shared->rcu.phase) ^ 1);
    struct waiter waiter;
    waiter_start(&waiter, limiter);
    waiter_expect(&waiter, false);
    rcu_leave_lane(limiter, late);
    waiter_expect(&waiter, true);
    weir_close(b.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_read_is_not_taken_away),
        cmocka_unit_test(test_nor_where_there_is_no_asymmetric_barrier),
        cmocka_unit_test(test_a_section_ends_with_the_outermost_one),
        cmocka_unit_test(test_callers_without_a_handle_are_waited_for),
    };
    return cmocka_run_group_tests_name("stress/rcu", tests, NULL, NULL);
}
