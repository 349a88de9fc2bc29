/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Header fields: what each style writes into room of any size. A client that obeys Retry-After is admitted, and a reset
 * comes when the fields say.
 *
 * Guards: src/limiter/http_headers.c, src/base/text.h
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/support.h"

#define DAY (24 * HOUR)

/* 2026-11-30T23:59:58.5Z */
#define WALL_NS (UINT64_C(1796083198) * SECOND + SECOND / 2)

#define BAD_STYLE ((weir_header_style) 5)

static const weir_limit two[] = {
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = 60 * SECOND, .name = "burst"},
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = DAY, .name = "daily"}};

#define TWO_POLICY "RateLimit-Policy: \"burst\";q=100;w=60,\"daily\";q=1000;w=86400\r\n"

/* Half of "burst" is left. */
static const weir_verdict passed = {.allowed = true,
                                    .limit_index = 0,
                                    .limit = 100,
                                    .remaining = 50,
                                    .reset_after_ns = 29 * SECOND + SECOND / 2,
                                    .fleet_age_ns = UINT64_MAX};

/* "daily" has nothing left. */
static const weir_verdict denied = {.allowed = false,
                                    .limit_index = 1,
                                    .limit = 1000,
                                    .retry_after_ns = 12 * SECOND + 1,
                                    .reset_after_ns = 12 * SECOND + 1,
                                    .fleet_age_ns = UINT64_MAX};

static weir *open_at(struct fake_clock *clock, uint64_t wall_ns)
{
    fake_clock_init(clock, wall_ns);
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = 1000;
    options.max_threads = 1;
    options.max_log_units = 10000;
    options.clock = &clock->clock;
    return open_or_fail(&options);
}

static void pass_time(weir *w, struct fake_clock *clock, uint64_t ns)
{
    fake_clock_advance(clock, ns);
    assert_true(weir_poll(w) >= 0);
}

static weir_policy_id set_policy(weir *w, const char *name, const weir_limit *limits, size_t limit_count)
{
    const weir_policy policy = {.name = name, .limits = limits, .limit_count = limit_count};
    weir_error error;
    if (weir_set_policies(w, &policy, 1, &error) != 0) {
        fail_msg("weir_set_policies: %s", error.message);
    }
    const weir_policy_id id = weir_find_policy(w, name);
    assert_int_not_equal(id, WEIR_NO_POLICY);
    return id;
}

/* Expects these fields, and their length as the return value. */
static void writes(weir_header_style style, const weir *w, weir_policy_id policy, const weir_verdict *verdict,
                   const char *expected)
{
    char text[2048];
    memset(text, 'x', sizeof(text));
    const int needed = weir_write_headers(style, w, policy, verdict, text, sizeof(text));
    assert_in_range(needed, 0, sizeof(text) - 1);
    assert_int_equal(text[needed], '\0');
    assert_string_equal(text, expected);
    assert_int_equal(strlen(text), needed);
}

/* The line RateLimit-Policy of a policy with these limits. */
static void describes(const char *name, const weir_limit *limits, size_t limit_count, const char *expected)
{
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, name, limits, limit_count);
    char text[2048];
    assert_in_range(weir_write_headers(WEIR_HEADERS_DRAFT_11, w, policy, &passed, text, sizeof(text)), 1, 2047);
    static const char field[] = "RateLimit-Policy: ";
    assert_memory_equal(text, field, sizeof(field) - 1);
    char *end = strstr(text, "\r\n");
    assert_non_null(end);
    *end = '\0';
    assert_string_equal(text + sizeof(field) - 1, expected);
    weir_close(w);
}

static void describes_one(weir_limit limit, const char *expected)
{
    limit.name = "l";
    describes("api", &limit, 1, expected);
}

static void test_draft_11_lists_every_limit_and_tells_how_the_one_that_decided_stands(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", two, 2);
    writes(WEIR_HEADERS_DRAFT_11, w, policy, &passed, TWO_POLICY "RateLimit: \"burst\";r=50;t=30\r\n");
    writes(WEIR_HEADERS_DRAFT_11, w, policy, &denied,
           TWO_POLICY "RateLimit: \"daily\";r=0;t=13\r\nRetry-After: 13\r\n");
    weir_close(w);
}

static void test_the_trio_tells_seconds_from_now(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", two, 2);
    writes(WEIR_HEADERS_TRIO, w, policy, &passed,
           "RateLimit-Limit: 100\r\nRateLimit-Remaining: 50\r\nRateLimit-Reset: 30\r\n");
    writes(WEIR_HEADERS_TRIO, w, policy, &denied,
           "RateLimit-Limit: 1000\r\nRateLimit-Remaining: 0\r\nRateLimit-Reset: 13\r\nRetry-After: 13\r\n");
    weir_close(w);
}

static void test_the_x_styles_tell_the_time_of_day_rounded_up(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", two, 2);
    weir_verdict v = passed;
    writes(WEIR_HEADERS_X_UNIX, w, policy, &v,
           "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 50\r\nX-RateLimit-Reset: 1796083228\r\n");
    writes(WEIR_HEADERS_X_ISO8601, w, policy, &v,
           "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 50\r\nX-RateLimit-Reset: 2026-12-01T00:00:28Z\r\n");
    v.reset_after_ns++;
    writes(WEIR_HEADERS_X_UNIX, w, policy, &v,
           "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 50\r\nX-RateLimit-Reset: 1796083229\r\n");
    writes(WEIR_HEADERS_X_ISO8601, w, policy, &denied,
           "X-RateLimit-Limit: 1000\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 2026-12-01T00:00:11Z\r\n"
           "Retry-After: 13\r\n");
    pass_time(w, &clock, HOUR);
    writes(WEIR_HEADERS_X_UNIX, w, policy, &v,
           "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 50\r\nX-RateLimit-Reset: 1796086829\r\n");
    weir_close(w);
}

static void test_dates_cross_the_ends_of_months_and_years(void **state)
{
    (void) state;
    static const struct {
        uint64_t wall_ns, reset_after_ns;
        const char *date;
    } cases[] = {
        {1796083198 * SECOND, 0, "2026-11-30T23:59:58Z"},
        {1796083198 * SECOND, 1, "2026-11-30T23:59:59Z"},
        {1798761599 * SECOND + 1, 0, "2027-01-01T00:00:00Z"},
        {1835395199 * SECOND, SECOND, "2028-02-29T00:00:00Z"},
        {1835395199 * SECOND, SECOND + DAY, "2028-03-01T00:00:00Z"},
        {4107542399 * SECOND, SECOND, "2100-03-01T00:00:00Z"}, /* no leap year */
    };
    const weir_limit limit = {.algorithm = WEIR_SLIDING_WINDOW, .limit = 9, .period_ns = SECOND};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct fake_clock clock;
        weir *w = open_at(&clock, cases[i].wall_ns);
        const weir_policy_id policy = set_policy(w, "api", &limit, 1);
        const weir_verdict v = {.allowed = true, .limit = 9, .remaining = 8, .reset_after_ns = cases[i].reset_after_ns};
        char expected[128];
        (void) snprintf(expected, sizeof(expected),
                        "X-RateLimit-Limit: 9\r\nX-RateLimit-Remaining: 8\r\nX-RateLimit-Reset: %s\r\n", cases[i].date);
        writes(WEIR_HEADERS_X_ISO8601, w, policy, &v, expected);
        weir_close(w);
    }
}

static void test_retry_after_alone_says_nothing_of_what_passes(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", two, 2);
    writes(WEIR_HEADERS_RETRY_AFTER, w, policy, &passed, "");
    writes(WEIR_HEADERS_RETRY_AFTER, w, policy, &denied, "Retry-After: 13\r\n");
    weir_verdict shadow = passed; /* denied, but for shadow mode: the client may go on */
    shadow.would_deny = true;
    shadow.retry_after_ns = SECOND;
    writes(WEIR_HEADERS_RETRY_AFTER, w, policy, &shadow, "");
    weir_close(w);
}

static void test_retry_after_is_rounded_up_and_left_out_where_waiting_is_of_no_use(void **state)
{
    (void) state;
    static const struct {
        uint64_t retry_after_ns;
        const char *expected;
    } cases[] = {
        {0, "Retry-After: 1\r\n"},
        {1, "Retry-After: 1\r\n"},
        {SECOND - 1, "Retry-After: 1\r\n"},
        {SECOND, "Retry-After: 1\r\n"},
        {SECOND + 1, "Retry-After: 2\r\n"},
        {31 * DAY, "Retry-After: 2678400\r\n"},
        {UINT64_MAX - 1, "Retry-After: 18446744074\r\n"},
        {UINT64_MAX, ""},
    };
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", two, 2);
    weir_verdict v = denied;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        v.retry_after_ns = cases[i].retry_after_ns;
        writes(WEIR_HEADERS_RETRY_AFTER, w, policy, &v, cases[i].expected);
    }
    writes(WEIR_HEADERS_DRAFT_11, w, policy, &v, TWO_POLICY "RateLimit: \"daily\";r=0;t=13\r\n");
    writes(WEIR_HEADERS_TRIO, w, policy, &v,
           "RateLimit-Limit: 1000\r\nRateLimit-Remaining: 0\r\nRateLimit-Reset: 13\r\n");
    weir_close(w);
}

static void test_a_quota_is_of_units_per_period_whatever_passes_at_once(void **state)
{
    (void) state;
    describes_one((weir_limit){.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = 60 * SECOND, .burst = 250},
                  "\"l\";q=100;w=60");
    describes_one((weir_limit){.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = SECOND, .burst = 20},
                  "\"l\";q=10;w=1");
    describes_one((weir_limit){.algorithm = WEIR_SLIDING_LOG, .limit = 5, .period_ns = 3600 * SECOND},
                  "\"l\";q=5;w=3600");
    describes_one((weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = WEIR_MAX_UNITS, .period_ns = 366 * DAY},
                  "\"l\";q=4398046511103;w=31622400");
}

static void test_a_period_that_is_no_whole_number_of_seconds_has_no_window(void **state)
{
    (void) state;
    describes_one((weir_limit){.algorithm = WEIR_SLIDING_WINDOW, .limit = 10, .period_ns = 250 * MILLISECOND},
                  "\"l\";q=10");
    describes_one((weir_limit){.algorithm = WEIR_SLIDING_WINDOW, .limit = 10, .period_ns = 1500 * MILLISECOND},
                  "\"l\";q=10");
    describes_one((weir_limit){.algorithm = WEIR_SLIDING_WINDOW, .limit = 10, .period_ns = 60 * SECOND + 1},
                  "\"l\";q=10");
    describes_one((weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .calendar = WEIR_CALENDAR_MONTH},
                  "\"l\";q=10");
    describes_one((weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .calendar = WEIR_CALENDAR_DAY},
                  "\"l\";q=10;w=86400");
}

static void test_names_are_escaped_as_strings_of_structured_fields(void **state)
{
    (void) state;
    weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = SECOND};
    limit.name = "say \"hi\"; a\\b, 100% ~";
    describes("api", &limit, 1, "\"say \\\"hi\\\"; a\\\\b, 100% ~\";q=1;w=1");
    limit.name = "\\";
    describes("api", &limit, 1, "\"\\\\\";q=1;w=1");
    limit.name = "\"\"";
    describes("api", &limit, 1, "\"\\\"\\\"\";q=1;w=1");
}

static void test_a_limit_without_a_name_has_its_policys(void **state)
{
    (void) state;
    weir_limit limits[] = {{.algorithm = WEIR_FIXED_WINDOW, .limit = 1, .period_ns = SECOND},
                           {.algorithm = WEIR_TOKEN_BUCKET, .limit = 2, .period_ns = 10 * SECOND},
                           {.algorithm = WEIR_SLIDING_WINDOW, .limit = 3, .period_ns = 60 * SECOND}};
    describes("api", limits, 1, "\"api\";q=1;w=1");
    describes("api", limits, 2, "\"api-1\";q=1;w=1,\"api-2\";q=2;w=10");
    describes("api/pro", limits, 1, "\"api/pro\";q=1;w=1");
    limits[1].name = "named";
    describes("api", limits, 3, "\"api-1\";q=1;w=1,\"named\";q=2;w=10,\"api-3\";q=3;w=60");
}

static void test_a_name_need_not_outlive_the_call_that_sets_it(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    char name[] = "brief";
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 100, .period_ns = 60 * SECOND, .name = name};
    const weir_policy_id policy = set_policy(w, "api", &limit, 1);
    memset(name, 'x', sizeof(name) - 1);
    writes(WEIR_HEADERS_DRAFT_11, w, policy, &passed,
           "RateLimit-Policy: \"brief\";q=100;w=60\r\nRateLimit: \"brief\";r=50;t=30\r\n");
    weir_close(w);
}

static void test_integers_are_no_longer_than_structured_fields_allow(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", two, 2);
    weir_verdict v = passed;
    v.reset_after_ns = UINT64_MAX - 1;
    v.remaining = UINT64_C(999999999999999);
    writes(WEIR_HEADERS_DRAFT_11, w, policy, &v, TWO_POLICY "RateLimit: \"burst\";r=999999999999999;t=18446744074\r\n");
    v.remaining++;
    writes(WEIR_HEADERS_DRAFT_11, w, policy, &v, TWO_POLICY "RateLimit: \"burst\";r=999999999999999;t=18446744074\r\n");
    v.remaining = UINT64_MAX;
    writes(WEIR_HEADERS_DRAFT_11, w, policy, &v, TWO_POLICY "RateLimit: \"burst\";r=999999999999999;t=18446744074\r\n");
    weir_close(w);
}

static void test_every_size_gets_as_much_as_it_holds_terminated(void **state)
{
    (void) state;
    char quotes[WEIR_MAX_NAME + 1];
    memset(quotes, '"', WEIR_MAX_NAME);
    quotes[WEIR_MAX_NAME] = '\0';
    weir_limit limits[WEIR_MAX_LIMITS]; /* the longest names there are: each byte is escaped */
    for (size_t i = 0; i < WEIR_MAX_LIMITS; i++) {
        limits[i] = (weir_limit){
            .algorithm = WEIR_FIXED_WINDOW, .limit = WEIR_MAX_UNITS, .period_ns = (i + 1) * DAY, .name = quotes};
    }
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", limits, WEIR_MAX_LIMITS);
    for (int style = WEIR_HEADERS_DRAFT_11; style <= WEIR_HEADERS_RETRY_AFTER; style++) {
        char whole[2048], text[2048];
        const int needed = weir_write_headers((weir_header_style) style, w, policy, &denied, whole, sizeof(whole));
        assert_in_range(needed, 1, sizeof(whole) - 1);
        assert_int_equal(strlen(whole), needed);
        assert_int_equal(weir_write_headers((weir_header_style) style, w, policy, &denied, NULL, 0), needed);
        for (size_t size = 0; size < (size_t) needed + 10; size++) {
            memset(text, 'x', sizeof(text));
            assert_int_equal(weir_write_headers((weir_header_style) style, w, policy, &denied, text, size), needed);
            const size_t kept = size > (size_t) needed ? (size_t) needed : size != 0 ? size - 1 : 0;
            assert_memory_equal(text, whole, kept);
            assert_int_equal(text[kept], size != 0 ? '\0' : 'x');
            for (size_t i = size; i < size + 16; i++) {
                assert_int_equal(text[i], 'x');
            }
        }
    }
    weir_close(w);
}

static void test_there_is_an_error_for_no_such_style_and_no_verdict(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", two, 2);
    char text[512];
    assert_int_equal(weir_write_headers(BAD_STYLE, w, policy, &passed, text, sizeof(text)), -EINVAL);
    assert_int_equal(weir_write_headers(BAD_STYLE, w, policy, &passed, NULL, 0), -EINVAL);
    assert_int_equal(weir_write_headers((weir_header_style) -1, w, policy, &passed, text, sizeof(text)), -EINVAL);
    assert_int_equal(weir_write_headers(BAD_STYLE, w, WEIR_NO_POLICY, &passed, text, sizeof(text)), -EINVAL);
    assert_int_equal(weir_write_headers(WEIR_HEADERS_TRIO, w, policy, NULL, text, sizeof(text)), -EINVAL);
    assert_int_equal(weir_write_headers(WEIR_HEADERS_TRIO, w, policy, NULL, NULL, 0), -EINVAL);
    weir_close(w);
}

static void test_a_policy_that_there_is_not_writes_no_fields(void **state)
{
    (void) state;
    static const weir_policy_id none[] = {WEIR_NO_POLICY, 500, WEIR_MAX_POLICIES, WEIR_MAX_POLICIES + 1, UINT32_MAX};
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", two, 2);
    for (int style = WEIR_HEADERS_DRAFT_11; style <= WEIR_HEADERS_RETRY_AFTER; style++) {
        for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
            writes((weir_header_style) style, w, none[i], &denied, "");
            assert_int_equal(weir_write_headers((weir_header_style) style, w, none[i], &passed, NULL, 0), 0);
        }
    }
    const weir_policy_id other = set_policy(w, "other", two, 1);
    writes(WEIR_HEADERS_RETRY_AFTER, w, policy, &denied, ""); /* "api" is no longer in force */
    writes(WEIR_HEADERS_DRAFT_11, w, other, &passed,
           "RateLimit-Policy: \"burst\";q=100;w=60\r\nRateLimit: \"burst\";r=50;t=30\r\n");
    weir_close(w);
}

static void test_a_checks_verdict_becomes_fields(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", two, 1);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, policy, "k", 1);
    weir_verdict v;
    assert_true(weir_check(t, &key, 50, &v)); /* they refill in 30 s */
    writes(WEIR_HEADERS_DRAFT_11, w, policy, &v,
           "RateLimit-Policy: \"burst\";q=100;w=60\r\nRateLimit: \"burst\";r=50;t=30\r\n");
    assert_true(weir_check(t, &key, 50, &v));
    assert_false(weir_check(t, &key, 10, &v)); /* they refill in 6 s */
    writes(WEIR_HEADERS_TRIO, w, policy, &v,
           "RateLimit-Limit: 100\r\nRateLimit-Remaining: 0\r\nRateLimit-Reset: 60\r\nRetry-After: 6\r\n");
    assert_false(weir_check(t, &key, 101, &v));
    writes(WEIR_HEADERS_RETRY_AFTER, w, policy, &v, "");
    const weir_key none = weir_make_key(w, WEIR_NO_POLICY, "k", 1);
    assert_true(weir_check(t, &none, 1, &v));
    writes(WEIR_HEADERS_DRAFT_11, w, none.policy, &v, "");
    weir_close(w);
}

/* The seconds of Retry-After, which are the verdict's time rounded up. */
static uint64_t told_to_wait(const weir *w, weir_policy_id policy, const weir_verdict *v)
{
    char text[64];
    const int needed = weir_write_headers(WEIR_HEADERS_RETRY_AFTER, w, policy, v, text, sizeof(text));
    assert_in_range(needed, 1, sizeof(text) - 1);
    uint64_t seconds = 0;
    int end = 0;
    assert_int_equal(sscanf(text, "Retry-After: %" SCNu64 "%n", &seconds, &end), 1);
    assert_string_equal(text + end, "\r\n");
    assert_true(seconds >= 1 && (seconds - 1) * SECOND < v->retry_after_ns && v->retry_after_ns <= seconds * SECOND);
    return seconds;
}

/* A client of one key that comes at random times, and obeys Retry-After. */
static void obey(const weir_limit *limits, size_t limit_count, uint64_t pause_ns, uint64_t cost_most, uint64_t *rng)
{
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS + random_below(rng, 40 * DAY));
    const weir_policy_id policy = set_policy(w, "api", limits, limit_count);
    weir_thread *t = weir_attach(w);
    assert_non_null(t);
    const weir_key key = weir_make_key(w, policy, "k", 1);
    size_t denials = 0;
    for (int i = 0; i < 2000; i++) {
        const uint64_t cost = 1 + random_below(rng, cost_most);
        weir_verdict v;
        if (!weir_check(t, &key, cost, &v)) {
            denials++;
            pass_time(w, &clock, told_to_wait(w, policy, &v) * SECOND);
            if (!weir_check(t, &key, cost, &v)) {
                fail_msg("algorithm %d, %" PRIu64 " units: after Retry-After there are another %" PRIu64 " ns to wait",
                         (int) limits[v.limit_index].algorithm, cost, v.retry_after_ns);
            }
        }
        if (random_below(rng, 2) == 0) {
            pass_time(w, &clock, random_below(rng, pause_ns));
        }
    }
    assert_true(denials > 20);
    weir_close(w);
}

static void test_a_client_that_waits_as_it_is_told_is_admitted_whatever_the_algorithm(void **state)
{
    (void) state;
    static const struct {
        weir_limit limit;
        uint64_t cost_most; /* what passes at once */
    } cases[] = {
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 60 * SECOND}, 10},
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 3, .period_ns = 1500 * MILLISECOND}, 3},
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .calendar = WEIR_CALENDAR_DAY}, 4},
        {{.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .calendar = WEIR_CALENDAR_MONTH}, 4},
        {{.algorithm = WEIR_SLIDING_WINDOW, .limit = 10, .period_ns = 60 * SECOND}, 10},
        {{.algorithm = WEIR_SLIDING_WINDOW, .limit = 7, .period_ns = 1234567891}, 3},
        {{.algorithm = WEIR_SLIDING_LOG, .limit = 10, .period_ns = 60 * SECOND}, 10},
        {{.algorithm = WEIR_SLIDING_LOG, .limit = 7, .period_ns = 1234567891}, 3},
        {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 10, .period_ns = 60 * SECOND, .burst = 3}, 3},
        {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 7, .period_ns = 1234567891}, 7},
        {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = 60 * SECOND, .burst = 5}, 1},
        {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = 60 * SECOND, .burst = 5, .delay = 5}, 1},
        {{.algorithm = WEIR_LEAKY_BUCKET, .limit = 7, .period_ns = 1234567891, .burst = 5, .delay = 2}, 1},
    };
    uint64_t rng = test_seed();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const weir_limit *limit = &cases[i].limit;
        const uint64_t period_ns = limit->calendar == WEIR_CALENDAR_DAY     ? DAY
                                   : limit->calendar == WEIR_CALENDAR_MONTH ? 30 * DAY
                                                                            : limit->period_ns;
        obey(limit, 1, 2 * period_ns / limit->limit, cases[i].cost_most, &rng);
    }
}

static void test_a_client_of_several_limits_that_waits_as_it_is_told_is_admitted(void **state)
{
    (void) state;
    static const weir_limit limits[] = {
        {.algorithm = WEIR_LEAKY_BUCKET, .limit = 10, .period_ns = 10 * SECOND, .burst = 10, .delay = 10},
        {.algorithm = WEIR_SLIDING_LOG, .limit = 20, .period_ns = 60 * SECOND},
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = 600 * SECOND, .burst = 10},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .calendar = WEIR_CALENDAR_DAY}};
    uint64_t rng = test_seed();
    obey(limits, 4, 5 * SECOND, 3, &rng);
}

/* The fields are those of the policy of the verdict's key. */
static void test_a_client_of_several_keys_that_waits_as_it_is_told_is_admitted(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_limit limits[] = {
        {.algorithm = WEIR_SLIDING_WINDOW, .limit = 4, .period_ns = 60 * SECOND},
        {.algorithm = WEIR_TOKEN_BUCKET, .limit = 30, .period_ns = 60 * SECOND, .burst = 3},
        {.algorithm = WEIR_FIXED_WINDOW, .limit = 50, .period_ns = 3600 * SECOND},
    };
    const weir_policy policies[] = {{.name = "address", .limits = &limits[0], .limit_count = 1},
                                    {.name = "user", .limits = &limits[1], .limit_count = 1},
                                    {.name = "endpoint", .limits = &limits[2], .limit_count = 1}};
    assert_int_equal(weir_set_policies(w, policies, 3, NULL), 0);
    weir_thread *t = weir_attach(w);
    uint64_t rng = test_seed();
    size_t denials = 0;
    for (int i = 0; i < 2000; i++) {
        static const char *const addresses[] = {"192.0.2.1", "192.0.2.2", "192.0.2.3"};
        static const char *const users[] = {"ann", "bob"};
        const weir_key keys[] = {
            weir_make_key(w, weir_find_policy(w, "address"), addresses[random_below(&rng, 3)], 9),
            weir_make_key(w, weir_find_policy(w, "user"), users[random_below(&rng, 2)], 3),
            weir_make_key(w, weir_find_policy(w, "endpoint"), "/login", 6),
        };
        weir_verdict v;
        if (!weir_check_all(t, keys, NULL, 3, &v)) {
            denials++;
            assert_in_range(v.key_index, 0, 2);
            char expected[64];
            (void) snprintf(expected, sizeof(expected), "RateLimit: \"%s\";r=", policies[v.key_index].name);
            const weir_policy_id policy = keys[v.key_index].policy;
            char text[512];
            assert_in_range(weir_write_headers(WEIR_HEADERS_DRAFT_11, w, policy, &v, text, sizeof(text)), 1, 511);
            assert_non_null(strstr(text, expected));
            pass_time(w, &clock, told_to_wait(w, policy, &v) * SECOND);
            assert_true(weir_check_all(t, keys, NULL, 3, &v));
        }
        pass_time(w, &clock, random_below(&rng, 4 * SECOND));
    }
    assert_true(denials > 20);
    weir_close(w);
}

/* The number after a field's name, or UINT64_MAX: there is no such field. */
static uint64_t told(weir_header_style style, const weir *w, weir_policy_id policy, const weir_verdict *v,
                     const char *name)
{
    char text[1024];
    assert_in_range(weir_write_headers(style, w, policy, v, text, sizeof(text)), 0, sizeof(text) - 1);
    const char *field = strstr(text, name);
    return field != NULL ? strtoull(field + strlen(name), NULL, 10) : UINT64_MAX;
}

static bool is_as_never_used(weir *w, weir_thread *t, const struct fake_clock *clock, const weir_key *key)
{
    weir_verdict v;
    (void) weir_peek(t, key, 1, &v);
    (void) w;
    assert_int_equal(v.decided_ns, clock->wall_ns);
    assert_int_equal(v.remaining == v.limit, v.reset_after_ns == 0);
    return v.remaining == v.limit;
}

/* Goes on to a moment, by hours at most: a poll learns of the time. */
static void go_to(weir *w, struct fake_clock *clock, uint64_t at_ns)
{
    while (clock->wall_ns < at_ns) {
        const uint64_t left_ns = at_ns - clock->wall_ns;
        pass_time(w, clock, left_ns < HOUR ? left_ns : HOUR);
    }
}

/*
 * One key is asked at some moments. Then the fields are written, at once or some time later, and the clock goes on:
 * the key is as if never used at the time that they told, and was not a second before.
 */
static void reset_comes_as_told(const weir_limit *limit, uint64_t period_ns, uint64_t *rng)
{
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS + random_below(rng, 400 * DAY));
    const weir_policy_id policy = set_policy(w, "api", limit, 1);
    weir_thread *t = weir_attach(w);
    assert_non_null(t);
    const weir_key key = weir_make_key(w, policy, "k", 1);
    weir_verdict v = {.allowed = false};
    const uint64_t asked = 1 + random_below(rng, 2 * limit->limit);
    for (uint64_t i = 0; i < asked; i++) {
        (void) weir_check(t, &key, 1, &v);
        assert_int_equal(v.decided_ns, clock.wall_ns);
        if (i + 1 < asked && random_below(rng, 2) == 0) {
            pass_time(w, &clock, random_below(rng, period_ns / limit->limit));
        }
    }
    const uint64_t reset_ns = v.decided_ns + v.reset_after_ns;
    const uint64_t reset_s = (reset_ns + SECOND - 1) / SECOND;
    assert_int_equal(told(WEIR_HEADERS_X_UNIX, w, policy, &v, "X-RateLimit-Reset: "), reset_s);
    if (random_below(rng, 2) == 0) {
        pass_time(w, &clock, random_below(rng, v.reset_after_ns + 1)); /* an upstream took its time */
    }
    assert_int_equal(told(WEIR_HEADERS_X_UNIX, w, policy, &v, "X-RateLimit-Reset: "), reset_s);
    const uint64_t wait_s = (reset_ns - clock.wall_ns + SECOND - 1) / SECOND;
    assert_int_equal(told(WEIR_HEADERS_TRIO, w, policy, &v, "RateLimit-Reset: "), wait_s);
    assert_int_equal(told(WEIR_HEADERS_DRAFT_11, w, policy, &v, ";t="), wait_s);
    if (!v.allowed) {
        const uint64_t passes_ns = v.decided_ns + v.retry_after_ns;
        const uint64_t left_ns = passes_ns > clock.wall_ns ? passes_ns - clock.wall_ns : 1;
        assert_int_equal(told(WEIR_HEADERS_RETRY_AFTER, w, policy, &v, "Retry-After: "),
                         (left_ns + SECOND - 1) / SECOND);
    }
    if (clock.wall_ns < reset_ns) {
        go_to(w, &clock, (reset_s - 1) * SECOND);
        assert_false(is_as_never_used(w, t, &clock, &key));
        /* A bucket counts in parts of a nanosecond, and its grants round up twice. */
        go_to(w, &clock, reset_ns - (limit->algorithm == WEIR_TOKEN_BUCKET ? 2 : 1));
        assert_false(is_as_never_used(w, t, &clock, &key));
    }
    go_to(w, &clock, reset_ns);
    assert_true(is_as_never_used(w, t, &clock, &key));
    go_to(w, &clock, reset_s * SECOND);
    assert_true(is_as_never_used(w, t, &clock, &key));
    weir_close(w);
}

static void test_a_reset_comes_when_the_fields_say_whatever_the_algorithm_and_the_time_of_writing(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_SLIDING_LOG,
                                                WEIR_TOKEN_BUCKET, WEIR_LEAKY_BUCKET};
    uint64_t rng = test_seed();
    for (int i = 0; i < 600; i++) {
        weir_limit limit = {.algorithm = algorithms[i % 5], .limit = 1 + random_below(&rng, 20)};
        uint64_t period_ns = (1 + random_below(&rng, 3)) * (DAY / 2);
        if (i % 5 == 0 && i % 4 == 0) {
            limit.calendar = i % 8 == 0 ? WEIR_CALENDAR_DAY : WEIR_CALENDAR_MONTH;
            period_ns = DAY;
        } else {
            period_ns = i % 3 == 0   ? (1 + random_below(&rng, 120)) * SECOND
                        : i % 3 == 1 ? limit.limit * MILLISECOND + random_below(&rng, 100 * SECOND)
                                     : period_ns;
            limit.period_ns = period_ns;
        }
        reset_comes_as_told(&limit, period_ns, &rng);
    }
}

/* As many threads as there are have a grant of the key, and cached denials in the end. */
static void test_cached_answers_tell_the_same_reset_as_the_table(void **state)
{
    (void) state;
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_SLIDING_LOG};
    for (size_t i = 0; i < sizeof(algorithms) / sizeof(algorithms[0]); i++) {
        struct fake_clock clock;
        weir *w = open_at(&clock, WALL_NS);
        const weir_limit limit = {.algorithm = algorithms[i], .limit = 500, .period_ns = 7 * SECOND};
        const weir_policy_id policy = set_policy(w, "api", &limit, 1);
        weir_thread *t = weir_attach(w);
        const weir_key key = weir_make_key(w, policy, "k", 1);
        const uint64_t end_ns = algorithms[i] == WEIR_SLIDING_LOG    ? WALL_NS + 7 * SECOND
                                : algorithms[i] == WEIR_FIXED_WINDOW ? (WALL_NS / (7 * SECOND) + 1) * (7 * SECOND)
                                                                     : (WALL_NS / (7 * SECOND) + 2) * (7 * SECOND);
        for (int n = 0; n < 600; n++) {
            weir_verdict v;
            assert_int_equal(weir_check(t, &key, 1, &v), n < 500);
            assert_int_equal(v.decided_ns + v.reset_after_ns, end_ns);
            assert_int_equal(told(WEIR_HEADERS_X_UNIX, w, policy, &v, "X-RateLimit-Reset: "),
                             (end_ns + SECOND - 1) / SECOND);
        }
        weir_close(w);
    }
}

static void test_a_key_that_is_denied_for_good_is_told_of_no_reset_and_of_no_time_to_come_back(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy policies[] = {
        {.name = "api", .limits = two, .limit_count = 1},
        {.name = "other", .limits = two, .limit_count = 1},
        {.name = "shadow", .limits = two, .limit_count = 1, .mode = WEIR_SHADOW},
    };
    assert_int_equal(weir_set_policies(w, policies, 3, NULL), 0);
    assert_int_equal(weir_set_override(w, "api:k", "deny", NULL), 0);
    assert_int_equal(weir_set_override(w, "shadow:k", "deny", NULL), 0);
    assert_int_equal(weir_set_override(w, "other:k", "allow", NULL), 0);
    weir_thread *t = weir_attach(w);
    weir_key keys[3];
    for (size_t i = 0; i < 3; i++) {
        keys[i] = weir_make_key(w, weir_find_policy(w, policies[i].name), "k", 1);
    }
    for (int n = 0; n < 4; n++) {
        weir_verdict v;
        assert_false(n == 0   ? weir_check(t, &keys[0], 1, &v)
                     : n == 1 ? weir_peek(t, &keys[0], 1, &v)
                     : n == 2 ? weir_check_all(t, keys, NULL, 3, &v)
                              : weir_check_all(t, (weir_key[]){keys[1], keys[0]}, NULL, 2, &v));
        assert_int_equal(v.key_index, n == 3);
        assert_int_equal(v.reset_after_ns, UINT64_MAX);
        assert_int_equal(v.retry_after_ns, UINT64_MAX);
        writes(WEIR_HEADERS_DRAFT_11, w, keys[0].policy, &v,
               "RateLimit-Policy: \"burst\";q=100;w=60\r\nRateLimit: \"burst\";r=0\r\n");
        writes(WEIR_HEADERS_TRIO, w, keys[0].policy, &v, "RateLimit-Limit: 100\r\nRateLimit-Remaining: 0\r\n");
        writes(WEIR_HEADERS_X_UNIX, w, keys[0].policy, &v, "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 0\r\n");
        writes(WEIR_HEADERS_X_ISO8601, w, keys[0].policy, &v, "X-RateLimit-Limit: 100\r\nX-RateLimit-Remaining: 0\r\n");
        writes(WEIR_HEADERS_RETRY_AFTER, w, keys[0].policy, &v, "");
    }
    weir_verdict v;
    assert_true(weir_check(t, &keys[2], 1, &v) && v.would_deny);
    writes(WEIR_HEADERS_TRIO, w, keys[2].policy, &v, "RateLimit-Limit: 100\r\nRateLimit-Remaining: 0\r\n");
    assert_true(weir_check(t, &keys[1], 1, &v));
    writes(WEIR_HEADERS_TRIO, w, keys[1].policy, &v,
           "RateLimit-Limit: 100\r\nRateLimit-Remaining: 100\r\nRateLimit-Reset: 0\r\n");
    assert_int_equal(weir_set_override(w, "api:k", NULL, NULL), 0);
    assert_true(weir_check(t, &keys[0], 1, &v) && v.reset_after_ns != UINT64_MAX);
    weir_close(w);
}

static void test_a_clock_that_was_set_back_after_a_decision_makes_no_wait_longer(void **state)
{
    (void) state;
    struct fake_clock clock;
    weir *w = open_at(&clock, WALL_NS);
    const weir_policy_id policy = set_policy(w, "api", two, 2);
    weir_verdict v = denied;
    v.decided_ns = WALL_NS + HOUR;
    writes(WEIR_HEADERS_TRIO, w, policy, &v,
           "RateLimit-Limit: 1000\r\nRateLimit-Remaining: 0\r\nRateLimit-Reset: 13\r\nRetry-After: 13\r\n");
    v.decided_ns = WALL_NS - HOUR; /* or the fields are written an hour later */
    writes(WEIR_HEADERS_TRIO, w, policy, &v,
           "RateLimit-Limit: 1000\r\nRateLimit-Remaining: 0\r\nRateLimit-Reset: 0\r\nRetry-After: 1\r\n");
    v.decided_ns = UINT64_MAX - 1;
    v.reset_after_ns = UINT64_MAX - 1;
    writes(WEIR_HEADERS_X_UNIX, w, policy, &v,
           "X-RateLimit-Limit: 1000\r\nX-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 18446744074\r\n"
           "Retry-After: 13\r\n");
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draft_11_lists_every_limit_and_tells_how_the_one_that_decided_stands),
        cmocka_unit_test(test_the_trio_tells_seconds_from_now),
        cmocka_unit_test(test_the_x_styles_tell_the_time_of_day_rounded_up),
        cmocka_unit_test(test_dates_cross_the_ends_of_months_and_years),
        cmocka_unit_test(test_retry_after_alone_says_nothing_of_what_passes),
        cmocka_unit_test(test_retry_after_is_rounded_up_and_left_out_where_waiting_is_of_no_use),
        cmocka_unit_test(test_a_quota_is_of_units_per_period_whatever_passes_at_once),
        cmocka_unit_test(test_a_period_that_is_no_whole_number_of_seconds_has_no_window),
        cmocka_unit_test(test_names_are_escaped_as_strings_of_structured_fields),
        cmocka_unit_test(test_a_limit_without_a_name_has_its_policys),
        cmocka_unit_test(test_a_name_need_not_outlive_the_call_that_sets_it),
        cmocka_unit_test(test_integers_are_no_longer_than_structured_fields_allow),
        cmocka_unit_test(test_every_size_gets_as_much_as_it_holds_terminated),
        cmocka_unit_test(test_there_is_an_error_for_no_such_style_and_no_verdict),
        cmocka_unit_test(test_a_policy_that_there_is_not_writes_no_fields),
        cmocka_unit_test(test_a_checks_verdict_becomes_fields),
        cmocka_unit_test(test_a_client_that_waits_as_it_is_told_is_admitted_whatever_the_algorithm),
        cmocka_unit_test(test_a_client_of_several_limits_that_waits_as_it_is_told_is_admitted),
        cmocka_unit_test(test_a_client_of_several_keys_that_waits_as_it_is_told_is_admitted),
        cmocka_unit_test(test_a_reset_comes_when_the_fields_say_whatever_the_algorithm_and_the_time_of_writing),
        cmocka_unit_test(test_cached_answers_tell_the_same_reset_as_the_table),
        cmocka_unit_test(test_a_key_that_is_denied_for_good_is_told_of_no_reset_and_of_no_time_to_come_back),
        cmocka_unit_test(test_a_clock_that_was_set_back_after_a_decision_makes_no_wait_longer),
    };
    return cmocka_run_group_tests_name("unit/limiter/http_headers", tests, NULL, NULL);
}
