/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What answers tell nodes that go by their fractions of the limit: Redis is back after an outage, and so slow that the
 * nodes take in no units of other nodes. A reset is known to them all the same: when Redis loses its data after that,
 * its sum is what was used since. And a log is told of units that Redis has lost.
 *
 * Guards: src/fleet/keys/merge.c, src/fleet/keys/report_history.c
 */
#include "check/reset.h"
#include "fleet/keys/report_history.h"
#include "process/history_store.h"
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT   300
#define USED    41
#define SLOW_MS 400 /* less than a node waits for an answer, and so much that a round counts as slow */

static const weir_limit kinds[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = LIMIT, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = LIMIT, .period_ns = 24 * HOUR, .delay = LIMIT},
    {.algorithm = WEIR_SLIDING_LOG, .limit = LIMIT, .period_ns = 24 * HOUR},
};

/* Nodes that have used USED units each, and that go by their fractions: Redis was down, and is slow. */
static void go_by_fractions(struct nodes *n, const weir_policy *policy)
{
    nodes_start(n, policy, 1);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n->node[i], USED - 1), USED - 1);
    }
    hear(n); /* uses another one */
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

/* An answer that acknowledges so many of a node's USED units. True: the node reports all of them again. */
static bool reports_again(struct node *node, uint64_t acknowledged)
{
    struct process *process = &node->w->limiter.process;
    rcu_enter(node->t);
    const struct policy *policy;
    const uint32_t cell = cell_at(node, &policy);
    const struct policy_limit *limit = &policy->limits[0];
    const uint64_t now_ns = tick_now(node->t, policy);
    struct history *history = history_store_get(process, cell);
    assert_int_equal(history->counts - history->first, USED);
    struct history_report units = {.first = history->counts,
                                   .refund_from = history->counts,
                                   .refund_to = history->counts,
                                   .live = USED,
                                   .limit = LIMIT};
    const struct report report = {
        .count = history->counts, .history = &units, .author_count = acknowledged, .sum = acknowledged};
    const struct report_subject subject = {
        .cell = cell, .sync = sync_at(process, cell, &limit->rule, now_ns), .policy = policy, .limit = limit};
    bitmap_clear(&process->table.dirty, cell);
    assert_false(report_history_acknowledge(node->w->fleet, &subject, &report, &limit->rule)); /* none was refunded */
    const bool again = history->counts == history->first;
    uint32_t cursor = cell;
    assert_int_equal(bitmap_next(&process->table.dirty, &cursor, cell + 1) == cell, again);
    rcu_leave(node->t);
    return again;
}

static void test_a_log_whose_units_redis_has_lost_is_reported_again(void **state)
{
    (void) state;
    for (uint64_t acknowledged = 0; acknowledged <= USED; acknowledged++) {
        struct nodes n;
        const weir_policy policy = policy_of(&kinds[ALGORITHMS - 1]);
        go_by_fractions(&n, &policy);
        assert_int_equal(reports_again(&n.node[0], acknowledged), acknowledged < USED);
        nodes_stop(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_ALL(test_a_reset_reaches_nodes_that_go_by_their_fractions, kinds),
        cmocka_unit_test(test_a_log_whose_units_redis_has_lost_is_reported_again),
    };
    return cmocka_run_group_tests_name("unit/fleet/fraction_answers", tests, NULL, NULL);
}
