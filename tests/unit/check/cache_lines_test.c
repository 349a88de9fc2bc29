/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which cache lines a check writes. A hit, or a denial that is answered from the slot, writes its thread's slot and
 * its thread's tally. No other thread reads or writes these lines. The test compares all memory that a check could
 * write before and after: the clock stands still, so nothing else changes.
 *
 * Guards: src/check/check.c, src/thread/slot.h, src/check/verdict.h, src/thread/thread.c
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "limiter/weir_private.h"
#include "support/support.h"
#include "thread/limiter.h"
#include "thread/slot.h"

#define LINE    ((size_t) CACHE_LINE)
#define THREADS 3
#define CHECKS  1000

_Static_assert(_Alignof(struct slot) == CACHE_LINE && sizeof(struct slot) == CACHE_LINE, "a slot is a line");
_Static_assert(_Alignof(struct slot_account) == CACHE_LINE && sizeof(struct slot_account) % CACHE_LINE == 0,
               "whole lines");
_Static_assert(_Alignof(struct thread_shared) == CACHE_LINE && sizeof(struct thread_shared) % CACHE_LINE == 0,
               "what slow checks write of their thread is on lines of its own");
_Static_assert(_Alignof(struct tick_line) == CACHE_LINE && sizeof(struct tick_line) == CACHE_LINE,
               "what every check of every thread reads is a line of its own");

struct setup {
    struct fake_clock clock;
    weir *w;
    weir_thread *t[THREADS];
    weir_key hot, denied;
};

static void setup_open(struct setup *s)
{
    fake_clock_init(&s->clock, UINT64_C(1760000000) * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &s->clock.clock;
    options.max_keys = 1000;
    options.max_threads = THREADS;
    options.max_log_units = 1000;
    s->w = open_or_fail(&options);
    static const weir_limit wide = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 500000000, .period_ns = SECOND};
    static const weir_limit none = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 24 * HOUR};
    static const weir_policy policies[] = {{.name = "wide", .limits = &wide, .limit_count = 1},
                                           {.name = "none", .limits = &none, .limit_count = 1}};
    assert_int_equal(weir_set_policies(s->w, policies, 2, NULL), 0);
    s->hot = weir_make_key(s->w, weir_find_policy(s->w, "wide"), "hot", 3);
    s->denied = weir_make_key(s->w, weir_find_policy(s->w, "none"), "denied", 6);
    for (size_t i = 0; i < THREADS; i++) {
        s->t[i] = weir_attach(s->w);
        assert_non_null(s->t[i]);
        /* Checks until the thread has a grant that lasts, and a cached denial: one key after the other, since of two
         * with one place among the recent keys neither gets a slot. */
        for (int n = 0; n < 10 * CHECKS; n++) {
            (void) weir_check(s->t[i], &s->hot, 1, NULL);
        }
        for (int n = 0; n < 10 * CHECKS; n++) {
            (void) weir_check(s->t[i], &s->denied, 1, NULL);
        }
    }
}

/* Which lines of a piece of memory have changed, a byte for each line that the piece touches. */
struct copy {
    const unsigned char *memory;
    size_t size;
    unsigned char *before;
};

static void copy_take(struct copy *copy, const void *memory, size_t size)
{
    copy->memory = memory;
    copy->size = size;
    copy->before = malloc(size);
    assert_non_null(copy->before);
    memcpy(copy->before, memory, size);
}

struct lines {
    uintptr_t at[8];
    size_t count;
};

static void copy_compare(struct copy *copy, struct lines *written)
{
    uintptr_t last = 0;
    for (size_t i = 0; i < copy->size; i++) {
        const uintptr_t line = (uintptr_t) &copy->memory[i] / LINE;
        if (copy->memory[i] == copy->before[i] || line == last) {
            continue;
        }
        assert_in_range(written->count, 0, 7); /* that many lines, at most */
        written->at[written->count++] = last = line;
    }
    free(copy->before);
}

/* The lines that a check of one thread writes. */
static struct lines lines_of(const struct setup *s, size_t thread, const weir_key *key, bool allowed)
{
    const struct limiter *limiter = &s->w->limiter;
    const uint64_t slow = load_relaxed(&s->t[thread]->shared->slow_count);
    struct copy copies[5];
    copy_take(&copies[0], s->w, sizeof(*s->w));
    copy_take(&copies[1], limiter->memory, limiter->memory_size);
    copy_take(&copies[2], limiter->process.table.memory, limiter->process.table.memory_size);
    copy_take(&copies[3], limiter->process.top_denied.entries, limiter->process.top_denied.entries_size);
    copy_take(&copies[4], limiter->slots, limiter->slots_size);
    weir_verdict verdict;
    for (int n = 0; n < CHECKS; n++) {
        assert_int_equal(weir_check(s->t[thread], key, 1, &verdict), allowed);
    }
    assert_int_equal(load_relaxed(&s->t[thread]->shared->slow_count), slow); /* the checks were hits */
    struct lines written = {.count = 0};
    for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]); i++) {
        copy_compare(&copies[i], &written);
    }
    return written;
}

static bool within(uintptr_t line, const void *from, size_t size)
{
    return line >= (uintptr_t) from / LINE && line <= ((uintptr_t) from + size - 1) / LINE;
}

/* A thread's own memory that checks write, in whole lines. */
static bool is_own(const struct weir_thread *t, uintptr_t line)
{
    return within(line, t->slots, t->slot_count * sizeof(*t->slots)) ||
           within(line, t->tallies, (WEIR_MAX_POLICIES + 1) * sizeof(*t->tallies));
}

static void expect_own(const struct setup *s, size_t thread, const weir_key *key, bool allowed)
{
    const struct lines written = lines_of(s, thread, key, allowed);
    assert_in_range(written.count, 2, 3); /* a tally may lie on two */
    for (size_t i = 0; i < written.count; i++) {
        for (size_t other = 0; other < THREADS; other++) {
            assert_int_equal(is_own(s->t[other], written.at[i]), other == thread);
            assert_false(within(written.at[i], s->t[other]->shared, sizeof(*s->t[other]->shared)));
        }
        assert_false(within(written.at[i], &s->w->limiter, sizeof(s->w->limiter)));
    }
}

static void test_a_hit_writes_two_lines_of_its_thread_and_nothing_else(void **state)
{
    (void) state;
    struct setup s;
    setup_open(&s);
    for (size_t i = 0; i < THREADS; i++) {
        expect_own(&s, i, &s.hot, true);
    }
    weir_close(s.w);
}

static void test_a_denial_writes_two_lines_of_its_thread_and_nothing_else(void **state)
{
    (void) state;
    struct setup s;
    setup_open(&s);
    for (size_t i = 0; i < THREADS; i++) {
        expect_own(&s, i, &s.denied, false);
    }
    weir_close(s.w);
}

static void test_what_checks_write_begins_on_a_line_of_its_own(void **state)
{
    (void) state;
    struct setup s;
    setup_open(&s);
    assert_int_equal((uintptr_t) &s.w->limiter.shared->line % LINE, 0);
    for (size_t i = 0; i < THREADS; i++) {
        const weir_thread *t = s.t[i];
        assert_int_equal((uintptr_t) t->shared % LINE, 0);
        assert_int_equal((uintptr_t) t->slots % LINE, 0);
        assert_int_equal((uintptr_t) t->accounts % LINE, 0);
        assert_int_equal((uintptr_t) t->tallies % LINE, 0);
        assert_int_equal((uintptr_t) t->recent_keys % LINE, 0);
        assert_int_equal((uintptr_t) t->fingerprints % LINE, 0);
        assert_int_equal((uintptr_t) t->set_busy_epochs % LINE, 0);
        assert_int_equal((uintptr_t) t->snapshots % LINE, 0);
    }
    weir_close(s.w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_hit_writes_two_lines_of_its_thread_and_nothing_else),
        cmocka_unit_test(test_a_denial_writes_two_lines_of_its_thread_and_nothing_else),
        cmocka_unit_test(test_what_checks_write_begins_on_a_line_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
