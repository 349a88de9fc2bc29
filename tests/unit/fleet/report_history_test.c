/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sliding logs of several nodes. No period has more units than the limit, except for units that no answer can have had
 * yet. The times of remote units are reported again and again, and count once.
 *
 * Guards: src/fleet/keys/report_history.c, src/algorithm/history.c, src/process/history_store.c
 */
#include <errno.h>
#include <inttypes.h>

#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT     300
#define PERIOD_NS (10 * SECOND)
#define PERIOD_MS 10000

static const weir_limit limit_300 = {.algorithm = WEIR_SLIDING_LOG, .limit = LIMIT, .period_ns = PERIOD_NS};
static const weir_limit limit_long = {.algorithm = WEIR_SLIDING_LOG, .limit = 2000, .period_ns = HOUR};

/* A log that has changed is reported each interval. */
static void hear_soon(struct nodes *n)
{
    hear_within(n, TWO_INTERVALS);
}

#define STEPS 3000

static void test_no_period_holds_more_than_the_limit_and_what_an_interval_overshoots(void **state)
{
    (void) state;
    struct nodes n;
    static uint32_t admitted[STEPS];
    const weir_policy policy = patient_policy_of(&limit_300);
    nodes_start(&n, &policy, 1);
    for (size_t step = 0; step < STEPS; step++) {
        admitted[step] = 0;
        for (int i = 0; i < NODES; i++) {
            admitted[step] += (uint32_t) ask(&n.node[i], 1);
        }
        pass(&n, STEP_MS);
    }
    /* The demand of all nodes between two rounds, and in the step that a round takes. */
    const uint32_t overshoot = NODES * (INTERVAL_MS / STEP_MS + 2);
    uint32_t most = 0;
    uint32_t window = 0;
    uint32_t total = 0;
    for (size_t step = 0; step < STEPS; step++) {
        window += admitted[step];
        window -= step >= PERIOD_MS / STEP_MS ? admitted[step - PERIOD_MS / STEP_MS] : 0;
        most = window > most ? window : most;
        total += admitted[step];
    }
    assert_in_range(most, LIMIT, LIMIT + overshoot);
    assert_in_range(total, 3 * LIMIT - 10, 3 * (LIMIT + overshoot)); /* and all of the limit is used */
    assert_true(fleet_sum(&n) <= LIMIT);
    nodes_stop(&n);
}

static void test_units_of_others_leave_the_window_at_their_own_time(void **state)
{
    (void) state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(&limit_300);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask(&n.node[0], 100), 100); /* at 0.5 s */
    pass(&n, 3000);
    assert_int_equal(ask(&n.node[1], 100), 100); /* at 3.5 s */
    pass(&n, TWO_INTERVALS);
    assert_int_equal(ask(&n.node[2], 1), 1); /* at 3.9 s */
    pass(&n, TWO_INTERVALS);
    assert_int_equal(room(&n.node[2]), 99);
    loopback_fleet_set_down(n.fleet, true); /* within the grace the node goes by its last answer */
    assert_int_equal(ask_freely(&n.node[2], 300), 99);
    const weir_verdict v = look(&n.node[2]);
    assert_false(v.allowed);
    assert_in_range(v.retry_after_ns, (PERIOD_MS - 3800 - 10) * MILLISECOND, (PERIOD_MS - 3800 + 1) * MILLISECOND);
    pass(&n, PERIOD_MS - 3800 - 20); /* at 10.48 s */
    assert_int_equal(room(&n.node[2]), 0);
    pass(&n, 40);
    assert_int_equal(room(&n.node[2]), 100);
    pass(&n, 2940); /* at 13.46 s */
    assert_int_equal(room(&n.node[2]), 100);
    pass(&n, 60);
    assert_int_equal(room(&n.node[2]), 200);
    nodes_stop(&n);
}

static void test_a_node_that_joins_late_hears_the_times_of_the_others(void **state)
{
    (void) state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(&limit_300);
    nodes_init(&n, &policy, 1);
    node_open(&n, 0, 0);
    node_open(&n, 1, 0);
    pass(&n, 500);
    assert_int_equal(ask_freely(&n.node[0], 200), 200);
    pass(&n, 2000);
    assert_int_equal(ask(&n.node[1], 99), 99);
    pass(&n, TWO_INTERVALS);
    node_close(&n.node[0]); /* its units stay in the fleet */
    node_open(&n, 2, 0);
    pass(&n, 500);
    assert_int_equal(ask(&n.node[2], 1), 1);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(ask(&n.node[2], 100), 0);
    assert_int_equal(fleet_sum(&n), LIMIT);
    pass(&n, PERIOD_MS - 2000 - 2 * TWO_INTERVALS - 500 + 20); /* since the first units */
    assert_int_equal(ask_freely(&n.node[2], LIMIT), 200);
    nodes_stop(&n);
}

static void test_more_units_than_a_report_holds_are_told_once_each(void **state)
{
    (void) state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(&limit_long);
    nodes_start(&n, &policy, 1);
    loopback_fleet_lose_answers(n.fleet, true);
    assert_int_equal(ask_freely(&n.node[0], 700), 700);
    pass(&n, 300);
    assert_int_equal(ask_freely(&n.node[1], 600), 600);
    pass(&n, 300);
    loopback_fleet_lose_answers(n.fleet, false);
    pass(&n, 1000);
    assert_int_equal(fleet_sum(&n), 1300);
    give_back(&n.node[0], 500);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 800);
    hear_soon(&n);
    hear_soon(&n);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    loopback_fleet_forget(n.fleet);
    pass(&n, 1000);
    hear_soon(&n);
    pass(&n, 1000);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    give_back(&n.node[1], 550);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    for (int i = 0; i < NODES; i++) {
        (void) ask(&n.node[i], 1);
    }
    pass(&n, TWO_INTERVALS);
    for (int i = 0; i < NODES; i++) {
        assert_in_range(room(&n.node[i]), 2000 - used_by_all(&n), 2000 - used_by_all(&n) + 2);
    }
    nodes_stop(&n);
}

/*
 * Each node lets the whole limit pass while it is cut off, so together the nodes have more units than the fleet keeps.
 */
static void overshoot_alone(struct nodes *n, const weir_policy *policy, uint64_t each)
{
    nodes_start(n, policy, 1);
    loopback_fleet_set_hung(n->fleet, true);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask_freely(&n->node[i], each), each);
        pass(n, 100);
    }
    loopback_fleet_set_hung(n->fleet, false);
    pass(n, 2000);
}

static void test_of_more_units_than_the_limit_the_latest_are_kept_and_later_ones_are_told(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 400, .period_ns = PERIOD_NS};
    const weir_policy policy = patient_policy_of(&limit);
    overshoot_alone(&n, &policy, 400);
    assert_int_equal(fleet_sum(&n), 400);
    hear_soon(&n);
    hear_soon(&n);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 10), 0);
    }
    weir_stats before;
    weir_stats after;
    weir_get_stats(n.node[0].w, &before);
    pass(&n, 2000);
    weir_get_stats(n.node[0].w, &after);
    assert_in_range(after.sync_count - before.sync_count, 5, 2000 / INTERVAL_MS + 2); /* no other rounds */
    give_back(&n.node[2], 390);
    pass(&n, TWO_INTERVALS);
    hear_soon(&n);
    assert_int_equal(ask(&n.node[0], 10), 0); /* the units of nodes 0 and 1 still count */
    pass(&n, PERIOD_MS - 2000);               /* all units but the newest are over */
    const uint64_t now = ask_freely(&n.node[0], 300);
    assert_in_range(now, 290, 300);
    pass(&n, TWO_INTERVALS);
    hear_soon(&n);
    assert_in_range(room(&n.node[1]), 400 - 300 - 2 * NODES, 400 - now);
    nodes_stop(&n);
}

static void test_units_given_back_after_an_overshoot_are_no_ghosts(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 400, .period_ns = HOUR};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_start(&n, &policy, 1);
    loopback_fleet_set_hung(n.fleet, true);
    assert_int_equal(ask_freely(&n.node[0], 400), 400);
    pass(&n, 100);
    assert_int_equal(ask(&n.node[1], 50), 50);
    loopback_fleet_set_hung(n.fleet, false);
    pass(&n, 2000);
    hear_soon(&n); /* all nodes deny, with the reason */
    give_back(&n.node[0], 390);
    pass(&n, 1000);
    hear_soon(&n);
    hear_soon(&n);
    pass(&n, 1000);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    nodes_stop(&n);
}

/*
 * A full ring drops its earliest units, and a refund takes those first. The units that the ring keeps get other numbers
 * in the fleet. The fleet must have each of those units with its own time in the same round.
 */
static void test_units_renumbered_by_a_refund_keep_their_times_in_the_fleet(void **state)
{
    (void) state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(&limit_300);
    nodes_start(&n, &policy, 1);
    charge(&n.node[0], 150); /* at 0.5 s */
    pass(&n, 3000);
    charge(&n.node[0], 140); /* at 3.5 s */
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 290);
    charge(&n.node[0], 250);    /* the ring has the last 512 of 540 units: 122 of 0.5 s, 140 of 3.5 s, and these 250 */
    give_back(&n.node[0], 300); /* 28 that the ring dropped, the 250, and the last 22 of 3.5 s */
    pass(&n, INTERVAL_MS);      /* one round */
    assert_int_equal(fleet_sum(&n), 240);
    assert_int_equal(ask(&n.node[1], 1), 1);
    pass(&n, INTERVAL_MS); /* node 1 has an answer */
    assert_int_equal(fleet_sum(&n), 241);
    loopback_fleet_set_down(n.fleet, true); /* within the grace the node goes by its last answer */
    assert_int_equal(room(&n.node[1]), LIMIT - 241);
    pass(&n, PERIOD_MS - 3000 - 2 * TWO_INTERVALS - 20); /* at 10.48 s */
    assert_int_equal(room(&n.node[1]), LIMIT - 241);
    pass(&n, 40);
    assert_int_equal(room(&n.node[1]), LIMIT - 119);
    pass(&n, 2940); /* at 13.46 s */
    assert_int_equal(room(&n.node[1]), LIMIT - 119);
    pass(&n, 60);
    assert_int_equal(room(&n.node[1]), LIMIT - 1);
    nodes_stop(&n);
}

static void test_a_reset_clears_the_units_of_the_same_moment(void **state)
{
    (void) state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(&limit_300);
    nodes_start(&n, &policy, 1);
    pass(&n, TWO_INTERVALS);
    fake_clock_advance(&n.node[0].clock, 123); /* no whole microsecond */
    assert_true(weir_poll(n.node[0].w) >= 0);
    assert_int_equal(ask(&n.node[0], 50), 50);
    assert_int_equal(weir_reset(n.node[0].w, &n.node[0].key), 0);
    assert_int_equal(fleet_sum(&n), 0);
    assert_int_equal(room(&n.node[0]), LIMIT);
    nodes_stop(&n);
}

#define EVENTS 400

/* The units that passed: when, and at which node. */
struct passed {
    uint64_t at_ns, units;
};

/*
 * Each node takes its local units out of the fleet's answer. So no node counts fewer units than the window has. And no
 * node counts more than one group's units too many, of at most 64 groups, however the units are spread over nodes and
 * time.
 */
static void others_are_counted_by_group(uint64_t *rng, uint64_t most, bool loses)
{
    static struct passed passed[EVENTS];
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 20000, .period_ns = PERIOD_NS};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_start(&n, &policy, 1);
    size_t count = 0;
    while (count + 2 * NODES + 3 < EVENTS) {
        for (uint64_t bursts = random_below(rng, 3); bursts != 0; bursts--) {
            const uint64_t units = 1 + random_below(rng, most);
            charge(&n.node[random_below(rng, NODES)], units);
            passed[count++] = (struct passed){n.fleet_clock.wall_ns, units};
            pass(&n, STEP_MS * random_below(rng, 20));
        }
        if (loses && random_below(rng, 10) == 0) {
            loopback_fleet_lose_answers(n.fleet, true); /* so units are reported again */
            pass(&n, 300);
            loopback_fleet_lose_answers(n.fleet, false);
            pass(&n, 1000);
        }
        for (int i = 0; i < 2 * NODES; i++) {
            assert_int_equal(ask(&n.node[i % NODES], 1), 1);
            passed[count++] = (struct passed){n.fleet_clock.wall_ns, 1};
            pass(&n, i % NODES == NODES - 1 ? TWO_INTERVALS + 60 : 0);
        }
        const uint64_t over_ns = n.fleet_clock.wall_ns - PERIOD_NS;
        uint64_t used = 0;
        uint64_t lately = 0;   /* in the window, or out of it so short a time ago that clocks may differ */
        uint64_t answered = 0; /* when the answers were made */
        for (size_t e = 0; e < count; e++) {
            used += passed[e].at_ns > over_ns ? passed[e].units : 0;
            lately += passed[e].at_ns > over_ns - 2 * STEP_MS * MILLISECOND ? passed[e].units : 0;
            answered += passed[e].at_ns > over_ns - SECOND ? passed[e].units : 0;
        }
        for (int i = 0; i < NODES; i++) { /* of each node's last unit the others may have no answer yet */
            assert_in_range(limit.limit - room(&n.node[i]), used - (NODES - 1), lately + answered / HISTORY_GROUPS + 1);
        }
        assert_in_range(fleet_sum(&n), used, used + used_by_all(&n));
    }
    nodes_stop(&n);
}

static void test_others_are_counted_by_group(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int times = 0; times < (SLOWED ? 1 : 3); times++) {
        others_are_counted_by_group(&rng, 2, false);
        others_are_counted_by_group(&rng, 40, false);
        others_are_counted_by_group(&rng, 40, true);
        others_are_counted_by_group(&rng, 240, false);
    }
}

static void test_units_told_again_are_not_taken_for_others(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 20000, .period_ns = PERIOD_NS};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_start(&n, &policy, 1);
    charge(&n.node[1], 2000); /* at 0.5 s */
    pass(&n, 100);
    for (int i = 0; i < 40; i++) { /* to 8.6 s */
        charge(&n.node[0], 200);
        pass(&n, INTERVAL_MS);
    }
    pass(&n, 1400); /* to 10 s */
    assert_int_equal(limit.limit - room(&n.node[0]), 10000);
    loopback_fleet_lose_answers(n.fleet, true);
    charge(&n.node[0], 1);
    pass(&n, 400);
    loopback_fleet_lose_answers(n.fleet, false); /* so all 8001 are reported again, 256 at a time */
    pass(&n, 60);
    loopback_fleet_set_down(n.fleet, true); /* within the grace the node goes by the last answer */
    for (int i = 0; i < 6; i++) {           /* to 10.58 s */
        pass(&n, 20);
        const uint64_t over_ns = START_NS + 500 * MILLISECOND + PERIOD_NS; /* clocks may differ by a step */
        const uint64_t least = 8001 + (n.fleet_clock.wall_ns < over_ns ? 2000 : 0);
        const uint64_t most = 8001 + (n.fleet_clock.wall_ns <= over_ns + 2 * STEP_MS * MILLISECOND ? 2000 : 0);
        assert_in_range(limit.limit - room(&n.node[0]), least - 1, most + most / HISTORY_GROUPS);
    }
    nodes_stop(&n);
}

static void test_logs_go_through_an_outage(void **state)
{
    (void) state;
    struct nodes n;
    weir_policy policy = patient_policy_of(&limit_300);
    policy.outage_grace_ms = 500;
    nodes_start(&n, &policy, 1);
    for (int i = 0; i < 20 * NODES; i++) {
        pass(&n, TWO_INTERVALS / 2 / NODES);
        assert_int_equal(ask(&n.node[i % NODES], 1), 1); /* each node has equal demand, and knows the others' */
    }
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 1000);
    assert_int_equal(look(&n.node[1]).basis, WEIR_BASIS_OUTAGE);
    const uint64_t left = LIMIT - used_by_all(&n);
    uint64_t shared = 0;
    for (int i = 0; i < NODES; i++) {
        const uint64_t share = ask(&n.node[i], LIMIT); /* its fraction of what was left */
        assert_in_range(share, left / NODES - left / 10, left / NODES + left / 10);
        shared += share;
    }
    assert_in_range(shared, left - left / 10, left + left / 10);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, RETURN_MS);
    assert_int_equal(fleet_sum(&n), min_u64(used_by_all(&n), LIMIT)); /* the latest are kept */
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(look(&n.node[i]).basis, WEIR_BASIS_FLEET);
        assert_true(ask(&n.node[i], 1) <= 1);
    }
    pass(&n, TWO_INTERVALS);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 10), 0);
    }
    /* The last of the 60 passed a second before the other units. The 60 leave the window; the other units do not. */
    pass(&n, PERIOD_MS - 500 - RETURN_MS - TWO_INTERVALS);
    const uint64_t room_now = LIMIT + 60 - used_by_all(&n);
    assert_in_range(ask_freely(&n.node[1], LIMIT), room_now - 4, room_now + 1);
    nodes_stop(&n);
}

static void test_tiers_of_different_limits_share_a_log(void **state)
{
    (void) state;
    const weir_limit free_limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 50, .period_ns = HOUR};
    const weir_limit pro_limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 500, .period_ns = HOUR};
    const weir_policy policies[] = {
        {.name = "p/free", .limits = &free_limit, .limit_count = 1, .outage_grace_ms = 60000},
        {.name = "p/pro", .limits = &pro_limit, .limit_count = 1, .outage_grace_ms = 60000},
    };
    struct nodes n;
    nodes_start(&n, policies, 2);
    for (int i = 1; i < NODES; i++) {
        n.node[i].key = weir_make_key(n.node[i].w, weir_find_policy(n.node[i].w, "p/pro"), "key", 3);
    }
    assert_int_equal(ask_freely(&n.node[1], 200), 200);
    pass(&n, TWO_INTERVALS);
    hear_soon(&n);
    assert_int_equal(loopback_fleet_record_count(n.fleet), 1);
    assert_int_equal(fleet_sum(&n), used_by_all(&n)); /* the smaller limit has not cut it short */
    assert_in_range(room(&n.node[2]), 500 - 203, 500 - 201);
    assert_int_equal(ask(&n.node[0], 10), 0);
    nodes_stop(&n);
}

static void test_a_log_with_a_greater_limit_of_its_own_is_not_cut_short(void **state)
{
    (void) state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(&limit_300);
    nodes_start(&n, &policy, 1);
    loopback_fleet_set_override(n.fleet, "p:key", "1000");
    pass(&n, TWO_INTERVALS);
    assert_int_equal(ask_freely(&n.node[0], 700), 700);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 700);
    hear_soon(&n);
    assert_in_range(room(&n.node[1]), 1000 - 703, 1000 - 701);
    nodes_stop(&n);
}

/*
 * A node charges its log, at times far beyond the limit, and gives units back. The fleet stores no more units than the
 * limit. As soon as the node has no more than that, the fleet has exactly those, for as long as they are in the window.
 */
static void charge_and_give_back(uint64_t *rng)
{
    static const uint64_t limits[] = {1, 2, 50, 300, 1000, 2000};
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = limits[random_below(rng, 6)], .period_ns = HOUR};
    const weir_policy policy = patient_policy_of(&limit);
    struct nodes n;
    nodes_start(&n, &policy, 1);
    const struct node *node = &n.node[random_below(rng, NODES)];
    uint64_t used = 0;
    for (int step = 0; step < 20; step++) {
        for (uint64_t calls = random_below(rng, 4); calls > 0; calls--) {
            const uint64_t units = 1 + random_below(rng, 1 + random_below(rng, 2 * limit.limit));
            if (random_below(rng, 2) == 0) {
                weir_charge(node->t, &node->key, units);
                used += units;
            } else {
                weir_refund(node->t, &node->key, units);
                used -= units < used ? units : used;
            }
            pass(&n, random_below(rng, 2) == 0 ? 0 : TWO_INTERVALS);
        }
        assert_int_equal(weir_sync(node->w, 0), -ETIMEDOUT);
        pass(&n, 4000);
        const uint64_t counted = used < limit.limit ? used : limit.limit;
        if (fleet_sum(&n) != counted) {
            fail_msg("step %d, limit %" PRIu64 ": the fleet has %" PRIu64 " of %" PRIu64 " units", step, limit.limit,
                     fleet_sum(&n), used);
        }
    }
    nodes_stop(&n);
}

static void test_what_was_charged_beyond_the_limit_is_given_back_in_the_fleet(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int times = 0; times < (SLOWED ? 10 : 40); times++) {
        charge_and_give_back(&rng);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_period_holds_more_than_the_limit_and_what_an_interval_overshoots),
        cmocka_unit_test(test_units_of_others_leave_the_window_at_their_own_time),
        cmocka_unit_test(test_a_node_that_joins_late_hears_the_times_of_the_others),
        cmocka_unit_test(test_more_units_than_a_report_holds_are_told_once_each),
        cmocka_unit_test(test_of_more_units_than_the_limit_the_latest_are_kept_and_later_ones_are_told),
        cmocka_unit_test(test_units_given_back_after_an_overshoot_are_no_ghosts),
        cmocka_unit_test(test_units_renumbered_by_a_refund_keep_their_times_in_the_fleet),
        cmocka_unit_test(test_a_reset_clears_the_units_of_the_same_moment),
        cmocka_unit_test(test_others_are_counted_by_group),
        cmocka_unit_test(test_units_told_again_are_not_taken_for_others),
        cmocka_unit_test(test_logs_go_through_an_outage),
        cmocka_unit_test(test_tiers_of_different_limits_share_a_log),
        cmocka_unit_test(test_a_log_with_a_greater_limit_of_its_own_is_not_cut_short),
        cmocka_unit_test(test_what_was_charged_beyond_the_limit_is_given_back_in_the_fleet),
    };
    return cmocka_run_group_tests_name("unit/fleet/report_history", tests, NULL, NULL);
}
