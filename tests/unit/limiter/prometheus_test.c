/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which metrics there are, and their values: the library's version, limits, and the outage mode of each policy.
 *
 * Guards: src/limiter/prometheus.c, src/limiter/stats.c, src/base/text.h
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/nodes.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const weir_limit limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 7, .calendar = WEIR_CALENDAR_MONTH, .name = "a \"b\\c\""},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = 1500 * MILLISECOND, .burst = 20, .name = "a \"b\\c\""},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = WEIR_MAX_UNITS, .period_ns = 31622400 * SECOND},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = 3, .period_ns = MILLISECOND},
    {.algorithm = WEIR_SLIDING_LOG, .limit = 2, .period_ns = HOUR},
};

static const weir_policy policies[] = {
    {.name = "api/pro", .limits = limits, .limit_count = 4},
    {.name = "log", .limits = limits + 4, .limit_count = 1},
};

static weir *open_with_policies(void)
{
    weir *w = open_or_fail(NULL);
    assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
    return w;
}

/* The caller frees it. */
static char *metrics_of(const weir *w)
{
    const int size = weir_write_metrics(w, NULL, 0);
    char *text = malloc((size_t) size + 1);
    assert_non_null(text);
    assert_int_equal(weir_write_metrics(w, text, (size_t) size + 1), size);
    return text;
}

static void expect_line(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    if (at == NULL || at == text || at[-1] != '\n' || at[strlen(line)] != '\n') {
        fail_msg("there is no line %s in\n%s", line, text);
    }
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) {
        count++;
    }
    return count;
}

static void test_the_version_is_there(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    char *text = metrics_of(w);
    char line[100];
    (void) snprintf(line, sizeof(line), "weir_build_info{version=\"%s\"} 1", weir_version());
    expect_line(text, line);
    expect_line(text, "# TYPE weir_build_info gauge");
    free(text);
    weir_close(w);
}

static void test_limits_are_told_in_units_and_seconds(void **state)
{
    (void) state;
    static const char *const lines[] = {
        "# TYPE weir_limit_units gauge",
        "# TYPE weir_limit_period_seconds gauge",
        "# TYPE weir_limit_burst_units gauge",
        "weir_limit_units{policy=\"api/pro\",limit=\"1\",name=\"a \\\"b\\\\c\\\"\",algorithm=\"fixed_window\"} 7",
        "weir_limit_period_seconds{policy=\"api/pro\",limit=\"1\",name=\"a "
        "\\\"b\\\\c\\\"\",algorithm=\"fixed_window\"} "
        "2678400.000000000",
        "weir_limit_burst_units{policy=\"api/pro\",limit=\"1\",name=\"a \\\"b\\\\c\\\"\",algorithm=\"fixed_window\"} 7",
        "weir_limit_units{policy=\"api/pro\",limit=\"2\",name=\"a \\\"b\\\\c\\\"\",algorithm=\"token_bucket\"} 100",
        "weir_limit_period_seconds{policy=\"api/pro\",limit=\"2\",name=\"a "
        "\\\"b\\\\c\\\"\",algorithm=\"token_bucket\"} "
        "1.500000000",
        "weir_limit_burst_units{policy=\"api/pro\",limit=\"2\",name=\"a \\\"b\\\\c\\\"\",algorithm=\"token_bucket\"} "
        "20",
        "weir_limit_units{policy=\"api/pro\",limit=\"3\",name=\"api/pro-3\",algorithm=\"leaky_bucket\"} 4398046511103",
        "weir_limit_period_seconds{policy=\"api/pro\",limit=\"3\",name=\"api/pro-3\",algorithm=\"leaky_bucket\"} "
        "31622400.000000000",
        "weir_limit_burst_units{policy=\"api/pro\",limit=\"3\",name=\"api/pro-3\",algorithm=\"leaky_bucket\"} "
        "4398046511103",
        "weir_limit_period_seconds{policy=\"api/pro\",limit=\"4\",name=\"api/pro-4\",algorithm=\"sliding_window\"} "
        "0.001000000",
        "weir_limit_units{policy=\"log\",limit=\"1\",name=\"log\",algorithm=\"sliding_log\"} 2",
    };
    weir *w = open_with_policies();
    char *text = metrics_of(w);
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        expect_line(text, lines[i]);
    }
    assert_int_equal(count_of(text, "\nweir_limit_"), 3 * 5);
    free(text);
    /* A policy that was removed still has its checks, and no limit. */
    assert_int_equal(weir_set_policies(w, policies + 1, 1, NULL), 0);
    text = metrics_of(w);
    assert_int_equal(count_of(text, "\nweir_limit_"), 3);
    free(text);
    weir_close(w);
}

static void test_a_policy_has_a_series_for_each_outage_mode(void **state)
{
    (void) state;
    weir *w = open_with_policies();
    char *text = metrics_of(w);
    static const char *const modes[] = {"fleet", "share", "local", "open", "closed"};
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        char line[100];
        (void) snprintf(line, sizeof(line), "weir_outage_mode{policy=\"log\",mode=\"%s\"} %d", modes[i], i == 0);
        expect_line(text, line);
    }
    assert_int_equal(count_of(text, "\nweir_outage_mode{"), 2 * COUNT_OF(modes));
    free(text);
    weir_close(w);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *) a, *(const char *const *) b);
}

/* Dashboards and alerts go by these names. A new name is added here, and no name changes. */
static void test_a_node_of_a_fleet_writes_the_metrics_of_these_names(void **state)
{
    (void) state;
    static const char *const names[] = {
        "weir_attach_errors_total",
        "weir_awaiting_peers",
        "weir_build_info",
        "weir_checks_total",
        "weir_clock_skew_seconds",
        "weir_connection_attempts_total",
        "weir_connections_total",
        "weir_deferred_keys",
        "weir_deferred_reports_total",
        "weir_denied_units_total",
        "weir_dropped_policies",
        "weir_errors_total",
        "weir_estimate_error_ratio",
        "weir_evicted_denied_units_total",
        "weir_evicted_keys_total",
        "weir_evicted_restored_total",
        "weir_evicted_unrecorded_total",
        "weir_fleet_age_seconds",
        "weir_key_capacity",
        "weir_keys",
        "weir_late_units_total",
        "weir_limit_burst_units",
        "weir_limit_differences",
        "weir_limit_period_seconds",
        "weir_limit_units",
        "weir_live_nodes",
        "weir_lost_reports_total",
        "weir_memory_bytes",
        "weir_node_info",
        "weir_outage_mode",
        "weir_overrides",
        "weir_overrides_left_out",
        "weir_pending_keys",
        "weir_processes",
        "weir_recent_denied_units",
        "weir_redis_lost_state_total",
        "weir_redis_up",
        "weir_rejected_reports_total",
        "weir_report_retries_total",
        "weir_reports_total",
        "weir_requests_total",
        "weir_round_trip_seconds",
        "weir_sent_bytes_total",
        "weir_slow_checks_total",
        "weir_stalled_denied_checks_total",
        "weir_suspect_nodes",
        "weir_sync_errors_total",
        "weir_syncs_total",
        "weir_threads",
        "weir_top_offenders_ratio",
        "weir_unknown_policy_checks_total",
        "weir_unlimited_requests_total",
        "weir_untracked_checks_total",
        "weir_urgent_syncs_total",
        "weir_would_deny_total",
    };
    struct nodes n;
    nodes_init(&n, &policies[1], 1);
    node_open(&n, 0, 0);
    char *text = metrics_of(n.node[0].w);
    const char *written[2 * COUNT_OF(names)];
    size_t count = 0;
    static const char mark[] = "# TYPE ";
    for (char *at = strstr(text, mark); at != NULL && count < COUNT_OF(written); at = strstr(at + 1, mark)) {
        written[count] = at + strlen(mark);
        at += strlen(mark) + strcspn(at + strlen(mark), " ");
        *at = '\0';
        count++;
    }
    qsort(written, count, sizeof(written[0]), compare_names);
    for (size_t i = 0; i < count && i < COUNT_OF(names); i++) {
        assert_string_equal(written[i], names[i]);
    }
    assert_int_equal(count, COUNT_OF(names));
    free(text);
    nodes_stop(&n);
}

/* An alert about evicted keys that were in use goes by this label. */
static void test_evicted_keys_are_counted_by_whether_they_were_used(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    char *text = metrics_of(w);
    expect_line(text, "weir_evicted_keys_total{state=\"unused\"} 0");
    expect_line(text, "weir_evicted_keys_total{state=\"used\"} 0");
    assert_int_equal(count_of(text, "\nweir_evicted_keys_total{"), 2);
    free(text);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_version_is_there),
        cmocka_unit_test(test_limits_are_told_in_units_and_seconds),
        cmocka_unit_test(test_a_policy_has_a_series_for_each_outage_mode),
        cmocka_unit_test(test_a_node_of_a_fleet_writes_the_metrics_of_these_names),
        cmocka_unit_test(test_evicted_keys_are_counted_by_whether_they_were_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
