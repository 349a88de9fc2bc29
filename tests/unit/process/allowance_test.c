/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node lets pass of keys without an answer of the fleet: new keys, keys that were unused for a while, and
 * quotas. On the in-memory fleet. Nodes without a fleet are in outage_test.c.
 *
 * Guards: src/process/allowance.c, src/process/unseen.c, src/fleet/keys/demand_learn.c, src/fleet/keys/publish.c,
 * src/check/denial.c
 */
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT 300

static const uint64_t a_burst[NODES] = {1000, 1000, 1000};

/* All nodes are asked for more than there is at one time; `on`: and are asked again and again. */
static void burst_on_all(weir_algorithm algorithm, uint64_t most, bool on)
{
    struct nodes n;
    const weir_limit limit = limit_of(algorithm, most);
    const weir_policy policy = policy_of(&limit);
    nodes_start_with_new_key(&n, &policy, 1);
    const uint64_t fraction = most / NODES;
    for (int i = 0; i < NODES; i++) {
        assert_in_range(ask(&n.node[i], 1000), fraction != 0 ? fraction : 1, fraction + 1);
    }
    ask_all(&n, on ? 3000 : 0, a_burst);
    pass(&n, on ? 0 : 3000);
    if (!on) {
        ask_all(&n, 1000, a_burst);
    }
    /* The share of a queue is a whole number of units, rounded down. */
    const uint64_t idle = algorithm == WEIR_LEAKY_BUCKET ? NODES - 1 : 0;
    if (used_by_all(&n) + idle < most || used_by_all(&n) > most + NODES) {
        fail_msg("algorithm %d: %d of %d have passed", (int) algorithm, (int) used_by_all(&n), (int) most);
    }
    agree(&n);
    if (algorithm != WEIR_SLIDING_LOG) { /* a log keeps the latest units, up to its limit */
        assert_int_equal(fleet_sum(&n), used_by_all(&n));
    }
    nodes_stop(&n);
}

static const uint64_t some_limits[] = {LIMIT, 100, 3, 2, 1};

static void test_a_burst_on_all_nodes_at_once_stays_within_the_limit(void **state)
{
    for (size_t i = 0; i < sizeof(some_limits) / sizeof(some_limits[0]); i++) {
        burst_on_all(*(const weir_algorithm *) *state, some_limits[i], false);
    }
}

static void test_a_burst_that_goes_on_stays_within_the_limit(void **state)
{
    for (size_t i = 0; i < sizeof(some_limits) / sizeof(some_limits[0]); i++) {
        burst_on_all(*(const weir_algorithm *) *state, some_limits[i], true);
    }
}

/* A node goes by its equal share for a quarter of an interval, and then until it has learned the demand. */
#define WAIT_MS  (INTERVAL_MS / 4)
#define KNOWN_MS INTERVAL_MS

/* How long a request for so many units has to wait. */
static uint64_t wait_for(struct node *node, uint64_t units)
{
    weir_verdict v;
    assert_false(weir_peek(node->t, &node->key, units, &v));
    assert_int_equal(v.limit, LIMIT);
    return v.retry_after_ns;
}

static void test_one_node_alone_has_the_whole_limit_within_an_interval(void **state)
{
    const weir_algorithm algorithm = *(const weir_algorithm *) *state;
    struct nodes n;
    const weir_limit limit = limit_of(algorithm, LIMIT);
    const weir_policy policy = policy_of(&limit);
    nodes_start_with_new_key(&n, &policy, 1);
    struct node *node = &n.node[0];
    assert_int_equal(ask(node, 1000), LIMIT / NODES);
    /* The rest is left to other nodes until the fleet's first answer, which is requested at once. */
    assert_int_equal(wait_for(node, 1), 100 * MILLISECOND);
    assert_int_equal(wait_for(node, LIMIT - LIMIT / NODES), 100 * MILLISECOND);
    assert_in_range(wait_for(node, LIMIT), 1, 100 * HOUR); /* the limit lets it pass at once, if not now */
    assert_int_equal(wait_for(node, LIMIT + 1), UINT64_MAX);
    for (uint64_t ms = 0; ms < WAIT_MS;
         ms += STEP_MS) { /* the answer comes in the second step, and the node waits after it */
        pass(&n, STEP_MS);
        assert_int_equal(ask(node, 1000), 0);
    }
    assert_false(goes_by_fraction(node));
    uint64_t ms = WAIT_MS;
    /*
     * A node goes by a share of a queue until it knows that no other node is there. The share is a whole number of
     * units, rounded down.
     */
    const bool queue = algorithm == WEIR_LEAKY_BUCKET;
    for (; ms <= KNOWN_MS + (queue ? INTERVAL_MS : 0) && node->used < LIMIT; ms += STEP_MS) {
        (void) ask(node, 1000);
        pass(&n, STEP_MS);
    }
    assert_int_equal(node->used, LIMIT);
    assert_in_range(wait_for(node, 1), 200 * SECOND, 48 * HOUR); /* no answer can let more pass */
    assert_int_equal(wait_for(node, LIMIT + 1), UINT64_MAX);
    nodes_stop(&n);
}

/*
 * Two nodes use a key. What is left to the other one may be had when the fleet answers next. What nobody has left comes
 * back with the limit alone.
 */
static void test_a_denied_request_waits_for_the_next_answer_or_for_the_limit(void **state)
{
    const weir_algorithm algorithm = *(const weir_algorithm *) *state;
    static const uint64_t each[NODES] = {1, 1};
    struct nodes n;
    const weir_limit limit = limit_of(algorithm, LIMIT);
    const weir_policy policy = policy_of(&limit);
    nodes_start_with_new_key(&n, &policy, 1);
    struct node *node = &n.node[0];
    ask_all(&n, 1000, each);
    (void) ask(node, 1000);
    assert_in_range(room(node), 1, LIMIT - 200);
    assert_in_range(wait_for(node, 1), MILLISECOND, INTERVAL_MS * 3 / 2 * MILLISECOND);
    ask_all(&n, 2000, a_burst);
    agree(&n);
    assert_int_equal(room(node), 0);
    assert_in_range(wait_for(node, 1), 200 * SECOND, 48 * HOUR);
    assert_in_range(wait_for(node, LIMIT), 200 * SECOND, 48 * HOUR);
    assert_int_equal(wait_for(node, LIMIT + 1), UINT64_MAX);
    nodes_stop(&n);
}

/* A key that was used and reported, and then unused for a while. Then all nodes are asked at one time. */
static void test_a_burst_on_a_key_left_alone_stays_within_the_limit(void **state)
{
    const weir_algorithm algorithm = *(const weir_algorithm *) *state;
    struct nodes n;
    const weir_limit limit = limit_of(algorithm, LIMIT);
    const weir_policy policy = policy_of(&limit);
    nodes_start_with_new_key(&n, &policy, 1);
    for (int times = 0; times < 3; times++) {
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(ask(&n.node[i], 1), 1);
        }
        pass(&n, INTERVAL_MS);
    }
    agree(&n);
    pass(&n, (STALE_INTERVALS + 2) * INTERVAL_MS);
    const uint64_t before = used_by_all(&n);
    for (int i = 0; i < NODES; i++) {
        assert_in_range(ask(&n.node[i], 1000), LIMIT / NODES - before, LIMIT / NODES);
    }
    ask_all(&n, 2000, a_burst);
    /*
     * Shares are of the limit, whatever was used before. A share of a queue is a whole number of units, rounded down.
     */
    assert_in_range(used_by_all(&n), LIMIT - (algorithm == WEIR_LEAKY_BUCKET ? NODES - 1 : 0), LIMIT + before);
    nodes_stop(&n);
}

static void test_a_request_above_an_equal_share_of_a_key_left_alone_passes_when_it_is_told(void **state)
{
    struct nodes n;
    const weir_limit limit = limit_of(*(const weir_algorithm *) *state, LIMIT);
    const weir_policy policy = policy_of(&limit);
    nodes_start_with_new_key(&n, &policy, 1);
    struct node *node = &n.node[0];
    assert_int_equal(ask(node, 1), 1);
    pass(&n, (STALE_INTERVALS + 2) * INTERVAL_MS);
    agree(&n);
    pass(&n, (STALE_INTERVALS + 2) * INTERVAL_MS);
    uint64_t ms = 0;
    weir_verdict v;
    assert_false(weir_check(node->t, &node->key, LIMIT / 2, &v));
    assert_in_range(v.retry_after_ns, 1, 200 * MILLISECOND);
    for (; ms < INTERVAL_MS && !weir_check(node->t, &node->key, LIMIT / 2, NULL); ms += STEP_MS) {
        pass(&n, STEP_MS);
    }
    assert_in_range(ms, STEP_MS, INTERVAL_MS - STEP_MS);
    nodes_stop(&n);
}

/* So many units pass before a sync is requested. Units of a grant count as well, and pass without a slow check. */
static void asked_for_after(weir_algorithm algorithm, uint64_t most, uint64_t units)
{
    struct nodes n;
    const weir_limit limit = limit_of(algorithm, most);
    const weir_policy policy = policy_of(&limit);
    nodes_start_with_new_key(&n, &policy, 1);
    struct node *node = &n.node[0];
    assert_int_equal(ask(node, units / 2), units / 2);
    pass(&n, 2 * STEP_MS);
    assert_true(goes_by_fraction(node)); /* it can wait for the interval's round */
    assert_int_equal(ask(node, 2 * units), 2 * units);
    pass(&n, 2 * STEP_MS);
    assert_false(goes_by_fraction(node));
    assert_int_equal(fleet_sum(&n), units / 2 + 2 * units);
    nodes_stop(&n);
}

static void test_a_new_key_is_asked_for_when_a_128th_of_its_part_is_used(void **state)
{
    const weir_algorithm algorithm = *(const weir_algorithm *) *state;
    asked_for_after(algorithm, LIMIT, 2);
    asked_for_after(algorithm, 128 * 60 * NODES, 60);
}

static void test_a_quota_that_nobody_has_told_of_has_a_64th_of_its_part(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 64 * LIMIT, .calendar = WEIR_CALENDAR_MONTH};
    weir_policy policy = policy_of(&limit);
    policy.outage_grace_ms = 60000;
    struct nodes n;
    nodes_start_with_new_key(&n, &policy, 1);
    loopback_fleet_set_hung(n.fleet, true);
    for (int i = 0; i < NODES; i++) {
        /* A 64th of a third is rounded down. */
        assert_in_range(ask(&n.node[i], 1000), LIMIT / NODES - 1, LIMIT / NODES);
    }
    const uint64_t used = used_by_all(&n);
    pass(&n, 3000);
    for (int i = 0; i < NODES; i++) {
        assert_true(goes_by_fraction(&n.node[i]));
        assert_int_equal(ask(&n.node[i], 1000), 0);
    }
    loopback_fleet_set_hung(n.fleet, false);
    pass(&n, 1000 + RETURN_MS); /* the rounds under way fail */
    for (int i = 0; i < NODES; i++) {
        assert_false(goes_by_fraction(&n.node[i]));
    }
    agree(&n);
    assert_int_equal(ask_for_long(&n, &n.node[0], 64 * LIMIT), 64 * LIMIT - used);
    assert_int_equal(fleet_sum(&n), 64 * LIMIT);
    nodes_stop(&n);
}

static void test_a_quota_is_asked_for_when_it_is_first_used(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 64 * LIMIT, .calendar = WEIR_CALENDAR_DAY};
    const weir_policy policy = policy_of(&limit);
    struct nodes n;
    nodes_start_with_new_key(&n, &policy, 1);
    assert_int_equal(ask(&n.node[0], 1), 1);
    pass(&n, 2 * STEP_MS);
    assert_false(goes_by_fraction(&n.node[0]));
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_ALL(test_a_burst_on_all_nodes_at_once_stays_within_the_limit, algorithms),
        OVER_ALL(test_a_burst_that_goes_on_stays_within_the_limit, algorithms),
        OVER_ALL(test_one_node_alone_has_the_whole_limit_within_an_interval, algorithms),
        OVER_WINDOWS(test_a_denied_request_waits_for_the_next_answer_or_for_the_limit, algorithms),
        OVER_ONE(test_a_denied_request_waits_for_the_next_answer_or_for_the_limit, "token", algorithms + 2),
        OVER_ONE(test_a_denied_request_waits_for_the_next_answer_or_for_the_limit, "log", algorithms + 4),
        OVER_ALL(test_a_burst_on_a_key_left_alone_stays_within_the_limit, algorithms),
        OVER_ALL(test_a_request_above_an_equal_share_of_a_key_left_alone_passes_when_it_is_told, algorithms),
        OVER_ALL(test_a_new_key_is_asked_for_when_a_128th_of_its_part_is_used, algorithms),
        cmocka_unit_test(test_a_quota_that_nobody_has_told_of_has_a_64th_of_its_part),
        cmocka_unit_test(test_a_quota_is_asked_for_when_it_is_first_used),
    };
    return cmocka_run_group_tests_name("unit/process/allowance", tests, NULL, NULL);
}
