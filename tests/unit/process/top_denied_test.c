/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys denied most: what weir_top_offenders says of denials on every way through the library, on a clock that the
 * test moves. (The list itself: top_k_test.c.)
 *
 * Guards: src/process/top_denied.c, src/process/key_name.c, src/check/slot_learn.c
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/nodes.h"

#define LONG_WORDS "a-key-that-is-longer-than-what-is-kept-of-it"

static const weir_limit ten = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};

struct server {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
};

static void server_open(struct server *p, size_t max_keys)
{
    fake_clock_init(&p->clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &p->clock.clock;
    options.max_keys = max_keys;
    options.max_threads = 2;
    p->w = open_or_fail(&options);
    p->t = weir_attach(p->w);
}

static void server_close(struct server *p)
{
    weir_detach(p->t);
    weir_close(p->w);
}

/* Lets so much time pass that denials are in the list. */
static void process_pass(struct server *p, uint64_t ns)
{
    fake_clock_advance(&p->clock, ns);
    assert_true(weir_poll(p->w) >= 0);
}

/* Returns units denied. */
static uint64_t deny(const struct server *p, weir_policy_id policy, const char *name, uint64_t times, uint64_t cost)
{
    const weir_key key = weir_make_key(p->w, policy, name, strlen(name));
    uint64_t denied = 0;
    for (uint64_t i = 0; i < times; i++) {
        denied += weir_check(p->t, &key, cost, NULL) ? 0 : cost;
    }
    return denied;
}

static void is_offender(const weir_offender *offender, const char *key, uint64_t units)
{
    assert_string_equal(offender->key, key);
    assert_int_equal(offender->denied_units, units);
    assert_int_equal(offender->error_units, 0);
}

static void set_policies(weir *w, const weir_policy *policies, size_t count)
{
    weir_error error;
    if (weir_set_policies(w, policies, count, &error) != 0) {
        fail_msg("weir_set_policies: %s", error.message);
    }
}

static void test_offenders_are_told_with_what_they_were_denied_most_first(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_SLIDING_LOG,
                                                WEIR_TOKEN_BUCKET, WEIR_LEAKY_BUCKET};
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
        for (int scope = WEIR_SCOPE_FLEET; scope <= WEIR_SCOPE_PROCESS; scope++) {
            struct server p;
            server_open(&p, 1000);
            const weir_limit limit = {.algorithm = algorithms[a], .limit = 10, .period_ns = 24 * HOUR};
            const weir_policy_id id = set_one_policy(p.w, &limit, 1, (weir_scope) scope);
            weir_offender top[WEIR_TOP_OFFENDERS];
            assert_int_equal(weir_top_offenders(p.w, id, top, WEIR_TOP_OFFENDERS), 0);
            uint64_t some = 0;
            uint64_t most = 0;
            uint64_t costly = 0;
            for (int round = 0; round < 3; round++) {
                some += deny(&p, id, "some", 20, 1);
                most += deny(&p, id, "most", 400, 1);
                costly += deny(&p, id, "costly", 20, 3);
                (void) deny(&p, id, "polite", round == 0 ? 1 : 0, 1);
                process_pass(&p, 40 * MILLISECOND);
            }
            assert_true(some >= 3 * 20 - 10 && most >= 3 * 400 - 10 && costly >= 3 * 60 - 10);
            assert_int_equal(weir_top_offenders(p.w, id, top, WEIR_TOP_OFFENDERS), 3);
            is_offender(&top[0], "most", most);
            is_offender(&top[1], "costly", costly);
            is_offender(&top[2], "some", some);
            weir_stats stats;
            weir_get_stats(p.w, &stats);
            assert_int_equal(stats.denied_units, some + most + costly);
            assert_int_equal(stats.evicted_denied_units, 0);
            server_close(&p);
        }
    }
}

static void test_only_so_many_are_told_as_are_asked_for_and_of_known_policies(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 1000);
    const weir_policy_id id = set_one_policy(p.w, &ten, 1, WEIR_SCOPE_PROCESS);
    for (uint64_t i = 1; i <= 20; i++) {
        char name[16];
        (void) snprintf(name, sizeof(name), "k%d", (int) i);
        (void) deny(&p, id, name, 10 + i, 1);
    }
    process_pass(&p, 40 * MILLISECOND);
    weir_offender top[30];
    memset(top, 0x55, sizeof(top));
    assert_int_equal(weir_top_offenders(p.w, id, top, 2), 2);
    is_offender(&top[0], "k20", 20);
    is_offender(&top[1], "k19", 19);
    assert_int_equal(top[2].key[0], 0x55);
    assert_int_equal(weir_top_offenders(p.w, id, top, 30), WEIR_TOP_OFFENDERS);
    is_offender(&top[WEIR_TOP_OFFENDERS - 1], "k5", 5);
    assert_int_equal(top[WEIR_TOP_OFFENDERS].key[0], 0x55);
    assert_int_equal(weir_top_offenders(p.w, id, NULL, 0), 0);
    assert_int_equal(weir_top_offenders(p.w, WEIR_NO_POLICY, top, 30), 0);
    assert_int_equal(weir_top_offenders(p.w, id + 1, top, 30), 0);
    assert_int_equal(weir_top_offenders(p.w, UINT32_MAX, top, 30), 0);
    server_close(&p);
}

static void test_keys_are_told_as_records_show_them(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 1000);
    const weir_policy policies[] = {{.name = "plain", .limits = &ten, .limit_count = 1},
                                    {.name = "secret", .limits = &ten, .limit_count = 1, .hash_keys = true}};
    set_policies(p.w, policies, 2);
    const weir_policy_id plain = weir_find_policy(p.w, "plain");
    const weir_policy_id secret = weir_find_policy(p.w, "secret");
    (void) deny(&p, plain, "a b%{}\n\x7f\xff\"\\", 14, 1);
    (void) deny(&p, plain, "", 13, 1);
    (void) deny(&p, plain, LONG_WORDS "1", 12, 1);
    (void) deny(&p, plain, LONG_WORDS "2", 11, 1);
    (void) deny(&p, secret, "token", 11, 1);
    process_pass(&p, 40 * MILLISECOND);
    weir_offender top[4];
    assert_int_equal(weir_top_offenders(p.w, plain, top, 4), 4);
    is_offender(&top[0], "a%20b%25%7b%7d%0a%7f%ff\"\\", 4);
    is_offender(&top[1], "", 3);
    assert_memory_equal(top[2].key, "a-key-that-i~", 13);
    assert_memory_equal(top[3].key, "a-key-that-i~", 13);
    assert_int_equal(strlen(top[2].key), 13 + 32);
    assert_string_not_equal(top[2].key, top[3].key);
    assert_int_equal(weir_top_offenders(p.w, secret, top, 4), 1);
    assert_int_equal(top[0].key[0], '~');
    assert_int_equal(strlen(top[0].key), 1 + 32);
    server_close(&p);
}

static void test_a_denial_counts_once_whatever_the_policy_has_of_limits_and_tiers(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 1000);
    const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR},
                                 {.algorithm = WEIR_TOKEN_BUCKET, .limit = 5, .period_ns = 24 * HOUR},
                                 {.algorithm = WEIR_SLIDING_LOG, .limit = 7, .period_ns = 24 * HOUR}};
    const weir_policy policies[] = {{.name = "api", .limits = limits, .limit_count = 3},
                                    {.name = "api/pro", .limits = limits + 1, .limit_count = 2}};
    set_policies(p.w, policies, 2);
    const weir_policy_id api = weir_find_policy(p.w, "api");
    const weir_policy_id pro = weir_find_policy(p.w, "api/pro");
    uint64_t denied = deny(&p, api, "key", 25, 1);
    assert_int_equal(denied, 20);
    denied += deny(&p, pro, "key", 9, 1); /* the tiers share what the key has used */
    assert_int_equal(denied, 29);
    process_pass(&p, 40 * MILLISECOND);
    weir_offender top[2];
    assert_int_equal(weir_top_offenders(p.w, api, top, 2), 1);
    is_offender(&top[0], "key", 29);
    assert_int_equal(weir_top_offenders(p.w, pro, top, 2), 1);
    is_offender(&top[0], "key", 29);
    server_close(&p);
}

static void test_every_call_that_denies_is_counted_but_what_can_never_pass(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 1000);
    const weir_policy policies[] = {{.name = "a", .limits = &ten, .limit_count = 1},
                                    {.name = "b", .limits = &ten, .limit_count = 1},
                                    {.name = "tried", .limits = &ten, .limit_count = 1, .mode = WEIR_SHADOW}};
    set_policies(p.w, policies, 3);
    const weir_policy_id a = weir_find_policy(p.w, "a");
    const weir_policy_id b = weir_find_policy(p.w, "b");
    const weir_policy_id tried = weir_find_policy(p.w, "tried");
    const weir_key keys[] = {weir_make_key(p.w, a, "all", 3), weir_make_key(p.w, b, "all", 3)};
    assert_true(weir_check(p.t, &keys[1], 10, NULL));
    for (int i = 0; i < 8; i++) {
        assert_false(weir_check_all(p.t, keys, NULL, 2, NULL)); /* for what is used up of b */
    }
    const weir_key reserved = weir_make_key(p.w, a, "reserved", 8);
    assert_true(weir_reserve(p.t, &reserved, 10, 0, NULL));
    for (int i = 0; i < 3; i++) {
        assert_false(weir_reserve(p.t, &reserved, 2, 0, NULL));
    }
    weir_verdict v;
    assert_false(weir_peek(p.t, &reserved, 1, &v)); /* a peek is no request */
    assert_int_equal(deny(&p, a, "reserved", 4, 11), 44);
    const weir_key shadowed = weir_make_key(p.w, tried, "shadowed", 8);
    for (int i = 0; i < 15; i++) {
        assert_true(weir_check(p.t, &shadowed, 1, NULL));
    }
    process_pass(&p, 40 * MILLISECOND);
    weir_offender top[3];
    assert_int_equal(weir_top_offenders(p.w, a, top, 3), 1);
    is_offender(&top[0], "reserved", 6);
    assert_int_equal(weir_top_offenders(p.w, b, top, 3), 1);
    is_offender(&top[0], "all", 8);
    assert_int_equal(weir_top_offenders(p.w, tried, top, 3), 1);
    is_offender(&top[0], "shadowed", 5);
    server_close(&p);
}

static void test_what_was_denied_counts_half_after_each_minute(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 1000);
    const weir_policy_id id = set_one_policy(p.w, &ten, 1, WEIR_SCOPE_PROCESS);
    process_pass(&p, 40 * MILLISECOND); /* from when on minutes are counted */
    (void) deny(&p, id, "gone", 1010, 1);
    process_pass(&p, 40 * MILLISECOND);
    weir_offender top[2];
    assert_int_equal(weir_top_offenders(p.w, id, top, 2), 1);
    is_offender(&top[0], "gone", 1000);
    (void) deny(&p, id, "there", 410, 1);
    process_pass(&p, 60 * SECOND); /* denials at the end of a minute are new */
    assert_int_equal(weir_top_offenders(p.w, id, top, 2), 2);
    is_offender(&top[0], "gone", 500);
    is_offender(&top[1], "there", 400);
    for (int minute = 0; minute < 3; minute++) {
        (void) deny(&p, id, "there", 400, 1);
        process_pass(&p, 60 * SECOND);
    }
    assert_int_equal(weir_top_offenders(p.w, id, top, 2), 2);
    is_offender(&top[0], "there", 750); /* 400, 600, 700: towards 800 */
    is_offender(&top[1], "gone", 62);
    process_pass(&p, 5 * 60 * SECOND);
    assert_int_equal(weir_top_offenders(p.w, id, top, 2), 2);
    is_offender(&top[0], "there", 23);
    is_offender(&top[1], "gone", 1);
    process_pass(&p, 24 * HOUR);
    assert_int_equal(weir_top_offenders(p.w, id, top, 2), 0);
    server_close(&p);
}

static void test_the_last_of_the_most_policies_has_a_list_like_the_first(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 1000);
    weir_policy *policies = calloc(WEIR_MAX_POLICIES, sizeof(*policies));
    char(*names)[8] = calloc(WEIR_MAX_POLICIES, sizeof(*names));
    assert_true(policies != NULL && names != NULL);
    for (unsigned i = 0; i < WEIR_MAX_POLICIES; i++) {
        (void) snprintf(names[i], sizeof(names[i]), "p%u", i);
        policies[i] = (weir_policy){.name = names[i], .limits = &ten, .limit_count = 1};
    }
    set_policies(p.w, policies, WEIR_MAX_POLICIES);
    process_pass(&p, 40 * MILLISECOND);
    const size_t ends[] = {0, WEIR_MAX_POLICIES - 1};
    for (size_t i = 0; i < 2; i++) {
        (void) deny(&p, weir_find_policy(p.w, names[ends[i]]), "k", 410, 1);
    }
    process_pass(&p, 40 * MILLISECOND);
    process_pass(&p, 60 * SECOND);
    for (size_t i = 0; i < 2; i++) {
        weir_offender top[2];
        assert_int_equal(weir_top_offenders(p.w, weir_find_policy(p.w, names[ends[i]]), top, 2), 1);
        is_offender(&top[0], "k", 200);
    }
    server_close(&p);
    free(policies);
    free(names);
}

static void test_lists_stay_when_policies_change_and_no_memory_is_added(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 1000);
    const weir_limit more = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND};
    const weir_policy before[] = {{.name = "stays", .limits = &ten, .limit_count = 1},
                                  {.name = "goes", .limits = &ten, .limit_count = 1}};
    const weir_policy after[] = {{.name = "new", .limits = &ten, .limit_count = 1},
                                 {.name = "stays", .limits = &more, .limit_count = 1}};
    weir_stats stats;
    weir_get_stats(p.w, &stats);
    const uint64_t memory_size = stats.memory_size;
    set_policies(p.w, before, 2);
    const weir_policy_id stays = weir_find_policy(p.w, "stays");
    const weir_policy_id goes = weir_find_policy(p.w, "goes");
    (void) deny(&p, stays, "key", 30, 1);
    (void) deny(&p, goes, "key", 40, 1);
    process_pass(&p, 40 * MILLISECOND);
    (void) deny(&p, stays, "key", 5, 1); /* the denials are not collected yet */
    set_policies(p.w, after, 2);
    process_pass(&p, 40 * MILLISECOND);
    weir_offender top[2];
    assert_int_equal(weir_top_offenders(p.w, stays, top, 2), 1);
    is_offender(&top[0], "key", 25);
    assert_int_equal(weir_top_offenders(p.w, goes, top, 2), 0);
    assert_int_equal(weir_top_offenders(p.w, weir_find_policy(p.w, "new"), top, 2), 0);
    weir_get_stats(p.w, &stats);
    assert_int_equal(stats.memory_size, memory_size);
    server_close(&p);
}

static void test_a_flood_of_offenders_is_counted_in_turn_and_the_worst_stand_out(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 100000);
    const weir_limit one = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 24 * HOUR};
    const weir_policy_id id = set_one_policy(p.w, &one, 1, WEIR_SCOPE_PROCESS);
    uint64_t flood = 0;
    for (int round = 0; round < 4; round++) {
        for (uint64_t i = 0; i < 50000; i++) {
            const weir_key key = weir_make_key(p.w, id, &i, sizeof(i));
            flood += !weir_check(p.t, &key, 1, NULL);
        }
        for (int i = 0; i < 10; i++) {
            process_pass(&p, 40 * MILLISECOND);
        }
    }
    assert_in_range(flood, 3 * 50000 - 30, 3 * 50000); /* one key in some thousand may have had no cell for long */
    uint64_t worst[5];
    uint64_t denied = flood;
    for (int i = 0; i < 5; i++) {
        char name[16];
        (void) snprintf(name, sizeof(name), "worst%d", i);
        worst[i] = deny(&p, id, name, 10001 - 1000 * (uint64_t) i, 1);
        denied += worst[i];
    }
    weir_stats stats;
    unsigned polls = 0;
    do {
        process_pass(&p, 40 * MILLISECOND);
        weir_get_stats(p.w, &stats);
    } while (stats.denied_units + stats.evicted_denied_units < denied && ++polls < 100);
    assert_int_equal(stats.denied_units + stats.evicted_denied_units, denied);
    assert_in_range(stats.evicted_denied_units, 0, 30);
    assert_true(polls < 60);
    weir_offender top[WEIR_TOP_OFFENDERS];
    assert_int_equal(weir_top_offenders(p.w, id, top, WEIR_TOP_OFFENDERS), WEIR_TOP_OFFENDERS);
    for (int i = 0; i < 5; i++) {
        char name[16];
        (void) snprintf(name, sizeof(name), "worst%d", i);
        assert_string_equal(top[i].key, name);
        assert_in_range(worst[i], top[i].denied_units - top[i].error_units, top[i].denied_units);
        assert_true(top[i].error_units <= denied / 64);
    }
    server_close(&p);
}

/* A server's thread may share a processor with the background thread, and does not wait for 500 keys. */
static void test_denials_are_collected_by_pieces_of_64_keys_a_millisecond(void **state)
{
    (void) state;
    static const struct {
        uint64_t pass_ns, collected; /* by then */
    } steps[] = {{32 * MILLISECOND, 64}, {MILLISECOND / 2, 64},   {MILLISECOND / 2, 128},  {3 * MILLISECOND, 320},
                 {MILLISECOND, 384},     {20 * MILLISECOND, 500}, {31 * MILLISECOND, 500}, {MILLISECOND, 500}};
    struct server p;
    weir_stats stats;
    server_open(&p, 100000);
    const weir_limit one = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 24 * HOUR};
    const weir_policy_id id = set_one_policy(p.w, &one, 1, WEIR_SCOPE_PROCESS);
    process_pass(&p, 40 * MILLISECOND);
    for (uint64_t i = 0; i < 500; i++) {
        const weir_key key = weir_make_key(p.w, id, &i, sizeof(i));
        assert_true(weir_check(p.t, &key, 1, NULL));
        assert_false(weir_check(p.t, &key, 1, NULL));
    }
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        process_pass(&p, steps[i].pass_ns);
        weir_get_stats(p.w, &stats);
        assert_int_equal(stats.denied_units, steps[i].collected);
    }
    const uint64_t late = 500;
    const weir_key key = weir_make_key(p.w, id, &late, sizeof(late));
    assert_true(weir_check(p.t, &key, 1, NULL));
    assert_false(weir_check(p.t, &key, 1, NULL));
    process_pass(&p, 31 * MILLISECOND); /* the last collection left none: the next one is 32 ms after it */
    weir_get_stats(p.w, &stats);
    assert_int_equal(stats.denied_units, 500);
    process_pass(&p, MILLISECOND);
    weir_get_stats(p.w, &stats);
    assert_int_equal(stats.denied_units, 501);
    server_close(&p);
}

/* With ticks of 100 ms, a host's loop comes back for the next piece, not for the next tick. */
static void test_a_host_is_asked_back_while_denials_wait(void **state)
{
    (void) state;
    struct fake_clock clock;
    fake_clock_init(&clock, START_NS);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock.clock;
    options.tick_us = 100000;
    weir *w = open_or_fail(&options);
    weir_thread *t = weir_attach(w);
    const weir_limit one = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 24 * HOUR};
    const weir_policy_id id = set_one_policy(w, &one, 1, WEIR_SCOPE_PROCESS);
    fake_clock_advance(&clock, 200 * MILLISECOND);
    assert_int_equal(weir_poll(w), 100);
    for (uint64_t i = 0; i < 500; i++) {
        const weir_key key = weir_make_key(w, id, &i, sizeof(i));
        assert_true(weir_check(t, &key, 1, NULL));
        assert_false(weir_check(t, &key, 1, NULL));
    }
    fake_clock_advance(&clock, 32 * MILLISECOND);
    assert_int_equal(weir_poll(w), 1);
    weir_detach(t);
    weir_close(w);
}

static void test_what_a_forgotten_key_was_denied_is_counted_for_no_other(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 1000);
    const weir_limit one = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = 24 * HOUR};
    const weir_policy_id id = set_one_policy(p.w, &one, 1, WEIR_SCOPE_PROCESS);
    uint64_t denied = 0;
    for (uint64_t i = 0; i < 30000; i++) {
        char name[16];
        (void) snprintf(name, sizeof(name), "k%d", (int) i);
        denied += deny(&p, id, name, i % 3 == 0 ? 3 : 1, 1);
        if (i % 1000 == 0) {
            process_pass(&p, 40 * MILLISECOND);
        }
        if (i % 50 == 0) {
            weir_offender top[WEIR_TOP_OFFENDERS];
            const size_t count = weir_top_offenders(p.w, id, top, WEIR_TOP_OFFENDERS);
            for (size_t j = 0; j < count; j++) {
                /* A later key may begin with the usage record of another key (evicted_sketch.c). */
                const bool thrice = strtoul(top[j].key + 1, NULL, 10) % 3 == 0;
                assert_in_range(top[j].denied_units - top[j].error_units, 1, thrice ? 3 : 1);
            }
        }
    }
    process_pass(&p, 40 * MILLISECOND);
    weir_stats stats;
    weir_get_stats(p.w, &stats);
    assert_int_equal(stats.denied_count, denied);
    assert_true(stats.evicted_denied_units != 0);
    assert_int_equal(stats.denied_units + stats.evicted_denied_units, denied - stats.untracked_count);
    server_close(&p);
}

/* Two threads deny a key for the first time, and one of them is interrupted in the middle of writing its name. */
static void test_what_is_denied_while_a_key_is_being_named_is_counted_when_it_has_its_name(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 1000);
    const weir_policy_id id = set_one_policy(p.w, &ten, 1, WEIR_SCOPE_PROCESS);
    assert_int_equal(deny(&p, id, "k", 13, 1), 3);
    const weir_key key = weir_make_key(p.w, id, "k", 1);
    rcu_enter(p.t);
    const uint32_t at = table_find(&p.w->limiter.process.table,
                                   cell_hash(policy_set_by_id(process_policies(&p.w->limiter.process), id), &key, 0));
    rcu_leave(p.t);
    struct denied_entry *entry = &p.w->limiter.process.top_denied.entries[at];
    assert_int_equal(load_acquire(&entry->naming), NAMING_DONE);
    store_release(&entry->naming, NAMING_BEGUN);
    weir_offender top[WEIR_TOP_OFFENDERS];
    for (int i = 0; i < 3; i++) {
        process_pass(&p, 40 * MILLISECOND);
        assert_int_equal(weir_top_offenders(p.w, id, top, WEIR_TOP_OFFENDERS), 0);
    }
    store_release(&entry->naming, NAMING_DONE);
    assert_int_equal(deny(&p, id, "k", 2, 1), 2);
    process_pass(&p, 40 * MILLISECOND);
    assert_int_equal(weir_top_offenders(p.w, id, top, WEIR_TOP_OFFENDERS), 1);
    is_offender(&top[0], "k", 5);
    weir_stats stats;
    weir_get_stats(p.w, &stats);
    assert_int_equal(stats.evicted_denied_units, 0);
    server_close(&p);
}

static void test_metrics_tell_what_the_top_makes_up_and_no_keys(void **state)
{
    (void) state;
    struct server p;
    server_open(&p, 2000);
    const weir_policy policies[] = {{.name = "few", .limits = &ten, .limit_count = 1},
                                    {.name = "many/pro", .limits = &ten, .limit_count = 1},
                                    {.name = "none", .limits = &ten, .limit_count = 1}};
    set_policies(p.w, policies, 3);
    (void) deny(&p, weir_find_policy(p.w, "few"), "keyname", 60, 1);
    for (int i = 0; i < 64; i++) {
        char name[16];
        (void) snprintf(name, sizeof(name), "keyname%d", i);
        (void) deny(&p, weir_find_policy(p.w, "many/pro"), name, 20, 1);
    }
    process_pass(&p, 40 * MILLISECOND);
    static char text[65536];
    assert_true(weir_write_metrics(p.w, text, sizeof(text)) < (int) sizeof(text));
    static const char *const lines[] = {"\nweir_recent_denied_units{policy=\"few\"} 50\n",
                                        "\nweir_recent_denied_units{policy=\"many\"} 640\n",
                                        "\nweir_recent_denied_units{policy=\"none\"} 0\n",
                                        "\nweir_top_offenders_ratio{policy=\"few\"} 1.000000\n",
                                        "\nweir_top_offenders_ratio{policy=\"many\"} 0.250000\n",
                                        "\nweir_top_offenders_ratio{policy=\"none\"} 0.000000\n",
                                        "\nweir_denied_units_total 690\n",
                                        "\nweir_evicted_denied_units_total 0\n"};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (strstr(text, lines[i]) == NULL) {
            fail_msg("no line%s", lines[i]);
        }
    }
    assert_null(strstr(text, "keyname"));
    server_close(&p);
}

static size_t count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    assert_non_null(maps);
    size_t lines = 0;
    for (int c = fgetc(maps); c != EOF; c = fgetc(maps)) {
        lines += c == '\n';
    }
    (void) fclose(maps);
    return lines;
}

static void test_closing_leaves_no_mapping(void **state)
{
    (void) state;
    size_t mappings = 0;
    for (int round = 0; round < 20; round++) {
        struct server p;
        server_open(&p, 1000);
        const weir_policy_id id = set_one_policy(p.w, &ten, 1, WEIR_SCOPE_PROCESS);
        (void) deny(&p, id, "key", 30, 1);
        process_pass(&p, 40 * MILLISECOND);
        server_close(&p);
        if (round == 4) {
            mappings = count_mappings(); /* allocators have all the memory that they will use */
        }
    }
    assert_true(count_mappings() <= mappings + 2);
}

static void test_each_node_of_a_fleet_tells_what_it_denied_itself(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_SLIDING_LOG,
                                                WEIR_TOKEN_BUCKET};
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = algorithms[a], .limit = 300, .period_ns = 24 * HOUR};
        const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
        nodes_start(&n, &policy, 1);
        for (int step = 0; step < 30; step++) {
            for (int i = 0; i < NODES; i++) {
                (void) ask(&n.node[i], 20 * ((uint64_t) i + 1));
            }
            pass(&n, 100);
        }
        pass(&n, 100);
        for (int i = 0; i < NODES; i++) {
            weir_stats stats;
            weir_get_stats(n.node[i].w, &stats);
            assert_true(stats.denied_count > 200);
            assert_int_equal(stats.denied_units, stats.denied_count);
            weir_offender top[2];
            assert_int_equal(weir_top_offenders(n.node[i].w, n.node[i].key.policy, top, 2), 1);
            is_offender(&top[0], "key", stats.denied_count);
        }
        nodes_stop(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offenders_are_told_with_what_they_were_denied_most_first),
        cmocka_unit_test(test_only_so_many_are_told_as_are_asked_for_and_of_known_policies),
        cmocka_unit_test(test_keys_are_told_as_records_show_them),
        cmocka_unit_test(test_a_denial_counts_once_whatever_the_policy_has_of_limits_and_tiers),
        cmocka_unit_test(test_every_call_that_denies_is_counted_but_what_can_never_pass),
        cmocka_unit_test(test_what_was_denied_counts_half_after_each_minute),
        cmocka_unit_test(test_the_last_of_the_most_policies_has_a_list_like_the_first),
        cmocka_unit_test(test_lists_stay_when_policies_change_and_no_memory_is_added),
        cmocka_unit_test(test_a_flood_of_offenders_is_counted_in_turn_and_the_worst_stand_out),
        cmocka_unit_test(test_denials_are_collected_by_pieces_of_64_keys_a_millisecond),
        cmocka_unit_test(test_a_host_is_asked_back_while_denials_wait),
        cmocka_unit_test(test_what_a_forgotten_key_was_denied_is_counted_for_no_other),
        cmocka_unit_test(test_what_is_denied_while_a_key_is_being_named_is_counted_when_it_has_its_name),
        cmocka_unit_test(test_metrics_tell_what_the_top_makes_up_and_no_keys),
        cmocka_unit_test(test_closing_leaves_no_mapping),
        cmocka_unit_test(test_each_node_of_a_fleet_tells_what_it_denied_itself),
    };
    return cmocka_run_group_tests_name("unit/process/top_denied", tests, NULL, NULL);
}
