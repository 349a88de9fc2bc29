/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weir_check, weir_peek and weir_check_all promise, with tiers, changes of policy, shadow mode, and the memory of
 * sliding logs. Under a clock that the test moves. Calls that change what a key has used are in adjustments_test.c.
 *
 * Guards: src/check/check.c, src/check/request.h, src/check/check_all.c, src/check/decide.c, src/check/denial.c,
 * src/check/claim.c, src/check/all_table.c, src/check/reserved_charge.c, src/check/slot_learn.c, src/check/charge.c,
 * src/process/history_store.c, src/process/process.c, src/base/clock.h
 */
#include <inttypes.h>
#include <string.h>

#include "support/two_handles.h"

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
            assert_int_equal(weir_check(d.t, &d.key, 0, &zero), used < 100); /* as a cost of 1 */
            assert_true(zero.remaining == v.remaining && zero.retry_after_ns == v.retry_after_ns);
            assert_int_equal(weir_check(d.t, &d.key, 1, NULL), used < 100);
        }
        weir_stats stats;
        weir_get_stats(d.w, &stats);
        assert_true(stats.allowed_count == 200 && stats.denied_count == 2);
    }
}

static void test_a_prefetch_changes_nothing(void **state)
{
    (void) state;
    weir_prefetch(NULL, NULL);
    for (size_t i = 0; next_kind(i); i++) {
        const weir_key unknown = weir_make_key(d.w, WEIR_NO_POLICY, "k", 1);
        weir_verdict v;
        weir_stats before;
        weir_stats after;
        assert_true(weir_check(d.t, &d.key, 1, NULL));
        weir_get_stats(d.w, &before);
        for (int n = 0; n < 10; n++) {
            weir_prefetch(d.t, &d.key); /* by the numbers that the check has left */
            weir_prefetch(d.u, &d.key); /* by the set of policies */
            weir_prefetch(d.u, &unknown);
        }
        weir_get_stats(d.w, &after);
        assert_int_equal(after.slow_count, before.slow_count);
        assert_int_equal(after.key_count, before.key_count);
        assert_true(weir_peek(d.u, &d.key, 1, &v));
        assert_int_equal(v.remaining, 99);
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

/*
 * "10/s, 120/min, 240/h per address and per user". If keys were checked one after the other, a request that a later
 * limit refuses would use up the earlier limits. Then a client that goes on trying would stay locked out.
 */
static void test_refused_requests_use_up_no_limit_of_any_key(void **state)
{
    (void) state;
    open_two_handles(people, 2);
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
    open_two_handles(people, 4);
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
    open_two_handles(people, 4);
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
    open_two_handles(people, 4);
    const weir_key keys[] = {weir_make_key(d.w, WEIR_NO_POLICY, "k", 1), key_of("trial", "k"), key_of("user", "ann")};
    weir_verdict v;
    for (uint64_t n = 1; n <= 12; n++) { /* 5 of the trial's, 10 of the user's */
        assert_int_equal(weir_check_all(d.t, keys, NULL, 3, &v), n <= 10);
        assert_true(n <= 5 || (v.key_index == 2 && v.allowed == (n <= 10)));
        assert_true(n > 10 || v.would_deny == (n > 5));
        assert_int_equal(left(&keys[1]), n <= 5 ? 5 - n : 0);
    }
    weir_refund(d.t, &keys[1], 1); /* denied requests were not counted */
    pass_time(SECOND);
    assert_false(weir_check_all(d.t, keys, (const uint64_t[]){1, 1, 11}, 3, &v));
    assert_int_equal(left(&keys[1]), 1); /* all or nothing */
    assert_true(weir_check_all(d.t, keys, (const uint64_t[]){1, 2, 2}, 2, &v) && v.would_deny);
    assert_true(weir_check_all(d.t, keys, NULL, 1, &v) && v.allowed && !v.would_deny);
}

static void test_shadow_mode_lets_everything_pass_and_says_what_it_would_deny(void **state)
{
    (void) state;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        open_two_handles(&(weir_policy){.name = "p", .limits = &kinds[i], .limit_count = 1, .mode = WEIR_SHADOW}, 1);
        for (int n = 0; n < 150; n++) {
            weir_verdict v;
            assert_true(weir_check(d.t, &d.key, 1, &v) && v.allowed && v.would_deny == (n >= 100));
        }
        uint64_t wait_ns = 1;
        assert_true(weir_reserve(d.t, &d.key, 1000, 0, &wait_ns) && wait_ns == 0);
        weir_refund(d.t, &d.key, 1); /* requests that the policy would deny were not counted */
        assert_int_equal(left(&d.key), 1);
    }
}

/* Windows of two tiers have one count. Buckets of two tiers owe the same units: see tiers_test.c. */
static void test_tiers_share_what_was_used_and_are_reset_together(void **state)
{
    (void) state;
    for (size_t i = 0; i < COUNT_OF(kinds); i++) {
        const weir_limit pro = of_units(kinds[i], 1000);
        const weir_policy tiers[] = {{.name = "api/free", .limits = &kinds[i], .limit_count = 1},
                                     {.name = "api/pro", .limits = &pro, .limit_count = 1}};
        open_two_handles(tiers, 2);
        const weir_key small = key_of("api/free", "ann");
        const weir_key great = key_of("api/pro", "ann");
        assert_true(take(d.t, &small, 150) == 100 && left(&great) == 900);
        pass_time(3 * SECOND);
        const bool bucket = kinds[i].algorithm >= WEIR_TOKEN_BUCKET;
        assert_int_equal(left(&great), bucket ? 905 : 900);
        assert_true(take(d.u, &great, 30) == 30 && left(&small) == 0);
        weir_charge(d.u, &great, 900);
        assert_true(left(&small) == 0 && take(d.t, &small, 2) == 0);
        assert_int_equal(weir_reset(d.w, i % 2 == 0 ? &small : &great), 0);
        assert_true(left(&small) == 100 && left(&great) == 1000);
    }
}

/*
 * More units are charged than the lesser limit. A greater limit, of another tier or a later policy, counts all of them.
 */
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
        weir_verdict v; /* less than was used: first 21 units must be over */
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
    for (size_t n = 1; n <= WEIR_MAX_LIMITS; n++) { /* the limits go round, and the first one is alone for a while */
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

/*
 * Few great logs or many small ones fill the memory. A request that finds no memory is denied, and keys with a log go
 * on. When the windows of these logs are over, other keys get the memory at their first request.
 */
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
            weir_refund(d.t, &d.key, 1); /* the key has used its own log up, and goes on */
            assert_int_equal(take(d.t, &d.key, 2), 1);
        }
    }
}

/* One of two keys has a log in shadow mode, which finds no memory: the request passes, and is counted for the other. */
static void test_a_request_goes_on_without_a_log_in_shadow_mode_that_finds_no_memory(void **state)
{
    (void) state;
    static const weir_limit log = {.algorithm = WEIR_SLIDING_LOG, .limit = WEIR_MAX_LOG_UNITS, .period_ns = MINUTE};
    static const weir_policy policies[] = {{.name = "p", .limits = &kinds[0], .limit_count = 1},
                                           {.name = "full", .limits = &log, .limit_count = 1},
                                           {.name = "trial", .limits = &log, .limit_count = 1, .mode = WEIR_SHADOW},
                                           {.name = "look", .limits = kinds, .limit_count = 1, .mode = WEIR_SHADOW}};
    open_two_handles(policies, COUNT_OF(policies));
    uint64_t number = 0;
    do { /* first logs that take much memory, then small ones, until there is none left */
        const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "full"), &number, sizeof(number));
        if (!weir_check(d.t, &key, number < 100 ? WEIR_MAX_LOG_UNITS : 1, NULL) && number > 100) {
            break;
        }
    } while (++number < 100000);
    const weir_key keys[] = {key_of("p", "k"), key_of("trial", "k")};
    for (uint64_t n = 1; n <= 5; n++) {
        weir_verdict v;
        assert_true(weir_check_all(d.t, keys, NULL, 2, &v));
        assert_true(v.would_deny);
        assert_int_equal(left(&keys[0]), 100 - n);
    }
    /* A log that is not in shadow mode ends the request, whatever its first key is. */
    const weir_key others[] = {key_of("look", "k"), key_of("full", "k")};
    weir_stats before;
    weir_stats after;
    weir_verdict v;
    weir_get_stats(d.w, &before);
    assert_false(weir_check_all(d.t, others, NULL, 2, &v));
    assert_true(!v.allowed && !v.would_deny && v.key_index == 1 && v.retry_after_ns == SECOND);
    assert_int_equal(v.limit, WEIR_MAX_LOG_UNITS);
    weir_get_stats(d.w, &after);
    assert_int_equal(after.untracked_count - before.untracked_count, 1);
    assert_int_equal(after.denied_count - before.denied_count, 1);
    assert_int_equal(left(&others[0]), 100);
}

/* Memory is there for three logs that are full: far more keys may each have a little of the same limit. */
static void test_a_log_takes_memory_for_the_units_it_has(void **state)
{
    (void) state;
    const weir_limit limits[] = {of_units(kinds[2], WEIR_MAX_LOG_UNITS), of_units(kinds[0], 1000)};
    for (size_t count = 1; count <= 2; count++) {
        open_limits(limits, count);
        static uint32_t names[200];
        for (uint32_t i = 0; i < COUNT_OF(names); i++) {
            uint64_t wait_ns;
            names[i] = i;
            const weir_key key = weir_make_key(d.w, d.key.policy, &names[i], sizeof(names[i]));
            assert_true(weir_check(d.t, &key, 5, NULL));
            assert_true(weir_check_all(d.u, (const weir_key[]){key, d.key}, NULL, 2, NULL));
            assert_true(weir_reserve(d.t, &key, 3, 0, &wait_ns));
            weir_charge(d.u, &key, 2);
            assert_int_equal(left(&key), limits[count - 1].limit - 11);
        }
        weir_stats stats;
        weir_get_stats(d.w, &stats);
        assert_int_equal(stats.untracked_count, 0);
    }
}

/* A table with max_keys keys: in their first pairs, in their second pairs, and elsewhere. None comes twice in a tick.
 */
static void test_a_check_finds_every_key_of_a_full_table(void **state)
{
    (void) state;
    enum { KEYS = 4096, LIMIT = 3 };
    static const weir_algorithm cold[] = {WEIR_FIXED_WINDOW, WEIR_TOKEN_BUCKET, WEIR_SLIDING_WINDOW};
    static uint32_t numbers[KEYS];
    for (size_t i = 0; i < COUNT_OF(cold); i++) {
        const weir_limit limit = {.algorithm = cold[i], .limit = LIMIT, .period_ns = 24 * HOUR};
        struct fake_clock clock;
        fake_clock_init(&clock, START_NS);
        weir_options options = WEIR_OPTIONS_INIT;
        options.clock = &clock.clock;
        options.max_keys = KEYS;
        weir *w = open_or_fail(&options);
        const weir_policy_id policy = set_one_policy(w, &limit, 1, WEIR_SCOPE_PROCESS);
        weir_thread *t = weir_attach(w);
        weir_stats stats;
        for (uint64_t round = 0; round <= LIMIT; round++) {
            for (uint32_t n = 0; n < KEYS; n++) {
                weir_verdict v = {.limit = 0};
                numbers[n] = n;
                const weir_key key = weir_make_key(w, policy, &numbers[n], sizeof(numbers[n]));
                assert_int_equal(weir_check(t, &key, 1, n % 2 == 0 ? &v : NULL), round < LIMIT);
                assert_true(n % 2 != 0 || (v.limit == LIMIT && v.remaining == (round < LIMIT ? LIMIT - 1 - round : 0)));
            }
            weir_get_stats(w, &stats);
            assert_int_equal(stats.slow_count, (round + 1) * KEYS);
            fake_clock_advance(&clock, MILLISECOND);
            (void) weir_poll(w);
        }
        assert_int_equal(stats.key_count, KEYS);
        assert_true(stats.allowed_count == LIMIT * KEYS && stats.denied_count == KEYS);
        assert_int_equal(stats.untracked_count, 0);
        weir_close(w);
    }
}

static void test_calls_that_go_to_the_table_are_counted_as_slow(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        weir_stats stats;
        const weir_key keys[] = {key_of("p", "a"), key_of("p", "b"), key_of("p", "c"), key_of("p", "d"),
                                 key_of("p", "e")};
        (void) weir_check(d.t, &keys[0], 1, NULL);
        weir_charge(d.t, &keys[1], 1);
        weir_refund(d.t, &keys[2], 1);
        (void) weir_reserve(d.t, &keys[3], 1, 0, NULL);
        (void) weir_peek(d.t, &keys[4], 1, NULL);
        (void) weir_check_all(d.t, keys, NULL, COUNT_OF(keys), NULL);
        weir_get_stats(d.w, &stats);
        assert_int_equal(stats.slow_count, 6);
    }
}

/* Slots know which key of a request had room and which had none: until the next tick they deny it by themselves. */
static void test_a_request_of_several_keys_that_was_denied_is_denied_without_the_table(void **state)
{
    (void) state;
    for (size_t i = 0; next_kind(i); i++) {
        const weir_key keys[] = {d.key, key_of("p", "used up"), key_of("p", "as well")};
        weir_stats before;
        weir_stats stats;
        weir_verdict v;
        for (size_t k = 0; k < 3; k++) { /* a key has a slot when it is checked twice, and no other one in between */
            assert_true(weir_check(d.t, &keys[k], k == 0 ? 1 : 100, NULL));
            assert_int_equal(weir_check(d.t, &keys[k], 1, NULL), k == 0);
        }
        for (int n = 0; n < 2; n++) { /* then the slots know enough for a verdict */
            assert_false(weir_check_all(d.t, keys, NULL, 3, &v));
        }
        weir_get_stats(d.w, &before);
        for (int n = 0; n < 10; n++) {
            assert_false(weir_check_all(d.t, keys, NULL, 3, &v));
            assert_int_equal(v.key_index, 1);
        }
        weir_get_stats(d.w, &stats);
        assert_int_equal(stats.slow_count, before.slow_count);
    }
}

/* A unit refills within a tick: a denial is not remembered until the next one. Nobody polls, so there is no next one.
 */
static void test_in_real_time_who_waits_less_than_a_tick_passes(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10000, .period_ns = SECOND, .burst = 1};
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.max_keys = 1000;
    weir *w = open_or_fail(&options);
    const weir_key key = weir_make_key(w, set_one_policy(w, &limit, 1, WEIR_SCOPE_PROCESS), "k", 1);
    weir_thread *t = weir_attach(w);
    unsigned denied = 0;
    for (int i = 0; i < 200; i++) {
        weir_verdict v = {.allowed = true};
        for (int n = 0; n < 5 && v.allowed; n++) { /* the key gets a slot */
            (void) weir_check(t, &key, 1, &v);
        }
        if (!v.allowed) {
            const uint64_t until_ns = real_ns() + v.retry_after_ns;
            assert_in_range(v.retry_after_ns, 1, SECOND / 10000 + 64);
            while (real_ns() < until_ns) {
            }
            assert_true(weir_check(t, &key, 1, &v));
            denied++;
        }
    }
    assert_true(denied > 20);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peeking_and_a_cost_of_zero_take_nothing),
        cmocka_unit_test(test_a_prefetch_changes_nothing),
        cmocka_unit_test(test_a_cost_above_what_passes_at_once_never_passes_and_blocks_nobody),
        cmocka_unit_test(test_refused_requests_use_up_no_limit_of_any_key),
        cmocka_unit_test(test_a_verdict_of_several_keys_is_the_strictest),
        cmocka_unit_test(test_check_all_takes_up_to_sixteen_keys_each_as_often_as_it_is_named),
        cmocka_unit_test(test_unknown_and_shadow_policies_among_several_keys_deny_nothing),
        cmocka_unit_test(test_shadow_mode_lets_everything_pass_and_says_what_it_would_deny),
        cmocka_unit_test(test_tiers_share_what_was_used_and_are_reset_together),
        cmocka_unit_test(test_what_was_charged_beyond_a_limit_is_known_to_a_greater_one),
        cmocka_unit_test(test_a_changed_limit_keeps_what_was_used),
        cmocka_unit_test(test_limits_that_swap_their_places_keep_their_counts),
        cmocka_unit_test(test_a_sliding_log_takes_65536_units),
        cmocka_unit_test(test_logs_that_are_over_make_room_for_others),
        cmocka_unit_test(test_a_request_goes_on_without_a_log_in_shadow_mode_that_finds_no_memory),
        cmocka_unit_test(test_a_log_takes_memory_for_the_units_it_has),
        cmocka_unit_test(test_a_check_finds_every_key_of_a_full_table),
        cmocka_unit_test(test_calls_that_go_to_the_table_are_counted_as_slow),
        cmocka_unit_test(test_a_request_of_several_keys_that_was_denied_is_denied_without_the_table),
        cmocka_unit_test(test_in_real_time_who_waits_less_than_a_tick_passes),
    };
    return cmocka_run_group_tests_name("unit/check/calls", tests, NULL, close_two_handles);
}
