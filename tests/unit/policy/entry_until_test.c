/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of an override as text, against the C library's calendar, and values with an end.
 *
 * Guards: src/policy/entry_until.c, src/policy/entry.c
 */
#include "policy/entry_until.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "policy/entry.h"
#include "support/support.h"

#define TIMES 20000

/* 2501-01-01, the first time that is not taken. */
#define END_S INT64_C(16756761600)

static void test_times_agree_with_the_c_library(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int i = 0; i < TIMES; i++) {
        static const char *const forms[] = {"%Y-%m-%d", "%Y-%m-%dT%H:%MZ", "%Y-%m-%dT%H:%M:%SZ"};
        static const int64_t units[] = {86400, 60, 1};
        const size_t form = (size_t) random_below(&rng, 3);
        const time_t time_s = (time_t) random_below(&rng, END_S);
        char text[40];
        struct tm parts;
        uint64_t until_ns = 0;
        assert_non_null(gmtime_r(&time_s, &parts));
        assert_int_not_equal(strftime(text, sizeof(text), forms[form], &parts), 0);
        if (entry_until_read(text, &until_ns, NULL) != 0) {
            fail_msg("%s is refused", text);
        }
        assert_int_equal(until_ns, (uint64_t) (time_s - time_s % units[form]) * SECOND);
    }
}

static void test_what_is_no_time_is_refused(void **state)
{
    static const char *const texts[] = {"",
                                        "tomorrow",
                                        "2026",
                                        "2026-12",
                                        "2026-13-01",
                                        "2026-00-01",
                                        "2026-02-29",
                                        "2026-04-31",
                                        "2026-12-00",
                                        "2026-12-01 ",
                                        "2026-12-01T",
                                        "2026-12-01T00",
                                        "2100-02-29",
                                        "2026-12-01T00:00",
                                        "2026-12-01T24:00Z",
                                        "2026-12-01T00:60Z",
                                        "2026-12-01T0:00Z",
                                        "1969-12-31",
                                        "2501-01-01",
                                        "+026-12-01",
                                        "2026-12-01T00:00:60Z",
                                        " 2026-12-01",
                                        "2026-12-01T00:00z",
                                        "2026-12-01t00:00Z",
                                        "2026-1-1"};
    (void) state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        uint64_t until_ns;
        weir_error error;
        if (entry_until_read(texts[i], &until_ns, &error) != -EINVAL) {
            fail_msg("\"%s\" is taken", texts[i]);
        }
        assert_non_null(strstr(error.message, "give a time in UTC, such as 2026-12-01T00:00Z"));
    }
}

static void test_every_value_may_have_an_end(void **state)
{
    static const weir_limit limits[] = {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = SECOND},
                                        {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = SECOND}};
    static const weir_policy policy = {.name = "p", .limits = limits, .limit_count = 2};
    const uint64_t end_ns = UINT64_C(1796083200) * SECOND; /* 2026-12-01 */
    struct entry_value value;
    (void) state;
    assert_int_equal(entry_value_read(&policy, "deny until 2026-12-01", &value, NULL), 0);
    assert_true(value.override == OVERRIDE_DENY && value.until_ns == end_ns);
    assert_int_equal(entry_value_read(&policy, "allow until 2026-12-01T00:00Z", &value, NULL), 0);
    assert_true(value.override == OVERRIDE_ALLOW && value.until_ns == end_ns);
    assert_int_equal(entry_value_read(&policy, "20/5, 7 until 2026-12-01", &value, NULL), 0);
    assert_true(value.override == OVERRIDE_NONE && value.until_ns == end_ns);
    assert_true(value.limits[0] == 20 && value.bursts[0] == 5 && value.limits[1] == 7);
    assert_int_equal(entry_value_read(&policy, "20/5 7", &value, NULL), 0);
    assert_int_equal(value.until_ns, 0);
    static const char *const bad[] = {
        "20 until 2026-12-01",     "20 7 8 until 2026-12-01", " until 2026-12-01",
        "until 2026-12-01",        "deny  until 2026-12-01",  "deny until",
        "deny until 2026-12-01 x", "denyuntil 2026-12-01",    "deny until 2026-12-01 until 2026-12-02"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        if (entry_value_read(&policy, bad[i], &value, NULL) != -EINVAL) {
            fail_msg("\"%s\" is taken", bad[i]);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_agree_with_the_c_library),
        cmocka_unit_test(test_what_is_no_time_is_refused),
        cmocka_unit_test(test_every_value_may_have_an_end),
    };
    return cmocka_run_group_tests_name("unit/policy/entry_until", tests, NULL, NULL);
}
