/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lines of the log that a round writes: each in full, at its level, and once. And when in an interval rounds come.
 *
 * Guards: src/fleet/round.c, src/fleet/fleet.c, src/fleet/fleet_log.c
 */
#include <errno.h>

#include "fleet/fleet_log.h"
#include "support/nodes.h"
#include "support/policies.h"

#define LINES 20

struct line {
    weir_log_level level;
    char text[400];
};

struct log {
    size_t count;
    struct line lines[LINES];
};

static void keep(void *arg, weir_log_level level, const char *message)
{
    struct log *log = arg;
    struct line *line = &log->lines[log->count < LINES ? log->count : LINES - 1]; /* a test counts them all */
    log->count++;
    line->level = level;
    (void) snprintf(line->text, sizeof(line->text), "%s", message);
}

static void expect_line(const struct log *log, size_t index, weir_log_level level, const char *text)
{
    assert_true(index < log->count && index < LINES);
    assert_string_equal(log->lines[index].text, text);
    assert_int_equal(log->lines[index].level, level);
}

/* Opens a node that writes to this log. */
static void open_with_log(struct nodes *n, int i, struct log *log)
{
    node_open(n, i, 0);
    n->node[i].w->fleet->log = keep;
    n->node[i].w->fleet->log_arg = log;
    (void) snprintf(n->node[i].w->fleet->name, sizeof(n->node[i].w->fleet->name), "host-%d", i);
}

static void joined_line(const struct node *node, const char *rest, char *out, size_t size)
{
    (void) snprintf(out, size, "fleet in memory: joined the fleet as node %s (%s", node->w->fleet->node, rest);
}

static void keep_text(void *arg, weir_log_level level, const char *message)
{
    (void) level;
    (void) snprintf(arg, 2000, "%s", message);
}

/* Each byte that Redis or a file may have brought is printed, and a line has a bound. */
static void test_a_line_is_plain_and_not_too_long(void **state)
{
    (void) state;
    static char text[2000];
    static char long_text[2000];
    struct fleet fleet = {.log = keep_text, .log_arg = text};
    fleet_log(&fleet, WEIR_LOG_INFO, "%s is %d", "a\nb", 7);
    assert_string_equal(text, "a\\x0ab is 7");
    memset(long_text, 'x', sizeof(long_text) - 1);
    fleet_log(&fleet, WEIR_LOG_INFO, "%s", long_text);
    assert_int_equal(strlen(text), 699);
    memset(long_text, '\n', 116); /* each takes four bytes */
    fleet_log(&fleet, WEIR_LOG_INFO, "%s", long_text);
    assert_int_equal(strlen(text), 699 + 3 * 116);
    fleet.log = NULL;
    text[0] = '\0';
    fleet_log(&fleet, WEIR_LOG_INFO, "nobody listens");
    assert_string_equal(text, "");
}

static void test_each_node_writes_once_that_it_has_joined(void **state)
{
    (void) state;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    struct log logs[2] = {{.count = 0}, {.count = 0}};
    struct nodes n;
    char expected[200];
    nodes_init(&n, &policy, 1);
    n.expected_nodes = 2;
    open_with_log(&n, 0, &logs[0]);
    pass(&n, 1000);
    open_with_log(&n, 1, &logs[1]);
    pass(&n, 5000);
    joined_line(&n.node[0], "host-0), 1 live node", expected, sizeof(expected));
    expect_line(&logs[0], 0, WEIR_LOG_INFO, expected);
    joined_line(&n.node[1], "host-1), 2 live nodes", expected, sizeof(expected));
    expect_line(&logs[1], 0, WEIR_LOG_INFO, expected);
    assert_int_equal(logs[0].count, 1);
    assert_int_equal(logs[1].count, 1);
    nodes_stop(&n);
}

static void test_a_node_that_expects_too_few_nodes_writes_so_once(void **state)
{
    (void) state;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    for (uint32_t expected_nodes = 0; expected_nodes <= 3; expected_nodes++) {
        struct log log = {.count = 0};
        struct nodes n;
        char expected[300];
        nodes_init(&n, &policy, 1);
        n.expected_nodes = expected_nodes;
        open_with_log(&n, 0, &log);
        pass(&n, 1000);
        assert_int_equal(log.count, 1); /* that it has joined */
        node_open(&n, 1, 0);
        node_open(&n, 2, 0);
        pass(&n, 5000);
        if (expected_nodes < 3) {
            static const char *const are[] = {"not set", "1", "2"};
            static const char *const parts[] = {"the whole", "the whole", "1/2"};
            (void) snprintf(expected, sizeof(expected),
                            "3 nodes are live, and expected_nodes is %s: a node that starts admits up to %s of each "
                            "limit until Redis has answered it once. Set expected_nodes to 3, and it admits 1/3 until "
                            "then",
                            are[expected_nodes], parts[expected_nodes]);
            expect_line(&log, 1, WEIR_LOG_INFO, expected);
        }
        assert_int_equal(log.count, expected_nodes < 3 ? 2 : 1);
        nodes_stop(&n);
    }
}

static void test_a_fleet_that_lost_its_data_is_a_warning_in_ten_minutes(void **state)
{
    (void) state;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    struct log log = {.count = 0};
    struct nodes n;
    nodes_init(&n, &policy, 1);
    open_with_log(&n, 0, &log);
    pass(&n, 1000);
    assert_int_equal(log.count, 1);
    for (size_t losses = 1; losses <= 6; losses++) {
        loopback_fleet_flush(n.fleet);
        pass(&n, 1000);
        assert_int_equal(load_relaxed(&n.node[0].w->fleet->stats.redis_lost_state_count), losses);
        assert_int_equal(log.count, losses < 6 ? 2 : 3);
        expect_line(&log, losses < 6 ? 1 : 2, WEIR_LOG_WARNING,
                    "fleet in memory has lost its data (restarted empty, flushed, evicted, or another server): "
                    "reporting all keys again");
        pass(&n, losses == 5 ? UINT64_C(600000) : 0); /* a line in ten minutes */
    }
    nodes_stop(&n);
}

static uint64_t reports_of(const struct nodes *n)
{
    return load_relaxed(&n->node[0].w->fleet->stats.report_count);
}

/* As a Redis does that evicts. Each resync takes four times as long as the one before; what a table has is told. */
static void test_a_fleet_that_loses_its_data_on_and_on_is_told_it_ever_more_slowly(void **state)
{
    (void) state;
    const uint64_t keys = 500;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    struct nodes n;
    nodes_start(&n, &policy, 1);
    for (uint64_t name = 0; name < keys; name++) {
        const weir_key key = weir_make_key(n.node[0].w, n.node[0].key.policy, &name, sizeof(name));
        assert_true(weir_check(n.node[0].t, &key, 1, NULL));
    }
    pass(&n, SCAN_MS);
    const struct gather_cursors *gather = &n.node[0].w->fleet->gather;
    uint64_t before = reports_of(&n);
    for (uint64_t intervals = 1; intervals <= 4 + 16 + 64 + 256; intervals++) {
        loopback_fleet_flush(n.fleet);
        pass(&n, INTERVAL_MS);
        assert_int_equal(gather->resync_parts, intervals <= 4 ? 4 : intervals <= 20 ? 16 : intervals <= 84 ? 64 : 256);
    }
    assert_in_range(reports_of(&n) - before, 3 * keys, 5 * keys);
    /* It ends, and each key is there. */
    pass(&n, 257 * INTERVAL_MS);
    assert_int_equal(gather->resync_left, 0);
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), keys + used_by_all(&n));
    /* A program that waits for all to be told does not wait for the pace. */
    loopback_fleet_flush(n.fleet);
    pass(&n, TWO_INTERVALS);
    assert_in_range(loopback_fleet_sum(n.fleet, ":p:"), 0, keys / 2);
    assert_int_equal(weir_sync(n.node[0].w, 60000), 0);
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), keys + used_by_all(&n));
    /* After a calm a loss is told as quickly as the first one was. */
    pass(&n, (uint64_t) RESYNC_CALM * INTERVAL_MS);
    loopback_fleet_flush(n.fleet);
    pass(&n, RESYNC_MS);
    assert_int_equal(loopback_fleet_sum(n.fleet, ":p:"), keys + used_by_all(&n));
    nodes_stop(&n);
}

/* Uses the key so much that it is due in the next round. */
static void report_the_key(struct nodes *n)
{
    assert_int_equal(ask(&n->node[0], 20), 20);
    pass(n, 1000);
}

static void test_refused_records_are_an_error_once_until_all_are_accepted_again(void **state)
{
    (void) state;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    struct log log = {.count = 0};
    struct nodes n;
    nodes_init(&n, &policy, 1);
    open_with_log(&n, 0, &log);
    pass(&n, 1000);
    loopback_fleet_refuse(n.fleet, ":p:", -EPROTO);
    report_the_key(&n);
    assert_int_equal(log.count, 2);
    const char *refused = log.lines[1].text;
    char expected[400];
    const char *record = strchr(refused, '"');
    assert_non_null(record);
    record++;
    assert_true(strncmp(record, "weir:{", 6) == 0); /* the record's name */
    assert_non_null(strstr(record, ":p:key"));
    (void) snprintf(expected, sizeof(expected),
                    "fleet in memory rejected 1 of 1 report, such as that of \"%.*s\": the record is not one of "
                    "weir's; delete it or choose another prefix. These keys are limited by this node's own counts",
                    (int) strcspn(record, "\""), record);
    expect_line(&log, 1, WEIR_LOG_ERROR, expected);
    report_the_key(&n); /* refused again; and the rounds between, which report nothing, end nothing */
    assert_int_equal(log.count, 2);
    loopback_fleet_refuse(n.fleet, NULL, 0);
    report_the_key(&n);
    expect_line(&log, 2, WEIR_LOG_INFO, "fleet in memory accepts all reports again");
    report_the_key(&n);
    assert_int_equal(log.count, 3);
    loopback_fleet_refuse(n.fleet, ":p:", -EPROTO);
    report_the_key(&n);
    expect_line(&log, 3, WEIR_LOG_ERROR, expected); /* anew */
    nodes_stop(&n);
}

/* Lets time pass while every node is asked, so that no node is idle. */
static void pass_in_use(struct nodes *n, uint64_t ms)
{
    for (uint64_t done = 0; done < ms; done += INTERVAL_MS / 4) {
        for (int i = 0; i < NODES; i++) {
            (void) look(&n->node[i]);
        }
        pass(n, INTERVAL_MS / 4);
    }
}

/* When in an interval a node's rounds come, by fleet time. */
static uint64_t phase_ms(const struct node *node)
{
    const struct fleet *fleet = node->w->fleet;
    return (fleet->schedule.next_ns + load_relaxed(&fleet->line->offset_ns)) / MILLISECOND % INTERVAL_MS;
}

/* By how much the rounds of two nodes are apart: half an interval at most. */
static uint64_t apart_ms(const struct nodes *n, int a, int b)
{
    const uint64_t a_ms = phase_ms(&n->node[a]);
    const uint64_t b_ms = phase_ms(&n->node[b]);
    const uint64_t ms = a_ms > b_ms ? a_ms - b_ms : b_ms - a_ms;
    return ms < INTERVAL_MS - ms ? ms : INTERVAL_MS - ms;
}

static void test_nodes_do_not_report_at_one_moment_after_an_outage(void **state)
{
    (void) state;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    struct nodes n;
    nodes_init(&n, &policy, 1);
    for (int i = 0; i < NODES; i++) {
        node_open(&n, i, 0);
        pass(&n, 60);
    }
    pass_in_use(&n, 2000);
    for (int times = 0; times < 3; times++) {
        loopback_fleet_set_hung(n.fleet, true);
        pass_in_use(&n, 700); /* all answers come at one moment */
        loopback_fleet_set_hung(n.fleet, false);
        pass_in_use(&n, 2000);
        assert_in_range(apart_ms(&n, 0, 1), 50, 70);
        assert_in_range(apart_ms(&n, 1, 2), 50, 70);
    }
    nodes_stop(&n);
}

static void test_nodes_that_start_together_report_at_moments_of_their_own(void **state)
{
    (void) state;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    struct nodes n;
    nodes_start(&n, &policy, 1);
    assert_in_range(apart_ms(&n, 0, 1), 0, STEP_MS);
    assert_in_range(apart_ms(&n, 1, 2), 0, STEP_MS);
    pass_in_use(&n, 20000);
    for (int i = 0; i < NODES; i++) {
        assert_in_range(apart_ms(&n, i, (i + 1) % NODES), INTERVAL_MS / 4 / NODES - STEP_MS, INTERVAL_MS / 2);
    }
    /* The rounds are an interval apart all the same. */
    const uint64_t syncs = load_relaxed(&n.node[0].w->fleet->stats.sync_count);
    pass_in_use(&n, 100 * INTERVAL_MS);
    assert_in_range(load_relaxed(&n.node[0].w->fleet->stats.sync_count), syncs + 100, syncs + 101);
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_is_plain_and_not_too_long),
        cmocka_unit_test(test_each_node_writes_once_that_it_has_joined),
        cmocka_unit_test(test_a_node_that_expects_too_few_nodes_writes_so_once),
        cmocka_unit_test(test_a_fleet_that_lost_its_data_is_a_warning_in_ten_minutes),
        cmocka_unit_test(test_a_fleet_that_loses_its_data_on_and_on_is_told_it_ever_more_slowly),
        cmocka_unit_test(test_refused_records_are_an_error_once_until_all_are_accepted_again),
        cmocka_unit_test(test_nodes_do_not_report_at_one_moment_after_an_outage),
        cmocka_unit_test(test_nodes_that_start_together_report_at_moments_of_their_own),
    };
    return cmocka_run_group_tests_name("unit/fleet/round", tests, NULL, NULL);
}
