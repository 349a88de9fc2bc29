/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is lost between nodes and the in-memory fleet: answers, rounds, and all the data of the fleet. Each unit is
 * reported again, and counts once.
 *
 * Guards: src/fleet/keys/merge.c, src/fleet/keys/gather.c, src/fleet/round.c, src/transport/loopback/loopback.c,
 * src/transport/loopback/network.c
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

static void test_rounds_whose_answers_are_lost_count_once(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 1000000);
    const weir_policy policy = policy_of(&limit);
    nodes_start(&n, &policy, 1);
    loopback_fleet_lose_answers(n.fleet, true);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < NODES; i++) {
            (void) ask(&n.node[i], 7);
        }
        pass(&n, 100);
    }
    loopback_fleet_lose_answers(n.fleet, false);
    pass(&n, SCAN_MS);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    assert_int_equal(used_by_all(&n), 3 * 20 * 7);
    nodes_stop(&n);
}

static void test_what_a_failed_round_held_is_said_again_without_new_traffic(void **state)
{
    (void) state;
    for (size_t a = 0; a < COUNTERS; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(algorithms[a], 1000);
        const weir_policy policy = policy_of(&limit);
        nodes_start(&n, &policy, 1);
        loopback_fleet_set_hung(n.fleet, true);
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(ask(&n.node[i], 7), 7);
        }
        pass(&n, 2500); /* the rounds with these units have failed */
        assert_true(stats_of(&n.node[0]).sync_error_count >= 1);
        assert_int_equal(fleet_sum(&n), 0);
        loopback_fleet_set_hung(n.fleet, false);
        pass(&n, 2500);
        assert_int_equal(fleet_sum(&n), 3 * 7);
        nodes_stop(&n);
    }
}

static void test_a_fleet_that_forgets_is_told_again_and_gives_no_fresh_budget(void **state)
{
    (void) state;
    for (size_t a = 0; a < COUNTERS; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(algorithms[a], 300);
        const weir_policy policy = policy_of(&limit);
        nodes_start(&n, &policy, 1);
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(ask(&n.node[i], 80), 80);
        }
        pass(&n, 1000);
        loopback_fleet_forget(n.fleet);
        pass(&n, RESYNC_MS);
        assert_int_equal(fleet_sum(&n), 240);
        agree(&n);
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(room(&n.node[i]), (uint64_t) (60 - 20 * i));
            assert_int_equal(ask_for_long(&n, &n.node[i], i < NODES - 1 ? 20 : 100), 20);
            agree(&n);
        }
        assert_int_equal(fleet_sum(&n), 300);
        assert_int_equal(stats_of(&n.node[0]).redis_lost_state_count, 1);
        assert_int_equal(stats_of(&n.node[0]).live_nodes, NODES);
        nodes_stop(&n);
    }
}

/* The fleet is down for `down_ms`, if that is not 0, and then empty: as another run, or as the same run. */
static void lose(struct nodes *n, uint64_t down_ms, bool another_run)
{
    loopback_fleet_set_down(n->fleet, down_ms != 0);
    pass(n, down_ms);
    if (another_run) {
        loopback_fleet_forget(n->fleet);
    } else {
        loopback_fleet_flush(n->fleet);
    }
    loopback_fleet_set_down(n->fleet, false);
}

static void test_a_loss_counts_once_whatever_the_first_round_after_it_is(void **state)
{
    (void) state;
    /* No outage; outages shorter than the time after which a node counts as failed; longer ones. */
    static const uint64_t down_ms[] = {0, 100, 700, 2000, 8000, 30000};
    for (size_t i = 0; i < 2 * sizeof(down_ms) / sizeof(down_ms[0]); i++) {
        for (int urgent = 0; urgent < 2; urgent++) {
            struct nodes n;
            const weir_limit limit = limit_of(WEIR_SLIDING_LOG, 300); /* logs ask for rounds at once */
            const weir_policy policy = policy_of(&limit);
            nodes_start(&n, &policy, 1);
            for (int j = 0; j < NODES; j++) {
                assert_int_equal(ask(&n.node[j], 10), 10);
            }
            pass(&n, 1000);
            for (uint64_t losses = 1; losses <= 3; losses++) {
                lose(&n, down_ms[i / 2], i % 2 != 0);
                if (urgent != 0) {
                    for (int j = 0; j < NODES; j++) {
                        (void) ask(&n.node[j], 10);
                    }
                }
                pass(&n, RESYNC_MS);
                for (int j = 0; j < NODES; j++) {
                    const uint64_t count = stats_of(&n.node[j]).redis_lost_state_count;
                    if (count != losses) {
                        fail_msg("down for %llu ms, %s, %d: node %d counts %llu of %llu losses",
                                 (unsigned long long) down_ms[i / 2], i % 2 != 0 ? "another run" : "flushed", urgent, j,
                                 (unsigned long long) count, (unsigned long long) losses);
                    }
                }
            }
            nodes_stop(&n);
        }
    }
}

static void test_a_fleet_that_forgets_is_told_of_keys_that_nobody_uses_any_more(void **state)
{
    (void) state;
    const uint64_t keys = 300;
    for (size_t a = 0; a < COUNTERS; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(algorithms[a], 300);
        const weir_policy policy = policy_of(&limit);
        nodes_start(&n, &policy, 1);
        for (int times = 0; times < 2; times++) {
            for (uint64_t name = 0; name < keys * NODES; name++) {
                assert_true(use(&n.node[name % NODES], name / NODES));
            }
            pass(&n, SCAN_MS); /* all nodes get the others' units */
        }
        assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), 2 * keys * NODES);
        loopback_fleet_forget(n.fleet);
        pass(&n, RESYNC_MS);
        assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), 2 * keys * NODES);
        /* Then no report is sent. */
        pass(&n, SCAN_MS);
        const weir_stats before = stats_of(&n.node[0]);
        pass(&n, 2000);
        assert_int_equal(stats_of(&n.node[0]).report_count, before.report_count);
        nodes_stop(&n);
    }
}

/*
 * A Redis that evicts loses single records, and keeps the nodes. The node whose units they had sees it when it reports
 * the next ones, also where no other node has any; it reports all its keys again.
 */
static void test_a_record_that_is_gone_is_missed_by_the_node_that_has_used_it(void **state)
{
    const weir_limit *limit = *state;
    struct nodes n;
    const weir_policy policy = policy_of(limit);
    const uint64_t keys = 100;
    nodes_start(&n, &policy, 1);
    for (uint64_t name = 0; name < keys; name++) {
        assert_true(use(&n.node[0], name));
    }
    assert_int_equal(ask(&n.node[0], 20), 20);
    pass(&n, SCAN_MS);
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), keys + 20);
    loopback_fleet_evict(n.fleet, ":p:");
    pass(&n, SCAN_MS);
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), 0); /* nobody asks for it */
    assert_int_equal(stats_of(&n.node[0]).redis_lost_state_count, 0);
    assert_int_equal(ask(&n.node[0], 20), 20);
    pass(&n, RESYNC_MS);
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), keys + 40);
    pass(&n, SCAN_MS);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(stats_of(&n.node[i]).redis_lost_state_count, i == 0);
        assert_int_equal(stats_of(&n.node[i]).live_nodes, NODES);
    }
    assert_non_null(strstr(n.node[0].warning, "fleet in memory has lost records that are in use (evicted, or deleted): "
                                              "reporting all keys again"));
    nodes_stop(&n);
}

/* Each record is gone before another node has seen it, as in a Redis that evicts what has just been written. */
static void test_nodes_that_never_see_each_others_units_see_that(void **state)
{
    const weir_limit *limit = *state;
    struct nodes n;
    const weir_policy policy = policy_of(limit);
    nodes_start(&n, &policy, 1);
    for (int i = 0; i < 20 * NODES; i++) {
        (void) ask(&n.node[i % NODES], 10);
        pass(&n, INTERVAL_MS);
        loopback_fleet_evict(n.fleet, ":p:");
    }
    for (int i = 0; i < NODES; i++) {
        assert_in_range(stats_of(&n.node[i]).redis_lost_state_count, 1, 4);
    }
    hear(&n);
    agree(&n);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    nodes_stop(&n);
}

static void test_a_record_that_has_expired_is_not_missed(void **state)
{
    const weir_limit *limit = *state;
    struct nodes n;
    const weir_limit of = {
        .algorithm = limit->algorithm, .limit = 1000, .period_ns = SECOND, .delay = limit->delay != 0 ? 1000 : 0};
    const weir_policy policy = policy_of(&of);
    nodes_start(&n, &policy, 1);
    for (int i = 0; i < 12; i++) {
        for (int j = 0; j < NODES; j++) {
            (void) ask(&n.node[j], 20);
            pass(&n, 300);
        }
        pass(&n, i % 3 == 2 ? UINT64_C(150000) : i % 3 == 1 ? 2500 : 0);
    }
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(stats_of(&n.node[i]).redis_lost_state_count, 0);
        assert_int_equal(n.node[i].w->fleet->gather.resync_parts, 0);
    }
    nodes_stop(&n);
}

/* Uses and gives back at random. All data is lost, and once more within a second, before all nodes have reported again.
 */
static void use_and_lose(struct nodes *n, uint64_t *rng)
{
    const int first = (int) random_below(rng, 100);
    const int second = first + 1 + (int) random_below(rng, 10);
    for (int step = 0; step < 120; step++) {
        struct node *node = &n->node[random_below(rng, NODES)];
        const uint64_t units = random_below(rng, 40);
        if (random_below(rng, 3) != 0) {
            (void) ask(node, units);
        } else {
            give_back(node, node->used < units ? node->used : units);
        }
        pass(n, random_below(rng, 8) * INTERVAL_MS / 5);
        if (step == first || step == second) {
            loopback_fleet_flush(n->fleet);
        }
    }
}

/*
 * Sums are exact. A bucket's time is later where the one that has seen the latest time does not know of refunds that
 * another node had reported in between; and a little earlier where a node took in an answer in between.
 */
static void test_data_that_is_lost_twice_waives_no_debt(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    const uint64_t limit = 100000;
    for (int times = 0; times < 30; times++) {
        for (size_t a = 0; a < COUNTERS; a++) {
            struct nodes n;
            const weir_limit of = {.algorithm = algorithms[a], .limit = limit, .period_ns = 366 * 24 * HOUR};
            const weir_policy policy = policy_of(&of);
            nodes_start(&n, &policy, 1);
            use_and_lose(&n, &rng);
            pass_resync(&n);
            pass(&n, SCAN_MS); /* what was given back after a key's turn */
            agree(&n);
            assert_int_equal(fleet_sum(&n), used_by_all(&n));
            /* A node that joins has what the fleet knows. */
            const uint64_t used = used_by_all(&n);
            node_close(&n.node[2]);
            node_open(&n, 2, 0);
            hear(&n);
            agree(&n);
            const uint64_t owed = limit - room(&n.node[2]) - NODES; /* each node used one to hear of the others */
            if (algorithms[a] == WEIR_TOKEN_BUCKET) {
                assert_in_range(owed, used - used / 20, used + used / 2);
            } else {
                assert_int_equal(owed, used);
            }
            nodes_stop(&n);
        }
    }
}

int main(void)
{
    static weir_limit limits[ALGORITHMS];
    for (size_t a = 0; a < ALGORITHMS; a++) {
        limits[a] = limit_of(algorithms[a], 3000);
    }
    const struct CMUnitTest tests[] = {
        OVER_ALL(test_a_record_that_is_gone_is_missed_by_the_node_that_has_used_it, limits),
        OVER_ALL(test_nodes_that_never_see_each_others_units_see_that, limits),
        OVER_ALL(test_a_record_that_has_expired_is_not_missed, limits),
        cmocka_unit_test(test_rounds_whose_answers_are_lost_count_once),
        cmocka_unit_test(test_what_a_failed_round_held_is_said_again_without_new_traffic),
        cmocka_unit_test(test_a_fleet_that_forgets_is_told_again_and_gives_no_fresh_budget),
        cmocka_unit_test(test_a_loss_counts_once_whatever_the_first_round_after_it_is),
        cmocka_unit_test(test_a_fleet_that_forgets_is_told_of_keys_that_nobody_uses_any_more),
        cmocka_unit_test(test_data_that_is_lost_twice_waives_no_debt),
    };
    return cmocka_run_group_tests_name("unit/fleet/lost_state", tests, NULL, NULL);
}
