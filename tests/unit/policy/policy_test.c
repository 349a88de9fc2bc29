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
#include "policy/validate.h"
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

#define NAME_63 "a23456789a123456789a123456789a123456789a123456789a123456789a123"
#define LIMIT_OF(algorithm_, limit_, ...)                                                                              \
    {                                                                                                                  \
        .algorithm = (algorithm_), .limit = (limit_), .period_ns = __VA_ARGS__                                         \
    }
/* The period, and more fields. */
#define BUCKET(limit_, ...) LIMIT_OF(WEIR_TOKEN_BUCKET, limit_, __VA_ARGS__)
#define WINDOW(limit_, ...) LIMIT_OF(WEIR_FIXED_WINDOW, limit_, __VA_ARGS__)

/* What each bound lets pass. */
static void test_limits_up_to_each_bound_are_valid(void **state)
{
    (void) state;
    static const weir_limit valid[] = {
        WINDOW(1, MILLISECOND),
        WINDOW(WEIR_MAX_UNITS, 31622400 * SECOND),
        WINDOW(10, SECOND, .burst = 10), /* a burst that says the limit again */
        WINDOW(1, 0, .calendar = WEIR_CALENDAR_DAY),
        WINDOW(1, 7, .calendar = WEIR_CALENDAR_MONTH), /* the calendar takes the period's place */
        WINDOW(1, SECOND, .name = NAME_63),
        WINDOW(1, SECOND, .name = " ~"),
        BUCKET(640000000, SECOND),
        BUCKET(640000, MILLISECOND, .burst = WEIR_MAX_UNITS),
        BUCKET(1, 31536000 * SECOND, .burst = 1),
        BUCKET(1, 31536000 * SECOND - 1, .burst = 2),
        {.algorithm = WEIR_SLIDING_LOG, .limit = WEIR_MAX_LOG_UNITS, .period_ns = SECOND},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .delay = 10},
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 20, .delay = 20},
    };
    for (size_t i = 0; i < sizeof(valid) / sizeof(valid[0]); i++) {
        const weir_policy policy = {.name = NAME_63,
                                    .limits = &valid[i],
                                    .limit_count = 1,
                                    .mode = WEIR_SHADOW,
                                    .scope = WEIR_SCOPE_PROCESS,
                                    .on_outage = WEIR_OUTAGE_CLOSED,
                                    .on_long_outage = WEIR_OUTAGE_CLOSED,
                                    .outage_grace_ms = 86400000,
                                    .long_outage_ms = 2592000000};
        weir_error error = {.code = 1, .message = "x"};
        if (validate_policies(&policy, 1, NULL, &error) != 0) {
            fail_msg("valid limit %zu: %s", i, error.message);
        }
        assert_int_equal(error.code, 0);
        assert_string_equal(error.message, "");
    }
    /* One algorithm twice with other periods, one period with other algorithms, a day that is no calendar's. */
    const weir_limit four[] = {WINDOW(1, SECOND), WINDOW(1, 2 * SECOND), BUCKET(1, SECOND),
                               WINDOW(1, 0, .calendar = WEIR_CALENDAR_MONTH)};
    const weir_policy policy = {.name = "p", .limits = four, .limit_count = 4};
    assert_int_equal(validate_policies(&policy, 1, NULL, NULL), 0);
    assert_int_equal(validate_policies(NULL, 0, NULL, NULL), 0);
}

/* The second policy is at fault, in its second limit. */
static void fault_of_limit(weir_limit limit, const char *field, const char *says)
{
    const weir_limit limits[] = {BUCKET(100, SECOND), limit};
    const weir_policy two[] = {{.name = "a", .limits = limits, .limit_count = 1},
                               {.name = "b", .limits = limits, .limit_count = 2}};
    struct policy_fault fault = {99, 99, NULL};
    weir_error error;
    char whole[sizeof(error.message)];
    (void) snprintf(whole, sizeof(whole), "policy \"b\": limit 2 has %s", says);
    assert_int_equal(validate_policies(two, 2, &fault, &error), -EINVAL);
    assert_string_equal(error.message, whole);
    assert_int_equal(error.code, -EINVAL);
    assert_int_equal(fault.policy_index, 1);
    assert_int_equal(fault.limit_index, 1);
    assert_string_equal(fault.field, field);
    assert_int_equal(validate_policies(two, 2, NULL, NULL), -EINVAL);
}

static void test_a_limit_beyond_a_bound_is_named_with_its_field_and_the_way_out(void **state)
{
    (void) state;
#define UP_TO_MOST "; give 1 to 4398046511103 units"
#define IN_RANGE   "; give a period such as \"10s\", from 1ms to 366d"
#define NO_BURST   ", but only buckets have one; leave it out, or use token_bucket"
    static const struct {
        weir_limit limit;
        const char *field, *says;
    } all[] = {
        {{.algorithm = (weir_algorithm) 5, .limit = 1, .period_ns = SECOND},
         "algorithm",
         "algorithm 5, which there is not; use one of fixed_window, sliding_window, sliding_log, token_bucket, "
         "leaky_bucket"},
        {WINDOW(0, SECOND), "limit", "limit 0" UP_TO_MOST},
        {WINDOW(WEIR_MAX_UNITS + 1, SECOND), "limit", "limit 4398046511104" UP_TO_MOST},
        {{.algorithm = WEIR_SLIDING_LOG, .limit = 65537, .period_ns = SECOND},
         "limit",
         "limit 65537, but a sliding log remembers every unit: give 1 to 65536, or use sliding_window"},
        {WINDOW(1, 0), "period_ns", "period 0" IN_RANGE},
        {WINDOW(1, MILLISECOND - 1), "period_ns", "period 999999 ns" IN_RANGE},
        {WINDOW(1, 31622400 * SECOND + 1), "period_ns", "period 31622400000000001 ns" IN_RANGE},
        {WINDOW(1, SECOND, .calendar = (weir_calendar) 3), "calendar",
         "calendar 3, which there is not; use day or month"},
        {WINDOW(1, SECOND, .calendar = (weir_calendar) -1), "calendar",
         "calendar -1, which there is not; use day or month"},
        {BUCKET(1, SECOND, .calendar = WEIR_CALENDAR_DAY), "calendar",
         "a calendar, which only fixed_window has; use that, or give a period"},
        {WINDOW(1, SECOND, .name = ""), "name", "name \"\"; give 1 to 63 bytes of printable ASCII, or none"},
        {WINDOW(1, SECOND, .name = NAME_63 "4"), "name",
         "name \"" NAME_63 "4\"; give 1 to 63 bytes of printable ASCII, or none"},
        {WINDOW(1, SECOND, .name = "a\x1f"), "name", "name \"a?\"; give 1 to 63 bytes of printable ASCII, or none"},
        {WINDOW(1, SECOND, .name = "a\x7f"), "name", "name \"a?\"; give 1 to 63 bytes of printable ASCII, or none"},
        {BUCKET(1, SECOND, .burst = WEIR_MAX_UNITS + 1), "burst",
         "burst 4398046511104; give 1 to 4398046511103 units, or 0 for the limit"},
        {BUCKET(2, SECOND, .delay = 1), "delay",
         "delay 1, which only leaky_bucket has; leave it out, or use leaky_bucket"},
        {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 9, .period_ns = SECOND, .delay = 10},
         "delay",
         "delay 10; give 0 to its burst, 9"},
        {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 9, .period_ns = SECOND, .burst = 4, .delay = 5},
         "delay",
         "delay 5; give 0 to its burst, 4"},
        {BUCKET(1, 31536000 * SECOND, .burst = 2), "burst",
         "burst 2, which takes two years or more to refill; give less"},
        {WINDOW(10, SECOND, .burst = 9), "burst", "burst 9" NO_BURST},
        {WINDOW(10, SECOND, .burst = 11), "burst", "burst 11" NO_BURST},
        {BUCKET(7, SECOND), "period_ns", "the algorithm and the period of limit 1; keep the stricter of the two"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        fault_of_limit(all[i].limit, all[i].field, all[i].says);
    }
    /* A sentence of another form. */
    const weir_limit fast[] = {BUCKET(640001, MILLISECOND)};
    const weir_limit days[] = {WINDOW(1, 24 * HOUR), WINDOW(2, 0, .calendar = WEIR_CALENDAR_DAY)};
    const weir_policy policies[] = {{.name = "fast", .limits = fast, .limit_count = 1},
                                    {.name = "days", .limits = days, .limit_count = 2}};
    struct policy_fault fault;
    weir_error error;
    assert_int_equal(validate_policies(&policies[0], 1, &fault, &error), -EINVAL);
    assert_string_equal(error.message, "policy \"fast\": limit 1 lets more than 640000000 units a second through its "
                                       "bucket; count in larger units");
    assert_string_equal(fault.field, "limit");
    assert_int_equal(validate_policies(&policies[1], 1, &fault, &error), -EINVAL); /* a day is a day */
    assert_string_equal(fault.field, "period_ns");
}

static void test_a_policy_at_fault_is_named_with_its_field_and_the_way_out(void **state)
{
    (void) state;
#define NAME_OF "; give 1 to 63 letters, digits, '.', '_', '-' or '/'"
#define NAMED   "; use the names in weir.h"
#define GIVEN   .limits = &good, .limit_count = 1
    static const struct {
        weir_policy policy;
        const char *field, *says;
    } all[] = {
        {{.name = NULL, GIVEN}, "name", "policy 2 has no name" NAME_OF},
        {{.name = "", GIVEN}, "name", "policy 2 has a name that is empty" NAME_OF},
        {{.name = NAME_63 "4", GIVEN}, "name", "policy 2 has a name that is too long" NAME_OF},
        {{.name = "a/b:c", GIVEN},
         "name",
         "policy 2 has byte 0x3a at 3 of its name; use letters, digits, '.', '_', '-' and '/'"},
        {{.name = "a\xff", GIVEN},
         "name",
         "policy 2 has byte 0xff at 1 of its name; use letters, digits, '.', '_', '-' and '/'"},
        {{.name = "first", GIVEN}, "name", "policy \"first\" is there twice, as number 1 and number 2; rename one"},
        {{.name = "p", GIVEN, .mode = (weir_mode) 2}, "mode", "policy \"p\" has mode 2, which there is not" NAMED},
        {{.name = "p", GIVEN, .mode = (weir_mode) -1}, "mode", "policy \"p\" has mode -1, which there is not" NAMED},
        {{.name = "p", GIVEN, .scope = (weir_scope) 2}, "scope", "policy \"p\" has scope 2, which there is not" NAMED},
        {{.name = "p", GIVEN, .on_outage = (weir_outage) 4},
         "on_outage",
         "policy \"p\" has on_outage 4, which there is not" NAMED},
        {{.name = "p", GIVEN, .on_long_outage = (weir_outage) 4},
         "on_long_outage",
         "policy \"p\" has on_long_outage 4, which there is not" NAMED},
        {{.name = "p", GIVEN, .outage_grace_ms = 86400001},
         "outage_grace_ms",
         "policy \"p\" has outage_grace_ms 86400001; give at most 86400000 (a day)"},
        {{.name = "p", GIVEN, .long_outage_ms = 2592000001},
         "long_outage_ms",
         "policy \"p\" has long_outage_ms 2592000001; give at most 2592000000 (30 days), or 0 for never"},
        {{.name = "p", .limits = NULL, .limit_count = 1}, "limits", "policy \"p\" has 0 limits; give 1 to 4"},
        {{.name = "p", .limits = &good, .limit_count = 0}, "limits", "policy \"p\" has 0 limits; give 1 to 4"},
        {{.name = "p", .limits = &good, .limit_count = 5}, "limits", "policy \"p\" has 5 limits; give 1 to 4"},
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        const weir_policy three[] = {{.name = "first", GIVEN}, all[i].policy, {.name = "third", GIVEN}};
        struct policy_fault fault = {99, 99, NULL};
        weir_error error;
        assert_int_equal(validate_policies(three, 3, &fault, &error), -EINVAL);
        assert_string_equal(error.message, all[i].says);
        assert_int_equal(fault.policy_index, 1);
        assert_int_equal(fault.limit_index, SIZE_MAX); /* the policy itself */
        assert_string_equal(fault.field, all[i].field);
    }
    weir_error error;
    assert_int_equal(validate_policies(NULL, 2, NULL, &error), -EINVAL);
    assert_string_equal(error.message, "policies is NULL with a count of 2; give that many policies");
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

/* What a thread holds under a tier is found under the others at a denial; under one that is gone nobody looks. */
static void test_units_that_a_removed_tier_was_granted_come_back(void **state)
{
    (void) state;
    enum { UNITS = 1000 };
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = UNITS, .period_ns = 24 * HOUR};
    const weir_policy policies[] = {{.name = "p", .limits = &limit, .limit_count = 1},
                                    {.name = "p/pro", .limits = &limit, .limit_count = 1}};
    struct fake_clock clock;
    fake_clock_init(&clock, UINT64_C(1767225600) * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.clock = &clock.clock;
    weir *w = open_or_fail(&options);
    weir_thread *t = weir_attach(w);
    for (uint64_t used = 1; used < 20; used++) {
        assert_int_equal(weir_set_policies(w, policies, 2, NULL), 0);
        const weir_key pro = weir_make_key(w, weir_find_policy(w, "p/pro"), &used, sizeof(used));
        const weir_key plain = weir_make_key(w, weir_find_policy(w, "p"), &used, sizeof(used));
        for (uint64_t i = 0; i < used; i++) {
            assert_true(weir_check(t, &pro, 1, NULL));
        }
        assert_int_equal(weir_set_policies(w, policies, 1, NULL), 0);
        uint64_t passed = 0;
        while (passed < UNITS && weir_check(t, &plain, 1, NULL)) {
            passed++;
        }
        assert_int_equal(passed, UNITS - used);
    }
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
        cmocka_unit_test(test_limits_up_to_each_bound_are_valid),
        cmocka_unit_test(test_a_limit_beyond_a_bound_is_named_with_its_field_and_the_way_out),
        cmocka_unit_test(test_a_policy_at_fault_is_named_with_its_field_and_the_way_out),
        cmocka_unit_test(test_files_are_read),
        cmocka_unit_test(test_files_have_every_algorithm_quotas_and_tiers),
        cmocka_unit_test(test_malformed_files_are_refused_with_file_line_and_field),
        cmocka_unit_test(test_a_change_keeps_what_was_used_and_the_number_of_a_name),
        cmocka_unit_test(test_units_that_a_removed_tier_was_granted_come_back),
        cmocka_unit_test(test_shadow_mode_lets_pass_and_says_so),
    };
    return cmocka_run_group_tests_name("unit/policy/policy", tests, NULL, NULL);
}
