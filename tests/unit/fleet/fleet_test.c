/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several nodes in one process, on the in-memory fleet, under one clock that the test moves: sharing, what is reported
 * and when, wrong clocks. Lost answers and lost data are in lost_state_test.c, outage modes in outage_test.c, new keys
 * in allowance_test.c.
 *
 * Guards: src/fleet/round.c, src/fleet/keys/gather.c, src/fleet/keys/report.c, src/fleet/keys/merge.c,
 * src/fleet/keys/demand.c, src/fleet/keys/account.c, src/check/direct_charge.c,
 * src/transport/loopback/loopback.c
 */
#include "support/nodes.h"
#include "support/policies.h"

static weir_stats stats_of(const struct node *node)
{
    weir_stats stats;
    weir_get_stats(node->w, &stats);
    return stats;
}

/* Uses a unit of a key whose name is a number. */
static bool use(struct node *node, uint64_t name)
{
    const weir_key key = weir_make_key(node->w, node->key.policy, &name, sizeof(name));
    return weir_check(node->t, &key, 1, NULL);
}

static void test_what_one_node_admits_the_others_learn(void **state)
{
    (void) state;
    for (size_t a = 0; a < COUNTERS; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(algorithms[a], 300);
        const weir_policy policy = policy_of(&limit);
        nodes_start(&n, &policy, 1);
        assert_int_equal(ask_freely(&n.node[0], 120), 120);
        pass(&n, TWO_INTERVALS);
        hear(&n);
        agree(&n);
        const uint64_t used = used_by_all(&n);
        assert_in_range(used, 120, 120 + NODES);
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(room(&n.node[i]), 300 - used);
            assert_int_equal(look(&n.node[i]).basis, WEIR_BASIS_FLEET);
        }
        assert_int_equal(ask_for_long(&n, &n.node[1], 500), 300 - used);
        hear(&n);
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(ask(&n.node[i], 10), 0);
        }
        assert_int_equal(fleet_sum(&n), used_by_all(&n));
        /* Nodes 0 and 2 may have let one unit pass each before their answers. */
        assert_in_range(used_by_all(&n), 300, 300 + NODES - 1);
        nodes_stop(&n);
    }
}

static void test_a_share_grows_when_the_others_no_longer_ask(void **state)
{
    (void) state;
    for (size_t a = 0; a < COUNTERS; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(algorithms[a], 300);
        const weir_policy policy = policy_of(&limit);
        nodes_start(&n, &policy, 1);
        for (int step = 0; step < 40; step++) { /* all nodes have equal demand, far from the limit */
            for (int i = 0; i < NODES; i++) {
                (void) ask(&n.node[i], step % 5 == 0 ? 4 : 0);
            }
            pass(&n, 50);
        }
        assert_int_equal(used_by_all(&n), 8 * 4 * NODES);
        agree(&n);
        const uint64_t left = 300 - used_by_all(&n);
        pass(&n, INTERVAL_MS);
        const uint64_t first = ask(&n.node[0], 300);
        assert_in_range(first, left - left / 8, left); /* less the units that other nodes may have asked for by now */
        assert_int_equal(ask_for_long(&n, &n.node[0], 300), left - first);
        nodes_stop(&n);
    }
}

static void test_news_of_a_key_far_from_its_limit_waits_its_turn(void **state)
{
    (void) state;
    for (size_t a = 0; a < COUNTERS; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(algorithms[a], 100000);
        const weir_policy policy = policy_of(&limit);
        nodes_start(&n, &policy, 1);
        assert_int_equal(ask(&n.node[0], 1), 1);
        pass(&n, TWO_INTERVALS);
        assert_int_equal(fleet_sum(&n), 1); /* a new key is reported at once */
        const weir_stats first = stats_of(&n.node[0]);
        uint64_t late = 0;
        for (uint64_t used = 2; used < 2 + 40 * SCAN_INTERVALS; used++) {
            assert_int_equal(ask(&n.node[0], 1), 1);
            pass(&n, INTERVAL_MS);
            assert_true(fleet_sum(&n) + AGE_INTERVALS + SCAN_INTERVALS >= used); /* it is no older */
            late += fleet_sum(&n) != used;
        }
        assert_in_range(late, 38 * SCAN_INTERVALS, 40 * SCAN_INTERVALS);
        const weir_stats last = stats_of(&n.node[0]);
        assert_in_range(last.report_count - first.report_count, 3, 8);
        assert_true(load_relaxed(&n.node[0].w->fleet->stats.deferred_report_count) >= late);
        assert_int_equal(ask(&n.node[0], 1), 1);
        assert_int_equal(weir_sync(n.node[0].w, 60000), 0); /* a call of weir_sync has all units reported */
        assert_int_equal(fleet_sum(&n), used_by_all(&n));
        nodes_stop(&n);
    }
}

static void test_news_of_a_key_near_its_limit_is_told_each_interval(void **state)
{
    (void) state;
    for (size_t a = 0; a < COUNTERS; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(algorithms[a], 300);
        const weir_policy policy = policy_of(&limit);
        nodes_start(&n, &policy, 1);
        /* 20 are left, of which three nodes may have a twenty-fourth. */
        assert_int_equal(ask_freely(&n.node[0], 280), 280);
        pass(&n, TWO_INTERVALS);
        assert_int_equal(ask_for_long(&n, &n.node[0], 1), 1); /* at the second try: the node knows of no other demand */
        assert_int_equal(fleet_sum(&n), 281);
        for (uint64_t used = 282; used <= 300; used++) {
            assert_int_equal(ask(&n.node[0], 1), 1);
            pass(&n, INTERVAL_MS);
            assert_int_equal(fleet_sum(&n), used);
        }
        nodes_stop(&n);
    }
}

/* Lets `ms` milliseconds pass for one node alone, and uses a new unit in each. */
static void hurry(struct nodes *n, struct node *node, uint64_t ms)
{
    for (uint64_t i = 0; i < ms; i++) {
        fake_clock_advance(&n->fleet_clock, MILLISECOND);
        fake_clock_advance(&node->clock, MILLISECOND);
        for (int times = 0; times < 3; times++) {
            assert_true(use(node, i)); /* at the third check two units are gone: the report cannot wait */
        }
        assert_true(weir_poll(node->w) >= 0);
        assert_true(weir_poll(node->w) >= 0);
    }
}

static void test_rounds_for_keys_that_cannot_wait_come_every_ten_milliseconds(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 9);
    const weir_policy policy = policy_of(&limit);
    nodes_start(&n, &policy, 1);
    const weir_stats first = stats_of(&n.node[0]);
    hurry(&n, &n.node[0], 1000);
    const weir_stats last = stats_of(&n.node[0]);
    assert_in_range(last.sync_count - first.sync_count, 1000 / 11, 1000 / 10 + 1000 / INTERVAL_MS + 1);
    pass(&n, SCAN_MS);
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), 3 * 1000);
    nodes_stop(&n);
}

static void test_an_answer_that_comes_in_the_next_window_counts_in_its_own(void **state)
{
    (void) state;
    for (size_t a = 0; a < 2; a++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = algorithms[a], .limit = 200, .period_ns = SECOND};
        const weir_policy policy = policy_of(&limit);
        nodes_start(&n, &policy, 1);
        struct node *node = &n.node[1];
        assert_int_equal(ask(&n.node[0], 30), 30);
        pass(&n, TWO_INTERVALS);
        assert_int_equal(fleet_sum(&n), 30);
        assert_int_equal(ask(node, 50), 50);
        make_urgent(node);
        for (int i = 0; i < NODES; i++) { /* 0.99 s into the window, and then 0.01 s into the next one */
            fake_clock_advance(&n.node[i].clock, 90 * MILLISECOND);
        }
        fake_clock_advance(&n.fleet_clock, 90 * MILLISECOND);
        assert_true(weir_poll(node->w) >= 0); /* the round begins */
        const uint64_t before = load_relaxed(&node->w->fleet->stats.sync_count);
        fake_clock_advance(&node->clock, 20 * MILLISECOND);
        fake_clock_advance(&n.fleet_clock, 20 * MILLISECOND);
        assert_true(weir_poll(node->w) >= 0); /* the round is answered */
        assert_int_equal(load_relaxed(&node->w->fleet->stats.sync_count), before + 1);
        /* 99/100 of the 30 and the 50 in the window before count, or none. */
        const uint64_t carried = algorithms[a] == WEIR_SLIDING_WINDOW ? 80 : 0;
        assert_int_equal(room(node), 200 - carried);
        assert_int_equal(ask(node, 5), 5);
        assert_int_equal(room(node), 200 - carried - 5);
        for (int i = 0; i < NODES; i += 2) { /* the others follow into that window when they use it */
            fake_clock_advance(&n.node[i].clock, 20 * MILLISECOND);
            assert_true(weir_poll(n.node[i].w) >= 0);
            assert_int_equal(ask(&n.node[i], 1), 1);
        }
        agree(&n);
        assert_int_equal(fleet_sum(&n), 30 + 50 + 7);
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(room(&n.node[i]), 200 - carried - 7);
        }
        nodes_stop(&n);
    }
}

/* Units that slide out count: a node that was quiet in the window before reads the others' units of it. */
static void test_a_node_that_was_quiet_for_a_window_hears_of_the_one_before(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_WINDOW, .limit = 200, .period_ns = 10 * SECOND};
    const weir_policy policy = policy_of(&limit);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask(&n.node[1], 1), 1);
    pass(&n, 10000);
    const uint64_t used = ask_for_long(&n, &n.node[0], 150);
    assert_true(used >= 100);
    const uint64_t end_ns = (n.fleet_clock.wall_ns / limit.period_ns + 1) * limit.period_ns;
    while (n.fleet_clock.wall_ns < end_ns + limit.period_ns / 2) {
        pass(&n, 100);
    }
    assert_in_range(room(&n.node[0]), 200 - used / 2 - 1, 200 - used / 2 + used / 20);
    (void) ask(&n.node[1], 30); /* so many units that they are reported at once */
    pass(&n, TWO_INTERVALS);
    agree(&n);
    assert_in_range(room(&n.node[1]), 100, 200 - used / 2 + used / 10);
    assert_int_equal(room(&n.node[1]), room(&n.node[0]));
    nodes_stop(&n);
}

static void test_hosts_whose_clocks_are_wrong_by_an_hour_share_a_window(void **state)
{
    (void) state;
    static const int64_t wrong_ns[NODES] = {0, 3600 * (int64_t) SECOND, -3600 * (int64_t) SECOND};
    for (size_t a = 0; a < COUNTERS; a++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = algorithms[a], .limit = 300, .period_ns = 600 * SECOND};
        const weir_policy policy = policy_of(&limit);
        nodes_init(&n, &policy, 1);
        for (int i = 0; i < NODES; i++) {
            node_open(&n, i, wrong_ns[i]);
            assert_int_equal(ask(&n.node[i], 50), 50); /* before the nodes know fleet time */
        }
        pass(&n, 1000);
        agree(&n);
        for (int i = 0; i < NODES; i++) { /* a bucket refills one every two seconds */
            assert_in_range(room(&n.node[i]), 150, algorithms[a] == WEIR_TOKEN_BUCKET ? 151 : 150);
        }
        nodes_stop(&n);
    }
}

/* How far the nodes' times are apart, and how far the first node's time is ahead of the fleet's clock. */
static uint64_t time_apart(const struct nodes *n, int count, int64_t *ahead_ns)
{
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;
    for (int i = 0; i < count; i++) {
        const uint64_t now_ns =
            n->node[i].clock.monotonic_ns + load_relaxed(&n->node[i].w->limiter.shared->line.offset_ns);
        least = min_u64(least, now_ns);
        most = max_u64(most, now_ns);
    }
    *ahead_ns = (int64_t) (least - n->fleet_clock.wall_ns);
    return most - least;
}

static void test_nodes_that_join_after_the_clock_went_back_agree_with_those_that_are_up(void **state)
{
    (void) state;
    static const int64_t steps_s[] = {2, 25, -25}; /* -25: the clock goes on first, and then back to where it was */
    for (size_t i = 0; i < 3; i++) {
        struct nodes n;
        const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 300);
        const weir_policy policy = policy_of(&limit);
        const uint64_t by_ns = (uint64_t) (steps_s[i] < 0 ? -steps_s[i] : steps_s[i]) * SECOND;
        nodes_init(&n, &policy, 1);
        node_open(&n, 0, 0);
        node_open(&n, 1, 0);
        pass(&n, 3000);
        if (steps_s[i] < 0) {
            n.fleet_clock.wall_ns += by_ns;
            pass(&n, 5000);
        }
        n.fleet_clock.wall_ns -= by_ns;
        pass(&n, 1000);
        node_open(&n, 2, 0);
        pass(&n, INTERVAL_MS);
        int64_t ahead_ns = 0;
        for (int second = 0; second < 600; second++) {
            const uint64_t apart_ns = time_apart(&n, 3, &ahead_ns);
            assert_true(apart_ns < INTERVAL_MS * MILLISECOND / 4);
            const int64_t left_ns = (int64_t) by_ns - (int64_t) second * (int64_t) SECOND / 256;
            assert_in_range(ahead_ns + (int64_t) SECOND, (uint64_t) (left_ns < 0 ? 0 : left_ns) + SECOND - SECOND / 4,
                            (uint64_t) (left_ns < 0 ? 0 : left_ns) + SECOND + SECOND / 4);
            pass(&n, 1000);
        }
        assert_true(steps_s[i] != 2 || ahead_ns < (int64_t) SECOND / 100); /* fleet time is back at the clock */
        for (int node = 0; node < 3; node++) {
            /* (After a clock jumps on by more than a node's lifetime, every other node counts as failed.) */
            assert_true(steps_s[i] < 0 || stats_of(&n.node[node]).redis_lost_state_count == 0);
        }
        nodes_stop(&n);
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
    nodes_init(&n, &policy, 1);
    n.max_keys = 65536;
    node_open(&n, 0, 0);
    node_open(&n, 1, 0);
    pass(&n, 500);
    for (uint64_t round = 0; round < 2; round++) {
        for (uint64_t name = 0; name < 3 * ROUND_REPORTS; name++) {
            assert_true(use(&n.node[0], name));
        }
        pass(&n, round == 0 ? 1000 : SCAN_MS); /* a new key is reported at once */
        assert_int_equal(loopback_fleet_sum(n.fleet, ":f1d:p:"), (round + 1) * 3 * ROUND_REPORTS);
        assert_int_equal(loopback_fleet_sum(n.fleet, ":b1h:p:"), (round + 1) * 3 * ROUND_REPORTS);
    }
    nodes_stop(&n);
}

static void test_every_key_has_its_turn_even_where_a_round_takes_an_interval(void **state)
{
    (void) state;
    struct nodes n;
    const uint64_t keys =
        5 * ROUND_REPORTS / 4 * SCAN_INTERVALS; /* one slice of the scan has more keys than a round holds */
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100000);
    const weir_policy policy = policy_of(&limit);
    nodes_init(&n, &policy, 1);
    n.max_keys = 65536;
    node_open(&n, 0, 0);
    struct node *node = &n.node[0];
    pass(&n, 500);
    uint64_t intervals = 0;
    for (; intervals < AGE_INTERVALS + 8 * SCAN_INTERVALS; intervals++) {
        for (uint64_t name = 0; name < keys; name++) { /* all keys are in use all the time */
            assert_true(use(node, name));
        }
        /* One poll in an interval: it takes the last round's answer, and begins the next round. */
        fake_clock_advance(&n.fleet_clock, INTERVAL_MS * MILLISECOND);
        fake_clock_advance(&node->clock, INTERVAL_MS * MILLISECOND);
        assert_true(weir_poll(node->w) >= 0);
    }
    /* Each key is reported when it is old, within two scans. */
    uint64_t least = UINT64_MAX;
    for (uint64_t at = 0; at < node->w->limiter.process.table.cell_count; at++) {
        const struct sync_full *sync = sync_of(&node->w->limiter.process.syncs, (uint32_t) at);
        if (load_relaxed(&node->w->limiter.process.table.cells[at].hash) != 0 && sync != NULL && sync->now.own != 0) {
            least = sync->now.acked < least ? sync->now.acked : least;
        }
    }
    assert_true(least + AGE_INTERVALS + 3 * SCAN_INTERVALS >= intervals);
    nodes_stop(&n);
}

static void test_forgotten_keys_tell_what_they_had_used(void **state)
{
    (void) state;
    static const weir_algorithm kinds[] = {WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};
    for (size_t a = 0; a < 2; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(kinds[a], 300);
        const weir_policy policy = policy_of(&limit);
        nodes_init(&n, &policy, 1);
        n.max_keys = 1000; /* fewer than are used */
        nodes_meet(&n);
        uint64_t rng = test_seed();
        uint64_t admitted = 0;
        for (int i = 0; i < 20000; i++) {
            admitted += use(&n.node[0], random_below(&rng, 5000));
            if (i % 1000 == 0) {
                pass(&n, 300);
            }
        }
        pass(&n, SCAN_MS);
        const weir_stats stats = stats_of(&n.node[0]);
        assert_true(stats.evicted_used_count > 5000);
        assert_int_equal(stats.lost_report_count, 0);
        assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), admitted);
        nodes_stop(&n);
    }
}

static void test_keys_of_process_scope_stay_at_home(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 300);
    weir_policy policy = policy_of(&limit);
    policy.scope = WEIR_SCOPE_PROCESS;
    nodes_init(&n, &policy, 1);
    n.key_is_new = true;
    for (int i = 0; i < NODES; i++) {
        node_open(&n, i, 0);
    }
    pass(&n, 500); /* the nodes know of each other, and do not share this limit */
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 1000), 300);
    }
    pass(&n, SCAN_MS);
    assert_int_equal(loopback_fleet_record_count(n.fleet), 0);
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 2000);
    assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_PROCESS); /* no outage for it */
    nodes_stop(&n);
}

/* Compares the age in every kind of verdict; returns the age in the statistics. */
static uint64_t news_age(struct node *node)
{
    weir_stats stats;
    weir_get_stats(node->w, &stats);
    const weir_basis basis = look(node).basis;
    weir_verdict v;
    for (int i = 0; i < 12; i++) { /* decided by the table, then by a slot */
        (void) weir_check(node->t, &node->key, 1, &v);
        assert_int_equal(v.basis, basis);
        assert_int_equal(v.fleet_age_ns, stats.fleet_age_ns);
        (void) weir_check_all(node->t, &node->key, NULL, 1, &v);
        assert_int_equal(v.fleet_age_ns, stats.fleet_age_ns);
    }
    for (int i = 0; i < 3; i++) { /* denied */
        assert_false(weir_check(node->t, &node->key, 1000000, &v));
        assert_int_equal(v.basis, basis);
        assert_int_equal(v.fleet_age_ns, stats.fleet_age_ns);
    }
    (void) weir_peek(node->t, &node->key, 1, &v);
    assert_int_equal(v.fleet_age_ns, stats.fleet_age_ns);
    return stats.fleet_age_ns;
}

static void test_whoever_answers_says_how_old_the_news_is(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 1000000);
    const weir_policy policy = patient_policy_of(&limit);
    nodes_init(&n, &policy, 1);
    loopback_fleet_set_down(n.fleet, true);
    node_open(&n, 0, 0);
    pass(&n, 1000);
    assert_int_equal(news_age(&n.node[0]), UINT64_MAX); /* no answer yet */
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, 5000);
    uint64_t oldest_ns = 0;
    for (int i = 0; i < 50; i++) {
        pass(&n, STEP_MS);
        oldest_ns = max_u64(oldest_ns, news_age(&n.node[0]));
    }
    assert_in_range(oldest_ns, INTERVAL_MS * MILLISECOND / 2, 2 * INTERVAL_MS * MILLISECOND);
    /* News that comes between two ticks. */
    fake_clock_advance(&n.node[0].clock, STEP_MS * MILLISECOND / 2);
    assert_int_equal(weir_sync(n.node[0].w, 60000), 0);
    assert_true(news_age(&n.node[0]) < STEP_MS * MILLISECOND);
    assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_FLEET);
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_one_node_admits_the_others_learn),
        cmocka_unit_test(test_a_share_grows_when_the_others_no_longer_ask),
        cmocka_unit_test(test_news_of_a_key_far_from_its_limit_waits_its_turn),
        cmocka_unit_test(test_news_of_a_key_near_its_limit_is_told_each_interval),
        cmocka_unit_test(test_rounds_for_keys_that_cannot_wait_come_every_ten_milliseconds),
        cmocka_unit_test(test_an_answer_that_comes_in_the_next_window_counts_in_its_own),
        cmocka_unit_test(test_a_node_that_was_quiet_for_a_window_hears_of_the_one_before),
        cmocka_unit_test(test_hosts_whose_clocks_are_wrong_by_an_hour_share_a_window),
        cmocka_unit_test(test_nodes_that_join_after_the_clock_went_back_agree_with_those_that_are_up),
        cmocka_unit_test(test_more_keys_than_a_round_holds_are_all_told),
        cmocka_unit_test(test_every_key_has_its_turn_even_where_a_round_takes_an_interval),
        cmocka_unit_test(test_forgotten_keys_tell_what_they_had_used),
        cmocka_unit_test(test_keys_of_process_scope_stay_at_home),
        cmocka_unit_test(test_whoever_answers_says_how_old_the_news_is),
    };
    return cmocka_run_group_tests_name("unit/fleet/fleet", tests, NULL, NULL);
}
