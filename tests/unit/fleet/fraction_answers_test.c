/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What answers tell nodes that go by their fractions of the limit: Redis is back after an outage, and so slow that the
 * nodes take in no units of other nodes. A reset is known to them all the same, and so are units that Redis has lost:
 * whatever Redis loses, its sum is what was used.
 *
 * Guards: src/fleet/keys/merge.c, src/fleet/keys/report_history.c
 */
#include "check/reset.h"
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT 300

#define SLOW_MS 400 /* less than a node waits for an answer, and so much that a round counts as slow */

static const weir_limit kinds[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = LIMIT, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = LIMIT, .period_ns = 24 * HOUR, .delay = LIMIT},
    {.algorithm = WEIR_SLIDING_LOG, .limit = LIMIT, .period_ns = 24 * HOUR},
};

/* Nodes that have used 40 units each, and that go by their fractions: Redis was down, and is slow. */
static void go_by_fractions(struct nodes *n, const weir_policy *policy)
{
    nodes_start(n, policy, 1);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n->node[i], 40), 40);
    }
    hear(n);
    loopback_fleet_set_down(n->fleet, true);
    pass(n, 2000);
    loopback_fleet_set_down(n->fleet, false);
    loopback_fleet_set_slow(n->fleet, SLOW_MS * MILLISECOND);
    pass(n, SCAN_MS);
    assert_int_equal(fleet_sum(n), used_by_all(n));
}

/* Each node uses a unit more, and gets an answer, which is not taken in as a whole. */
static void get_answers(struct nodes *n)
{
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n->node[i], 1), 1);
    }
    pass(n, 10 * SLOW_MS);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(look(&n->node[i]).basis, WEIR_BASIS_OUTAGE);
    }
}

static void test_a_reset_reaches_nodes_that_go_by_their_fractions(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = policy_of(kind);
    go_by_fractions(&n, &policy);
    assert_int_equal(reset_key(&n.node[1].w->limiter, &n.node[1].key, true), 0);
    pass(&n, 10 * SLOW_MS);
    assert_int_equal(fleet_sum(&n), 0);
    n.node[0].used = n.node[1].used = n.node[2].used = 0;
    get_answers(&n);
    loopback_fleet_forget(n.fleet);
    pass(&n, SCAN_MS);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    nodes_stop(&n);
}

/* Redis goes on with older data, and says nothing of that. */
static void test_units_that_redis_loses_are_reported_again_by_nodes_that_go_by_their_fractions(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = policy_of(kind);
    go_by_fractions(&n, &policy);
    struct loopback_snapshot *earlier = loopback_fleet_snapshot(n.fleet);
    assert_non_null(earlier);
    get_answers(&n);
    assert_true(loopback_fleet_restore(n.fleet, earlier, true));
    loopback_snapshot_free(earlier);
    get_answers(&n);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_ALL(test_a_reset_reaches_nodes_that_go_by_their_fractions, kinds),
        OVER_ALL(test_units_that_redis_loses_are_reported_again_by_nodes_that_go_by_their_fractions, kinds),
    };
    return cmocka_run_group_tests_name("unit/fleet/fraction_answers", tests, NULL, NULL);
}
