/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports of a bucket after an answer was lost: the fleet has units that are not acked. And when a key was last
 * looked at, which decides whose sync state another key gets; and what a key with a new sync state knows.
 *
 * Guards: src/fleet/keys/report.c, src/fleet/keys/gather.c
 */
#include "support/nodes.h"
#include "support/policies.h"

/* Node 0 uses `units`, and the answer to the report is lost. `seconds` later the round has failed. */
static void lose_an_answer(struct nodes *n, uint64_t units, uint64_t seconds)
{
    struct loopback_link link = {.answers_lost_ppm = 1000000};
    loopback_transport_set_link(n->node[0].w->fleet->transport, &link);
    assert_int_equal(ask(&n->node[0], units), units);
    pass(n, INTERVAL_MS);
    assert_int_equal(fleet_sum(n), units);
    link.answers_lost_ppm = 0;
    loopback_transport_set_link(n->node[0].w->fleet->transport, &link);
    fake_clock_advance(&n->fleet_clock, seconds * SECOND);
    fake_clock_advance(&n->node[0].clock, seconds * SECOND);
    assert_true(weir_poll(n->node[0].w) >= 0);
}

/*
 * The fleet takes in a report, and the answer is lost. The bucket is full again before the node uses more units. The
 * next report resets the key, and the reset refunds all that the bucket owes.
 */
static void test_a_reset_after_a_lost_answer_refunds_all_that_is_owed(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = 4 * SECOND, .burst = 5};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_init(&n, &policy, 1);
    node_open(&n, 0, 0);
    pass(&n, 500);
    lose_an_answer(&n, 5, 4);
    assert_int_equal(ask(&n.node[0], 5), 5);
    assert_int_equal(weir_reset(n.node[0].w, &n.node[0].key), 0);
    assert_int_equal(room(&n.node[0]), 5);
    assert_int_equal(fleet_sum(&n), 5); /* the first five refilled by themselves */
    nodes_stop(&n);
}

/*
 * The answer to a report is lost, and the bucket is full again. Then a unit takes a day: the units of that report would
 * take longer than since the rule's origin. Another node finds that only the units used since are owed.
 */
static void test_units_of_a_lost_answer_owe_no_time_at_a_later_rate(void **state)
{
    (void) state;
    struct nodes n;
    weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 10000000, .period_ns = 24 * HOUR, .burst = 500};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_init(&n, &policy, 1);
    node_open(&n, 0, 0);
    pass(&n, 500);
    lose_an_answer(&n, 500, 10);
    limit.limit = 1;
    assert_int_equal(weir_set_policies(n.node[0].w, &policy, 1, NULL), 0);
    assert_int_equal(ask(&n.node[0], 1), 1);
    assert_int_equal(weir_sync(n.node[0].w, 60000), 0);
    node_open(&n, 1, 0);
    pass(&n, 1000);
    hear(&n);
    assert_int_equal(room(&n.node[1]), 500 - (used_by_all(&n) - 500));
    nodes_stop(&n);
}

static uint32_t rounds_since_the_look_at(const struct node *node, uint32_t cell)
{
    const struct sync_full *sync = sync_of(&node->w->limiter.process.syncs, cell);
    assert_non_null(sync);
    return node->w->fleet->gather.number - sync->round;
}

static void test_a_key_that_was_looked_at_longer_ago_has_had_more_rounds_since(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = HOUR};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_init(&n, &policy, 1);
    node_open(&n, 0, 0);
    pass(&n, 500);
    struct node *node = &n.node[0];
    assert_int_equal(ask(node, 1), 1);
    const uint32_t first = cell_of(node);
    pass(&n, SCAN_MS);
    const uint32_t rounds = rounds_since_the_look_at(node, first);
    node->key = weir_make_key(node->w, node->key.policy, "later", 5);
    assert_int_equal(ask(node, 1), 1);
    pass(&n, SCAN_MS);
    const uint32_t since = rounds_since_the_look_at(node, cell_of(node));
    assert_in_range(since, 0, SCAN_MS / INTERVAL_MS);
    assert_in_range(rounds_since_the_look_at(node, first), rounds + since + 1, 1000);
    nodes_stop(&n);
}

/*
 * A key whose full sync state was given to another one gets a new one when it is reported. Where use goes on as before,
 * the demand that was known is kept. Where the key is urgent, use has surged, and the nodes' demand is learned anew.
 */
static void test_an_urgent_key_with_a_new_sync_state_learns_its_demand_anew(void **state)
{
    (void) state;
    for (int urgent = 0; urgent < 2; urgent++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = HOUR};
        const weir_policy policy = patient_policy_of(&limit);
        nodes_init(&n, &policy, 1);
        n.max_keys = 20000;
        node_open(&n, 0, 0);
        pass(&n, 500);
        struct node *node = &n.node[0];
        struct process *process = &node->w->limiter.process;
        assert_int_equal(ask(node, 20), 20);
        pass(&n, SCAN_MS);
        sync_states_demote(node->w);
        const uint32_t cell = cell_of(node);
        assert_null(sync_of(&process->syncs, cell));
        assert_int_equal(ask(node, 20), 20);
        if (urgent != 0) {
            make_urgent(node);
        }
        const struct sync_full *sync = NULL;
        for (int steps = 0; sync == NULL; steps++) { /* the answer comes a step after the report */
            assert_in_range(steps, 0, SCAN_MS);
            fake_clock_advance(&n.fleet_clock, MILLISECOND);
            fake_clock_advance(&node->clock, MILLISECOND);
            assert_true(weir_poll(node->w) >= 0);
            sync = sync_of(&process->syncs, cell);
        }
        assert_int_equal(sync->demand.learned_ns == 0, urgent);
        nodes_stop(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_reset_after_a_lost_answer_refunds_all_that_is_owed),
        cmocka_unit_test(test_units_of_a_lost_answer_owe_no_time_at_a_later_rate),
        cmocka_unit_test(test_a_key_that_was_looked_at_longer_ago_has_had_more_rounds_since),
        cmocka_unit_test(test_an_urgent_key_with_a_new_sync_state_learns_its_demand_anew),
    };
    return cmocka_run_group_tests_name("unit/fleet/report", tests, NULL, NULL);
}
