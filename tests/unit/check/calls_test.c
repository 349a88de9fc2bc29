/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each call promises: asking, several keys at once, giving back, charging afterwards, reserving, resetting, tiers,
 * changes of policy, shadow mode, the logs' memory. Under a clock that the test moves, but for the last two tests.
 *
 * Guards: src/check/check.c, src/check/request.h, src/check/check_all.c, src/check/decide.c, src/check/denial.c,
 * src/check/refund.c, src/check/charge.c, src/check/reset.c, src/check/reserve.c, src/process/history_store.c,
 * src/process/process.c, src/base/clock.h
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "support/support.h"

#define MINUTE   (60 * SECOND)
#define NEVER    UINT64_MAX
#define START_NS (UINT64_C(1767225610) * SECOND) /* 2026-01-01, ten seconds into a minute, a day, a month */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* Every algorithm: 100 units pass at once, and a minute (a day, a month) brings 100 more. */
static const weir_limit kinds[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = MINUTE},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 100, .period_ns = MINUTE},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 100, .period_ns = MINUTE},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = MINUTE},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .period_ns = MINUTE, .delay = 100},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .calendar = WEIR_CALENDAR_DAY},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .calendar = WEIR_CALENDAR_MONTH},
};

static weir_limit of_units(weir_limit limit, uint64_t units)
{
    limit.limit = units;
    limit.delay = limit.delay != 0 ? units : 0;
    return limit;
}

/* What a test works with: a weir, two handles of it, and the key "k" of its policy "p" where there is one. */
static struct {
    struct fake_clock clock;
    weir *w;
    weir_thread *t, *u;
    weir_key key;
} d;

static weir_key key_of(const char *policy, const char *bytes)
{
    return weir_make_key(d.w, weir_find_policy(d.w, policy), bytes, strlen(bytes));
}

static void set_limits(const weir_limit *limits, size_t count)
{
    const weir_policy policy = {.name = "p", .limits = limits, .limit_count = count};
    assert_int_equal(weir_set_policies(d.w, &policy, 1, NULL), 0);
}

static int close_desk(void **state)
{
    (void) state;
    weir_close(d.w);
    d.w = NULL;
    return 0;
}

static void open_desk(const weir_policy *policies, size_t count)
{
    (void) close_desk(NULL);
    fake_clock_init(&d.clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    options.max_log_units = 200000;
    d.w = open_or_fail(&options);
    d.t = weir_attach(d.w);
    d.u = weir_attach(d.w);
    assert_int_equal(weir_set_policies(d.w, policies, count, NULL), 0);
    d.key = key_of("p", "k");
}

static void open_limits(const weir_limit *limits, size_t count)
{
    open_desk(&(weir_policy){.name = "p", .limits = limits, .limit_count = count}, 1);
}

/* A new desk with a limit of each kind. False: there are no more. */
static bool next_kind(size_t i)
{
    if (i < COUNT_OF(kinds)) {
        open_limits(&kinds[i], 1);
    }
    return i < COUNT_OF(kinds);
}

static void pass_time(uint64_t ns)
{
    fake_clock_advance(&d.clock, ns);
    assert_true(weir_poll(d.w) >= 0);
}

/* Units that are left. Asking for all takes back what the handles hold of them in advance. */
static uint64_t left(const weir_key *key)
{
    weir_verdict v;
    (void) weir_peek(d.t, key, 1, &v);
    (void) weir_peek(d.t, key, v.limit, &v);
    assert_true(v.remaining <= v.limit);
    return v.remaining;
}

/* Single units that pass, of so many. */
static uint64_t take(weir_thread *t, const weir_key *key, uint64_t units)
{
    uint64_t passed = 0;
    for (weir_verdict v; units > 0; units--) {
        passed += weir_check(t, key, 1, &v);
        assert_true(v.remaining <= v.limit);
    }
    return passed;
}

static uint64_t take_both(uint64_t units_each)
{
    return take(d.t, &d.key, units_each) + take(d.u, &d.key, units_each);
}

static void test_peeking_and_a_cost_of_zero_take_nothing(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        for (uint64_t used = 0; used <= 100; used++) {
            weir_verdict v;
            weir_verdict zero;
            for (uint64_t cost = 111; cost <= 111; cost -= 10) {
                assert_int_equal(weir_peek(d.t, &d.key, cost, &v), cost + used <= 100);
                assert_int_equal(v.remaining, 100 - used);
            }
            assert_int_equal(weir_check(d.t, &d.key, 0, &zero), used < 100); /* as if for 1 */
            assert_true(zero.remaining == v.remaining && zero.retry_after_ns == v.retry_after_ns);
            assert_int_equal(weir_check(d.t, &d.key, 1, NULL), used < 100);
        }
        weir_stats stats;
        weir_get_stats(d.w, &stats);
        assert_true(stats.allowed_count == 200 && stats.denied_count == 2);
    }
}

static void test_a_cost_above_what_passes_at_once_never_passes_and_blocks_nobody(void **state)
{
    (void) state;
    static const uint64_t costs[] = {101, 1000, UINT64_C(1) << 33, WEIR_MAX_UNITS, WEIR_MAX_UNITS + 1, UINT64_MAX};
    for (size_t i = 0; next_kind(i); i++) {
        for (uint64_t used = 1; used <= 100; used++) {
            weir_verdict v = {.allowed = true};
            uint64_t wait_ns = 0;
            const uint64_t cost = costs[used % COUNT_OF(costs)];
            assert_false(used % 2 == 0 ? weir_check(d.t, &d.key, cost, &v) : weir_peek(d.u, &d.key, cost, &v));
            assert_true(v.retry_after_ns == NEVER && !v.allowed);
            assert_true(!weir_check_all(d.t, &d.key, &cost, 1, &v) && v.retry_after_ns == NEVER && !v.allowed);
            assert_true(!weir_reserve(d.t, &d.key, cost, NEVER, &wait_ns) && wait_ns == NEVER);
            assert_true(weir_check(used % 3 == 0 ? d.u : d.t, &d.key, 1, NULL));
            assert_int_equal(left(&d.key), 100 - used);
        }
    }
}

static const weir_limit three[] = {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = SECOND},
                                   {.algorithm = WEIR_SLIDING_WINDOW, .limit = 120, .period_ns = MINUTE},
                                   {.algorithm = WEIR_SLIDING_LOG, .limit = 240, .period_ns = HOUR}};
static const weir_limit five = {.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = MINUTE};
static const weir_policy people[] = {{.name = "address", .limits = three, .limit_count = 3},
                                     {.name = "user", .limits = three, .limit_count = 3},
                                     {.name = "endpoint", .limits = &five, .limit_count = 1},
                                     {.name = "trial", .limits = &five, .limit_count = 1, .mode = WEIR_SHADOW}};

/* "10/s, 120/min, 240/h per address and per user". One after the other, a request that a later limit refuses would have
 * used up the earlier ones; and refused ones would keep a client that goes on trying locked out. */
static void test_refused_requests_use_up_no_limit_of_any_key(void **state)
{
    (void) state;
    open_desk(people, 2);
    const weir_key office[2] = {key_of("address", "192.0.2.1"), key_of("user", "ann")};
    const weir_key home[2] = {key_of("address", "192.0.2.2"), key_of("user", "ann")};
    weir_verdict v;
    uint64_t passed = 0;
    for (uint64_t second = 0; second < 80; second++, pass_time(second == 50 ? 2 * MINUTE : SECOND)) {
        for (int i = 0; i < 40; i++) {
            passed += weir_check_all(d.t, i % 2 == 0 ? office : home, NULL, 2, &v);
        }
        const uint64_t run = second % 50;
        assert_int_equal(passed, (run < 12 ? 10 * (run + 1) : 120) + second / 50 * 120);
        assert_int_equal(v.key_index, 1); /* each address has had half of it */
        assert_int_equal(v.limit_index, run < 11 ? 0 : 1 + second / 50);
        assert_int_equal(left(&home[0]), run < 12 ? 5 : 10); /* and has the rest */
    }
}

static void test_a_verdict_of_several_keys_is_the_strictest(void **state)
{
    (void) state;
    open_desk(people, 4);
    const weir_key keys[] = {key_of("user", "ann"), key_of("endpoint", "/"), key_of("address", "a")};
    weir_verdict v;
    assert_true(weir_check_all(d.t, keys, (const uint64_t[]){2, 1, 8}, 3, &v)); /* 8, 4 and 2 left */
    assert_true(v.key_index == 2 && v.limit_index == 0 && v.remaining == 2 && v.limit == 10);
    assert_false(weir_check_all(d.t, keys, (const uint64_t[]){9, 1, 10}, 3, &v)); /* 100 ms, 0, 800 ms */
    assert_true(v.key_index == 2 && v.retry_after_ns == 800 * MILLISECOND);
    assert_false(weir_check_all(d.t, keys, (const uint64_t[]){9, 5, 10}, 3, &v)); /* and the next minute */
    assert_true(v.key_index == 1 && v.retry_after_ns == 50 * SECOND);
    assert_false(weir_check_all(d.t, keys, (const uint64_t[]){11, 5, 10}, 3, &v));
    assert_true(v.key_index == 0 && v.retry_after_ns == NEVER);
    assert_true(left(&keys[0]) == 8 && left(&keys[1]) == 4 && left(&keys[2]) == 2);
}

static void test_check_all_takes_up_to_sixteen_keys_each_as_often_as_it_is_named(void **state)
{
    (void) state;
    open_desk(people, 4);
    weir_key keys[WEIR_MAX_KEYS_AT_ONCE + 1];
    for (size_t i = 0; i <= WEIR_MAX_KEYS_AT_ONCE; i++) {
        keys[i] = weir_make_key(d.w, weir_find_policy(d.w, "endpoint"), &"abcdefghijklmnopq"[i], 1);
    }
    weir_verdict v;
    assert_true(weir_check_all(d.t, NULL, NULL, 0, &v) && v.allowed);
    for (uint64_t n = 1; n <= 6; n++) { /* costs of NULL are 1 each */
        assert_int_equal(weir_check_all(d.t, keys, NULL, WEIR_MAX_KEYS_AT_ONCE, &v), n <= 5);
        assert_int_equal(left(&keys[n]), n <= 5 ? 5 - n : 0);
    }
    const weir_key *last = &keys[WEIR_MAX_KEYS_AT_ONCE];
    assert_false(weir_check_all(d.t, keys, NULL, WEIR_MAX_KEYS_AT_ONCE + 1, &v) || v.allowed);
    assert_true(v.retry_after_ns == NEVER && left(last) == 5);
    const weir_key twice[] = {*last, *last};
    assert_true(!weir_check_all(d.t, twice, (const uint64_t[]){3, 3}, 2, &v) && v.retry_after_ns == NEVER);
    assert_true(weir_check_all(d.t, twice, (const uint64_t[]){3, 1}, 2, &v) && v.remaining == 1);
    assert_true(!weir_check_all(d.t, twice, NULL, 2, &v) && v.retry_after_ns == 50 * SECOND);
    assert_int_equal(left(last), 1);
}

static void test_unknown_and_shadow_policies_among_several_keys_deny_nothing(void **state)
{
    (void) state;
    open_desk(people, 4);
    const weir_key keys[] = {weir_make_key(d.w, WEIR_NO_POLICY, "k", 1), key_of("trial", "k"), key_of("user", "ann")};
    weir_verdict v;
    for (uint64_t n = 1; n <= 12; n++) { /* 5 of the trial's, 10 of the user's */
        assert_int_equal(weir_check_all(d.t, keys, NULL, 3, &v), n <= 10);
        assert_true(n <= 5 || (v.key_index == 2 && v.allowed == (n <= 10)));
        assert_true(n > 10 || v.would_deny == (n > 5));
        assert_int_equal(left(&keys[1]), n <= 5 ? 5 - n : 0);
    }
    weir_refund(d.t, &keys[1], 1); /* what had no room was not counted */
    pass_time(SECOND);
    assert_false(weir_check_all(d.t, keys, (const uint64_t[]){1, 1, 11}, 3, &v));
    assert_int_equal(left(&keys[1]), 1); /* all or nothing */
    assert_true(weir_check_all(d.t, keys, (const uint64_t[]){1, 2, 2}, 2, &v) && v.would_deny);
    assert_true(weir_check_all(d.t, keys, NULL, 1, &v) && v.allowed && !v.would_deny);
}

static void test_a_refund_belongs_to_the_window_it_was_taken_from(void **state)
{
    (void) state;
    for (size_t i = 0; i < 2; i++) { /* the windows */
        const bool slides = i == 1;
        open_limits(&kinds[i], 1);
        assert_int_equal(take(d.t, &d.key, 60), 60);
        pass_time(50 * SECOND); /* to the boundary */
        assert_int_equal(left(&d.key), slides ? 40 : 100);
        weir_refund(d.u, &d.key, 20);
        assert_int_equal(left(&d.key), slides ? 60 : 100); /* never above the limit */
        assert_int_equal(take(d.t, &d.key, 10), 10);
        weir_refund(d.t, &d.key, 15); /* the latest go first: 10 of this window's, 5 of the last one's */
        assert_int_equal(take(d.t, &d.key, 200), slides ? 65 : 100);
        pass_time(2 * MINUTE); /* what is given back now is of a window that counts no more */
        weir_refund(d.t, &d.key, 100);
        assert_int_equal(take(d.t, &d.key, 200), 100);
    }
}

static void test_a_refund_gives_back_what_was_taken_to_any_thread_at_once(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        weir_refund(d.t, &d.key, 50); /* nothing was taken */
        assert_int_equal(take_both(30), 60);
        weir_refund(d.t, &d.key, 0);
        weir_refund(d.u, &d.key, 25);
        assert_int_equal(left(&d.key), 65);
        weir_refund(d.t, &d.key, UINT64_MAX);
        weir_refund(d.u, &d.key, UINT64_MAX);
        assert_int_equal(take_both(90), 100);
        for (int n = 0; n < 20; n++) { /* after a denial of both */
            assert_int_equal(take_both(3), 0);
            weir_refund(n % 2 == 0 ? d.t : d.u, &d.key, 1);
            assert_true(weir_check(n % 3 == 0 ? d.t : d.u, &d.key, 1, NULL));
        }
    }
}

/* 20 are used, then 130 are charged: 51 too many for the next one. The sliding window carries 150 into the next minute,
 * of which ceil(150 (60 - t) / 60) is 99 at t = 20.4 s. */
static void test_later_requests_wait_for_what_was_charged(void **state)
{
    (void) state;
    static const uint64_t waits_ms[] = {50000, 70400, 60000, 30600, 30600, 86390000, UINT64_C(2678390000)};
    for (size_t i = 0; next_kind(i); i++) {
        assert_int_equal(take(d.t, &d.key, 20), 20);
        weir_charge(d.u, &d.key, 30); /* within the limit it is as if checked */
        assert_int_equal(left(&d.key), 50);
        assert_int_equal(take(d.t, &d.key, 10), 10);
        weir_charge(d.u, &d.key, 100);
        weir_refund(d.u, &d.key, 10); /* can be given back */
        weir_verdict v;
        assert_true(!weir_check(d.t, &d.key, 1, &v) && v.remaining == 0); /* and what it was granted is gone */
        assert_int_equal(v.retry_after_ns, waits_ms[i] * MILLISECOND);
        pass_time(v.retry_after_ns - 1);
        assert_int_equal(take_both(2), 0);
        pass_time(1);
        assert_true(weir_check(d.u, &d.key, 1, NULL));
        weir_charge(d.t, &d.key, UINT64_MAX); /* taken for WEIR_MAX_UNITS */
        assert_int_equal(take_both(9), 0);
    }
}

static void test_reservations_are_spaced_evenly_and_wait_no_longer_than_asked(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 5};
    open_limits(&limit, 1);
    uint64_t wait_ns;
    for (uint64_t i = 0; i < 5; i++) {
        assert_true(weir_reserve(i % 2 == 0 ? d.t : d.u, &d.key, 1, NEVER, &wait_ns) &&
                    wait_ns == 100 * i * MILLISECOND);
    }
    assert_false(weir_reserve(d.t, &d.key, 1, NEVER, &wait_ns)); /* five stand there: it could go after them */
    assert_int_equal(wait_ns, 500 * MILLISECOND);
    weir_refund(d.t, &d.key, 2); /* the last two are cancelled */
    assert_true(!weir_reserve(d.t, &d.key, 1, 300 * MILLISECOND - 1, &wait_ns) && wait_ns == 300 * MILLISECOND);
    assert_true(weir_reserve(d.t, &d.key, 1, 300 * MILLISECOND, &wait_ns) && wait_ns == 300 * MILLISECOND);
    assert_false(weir_check(d.t, &d.key, 1, NULL)); /* a reservation that cannot wait */
    pass_time(50 * MILLISECOND);
    assert_false(weir_reserve(d.u, &d.key, 2, NEVER, NULL));
    assert_true(weir_reserve(d.u, &d.key, 1, NEVER, NULL)); /* in 350 ms */
    pass_time(450 * MILLISECOND);
    assert_true(weir_check(d.u, &d.key, 3, NULL)); /* whoever comes next waits for all three */
    assert_true(weir_reserve(d.t, &d.key, 0, NEVER, &wait_ns) && wait_ns == 300 * MILLISECOND);
}

static void test_a_token_bucket_lends_and_other_limits_have_no_queue(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        const bool lends = kinds[i].algorithm == WEIR_TOKEN_BUCKET;
        uint64_t wait_ns = 1;
        assert_true(weir_reserve(d.t, &d.key, 98, 0, &wait_ns) && wait_ns == 0);
        assert_int_equal(weir_reserve(d.u, &d.key, 4, NEVER, &wait_ns), lends);
        assert_true(lends ? wait_ns == 1200 * MILLISECOND : wait_ns > 0);
        assert_int_equal(left(&d.key), lends ? 0 : 2); /* a refused one takes nothing */
        weir_refund(d.t, &d.key, lends ? 4 : 0);
        assert_int_equal(take(d.t, &d.key, 9), 2);
        assert_false(weir_reserve(d.t, &d.key, 1, 0, NULL));
    }
}

static void test_a_reservation_of_very_many_units_is_as_good_as_a_check(void **state)
{
    (void) state;
    const weir_limit limits[] = {of_units(kinds[3], UINT64_C(1) << 34), of_units(kinds[5], UINT64_C(1) << 34)};
    for (size_t count = 1; count <= 2; count++) {
        open_limits(limits, count);
        assert_true(weir_check(d.t, &d.key, UINT64_C(1) << 32, NULL));
        assert_true(weir_reserve(d.t, &d.key, UINT64_C(1) << 32, 0, NULL));
        assert_int_equal(left(&d.key), UINT64_C(1) << 33);
    }
}

static void test_shadow_mode_lets_everything_pass_and_says_what_it_would_deny(void **state)
{
    (void) state;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        open_desk(&(weir_policy){.name = "p", .limits = &kinds[i], .limit_count = 1, .mode = WEIR_SHADOW}, 1);
        for (int n = 0; n < 150; n++) {
            weir_verdict v;
            assert_true(weir_check(d.t, &d.key, 1, &v) && v.allowed && v.would_deny == (n >= 100));
        }
        uint64_t wait_ns = 1;
        assert_true(weir_reserve(d.t, &d.key, 1000, 0, &wait_ns) && wait_ns == 0);
        weir_refund(d.t, &d.key, 1); /* of what it would deny, nothing was counted */
        assert_int_equal(left(&d.key), 1);
    }
}

static void test_a_reset_forgets_what_was_used_charged_and_denied(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        for (uint64_t n = 0; n < 3; n++) {
            assert_int_equal(take_both(60), 100);
            weir_charge(d.t, &d.key, 500 * n);
            assert_int_equal(weir_reset(d.w, &d.key), 0);
            weir_verdict v;
            assert_true(weir_peek(d.u, &d.key, 100, &v) && v.remaining == 100 && v.reset_after_ns == 0);
            pass_time(n == 0 ? 50 * SECOND : 0); /* nor does it come back with the next window */
        }
        const weir_key none = weir_make_key(d.w, WEIR_NO_POLICY, "k", 1);
        assert_int_equal(weir_reset(d.w, &none), -ENOENT);
    }
}

/* Windows: the same count; buckets: the same units owed, which refill at the rate of the tier that was asked last. */
static void test_tiers_share_what_was_used_and_are_reset_together(void **state)
{
    (void) state;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        const weir_limit pro = of_units(kinds[i], 1000);
        const weir_policy tiers[] = {{.name = "api/free", .limits = &kinds[i], .limit_count = 1},
                                     {.name = "api/pro", .limits = &pro, .limit_count = 1}};
        open_desk(tiers, 2);
        const weir_key small = key_of("api/free", "ann");
        const weir_key great = key_of("api/pro", "ann");
        assert_true(take(d.t, &small, 150) == 100 && left(&great) == 900);
        pass_time(3 * SECOND);
        const bool bucket = kinds[i].algorithm >= WEIR_TOKEN_BUCKET;
        assert_int_equal(left(&great), bucket ? 950 : 900);
        assert_true(take(d.u, &great, 30) == 30 && left(&small) == (bucket ? 20 : 0));
        weir_charge(d.u, &great, 900);
        assert_true(left(&small) == 0 && take(d.t, &small, 2) == 0);
        assert_int_equal(weir_reset(d.w, i % 2 == 0 ? &small : &great), 0);
        assert_true(left(&small) == 100 && left(&great) == 1000);
    }
}

/* More than the lesser limit: a greater one, of another tier or a later policy, has to know of all of it. */
static void test_what_was_charged_beyond_a_limit_is_known_to_a_greater_one(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        weir_charge(d.t, &d.key, 700);
        set_limits((weir_limit[]){of_units(kinds[i], 1000)}, 1);
        if (left(&d.key) != 300) {
            fail_msg("algorithm %d: %" PRIu64 " are left", (int) kinds[i].algorithm, left(&d.key));
        }
    }
}

static void test_a_changed_limit_keeps_what_was_used(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        assert_int_equal(take_both(30), 60);
        set_limits((weir_limit[]){of_units(kinds[i], 200)}, 1);
        assert_int_equal(weir_find_policy(d.w, "p"), d.key.policy); /* a name keeps its number */
        assert_int_equal(left(&d.key), 140);
        set_limits((weir_limit[]){of_units(kinds[i], 40)}, 1);
        weir_verdict v; /* less than was used: 20 must be over first, and one more */
        assert_true(!weir_check(d.t, &d.key, 1, &v) && v.remaining == 0 && v.limit == 40);
        assert_true(kinds[i].algorithm < WEIR_TOKEN_BUCKET || v.retry_after_ns == 31500 * MILLISECOND);
        pass_time(v.retry_after_ns - 1);
        assert_false(weir_check(d.u, &d.key, 1, NULL));
        pass_time(1);
        assert_true(weir_check(d.u, &d.key, 1, NULL));
    }
}

static void test_limits_that_swap_their_places_keep_their_counts(void **state)
{
    (void) state;
    weir_limit limits[WEIR_MAX_LIMITS] = {of_units(kinds[0], 10), of_units(kinds[3], 20), of_units(kinds[1], 30),
                                          of_units(kinds[2], 40)};
    open_limits(limits, WEIR_MAX_LIMITS);
    assert_int_equal(take_both(4), 8);
    for (size_t n = 1; n <= WEIR_MAX_LIMITS; n++) { /* they go round, and the first one is alone for a while */
        const weir_limit first = limits[0];
        memmove(limits, limits + 1, sizeof(limits) - sizeof(first));
        limits[WEIR_MAX_LIMITS - 1] = first;
        set_limits(limits, WEIR_MAX_LIMITS);
        weir_verdict v;
        assert_true(weir_peek(d.t, &d.key, 1, &v) && v.remaining == 2 && v.limit_index == WEIR_MAX_LIMITS - n);
        set_limits(limits, 1);
        assert_int_equal(left(&d.key), limits[0].limit - 8);
    }
}

static void test_a_sliding_log_takes_65536_units(void **state)
{
    (void) state;
    open_limits((weir_limit[]){of_units(kinds[2], WEIR_MAX_LOG_UNITS)}, 1);
    assert_int_equal(take(d.t, &d.key, 40000), 40000);
    pass_time(SECOND);
    assert_int_equal(take(d.u, &d.key, 40000), WEIR_MAX_LOG_UNITS - 40000);
    weir_verdict v;
    assert_true(!weir_check(d.t, &d.key, 40001, &v) && v.retry_after_ns == MINUTE);
    assert_true(!weir_check(d.t, &d.key, 40000, &v) && v.retry_after_ns == 59 * SECOND);
    pass_time(MINUTE);
    assert_true(weir_check(d.t, &d.key, WEIR_MAX_LOG_UNITS, &v) && v.remaining == 0);
}

/* Few great logs or many small ones fill the memory; a request that finds none is denied, those that have theirs go on;
 * and when their windows are over, others have it, the first time they ask. */
static void test_logs_that_are_over_make_room_for_others(void **state)
{
    (void) state;
    static const uint64_t units[] = {100, 1000, 30000, WEIR_MAX_LOG_UNITS};
    for (size_t i = 0; i < COUNT_OF(units); i++) {
        open_limits((weir_limit[]){of_units(kinds[2], units[i])}, 1);
        for (uint64_t round = 0; round < 3; round++, pass_time(MINUTE)) {
            uint64_t names[10000] = {round};
            size_t count = 0;
            do {
                names[count] = round << 32 | count;
                d.key = weir_make_key(d.w, d.key.policy, &names[count++], sizeof(names[0]));
            } while (weir_check(d.t, &d.key, units[i], NULL));
            if (count <= 200000 / units[i] / 3) { /* 16 bytes a unit, and the log's own */
                fail_msg("limit %" PRIu64 ", round %" PRIu64 ": only %zu have room", units[i], round, count - 1);
            }
            weir_stats stats;
            weir_get_stats(d.w, &stats);
            assert_int_equal(stats.untracked_count, round + 1);
            d.key = weir_make_key(d.w, d.key.policy, &names[0], sizeof(names[0]));
            weir_refund(d.t, &d.key, 1); /* it has used its own up, and goes on */
            assert_int_equal(take(d.t, &d.key, 2), 1);
        }
    }
}

/* The desk in real time. */
static void open_real(weir_limit limit)
{
    (void) close_desk(NULL);
    d.w = open_or_fail(NULL);
    d.t = weir_attach(d.w);
    d.u = weir_attach(d.w);
    d.key = weir_make_key(d.w, set_one_policy(d.w, &limit, 1, WEIR_SCOPE_FLEET), "k", 1);
}

static void test_in_real_time_a_reset_right_after_use_leaves_all_of_it(void **state)
{
    (void) state;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        weir_limit limit = kinds[i];
        limit.period_ns *= 1440; /* so slow that nothing refills meanwhile */
        open_real(limit);
        for (int n = 0; n < 300; n++) {
            assert_int_equal(take_both(30), 60);
            assert_int_equal(weir_reset(d.w, &d.key), 0);
            weir_verdict v;
            (void) weir_peek(n % 2 == 0 ? d.t : d.u, &d.key, 100, &v);
            if (v.remaining != 100) {
                fail_msg("algorithm %d: %" PRIu64 " left", (int) limit.algorithm, v.remaining);
            }
        }
    }
}

/* When 30 places that were taken in a row are due. */
static void test_in_real_time_reservations_are_even(void **state)
{
    (void) state;
    open_real((weir_limit){.algorithm = WEIR_LEAKY_BUCKET, .limit = 100, .period_ns = SECOND, .burst = 50});
    bool even = false;
    for (int attempt = 0; attempt < 100 && !even; attempt++) { /* until nobody takes the processor away */
        assert_int_equal(weir_reset(d.w, &d.key), 0);
        const uint64_t start_ns = real_ns();
        uint64_t due_ns[30];
        for (size_t i = 0; i < 30; i++) {
            assert_true(weir_reserve(d.t, &d.key, 1, SECOND, &due_ns[i]));
            due_ns[i] += real_ns();
        }
        even = real_ns() - start_ns < 3 * MILLISECOND;
        for (size_t i = 1; i < 30 && even; i++) {
            assert_in_range(due_ns[i] - due_ns[i - 1], 7 * MILLISECOND, 13 * MILLISECOND);
        }
    }
    assert_true(even);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peeking_and_a_cost_of_zero_take_nothing),
        cmocka_unit_test(test_a_cost_above_what_passes_at_once_never_passes_and_blocks_nobody),
        cmocka_unit_test(test_refused_requests_use_up_no_limit_of_any_key),
        cmocka_unit_test(test_a_verdict_of_several_keys_is_the_strictest),
        cmocka_unit_test(test_check_all_takes_up_to_sixteen_keys_each_as_often_as_it_is_named),
        cmocka_unit_test(test_unknown_and_shadow_policies_among_several_keys_deny_nothing),
        cmocka_unit_test(test_a_refund_belongs_to_the_window_it_was_taken_from),
        cmocka_unit_test(test_a_refund_gives_back_what_was_taken_to_any_thread_at_once),
        cmocka_unit_test(test_later_requests_wait_for_what_was_charged),
        cmocka_unit_test(test_reservations_are_spaced_evenly_and_wait_no_longer_than_asked),
        cmocka_unit_test(test_a_token_bucket_lends_and_other_limits_have_no_queue),
        cmocka_unit_test(test_a_reservation_of_very_many_units_is_as_good_as_a_check),
        cmocka_unit_test(test_shadow_mode_lets_everything_pass_and_says_what_it_would_deny),
        cmocka_unit_test(test_a_reset_forgets_what_was_used_charged_and_denied),
        cmocka_unit_test(test_tiers_share_what_was_used_and_are_reset_together),
        cmocka_unit_test(test_what_was_charged_beyond_a_limit_is_known_to_a_greater_one),
        cmocka_unit_test(test_a_changed_limit_keeps_what_was_used),
        cmocka_unit_test(test_limits_that_swap_their_places_keep_their_counts),
        cmocka_unit_test(test_a_sliding_log_takes_65536_units),
        cmocka_unit_test(test_logs_that_are_over_make_room_for_others),
        cmocka_unit_test(test_in_real_time_a_reset_right_after_use_leaves_all_of_it),
        cmocka_unit_test(test_in_real_time_reservations_are_even),
    };
    return cmocka_run_group_tests_name("unit/check/calls", tests, NULL, close_desk);
}
