/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_burst answers as weir_check does for one key after the other.
 *
 * Guards: src/check/check_burst.c, src/check/direct_charge.c, src/check/direct_charge.h
 */
#include <string.h>

#include "support/nodes.h"
#include "support/support.h"
#include "thread/slot.h"

#define MINUTE (60 * SECOND)
#define MOST   256

/* Two weirs under one clock that get equal requests: `w` in bursts, `one` by single checks. */
static struct {
    struct fake_clock clock;
    weir *w, *one;
    weir_thread *t, *u;
} d;

/* Keys that are left to weir_check. The linker's --wrap leads the call here (tests/meson.build). */
static size_t singles;

bool __real_check_one_of_burst(struct weir_thread *t, const weir_key *key, uint64_t cost);
bool __wrap_check_one_of_burst(struct weir_thread *t, const weir_key *key, uint64_t cost);

bool __wrap_check_one_of_burst(struct weir_thread *t, const weir_key *key, uint64_t cost)
{
    singles++;
    return __real_check_one_of_burst(t, key, cost);
}

static const weir_limit limits[] = {
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 40, .period_ns = SECOND, .burst = 20},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 300, .period_ns = MINUTE},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 70, .period_ns = 2 * SECOND},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 50, .period_ns = SECOND},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 1000, .period_ns = 2 * SECOND},
};

static const weir_policy policies[] = {
    {.name = "one", .limits = limits, .limit_count = 1},
    {.name = "four", .limits = limits, .limit_count = 4},
    {.name = "shadow", .limits = limits + 1, .limit_count = 2, .mode = WEIR_SHADOW},
    {.name = "process", .limits = limits + 2, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS},
    {.name = "wide", .limits = limits + 4, .limit_count = 1}, /* worth grants */
};

#define POLICIES (sizeof(policies) / sizeof(policies[0]))

static int open_desk(void **state)
{
    (void) state;
    fake_clock_init(&d.clock, UINT64_C(1767225610) * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    d.w = open_or_fail(&options);
    d.one = open_or_fail(&options);
    assert_int_equal(weir_set_policies(d.w, policies, POLICIES, NULL), 0);
    assert_int_equal(weir_set_policies(d.one, policies, POLICIES, NULL), 0);
    d.t = weir_attach(d.w);
    d.u = weir_attach(d.one);
    return 0;
}

static int close_desk(void **state)
{
    (void) state;
    weir_close(d.w);
    weir_close(d.one);
    return 0;
}

/* A random key of both weirs: of few keys, of many, of policies in force, and of an unknown policy. */
static void random_key(uint64_t *random, char name[16], weir_key *burst, weir_key *single)
{
    const uint64_t number = random_below(random, random_below(random, 2) == 0 ? 5 : 5000);
    (void) snprintf(name, 16, "key-%llu", (unsigned long long) number);
    const uint64_t policy = random_below(random, POLICIES + 1);
    static const weir_policy_id nobodys[] = {WEIR_NO_POLICY, WEIR_MAX_POLICIES, WEIR_MAX_POLICIES + 1, UINT32_MAX};
    if (policy == POLICIES) {
        const weir_policy_id id = nobodys[random_below(random, 4)];
        *burst = weir_make_key(d.w, id, name, strlen(name));
        *single = weir_make_key(d.one, id, name, strlen(name));
        return;
    }
    *burst = weir_make_key(d.w, weir_find_policy(d.w, policies[policy].name), name, strlen(name));
    *single = weir_make_key(d.one, weir_find_policy(d.one, policies[policy].name), name, strlen(name));
}

/* Where little is left, the order of great and small costs decides which of them pass. */
static void test_costs_of_one_key_are_taken_in_order(void **state)
{
    (void) state;
    uint64_t random = test_seed();
    uint64_t denied_in_all = 0;
    for (int round = 0; round < 15000; round++) {
        weir_key burst[MOST];
        uint64_t costs[MOST];
        const size_t count = 2 + random_below(&random, MOST - 1);
        const char *name = &"kl"[round % 2];
        const weir_key one_key = weir_make_key(d.w, weir_find_policy(d.w, "wide"), name, 1);
        const weir_key single = weir_make_key(d.one, weir_find_policy(d.one, "wide"), name, 1);
        for (size_t i = 0; i < count; i++) {
            burst[i] = one_key;
            costs[i] = 1 + random_below(&random, random_below(&random, 4) == 0 ? 120 : 3);
        }
        uint64_t bits[MOST / 64];
        (void) weir_check_burst(d.t, burst, costs, count, bits);
        for (size_t i = 0; i < count; i++) {
            const bool pass = weir_check(d.u, &single, costs[i], NULL);
            assert_int_equal(bits[i / 64] >> (i % 64) & 1, pass);
            denied_in_all += !pass;
        }
        /* Some bursts begin with the grant that the burst before has left. */
        fake_clock_advance(&d.clock, random_below(&random, 4) == 0 ? random_below(&random, SECOND) : 0);
        (void) weir_poll(d.w);
        (void) weir_poll(d.one);
    }
    assert_true(denied_in_all > 1000);
}

static void test_a_burst_is_its_checks_in_order(void **state)
{
    (void) state;
    uint64_t random = test_seed();
    static char names[MOST][16];
    weir_key burst[MOST];
    weir_key single[MOST];
    uint64_t costs[MOST];
    uint64_t allowed_in_all = 0;
    uint64_t denied_in_all = 0;
    for (int round = 0; round < 2000; round++) {
        const size_t count =
            random_below(&random, 3) == 0 ? random_below(&random, MOST + 1) : random_below(&random, 40);
        const bool costly = random_below(&random, 2) == 0;
        for (size_t i = 0; i < count; i++) {
            random_key(&random, names[i], &burst[i], &single[i]);
            costs[i] = random_below(&random, 4);
        }
        uint64_t bits[MOST / 64];
        memset(bits, 0xa5, sizeof(bits));
        const size_t allowed = weir_check_burst(d.t, burst, costly ? costs : NULL, count, bits);
        size_t expected = 0;
        for (size_t i = 0; i < count; i++) {
            const bool pass = weir_check(d.u, &single[i], costly ? costs[i] : 1, NULL);
            assert_int_equal(bits[i / 64] >> (i % 64) & 1, pass);
            expected += pass;
        }
        assert_int_equal(allowed, expected);
        if (count % 64 != 0) {
            assert_int_equal(bits[count / 64] >> (count % 64), 0);
        }
        for (size_t word = (count + 63) / 64; word < MOST / 64; word++) {
            assert_true(bits[word] == UINT64_C(0xa5a5a5a5a5a5a5a5)); /* not its */
        }
        allowed_in_all += allowed;
        denied_in_all += count - allowed;
        fake_clock_advance(&d.clock, random_below(&random, 3) == 0 ? random_below(&random, SECOND) : 0);
        (void) weir_poll(d.w);
        (void) weir_poll(d.one);
    }
    assert_true(allowed_in_all > 1000 && denied_in_all > 1000);
    weir_stats stats;
    weir_get_stats(d.w, &stats);
    weir_stats other;
    weir_get_stats(d.one, &other);
    assert_int_equal(stats.allowed_count, other.allowed_count);
    assert_int_equal(stats.denied_count, other.denied_count);
    assert_int_equal(stats.unknown_policy_count, other.unknown_policy_count);
}

/*
 * A key that has no slot, nor a fingerprint that a slot of its set has: the burst leaves such keys to single checks.
 * Each run has other hashes, so one run in a hundred would draw such a key.
 */
static weir_key key_without_likeness(weir_policy_id policy, uint32_t *number)
{
    weir_key key;
    do {
        ++*number;
        key = weir_make_key(d.w, policy, number, sizeof(*number));
    } while (slot_may_have(d.t, key.hash));
    return key;
}

/* Each key of a burst is another one, without a slot, of which some units are used, down to the last. */
static void test_each_cost_passes_where_so_much_is_left(void **state)
{
    (void) state;
    enum { LIMIT = 5, COSTS = LIMIT + 3 };
    static const weir_algorithm kinds[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    for (size_t kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
        const weir_limit limit = {.algorithm = kinds[kind], .limit = LIMIT, .period_ns = 24 * HOUR};
        const weir_policy_id policy = set_one_policy(d.w, &limit, 1, WEIR_SCOPE_FLEET);
        weir_thread *other = weir_attach(d.w);
        weir_key keys[COSTS];
        uint64_t costs[COSTS];
        uint32_t number = (uint32_t) kind << 16; /* a policy of the same name keeps its keys */
        uint64_t bits;
        singles = 0;
        for (uint64_t used = 0; used <= LIMIT; used++) {
            const uint64_t left = LIMIT - used;
            for (size_t i = 0; i < COSTS; i++) {
                costs[i] = i == LIMIT + 2 ? UINT64_MAX : i;
                keys[i] = key_without_likeness(policy, &number);
                weir_charge(other, &keys[i], used);
            }
            /* 0 asks for a unit as 1 does, and takes none. */
            const uint64_t expected = left != 0 ? (UINT64_C(1) << (left + 1)) - 1 : 0;
            const uint64_t slow = load_relaxed(&d.t->shared->slow_count);
            assert_int_equal(weir_check_burst(d.t, keys, costs, COSTS, &bits), left != 0 ? left + 1 : 0);
            assert_int_equal(load_relaxed(&d.t->shared->slow_count) - slow, COSTS);
            assert_int_equal(bits, expected);
            assert_int_equal(singles, 2); /* the costs above the limit */
            singles = 0;
            for (size_t i = 0; i < COSTS; i++) {
                weir_verdict v;
                (void) weir_peek(other, &keys[i], 1, &v);
                assert_int_equal(v.remaining, left - ((expected >> i & 1) != 0 ? costs[i] : 0));
            }
        }
        weir_detach(other);
    }
}

/* A key with a grant, one with a denial, both of this epoch, and new ones between them. */
static void test_what_slots_can_answer_costs_a_burst_nothing(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10000, .period_ns = 24 * HOUR};
    const weir_policy_id policy = set_one_policy(d.w, &limit, 1, WEIR_SCOPE_FLEET);
    const weir_key granted = weir_make_key(d.w, policy, "granted", 7);
    uint32_t number = 0;
    weir_key denied;
    do { /* with one place among the thread's recent keys neither would get a slot */
        ++number;
        denied = weir_make_key(d.w, policy, &number, sizeof(number));
    } while (recent_key(d.t, denied.hash) == recent_key(d.t, granted.hash));
    weir_charge(d.t, &denied, limit.limit);
    for (int n = 0; n < 3 || slot_covering(d.t, granted.hash, 9) == NULL; n++) {
        assert_true(weir_check(d.t, &granted, 1, NULL) && !weir_check(d.t, &denied, 1, NULL));
    }
    const struct slot *slot = slot_covering(d.t, granted.hash, 9);
    const uint64_t used = load_relaxed(&slot->used);
    const weir_key first = key_without_likeness(policy, &number);
    const weir_key second = key_without_likeness(policy, &number);
    const weir_key keys[] = {granted, denied, first, granted, denied, second};
    const uint64_t costs[] = {4, 1, 1, 5, 1, 1};
    uint64_t bits;
    const uint64_t slow = load_relaxed(&d.t->shared->slow_count);
    singles = 0;
    assert_int_equal(weir_check_burst(d.t, keys, costs, 6, &bits), 4);
    assert_int_equal(bits, 0x2d);
    assert_int_equal(singles, 0);
    assert_int_equal(load_relaxed(&d.t->shared->slow_count) - slow, 2);
    assert_int_equal(load_relaxed(&slot->used), used + 9);
    /* What the grant does not cover is decided in its turn, and what comes after it waits. */
    const uint64_t great[] = {10000, 1, 1, 1, 1, 1};
    assert_int_equal(weir_check_burst(d.t, keys, great, 6, &bits), 3);
    assert_int_equal(bits, 0x2c);
    assert_true(singles >= 2);
}

static void test_a_key_that_comes_again_finds_what_is_left(void **state)
{
    (void) state;
    weir_key keys[MOST];
    for (size_t i = 0; i < MOST; i++) {
        keys[i] = weir_make_key(d.w, weir_find_policy(d.w, "one"), i % 2 == 0 ? "even" : "odd", i % 2 == 0 ? 4 : 3);
    }
    uint64_t bits[MOST / 64];
    assert_int_equal(weir_check_burst(d.t, keys, NULL, MOST, bits), 2 * 20);
    assert_true(bits[0] == (UINT64_C(1) << 40) - 1); /* the first of each */
    assert_true(bits[1] == 0 && bits[2] == 0 && bits[3] == 0);
}

/* A key with the same place in a thread's recent keys: each of the two replaces the other there. */
static weir_key rival_of(const weir *w, const weir_thread *t, const weir_key *key, uint32_t *number)
{
    weir_key rival;
    do {
        ++*number;
        rival = weir_make_key(w, key->policy, number, sizeof(*number));
    } while (recent_key(t, rival.hash) != recent_key(t, key->hash));
    return rival;
}

/*
 * So both keys are charged directly each time. What the burst has worked out ahead for the second coming of a key no
 * longer holds at its turn.
 */
static void test_what_is_worked_out_too_early_is_decided_anew(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 4, .period_ns = HOUR};
    const weir_policy_id policy = set_one_policy(d.w, &limit, 1, WEIR_SCOPE_PROCESS);
    uint32_t number = 0;
    const weir_key key = weir_make_key(d.w, policy, "key", 3);
    const weir_key rival = rival_of(d.w, d.t, &key, &number);
    assert_true(weir_check(d.t, &key, 1, NULL) && weir_check(d.t, &rival, 1, NULL)); /* now they have cells */
    fake_clock_advance(&d.clock, 10 * MILLISECOND);
    (void) weir_poll(d.w);
    const weir_key keys[] = {key, rival, key, rival, key, rival, key, rival};
    const uint64_t costs[] = {1, 2, 1, 1, 2, 2, 1, 1};
    uint64_t bits;
    /* The key has one unit left when the request is for two, and its rival has none. */
    assert_int_equal(weir_check_burst(d.t, keys, costs, 8, &bits), 5);
    assert_int_equal(bits, 0x4f);
    weir_stats stats;
    weir_get_stats(d.w, &stats);
    assert_int_equal(stats.allowed_count, 2 + 5);
    assert_int_equal(stats.denied_count, 3);
}

static void test_nothing_and_nowhere(void **state)
{
    (void) state;
    uint64_t bits = 7;
    assert_int_equal(weir_check_burst(d.t, NULL, NULL, 0, &bits), 0);
    assert_int_equal(bits, 7); /* no words */
    weir_key keys[3];
    for (size_t i = 0; i < 3; i++) {
        keys[i] = weir_make_key(d.w, weir_find_policy(d.w, "one"), "key", 3);
    }
    const uint64_t costs[3] = {20, 1, 0};
    assert_int_equal(weir_check_burst(d.t, keys, costs, 3, NULL), 1);
    for (size_t count = 0; count <= 200; count++) { /* without a handle all pass, and no key is looked at */
        uint64_t words[5] = {7, 7, 7, 7, 7};
        assert_int_equal(weir_check_burst(NULL, NULL, NULL, count, words), count);
        assert_int_equal(weir_check_burst(NULL, NULL, NULL, count, NULL), count);
        for (size_t i = 0; i < 5 * 64; i++) {
            const bool there = i / 64 < (count + 63) / 64;
            assert_int_equal(words[i / 64] >> (i % 64) & 1, there ? i < count : UINT64_C(7) >> (i % 64) & 1);
        }
    }
}

/* A table with max_keys keys: in their first pairs, in their second pairs, and elsewhere. */
static void test_a_burst_finds_every_key_of_a_full_table(void **state)
{
    (void) state;
    enum { KEYS = 4096, LIMIT = 5 };
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR};
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    options.max_keys = KEYS;
    weir *w = open_or_fail(&options);
    const weir_policy_id policy = set_one_policy(w, &limit, 1, WEIR_SCOPE_FLEET);
    weir_thread *t = weir_attach(w);
    static uint32_t numbers[KEYS];
    static weir_key keys[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        numbers[i] = i;
        keys[i] = weir_make_key(w, policy, &numbers[i], sizeof(numbers[i]));
    }
    weir_stats stats;
    for (int round = 0; round < LIMIT + 2; round++) {
        for (size_t first = 0; first < KEYS; first += MOST) {
            const bool burst = (first / MOST + (size_t) round) % 2 == 0; /* or one by one */
            size_t allowed = burst ? weir_check_burst(t, keys + first, NULL, MOST, NULL) : 0;
            for (size_t i = first; !burst && i < first + MOST; i++) {
                allowed += weir_check(t, &keys[i], 1, NULL);
            }
            assert_int_equal(allowed, round < LIMIT ? MOST : 0);
            weir_get_stats(w, &stats);
            assert_int_equal(stats.key_count, round == 0 ? first + MOST : KEYS);
        }
        fake_clock_advance(&d.clock, 10 * MILLISECOND);
        (void) weir_poll(w);
    }
    weir_close(w);
}

/* Keys that other nodes use as well: the burst reads their sync states ahead. */
static void test_a_burst_of_a_fleet(void **state)
{
    (void) state;
    enum { LIMIT = 90 };
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    struct nodes n;
    nodes_start(&n, &policy, 1);
    uint64_t passed = 0;
    for (int i = 0; i < 100; i++) {
        for (size_t at = 0; at < NODES; at++) {
            const weir_key key = n.node[at].key;
            const weir_key keys[4] = {key, key, key, key};
            passed += weir_check_burst(n.node[at].t, keys, NULL, 4, NULL);
        }
        pass(&n, 50);
    }
    assert_in_range(passed, LIMIT, LIMIT * 11 / 10); /* by the hashes of the key and the nodes 90 to 94 */
    assert_int_equal(fleet_sum(&n), passed);
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_costs_of_one_key_are_taken_in_order, open_desk, close_desk),
        cmocka_unit_test_setup_teardown(test_a_burst_is_its_checks_in_order, open_desk, close_desk),
        cmocka_unit_test_setup_teardown(test_each_cost_passes_where_so_much_is_left, open_desk, close_desk),
        cmocka_unit_test_setup_teardown(test_what_slots_can_answer_costs_a_burst_nothing, open_desk, close_desk),
        cmocka_unit_test_setup_teardown(test_a_key_that_comes_again_finds_what_is_left, open_desk, close_desk),
        cmocka_unit_test_setup_teardown(test_what_is_worked_out_too_early_is_decided_anew, open_desk, close_desk),
        cmocka_unit_test_setup_teardown(test_a_burst_finds_every_key_of_a_full_table, open_desk, close_desk),
        cmocka_unit_test_setup_teardown(test_nothing_and_nowhere, open_desk, close_desk),
        cmocka_unit_test(test_a_burst_of_a_fleet),
    };
    return cmocka_run_group_tests_name("unit/check/check_burst", tests, NULL, NULL);
}
