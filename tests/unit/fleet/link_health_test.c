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
    pass(&n, 6000); /* they are asked for every five seconds while some are left out */
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

/* A transport that is what the test says. */
static struct {
    struct transport base;
    struct transport_counts counts;
    const char *problem;
    bool down;
    struct limiter limiter;
    struct fleet fleet;
    struct lines log;
} linked;

static const char *link_problem(const struct transport *t)
{
    (void) t;
    return linked.problem;
}

static const char *link_server(const struct transport *t)
{
    (void) t;
    return "redis a:1";
}

static enum transport_state link_state(const struct transport *t)
{
    (void) t;
    return linked.down ? TRANSPORT_DOWN : TRANSPORT_READY;
}

static struct transport_counts link_counts(const struct transport *t)
{
    (void) t;
    return linked.counts;
}

static void link_begin(void)
{
    static const struct transport_ops ops = {
        .problem = link_problem, .server = link_server, .state = link_state, .counts = link_counts};
    memset(&linked, 0, sizeof(linked));
    linked.base.ops = &ops;
    linked.limiter.process.interval_ns = INTERVAL_MS * MILLISECOND;
    linked.fleet.limiter = &linked.limiter;
    linked.fleet.process = &linked.limiter.process;
    linked.fleet.transport = &linked.base;
    linked.fleet.log = keep;
    linked.fleet.log_arg = &linked.log;
}

static void test_a_failure_is_counted_by_its_kind(void **state)
{
    (void) state;
    static const char *const kinds[][2] = {
        {"no answer after 1000 ms", "timeout"},
        {"cannot connect: Connection refused", "connection"},
        {"no connection after 1000 ms", "connection"},
        {"connection lost: Connection reset by peer", "connection"},
        {"LOADING Redis is loading", "loading"},
        {"READONLY You can't write against a read only replica", "readonly"},
        {"is a replica, not a primary", "replica"},
        {"MASTERDOWN Link with MASTER is down", "masterdown"},
        {"CLUSTERDOWN Hash slot not served", "clusterdown"},
        {"NOAUTH Authentication required", "noauth"},
        {"WRONGPASS invalid", "wrongpass"},
        {"NOPERM this user", "noperm"},
        {"BUSY Redis is busy", "busy"},
        {"OOM command not allowed", "oom"},
        {"MISCONF Redis is configured", "misconf"},
        {"an answer that is not weir's: is this a Redis?", "protocol"},
        {"an answer that is not Redis's protocol", "protocol"},
        {"an answer to no question", "protocol"},
        {"knows no primary named \"p\"", "other"},
        {NULL, "other"},
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        /* Failures that the transport counts; and one that it does not count, of a round. */
        static const uint64_t failures[] = {3, 3, 3, 5, 5};
        static const bool failed[] = {false, true, false, true, false};
        static const uint64_t counted[] = {3, 4, 4, 6, 6};
        link_begin();
        linked.problem = kinds[i][0];
        for (size_t n = 0; n < 5; n++) {
            linked.counts.failures = failures[n];
            link_health_check(&linked.fleet, failed[n], SECOND);
            uint64_t all = 0;
            for (size_t kind = 0; kind < LINK_ERROR_KINDS; kind++) {
                const uint64_t count = load_relaxed(&linked.fleet.stats.link_error_counts[kind]);
                all += count;
                assert_true(count == 0 || strcmp(link_error_name(kind), kinds[i][1]) == 0);
            }
            assert_int_equal(all, counted[n]);
        }
    }
}

static void test_an_interval_is_missed_when_it_is_over(void **state)
{
    (void) state;
    static const struct {
        uint64_t at_ms; /* the regular round would be due at 1,100 ms */
        bool down, problem;
        uint64_t missed;
    } steps[] = {
        {1000, true, true, 0}, {1299, true, true, 0}, {1300, true, false, 0}, {1300, true, true, 1},
        {1499, true, true, 1}, {1500, true, true, 2}, {2299, true, true, 5},  {2300, false, true, 5},
        {2400, true, true, 5}, {2599, true, true, 5}, {2600, true, true, 6},  {3600, true, true, 11},
    };
    link_begin();
    linked.fleet.schedule.next_ns = 1100 * MILLISECOND;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        linked.down = steps[i].down;
        linked.problem = steps[i].problem ? "wrong" : NULL;
        link_health_check(&linked.fleet, false, steps[i].at_ms * MILLISECOND);
        if (load_relaxed(&linked.fleet.stats.sync_error_count) != steps[i].missed) {
            fail_msg("step %zu: %u", i, (unsigned) load_relaxed(&linked.fleet.stats.sync_error_count));
        }
        assert_int_equal(load_relaxed(&linked.fleet.stats.link), steps[i].down ? WEIR_LINK_DOWN : WEIR_LINK_UP);
    }
    linked.counts = (struct transport_counts){.attempts = 9, .connections = 4};
    link_health_check(&linked.fleet, false, 4 * SECOND);
    assert_int_equal(load_relaxed(&linked.fleet.stats.connection_attempt_count), 9);
    assert_int_equal(load_relaxed(&linked.fleet.stats.connection_count), 4);
}

static void test_a_problem_is_said_when_it_changes_and_every_ten_minutes(void **state)
{
    (void) state;
    static const struct {
        uint64_t at_s;
        const char *problem;
        bool down, good; /* there was a good round */
        const char *line;
    } steps[] = {
        {10, NULL, true, false, NULL},
        {20, "wrong", true, false, "redis a:1: wrong; limiting goes on without it"},
        {21, "wrong", true, false, NULL},
        {320, "bad", true, false, "redis a:1: bad; limiting goes on without it"},
        {919, "bad", true, false, NULL},
        {920, "bad", true, false, "redis a:1: bad; down for 15 min; limiting goes on without it"},
        {1519, "bad", true, false, NULL},
        {3620, "bad", true, false, "redis a:1: bad; down for 1 h 0 min; limiting goes on without it"},
        {9080, "bad", true, false, "redis a:1: bad; down for 2 h 31 min; limiting goes on without it"},
        {9090, NULL, true, true, NULL},
        {9090, NULL, false, false, NULL},
        {9090, NULL, false, true, "redis a:1: answering again, 1 live node"},
        {9091, NULL, false, true, NULL},
        {9100, "bad", false, true, "redis a:1: bad; limiting goes on without it"},
        {9700, "bad", false, true, "redis a:1: bad; down for 10 min; limiting goes on without it"},
    };
    link_begin();
    linked.fleet.membership.live = 1;
    size_t lines = 0;
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        linked.problem = steps[i].problem;
        linked.down = steps[i].down;
        linked.fleet.news.good_ns = steps[i].good;
        link_health_check(&linked.fleet, false, steps[i].at_s * SECOND);
        lines += steps[i].line != NULL;
        assert_int_equal(linked.log.count, lines);
        if (steps[i].line != NULL) {
            assert_string_equal(linked.log.lines[lines - 1], steps[i].line);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failure_is_counted_by_its_kind),
        cmocka_unit_test(test_an_interval_is_missed_when_it_is_over),
        cmocka_unit_test(test_a_problem_is_said_when_it_changes_and_every_ten_minutes),
        cmocka_unit_test(test_every_interval_without_a_connection_is_a_sync_error),
        cmocka_unit_test(test_every_failed_attempt_is_an_error_of_its_kind),
        cmocka_unit_test(test_the_age_of_the_news_counts_from_the_start),
        cmocka_unit_test(test_what_stays_down_is_said_again_every_ten_minutes),
        cmocka_unit_test(test_one_is_said_as_one_and_more_as_more),
        cmocka_unit_test(test_rejected_reports_are_said_as_one_or_more),
    };
    return cmocka_run_group_tests_name("unit/fleet/link_health", tests, NULL, NULL);
}
