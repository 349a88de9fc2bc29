/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers that rest on several limits or several keys: how long a refused reservation has to wait, and how a
 * weir_check_all counts where single keys have overrides. Under a clock that the test moves.
 *
 * Guards: src/check/reserve.c, src/check/check_all.c, src/check/denial.c, src/check/all_table.c, src/process/insert.c
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "limiter/weir_private.h"
#include "policy/policy_set.h"
#include "support/support.h"
#include "thread/limiter.h"
#include "thread/slot.h"
#include "thread/tick.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MINUTE          (60 * SECOND)
#define START_NS        (UINT64_C(1767225610) * SECOND) /* 2026-01-01, ten seconds into a minute */

static struct {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
} d;

static void desk_open(const weir_policy *policies, size_t count)
{
    fake_clock_init(&d.clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &d.clock.clock;
    d.w = open_or_fail(&options);
    d.t = weir_attach(d.w);
    weir_error error;
    if (weir_set_policies(d.w, policies, count, &error) != 0) {
        fail_msg("%s", error.message);
    }
}

static void wait_ns(uint64_t ns)
{
    fake_clock_advance(&d.clock, ns);
    assert_true(weir_poll(d.w) >= 0);
}

/* At least as many units as a request asks for, and half of the time few, so that reservations are refused. */
static weir_limit random_limit(uint64_t *rng, size_t at)
{
    /* No two of one algorithm are the same. */
    const uint64_t drawn_ns = draw_period_ns(rng);
    const uint64_t period_ns = drawn_ns < SECOND ? drawn_ns + at : drawn_ns - at;
    weir_limit limit = draw_weir_limit(rng, draw_algorithm(rng), period_ns);
    if (at != 0 && limit.calendar != WEIR_CALENDAR_NONE) {
        limit.calendar = WEIR_CALENDAR_NONE;
        limit.period_ns = period_ns;
    }
    limit.limit = draw_once_in(rng, 2) ? draw_between(rng, 3, 1000) : limit.limit < 3 ? 3 : limit.limit;
    limit.burst = limit.burst != 0 && limit.burst < 3 ? 3 : limit.burst;
    draw_make_valid(&limit);
    return limit;
}

/* After the wait that a refused reservation gives, the request may go at once; one nanosecond earlier it may not. */
static void test_a_refused_reservation_says_when_all_limits_let_it_go(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    unsigned refused = 0;
    for (int round = 0; round < 200; round++) {
        weir_limit limits[WEIR_MAX_LIMITS];
        const weir_policy policy = {.name = "p", .limits = limits, .limit_count = 2 + random_below(&rng, 3)};
        for (size_t i = 0; i < policy.limit_count; i++) {
            limits[i] = random_limit(&rng, i);
        }
        desk_open(&policy, 1);
        const weir_key key = weir_make_key(d.w, weir_find_policy(d.w, "p"), "k", 1);
        for (int i = 0; i < 200; i++) {
            const uint64_t cost = 1 + random_below(&rng, 3);
            const uint64_t most_ns = random_below(&rng, 2) == 0 ? 0 : random_below(&rng, 10 * SECOND);
            uint64_t until_ns;
            if (!weir_reserve(d.t, &key, cost, most_ns, &until_ns)) {
                uint64_t left_ns;
                refused++;
                assert_in_range(until_ns, 1, 2 * 366 * 24 * HOUR); /* two of the longest periods */
                wait_ns(until_ns - 1);
                const bool early = weir_reserve(d.t, &key, cost, 0, &left_ns);
                wait_ns(1);
                if (early || left_ns != 1 || !weir_reserve(d.t, &key, cost, 0, &left_ns) || left_ns != 0) {
                    fail_msg("after %" PRIu64 " ns less 1: %s, and %" PRIu64 " ns are left", until_ns,
                             early ? "it may go" : "it may not", left_ns);
                }
            }
            wait_ns(random_below(&rng, 4) == 0 ? random_below(&rng, SECOND) : 0);
        }
        weir_close(d.w);
    }
    assert_true(refused > 1000);
}

static const weir_limit ten = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 3600 * SECOND};

/* Expects what a weir has counted since `before`. */
static void expect_counts(weir_stats *before, uint64_t allowed, uint64_t denied, uint64_t would_deny)
{
    weir_stats now;
    weir_get_stats(d.w, &now);
    assert_int_equal(now.allowed_count - before->allowed_count, allowed);
    assert_int_equal(now.denied_count - before->denied_count, denied);
    assert_int_equal(now.would_deny_count - before->would_deny_count, would_deny);
    *before = now;
}

static void test_a_request_of_several_keys_counts_once_beside_entries(void **state)
{
    (void) state;
    static const weir_policy policies[] = {{.name = "p", .limits = &ten, .limit_count = 1},
                                           {.name = "q", .limits = &ten, .limit_count = 1},
                                           {.name = "s", .limits = &ten, .limit_count = 1, .mode = WEIR_SHADOW}};
    desk_open(policies, 3);
    assert_int_equal(weir_set_override(d.w, "p:friend", "allow", NULL), 0);
    assert_int_equal(weir_set_override(d.w, "p:foe", "deny", NULL), 0);
    assert_int_equal(weir_set_override(d.w, "s:foe", "deny", NULL), 0);
    assert_int_equal(weir_set_override(d.w, "s:friend", "allow", NULL), 0);
    const weir_policy_id p = weir_find_policy(d.w, "p");
    const weir_policy_id q = weir_find_policy(d.w, "q");
    const weir_policy_id s = weir_find_policy(d.w, "s");
    const weir_key friend = weir_make_key(d.w, p, "friend", 6);
    const weir_key foe = weir_make_key(d.w, p, "foe", 3);
    const weir_key other = weir_make_key(d.w, q, "other", 5);
    const weir_key shadow_foe = weir_make_key(d.w, s, "foe", 3);
    const weir_key shadow_friend = weir_make_key(d.w, s, "friend", 6);
    const weir_key shadow = weir_make_key(d.w, s, "other", 5);
    weir_stats stats;
    weir_get_stats(d.w, &stats);

    assert_true(weir_check_all(d.t, (const weir_key[]){friend, other}, NULL, 2, NULL));
    expect_counts(&stats, 1, 0, 0);
    assert_true(weir_check_all(d.t, (const weir_key[]){friend}, NULL, 1, NULL));
    expect_counts(&stats, 1, 0, 0);
    weir_verdict verdict;
    assert_false(weir_check_all(d.t, (const weir_key[]){other, foe, friend}, NULL, 3, &verdict));
    assert_int_equal(verdict.key_index, 1);
    expect_counts(&stats, 0, 1, 0);
    assert_true(weir_check_all(d.t, (const weir_key[]){other, shadow_foe}, NULL, 2, &verdict));
    assert_true(verdict.would_deny);
    expect_counts(&stats, 1, 0, 1);
    assert_false(weir_check_all(d.t, (const weir_key[]){shadow_foe, shadow_friend, shadow, foe}, NULL, 4, NULL));
    expect_counts(&stats, 0, 1, 0);
    const uint64_t costs[] = {1, 11};
    assert_false(weir_check_all(d.t, (const weir_key[]){friend, other}, costs, 2, NULL));
    expect_counts(&stats, 0, 1, 0);
    /* Denied requests took no units of their limits. */
    assert_true(weir_peek(d.t, &other, 8, &verdict));
    assert_int_equal(verdict.remaining, 8);
    weir_close(d.w);
}

/* Expects a line of the metrics. */
static void expect_metric(const char *line)
{
    static char text[65536];
    assert_in_range(weir_write_metrics(d.w, text, sizeof(text)), 1, sizeof(text) - 1);
    if (strstr(text, line) == NULL) {
        fail_msg("no %s in %s", line, text);
    }
}

/* Whoever decides is known to be at its limit; the other policy was not asked further. */
static void test_a_denial_counts_for_the_policy_that_decided(void **state)
{
    (void) state;
    static const weir_limit hundred = {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = 3600 * SECOND};
    static const weir_policy policies[] = {{.name = "few", .limits = &ten, .limit_count = 1},
                                           {.name = "many", .limits = &hundred, .limit_count = 1},
                                           {.name = "trial", .limits = &ten, .limit_count = 1, .mode = WEIR_SHADOW}};
    for (int way = 0; way < 3; way++) {
        desk_open(policies, 3);
        weir_key keys[3 * 30];
        uint64_t allowed;
        for (size_t i = 0; i < 3 * (size_t) 30; i++) {
            keys[i] = weir_make_key(d.w, weir_find_policy(d.w, policies[i % 3].name), "k", 1);
        }
        weir_verdict v;
        for (int times = 0; times < 30 && way < 2; times++) {
            assert_int_equal(weir_check_all(d.t, keys, NULL, 3, way == 0 ? NULL : &v), times < 10);
        }
        if (way == 2) {
            assert_int_equal(weir_check_all_burst(d.t, keys, 3, 30, NULL, &allowed), 10);
        }
        weir_stats stats;
        weir_get_stats(d.w, &stats);
        assert_true(stats.allowed_count == 10 && stats.denied_count == 20 && stats.would_deny_count == 0);
        expect_metric("weir_requests_total{answer=\"allowed\"} 10\n");
        expect_metric("weir_requests_total{answer=\"denied\"} 20\n");
        expect_metric("weir_checks_total{policy=\"few\",answer=\"allowed\"} 10\n");
        expect_metric("weir_checks_total{policy=\"few\",answer=\"denied\"} 20\n");
        expect_metric("weir_checks_total{policy=\"many\",answer=\"allowed\"} 10\n");
        expect_metric("weir_checks_total{policy=\"many\",answer=\"denied\"} 0\n");
        expect_metric("weir_checks_total{policy=\"trial\",answer=\"allowed\"} 10\n");
        weir_close(d.w);
    }
}

/* A key of the next test, by policy and name. */
struct named_key {
    bool shadow, unknown;
    int entry; /* 1: allows, -1: denies */
    uint64_t most, used;
    weir_key key;
};

/* What a request for so many of the keys comes to, and what is used by it. */
struct outcome {
    bool allowed, would_deny, by_entry;
    uint64_t left; /* allowed: the least of any limit that was counted; UINT64_MAX: of none */
};

static struct outcome play_keys(struct named_key *const *keys, const uint64_t *costs, size_t count)
{
    struct outcome out = {.allowed = true, .left = UINT64_MAX};
    uint64_t before[8];
    bool limited = false;
    for (size_t i = 0; i < count; i++) {
        before[i] = keys[i]->used;
    }
    for (size_t i = 0; i < count; i++) {
        struct named_key *k = keys[i];
        const bool counts = !k->unknown && k->entry == 0;
        const uint64_t asked = costs[i] != 0 ? costs[i] : 1;
        const bool denies = k->entry < 0 || (counts && k->used + asked > k->most);
        limited = limited || counts;
        out.by_entry = out.by_entry || (k->entry < 0 && !k->shadow);
        out.allowed = out.allowed && (!denies || k->shadow);
        out.would_deny = out.would_deny || (denies && k->shadow);
        k->used += counts && !denies ? costs[i] : 0;
        out.left = counts && !denies && k->most - k->used < out.left ? k->most - k->used : out.left;
    }
    if (out.left == UINT64_MAX && limited) {
        out.left = 0; /* all were left out */
    }
    for (size_t i = count; i-- > 0;) {
        keys[i]->used = out.allowed ? keys[i]->used : before[i];
    }
    return out;
}

/* Requests of keys with entries and without, of policies that enforce or only look on, or do not exist. */
static void test_a_request_of_several_keys_is_decided_by_all_of_them(void **state)
{
    (void) state;
    enum { POLICIES = 4, NAMES = 3, MOST = 5 };
    static const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 30, .period_ns = HOUR},
                                        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 40, .period_ns = 24 * HOUR},
                                        {.algorithm = WEIR_SLIDING_LOG, .limit = 25, .period_ns = HOUR}};
    static const weir_policy policies[] = {
        {.name = "p", .limits = &limits[0], .limit_count = 1},
        {.name = "q", .limits = &limits[1], .limit_count = 2},
        {.name = "s", .limits = &limits[0], .limit_count = 1, .mode = WEIR_SHADOW},
    };
    static const char *const names[NAMES] = {"friend", "foe", "other"};
    static const uint64_t most[] = {30, 25, 30};
    uint64_t rng = test_seed();
    desk_open(policies, 3);
    for (unsigned round = 0; round < 60; round++) {
        const bool entries = round % 3 != 0;
        struct named_key all[POLICIES * NAMES];
        for (size_t i = 0; i < POLICIES * NAMES; i++) {
            const size_t p = i / NAMES;
            struct named_key *k = &all[i];
            *k = (struct named_key){.unknown = p == 3, .shadow = p == 2, .most = most[p % 3]};
            k->entry = !entries || k->unknown || i % NAMES == 2 ? 0 : i % NAMES == 0 ? 1 : -1;
            k->key = weir_make_key(d.w, k->unknown ? WEIR_NO_POLICY : weir_find_policy(d.w, policies[p].name),
                                   names[i % NAMES], strlen(names[i % NAMES]));
            if (!k->unknown && i % NAMES != 2) {
                char name[20];
                (void) snprintf(name, sizeof(name), "%s:%s", policies[p].name, names[i % NAMES]);
                const char *entry = k->entry > 0 ? "allow" : "deny";
                assert_true(weir_set_override(d.w, name, k->entry != 0 ? entry : NULL, NULL) == 0 || k->entry == 0);
            }
            assert_true(k->unknown || weir_reset(d.w, &k->key) == 0);
        }
        for (unsigned n = 0; n < 100; n++) {
            struct named_key *keys[MOST];
            weir_key asked[MOST];
            uint64_t costs[MOST];
            weir_verdict v = {.allowed = false};
            weir_stats before;
            weir_stats after;
            const size_t count = draw_between(&rng, 1, MOST);
            const size_t kinds = draw_once_in(&rng, 2) ? NAMES * 2 : POLICIES * NAMES;
            for (size_t i = 0; i < count; i++) {
                do {
                    keys[i] = &all[random_below(&rng, kinds)];
                } while (keys[i]->entry < 0 && !draw_once_in(&rng, 4));
                asked[i] = keys[i]->key;
                costs[i] = draw_once_in(&rng, 8) ? 0 : draw_between(&rng, 1, 4);
            }
            const struct outcome out = play_keys(keys, costs, count);
            const bool tells = draw_once_in(&rng, 2);
            weir_get_stats(d.w, &before);
            assert_int_equal(weir_check_all(d.t, asked, costs, count, tells ? &v : NULL), out.allowed);
            weir_get_stats(d.w, &after);
            assert_int_equal(after.allowed_count - before.allowed_count, out.allowed);
            assert_int_equal(after.denied_count - before.denied_count, !out.allowed);
            if (tells) {
                assert_true(v.allowed == out.allowed && v.key_index < count);
                assert_true(!out.allowed || v.would_deny == out.would_deny);
                assert_true(out.allowed ? v.remaining == out.left && v.retry_after_ns == 0 : v.retry_after_ns != 0);
                const struct named_key *decided = keys[v.key_index];
                assert_true(out.allowed || !out.by_entry ||
                            (decided->entry < 0 && !decided->shadow && v.retry_after_ns == UINT64_MAX));
                assert_true(out.allowed || (!decided->shadow && !decided->unknown && decided->entry <= 0));
                assert_true(!out.allowed || out.left == UINT64_MAX || decided->most - decided->used == out.left ||
                            out.left == 0);
            }
            if (draw_once_in(&rng, 10)) {
                wait_ns(100 * MILLISECOND);
            }
        }
    }
    weir_close(d.w);
}

/* Units that slots of the handle hold of a key. */
static uint64_t granted_of(const weir_key *key)
{
    const size_t index = slot_find(d.t, key->hash);
    return index != SLOT_NONE ? load_relaxed(&d.t->accounts[index].granted) : 0;
}

static bool are_apart(const weir_key *a, const weir_key *b)
{
    return a->hash == b->hash || slot_set(d.t, a->hash) != slot_set(d.t, b->hash);
}

/* Keys of these names, of the policies "two", "one" and "two", of which no two share a set of slots. */
static void make_apart(weir_key keys[3], const char *const names[3])
{
    unsigned salt = 0;
    do {
        assert_true(salt < 1000);
        for (size_t k = 0; k < 3; k++) {
            char name[16];
            const int length = snprintf(name, sizeof(name), "%s%u", names[k], k == 1 ? 0 : salt);
            keys[k] = weir_make_key(d.w, weir_find_policy(d.w, k == 1 ? "one" : "two"), name, (size_t) length);
        }
        salt++;
    } while (!(are_apart(&keys[0], &keys[1]) && are_apart(&keys[1], &keys[2]) && are_apart(&keys[0], &keys[2])));
}

/*
 * The keys of a request that the table decides get grants, each for itself, so that soon no request goes there. A key
 * that is named twice gets none: each of its claims reads what is left after those before it.
 */
static void test_keys_that_the_table_decides_are_granted_units_unless_named_twice(void **state)
{
    (void) state;
    enum { TIMES = 100 };
    static const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = HOUR},
                                        {.algorithm = WEIR_FIXED_WINDOW, .limit = 2000, .period_ns = 24 * HOUR}};
    static const weir_policy policies[] = {{.name = "one", .limits = limits, .limit_count = 1},
                                           {.name = "two", .limits = limits, .limit_count = 2}};
    static const struct {
        const char *names[3]; /* of one policy in turn with the other, which several limits keep from other ways */
        bool twice;
    } rows[] = {{{"a", "b", "c"}, false}, {{"a", "b", "a"}, true}, {{"a", "a", "a"}, true}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        weir_key keys[3];
        weir_stats before;
        weir_stats after;
        desk_open(policies, 2);
        make_apart(keys, rows[i].names);
        weir_get_stats(d.w, &before);
        for (uint64_t n = 1; n <= TIMES; n++) {
            weir_verdict v;
            assert_true(weir_check_all(d.t, keys, NULL, 3, &v));
            assert_int_equal(v.remaining, 1000 - n * (rows[i].twice ? 2 : 1));
            assert_true(!rows[i].twice || granted_of(&keys[0]) == 0);
            assert_int_equal(d.t->shared->rcu_depth | load_relaxed(&d.t->shared->rcu_count) % 2, 0);
        }
        assert_int_equal(granted_of(&keys[0]) == 0, rows[i].twice);
        assert_int_not_equal(granted_of(&keys[1]), 0);
        weir_get_stats(d.w, &after);
        if (rows[i].twice) {
            assert_int_equal(after.slow_count - before.slow_count, TIMES);
        } else {
            assert_in_range(after.slow_count - before.slow_count, 1, 10); /* each grant is twice the one before */
        }
        weir_close(d.w);
    }
}

/* Whether a limit of a key has refused a request: of an evicted key that is the most important thing to know. */
static bool has_refused(const weir_key *key, size_t limit)
{
    const struct process *process = &d.w->limiter.process;
    const struct policy *policy = policy_set_by_id(process_policies(process), key->policy);
    const uint32_t at = table_find(&process->table, cell_hash(policy, key, limit));
    assert_int_not_equal(at, TABLE_NONE);
    return cell_meta_had(&process->table.metas[at], EVENT_REFUSED);
}

/* Each key has two limits, of 10 and 20 units. By the bits of `full` they are used up. */
static void test_each_limit_that_refuses_is_known_to_have_refused(void **state)
{
    (void) state;
    enum { KEYS = 3, LIMITS = 2 };
    static const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = HOUR},
                                        {.algorithm = WEIR_SLIDING_LOG, .limit = 20, .period_ns = HOUR}};
    static const weir_policy policies[] = {{.name = "p", .limits = limits, .limit_count = LIMITS}};
    desk_open(policies, 1);
    for (unsigned full = 0; full < 1U << KEYS * LIMITS; full++) {
        weir_key keys[KEYS];
        uint64_t costs[KEYS];
        unsigned names[KEYS];
        bool passes = true;
        for (unsigned k = 0; k < KEYS; k++) {
            const unsigned used_up = full >> k * LIMITS & 3;
            names[k] = full << 2 | k;
            keys[k] = weir_make_key(d.w, weir_find_policy(d.w, "p"), &names[k], sizeof(names[k]));
            weir_charge(d.t, &keys[k], 9);
            costs[k] = used_up == 0 ? 1 : used_up == 1 ? 2 : 12; /* none, the first, or both lack room */
            passes = passes && used_up == 0;
        }
        assert_int_equal(weir_check_all(d.t, keys, costs, KEYS, NULL), passes);
        for (unsigned k = 0; k < KEYS; k++) {
            assert_int_equal(has_refused(&keys[k], 0), 9 + costs[k] > 10);
            assert_int_equal(has_refused(&keys[k], 1), 9 + costs[k] > 20);
        }
    }
    weir_close(d.w);
}

/* One thread has read the clock, the other goes by a tick that is some milliseconds old. */
static void test_a_burst_of_exactly_the_limit_passes_whole_whoever_looks_at_the_clock(void **state)
{
    (void) state;
    static const weir_limit limits[] = {
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND},
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = 1000 * SECOND, .burst = 7},
    };
    static const weir_policy policies[] = {{.name = "p", .limits = &limits[0], .limit_count = 1},
                                           {.name = "p2", .limits = limits, .limit_count = 2}};
    for (int p = 0; p < 2; p++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.no_thread = true;
        options.tick_us = 100000;
        weir *w = open_or_fail(&options);
        weir_thread *ahead = weir_attach(w);
        weir_thread *behind = weir_attach(w);
        assert_int_equal(weir_set_policies(w, policies, 2, NULL), 0);
        const weir_policy_id id = weir_find_policy(w, policies[p].name);
        const uint64_t burst = p == 0 ? 1000 : 7;
        (void) weir_poll(w);
        for (int i = 0; i < 5; i++) {
            const struct timespec pause = {.tv_nsec = 10000000};
            (void) nanosleep(&pause, NULL);
            ahead->shared->looked_count =
                load_relaxed(&ahead->shared->slow_count) - CLOCK_EVERY; /* this thread reads the clock next */
            const weir_key key = weir_make_key(w, id, &i, sizeof(i));
            assert_true(weir_check(ahead, &key, burst - 1, NULL));
            assert_true(weir_check(behind, &key, 1, NULL));
        }
        weir_close(w);
    }
}

/* Wherever a key is among the others whose policy goes by the clock; else the last tick says what time it is. */
static void test_a_request_goes_by_the_clock_if_one_of_its_policies_does(void **state)
{
    (void) state;
    static const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = HOUR},
                                        {.algorithm = WEIR_FIXED_WINDOW, .limit = 20, .period_ns = 24 * HOUR}};
    static const weir_limit log = {.algorithm = WEIR_SLIDING_LOG, .limit = 10, .period_ns = HOUR};
    static const weir_policy policies[] = {{.name = "tick", .limits = limits, .limit_count = 2},
                                           {.name = "clock", .limits = &log, .limit_count = 1}};
    static const struct {
        size_t count;
        bool fine[3];
    } rows[] = {{1, {0}},    {2, {0, 0}},    {3, {0, 0, 0}}, {1, {1}},      {2, {1, 0}},
                {2, {0, 1}}, {3, {1, 0, 0}}, {3, {0, 1, 0}}, {3, {0, 0, 1}}};
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    options.tick_us = 100000;
    weir *w = open_or_fail(&options);
    weir_thread *t = weir_attach(w);
    assert_int_equal(weir_set_policies(w, policies, 2, NULL), 0);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        weir_key keys[3];
        size_t names[3];
        bool fine = false;
        for (size_t k = 0; k < rows[i].count; k++) {
            names[k] = i << 2 | k;
            keys[k] =
                weir_make_key(w, weir_find_policy(w, rows[i].fine[k] ? "clock" : "tick"), &names[k], sizeof(names[k]));
            fine = fine || rows[i].fine[k];
        }
        tick_wake(t->limiter, real_ns());
        t->shared->looked_count = load_relaxed(&t->shared->slow_count); /* no look at the clock is due */
        const uint64_t tick_ns = load_relaxed(&t->line->now_ns);
        uint64_t clock_ns;
        do {
            clock_ns = real_ns() + load_relaxed(&t->line->offset_ns);
        } while (clock_ns <= tick_ns);
        weir_verdict v;
        assert_true(weir_check_all(t, keys, NULL, rows[i].count, &v));
        assert_true(fine ? v.decided_ns >= clock_ns : v.decided_ns == tick_ns);
    }
    weir_close(w);
}

/* Where no thread of the weir moves its time, those that check do: also one that asks for several keys at once alone.
 */
static void test_requests_of_several_keys_move_time_on(void **state)
{
    (void) state;
    static const weir_policy policy = {.name = "p", .limits = &ten, .limit_count = 1};
    weir_options options = WEIR_OPTIONS_INIT;
    options.no_thread = true;
    weir *w = open_or_fail(&options);
    weir_thread *t = weir_attach(w);
    assert_int_equal(weir_set_policies(w, &policy, 1, NULL), 0);
    (void) weir_poll(w);
    tick_wake(t->limiter, real_ns()); /* it sleeps where the machine stood still since it was opened */
    const uint64_t now_ns = load_relaxed(&t->line->now_ns);
    const uint64_t due_ns = real_ns() + 2 * t->limiter->tick_ns;
    while (real_ns() < due_ns) {
    }
    for (uint64_t name = 0; name <= 2 * (uint64_t) CLOCK_EVERY; name += 2) {
        const uint64_t names[] = {name, name + 1};
        const weir_key keys[] = {weir_make_key(w, weir_find_policy(w, "p"), &names[0], sizeof(names[0])),
                                 weir_make_key(w, weir_find_policy(w, "p"), &names[1], sizeof(names[1]))};
        assert_true(weir_check_all(t, keys, NULL, 2, NULL));
    }
    assert_true(load_relaxed(&t->line->now_ns) > now_ns);
    weir_close(w);
}

/*
 * A table full of keys that have used up their limits. The cells of a new key have the least to lose, and in a small
 * table two of them often share a set: the one must not take the other's place, and the other the one's, without end.
 */
static void test_the_limits_of_a_key_do_not_evict_each_other(void **state)
{
    (void) state;
    static const weir_limit full = {.algorithm = WEIR_FIXED_WINDOW, .limit = 2, .period_ns = 24 * HOUR};
    static const weir_limit several[] = {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = SECOND},
                                         {.algorithm = WEIR_SLIDING_LOG, .limit = 30, .period_ns = HOUR},
                                         {.algorithm = WEIR_SLIDING_WINDOW, .limit = 200, .period_ns = 24 * HOUR},
                                         {.algorithm = WEIR_FIXED_WINDOW, .limit = 300, .period_ns = 24 * HOUR}};
    static const weir_policy policies[] = {{.name = "full", .limits = &full, .limit_count = 1},
                                           {.name = "several", .limits = several, .limit_count = 4}};
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.no_thread = true;
    weir *w = open_or_fail(&options);
    weir_thread *t = weir_attach(w);
    assert_int_equal(weir_set_policies(w, policies, 2, NULL), 0);
    for (uint32_t number = 0; number < 4000; number++) {
        const weir_key key = weir_make_key(w, weir_find_policy(w, "full"), &number, sizeof(number));
        (void) weir_check(t, &key, 2, NULL);
        (void) weir_check(t, &key, 2, NULL); /* a key that comes again gets a cell */
    }
    for (uint32_t number = 0; number < 1000; number++) {
        const weir_key key = weir_make_key(w, weir_find_policy(w, "several"), &number, sizeof(number));
        assert_true(weir_check(t, &key, 1, NULL));
        weir_charge(t, &key, 1);
    }
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_refused_reservation_says_when_all_limits_let_it_go),
        cmocka_unit_test(test_a_request_goes_by_the_clock_if_one_of_its_policies_does),
        cmocka_unit_test(test_requests_of_several_keys_move_time_on),
        cmocka_unit_test(test_a_request_of_several_keys_is_decided_by_all_of_them),
        cmocka_unit_test(test_a_denial_counts_for_the_policy_that_decided),
        cmocka_unit_test(test_keys_that_the_table_decides_are_granted_units_unless_named_twice),
        cmocka_unit_test(test_each_limit_that_refuses_is_known_to_have_refused),
        cmocka_unit_test(test_a_burst_of_exactly_the_limit_passes_whole_whoever_looks_at_the_clock),
        cmocka_unit_test(test_a_request_of_several_keys_counts_once_beside_entries),
        cmocka_unit_test(test_the_limits_of_a_key_do_not_evict_each_other),
    };
    return cmocka_run_group_tests_name("unit/check/several_limits", tests, NULL, NULL);
}
