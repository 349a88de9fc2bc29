/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which nodes there are: what a round says, and what the node makes of it. Nodes with intervals of their own, and
 * nodes that crash again and again.
 *
 * Guards: src/fleet/membership.c
 */
#include "fleet/membership.h"
#include "support/nodes.h"
#include "support/policies.h"

#define INTERVAL_NS (200 * MILLISECOND)
#define TIMEOUT_NS  (1000 * MILLISECOND)
#define AWAIT_NS    (TRANSPORT_BACKOFF_MOST_MS * MILLISECOND + TIMEOUT_NS + 2 * INTERVAL_NS)
#define T0          (UINT64_C(1000) * SECOND)

static void test_until_anybody_is_heard_there_are_as_many_as_expected(void **state)
{
    (void) state;
    struct membership m;
    membership_open(&m, 0, INTERVAL_NS, TIMEOUT_NS);
    assert_int_equal(membership_nodes(&m), 1);
    assert_false(membership_awaits(&m, T0));
    membership_open(&m, 5, INTERVAL_NS, TIMEOUT_NS);
    assert_int_equal(membership_nodes(&m), 5);
    assert_int_equal(m.watermark_ns, 0);
    membership_heard(&m, 3, 0, 77, T0); /* from now on the number is that of the rounds */
    assert_int_equal(membership_nodes(&m), 3);
    assert_int_equal(m.watermark_ns, 77);
    assert_false(m.failed);
    membership_heard(&m, 8, 1, 78, T0 + 1);
    assert_int_equal(membership_nodes(&m), 9);
    assert_int_equal(m.watermark_ns, 78);
}

static void test_a_suspect_counts_until_it_has_failed(void **state)
{
    (void) state;
    struct membership m;
    membership_open(&m, 0, INTERVAL_NS, TIMEOUT_NS);
    membership_heard(&m, 4, 0, 100, T0);
    membership_heard(&m, 3, 1, 90, T0 + 1);
    assert_int_equal(membership_nodes(&m), 4);
    assert_false(m.failed);
    membership_heard(&m, 3, 0, 101, T0 + 2); /* the lifetime of a node is over */
    assert_int_equal(membership_nodes(&m), 3);
    assert_true(m.failed);
    membership_heard(&m, 3, 0, 102, T0 + 3); /* the last change still counts */
    assert_true(m.failed);
    membership_heard(&m, 4, 0, 103, T0 + 4); /* until another node comes, or a node is suspect */
    assert_false(m.failed);
    membership_heard(&m, 3, 0, 104, T0 + 5);
    assert_true(m.failed);
    membership_heard(&m, 2, 1, 104, T0 + 6);
    assert_false(m.failed);
}

static void test_those_who_were_there_are_awaited_and_have_an_interval_to_tell(void **state)
{
    (void) state;
    struct membership m;
    membership_open(&m, 0, INTERVAL_NS, TIMEOUT_NS);
    membership_heard(&m, 4, 1, 100, T0);
    membership_await(&m, 0, T0 + 1);
    assert_true(membership_awaits(&m, T0 + 1));
    assert_int_equal(membership_nodes(&m), 5);
    membership_heard(&m, 1, 0, 200, T0 + 2); /* the first node that is back is not the whole fleet */
    assert_true(membership_awaits(&m, T0 + 2));
    assert_int_equal(membership_nodes(&m), 5);
    assert_int_equal(m.watermark_ns, 100);   /* the watermark stands still */
    membership_heard(&m, 4, 1, 201, T0 + 3); /* a suspect node is not back */
    assert_int_equal(m.complete_ns, 0);
    membership_heard(&m, 5, 0, 202, T0 + 4);
    assert_true(membership_complete(&m));
    assert_true(membership_awaits(&m, T0 + 4 + 2 * INTERVAL_NS - 1));
    assert_int_equal(m.watermark_ns, 100);
    assert_int_equal(m.spoken_ns, 202);
    membership_heard(&m, 4, 0, 203, T0 + 5); /* a node is gone again: the wait begins anew */
    membership_heard(&m, 6, 0, 204, T0 + 6);
    assert_int_equal(membership_nodes(&m), 6); /* more nodes than before */
    /*
     * All nodes know that all are there before any node reports what it held back, and there is time for these reports.
     */
    assert_false(membership_tells(&m, T0 + 6 + INTERVAL_NS));
    assert_true(membership_tells(&m, T0 + 6 + INTERVAL_NS + INTERVAL_NS / 4));
    assert_true(membership_awaits(&m, T0 + 6 + 2 * INTERVAL_NS - 1));
    assert_false(membership_awaits(&m, T0 + 6 + 2 * INTERVAL_NS));
    membership_heard(&m, 6, 0, 205, T0 + 6 + 2 * INTERVAL_NS);
    assert_int_equal(m.watermark_ns, 205);
    assert_int_equal(membership_nodes(&m), 6);
    membership_heard(&m, 2, 0, 206, T0 + 7 + 2 * INTERVAL_NS); /* no node is awaited any more */
    assert_int_equal(membership_nodes(&m), 2);
    assert_true(membership_tells(&m, T0 + 7 + 2 * INTERVAL_NS));
    /* A suspect node that is back has time to report as well; a node that has failed is not awaited. */
    membership_heard(&m, 1, 1, 300, T0 + 10 * INTERVAL_NS);
    assert_int_equal(m.watermark_ns, 300);
    membership_heard(&m, 2, 0, 310, T0 + 11 * INTERVAL_NS);
    assert_true(membership_resumes(&m, T0 + 13 * INTERVAL_NS - 1));
    assert_int_equal(m.watermark_ns, 300);
    assert_int_equal(m.spoken_ns, 310);
    membership_heard(&m, 2, 0, 320, T0 + 13 * INTERVAL_NS);
    assert_int_equal(m.watermark_ns, 320);
    membership_heard(&m, 1, 1, 320, T0 + 14 * INTERVAL_NS);
    membership_heard(&m, 1, 0, 330, T0 + 15 * INTERVAL_NS);
    assert_int_equal(m.watermark_ns, 330);
}

static void test_nobody_is_awaited_for_longer_than_a_pause_between_two_attempts(void **state)
{
    (void) state;
    struct membership m;
    membership_open(&m, 7, INTERVAL_NS, TIMEOUT_NS);
    membership_await(&m, 0, T0);
    membership_heard(&m, 2, 0, 100, T0 + 1);
    assert_int_equal(membership_nodes(&m), 7);
    assert_true(membership_awaits(&m, T0 + AWAIT_NS - 1));
    assert_false(membership_awaits(&m, T0 + AWAIT_NS));
    assert_int_equal(membership_nodes(&m), 7); /* until the next round reports that */
    membership_heard(&m, 2, 1, 101, T0 + AWAIT_NS);
    assert_int_equal(membership_nodes(&m), 3);
    assert_int_equal(m.watermark_ns, 101);
    /* Awaited again and again, the number of nodes stays that of before. */
    membership_await(&m, 0, T0 + 2 * AWAIT_NS);
    membership_heard(&m, 1, 0, 102, T0 + 2 * AWAIT_NS + 1);
    membership_await(&m, 0, T0 + 3 * AWAIT_NS - 1);
    assert_int_equal(membership_nodes(&m), 3);
    assert_true(membership_awaits(&m, T0 + 4 * AWAIT_NS - 2));
}

static void test_all_nodes_wait_as_long_as_the_node_that_came_back_last(void **state)
{
    (void) state;
    struct membership m;
    struct membership last;
    membership_open(&m, 4, INTERVAL_NS, TIMEOUT_NS);
    last = m;
    membership_await(&m, 0, T0);
    membership_heard(&m, 2, 0, 100, T0 + 1);
    const uint64_t later_ns = T0 + 10 * INTERVAL_NS;
    membership_heard(&m, 3, 0, 101, later_ns);
    membership_await(&last, 0, later_ns);
    membership_heard(&last, 3, 0, 101, later_ns);
    assert_int_equal(membership_tells_ns(&m), membership_tells_ns(&last));
    /* Debts are reported before any node goes by the fleet's counts: the fourth node does not come back. */
    const uint64_t end_ns = later_ns + AWAIT_NS;
    const uint64_t tells_ns = membership_tells_ns(&m);
    assert_in_range(tells_ns, end_ns - INTERVAL_NS, end_ns - INTERVAL_NS / 2);
    assert_false(membership_tells(&m, tells_ns - 1));
    assert_true(membership_tells(&m, tells_ns));
    assert_true(membership_awaits(&m, end_ns - 1));
    assert_false(membership_awaits(&m, end_ns));
    /* Nodes that come back again and again are waited for no longer than twice as long. */
    for (uint64_t at_ns = later_ns; at_ns < T0 + 2 * AWAIT_NS; at_ns += 2 * INTERVAL_NS) {
        membership_heard(&m, 2, 1, 102, at_ns);
        membership_heard(&m, 3, 0, 103, at_ns + INTERVAL_NS);
    }
    assert_false(membership_awaits(&m, T0 + 2 * AWAIT_NS));
}

static void test_a_node_is_back_when_it_was_heard_since_redis_was_gone(void **state)
{
    (void) state;
    struct membership m;
    membership_open(&m, 0, INTERVAL_NS, TIMEOUT_NS);
    membership_heard(&m, 4, 0, 100, T0);
    membership_await(&m, 150, T0 + 1);
    membership_heard(&m, 4, 0, 149, T0 + 2); /* a heartbeat from before that time */
    assert_false(membership_complete(&m));
    assert_true(membership_awaits(&m, T0 + 2));
    membership_heard(&m, 4, 0, 150, T0 + 3);
    assert_true(membership_complete(&m));
    /* Redis is gone again before all nodes have reported: the wait begins anew. */
    membership_await(&m, 300, T0 + 2 * INTERVAL_NS);
    membership_heard(&m, 4, 0, 299, T0 + 2 * INTERVAL_NS);
    assert_false(membership_complete(&m));
    assert_false(membership_tells(&m, T0 + 3 * INTERVAL_NS));
    membership_heard(&m, 4, 0, 301, T0 + 3 * INTERVAL_NS);
    assert_true(membership_tells(&m, T0 + 3 * INTERVAL_NS + INTERVAL_NS + INTERVAL_NS / 4));
}

static void test_nodes_that_may_have_been_away_have_the_time_to_tell(void **state)
{
    (void) state;
    struct membership m;
    membership_open(&m, 0, INTERVAL_NS, TIMEOUT_NS);
    membership_heard(&m, 4, 0, 100, T0);
    membership_resume(&m, T0 + 1);
    membership_heard(&m, 4, 0, 200, T0 + 1);
    assert_true(membership_resumes(&m, T0 + 2 * INTERVAL_NS));
    assert_int_equal(m.watermark_ns, 100); /* of buckets: nodes may hold debts back */
    assert_int_equal(m.spoken_ns, 200);
    membership_heard(&m, 4, 0, 300, T0 + 1 + 2 * INTERVAL_NS);
    assert_int_equal(m.watermark_ns, 300);
}

static void test_nodes_that_join_are_counted_until_they_have_had_the_time_to_report(void **state)
{
    (void) state;
    struct membership m;
    membership_open(&m, 0, INTERVAL_NS, TIMEOUT_NS);
    membership_heard(&m, 3, 0, 100, T0); /* the nodes that this node meets first have not joined */
    assert_int_equal(membership_joining(&m, T0), 0);
    assert_false(membership_has_joined(&m, T0));
    const uint64_t joined_ns = T0 + INTERVAL_NS;
    const uint64_t told_ns = INTERVAL_NS - INTERVAL_NS / 4;
    membership_heard(&m, 4, 0, 101, joined_ns);
    assert_int_equal(membership_joining(&m, joined_ns), 1);
    assert_int_equal(membership_joining(&m, joined_ns + told_ns - 1), 1);
    assert_int_equal(membership_joining(&m, joined_ns + told_ns), 0);
    /* Earlier rates say little for longer than that. */
    assert_true(membership_has_joined(&m, joined_ns + told_ns));
    assert_true(membership_has_joined(&m, joined_ns + 2 * INTERVAL_NS - 1));
    assert_false(membership_has_joined(&m, joined_ns + 2 * INTERVAL_NS));
    /* Nodes that join one soon after the other count together, from the last of them on. */
    const uint64_t again_ns = joined_ns + 10 * INTERVAL_NS;
    membership_heard(&m, 5, 0, 102, again_ns);
    membership_heard(&m, 7, 0, 103, again_ns + told_ns - 1);
    assert_int_equal(membership_joining(&m, again_ns + told_ns), 3);
    membership_heard(&m, 7, 0, 104, again_ns + told_ns); /* no other node has come */
    assert_int_equal(membership_joining(&m, again_ns + 2 * told_ns - 2), 3);
    assert_int_equal(membership_joining(&m, again_ns + 2 * told_ns - 1), 0);
}

static void test_nodes_that_are_back_have_not_joined(void **state)
{
    (void) state;
    struct membership m;
    membership_open(&m, 0, INTERVAL_NS, TIMEOUT_NS);
    membership_heard(&m, 4, 0, 100, T0);
    membership_heard(&m, 3, 1, 101, T0 + 1); /* a suspect node */
    membership_heard(&m, 4, 0, 102, T0 + 2);
    assert_int_equal(membership_joining(&m, T0 + 2), 0);
    assert_false(membership_has_joined(&m, T0 + 2));
    membership_await(&m, 0, T0 + 3); /* after an outage */
    membership_heard(&m, 1, 0, 103, T0 + 4);
    membership_heard(&m, 4, 0, 104, T0 + 5);
    assert_int_equal(membership_joining(&m, T0 + 5), 0);
    assert_false(membership_has_joined(&m, T0 + 5));
}

static void test_reports_are_regular_an_interval_after_nodes_were_away(void **state)
{
    (void) state;
    struct membership m;
    membership_open(&m, 0, INTERVAL_NS, TIMEOUT_NS);
    membership_heard(&m, 4, 0, 100, T0);
    assert_true(membership_regular(&m, T0));
    membership_resume(&m, T0 + 1); /* nodes may have been away: two intervals until they have reported, and another */
    assert_false(membership_regular(&m, T0 + 3 * INTERVAL_NS));
    assert_true(membership_regular(&m, T0 + 1 + 3 * INTERVAL_NS));
    const uint64_t away_ns = T0 + 10 * INTERVAL_NS;
    membership_await(&m, 0, away_ns);
    membership_heard(&m, 4, 0, 200, away_ns);
    const uint64_t back_ns = away_ns + 2 * INTERVAL_NS;
    membership_heard(&m, 4, 0, 300, back_ns); /* the wait is over */
    assert_false(membership_awaits(&m, back_ns));
    assert_false(membership_regular(&m, back_ns + INTERVAL_NS - 1));
    assert_true(membership_regular(&m, back_ns + INTERVAL_NS));
}

static void test_news_are_as_old_as_the_earliest_heartbeat_makes_likely(void **state)
{
    (void) state;
    const uint64_t now_ns = T0;
    /* Alone, or with a node that is late: half an interval. */
    assert_int_equal(membership_news_age(1, 0, now_ns, now_ns, INTERVAL_NS), INTERVAL_NS / 2);
    assert_int_equal(membership_news_age(3, 1, now_ns - 1, now_ns, INTERVAL_NS), INTERVAL_NS / 2);
    assert_int_equal(membership_news_age(3, 0, now_ns - 2 * INTERVAL_NS, now_ns, INTERVAL_NS), INTERVAL_NS / 2);
    /*
     * With one other node the age is that node's own. Of n nodes the earliest has reported n / (n + 1) of an interval
     * ago, and the mean is half an interval.
     */
    assert_int_equal(membership_news_age(2, 0, now_ns - INTERVAL_NS / 2, now_ns, INTERVAL_NS), INTERVAL_NS / 2);
    assert_int_equal(membership_news_age(2, 0, now_ns - INTERVAL_NS, now_ns, INTERVAL_NS), INTERVAL_NS);
    assert_int_equal(membership_news_age(5, 0, now_ns - INTERVAL_NS * 4 / 5, now_ns, INTERVAL_NS), INTERVAL_NS / 2);
    /* The age is never 0, and never by a watermark of the future. */
    assert_int_equal(membership_news_age(9, 0, now_ns, now_ns, INTERVAL_NS), INTERVAL_NS / 8);
    assert_int_equal(membership_news_age(2, 0, now_ns + SECOND, now_ns, INTERVAL_NS), INTERVAL_NS / 8);
}

/* A node whose rounds come thirty times less often has not failed, and has lost nothing. */
static void test_nodes_have_intervals_of_their_own(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 300);
    const weir_policy policy = policy_of(&limit);
    nodes_init(&n, &policy, 1);
    n.interval_ms[0] = 100;
    n.interval_ms[1] = 3000;
    node_open(&n, 0, 0);
    node_open(&n, 1, 0);
    pass(&n, 7000);
    for (int step = 0; step < 2500; step++) {
        if (step % 10 == 0) {
            (void) ask(&n.node[0], 1); /* the other node is idle, and has a round every six seconds */
        }
        pass(&n, STEP_MS);
        for (int i = 0; i < 2; i++) {
            weir_stats stats;
            weir_get_stats(n.node[i].w, &stats);
            assert_int_equal(stats.live_nodes, 2);
            assert_int_equal(stats.redis_lost_state_count, 0);
            assert_int_equal(membership_nodes(&n.node[i].w->fleet->membership), 2);
        }
    }
    nodes_stop(&n);
}

#define CRASHING 30

/* Thirty nodes, each of which is killed and started again. Killed nodes do not count as live. */
static void test_nodes_that_crash_again_and_again_do_not_count_as_live(void **state)
{
    (void) state;
    struct fake_clock clock;
    fake_clock_init(&clock, START_NS);
    struct loopback_fleet *fleet = loopback_fleet_new(nodes_wall, &clock);
    struct transport *t[CRASHING];
    char names[CRASHING][24];
    const struct transport_config config = {.timeout_ms = 1000};
    uint64_t rng = test_seed();
    unsigned lives = 0;
    assert_non_null(fleet);
    for (int i = 0; i < CRASHING; i++) {
        assert_int_equal(loopback_transport_open(fleet, &config, &t[i], NULL), 0);
        (void) snprintf(names[i], sizeof(names[i]), "%u", ++lives);
    }
    uint32_t most_suspect = 0;
    struct membership heard;                 /* each time by a new node */
    for (int step = 0; step < 300; step++) { /* a minute */
        for (int i = 0; i < CRASHING; i++) {
            if (random_below(&rng, 25) == 0) { /* every five seconds */
                t[i]->ops->close(t[i]);
                assert_int_equal(loopback_transport_open(fleet, &config, &t[i], NULL), 0);
                (void) snprintf(names[i], sizeof(names[i]), "%u", ++lives);
            }
            struct round round = {
                .node = names[i], .suspect_ms = 3 * INTERVAL_MS, .node_lifetime_ms = 10000, .first = true};
            assert_int_equal(t[i]->ops->begin(t[i], &round, clock.monotonic_ns), 0);
            assert_int_equal(t[i]->ops->step(t[i], clock.monotonic_ns), TRANSPORT_ROUND_DONE);
            if (step >= 5) {
                /* Besides the nodes that were killed in the last three intervals. */
                assert_in_range(round.live_nodes, CRASHING, CRASHING + 3 * 8);
                membership_open(&heard, 0, INTERVAL_NS, TIMEOUT_NS);
                membership_heard(&heard, round.live_nodes, round.suspect_nodes, 1, clock.monotonic_ns);
                assert_true(membership_nodes(&heard) <= round.live_nodes + round.live_nodes / 2);
            }
            most_suspect = round.suspect_nodes > most_suspect ? round.suspect_nodes : most_suspect;
        }
        fake_clock_advance(&clock, INTERVAL_NS);
    }
    assert_true(lives > 5 * CRASHING);
    print_message("# %u lives, at most %u suspect\n", lives, most_suspect);
    for (int i = 0; i < CRASHING; i++) {
        t[i]->ops->close(t[i]);
    }
    loopback_fleet_free(fleet);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_until_anybody_is_heard_there_are_as_many_as_expected),
        cmocka_unit_test(test_a_suspect_counts_until_it_has_failed),
        cmocka_unit_test(test_those_who_were_there_are_awaited_and_have_an_interval_to_tell),
        cmocka_unit_test(test_nobody_is_awaited_for_longer_than_a_pause_between_two_attempts),
        cmocka_unit_test(test_all_nodes_wait_as_long_as_the_node_that_came_back_last),
        cmocka_unit_test(test_a_node_is_back_when_it_was_heard_since_redis_was_gone),
        cmocka_unit_test(test_nodes_that_may_have_been_away_have_the_time_to_tell),
        cmocka_unit_test(test_nodes_that_join_are_counted_until_they_have_had_the_time_to_report),
        cmocka_unit_test(test_nodes_that_are_back_have_not_joined),
        cmocka_unit_test(test_reports_are_regular_an_interval_after_nodes_were_away),
        cmocka_unit_test(test_news_are_as_old_as_the_earliest_heartbeat_makes_likely),
        cmocka_unit_test(test_nodes_have_intervals_of_their_own),
        cmocka_unit_test(test_nodes_that_crash_again_and_again_do_not_count_as_live),
    };
    return cmocka_run_group_tests_name("unit/fleet/membership", tests, NULL, NULL);
}
