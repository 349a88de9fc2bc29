/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way back from an outage, on the in-memory fleet: when a node goes by the fleet's answers again, and what it
 * reports of the units that it admitted without them.
 *
 * Guards: src/fleet/outage.c, src/fleet/membership.c, src/fleet/keys/report_bucket.c
 */
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT 300

static const uint64_t a_burst[NODES] = {1000, 1000, 1000};

static void test_the_first_news_after_an_outage_is_an_interval_too_early(void **state)
{
    (void) state;
    static const uint32_t grace_ms[] = {500, 400};
    for (size_t g = 0; g < sizeof(grace_ms) / sizeof(grace_ms[0]); g++) {
        struct nodes n;
        const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, LIMIT);
        weir_policy policy = policy_of(&limit);
        policy.outage_grace_ms = grace_ms[g];
        nodes_start(&n, &policy, 1);
        loopback_fleet_set_down(n.fleet, true);
        pass(&n, grace_ms[g] + 200);
        assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_OUTAGE);
        const uint64_t before = load_relaxed(&n.node[0].w->fleet->stats.sync_count);
        loopback_fleet_set_down(n.fleet, false);
        while (load_relaxed(&n.node[0].w->fleet->stats.sync_count) == before) {
            pass(&n, STEP_MS);
        }
        pass(&n, INTERVAL_MS - 3 * STEP_MS);
        assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_OUTAGE); /* not all other nodes have reported yet */
        pass(&n, RETURN_MS - INTERVAL_MS);
        assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_FLEET);
        nodes_stop(&n);
    }
}

/* Also for a mode that is no fraction of the limit: the first answer does not say which nodes have reported. */
static void test_an_outage_mode_is_left_an_interval_after_the_first_answer(void **state)
{
    (void) state;
    static const weir_outage modes[] = {WEIR_OUTAGE_CLOSED, WEIR_OUTAGE_LOCAL, WEIR_OUTAGE_OPEN};
    for (size_t r = 0; r < 2 * sizeof(modes) / sizeof(modes[0]); r++) {
        struct nodes n;
        const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, LIMIT);
        weir_policy policy = policy_of(&limit);
        policy.on_outage = modes[r / 2];
        nodes_init(&n, &policy, 1);
        for (int i = 0; i < (r % 2 == 0 ? 1 : NODES); i++) {
            node_open(&n, i, 0);
        }
        pass(&n, 500);
        const struct node *node = &n.node[0];
        const struct policy *inside = policy_set_by_id(process_policies(&node->w->limiter.process),
                                                       node->key.policy); /* the set stays in force */
        loopback_fleet_set_down(n.fleet, true);
        pass(&n, 1000);
        const uint8_t mode = load_relaxed(&inside->outage_mode);
        assert_int_not_equal(mode, OUTAGE_MODE_NONE);
        assert_int_not_equal(mode, OUTAGE_MODE_SHARE);
        const uint64_t before = load_relaxed(&node->w->fleet->stats.sync_count);
        loopback_fleet_set_down(n.fleet, false);
        while (load_relaxed(&node->w->fleet->stats.sync_count) == before) {
            pass(&n, STEP_MS);
        }
        assert_int_equal(load_relaxed(&inside->outage_mode), mode);
        pass(&n, INTERVAL_MS - 3 * STEP_MS);
        assert_int_equal(load_relaxed(&inside->outage_mode), mode);
        pass(&n, INTERVAL_MS + 3 * STEP_MS);
        assert_int_not_equal(load_relaxed(&inside->outage_mode), mode);
        nodes_stop(&n);
    }
}

/* All nodes are asked for more units than there are, all the time. */
static void through_an_outage(weir_algorithm algorithm, uint64_t before_ms, const uint64_t each[NODES], bool empty)
{
    struct nodes n;
    const weir_limit limit = limit_of(algorithm, 3000);
    const weir_policy policy = policy_of(&limit);
    nodes_start(&n, &policy, 1);
    ask_all(&n, before_ms, each);
    loopback_fleet_set_down(n.fleet, true);
    ask_all(&n, 1500, each);
    if (empty) {
        loopback_fleet_forget(n.fleet);
    }
    loopback_fleet_set_down(n.fleet, false);
    while (look(&n.node[0]).basis == WEIR_BASIS_OUTAGE) {
        ask_all(&n, STEP_MS, each);
    }
    const uint64_t at_back = used_by_all(&n);
    ask_all(&n, 4000, each);
    ask_all(&n, 1000, a_burst);
    const uint64_t used = used_by_all(&n);
    /* A fraction goes by the demand seen last, which may be some intervals old. */
    const bool in_outage = at_back <= 3000 + 300 || each[0] != each[1];
    /* On the way back each node goes by news that is an interval old. */
    if (!in_outage || used < 3000 || used > (at_back > 3000 ? at_back : 3000) + 100) {
        fail_msg("algorithm %d, outage after %d ms, %d:%d:%d%s: %d, then %d of 3000 have passed", (int) algorithm,
                 (int) before_ms, (int) each[0], (int) each[1], (int) each[2], empty ? ", comes back empty" : "",
                 (int) at_back, (int) used);
    }
    agree(&n);
    assert_int_equal(fleet_sum(&n), used);
    for (int i = 0; i < NODES; i++) {
        assert_false(goes_by_fraction(&n.node[i]));
        assert_int_equal(room(&n.node[i]), 0);
    }
    nodes_stop(&n);
}

static void test_an_outage_and_the_way_back_let_no_more_pass_than_the_limit(void **state)
{
    (void) state;
    static const uint64_t evenly[NODES] = {2, 2, 2};
    static const uint64_t skewed[NODES] = {4, 1, 1};
    for (size_t a = 0; a < COUNTERS; a++) {
        for (uint64_t before_ms = 3000; before_ms <= 4500; before_ms += 500) {
            through_an_outage(algorithms[a], before_ms, evenly, false);
            through_an_outage(algorithms[a], before_ms, skewed, false);
        }
    }
}

static void test_a_fleet_that_comes_back_empty_lets_no_more_pass_than_the_limit(void **state)
{
    (void) state;
    static const uint64_t evenly[NODES] = {2, 2, 2};
    for (size_t a = 0; a < COUNTERS; a++) {
        through_an_outage(algorithms[a], 3500, evenly, true);
        through_an_outage(algorithms[a], 4000, evenly, true);
    }
}

/*
 * What a node has seen of a bucket is as of the last answer. Refunds before that answer are in it, and are not taken
 * off again. This matters when the fleet has lost the bucket.
 */
static void test_what_was_given_back_before_an_outage_is_taken_off_once(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_TOKEN_BUCKET, LIMIT);
    const weir_policy policy = policy_of(&limit);
    nodes_start(&n, &policy, 1);
    struct node *node = &n.node[0];
    assert_int_equal(ask(node, 1), 1);
    charge(node, 100);
    pass(&n, TWO_INTERVALS);
    assert_false(goes_by_fraction(node));
    loopback_fleet_set_down(n.fleet, true);
    give_back(node, 60);
    pass(&n, 1000);
    assert_int_equal(look(node).basis, WEIR_BASIS_OUTAGE);
    assert_int_equal(ask(node, 3), 3);
    loopback_fleet_forget(n.fleet);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, RESYNC_MS);
    /* Another node knows the bucket from the fleet alone, and times in reports are rounded. */
    assert_int_equal(ask(&n.node[1], 1), 1);
    pass(&n, SCAN_MS);
    const uint64_t used = used_by_all(&n);
    assert_in_range(room(&n.node[1]), LIMIT - used - 1, LIMIT - used + 1);
    nodes_stop(&n);
}

/*
 * A node reports the debt of an outage when all nodes are there. For a node that never comes back it waits until that
 * node counts as failed. Then it reports the debt, also of keys that no node uses any more.
 */
static void test_what_was_held_back_is_told_when_a_node_does_not_come_back(void **state)
{
    (void) state;
    static const uint64_t each[NODES] = {4, 2, 1};
    static const uint64_t both[NODES] = {4, 2, 0};
    for (uint64_t more_ms = 0; more_ms <= RETURN_MS; more_ms += 5 * STEP_MS) {
        struct nodes n;
        const weir_limit limit = limit_of(more_ms % 100 == 0 ? WEIR_TOKEN_BUCKET : WEIR_LEAKY_BUCKET, 5000);
        const weir_policy policy = policy_of(&limit);
        nodes_start(&n, &policy, 1);
        ask_all(&n, 3000, each);
        pass(&n, SCAN_MS);
        loopback_fleet_set_down(n.fleet, true);
        ask_all(&n, 1500, both);
        assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_OUTAGE);
        node_close(&n.node[2]);
        loopback_fleet_set_down(n.fleet, false);
        ask_all(&n, more_ms, both);
        pass(&n, 10 * RETURN_MS);
        assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_FLEET);
        assert_int_equal(weir_sync(n.node[0].w, 60000), 0);
        assert_int_equal(weir_sync(n.node[1].w, 60000), 0);
        assert_int_equal(fleet_sum(&n), used_by_all(&n));
        nodes_stop(&n);
    }
}

/* A report moves a bucket no further than to where it is empty, except for units that were charged without asking. */
static void test_what_two_nodes_have_charged_in_an_outage_is_owed_after_it(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_TOKEN_BUCKET, LIMIT);
    const weir_policy policy = policy_of(&limit);
    nodes_start(&n, &policy, 1);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 1), 1);
    }
    pass(&n, TWO_INTERVALS);
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 1000);
    charge(&n.node[0], 2 * LIMIT);
    charge(&n.node[1], 2 * LIMIT);
    pass(&n, STEP_MS);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, RESYNC_MS);
    (void) ask(&n.node[2], 1); /* its next answer has that */
    pass(&n, SCAN_MS);
    const weir_verdict verdict = look(&n.node[2]);
    assert_int_equal(verdict.basis, WEIR_BASIS_FLEET);
    const uint64_t unit_ns = limit.period_ns / LIMIT;
    const uint64_t refilled = SCAN_MS * MILLISECOND / unit_ns;
    const uint64_t owed = verdict.retry_after_ns / unit_ns + LIMIT;
    assert_in_range(owed, 4 * LIMIT - refilled - 10, 4 * LIMIT + NODES + 10);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    nodes_stop(&n);
}

/* No node uses a key in an outage, and then one node does: after a while all that is left is this node's own. */
static void test_what_an_outage_has_left_to_others_can_be_had_after_it(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(algorithms[a], LIMIT);
        const weir_policy policy = policy_of(&limit);
        nodes_start_with_new_key(&n, &policy, 1);
        for (int i = 0; i < 5 * NODES; i++) { /* each node learns the demand of the others */
            assert_int_equal(ask(&n.node[i % NODES], 2), 2);
            pass(&n, i % NODES == NODES - 1 ? INTERVAL_MS : STEP_MS);
            agree(&n);
        }
        loopback_fleet_set_down(n.fleet, true);
        pass(&n, 1000);
        assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_OUTAGE);
        loopback_fleet_set_down(n.fleet, false);
        pass(&n, RETURN_MS);
        assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_FLEET);
        const uint64_t first = ask(&n.node[0], LIMIT);
        assert_in_range(first, 1, LIMIT - 30);
        pass(&n, 2 * INTERVAL_MS);
        assert_false(goes_by_fraction(&n.node[0]));
        assert_int_equal(ask_for_long(&n, &n.node[0], LIMIT), LIMIT - 30 - first);
        nodes_stop(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_news_after_an_outage_is_an_interval_too_early),
        cmocka_unit_test(test_an_outage_mode_is_left_an_interval_after_the_first_answer),
        cmocka_unit_test(test_an_outage_and_the_way_back_let_no_more_pass_than_the_limit),
        cmocka_unit_test(test_a_fleet_that_comes_back_empty_lets_no_more_pass_than_the_limit),
        cmocka_unit_test(test_what_was_given_back_before_an_outage_is_taken_off_once),
        cmocka_unit_test(test_what_was_held_back_is_told_when_a_node_does_not_come_back),
        cmocka_unit_test(test_what_two_nodes_have_charged_in_an_outage_is_owed_after_it),
        cmocka_unit_test(test_what_an_outage_has_left_to_others_can_be_had_after_it),
    };
    return cmocka_run_group_tests_name("unit/fleet/after_outage", tests, NULL, NULL);
}
