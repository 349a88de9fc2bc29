/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Malformed policies, from programs and from files: an error says what to mend, and the old set stays in force.
 *
 * Guards: src/algorithm/algorithm.h, src/policy/policy_names.c, src/policy/rate_list.c, src/limiter/set_policies.c,
 * src/policy/validate.c, src/policy/policy.c, src/policy/policy_set.c, src/policy/words.c,
 * src/policy/policy_words.c, src/policy/policy_file.c, src/policy/file_policies.c, src/base/error.c
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "policy/policy_file.h"
#include "support/support.h"

static const weir_limit good = {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = SECOND};

static void contains(const char *message, const char *part)
{
    if (strstr(message, part) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", message, part);
    }
}

/* A set that must be refused, and what its error must say. */
static void refused(weir *w, const weir_policy *policies, size_t count, const char *who, const char *what)
{
    weir_error error;
    assert_int_equal(weir_set_policies(w, policies, count, &error), -EINVAL);
    contains(error.message, who);
    contains(error.message, what);
    assert_int_not_equal(weir_find_policy(w, "p"), WEIR_NO_POLICY);
}

static void refused_limit(weir *w, weir_limit limit, const char *what)
{
    const weir_limit limits[] = {good, limit};
    const weir_policy policy = {.name = "api", .limits = limits, .limit_count = 2};
    refused(w, &policy, 1, "policy \"api\": limit 2", what);
}

static void test_malformed_limits_are_named(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    (void) set_one_policy(w, &good, 1, WEIR_SCOPE_FLEET);
    refused_limit(w, (weir_limit){WEIR_FIXED_WINDOW, 1, 0, 0}, "has period 0; give a period such as \"10s\"");
    refused_limit(w, (weir_limit){WEIR_FIXED_WINDOW, 1, 999999, 0}, "period 999999 ns");
    refused_limit(w, (weir_limit){WEIR_FIXED_WINDOW, 1, 31622401 * SECOND, 0}, "period");
    refused_limit(w, (weir_limit){WEIR_FIXED_WINDOW, 0, SECOND, 0}, "limit 0");
    refused_limit(w, (weir_limit){WEIR_FIXED_WINDOW, WEIR_MAX_UNITS + 1, SECOND, 0}, "limit 4398046511104");
    refused_limit(w, (weir_limit){WEIR_FIXED_WINDOW, UINT64_MAX, UINT64_MAX, UINT64_MAX}, "limit");
    refused_limit(w, (weir_limit){WEIR_SLIDING_WINDOW, 10, SECOND, 5}, "burst 5");
    refused_limit(w, (weir_limit){WEIR_TOKEN_BUCKET, 10, SECOND, WEIR_MAX_UNITS + 1}, "burst");
    refused_limit(w, (weir_limit){WEIR_TOKEN_BUCKET, 1, 31622400 * SECOND, 2}, "two years");
    refused_limit(w, (weir_limit){WEIR_TOKEN_BUCKET, 640000001, SECOND, 0}, "larger units");
    refused_limit(w, (weir_limit){(weir_algorithm) 5, 10, SECOND, 0}, "algorithm 5");
    refused_limit(w, (weir_limit){(weir_algorithm) -1, 10, SECOND, 0}, "algorithm -1");
    refused_limit(w, (weir_limit){WEIR_SLIDING_LOG, WEIR_MAX_LOG_UNITS + 1, SECOND, 0}, "1 to 65536");
    refused_limit(w, (weir_limit){WEIR_SLIDING_LOG, 10, SECOND, 3}, "burst 3");
    refused_limit(w, (weir_limit){.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .delay = 11},
                  "delay 11; give 0 to its burst, 10");
    refused_limit(w, (weir_limit){.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = SECOND, .delay = 1},
                  "delay 1, which only leaky_bucket has");
    refused_limit(w, (weir_limit){.algorithm = WEIR_TOKEN_BUCKET, .limit = 1, .period_ns = SECOND, .calendar = 1},
                  "only fixed_window has");
    refused_limit(w, (weir_limit){.algorithm = WEIR_SLIDING_WINDOW, .limit = 1, .calendar = WEIR_CALENDAR_DAY},
                  "only fixed_window has");
    refused_limit(w, (weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .calendar = (weir_calendar) 3},
                  "calendar 3");
    refused_limit(w, (weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = SECOND, .name = ""}, "name");
    refused_limit(w, (weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = SECOND, .name = "a\tb"},
                  "name");
    refused_limit(w, good, "limit 1"); /* the same twice */
    weir_close(w);
}

static void test_malformed_policies_are_named(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    (void) set_one_policy(w, &good, 1, WEIR_SCOPE_FLEET);
    weir_policy twice[] = {{.name = "api", .limits = &good, .limit_count = 1},
                           {.name = "api", .limits = &good, .limit_count = 1}};
    refused(w, twice, 2, "policy \"api\"", "twice");
    weir_policy policy = {.name = NULL, .limits = &good, .limit_count = 1};
    refused(w, &policy, 1, "policy 1", "no name");
    policy.name = "";
    refused(w, &policy, 1, "policy 1", "empty");
    policy.name = "a\nb";
    refused(w, &policy, 1, "policy 1", "0x0a");
    char longest[WEIR_MAX_NAME + 2];
    memset(longest, 'a', sizeof(longest));
    longest[sizeof(longest) - 1] = '\0';
    policy.name = longest;
    refused(w, &policy, 1, "policy 1", "too long");
    policy.name = "api";
    policy.limit_count = 0;
    refused(w, &policy, 1, "policy \"api\"", "0 limits");
    policy.limit_count = 5;
    refused(w, &policy, 1, "policy \"api\"", "5 limits");
    policy.limit_count = 1;
    policy.mode = (weir_mode) 9;
    refused(w, &policy, 1, "policy \"api\"", "mode 9");
    policy.mode = WEIR_ENFORCE;
    policy.on_outage = (weir_outage) -1;
    refused(w, &policy, 1, "policy \"api\"", "on_outage -1");
    policy.on_outage = WEIR_OUTAGE_OPEN;
    policy.outage_grace_ms = 86400001;
    refused(w, &policy, 1, "policy \"api\"", "outage_grace_ms");
    refused(w, NULL, 1, "policies", "NULL");
    weir_close(w);
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

#define HEAD "policies:\n  - name: api\n    limits:\n"

static void test_files_are_read(void **state)
{
    (void) state;
    char path[] = "/tmp/weir-policies-XXXXXX";
    (void) close(mkstemp(path));
    write_file(
        path,
        "# comment\npolicies:\n  - name: api/pro\n    mode: shadow\n    scope: process\n    hash_keys: true\n"
        "    on_outage: open\n    on_long_outage: closed\n    outage_grace: 600ms\n    long_outage: 1h30m\n"
        "    limits:\n      - algorithm: token_bucket\n        limit: 100\n        period: 1m\n        burst: 250\n"
        "      - {algorithm: sliding_window, limit: 5, period: 1d}\n"
        "  - name: other\n    limits: [{algorithm: fixed_window, limit: 1, period: 250ms}]\n");
    struct policy_file *file = NULL;
    weir_error error;
    if (policy_file_load(path, &file, &error) != 0) {
        fail_msg("%s", error.message);
    }
    size_t count = 0;
    const weir_policy *policies = policy_file_policies(file, &count);
    assert_int_equal(count, 2);
    assert_string_equal(policies[0].name, "api/pro");
    assert_int_equal(policies[0].mode, WEIR_SHADOW);
    assert_int_equal(policies[0].scope, WEIR_SCOPE_PROCESS);
    assert_true(policies[0].hash_keys);
    assert_int_equal(policies[0].on_outage, WEIR_OUTAGE_OPEN);
    assert_int_equal(policies[0].on_long_outage, WEIR_OUTAGE_CLOSED);
    assert_int_equal(policies[0].outage_grace_ms, 600);
    assert_int_equal(policies[0].long_outage_ms, 5400000);
    assert_int_equal(policies[0].limit_count, 2);
    assert_int_equal(policies[0].limits[0].algorithm, WEIR_TOKEN_BUCKET);
    assert_int_equal(policies[0].limits[0].period_ns, 60 * SECOND);
    assert_int_equal(policies[0].limits[0].burst, 250);
    assert_int_equal(policies[0].limits[1].period_ns, 24 * HOUR);
    assert_int_equal(policies[1].limits[0].period_ns, 250 * MILLISECOND);
    policy_file_free(file);
    (void) unlink(path);
}

static void test_files_have_every_algorithm_quotas_and_tiers(void **state)
{
    (void) state;
    char path[] = "/tmp/weir-policies-XXXXXX";
    (void) close(mkstemp(path));
    write_file(path,
               "policies:\n  - name: api\n    mode: shadow\n    limits:\n"
               "      - {algorithm: leaky_bucket, limit: 10, period: 1s, burst: 21, delay: 8, name: \"per second\"}\n"
               "      - {algorithm: fixed_window, limit: 100000, calendar: month}\n"
               "    tiers:\n"
               "      - name: pro\n        limits:\n"
               "          - {algorithm: sliding_log, limit: 65536, period: 1h}\n"
               "      - name: free\n        limits:\n"
               "          - {algorithm: fixed_window, limit: 5, calendar: day}\n");
    weir *w = open_or_fail(NULL);
    weir_error error;
    if (weir_load_policies(w, path, &error) != 0) {
        fail_msg("%s", error.message);
    }
    assert_int_not_equal(weir_find_policy(w, "api/pro"), WEIR_NO_POLICY);
    assert_int_not_equal(weir_find_policy(w, "api/free"), WEIR_NO_POLICY);
    assert_int_equal(weir_find_policy(w, "pro"), WEIR_NO_POLICY);
    struct policy_file *file = NULL;
    assert_int_equal(policy_file_load(path, &file, &error), 0);
    size_t count = 0;
    const weir_policy *policies = policy_file_policies(file, &count);
    assert_int_equal(count, 3);
    assert_string_equal(policies[0].limits[0].name, "per second");
    assert_int_equal(policies[0].limits[0].algorithm, WEIR_LEAKY_BUCKET);
    assert_int_equal(policies[0].limits[0].burst, 21);
    assert_int_equal(policies[0].limits[0].delay, 8);
    assert_int_equal(policies[0].limits[1].calendar, WEIR_CALENDAR_MONTH);
    assert_string_equal(policies[1].name, "api/pro");
    assert_int_equal(policies[1].limits[0].algorithm, WEIR_SLIDING_LOG);
    assert_int_equal(policies[1].limits[0].limit, 65536);
    assert_int_equal(policies[1].mode, WEIR_SHADOW); /* a field that a tier lacks is its policy's */
    assert_int_equal(policies[2].limits[0].calendar, WEIR_CALENDAR_DAY);
    policy_file_free(file);
    weir_close(w);
    (void) unlink(path);
}

static void test_malformed_files_are_refused_with_file_line_and_field(void **state)
{
    (void) state;
    static const struct {
        const char *text, *line, *says;
    } bad[] = {
        {"", ":1:", "no policies"},
        {"policies: []\n", ":1:", "no policies"},
        {"- a\n", ":1:", "put the list under"},
        {"a: [\n", ":2:", "not YAML"},
        {"polices: []\n", ":1:", "polices"},
        {HEAD "      - {algorithm: token_bucket, limit: 1, period: 1s}\n    limitz: 1\n", ":5:", "limitz"},
        {HEAD "      - algorithm: token_buckets\n        limit: 1\n        period: 1s\n", ":4:", "algorithm"},
        {HEAD "      - algorithm: token_bucket\n        limit: 10x\n        period: 1s\n", ":5:", "limit"},
        {HEAD "      - algorithm: token_bucket\n        limit: -1\n        period: 1s\n", ":5:", "limit"},
        {HEAD "      - algorithm: token_bucket\n        limit: 99999999999999999999\n        period: 1s\n",
         ":5:", "limit"},
        {HEAD "      - algorithm: token_bucket\n        limit: 1\n        period: 10\n", ":6:", "period"},
        {HEAD "      - algorithm: token_bucket\n        limit: 1\n        period: 99999999999999999999h\n",
         ":6:", "period"},
        {HEAD "      - algorithm: token_bucket\n        limit: 1\n        period: 0s\n", ":6:", "period"},
        {HEAD "      - algorithm: token_bucket\n        limit: 1\n", ":4:", "period"},
        {HEAD "      - algorithm: fixed_window\n        limit: 1\n        period: 1s\n        calendar: day\n",
         ":7:", "calendar"},
        {HEAD "      - algorithm: token_bucket\n        limit: 1\n        calendar: month\n", ":6:", "calendar"},
        {HEAD "      - algorithm: fixed_window\n        limit: 1\n        calendar: week\n", ":6:", "calendar"},
        {HEAD "      - algorithm: sliding_log\n        limit: 65537\n        period: 1s\n", ":5:", "65536"},
        {HEAD "      - algorithm: leaky_bucket\n        limit: 5\n        period: 1s\n        delay: 6\n",
         ":7:", "delay"},
        {HEAD
         "      - {algorithm: fixed_window, limit: 1, period: 1s}\n    tiers:\n      - name: pro\n        limits:\n"
         "          - algorithm: fixed_window\n            limit: 0\n            period: 1s\n",
         ":9:", "api/pro\": limit 1 has limit 0"},
        {HEAD "      - {algorithm: fixed_window, limit: 1, period: 1s}\n    tiers:\n      - name: \"x y\"\n"
              "        limits: [{algorithm: fixed_window, limit: 1, period: 1s}]\n",
         ":6:", "byte 0x20"},
        {HEAD "      - algorithm: token_bucket\n        limit: 1\n        period: \"\\a\\e[1m\"\n", ":6:", "??[1m"},
        {HEAD "      - algorithm: fixed_window\n        limit: 9\n        period: 1s\n        burst: 3\n",
         ":7:", "burst"},
        {"policies:\n  - name: \"a b\"\n    limits: [{algorithm: fixed_window, limit: 1, period: 1s}]\n",
         ":2:", "name"},
        {"policies:\n  - name: a\n    limits: []\n", ":3:", "limits"},
        {"policies:\n  - name: a\n    outage_grace: 5\n    limits: [{algorithm: fixed_window, limit: 1, period: 1s}]\n",
         ":3:", "outage_grace"},
        {"policies: &a [*a, *a]\n", ":1:", "alias"},
    };
    char path[] = "/tmp/weir-policies-XXXXXX";
    (void) close(mkstemp(path));
    weir *w = open_or_fail(NULL);
    (void) set_one_policy(w, &good, 1, WEIR_SCOPE_FLEET);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        weir_error error = {0};
        write_file(path, bad[i].text);
        assert_true(weir_load_policies(w, path, &error) < 0);
        assert_memory_equal(error.message, path, strlen(path));
        assert_memory_equal(error.message + strlen(path), bad[i].line, strlen(bad[i].line));
        contains(error.message, bad[i].says);
        assert_int_not_equal(weir_find_policy(w, "p"), WEIR_NO_POLICY);
    }
    weir_error error;
    assert_int_equal(weir_load_policies(w, "/nonexistent.yaml", &error), -ENOENT);
    contains(error.message, "/nonexistent.yaml");
    assert_int_equal(weir_load_policies(w, "/tmp", &error), -EISDIR);
    assert_int_equal(weir_load_policies(w, NULL, &error), -EINVAL);
    assert_int_equal(truncate(path, (2 << 20)), 0);
    assert_int_equal(weir_load_policies(w, path, &error), -EFBIG);
    weir_close(w);
    (void) unlink(path);
}

static void test_a_change_keeps_what_was_used_and_the_number_of_a_name(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = 24 * HOUR};
    const weir_policy_id before = set_one_policy(w, &limit, 1, WEIR_SCOPE_FLEET);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, before, "k", 1);
    for (int i = 0; i < 100; i++) {
        assert_true(weir_check(t, &key, 1, NULL));
    }
    assert_false(weir_check(t, &key, 1, NULL));
    limit.limit = 150;
    assert_int_equal(set_one_policy(w, &limit, 1, WEIR_SCOPE_FLEET), before);
    weir_verdict v;
    uint64_t more = 0;
    for (int i = 0; i < 200; i++) {
        more += weir_check(t, &key, 1, &v);
    }
    assert_int_equal(more, 50);
    assert_int_equal(v.limit, 150);
    const weir_policy other = {.name = "other", .limits = &limit, .limit_count = 1};
    assert_int_equal(weir_set_policies(w, &other, 1, NULL), 0);
    assert_int_equal(weir_find_policy(w, "p"), WEIR_NO_POLICY);
    assert_true(weir_check(t, &key, 1, NULL)); /* of no policy now */
    assert_int_equal(set_one_policy(w, &limit, 1, WEIR_SCOPE_FLEET), before);
    assert_false(weir_check(t, &key, 1, NULL));
    weir_close(w);
}

static void test_shadow_mode_lets_pass_and_says_so(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 3, .period_ns = 24 * HOUR};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1, .mode = WEIR_SHADOW};
    assert_int_equal(weir_set_policies(w, &policy, 1, NULL), 0);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "p"), "k", 1);
    int would_deny = 0;
    for (int i = 0; i < 10; i++) {
        weir_verdict v;
        assert_true(weir_check(t, &key, 1, &v));
        would_deny += v.would_deny;
    }
    assert_int_equal(would_deny, 7);
    weir_stats stats;
    weir_get_stats(w, &stats);
    assert_int_equal(stats.would_deny_count, 7);
    assert_int_equal(stats.allowed_count, 10);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed_limits_are_named),
        cmocka_unit_test(test_malformed_policies_are_named),
        cmocka_unit_test(test_files_are_read),
        cmocka_unit_test(test_files_have_every_algorithm_quotas_and_tiers),
        cmocka_unit_test(test_malformed_files_are_refused_with_file_line_and_field),
        cmocka_unit_test(test_a_change_keeps_what_was_used_and_the_number_of_a_name),
        cmocka_unit_test(test_shadow_mode_lets_pass_and_says_so),
    };
    return cmocka_run_group_tests_name("unit/policy/policy", tests, NULL, NULL);
}
