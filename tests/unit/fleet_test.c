/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several nodes in one process, on the in-memory fleet, under one clock that the test moves: sharing, the outage
 * ladder, lost answers, a fleet that forgets, wrong clocks.
 */
#include <stdio.h>

#include "fleet/memory.h"
#include "support/support.h"
#include "weir.h"

#define NODES       3
#define INTERVAL_MS 200
#define START_NS    (UINT64_C(1760000000) * SECOND)

struct node {
    struct fake_clock clock; /* its host's: the wall clock may be wrong */
    weir *w;
    weir_thread *t;
    weir_key key;
    uint64_t admitted;
};

struct nodes {
    struct fake_clock fleet_clock;
    struct memory_fleet *fleet;
    struct node node[NODES];
};

static size_t max_keys = 65536; /* of every node */

static uint64_t fleet_wall(void *arg)
{
    return ((const struct fake_clock *) arg)->wall_ns;
}

static void poll_all(struct nodes *n)
{
    for (int i = 0; i < NODES; i++) {
        /* Twice: a round of the in-memory fleet is answered in the step after. */
        assert_true(weir_poll(n->node[i].w) >= 0);
        assert_true(weir_poll(n->node[i].w) >= 0);
    }
}

/* Lets time pass in steps of 10 ms. */
static void pass(struct nodes *n, uint64_t ms)
{
    for (uint64_t done = 0; done < ms; done += 10) {
        fake_clock_advance(&n->fleet_clock, 10 * MILLISECOND);
        for (int i = 0; i < NODES; i++) {
            fake_clock_advance(&n->node[i].clock, 10 * MILLISECOND);
        }
        poll_all(n);
    }
}

/* wrong_ns[i]: how far ahead of the fleet's clock node i's wall clock is. */
static void start(struct nodes *n, const weir_policy *policy, const int64_t wrong_ns[NODES])
{
    fake_clock_init(&n->fleet_clock, START_NS);
    n->fleet = memory_fleet_new(fleet_wall, &n->fleet_clock);
    assert_non_null(n->fleet);
    for (int i = 0; i < NODES; i++) {
        struct node *node = &n->node[i];
        fake_clock_init(&node->clock, START_NS + (uint64_t) (wrong_ns != NULL ? wrong_ns[i] : 0));
        node->clock.monotonic_ns += (uint64_t) i * 12345 * SECOND; /* hosts were not booted together */
        weir_options options = WEIR_OPTIONS_INIT;
        options.clock = &node->clock.clock;
        options.sync_interval_ms = INTERVAL_MS;
        options.max_keys = max_keys;
        options.max_threads = 1;
        const struct transport_config config = {.timeout_ms = 1000};
        struct transport *transport = NULL;
        assert_int_equal(memory_transport_open(n->fleet, &config, &transport, NULL), 0);
        weir_error error;
        if (weir_open_on(&options, transport, &node->w, &error) != 0 ||
            weir_set_policies(node->w, policy, 1, &error) != 0) {
            fail_msg("%s", error.message);
        }
        node->t = weir_attach(node->w);
        node->key = weir_make_key(node->w, weir_find_policy(node->w, policy->name), "key", 3);
        node->admitted = 0;
    }
}

static void stop(struct nodes *n)
{
    for (int i = 0; i < NODES; i++) {
        weir_close(n->node[i].w);
    }
    memory_fleet_free(n->fleet);
}

static uint64_t ask(struct node *node, uint64_t times)
{
    uint64_t admitted = 0;
    for (uint64_t i = 0; i < times; i++) {
        admitted += weir_check(node->t, &node->key, 1, NULL);
    }
    node->admitted += admitted;
    return admitted;
}

static uint64_t admitted_by_all(const struct nodes *n)
{
    return n->node[0].admitted + n->node[1].admitted + n->node[2].admitted;
}

/* A node hears of a key only while it uses it: everybody uses it once, and hears. */
static void refresh(struct nodes *n)
{
    for (int i = 0; i < NODES; i++) {
        (void) ask(&n->node[i], 1);
    }
    pass(n, 500);
}

static weir_verdict peek(struct node *node)
{
    weir_verdict v;
    (void) weir_peek(node->t, &node->key, 1, &v);
    return v;
}

static weir_policy policy_of(const weir_limit *limit)
{
    return (weir_policy){.name = "p", .limits = limit, .limit_count = 1, .outage_grace_ms = 500};
}

static void test_what_one_node_admits_the_others_learn(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    for (size_t a = 0; a < 3; a++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = algorithms[a], .limit = 300, .period_ns = 24 * HOUR};
        const weir_policy policy = policy_of(&limit);
        start(&n, &policy, NULL);
        pass(&n, 500);
        assert_int_equal(ask(&n.node[0], 120), 120);
        pass(&n, 500);
        refresh(&n);
        /* Of the refresh it may have heard only in part. */
        assert_in_range(peek(&n.node[1]).remaining, 300 - 120 - NODES, 300 - 120 - 1);
        assert_int_equal(peek(&n.node[1]).basis, WEIR_BASIS_FLEET);
        assert_in_range(ask(&n.node[1], 500), 300 - 120 - NODES, 300 - 120 - 1);
        pass(&n, 500);
        refresh(&n); /* nodes 0 and 2 let their one pass before they hear */
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(ask(&n.node[i], 10), 0);
        }
        pass(&n, 500);
        assert_int_equal(memory_fleet_sum(n.fleet, ":p:key"), admitted_by_all(&n));
        assert_in_range(admitted_by_all(&n), 300, 300 + 2 * NODES);
        stop(&n);
    }
}

static void test_rounds_whose_answers_are_lost_count_once(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000000, .period_ns = 24 * HOUR};
    const weir_policy policy = policy_of(&limit);
    start(&n, &policy, NULL);
    pass(&n, 500);
    memory_fleet_lose_answers(n.fleet, true);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < NODES; i++) {
            (void) ask(&n.node[i], 7);
        }
        pass(&n, 100);
    }
    memory_fleet_lose_answers(n.fleet, false);
    pass(&n, 1000);
    assert_int_equal(memory_fleet_sum(n.fleet, ":p:key"), admitted_by_all(&n));
    assert_int_equal(admitted_by_all(&n), 3 * 20 * 7);
    stop(&n);
}

static void test_what_a_failed_round_held_is_said_again_without_new_traffic(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_TOKEN_BUCKET};
    for (size_t a = 0; a < 2; a++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = algorithms[a], .limit = 1000, .period_ns = 24 * HOUR};
        const weir_policy policy = policy_of(&limit);
        start(&n, &policy, NULL);
        pass(&n, 500);
        memory_fleet_set_hung(n.fleet, true);
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(ask(&n.node[i], 7), 7);
        }
        pass(&n, 2500); /* the rounds that held them have failed */
        weir_stats stats;
        weir_get_stats(n.node[0].w, &stats);
        assert_true(stats.sync_error_count >= 1);
        assert_int_equal(memory_fleet_sum(n.fleet, ":p:key"), 0);
        memory_fleet_set_hung(n.fleet, false);
        pass(&n, 2500);
        assert_int_equal(memory_fleet_sum(n.fleet, ":p:key"), 3 * 7);
        stop(&n);
    }
}

static void test_a_fleet_that_forgets_is_told_again_and_gives_no_fresh_budget(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    for (size_t a = 0; a < 3; a++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = algorithms[a], .limit = 300, .period_ns = 24 * HOUR};
        const weir_policy policy = policy_of(&limit);
        start(&n, &policy, NULL);
        pass(&n, 500);
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(ask(&n.node[i], 80), 80);
        }
        pass(&n, 1000);
        memory_fleet_forget(n.fleet);
        pass(&n, 1000);
        assert_int_equal(memory_fleet_sum(n.fleet, ":p:key"), 240);
        for (int i = 0; i < NODES; i++) {
            refresh(&n);
            (void) ask(&n.node[i], 100);
            pass(&n, 500);
        }
        assert_in_range(admitted_by_all(&n), 300, 300 + NODES * NODES);
        weir_stats stats;
        weir_get_stats(n.node[0].w, &stats);
        assert_int_equal(stats.forgot_count, 1);
        assert_int_equal(stats.live_nodes, NODES);
        stop(&n);
    }
}

/* Takes the fleet away and returns what each node then admits of a long burst. */
static void in_outage(weir_outage on_outage, uint64_t admitted[NODES], weir_verdict *last, bool before)
{
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 300, .period_ns = 24 * HOUR};
    weir_policy policy = policy_of(&limit);
    policy.on_outage = on_outage;
    start(&n, &policy, NULL);
    pass(&n, 500);
    if (before) {
        assert_int_equal(ask(&n.node[0], 60), 60);
        pass(&n, 500);
    }
    memory_fleet_set_down(n.fleet, true);
    pass(&n, 200);
    assert_int_equal(peek(&n.node[0]).basis, WEIR_BASIS_FLEET); /* within the grace */
    pass(&n, 600);
    for (int i = 0; i < NODES; i++) {
        admitted[i] = ask(&n.node[i], 1000);
    }
    *last = peek(&n.node[2]);
    assert_int_equal(last->basis, WEIR_BASIS_OUTAGE);
    assert_true(last->fleet_age_ns >= 700 * MILLISECOND);
    memory_fleet_set_down(n.fleet, false);
    pass(&n, 2000);
    assert_int_equal(memory_fleet_sum(n.fleet, ":p:key"), admitted_by_all(&n));
    assert_int_equal(peek(&n.node[0]).basis, WEIR_BASIS_FLEET); /* again */
    refresh(&n);
    if (admitted_by_all(&n) >= 300) {
        assert_int_equal(ask(&n.node[0], 10), 0); /* the fleet knows what happened */
    }
    stop(&n);
}

static void test_the_rungs_of_the_outage_ladder(void **state)
{
    (void) state;
    uint64_t admitted[NODES];
    weir_verdict v;
    in_outage(WEIR_OUTAGE_SHARE, admitted, &v, false);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(admitted[i], 100);
    }
    in_outage(WEIR_OUTAGE_SHARE, admitted, &v, true); /* node 0 has had 60 of its part */
    assert_int_equal(admitted[0], 40);
    assert_int_equal(admitted[1], 100);
    assert_int_equal(admitted[2], 100);
    in_outage(WEIR_OUTAGE_LOCAL, admitted, &v, false);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(admitted[i], 300);
    }
    in_outage(WEIR_OUTAGE_OPEN, admitted, &v, false);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(admitted[i], 1000);
    }
    in_outage(WEIR_OUTAGE_CLOSED, admitted, &v, false);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(admitted[i], 0);
    }
    assert_false(v.allowed);
    assert_int_not_equal(v.retry_after_ns, UINT64_MAX); /* not for ever */
}

static void test_a_long_outage_takes_the_next_rung(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 300, .period_ns = 24 * HOUR};
    weir_policy policy = policy_of(&limit);
    policy.on_outage = WEIR_OUTAGE_CLOSED;
    policy.on_long_outage = WEIR_OUTAGE_OPEN;
    policy.long_outage_ms = 2000;
    start(&n, &policy, NULL);
    pass(&n, 500);
    memory_fleet_set_hung(n.fleet, true);
    pass(&n, 1500);
    assert_int_equal(ask(&n.node[1], 10), 0);
    pass(&n, 2000);
    assert_int_equal(ask(&n.node[1], 1000), 1000);
    memory_fleet_set_hung(n.fleet, false);
    pass(&n, 3000);
    assert_int_equal(memory_fleet_sum(n.fleet, ":p:key"), 1000);
    /* What passed while everything might is no debt of the bucket. */
    assert_true(ask(&n.node[1], 300) > 290);
    stop(&n);
}

static void test_hosts_whose_clocks_are_wrong_by_an_hour_share_a_window(void **state)
{
    (void) state;
    static const int64_t wrong_ns[NODES] = {0, 3600 * (int64_t) SECOND, -3600 * (int64_t) SECOND};
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_TOKEN_BUCKET};
    for (size_t a = 0; a < 2; a++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = algorithms[a], .limit = 300, .period_ns = 600 * SECOND};
        const weir_policy policy = policy_of(&limit);
        start(&n, &policy, wrong_ns);
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(ask(&n.node[i], 50), 50); /* before they know the time */
        }
        pass(&n, 1000);
        refresh(&n);
        for (int i = 0; i < NODES; i++) {
            assert_in_range(peek(&n.node[i]).remaining, 147, 150); /* a bucket refills one every two seconds */
        }
        stop(&n);
    }
}

static void test_more_keys_than_a_round_holds_are_all_told(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 300, .period_ns = 24 * HOUR},
                                 {.algorithm = WEIR_TOKEN_BUCKET, .limit = 300, .period_ns = HOUR}};
    weir_policy policy = policy_of(limits);
    policy.limit_count = 2;
    start(&n, &policy, NULL);
    pass(&n, 500);
    const weir_policy_id id = weir_find_policy(n.node[0].w, "p");
    for (uint64_t round = 0; round < 2; round++) {
        for (uint64_t name = 0; name < 3 * ROUND_REPORTS; name++) {
            const weir_key key = weir_make_key(n.node[0].w, id, &name, sizeof(name));
            assert_true(weir_check(n.node[0].t, &key, 1, NULL));
        }
        pass(&n, 1000);
        assert_int_equal(memory_fleet_sum(n.fleet, ":f1d:p:"), (round + 1) * 3 * ROUND_REPORTS);
        assert_int_equal(memory_fleet_sum(n.fleet, ":b1h:p:"), (round + 1) * 3 * ROUND_REPORTS);
    }
    stop(&n);
}

static void test_forgotten_keys_tell_what_they_had_used(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    for (size_t a = 0; a < 2; a++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = algorithms[a], .limit = 300, .period_ns = 24 * HOUR};
        const weir_policy policy = policy_of(&limit);
        max_keys = 1000;
        start(&n, &policy, NULL);
        max_keys = 65536;
        pass(&n, 500);
        const weir_policy_id id = weir_find_policy(n.node[0].w, "p");
        uint64_t rng = test_seed();
        uint64_t admitted = 0;
        for (int i = 0; i < 20000; i++) {
            const uint64_t name = random_below(&rng, 5000);
            const weir_key key = weir_make_key(n.node[0].w, id, &name, sizeof(name));
            admitted += weir_check(n.node[0].t, &key, 1, NULL);
            if (i % 1000 == 0) {
                pass(&n, 300);
            }
        }
        pass(&n, 3000);
        weir_stats stats;
        weir_get_stats(n.node[0].w, &stats);
        assert_true(stats.evicted_used_count > 5000);
        assert_int_equal(stats.lost_report_count, 0);
        assert_int_equal(memory_fleet_sum(n.fleet, ":p:"), admitted);
        stop(&n);
    }
}

static void test_keys_of_process_scope_stay_at_home(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 300, .period_ns = 24 * HOUR};
    weir_policy policy = policy_of(&limit);
    policy.scope = WEIR_SCOPE_PROCESS;
    start(&n, &policy, NULL);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 1000), 300);
    }
    pass(&n, 1000);
    assert_int_equal(memory_fleet_record_count(n.fleet), 0);
    memory_fleet_set_down(n.fleet, true);
    pass(&n, 2000);
    assert_int_equal(peek(&n.node[0]).basis, WEIR_BASIS_PROCESS); /* no outage for it */
    stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_one_node_admits_the_others_learn),
        cmocka_unit_test(test_rounds_whose_answers_are_lost_count_once),
        cmocka_unit_test(test_what_a_failed_round_held_is_said_again_without_new_traffic),
        cmocka_unit_test(test_a_fleet_that_forgets_is_told_again_and_gives_no_fresh_budget),
        cmocka_unit_test(test_the_rungs_of_the_outage_ladder),
        cmocka_unit_test(test_a_long_outage_takes_the_next_rung),
        cmocka_unit_test(test_hosts_whose_clocks_are_wrong_by_an_hour_share_a_window),
        cmocka_unit_test(test_more_keys_than_a_round_holds_are_all_told),
        cmocka_unit_test(test_forgotten_keys_tell_what_they_had_used),
        cmocka_unit_test(test_keys_of_process_scope_stay_at_home),
    };
    return cmocka_run_group_tests_name("unit/fleet", tests, NULL, NULL);
}
