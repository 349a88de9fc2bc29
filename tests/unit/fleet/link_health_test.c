/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node logs and counts of a fleet that it cannot reach, by the fake clock.
 *
 * Guards: src/fleet/link_health.c, src/fleet/fleet_log.c, src/limiter/stats.c, src/transport/loopback/loopback.c,
 * src/limiter/key_overrides.c
 */
#include <errno.h>

#include "support/nodes.h"
#include "support/policies.h"

#define LINES 40

struct lines {
    size_t count;
    char lines[LINES][400];
};

static void keep(void *arg, weir_log_level level, const char *message)
{
    struct lines *log = arg;
    (void) level;
    if (log->count < LINES) {
        (void) snprintf(log->lines[log->count], sizeof(log->lines[0]), "%s", message);
    }
    log->count++;
}

/* Opens one node and keeps its log. `down`: the fleet is down from before that. */
static void start(struct nodes *n, const weir_policy *policy, struct lines *log, bool down)
{
    memset(log, 0, sizeof(*log));
    nodes_init(n, policy, 1);
    loopback_fleet_set_down(n->fleet, down);
    node_open(n, 0, 0);
    n->node[0].w->fleet->log = keep;
    n->node[0].w->fleet->log_arg = log;
}

static weir_stats stats_of(const struct nodes *n)
{
    weir_stats stats;
    weir_get_stats(n->node[0].w, &stats);
    return stats;
}

/* The value of a metric as it is written; NULL: it is not there. */
static const char *metric(const struct nodes *n, const char *name)
{
    static char text[65536];
    static char value[64];
    char start_of_line[128];
    assert_in_range(weir_write_metrics(n->node[0].w, text, sizeof(text)), 1, sizeof(text) - 1);
    (void) snprintf(start_of_line, sizeof(start_of_line), "\n%s ", name);
    const char *at = strstr(text, start_of_line);
    if (at == NULL) {
        return NULL;
    }
    at += strlen(start_of_line);
    (void) snprintf(value, sizeof(value), "%.*s", (int) strcspn(at, "\n"), at);
    return value;
}

static void test_every_interval_without_a_connection_is_a_sync_error(void **state)
{
    (void) state;
    struct nodes n;
    struct lines log;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    start(&n, &policy, &log, true);
    pass(&n, 10000);
    weir_stats stats = stats_of(&n);
    assert_in_range(stats.sync_error_count, 10000 / INTERVAL_MS - 2, 10000 / INTERVAL_MS);
    assert_true(stats.connection_attempt_count >= 2);
    assert_int_equal(stats.connection_count, 0);
    assert_int_equal(stats.sync_count, 0);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, 5000);
    const uint64_t before = stats_of(&n).sync_error_count;
    pass(&n, 5000);
    stats = stats_of(&n);
    assert_int_equal(stats.sync_error_count, before); /* no errors while the fleet answers */
    assert_true(stats.sync_count > 0);
    assert_true(stats.connection_count > 0);
    /* The host's clock leaps: intervals without a poll were without a connection, too. */
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 1000);
    const uint64_t down = stats_of(&n).sync_error_count;
    assert_true(down > before);
    fake_clock_advance(&n.node[0].clock, 100 * SECOND);
    fake_clock_advance(&n.fleet_clock, 100 * SECOND);
    pass(&n, STEP_MS);
    assert_in_range(stats_of(&n).sync_error_count - down, 100000 / INTERVAL_MS - 1, 100000 / INTERVAL_MS + 1);
    nodes_stop(&n);
}

static void test_every_failed_attempt_is_an_error_of_its_kind(void **state)
{
    (void) state;
    struct nodes n;
    struct lines log;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    start(&n, &policy, &log, true);
    pass(&n, 20000);
    char text[32];
    (void) snprintf(text, sizeof(text), "%llu", (unsigned long long) stats_of(&n).connection_attempt_count);
    assert_string_equal(metric(&n, "weir_errors_total{kind=\"other\"}"), text);
    assert_string_equal(metric(&n, "weir_connection_attempts_total"), text);
    assert_string_equal(metric(&n, "weir_connections_total"), "0");
    nodes_stop(&n);
}

static void test_the_age_of_the_news_counts_from_the_start(void **state)
{
    (void) state;
    struct nodes n;
    struct lines log;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    start(&n, &policy, &log, true);
    pass(&n, STEP_MS);
    const char *age = metric(&n, "weir_fleet_age_seconds");
    assert_non_null(age);
    assert_in_range(strtod(age, NULL) * 1000, 0, 2 * STEP_MS);
    pass(&n, 7000);
    assert_in_range(strtod(metric(&n, "weir_fleet_age_seconds"), NULL) * 1000, 7000, 7000 + 2 * STEP_MS);
    /* The fields have the documented value for a node without news. */
    assert_int_equal(stats_of(&n).fleet_age_ns, UINT64_MAX);
    assert_int_equal(look(&n.node[0]).fleet_age_ns, UINT64_MAX);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, 5000);
    assert_in_range(strtod(metric(&n, "weir_fleet_age_seconds"), NULL) * 1000, 0, 4 * INTERVAL_MS);
    nodes_stop(&n);
}

static size_t lines_with(const struct lines *log, const char *part)
{
    size_t found = 0;
    for (size_t i = 0; i < log->count && i < LINES; i++) {
        found += strstr(log->lines[i], part) != NULL;
    }
    return found;
}

/* Moves the clocks in steps of 100 ms, which are short enough for the node to see a problem in time. */
static void pass_minutes(struct nodes *n, uint64_t minutes)
{
    for (uint64_t i = 0; i < minutes * 600; i++) {
        fake_clock_advance(&n->fleet_clock, 100 * MILLISECOND);
        fake_clock_advance(&n->node[0].clock, 100 * MILLISECOND);
        assert_true(weir_poll(n->node[0].w) >= 0);
    }
}

static void test_what_stays_down_is_said_again_every_ten_minutes(void **state)
{
    (void) state;
    struct nodes n;
    struct lines log;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    start(&n, &policy, &log, true);
    pass(&n, 1000);
    assert_int_equal(log.count, 1);
    pass_minutes(&n, 9);
    assert_int_equal(log.count, 1);
    pass_minutes(&n, 1);
    assert_int_equal(log.count, 2);
    assert_string_equal(log.lines[1],
                        "fleet in memory: the fleet is down; down for 10 min; limiting goes on without it");
    pass_minutes(&n, 9);
    assert_int_equal(log.count, 2);
    pass_minutes(&n, 41);
    assert_int_equal(log.count, 7);
    assert_int_equal(lines_with(&log, "down for 50 min;"), 1);
    assert_int_equal(lines_with(&log, "down for 1 h 0 min;"), 1);
    /* A node that was not polled for two hours logs one line. */
    fake_clock_advance(&n.node[0].clock, 2 * HOUR);
    fake_clock_advance(&n.fleet_clock, 2 * HOUR);
    pass(&n, 1000);
    assert_int_equal(log.count, 8);
    assert_int_equal(lines_with(&log, "down for 3 h 0 min;"), 1);
    /* After the outage no line is logged, and the next outage counts from its own beginning. */
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, 5000);
    assert_int_equal(lines_with(&log, "answering again"), 1);
    const size_t said = log.count;
    pass_minutes(&n, 30);
    assert_int_equal(log.count, said);
    loopback_fleet_set_down(n.fleet, true);
    pass_minutes(&n, 11);
    assert_int_equal(lines_with(&log, "down for 10 min;"), 2);
    nodes_stop(&n);
}

static void expect_line(const struct lines *log, const char *part)
{
    if (lines_with(log, part) != 1) {
        fail_msg("%zu lines of the log have \"%s\"; the last is \"%s\"", lines_with(log, part), part,
                 log->count != 0 ? log->lines[log->count - 1] : "");
    }
}

static void test_one_is_said_as_one_and_more_as_more(void **state)
{
    (void) state;
    static char long_value[OVERRIDE_SIZE_MAX + 1];
    memset(long_value, ' ', sizeof(long_value) - 1);
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    struct lines log;
    struct nodes n;
    start(&n, &policy, &log, false);
    pass(&n, 1000);
    expect_line(&log, "), 1 live node");
    assert_int_equal(lines_with(&log, "live nodes"), 0);
    loopback_fleet_set_override(n.fleet, "p:a", "deny");
    pass(&n, 1000);
    expect_line(&log, "overrides: 1 key has an entry of its own");
    loopback_fleet_set_override(n.fleet, "p:b", "wrong");
    pass(&n, 1000);
    expect_line(&log, "overrides: 1 entry is malformed: \"p:b\" with \"wrong\": ");
    loopback_fleet_set_override(n.fleet, "p:c", "wrong");
    pass(&n, 1000);
    expect_line(&log, "overrides: 2 entries are malformed, such as \"p:");
    loopback_fleet_set_override(n.fleet, "p:d", "allow");
    loopback_fleet_set_override(n.fleet, "p:e", long_value);
    pass(&n, 1000);
    expect_line(&log, "overrides: 2 keys have entries of their own");
    expect_line(&log, "overrides: 1 entry is not read, as ");
    loopback_fleet_set_override(n.fleet, "p:a", NULL);
    loopback_fleet_set_override(n.fleet, "p:d", NULL);
    pass(&n, 1000);
    expect_line(&log, "overrides: 0 keys have entries of their own");
    node_open(&n, 1, 0);
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 2000);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, 5000);
    expect_line(&log, ": answering again, ");
    assert_int_equal(lines_with(&log, "1 live nodes"), 0);
    assert_int_equal(lines_with(&log, "2 live node"), lines_with(&log, "2 live nodes"));
    nodes_stop(&n);
}

static void test_rejected_reports_are_said_as_one_or_more(void **state)
{
    (void) state;
    const weir_limit limit = limit_of(WEIR_FIXED_WINDOW, 100);
    const weir_policy policy = policy_of(&limit);
    struct lines log;
    struct nodes n;
    start(&n, &policy, &log, false);
    pass(&n, 1000);
    loopback_fleet_refuse(n.fleet, ":p:", -EPROTO);
    assert_int_equal(ask(&n.node[0], 50), 50);
    pass(&n, 1000);
    expect_line(&log, " rejected 1 of 1 report, such as that of ");
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_interval_without_a_connection_is_a_sync_error),
        cmocka_unit_test(test_every_failed_attempt_is_an_error_of_its_kind),
        cmocka_unit_test(test_the_age_of_the_news_counts_from_the_start),
        cmocka_unit_test(test_what_stays_down_is_said_again_every_ten_minutes),
        cmocka_unit_test(test_one_is_said_as_one_and_more_as_more),
        cmocka_unit_test(test_rejected_reports_are_said_as_one_or_more),
    };
    return cmocka_run_group_tests_name("unit/fleet/link_health", tests, NULL, NULL);
}
