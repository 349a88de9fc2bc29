/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node lets pass without the fleet's news, on the in-memory fleet: the outage modes. The way back is in
 * after_outage_test.c; keys that the fleet has not answered yet are in allowance_test.c.
 *
 * Guards: src/fleet/outage.c, src/process/allowance.c, src/process/fraction.c, src/process/unseen.c
 */
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT 300

static const uint64_t a_burst[NODES] = {1000, 1000, 1000};

/* The outage modes */

/* Takes the fleet away, looks at what each node then admits of a long burst, and brings the fleet back. */
static void in_outage(weir_algorithm algorithm, weir_outage on_outage, const uint64_t expected[NODES], bool before)
{
    struct nodes n;
    const weir_limit limit = limit_of(algorithm, LIMIT);
    weir_policy policy = policy_of(&limit);
    policy.on_outage = on_outage;
    nodes_start(&n, &policy, 1);
    for (int i = 0; before && i < 3; i++) { /* long enough for its demand to be known */
        assert_int_equal(ask(&n.node[0], 20), 20);
        pass(&n, INTERVAL_MS);
    }
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 200);
    assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_FLEET); /* within the grace */
    pass(&n, 600);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 1000), expected[i]);
    }
    const weir_verdict last = look(&n.node[2]);
    assert_int_equal(last.basis, WEIR_BASIS_OUTAGE);
    assert_true(last.fleet_age_ns >= 700 * MILLISECOND);
    assert_int_not_equal(last.retry_after_ns, UINT64_MAX); /* not for ever */
    assert_int_equal(last.allowed, on_outage == WEIR_OUTAGE_OPEN);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, 2000);
    assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_FLEET);
    if (algorithm != WEIR_SLIDING_LOG || used_by_all(&n) <= LIMIT) {
        assert_int_equal(fleet_sum(&n), used_by_all(&n));
    }
    hear(&n);
    if (used_by_all(&n) >= LIMIT && on_outage != WEIR_OUTAGE_OPEN) {
        assert_int_equal(ask(&n.node[0], 10), 0); /* the fleet knows what happened */
    }
    nodes_stop(&n);
}

static void test_each_outage_mode_admits_what_it_promises(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        /* Without any known demand: an equal share. */
        in_outage(algorithms[a], WEIR_OUTAGE_SHARE, (const uint64_t[NODES]){100, 100, 100}, false);
        in_outage(algorithms[a], WEIR_OUTAGE_LOCAL, (const uint64_t[NODES]){300, 300, 300}, false);
        in_outage(algorithms[a], WEIR_OUTAGE_CLOSED, (const uint64_t[NODES]){0, 0, 0}, false);
        if (algorithms[a] != WEIR_SLIDING_LOG) { /* whose room is its own limit */
            in_outage(algorithms[a], WEIR_OUTAGE_OPEN, (const uint64_t[NODES]){1000, 1000, 1000}, false);
        }
    }
    for (size_t a = 0; a < COUNTERS; a++) {
        /* Node 0 alone has asked for the key, and still asks alone. */
        in_outage(algorithms[a], WEIR_OUTAGE_SHARE, (const uint64_t[NODES]){240, 100, 100}, true);
    }
}

/* Two nodes are asked for one key, 9 to 1, until 3,000 of its units are used; then for all units that are left. */
static void nine_to_one(weir_algorithm algorithm, uint64_t most, uint64_t error)
{
    static const uint64_t each[NODES] = {9, 1, 0};
    struct nodes n;
    const weir_limit limit = limit_of(algorithm, most);
    const weir_policy policy = policy_of(&limit);
    nodes_start(&n, &policy, 1);
    ask_all(&n, 3000, each);
    assert_in_range(used_by_all(&n), 2990, 3000);
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 1000);
    assert_int_equal(look(&n.node[0]).basis, WEIR_BASIS_OUTAGE);
    (void) ask(&n.node[0], most);
    (void) ask(&n.node[1], most);
    const uint64_t used = n.node[0].used;
    if (used < most / 10 * 9 - error || used > most / 10 * 9 + error || used_by_all(&n) > most + error) {
        fail_msg("algorithm %d: %d and %d of %d", (int) algorithm, (int) used, (int) n.node[1].used, (int) most);
    }
    nodes_stop(&n);
}

static void test_in_an_outage_each_node_has_its_part_of_the_demand_before(void **state)
{
    (void) state;
    for (size_t a = 0; a < COUNTERS; a++) {
        nine_to_one(algorithms[a], 3300, 3300 / 15);
    }
}

static void test_that_part_holds_of_keys_that_are_told_now_and_then(void **state)
{
    (void) state;
    for (size_t a = 0; a < COUNTERS; a++) {
        /* Reports come in lumps, and the time of the last one depends on the key's place in the table. */
        nine_to_one(algorithms[a], 6000, 6000 / 5);
    }
}

static void test_that_part_holds_of_keys_that_were_told_once(void **state)
{
    (void) state;
    static const uint64_t one[NODES] = {1, 1, 1};
    for (size_t a = 0; a < COUNTERS; a++) {
        struct nodes n;
        const weir_limit limit = limit_of(algorithms[a], LIMIT);
        const weir_policy policy = policy_of(&limit);
        nodes_start_with_new_key(&n, &policy, 1);
        for (int i = 0; i < 10; i++) {
            ask_all(&n, STEP_MS, one);
            pass(&n, 40);
        }
        loopback_fleet_set_down(n.fleet, true);
        pass(&n, 1000);
        ask_all(&n, STEP_MS, a_burst);
        if (used_by_all(&n) > LIMIT + LIMIT / 5) {
            fail_msg("algorithm %d: %d, %d and %d of %d", (int) algorithms[a], (int) n.node[0].used,
                     (int) n.node[1].used, (int) n.node[2].used, LIMIT);
        }
        nodes_stop(&n);
    }
}

static void test_a_long_outage_takes_the_next_mode(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_TOKEN_BUCKET, LIMIT);
    weir_policy policy = policy_of(&limit);
    policy.on_outage = WEIR_OUTAGE_CLOSED;
    policy.on_long_outage = WEIR_OUTAGE_OPEN;
    policy.long_outage_ms = 2000;
    nodes_start(&n, &policy, 1);
    loopback_fleet_set_hung(n.fleet, true);
    pass(&n, 1500);
    assert_int_equal(ask(&n.node[1], 10), 0);
    pass(&n, 2000);
    assert_int_equal(ask(&n.node[1], 1000), 1000);
    loopback_fleet_set_hung(n.fleet, false);
    pass(&n, 3000);
    assert_int_equal(fleet_sum(&n), 1000);
    /* Units that passed in the mode open are no debt of the bucket. */
    assert_int_equal(ask_for_long(&n, &n.node[1], LIMIT), LIMIT);
    nodes_stop(&n);
}

/* Keys without a slot are decided in another way than busy keys. */
static void test_keys_that_are_asked_for_now_and_then_go_by_the_outage_mode(void **state)
{
    (void) state;
    static const weir_outage modes[] = {WEIR_OUTAGE_CLOSED, WEIR_OUTAGE_LOCAL, WEIR_OUTAGE_OPEN};
    for (size_t r = 0; r < sizeof(modes) / sizeof(modes[0]); r++) {
        struct nodes n;
        const weir_limit limit = limit_of(WEIR_TOKEN_BUCKET, 10);
        weir_policy policy = policy_of(&limit);
        policy.on_outage = modes[r];
        nodes_init(&n, &policy, 1);
        node_open(&n, 0, 0); /* alone, its fraction is the whole limit */
        pass(&n, 500);
        assert_int_equal(ask(&n.node[0], 1), 1);
        pass(&n, 500);
        loopback_fleet_set_down(n.fleet, true);
        pass(&n, 2000);
        uint64_t admitted = 0;
        for (int i = 0; i < 20; i++) {
            admitted += ask(&n.node[0], 1);
            pass(&n, STEP_MS); /* a tick */
        }
        assert_in_range(admitted,
                        modes[r] == WEIR_OUTAGE_OPEN    ? 20
                        : modes[r] == WEIR_OUTAGE_LOCAL ? 9
                                                        : 0,
                        modes[r] == WEIR_OUTAGE_OPEN    ? 20
                        : modes[r] == WEIR_OUTAGE_LOCAL ? 11
                                                        : 0);
        nodes_stop(&n);
    }
}

static void test_new_policies_begin_in_the_outage_mode_of_the_old_ones(void **state)
{
    (void) state;
    static const weir_outage modes[] = {WEIR_OUTAGE_CLOSED, WEIR_OUTAGE_OPEN};
    for (size_t r = 0; r < sizeof(modes) / sizeof(modes[0]); r++) {
        struct nodes n;
        const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 10);
        weir_policy policies[] = {policy_of(&limit), policy_of(&limit)};
        policies[0].on_outage = modes[r];
        policies[1].name = "own";
        policies[1].on_outage = modes[r];
        nodes_start(&n, policies, 2);
        struct node *node = &n.node[0];
        loopback_fleet_set_override(n.fleet, "p:other", "5");
        pass(&n, TWO_INTERVALS);
        loopback_fleet_set_down(n.fleet, true);
        pass(&n, 1000);
        const weir_limit other = limit_of(WEIR_FIXED_WINDOW, 20);
        policies[0].limits = policies[1].limits = &other;
        policies[1].scope = WEIR_SCOPE_PROCESS;
        assert_int_equal(weir_set_policies(node->w, policies, 2, NULL), 0);
        weir_verdict verdict;
        const bool open = modes[r] == WEIR_OUTAGE_OPEN;
        assert_int_equal(weir_check(node->t, &node->key, 15, &verdict), open); /* no tick has passed */
        assert_int_equal(verdict.basis, WEIR_BASIS_OUTAGE);
        const weir_key entry = weir_make_key(node->w, node->key.policy, "other", 5);
        assert_int_equal(weir_check(node->t, &entry, 5, &verdict), open);
        assert_int_equal(verdict.basis, WEIR_BASIS_OUTAGE);
        const weir_key own = weir_make_key(node->w, weir_find_policy(node->w, "own"), "key", 3);
        assert_true(weir_check(node->t, &own, 20, NULL));
        assert_false(weir_check(node->t, &own, 1, NULL));
        /* The mode is the new policy's own when time goes on. */
        policies[0].on_outage = WEIR_OUTAGE_LOCAL;
        assert_int_equal(weir_set_policies(node->w, policies, 2, NULL), 0);
        pass(&n, STEP_MS);
        assert_int_equal(ask(node, 30), open ? 5 : 20);
        nodes_stop(&n);
    }
}

/* Two windows */

/* A node with a full sync state of its key, at the beginning of a window of one second. */
struct before {
    struct nodes n;
    weir_limit limit;
    weir_policy policy;
    struct rule rule;
    struct sync_full *sync;
    uint64_t start_ns;
    uint32_t seq;
};

static void before_init(struct before *b, weir_algorithm algorithm)
{
    b->limit = (weir_limit){.algorithm = algorithm, .limit = 1000, .period_ns = SECOND};
    b->policy = patient_policy_of(&b->limit);
    nodes_start(&b->n, &b->policy, 1);
    rcu_enter(b->n.node[0].t);
    const struct policy *policy;
    const uint32_t at = cell_at(&b->n.node[0], &policy);
    b->rule = policy_rule(&policy->limits[0]);
    b->start_ns = window_span_at(&b->rule, b->n.fleet_clock.wall_ns).end_ns;
    b->seq = window_seq_at(&b->rule, b->start_ns);
    b->sync = sync_at(&b->n.node[0].w->limiter.process, at, &b->rule, b->start_ns);
    store_relaxed(&b->sync->allowance.flags, 0);
    store_relaxed(&b->sync->allowance.fraction, 0);
    store_relaxed(&b->sync->allowance.level, 0);
    store_relaxed(&b->sync->allowance.remote_rate, 0);
    store_relaxed(&b->sync->allowance.inspected_ns, b->start_ns); /* no other node used the key lately */
    rcu_leave(b->n.node[0].t);
}

/* Units that may pass `into_ns` into a window without units, when the window before has `previous`. */
static uint64_t left_after(struct before *b, uint64_t into_ns, uint64_t previous)
{
    rcu_enter(b->n.node[0].t);
    const struct policy *policy;
    const uint32_t at = cell_at(&b->n.node[0], &policy);
    const struct state state = window_state(b->seq, 0, previous);
    const uint64_t now_ns = b->start_ns + into_ns;
    const struct allowance_query query = {.outage_mode = allowance_outage_mode(policy),
                                          .rule = &b->rule,
                                          .state = state,
                                          .headroom = rule_headroom(&b->rule, state, now_ns),
                                          .asked = 1,
                                          .now_ns = now_ns,
                                          .cell = at};
    const uint64_t left = allowance_left(&b->n.node[0].w->limiter.process, &query);
    rcu_leave(b->n.node[0].t);
    return left;
}

/* Presumed units of silent nodes slide out of a window as all units do. */
static void test_what_silent_nodes_are_presumed_to_have_used_leaves_with_its_window(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        uint32_t ago; /* windows since the answer */
        uint64_t left;
    } cases[] = {
        {WEIR_SLIDING_WINDOW, 0, 1000 - 200 - 300}, /* 200 in this window, and 3/4 of the 400 in the window before */
        {WEIR_SLIDING_WINDOW, 1, 1000 - 150},       /* the 200 were in the window before */
        {WEIR_SLIDING_WINDOW, 2, 1000},
        {WEIR_FIXED_WINDOW, 0, 1000 - 600},
        {WEIR_FIXED_WINDOW, 1, 1000},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct before b;
        before_init(&b, cases[i].algorithm);
        const bool slides = cases[i].algorithm == WEIR_SLIDING_WINDOW;
        store_relaxed(&b.sync->allowance.seq, (b.seq - cases[i].ago) & WINDOW_SEQ_MASK);
        store_relaxed(&b.sync->allowance.since_ns, b.start_ns);
        store_relaxed(&b.sync->allowance.level, slides ? presumed_pack(1000, 200, 400) : 600);
        assert_int_equal(left_after(&b, SECOND / 4, 0), cases[i].left);
        nodes_stop(&b.n);
    }
}

/* 400 units are known of the window before; the others had one for each local unit. */
static void test_units_of_the_window_before_that_nobody_has_told_of_count(void **state)
{
    (void) state;
    static const struct {
        uint64_t answer_ms; /* before the window's end */
        uint32_t ago;       /* windows since that of the sync state */
        uint64_t rate, seen, remote, left;
    } cases[] = {
        {INTERVAL_MS / 2, 0, 9000, 0, 100, 600}, /* the answer is of this window, or of the last interval before it */
        {2 * INTERVAL_MS, 0, 9000, 0, 100,
         600 - 200}, /* rounds fail: 300 remote units for 300 local ones, and 100 are known */
        {2 * INTERVAL_MS, 0, 9000, 0, 0, 600 - 400},
        {2 * INTERVAL_MS, 0, 500, 0, 100, 600 - 100},  /* no more than the remote demand */
        {INTERVAL_MS / 2, 1, 9000, 150, 0, 600 - 250}, /* 250 came after the answer */
        {1500, 2, 9000, 150, 0, 600 - 400},            /* no unit of that window is acked */
        {500, 2, 300, 0, 0, 600 - 300},                /* for all units of that window */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct before b;
        before_init(&b, WEIR_SLIDING_WINDOW);
        store_relaxed(&b.sync->allowance.seq, (b.seq - cases[i].ago) & WINDOW_SEQ_MASK);
        store_relaxed(&b.sync->allowance.since_ns, b.start_ns - cases[i].answer_ms * MILLISECOND);
        store_relaxed(&b.sync->allowance.seen, cases[i].seen);
        store_relaxed(&b.sync->allowance.remote_rate, cases[i].rate << RATE_BITS);
        store_relaxed(&b.sync->allowance.remote_fraction, (uint32_t) (FRACTION_WHOLE / 2));
        store_relaxed(&b.sync->before.remote, cases[i].remote);
        assert_int_equal(left_after(&b, 0, 400), cases[i].left);
        nodes_stop(&b.n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_outage_mode_admits_what_it_promises),
        cmocka_unit_test(test_in_an_outage_each_node_has_its_part_of_the_demand_before),
        cmocka_unit_test(test_that_part_holds_of_keys_that_are_told_now_and_then),
        cmocka_unit_test(test_that_part_holds_of_keys_that_were_told_once),
        cmocka_unit_test(test_keys_that_are_asked_for_now_and_then_go_by_the_outage_mode),
        cmocka_unit_test(test_a_long_outage_takes_the_next_mode),
        cmocka_unit_test(test_new_policies_begin_in_the_outage_mode_of_the_old_ones),
        cmocka_unit_test(test_what_silent_nodes_are_presumed_to_have_used_leaves_with_its_window),
        cmocka_unit_test(test_units_of_the_window_before_that_nobody_has_told_of_count),
    };
    return cmocka_run_group_tests_name("unit/fleet/outage", tests, NULL, NULL);
}
