/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node lets pass before its first good round, and in an outage that began before it: its equal share by
 * `expected_nodes`, of a quota a 64th of that, and of a closed policy nothing. On the in-memory fleet.
 *
 * Guards: src/process/allowance.c, src/fleet/outage.c
 */
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT 300

#define STARTS 10

/* A node that is killed does not leave the fleet. */
static void node_kill(struct nodes *n, int i)
{
    loopback_fleet_set_down(n->fleet, true);
    node_close(&n->node[i]);
    loopback_fleet_set_down(n->fleet, false);
}

static void test_nodes_that_start_while_redis_is_away_share_the_limit(void **state)
{
    const weir_algorithm algorithm = *(const weir_algorithm *) *state;
    struct nodes n;
    const weir_limit limit = limit_of(algorithm, LIMIT);
    const weir_policy policy = policy_of(&limit);
    nodes_init(&n, &policy, 1);
    n.key_is_new = true;
    n.expected_nodes = NODES;
    loopback_fleet_set_down(n.fleet, true);
    for (int i = 0; i < NODES; i++) {
        node_open(&n, i, 0);
        assert_int_equal(ask(&n.node[i], 1000), LIMIT / NODES); /* at once */
    }
    ask_all(&n, 3000, (const uint64_t[NODES]){20, 20, 20});
    assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_OUTAGE);
    assert_int_equal(used_by_all(&n), LIMIT); /* also later */
    loopback_fleet_set_down(n.fleet, false);
    ask_all(&n, 3000 + RETURN_MS, (const uint64_t[NODES]){20, 20, 20});
    assert_in_range(used_by_all(&n), LIMIT, LIMIT + NODES); /* what refills in those seconds is less than one unit */
    nodes_stop(&n);
}

static void test_a_node_that_starts_again_and_again_has_its_equal_share_each_time(void **state)
{
    const weir_algorithm algorithm = *(const weir_algorithm *) *state;
    struct nodes n;
    const weir_limit limit = limit_of(algorithm, LIMIT);
    const weir_policy policy = policy_of(&limit);
    nodes_init(&n, &policy, 1);
    n.expected_nodes = NODES;
    node_open(&n, 0, 0);
    node_open(&n, 1, 0);
    pass(&n, 500);
    ask_all(&n, 3000, (const uint64_t[NODES]){100, 100, 0});
    assert_in_range(used_by_all(&n), LIMIT - NODES, LIMIT + LIMIT / 10);
    n.key_is_new = true;
    for (int start = 0; start < STARTS; start++) {
        node_open(&n, 2, 0);
        assert_in_range(ask(&n.node[2], 1000), LIMIT / NODES - 1, LIMIT / NODES); /* the node has no answer */
        pass(&n, 100);
        assert_int_equal(ask(&n.node[2], 1000), 0); /* the node has its first answer */
        node_kill(&n, 2);
        pass(&n, 100);
    }
    nodes_stop(&n);
}

static void test_without_an_expected_number_a_node_is_alone(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, LIMIT);
    const weir_policy policy = policy_of(&limit);
    nodes_init(&n, &policy, 1);
    n.key_is_new = true;
    node_open(&n, 0, 0);
    assert_int_equal(ask(&n.node[0], 1000), LIMIT);
    nodes_stop(&n);
}

static void test_what_is_closed_is_closed_from_the_first_check(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_TOKEN_BUCKET, LIMIT);
    weir_policy policy = policy_of(&limit);
    policy.on_outage = WEIR_OUTAGE_CLOSED;
    nodes_init(&n, &policy, 1);
    n.key_is_new = true;
    loopback_fleet_set_hung(n.fleet, true);
    node_open(&n, 0, 0);
    assert_int_equal(ask(&n.node[0], 1000), 0);
    assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_OUTAGE);
    /* A later set of policies changes nothing. */
    assert_int_equal(weir_set_policies(n.node[0].w, &policy, 1, NULL), 0);
    assert_int_equal(ask(&n.node[0], 1000), 0);
    pass(&n, 3000);
    assert_int_equal(ask(&n.node[0], 1000), 0);
    loopback_fleet_set_hung(n.fleet, false);
    pass(&n, 3000);
    assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_FLEET);
    assert_int_equal(ask(&n.node[0], 1000), LIMIT);
    nodes_stop(&n);
}

static void test_a_quota_keeps_its_64th_in_an_outage_before_the_first_answer(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 64 * LIMIT, .calendar = WEIR_CALENDAR_MONTH};
    const weir_policy policy = policy_of(&limit);
    nodes_init(&n, &policy, 1);
    n.key_is_new = true;
    n.expected_nodes = NODES;
    loopback_fleet_set_down(n.fleet, true);
    node_open(&n, 0, 0);
    assert_in_range(ask(&n.node[0], 1000), LIMIT / NODES - 1, LIMIT / NODES);
    pass(&n, 3000);
    assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_OUTAGE);
    assert_int_equal(ask(&n.node[0], 1000), 0);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, 3000 + RETURN_MS);
    (void) ask_for_long(&n, &n.node[0], 64 * LIMIT);
    assert_int_equal(n.node[0].used, 64 * LIMIT);
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_ALL(test_nodes_that_start_while_redis_is_away_share_the_limit, algorithms),
        OVER_ALL(test_a_node_that_starts_again_and_again_has_its_equal_share_each_time, algorithms),
        cmocka_unit_test(test_without_an_expected_number_a_node_is_alone),
        cmocka_unit_test(test_what_is_closed_is_closed_from_the_first_check),
        cmocka_unit_test(test_a_quota_keeps_its_64th_in_an_outage_before_the_first_answer),
    };
    return cmocka_run_group_tests_name("unit/fleet/first_contact", tests, NULL, NULL);
}
