/* SPDX-License-Identifier: Apache-2.0 */
/* What metrics tell of the library and of policies: its version, what limits are, and on which rung policies stand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

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
    /* A policy that is gone has checks yet, and no limit. */
    assert_int_equal(weir_set_policies(w, policies + 1, 1, NULL), 0);
    text = metrics_of(w);
    assert_int_equal(count_of(text, "\nweir_limit_"), 3);
    free(text);
    weir_close(w);
}

static void test_a_policy_has_a_series_for_each_rung(void **state)
{
    (void) state;
    weir *w = open_with_policies();
    char *text = metrics_of(w);
    static const char *const rungs[] = {"fleet", "share", "local", "open", "closed"};
    for (size_t i = 0; i < COUNT_OF(rungs); i++) {
        char line[100];
        (void) snprintf(line, sizeof(line), "weir_rung{policy=\"log\",rung=\"%s\"} %d", rungs[i], i == 0);
        expect_line(text, line);
    }
    assert_int_equal(count_of(text, "\nweir_rung{"), 2 * COUNT_OF(rungs));
    free(text);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_version_is_there),
        cmocka_unit_test(test_limits_are_told_in_units_and_seconds),
        cmocka_unit_test(test_a_policy_has_a_series_for_each_rung),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
