/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node learns of a key's demand between answers: from denials, from late requests, and from nodes that fall
 * silent.
 *
 * Guards: src/fleet/keys/demand.c, src/fleet/keys/demand_learn.c, src/fleet/keys/presumed.c, src/process/allowance.c,
 * src/check/slot_learn.c
 */
#include "algorithm/estimate.h"
#include "algorithm/window.h"
#include "fleet/keys/demand.h"
#include "support/nodes.h"
#include "support/policies.h"
#include "transport/loopback/loopback_transport.h"

#define LOOK_NS   (INTERVAL_MS * MILLISECOND)
#define NOW_NS    (1000 * SECOND)
#define PERIOD_NS (500 * MILLISECOND)

/* A full sync state that was inspected `ago_ns` before NOW_NS. */
struct looked {
    struct limiter limiter;
    struct fleet fleet;
    struct sync_full sync;
};

static struct looked *looked_at(uint64_t ago_ns)
{
    static struct looked l;
    memset(&l, 0, sizeof(l));
    l.limiter.process.interval_ns = LOOK_NS;
    l.fleet.limiter = &l.limiter;
    l.fleet.process = &l.limiter.process;
    l.fleet.gather.before_ns = NOW_NS - ago_ns;
    store_relaxed(&l.sync.allowance.inspected_ns, NOW_NS - ago_ns);
    demand_begin(&l.sync);
    return &l;
}

static void test_what_an_outage_denied_is_told_of_the_window_before_as_well(void **state)
{
    (void) state;
    static const struct {
        uint64_t ago_ms, into_ms, now, before;
    } cases[] = {
        {1000, 200, 200, 500}, /* the window before lasted for 500 ms of that second */
        {400, 100, 250, 750},  /* the window began before the last inspection */
        {400, 500, 1000, 0},   /* all units were in this window */
        {200, 50, 1000, 0},    /* an interval is no outage */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct looked *l = looked_at(cases[i].ago_ms * MILLISECOND);
        store_relaxed(&l->sync.denied, 1000);
        assert_int_equal(demand_denied(&l->fleet, &l->sync, cases[i].into_ms * MILLISECOND, PERIOD_NS, NOW_NS), 1000);
        assert_int_equal(l->sync.now.demand, cases[i].now);
        assert_int_equal(l->sync.before.demand, cases[i].before);
    }
}

/* Inspects the sync state again, `after_ns` later, after `denied` units were denied. */
static uint64_t recent_rate(struct looked *l, uint64_t *now_ns, uint64_t after_ns, uint64_t denied)
{
    demand_begin(&l->sync);
    l->fleet.gather.before_ns = *now_ns;
    *now_ns += after_ns;
    store_relaxed(&l->sync.denied, denied);
    (void) demand_denied(&l->fleet, &l->sync, UINT64_MAX, 0, *now_ns);
    return l->sync.demand.recent_rate;
}

static void test_a_look_at_a_few_units_leaves_the_recent_rate_for_an_interval(void **state)
{
    (void) state;
    struct looked *l = looked_at(LOOK_NS);
    uint64_t now_ns = NOW_NS - LOOK_NS;
    const uint64_t rate = estimate_rate(140, LOOK_NS); /* 700 a second */
    assert_int_equal(recent_rate(l, &now_ns, LOOK_NS, 140), rate);
    for (int i = 0; i < INTERVAL_MS / STEP_MS - 1; i++) {
        assert_int_equal(recent_rate(l, &now_ns, STEP_MS * MILLISECOND, 7), rate);
    }
    assert_int_equal(recent_rate(l, &now_ns, STEP_MS * MILLISECOND, 7), 0); /* an interval with fewer units is news */
    assert_int_equal(recent_rate(l, &now_ns, LOOK_NS, 280), estimate_rate(280, LOOK_NS));
}

/* The remote demand as node 0 has learned it, in units a second. */
static uint64_t others_demand(struct nodes *n)
{
    const struct process *process = &n->node[0].w->limiter.process;
    const struct sync_full *sync = sync_of(&process->syncs, cell_of(&n->node[0]));
    assert_non_null(sync);
    return sync->demand.rates.remote_rate >> RATE_BITS;
}

static void test_the_part_of_a_node_that_fell_silent_becomes_free(void **state)
{
    (void) state;
    static const weir_algorithm kinds[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_SLIDING_LOG, WEIR_TOKEN_BUCKET};
    for (size_t a = 0; a < sizeof(kinds) / sizeof(kinds[0]); a++) {
        const weir_limit limit = {.algorithm = kinds[a], .limit = 1000, .period_ns = SECOND};
        const weir_policy policy = patient_policy_of(&limit);
        struct nodes n;
        nodes_init(&n, &policy, 1);
        /* Nodes report at different times: each has an answer from all between two of its rounds. */
        for (int i = 0; i < NODES; i++) {
            node_open(&n, i, 0);
            pass(&n, 70);
        }
        pass(&n, 500);
        ask_all(&n, 5000, (const uint64_t[NODES]){10, 10, 10});
        assert_in_range(others_demand(&n), 1850, 2050);
        /* That node reports for the last time, then an interval without a request. Node 0 gets both in its answers. */
        ask_all(&n, 5 * INTERVAL_MS / 2, (const uint64_t[NODES]){10, 10, 0});
        if (kinds[a] == WEIR_TOKEN_BUCKET) {
            /* A bucket loses none of the units that are left to that node. */
            assert_in_range(others_demand(&n), 1150, 1850);
        } else if (kinds[a] == WEIR_FIXED_WINDOW) {
            /* A fixed window learns a fall with the second answer, and then half of the rest with each. */
            assert_in_range(others_demand(&n), 1050, 1500);
            ask_all(&n, 3 * INTERVAL_MS, (const uint64_t[NODES]){10, 10, 0});
        }
        if (kinds[a] != WEIR_TOKEN_BUCKET) {
            assert_in_range(others_demand(&n), 950, 1050);
        }
        nodes_stop(&n);
    }
}

/*
 * Node 0 answers most of its denials without asking. As the requests are counted, it keeps its part of a limit that
 * three nodes ask for alike.
 */
static void test_denials_that_a_caller_counts_are_demand(void **state)
{
    (void) state;
    for (int counted = 0; counted < 2; counted++) {
        const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = SECOND};
        const weir_policy policy = patient_policy_of(&limit);
        struct nodes n;
        nodes_start(&n, &policy, 1);
        ask_all(&n, 3000, (const uint64_t[NODES]){20, 20, 20});
        uint64_t passed[NODES] = {0, 0, 0};
        for (unsigned ms = 0; ms < 6000; ms += STEP_MS) {
            const uint64_t asked = ms < 3000 ? 20 : 5;
            passed[0] += ask(&n.node[0], asked);
            if (counted == 1) {
                weir_count_denied(n.node[0].t, &n.node[0].key, 20 - asked, 20 - asked);
            }
            for (int i = 1; i < NODES; i++) {
                passed[i] += ask(&n.node[i], 20);
            }
            pass(&n, STEP_MS);
            if (ms + STEP_MS == 3000) {
                memset(passed, 0, sizeof(passed));
            }
        }
        const uint64_t all = passed[0] + passed[1] + passed[2];
        assert_in_range(all, 2900, 3100);
        /* A third, where the node's whole demand is known. */
        assert_in_range(passed[0], counted == 1 ? 930 : 0, counted == 1 ? 1070 : 700);
        nodes_stop(&n);
    }
}

/* A policy has two limits, and one of them denies: both are demanded, as a request that passes would use both. */
static void test_what_is_denied_is_demand_of_each_limit(void **state)
{
    (void) state;
    const weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 5, .period_ns = HOUR},
                                 {.algorithm = WEIR_TOKEN_BUCKET, .limit = 1000, .period_ns = HOUR}};
    const weir_policy policy = {.name = "p", .limits = limits, .limit_count = 2};
    struct nodes n;
    nodes_start(&n, &policy, 1);
    struct node *node = &n.node[0];
    assert_int_equal(ask(node, 5), 5);
    pass(&n, SCAN_MS);
    assert_int_equal(ask(node, 30), 0);
    weir_count_denied(node->t, &node->key, 10, 10); /* requests that the caller has denied itself */
    pass(&n, SCAN_MS);
    const struct process *process = &node->w->limiter.process;
    rcu_enter(node->t);
    const struct policy *compiled = check_policy(process, process_policies(process), &node->key);
    assert_non_null(compiled);
    for (size_t i = 0; i < 2; i++) {
        const uint32_t at = table_find(&process->table, cell_hash(compiled, &node->key, i));
        assert_int_not_equal(at, TABLE_NONE);
        const struct sync_full *sync = sync_of(&process->syncs, at);
        assert_non_null(sync);
        assert_int_equal(sync->now.demand, 45); /* the 5 that passed, and the 40 that did not */
    }
    rcu_leave(node->t);
    nodes_stop(&n);
}

/* Two of three nodes are cut off. What is left to them may be had after an answer, and not a nanosecond later. */
static void test_the_held_share_of_silent_nodes_is_waited_for(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 1000, .period_ns = SECOND};
    const weir_policy policy = patient_policy_of(&limit);
    struct nodes n;
    nodes_start(&n, &policy, 1);
    ask_all(&n, 3000, (const uint64_t[NODES]){10, 10, 10});
    for (int i = 1; i < NODES; i++) {
        loopback_transport_set_cut(n.node[i].w->fleet->transport, true);
    }
    ask_all(&n, 2000, (const uint64_t[NODES]){10, 10, 10});
    const struct sync_full *sync = sync_of(&n.node[0].w->limiter.process.syncs, cell_of(&n.node[0]));
    assert_true((load_relaxed(&sync->allowance.level) & PRESUMED_HELD) != 0);
    assert_int_equal(load_relaxed(&sync->allowance.remote_rate), 0);
    unsigned denied = 0;
    for (unsigned ms = 0; ms < SECOND / MILLISECOND; ms += STEP_MS) {
        (void) ask(&n.node[0], 10);
        const weir_verdict v = look(&n.node[0]);
        denied += !v.allowed;
        assert_true(v.allowed || v.retry_after_ns > 1);
        pass(&n, STEP_MS);
    }
    assert_int_not_equal(denied, 0);
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_an_outage_denied_is_told_of_the_window_before_as_well),
        cmocka_unit_test(test_a_look_at_a_few_units_leaves_the_recent_rate_for_an_interval),
        cmocka_unit_test(test_the_part_of_a_node_that_fell_silent_becomes_free),
        cmocka_unit_test(test_denials_that_a_caller_counts_are_demand),
        cmocka_unit_test(test_what_is_denied_is_demand_of_each_limit),
        cmocka_unit_test(test_the_held_share_of_silent_nodes_is_waited_for),
    };
    return cmocka_run_group_tests_name("unit/fleet/demand", tests, NULL, NULL);
}
