/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slot answers as the table would: with the same limit, rule and remaining units. The answer counts for its policy.
 * Time stands still, so that a grant lasts until it is used up.
 *
 * Guards: src/thread/slot.c, src/thread/settle.c, src/thread/settle_pass.c, src/check/slot_learn.c,
 * src/check/renew_grant.c, src/check/verdict.h, src/check/check.c, src/base/barrier.c
 */
#include <stdio.h>

#include "algorithm/history.h"
#include "limiter/weir_private.h"
#include "support/support.h"
#include "thread/limiter.h"
#include "thread/settle_pass.h"
#include "thread/slot.h"
#include "thread/tick.h"

#define LIMIT 3000

static struct {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
} d;

/* The slot of which a grant is being taken back, and how often its thread has been told before it was settled. */
static struct {
    const struct slot *slot;
    const struct slot_account *account;
    unsigned told;
} taken;

/* The linker's --wrap leads the call here (tests/meson.build). */
void __real_barrier_all_threads(enum barrier_reach reach);
void __wrap_barrier_all_threads(enum barrier_reach reach);

void __wrap_barrier_all_threads(enum barrier_reach reach)
{
    if (taken.slot != NULL) {
        assert_int_equal(load_relaxed(&taken.slot->grant), 0);
        assert_int_not_equal(load_relaxed(&taken.account->granted), 0);
        assert_int_not_equal(load_relaxed(&taken.account->lock), 0);
        taken.told++;
    }
    __real_barrier_all_threads(reach);
}

/* `max_keys`: 0 for as many as there are by default. */
static void begin_sized(const weir_policy *policies, size_t count, uint32_t threads, size_t max_keys)
{
    fake_clock_init(&d.clock, 1760000000 * SECOND + 1);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    options.max_threads = threads;
    options.max_keys = max_keys;
    d.w = open_or_fail(&options);
    d.t = weir_attach(d.w);
    assert_int_equal(weir_set_policies(d.w, policies, count, NULL), 0);
}

static void begin_with(const weir_policy *policies, size_t count, uint32_t threads)
{
    begin_sized(policies, count, threads, 0);
}

static void begin(const weir_policy *policies, size_t count)
{
    begin_with(policies, count, 1);
}

static void end(void)
{
    weir_detach(d.t);
    weir_close(d.w);
}

/* The number of slow checks; slots have answered the others. */
static uint64_t slow_count(void)
{
    return load_relaxed(&d.t->shared->slow_count);
}

static void test_verdicts_name_the_limit_with_the_least_left(void **state)
{
    (void) state;
    for (uint8_t least = 0; least < WEIR_MAX_LIMITS; least++) {
        weir_limit limits[WEIR_MAX_LIMITS];
        for (uint8_t i = 0; i < WEIR_MAX_LIMITS; i++) {
            const uint64_t limit = i == least ? LIMIT : LIMIT + 1000 * ((uint64_t) i + 1);
            limits[i] = (weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = limit, .period_ns = (i + 1) * HOUR};
        }
        const weir_policy policy = {.name = "p", .limits = limits, .limit_count = WEIR_MAX_LIMITS};
        begin(&policy, 1);
        const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), "k", 1);
        for (uint64_t demand = 1; demand <= 2 * LIMIT; demand++) {
            weir_verdict v = {.key_index = 9, .would_deny = true};
            assert_int_equal(weir_check(d.t, &key, 1, &v), demand <= LIMIT);
            assert_int_equal(v.allowed, demand <= LIMIT);
            assert_int_equal(v.would_deny, false);
            assert_int_equal(v.limit_index, least);
            assert_int_equal(v.key_index, 0);
            assert_int_equal(v.basis, WEIR_BASIS_PROCESS);
            assert_int_equal(v.limit, LIMIT);
            assert_int_equal(v.remaining, demand <= LIMIT ? LIMIT - demand : 0);
            assert_int_equal(v.retry_after_ns != 0, demand > LIMIT);
        }
        assert_true(slow_count() < LIMIT / 10);
        end();
    }
}

static void test_a_denial_of_a_cost_is_no_denial_of_a_smaller_one(void **state)
{
    (void) state;
    static const uint64_t costs[] = {6,
                                     UINT64_C(1) << 29,
                                     (UINT64_C(1) << 30) - 1,
                                     UINT64_C(1) << 30,
                                     (UINT64_C(1) << 30) + 5,
                                     (UINT64_C(1) << 32) + 5,
                                     (UINT64_C(1) << 34) + 5};
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = UINT64_C(1) << 40, .period_ns = HOUR};
    for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++) {
        begin(&(weir_policy){.name = "p", .limits = &limit, .limit_count = 1}, 1);
        const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), "k", 1);
        weir_charge(d.t, &key, limit.limit - 5);
        for (int n = 0; n < 5; n++) {
            assert_false(weir_check(d.t, &key, costs[i], NULL));
            weir_verdict v;
            assert_false(weir_check(d.t, &key, costs[i], &v));
            assert_int_equal(v.remaining, 5);
        }
        assert_true(weir_check(d.t, &key, 5, NULL));
        assert_false(weir_check(d.t, &key, 1, NULL));
        end();
    }
}

static void test_a_denial_says_what_the_table_would(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_SLIDING_LOG,
                                                WEIR_TOKEN_BUCKET, WEIR_LEAKY_BUCKET};
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        const weir_limit limit = {.algorithm = algorithms[i], .limit = 100, .period_ns = HOUR};
        begin(&(weir_policy){.name = "p", .limits = &limit, .limit_count = 1}, 1);
        const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), "k", 1);
        while (weir_check(d.t, &key, 1, NULL)) {
        }
        weir_verdict table;
        assert_false(weir_peek(d.t, &key, 1, &table));
        assert_false(weir_check(d.t, &key, 1, NULL)); /* the table answers, as a peek leaves no cached denial */
        const uint64_t slow = slow_count();
        for (int n = 0; n < 3; n++) {
            weir_verdict v;
            assert_false(weir_check(d.t, &key, 1, &v));
            assert_int_equal(v.limit, table.limit);
            assert_int_equal(v.remaining, table.remaining);
            assert_int_equal(v.retry_after_ns, table.retry_after_ns);
            assert_int_equal(v.reset_after_ns, table.reset_after_ns);
            assert_true(algorithms[i] != WEIR_TOKEN_BUCKET || v.reset_after_ns > 90 * v.retry_after_ns);
        }
        assert_int_equal(slow_count(), slow);
        end();
    }
}

static void test_every_policy_is_counted_by_itself(void **state)
{
    (void) state;
    enum { POLICIES = WEIR_MAX_POLICIES };
    static char names[POLICIES][8];
    static weir_limit limits[POLICIES];
    static weir_policy policies[POLICIES];
    for (size_t i = 0; i < POLICIES; i++) {
        (void) snprintf(names[i], sizeof(names[i]), "p%zu", i);
        limits[i] = (weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 20 + i % 7, .period_ns = HOUR};
        policies[i] = (weir_policy){
            .name = names[i], .limits = &limits[i], .limit_count = 1, .mode = i % 5 == 0 ? WEIR_SHADOW : WEIR_ENFORCE};
    }
    begin(policies, POLICIES);
    for (size_t i = 0; i < POLICIES; i++) {
        const weir_policy_id id = weir_find_policy(d.w, names[i]);
        const weir_key key = weir_make_key(d.w, id, "k", 1);
        for (int n = 0; n < 50; n++) {
            (void) weir_check(d.t, &key, 1, NULL);
        }
        const struct tally *tally = &d.t->tallies[id];
        const uint64_t denied = 50 - limits[i].limit;
        const bool shadow = policies[i].mode == WEIR_SHADOW;
        assert_int_equal(tally->allowed, shadow ? 50 : limits[i].limit);
        assert_int_equal(tally->denied, shadow ? 0 : denied);
        assert_int_equal(tally->would_deny, shadow ? denied : 0);
    }
    weir_stats stats;
    weir_get_stats(d.w, &stats);
    assert_int_equal(stats.allowed_count + stats.denied_count, 50 * POLICIES);
    end();
}

/* The slot with a thread's grant of a key. SLOT_NONE: the key has none. */
static size_t slot_of(const weir_key *key)
{
    const size_t index = slot_find(d.t, key->hash);
    return index != SLOT_NONE && load_relaxed(&d.t->accounts[index].granted) != 0 ? index : SLOT_NONE;
}

/* Settling goes through slots by words of 64, and leaves out words of which no slot was ever used. */
static void test_the_first_slot_behind_a_word_without_any_is_settled(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    size_t index = SLOT_NONE;
    for (uint64_t name = 0; index == SLOT_NONE; name++) {
        assert_true(name < 10000);
        begin(&policy, 1);
        const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), &name, sizeof(name));
        for (int times = 0; times < 10; times++) {
            assert_true(weir_check(d.t, &key, 1, NULL));
        }
        index = slot_of(&key);
        if (index == SLOT_NONE || index % 64 != 0 || index == 0) {
            index = SLOT_NONE;
            end();
        }
    }
    const struct slot_account *refunds = &d.t->accounts[index];
    assert_true(load_relaxed(&refunds->accounted) < load_relaxed(&d.t->slots[index].used));
    fake_clock_advance(&d.clock, SECOND);
    assert_true(weir_poll(d.w) >= 0);
    assert_int_equal(load_relaxed(&refunds->accounted), load_relaxed(&d.t->slots[index].used));
    assert_int_equal(load_relaxed(&refunds->granted), 0);
    end();
}

/* weir_poll looks for the first slot that has lapsed, and settles from there on. */
static void test_all_slots_of_all_threads_are_settled_when_time_moves(void **state)
{
    (void) state;
    enum { KEYS = 100 };
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    begin_with(&policy, 1, 3);
    weir_thread *threads[] = {d.t, weir_attach(d.w), weir_attach(d.w)};
    /* The first thread has nothing to settle. */
    for (uint64_t i = 0; i < 10 * KEYS; i++) {
        const uint64_t name = i / 10;
        const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), &name, sizeof(name));
        assert_true(weir_check(threads[1 + name % 2], &key, 1, NULL));
    }
    struct settle_place first;
    assert_false(settle_find_lapsed(&d.w->limiter, &first)); /* all grants are live */
    size_t slots = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t thread = 1; thread < 3; thread++) {
            for (size_t i = 0; i < threads[thread]->slot_count; i++) {
                const struct slot_account *account = &threads[thread]->accounts[i];
                assert_true(pass == 0 || load_relaxed(&account->granted) == 0);
                slots += pass == 0 && load_relaxed(&account->granted) != 0;
            }
        }
        assert_true(slots > 10);
        fake_clock_advance(&d.clock, SECOND);
        assert_true(weir_poll(d.w) >= 0);
        assert_false(settle_find_lapsed(&d.w->limiter, &first));
    }
    weir_detach(threads[2]);
    weir_detach(threads[1]);
    end();
}

/* The first slot of a thread with units of a grant; slot_count: there is none. */
static size_t first_granted(const weir_thread *t)
{
    size_t i = 0;
    while (i < t->slot_count && load_relaxed(&t->accounts[i].granted) == 0) {
        i++;
    }
    return i;
}

static void be_granted(weir_thread *t, uint64_t name)
{
    const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), &name, sizeof(name));
    for (int i = 0; i < 10; i++) {
        assert_true(weir_check(t, &key, 1, NULL));
    }
}

/* The first slot that has lapsed stands behind slots of the next thread that have lapsed as well. */
static void test_a_slot_before_the_place_of_another_threads_first_one_is_settled(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    bool behind = false;
    for (uint64_t first = 0; first < 100 && !behind; first++) {
        begin_with(&policy, 1, 2);
        weir_thread *next = weir_attach(d.w);
        assert_true(weir_poll(d.w) >= 0);
        be_granted(d.t, first);
        for (uint64_t name = 1000; name < 1100; name++) {
            be_granted(next, name);
        }
        behind = first_granted(d.t) < d.t->slot_count && first_granted(next) < first_granted(d.t);
        fake_clock_advance(&d.clock, 2 * MILLISECOND); /* a tick, and no further settling, which comes by time */
        assert_true(weir_poll(d.w) >= 0);
        assert_int_equal(first_granted(d.t), d.t->slot_count);
        assert_int_equal(first_granted(next), next->slot_count);
        weir_detach(next);
        end();
    }
    assert_true(behind);
}

/* Slots with units of a grant. */
static size_t count_granted(weir_thread *const *threads, size_t count)
{
    size_t granted = 0;
    for (size_t thread = 0; thread < count; thread++) {
        for (size_t i = 0; i < threads[thread]->slot_count; i++) {
            granted += load_relaxed(&threads[thread]->accounts[i].granted) != 0;
        }
    }
    return granted;
}

/* What the background thread does at a time is bounded, and a pass has about as many pieces however much there is. */
static void test_a_pass_settles_all_slots_by_pieces(void **state)
{
    (void) state;
    enum { THREADS = 64, KEYS = 100000, BATCH = 256, PIECES = 16, LOOK = 2048 };
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    begin_sized(&policy, 1, THREADS, 300000); /* so that all threads have all the slots that they may */
    weir_thread *threads[THREADS] = {d.t};
    for (size_t i = 1; i < THREADS; i++) {
        threads[i] = weir_attach(d.w);
    }
    struct limiter *limiter = &d.w->limiter;
    const size_t slots = THREADS * d.t->slot_count;
    struct settle_pass pass = {.slots = 0};
    size_t before = 0; /* settled by the pass before */
    for (int round = 0; round < 3; round++) {
        const uint64_t keys = round == 2 ? 5 : KEYS; /* in the last one the pieces have room for more than there is */
        for (uint64_t name = 0; name < keys; name++) {
            be_granted(threads[name % THREADS == 1 ? 2 : name % THREADS], name); /* the second one has nothing */
        }
        const size_t granted = count_granted(threads, THREADS);
        assert_true(round == 2 ? granted > 0 : granted > PIECES * BATCH);
        tick_epoch(limiter);
        const size_t most = BATCH * (1 + before / (PIECES * BATCH));
        const size_t look = slots / PIECES > LOOK ? slots / PIECES : LOOK;
        size_t left = granted;
        size_t pieces = 0;
        for (bool ended = false; !ended; pieces++) {
            ended = settle_piece(limiter, &pass);
            const size_t now_left = count_granted(threads, THREADS);
            assert_in_range(left - now_left, 0, most);
            left = now_left;
        }
        assert_int_equal(left, 0);
        assert_true(settle_pass_begins(&pass));
        assert_true(pieces >= (granted + most - 1) / most && pieces >= slots / look);
        assert_true(pieces <= granted / most + slots / look + 1);
        assert_true(round == 0 || pieces <= 2 * PIECES + 1);
        before = granted;
    }
    for (size_t i = 1; i < THREADS; i++) {
        weir_detach(threads[i]);
    }
    end();
}

/* Slots of a thread, from one on, with units of a grant. */
static size_t granted_from(const weir_thread *t, size_t first)
{
    size_t granted = 0;
    for (size_t i = first; i < t->slot_count; i++) {
        granted += load_relaxed(&t->accounts[i].granted) != 0;
    }
    return granted;
}

/* A piece that begins and ends amid words of 64 slots looks at no slot behind its end. */
static void test_a_piece_ends_where_it_is_to_end(void **state)
{
    (void) state;
    enum { THREADS = 4, LOOK = 2048 };
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    begin_with(&policy, 1, THREADS);
    weir_thread *threads[THREADS] = {d.t};
    for (size_t i = 1; i < THREADS; i++) {
        threads[i] = weir_attach(d.w);
    }
    assert_int_equal(d.t->slot_count, 1024);
    for (size_t first = 1; first < 1000; first += 7) {
        for (uint64_t name = 0; name < 400; name++) { /* far fewer than slots: there are gaps before the end */
            be_granted(threads[name % THREADS], name);
        }
        tick_epoch(&d.w->limiter);
        const size_t behind = granted_from(threads[2], first);
        struct settle_pass pass = {.at = {0, first}, .settled_before = 1000000};
        assert_false(settle_piece(&d.w->limiter, &pass));
        assert_int_equal(pass.at.thread * d.t->slot_count + pass.at.slot, first + LOOK);
        assert_int_equal(granted_from(threads[2], first), behind);
        assert_int_equal(settle_lapsed(&d.w->limiter), 0);
    }
    for (size_t i = 1; i < THREADS; i++) {
        weir_detach(threads[i]);
    }
    end();
}

/* A piece looks at a sixteenth of all slots, and at 2,048 at least; not at a handle that nobody has ever had. */
static void test_a_pass_ends_with_the_last_handle_that_was_ever_attached(void **state)
{
    (void) state;
    static const struct {
        uint32_t threads;
        unsigned pieces;
    } rows[] = {{1, 1}, {2, 1}, {3, 2}, {32, 16}, {33, 16}, {40, 16}};
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        begin_sized(&policy, 1, rows[i].threads + 1, 300000);
        for (uint32_t n = 1; n < rows[i].threads; n++) {
            assert_non_null(weir_attach(d.w));
        }
        assert_int_equal(d.t->slot_count, 1024);
        struct settle_pass pass = {.slots = 0};
        for (int pass_number = 0; pass_number < 2; pass_number++) {
            for (unsigned piece = 1; piece <= rows[i].pieces; piece++) {
                assert_int_equal(settle_piece(&d.w->limiter, &pass), piece == rows[i].pieces);
            }
            assert_true(settle_pass_begins(&pass));
        }
        weir_close(d.w);
    }
}

/* Epochs are few bits and come again. The units of a settled grant are others' by then. */
static void test_a_settled_grant_answers_nothing_when_its_epoch_comes_again(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    begin(&policy, 1);
    struct limiter *limiter = &d.w->limiter;
    be_granted(d.t, 1);
    assert_int_equal(count_granted(&d.t, 1), 1);
    const uint32_t epoch = load_relaxed(&limiter->shared->line.epoch);
    tick_epoch(limiter);
    assert_int_equal(settle_lapsed(limiter), 0);
    assert_int_equal(count_granted(&d.t, 1), 0);
    store_relaxed(&limiter->shared->line.epoch, epoch);
    const uint64_t slow = slow_count();
    const uint64_t name = 1;
    const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), &name, sizeof(name));
    assert_true(weir_check(d.t, &key, 1, NULL));
    assert_int_equal(slow_count(), slow + 1);
    end();
}

static void test_what_a_thread_was_granted_by_one_tier_it_can_spend_by_another(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR};
    const weir_policy policies[] = {
        {.name = "p/free", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS},
        {.name = "p/pro", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS},
    };
    begin(policies, 2);
    const weir_key pro = weir_make_key(d.w, weir_find_policy(d.w, "p/pro"), "key", 3);
    const weir_key free_key = weir_make_key(d.w, weir_find_policy(d.w, "p/free"), "key", 3);
    uint64_t used = 0;
    for (int times = 0; times < 10; times++) {
        used += weir_check(d.t, &pro, 1, NULL);
    }
    assert_int_equal(used, 10);
    assert_int_not_equal(slot_of(&pro), SLOT_NONE);
    assert_true(weir_check(d.t, &free_key, LIMIT - used, NULL));
    assert_false(weir_check(d.t, &free_key, 1, NULL));
    assert_false(weir_check(d.t, &pro, 1, NULL));
    end();
}

/* A thread with a clock that goes on between ticks, as the system's clock does. */
static void test_units_of_a_grant_are_no_earlier_in_a_log_than_they_passed(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = LIMIT, .period_ns = SECOND};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    begin(&policy, 1);
    struct limiter *limiter = &d.w->limiter;
    const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), "key", 3);
    for (int times = 0; times < 10; times++) {
        assert_true(weir_check(d.t, &key, 1, NULL));
    }
    const size_t index = slot_of(&key);
    assert_int_not_equal(index, SLOT_NONE);
    limiter->host_time = false;
    fake_clock_advance(&d.clock, 7 * MILLISECOND);
    const uint64_t slow = slow_count();
    assert_true(weir_check(d.t, &key, 1, NULL)); /* the check uses the grant */
    assert_int_equal(slow_count(), slow);
    const uint64_t passed_ns =
        d.clock.clock.monotonic_ns(d.clock.clock.arg) + load_relaxed(&limiter->shared->line.offset_ns);
    assert_true(d.t->accounts[index].granted_ns < passed_ns);
    tick_epoch(limiter);
    assert_int_equal(settle_lapsed(limiter), 0);
    const uint32_t at = d.t->accounts[index].cells[0];
    history_store_lock(&limiter->process, at);
    struct history *log = history_store_get(&limiter->process, at);
    assert_non_null(log);
    assert_int_equal(log->end - log->first, 11);
    assert_int_equal(*history_time(log, log->end - 1), passed_ns);
    history_store_unlock(&limiter->process, at);
    limiter->host_time = true;
    end();
}

/* A check that was under way while another thread took its grant back. */
static void test_units_beyond_a_grant_are_late_whoever_accounts_for_them(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    for (int by_owner = 0; by_owner < 2; by_owner++) {
        begin(&policy, 1);
        const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), "key", 3);
        for (int times = 0; times < 10; times++) {
            assert_true(weir_check(d.t, &key, 1, NULL));
        }
        const size_t index = slot_of(&key);
        assert_int_not_equal(index, SLOT_NONE);
        struct slot *slot = &d.t->slots[index];
        const uint64_t passed =
            load_relaxed(&slot->used) - load_relaxed(&d.t->accounts[index].accounted); /* within the grant */
        const uint64_t granted = load_relaxed(&d.t->accounts[index].granted);
        assert_in_range(passed, 0, granted);
        store_relaxed(&slot->used, load_relaxed(&slot->used) + granted - passed + 3);
        store_relaxed(&slot->grant, 0);
        if (by_owner == 0) {
            tick_epoch(&d.w->limiter);
            assert_int_equal(settle_lapsed(&d.w->limiter), 0);
        } else {
            assert_true(weir_check(d.t, &key, 1, NULL));
        }
        weir_stats stats;
        weir_get_stats(d.w, &stats);
        assert_int_equal(stats.late_units, 3);
        assert_true(weir_check(d.t, &key, LIMIT - (10 + granted - passed + 3) - (by_owner != 0), NULL));
        assert_false(weir_check(d.t, &key, 1, NULL));
        end();
    }
}

/* To take a grant back costs its thread a slow check. What the slot has denied can wait. */
static void test_denials_of_a_slot_with_a_live_grant_wait_until_it_lapses(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR};
    begin(&(weir_policy){.name = "p", .limits = &limit, .limit_count = 1}, 1);
    const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), "k", 1);
    for (int times = 0; times < 20; times++) {
        assert_true(weir_check(d.t, &key, 1, NULL));
    }
    const size_t index = slot_of(&key);
    const struct slot *slot = &d.t->slots[index];
    struct slot_account *account = &d.t->accounts[index];
    const uint64_t grant = load_relaxed(&slot->grant);
    const uint64_t granted = load_relaxed(&account->granted);
    assert_true(slot_covering(d.t, key.hash, 1) != NULL && granted != 0);
    store_relaxed(&account->denied, load_relaxed(&account->denied) + 3);
    assert_int_equal(settle_lapsed(&d.w->limiter), 0);
    assert_int_equal(load_relaxed(&slot->grant), grant);
    assert_int_equal(load_relaxed(&account->granted), granted);
    assert_int_equal(load_relaxed(&account->lock), 0);
    assert_int_equal(load_relaxed(&account->denied) - load_relaxed(&account->denied_counted), 3);
    tick_epoch(&d.w->limiter);
    taken.slot = slot;
    taken.account = account;
    taken.told = 0;
    assert_int_equal(settle_lapsed(&d.w->limiter), 0);
    taken.slot = NULL;
    assert_int_equal(taken.told, 1);
    assert_int_equal(load_relaxed(&account->granted), 0);
    assert_int_equal(load_relaxed(&account->lock), 0);
    assert_int_equal(load_relaxed(&account->denied_counted), load_relaxed(&account->denied));
    while (slot_covering(d.t, key.hash, 1) == NULL) {
        assert_true(weir_check(d.t, &key, 1, NULL));
    }
    taken.slot = slot;
    assert_int_equal(weir_reset(d.w, &key), 0);
    taken.slot = NULL;
    assert_int_equal(taken.told, 2);
    assert_int_equal(load_relaxed(&account->granted), 0);
    end();
}

/* The counts once what slots have counted is settled and collected. */
static weir_stats collected(void)
{
    weir_stats stats;
    weir_detach(d.t);
    d.t = weir_attach(d.w);
    for (int i = 0; i < 10; i++) {
        fake_clock_advance(&d.clock, 100 * MILLISECOND);
        assert_true(weir_poll(d.w) >= 0);
    }
    weir_get_stats(d.w, &stats);
    return stats;
}

/* A cost that no slot has room for in its words is denied by the table alone. */
static void test_denied_units_of_a_great_cost_are_counted_beside_those_of_a_slot(void **state)
{
    (void) state;
    const uint64_t great = (UINT64_C(1) << 30) + 5;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = UINT64_C(1) << 40, .period_ns = 24 * HOUR};
    begin(&(weir_policy){.name = "p", .limits = &limit, .limit_count = 1}, 1);
    const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), "k", 1);
    weir_charge(d.t, &key, limit.limit - 5);
    uint64_t denied = 0;
    for (uint64_t cycle = 0; cycle < 8; cycle++) {
        const uint64_t costs[] = {6, 6, cycle % 2 == 0 ? great : 6, cycle % 4 < 2 ? limit.limit + 1 : 6, 6, 7};
        for (size_t i = 0; i < sizeof(costs) / sizeof(costs[0]); i++) {
            weir_verdict v;
            assert_false(weir_check(d.t, &key, costs[i], &v));
            denied += costs[i] <= limit.limit ? costs[i] : 0; /* what can never pass is no demand */
        }
        assert_int_equal(collected().denied_units, denied);
    }
    end();
}

/* A slot has grants and denials in turn; in some epochs the key does not come. */
static void test_each_denied_unit_is_counted_once_between_grants(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR};
    for (int mode = 0; mode < 2; mode++) {
        uint64_t rng = test_seed();
        uint64_t denied = 0;
        begin(
            &(weir_policy){
                .name = "p", .limits = &limit, .limit_count = 1, .mode = mode == 0 ? WEIR_ENFORCE : WEIR_SHADOW},
            1);
        const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), "k", 1);
        weir_verdict v;
        for (int cycle = 0; cycle < 200; cycle++) {
            const uint64_t passing = random_below(&rng, 40);
            for (uint64_t i = 0; i < passing; i++) {
                assert_true(weir_check(d.t, &key, 1, &v) && !v.would_deny);
            }
            (void) weir_peek(d.t, &key, LIMIT, &v); /* takes the grant back */
            weir_charge(d.t, &key, v.remaining);
            for (uint64_t i = random_below(&rng, 30); i > 0; i--) {
                assert_int_equal(weir_check(d.t, &key, 1, i % 2 == 0 ? &v : NULL), mode != 0);
                denied++;
            }
            weir_refund(d.t, &key, UINT64_MAX);
            for (uint64_t epochs = random_below(&rng, 5); epochs > 0; epochs--) {
                fake_clock_advance(&d.clock, 10 * MILLISECOND);
                assert_true(weir_poll(d.w) >= 0);
            }
        }
        const weir_stats stats = collected();
        assert_int_equal(stats.denied_units, denied);
        assert_int_equal(mode == 0 ? stats.denied_count : stats.would_deny_count, denied);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts_name_the_limit_with_the_least_left),
        cmocka_unit_test(test_a_denial_of_a_cost_is_no_denial_of_a_smaller_one),
        cmocka_unit_test(test_a_denial_says_what_the_table_would),
        cmocka_unit_test(test_every_policy_is_counted_by_itself),
        cmocka_unit_test(test_the_first_slot_behind_a_word_without_any_is_settled),
        cmocka_unit_test(test_all_slots_of_all_threads_are_settled_when_time_moves),
        cmocka_unit_test(test_a_slot_before_the_place_of_another_threads_first_one_is_settled),
        cmocka_unit_test(test_a_pass_settles_all_slots_by_pieces),
        cmocka_unit_test(test_a_piece_ends_where_it_is_to_end),
        cmocka_unit_test(test_a_pass_ends_with_the_last_handle_that_was_ever_attached),
        cmocka_unit_test(test_a_settled_grant_answers_nothing_when_its_epoch_comes_again),
        cmocka_unit_test(test_what_a_thread_was_granted_by_one_tier_it_can_spend_by_another),
        cmocka_unit_test(test_units_of_a_grant_are_no_earlier_in_a_log_than_they_passed),
        cmocka_unit_test(test_denials_of_a_slot_with_a_live_grant_wait_until_it_lapses),
        cmocka_unit_test(test_denied_units_of_a_great_cost_are_counted_beside_those_of_a_slot),
        cmocka_unit_test(test_each_denied_unit_is_counted_once_between_grants),
        cmocka_unit_test(test_units_beyond_a_grant_are_late_whoever_accounts_for_them),
    };
    return cmocka_run_group_tests_name("unit/thread/slot", tests, NULL, NULL);
}
