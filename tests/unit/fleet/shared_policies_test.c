/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What several nodes share of policies: quotas that outlive a node, tiers, and overrides of single keys; and what a
 * node with a wrong wall clock has counted before it knows fleet time.
 *
 * Guards: src/policy/override_set.c, src/limiter/bucket_origin.c, src/fleet/keys/waive.c, src/fleet/keys/merge.c,
 * src/transport/loopback/loopback.c, src/limiter/key_overrides.c
 */
#include <errno.h>

#include "support/nodes.h"
#include "support/policies.h"

static const weir_limit window_300 = {.algorithm = WEIR_FIXED_WINDOW, .limit = 300, .period_ns = 24 * HOUR};

static weir_key key_of(const struct node *node, const char *policy, const char *bytes)
{
    const weir_policy_id id = weir_find_policy(node->w, policy);
    assert_int_not_equal(id, WEIR_NO_POLICY);
    return weir_make_key(node->w, id, bytes, strlen(bytes));
}

/* Quotas */

static void quota_is_known_to_a_new_node(uint64_t used)
{
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 6400, .calendar = WEIR_CALENDAR_MONTH};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_init(&n, &policy, 1);
    node_open(&n, 0, 0);
    pass(&n, 500);
    (void) ask(&n.node[0], 1);
    pass(&n, TWO_INTERVALS); /* the node knows that no other node has used a unit */
    assert_int_equal(ask(&n.node[0], used - 1), used - 1);
    node_close(&n.node[0]); /* reports what is unreported */
    assert_int_equal(fleet_sum(&n), used);
    pass(&n, 3600 * 10);
    node_open(&n, 1, 0);
    const uint64_t before = ask(&n.node[1], 1000);
    assert_in_range(before, 1, 6400 / 64);
    assert_int_equal(look(&n.node[1]).basis, WEIR_BASIS_PROCESS);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(look(&n.node[1]).basis, WEIR_BASIS_FLEET);
    const uint64_t left = used + before < 6400 ? 6400 - used - before : 0;
    assert_int_equal(room(&n.node[1]), left);
    assert_int_equal(ask_for_long(&n, &n.node[1], 6400), left);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), used + n.node[1].used);
    nodes_stop(&n);
}

static void test_a_node_that_opens_anew_learns_what_of_a_month_is_used(void **state)
{
    (void) state;
    quota_is_known_to_a_new_node(6400);
    quota_is_known_to_a_new_node(3000);
    quota_is_known_to_a_new_node(1);
}

/* Tiers */

static void share_a_record(weir_algorithm algorithm, bool pro_first)
{
    const weir_limit limits[] = {limit_of(algorithm, 100), limit_of(algorithm, 1000)};
    const weir_policy free_tier = {.name = "p/free", .limits = &limits[0], .limit_count = 1, .outage_grace_ms = 60000};
    const weir_policy pro_tier = {.name = "p/pro", .limits = &limits[1], .limit_count = 1, .outage_grace_ms = 60000};
    const weir_policy policies[] = {pro_first ? pro_tier : free_tier, pro_first ? free_tier : pro_tier};
    struct nodes n;
    nodes_start(&n, policies, 2);
    n.node[0].key = key_of(&n.node[0], "p/free", "key");
    n.node[1].key = key_of(&n.node[1], "p/pro", "key");
    n.node[2].key = key_of(&n.node[2], "p/free", "key");
    assert_int_equal(ask_freely(&n.node[0], 60), 60);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(ask(&n.node[1], 1), 1);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(loopback_fleet_record_count(n.fleet),
                     1); /* a refund looks for the window before, and makes none */
    assert_int_equal(room(&n.node[1]), 1000 - 61);
    charge(&n.node[1], 19);
    pass(&n, TWO_INTERVALS);
    hear(&n);
    hear(&n);
    const uint64_t used = used_by_all(&n);
    assert_int_equal(fleet_sum(&n), used);
    agree(&n);
    assert_int_equal(fleet_sum(&n), used);
    assert_int_equal(room(&n.node[0]), 100 - used);
    assert_int_equal(room(&n.node[2]), 100 - used);
    assert_int_equal(room(&n.node[1]), 1000 - used);
    assert_int_equal(weir_reset(n.node[1].w, &n.node[1].key), 0);
    assert_int_equal(fleet_sum(&n), 0);
    pass(&n, STEP_MS);
    n.node[0].used = n.node[1].used = n.node[2].used = 0;
    hear(&n);
    agree(&n);
    assert_int_equal(room(&n.node[0]), 100 - used_by_all(&n));
    nodes_stop(&n);
}

static void test_tiers_of_a_policy_share_a_record(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        share_a_record(algorithms[a], false);
        share_a_record(algorithms[a], true);
    }
}

/* Queues */

static uint64_t wait_of(struct node *node)
{
    uint64_t wait_ns = 0;
    assert_true(weir_reserve(node->t, &node->key, 1, UINT64_MAX, &wait_ns));
    node->used++;
    return wait_ns;
}

static void test_requests_on_all_nodes_stand_in_one_queue(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_LEAKY_BUCKET, .limit = 6, .period_ns = 60 * SECOND, .burst = 10};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_start(&n, &policy, 1);
    for (uint64_t i = 0; i < 4; i++) {
        assert_int_equal(wait_of(&n.node[0]), 10 * i * SECOND);
    }
    pass(&n, TWO_INTERVALS);
    assert_int_equal(wait_of(&n.node[1]), 0); /* no answer has the refund yet */
    pass(&n, TWO_INTERVALS);
    const uint64_t fifth_ns = wait_of(&n.node[1]); /* 5 were before, and 0.8 s have passed */
    assert_in_range(fifth_ns, 48 * SECOND, 50 * SECOND);
    pass(&n, TWO_INTERVALS);
    give_back(&n.node[0], 2); /* two cancel */
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 4);
    const uint64_t now_ns = wait_of(&n.node[0]);
    assert_in_range(now_ns, 38 * SECOND, 40 * SECOND);
    pass(&n, TWO_INTERVALS);
    (void) wait_of(&n.node[1]); /* and gets the answer */
    pass(&n, TWO_INTERVALS);
    assert_in_range(wait_of(&n.node[1]), 56 * SECOND, 58 * SECOND); /* of 6 before it, 2.8 s are over */
    for (int i = 0; i < 2; i++) {
        (void) wait_of(&n.node[1]);
    }
    pass(&n, TWO_INTERVALS);
    hear_within(&n, TWO_INTERVALS); /* node 2 may admit one unit that the queue has no place for */
    uint64_t wait_ns = 0;
    for (int i = 0; i < NODES; i++) {
        while (weir_reserve(n.node[i].t, &n.node[i].key, 1, UINT64_MAX, &wait_ns)) {
            n.node[i].used++;
        }
        pass(&n, TWO_INTERVALS);
        hear_within(&n, TWO_INTERVALS);
    }
    assert_in_range(used_by_all(&n), 10, 10 + NODES);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    nodes_stop(&n);
}

/* Clocks */

static void units_move_with_the_first_reading(weir_algorithm algorithm, int64_t wrong_ns)
{
    struct nodes n;
    const weir_limit limit = {.algorithm = algorithm,
                              .limit = 300,
                              .period_ns = 600 * SECOND,
                              .delay = algorithm == WEIR_LEAKY_BUCKET ? 300 : 0};
    const bool a_bucket = algorithm >= WEIR_TOKEN_BUCKET;
    const weir_policy policy = patient_policy_of(&limit);
    nodes_init(&n, &policy, 1);
    for (int i = 0; i < NODES; i++) {
        node_open(&n, i, i == 1 ? wrong_ns : 0);
        assert_int_equal(ask(&n.node[i], 50), 50); /* before the node knows fleet time */
        give_back(&n.node[i], 20);
        charge(&n.node[i], 5);
    }
    pass(&n, 1000);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    assert_int_equal(used_by_all(&n), 3 * 35);
    hear_within(&n, TWO_INTERVALS);
    hear_within(&n, TWO_INTERVALS);
    agree(&n);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    for (int i = 0; i < NODES; i++) { /* a bucket refills one every two seconds */
        assert_in_range(room(&n.node[i]), 300 - used_by_all(&n), 300 - used_by_all(&n) + (a_bucket ? 1 : 0));
    }
    give_back(&n.node[1], 30); /* of the units that it admitted by the wrong clock */
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    nodes_stop(&n);
}

/* The node refunds its units while a round is under way. */
static void back_during_a_round(struct nodes *n)
{
    struct node *node = &n->node[0];
    while (!node->w->fleet->schedule.under_way) {
        fake_clock_advance(&n->fleet_clock, STEP_MS * MILLISECOND);
        fake_clock_advance(&node->clock, STEP_MS * MILLISECOND);
        assert_true(weir_poll(node->w) >= 0);
    }
    give_back(node, 20);
    assert_true(weir_poll(node->w) >= 0); /* the answer */
}

/* Before its full sync state is taken. */
static void refund_before_demotion(struct nodes *n)
{
    give_back(&n->node[0], 20);
    pass(n, TWO_INTERVALS);
    sync_states_demote(n->node[0].w);
}

/*
 * What a node has seen of a queue is as of one time. Refunds before that time are in it, and are not taken off again.
 * This matters when the fleet has lost the queue.
 */
static void taken_off_once(void (*gives_back)(struct nodes *n))
{
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_LEAKY_BUCKET, 300);
    const weir_policy policy = patient_policy_of(&limit);
    nodes_init(&n, &policy, 1);
    n.max_keys = 20000; /* with fewer full sync states than cells: see sync_state.h */
    nodes_meet(&n);
    for (int i = 0; i < 20; i++) {
        (void) ask(&n.node[0], 2);
        (void) ask(&n.node[1], 2);
        pass(&n, INTERVAL_MS / 2);
    }
    charge(&n.node[0], 40);
    gives_back(&n);
    loopback_fleet_forget(n.fleet);
    pass(&n, RESYNC_MS);
    agree(&n);
    /* Units refill, and times in reports are rounded. */
    const uint64_t used = used_by_all(&n);
    assert_in_range(room(&n.node[0]), 300 - used, 300 - used + 1);
    nodes_stop(&n);
}

static void test_what_a_queue_is_given_back_is_taken_off_once(void **state)
{
    (void) state;
    taken_off_once(back_during_a_round);
    taken_off_once(refund_before_demotion);
}

static void test_what_a_wrong_clock_has_counted_moves_with_the_first_reading_of_the_fleets(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        units_move_with_the_first_reading(algorithms[a], 3600 * (int64_t) SECOND);
        units_move_with_the_first_reading(algorithms[a], -3600 * (int64_t) SECOND);
    }
}

static void reset_an_hour_ahead(weir_algorithm algorithm)
{
    struct nodes n;
    const weir_limit limit = {
        .algorithm = algorithm, .limit = 300, .period_ns = 2 * HOUR, .delay = algorithm == WEIR_LEAKY_BUCKET ? 300 : 0};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_init(&n, &policy, 1);
    for (int i = 0; i < NODES; i++) {
        node_open(&n, i, i == 1 ? 3600 * (int64_t) SECOND : 0);
    }
    assert_int_equal(ask(&n.node[1], 50), 50);
    assert_int_equal(weir_reset(n.node[1].w, &n.node[1].key), -ENOTCONN);
    n.node[1].used = 0;
    pass(&n, 1000);
    assert_int_equal(fleet_sum(&n), 0);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 20), 20);
    }
    pass(&n, TWO_INTERVALS);
    hear_within(&n, TWO_INTERVALS);
    agree(&n);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    pass(&n, STEP_MS);
    assert_int_equal(weir_reset(n.node[1].w, &n.node[1].key), 0); /* later, but by the wrong clock earlier */
    assert_int_equal(fleet_sum(&n), 0);
    nodes_stop(&n);
}

static void test_a_reset_of_counts_by_a_wrong_clock_is_one_of_its_moment(void **state)
{
    (void) state;
    reset_an_hour_ahead(WEIR_FIXED_WINDOW);
    reset_an_hour_ahead(WEIR_SLIDING_WINDOW);
    reset_an_hour_ahead(WEIR_TOKEN_BUCKET);
    reset_an_hour_ahead(WEIR_LEAKY_BUCKET);
}

static void test_a_reset_of_a_log_by_a_wrong_clock_is_one_of_its_moment(void **state)
{
    (void) state;
    reset_an_hour_ahead(WEIR_SLIDING_LOG);
}

/* Overrides of single keys */

static void expect_limit(struct nodes *n, uint64_t limit)
{
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(look(&n->node[i]).limit, limit);
    }
}

static void test_an_entry_is_in_force_on_every_node_within_two_intervals(void **state)
{
    (void) state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(&window_300);
    nodes_start(&n, &policy, 1);
    expect_limit(&n, 300);
    loopback_fleet_set_override(n.fleet, "p:key", "200");
    pass(&n, TWO_INTERVALS);
    expect_limit(&n, 200);
    for (int i = 0; i < NODES; i++) {
        weir_stats stats;
        weir_get_stats(n.node[i].w, &stats);
        assert_int_equal(stats.override_count, 1);
    }
    assert_int_equal(ask_freely(&n.node[0], 500), 200);
    pass(&n, TWO_INTERVALS);
    hear(&n);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 10), 0);
    }
    const weir_key other = key_of(&n.node[0], "p", "other");
    weir_verdict v;
    assert_true(weir_check(n.node[0].t, &other, 1, &v));
    assert_int_equal(v.limit, 300);
    loopback_fleet_set_override(n.fleet, "p:key", NULL);
    pass(&n, TWO_INTERVALS);
    expect_limit(&n, 300);
    agree(&n);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(room(&n.node[i]), 300 - used_by_all(&n)); /* used units still count */
    }
    nodes_stop(&n);
}

static void test_entries_allow_and_deny(void **state)
{
    (void) state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(&window_300);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask_freely(&n.node[0], 400), 300);
    pass(&n, TWO_INTERVALS);
    loopback_fleet_set_override(n.fleet, "p:key", "allow");
    pass(&n, TWO_INTERVALS);
    for (int i = 0; i < NODES; i++) {
        weir_verdict v;
        for (int times = 0; times < 1000; times++) {
            assert_true(weir_check(n.node[i].t, &n.node[i].key, 5, &v));
        }
        assert_true(look(&n.node[i]).allowed);
    }
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 300); /* and no unit counts */
    loopback_fleet_set_override(n.fleet, "p:key", "deny");
    pass(&n, TWO_INTERVALS);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 10), 0);
        assert_int_equal(look(&n.node[i]).retry_after_ns, UINT64_MAX);
    }
    loopback_fleet_set_override(n.fleet, "p:key", "deny "); /* malformed: as without an override */
    pass(&n, TWO_INTERVALS);
    assert_true(ask(&n.node[1], 1) <= 1);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(look(&n.node[1]).limit, 300);
    assert_int_equal(ask(&n.node[1], 10), 0);
    nodes_stop(&n);
}

static void test_an_entry_has_a_number_for_each_limit_and_a_burst_where_wanted(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limits[] = {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = HOUR, .burst = 5},
                                 {.algorithm = WEIR_FIXED_WINDOW, .limit = 80, .period_ns = 24 * HOUR}};
    weir_policy policy = patient_policy_of(limits);
    policy.limit_count = 2;
    nodes_start(&n, &policy, 1);
    loopback_fleet_set_override(n.fleet, "p:a key%7b%25%00%ff", "200/50 10000");
    loopback_fleet_set_override(n.fleet, "p:two", "200/500 120");
    pass(&n, TWO_INTERVALS);
    for (int i = 0; i < NODES; i++) {
        struct node *node = &n.node[i];
        /* "a key" with a space, a brace, a percent sign, a zero and a byte above ASCII. */
        node->key = weir_make_key(node->w, weir_find_policy(node->w, "p"), "a key{%\0\xff", 9);
        assert_int_equal(look(node).limit, 50);
        assert_int_equal(ask(node, 1), 1);
        node->key = weir_make_key(node->w, weir_find_policy(node->w, "p"), "a key{%", 7);
        assert_int_equal(look(node).limit, 5);
    }
    struct node *node = &n.node[0];
    node->key = key_of(node, "p", "two");
    assert_int_equal(ask(node, 500), 40); /* its equal share, until the fleet has answered of the key */
    pass(&n, TWO_INTERVALS);
    assert_int_equal(ask_freely(node, 500), 80);
    assert_int_equal(look(node).limit_index, 1);
    nodes_stop(&n);
}

static void test_malformed_entries_are_logged_and_the_others_hold(void **state)
{
    (void) state;
    static const char *const bad[][2] = {
        {"p:a", ""},
        {"p:b", "0"},
        {"p:c", "-5"},
        {"p:d", "10 20"},
        {"p:e", "many"},
        {"p:f", "5/"},
        {"p:g", "10x"},
        {"p:h", "5000000000000"},
        {"p:%4", "10"},
        {"p:%zz", "10"},
        {"nothing", "10"},
        {":key", "10"},
        {"p:i", "10/20"},
        {"p:j", "ALLOW"},
        {"p:k", "18446744073709551617"},
    };
    struct nodes n;
    const weir_policy policy = patient_policy_of(&window_300);
    nodes_start(&n, &policy, 1);
    loopback_fleet_set_override(n.fleet, "p:key", "77");
    loopback_fleet_set_override(n.fleet, "elsewhere:key", "10"); /* of a policy that this node lacks: no error */
    pass(&n, TWO_INTERVALS);
    assert_int_equal(n.node[0].error_lines, 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const size_t before = n.node[0].error_lines;
        loopback_fleet_set_override(n.fleet, bad[i][0], bad[i][1]);
        pass(&n, TWO_INTERVALS);
        if (n.node[0].error_lines != before + 1 || strstr(n.node[0].error, bad[i][0]) == NULL) {
            fail_msg("\"%s\" with \"%s\" was not refused: %s", bad[i][0], bad[i][1], n.node[0].error);
        }
        expect_limit(&n, 77);
        loopback_fleet_set_override(n.fleet, bad[i][0], NULL);
        pass(&n, TWO_INTERVALS);
        assert_int_equal(n.node[0].error_lines, before + 1); /* not again */
    }
    nodes_stop(&n);
}

static void test_policies_are_reloaded_while_entries_are_in_force(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit more = {.algorithm = WEIR_FIXED_WINDOW, .limit = 500, .period_ns = 24 * HOUR};
    const weir_policy policy = patient_policy_of(&window_300);
    const weir_policy reloaded[] = {patient_policy_of(&more), {.name = "q", .limits = &window_300, .limit_count = 1}};
    nodes_start(&n, &policy, 1);
    loopback_fleet_set_override(n.fleet, "p:key", "200");
    loopback_fleet_set_override(n.fleet, "q:key", "deny");
    pass(&n, TWO_INTERVALS);
    assert_int_equal(ask(&n.node[0], 50), 50);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(weir_set_policies(n.node[i].w, reloaded, 2, NULL), 0);
    }
    expect_limit(&n, 200); /* at once */
    for (int i = 0; i < NODES; i++) {
        const weir_key denied = key_of(&n.node[i], "q", "key");
        assert_false(weir_check(n.node[i].t, &denied, 1, NULL));
    }
    assert_int_equal(ask_freely(&n.node[0], 500), 150);
    loopback_fleet_set_override(n.fleet, "p:key", NULL);
    pass(&n, TWO_INTERVALS);
    expect_limit(&n, 500);
    /* The overrides of a policy go with the policy, and come back with it. */
    assert_int_equal(weir_set_policies(n.node[0].w, &policy, 1, NULL), 0);
    weir_stats stats;
    weir_get_stats(n.node[0].w, &stats);
    assert_int_equal(stats.override_count, 0);
    assert_int_equal(weir_set_policies(n.node[0].w, reloaded, 2, NULL), 0);
    const weir_key denied = key_of(&n.node[0], "q", "key");
    assert_false(weir_check(n.node[0].t, &denied, 1, NULL));
    nodes_stop(&n);
}

/* Brings the overrides to one node while no time passes: its round begins before the call, and is answered after it. */
static void set_override_at_once(struct nodes *n, struct node *node, const char *value)
{
    fake_clock_advance(&node->clock, INTERVAL_MS * MILLISECOND);
    assert_true(weir_poll(node->w) >= 0);
    (void) ask_freely(node, 20); /* a grant, or a denial, is live */
    loopback_fleet_set_override(n->fleet, "p:key", value);
    assert_true(weir_poll(node->w) >= 0);
    know_all(node); /* whatever the override of the key itself was */
}

static void test_entries_hold_at_once_for_keys_with_grants_and_remembered_denials(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(algorithms[a], 300);
        const weir_policy policy = patient_policy_of(&limit);
        nodes_start(&n, &policy, 1);
        struct node *node = &n.node[0];
        set_override_at_once(&n, node, "25");
        assert_int_equal(ask(node, 100), 5);  /* 20 before, without the rest of the grant */
        set_override_at_once(&n, node, "40"); /* denied, and the slot has the denial */
        assert_int_equal(node->used, 25);
        assert_int_equal(ask(node, 100), 15);
        set_override_at_once(&n, node, "deny");
        assert_int_equal(ask(node, 10), 0);
        set_override_at_once(&n, node, NULL);
        assert_int_equal(ask(node, 10), 10);
        set_override_at_once(&n, node, "deny");
        assert_int_equal(ask(node, 10), 0);
        nodes_stop(&n);
    }
}

static void test_entries_stay_in_force_through_an_outage(void **state)
{
    (void) state;
    struct nodes n;
    weir_policy policy = patient_policy_of(&window_300);
    policy.outage_grace_ms = 500;
    nodes_start(&n, &policy, 1);
    loopback_fleet_set_override(n.fleet, "p:key", "30");
    loopback_fleet_set_override(n.fleet, "p:never", "deny");
    pass(&n, TWO_INTERVALS);
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 1000);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 100), 10); /* its equal share of the override's limit */
        assert_int_equal(look(&n.node[i]).basis, WEIR_BASIS_OUTAGE);
        const weir_key never = key_of(&n.node[i], "p", "never");
        assert_false(weir_check(n.node[i].t, &never, 1, NULL));
    }
    loopback_fleet_forget(n.fleet); /* overrides in Redis belong to the operator, and stay */
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, 1000);
    expect_limit(&n, 30);
    assert_int_equal(fleet_sum(&n), 30);
    assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_FLEET);
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_node_that_opens_anew_learns_what_of_a_month_is_used),
        cmocka_unit_test(test_tiers_of_a_policy_share_a_record),
        cmocka_unit_test(test_requests_on_all_nodes_stand_in_one_queue),
        cmocka_unit_test(test_what_a_queue_is_given_back_is_taken_off_once),
        cmocka_unit_test(test_what_a_wrong_clock_has_counted_moves_with_the_first_reading_of_the_fleets),
        cmocka_unit_test(test_a_reset_of_counts_by_a_wrong_clock_is_one_of_its_moment),
        cmocka_unit_test(test_a_reset_of_a_log_by_a_wrong_clock_is_one_of_its_moment),
        cmocka_unit_test(test_an_entry_is_in_force_on_every_node_within_two_intervals),
        cmocka_unit_test(test_entries_allow_and_deny),
        cmocka_unit_test(test_an_entry_has_a_number_for_each_limit_and_a_burst_where_wanted),
        cmocka_unit_test(test_malformed_entries_are_logged_and_the_others_hold),
        cmocka_unit_test(test_policies_are_reloaded_while_entries_are_in_force),
        cmocka_unit_test(test_entries_hold_at_once_for_keys_with_grants_and_remembered_denials),
        cmocka_unit_test(test_entries_stay_in_force_through_an_outage),
    };
    return cmocka_run_group_tests_name("unit/fleet/shared_policies", tests, NULL, NULL);
}
