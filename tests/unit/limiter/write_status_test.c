/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The status as JSON, and the page: whole JSON whatever keys hold, the fields that programs rely on, and the contract
 * of a text that is cut.
 *
 * Guards: src/limiter/status/write_status.c, src/limiter/status/embed_page.py, src/limiter/status/page.html,
 *   src/limiter/status/page.css, src/limiter/status/page.js, src/limiter/status/readings.h
 */
#include <stdlib.h>
#include <string.h>

#include "support/nodes.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

static const weir_limit limits[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = 2, .period_ns = HOUR, .name = "a \"b\\c\" </script>"},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = 100, .period_ns = 1500 * MILLISECOND, .burst = 20},
};

static const weir_policy policies[] = {
    {.name = "api", .limits = limits, .limit_count = 1},
    {.name = "api/pro", .limits = limits, .limit_count = 2, .mode = WEIR_SHADOW, .on_long_outage = WEIR_OUTAGE_OPEN},
    {.name = "own", .limits = limits + 1, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS},
};

/* The caller frees it. */
static char *status_of(const weir *w)
{
    const int size = weir_write_status(w, NULL, 0) + 256; /* numbers grow meanwhile */
    char *text = malloc((size_t) size);
    assert_non_null(text);
    assert_true(weir_write_status(w, text, (size_t) size) < size);
    return text;
}

/* The end of the JSON value at `at`; NULL: it is none. */
static const char *value_end(const char *at);

static const char *string_end(const char *at)
{
    for (at++; *at != '"'; at++) {
        if ((unsigned char) *at < ' ' || (unsigned char) *at >= 0x7f) {
            return NULL;
        }
        if (*at == '\\' && *++at != '"' && *at != '\\') {
            return NULL;
        }
    }
    return at + 1;
}

static const char *members_end(const char *at, char end, bool named)
{
    if (*++at == end) {
        return at + 1;
    }
    for (;; at++) {
        if (named) {
            at = *at == '"' ? string_end(at) : NULL;
            if (at == NULL || *at++ != ':') {
                return NULL;
            }
        }
        at = value_end(at);
        if (at == NULL || (*at != ',' && *at != end)) {
            return NULL;
        }
        if (*at == end) {
            return at + 1;
        }
    }
}

static const char *value_end(const char *at)
{
    static const char *const words[] = {"true", "false", "null"};
    if (*at == '{' || *at == '[') {
        return members_end(at, *at == '{' ? '}' : ']', *at == '{');
    }
    if (*at == '"') {
        return string_end(at);
    }
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        if (strncmp(at, words[i], strlen(words[i])) == 0) {
            return at + strlen(words[i]);
        }
    }
    const char *digits = at + (*at == '-');
    const size_t count = strspn(digits, "0123456789");
    return count == 0 || (*digits == '0' && count > 1) ? NULL : digits + count;
}

static void expect_json(const char *text)
{
    const char *end = value_end(text);
    if (text[0] != '{' || end == NULL || strcmp(end, "\n") != 0) {
        fail_msg("this is no line of JSON: %s", text);
    }
}

static void expect_part(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("there is no %s in %s", part, text);
    }
}

static void test_a_weir_without_policies_and_fleet_is_told(void **state)
{
    (void) state;
    weir_options options = WEIR_OPTIONS_INIT;
    options.node_name = "edge \"1\"";
    weir *w = open_or_fail(&options);
    char *text = status_of(w);
    expect_json(text);
    expect_part(text, "\"policies\":[]");
    expect_part(text, "\"link\":\"none\"");
    expect_part(text, "\"fleet_age_ms\":null");
    expect_part(text, "\"name\":\"edge _1_\"");
    const char *up = strstr(text, "\"uptime_ms\":");
    assert_non_null(up);
    assert_true(strtoull(up + strlen("\"uptime_ms\":"), NULL, 10) < 600000); /* since weir_open, not since the boot */
    free(text);
    weir_close(w);
}

static void test_policies_have_their_limits_modes_and_counters(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
    weir_thread *t = weir_attach(w);
    const weir_key key = weir_make_key(w, weir_find_policy(w, "api"), "k", 1);
    for (size_t i = 0; i < 5; i++) {
        (void) weir_check(t, &key, 1, NULL);
    }
    weir_detach(t);
    char *text = status_of(w);
    expect_json(text);
    expect_part(text, "{\"name\":\"api\",\"mode\":\"enforce\",\"scope\":\"fleet\",\"offenders\":[");
    expect_part(text, "\"group\":\"api\",\"outage_mode\":\"fleet\",\"basis\":\"process\",\"on_outage\":\"share\","
                      "\"on_long_outage\":\"share\",\"allowed\":2,\"denied\":3,\"would_deny\":0,");
    expect_part(text, "\"limits\":[{\"name\":\"a \\\"b\\\\c\\\" </script>\",\"algorithm\":\"fixed_window\",\"limit\":2,"
                      "\"period_ns\":3600000000000,\"burst\":2}]");
    expect_part(text, "{\"name\":\"api/pro\",\"mode\":\"shadow\"");
    expect_part(text, "\"on_outage\":\"share\",\"on_long_outage\":\"open\"");
    expect_part(text, "\"algorithm\":\"token_bucket\",\"limit\":100,\"period_ns\":1500000000,\"burst\":20}");
    expect_part(text, "{\"name\":\"own\",\"mode\":\"enforce\",\"scope\":\"process\"");
    expect_part(text, "\"allowed\":2,\"denied\":3,\"would_deny\":0,\"untracked\":0,\"policies\"");
    free(text);
    weir_close(w);
}

/* Each key of one byte, and some that end a string or a line, among the offenders. */
static void test_keys_of_any_bytes_leave_the_json_whole(void **state)
{
    (void) state;
    static const char *const hostile[] = {"\"", "\\", "\"}],\"x\":[{\"", "</script><script>", "\n", "\xff\xfe", "{a}"};
    struct nodes n;
    nodes_init(&n, policies, COUNT_OF(policies));
    node_open(&n, 0, 0);
    weir *w = n.node[0].w;
    weir_thread *t = weir_attach(w);
    for (size_t i = 0; i < COUNT_OF(hostile); i++) {
        const weir_key key = weir_make_key(w, weir_find_policy(w, "api"), hostile[i], strlen(hostile[i]));
        for (size_t j = 0; j < 5; j++) {
            (void) weir_check(t, &key, 1, NULL);
        }
    }
    weir_detach(t);
    pass(&n, 2000);
    char *text = status_of(w);
    expect_json(text);
    expect_part(text, "{\"key\":\"\\\"\",\"denied_units\":3,\"error_units\":0}");
    expect_part(text, "{\"key\":\"\\\\\",\"denied_units\":3,\"error_units\":0}");
    expect_part(text, "{\"key\":\"%0a\",\"denied_units\":3,\"error_units\":0}");
    free(text);
    nodes_stop(&n);
}

/* Dashboards go by these names. A new name is added at the end of its object, and no name changes. */
static void test_a_node_of_a_fleet_writes_these_fields_in_this_order(void **state)
{
    (void) state;
    static const char *const names[] = {"version",
                                        "processes",
                                        "link",
                                        "live_nodes",
                                        "fleet_age_ms",
                                        "syncs",
                                        "sync_errors",
                                        "suspect_nodes",
                                        "awaiting_peers",
                                        "round_trip_us",
                                        "connections",
                                        "connection_attempts",
                                        "reports",
                                        "rejected_reports",
                                        "redis_lost_state",
                                        "overrides",
                                        "keys",
                                        "key_capacity",
                                        "allowed",
                                        "denied",
                                        "would_deny",
                                        "untracked",
                                        "policies",
                                        "node",
                                        "name",
                                        "time_ms",
                                        "uptime_ms",
                                        "threads",
                                        "unknown_policy",
                                        "evicted_used",
                                        "late_units",
                                        "memory_bytes",
                                        "errors",
                                        "estimate_error",
                                        "unlimited",
                                        "attach_errors",
                                        "dropped_policies"};
    struct nodes n;
    nodes_init(&n, policies, COUNT_OF(policies));
    node_open(&n, 0, 0);
    pass(&n, 2000);
    char *text = status_of(n.node[0].w);
    expect_json(text);
    expect_part(text, "\"basis\":\"fleet\"");
    expect_part(text, "\"link\":\"up\",\"live_nodes\":1,");
    const char *at = text + 1;
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        const size_t length = strlen(names[i]);
        if (*at != '"' || strncmp(at + 1, names[i], length) != 0 || at[length + 1] != '"') {
            fail_msg("the field here is not %s: %s", names[i], at);
        }
        at = value_end(at + length + 3) + 1;
    }
    assert_int_equal(at[-1], '}');
    free(text);
    nodes_stop(&n);
}

static void test_a_text_that_is_cut_is_terminated_and_says_how_much_it_needs(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    assert_int_equal(weir_set_policies(w, policies, COUNT_OF(policies), NULL), 0);
    const int whole = weir_write_status(w, NULL, 0);
    for (int size = 1; size < whole; size += 13) {
        char *text = malloc((size_t) size); /* of its size, so that a sanitizer sees a byte behind it */
        assert_non_null(text);
        assert_true(weir_write_status(w, text, (size_t) size) >= size);
        assert_int_equal(strlen(text), size - 1);
        free(text);
    }
    weir_close(w);
}

static void test_the_page_is_whole_and_asks_no_other_server(void **state)
{
    (void) state;
    size_t length = 0;
    const char *page = weir_status_page(&length);
    assert_ptr_equal(weir_status_page(NULL), page);
    assert_int_equal(strlen(page), length);
    assert_memory_equal(page, "<!DOCTYPE html>", 15);
    assert_string_equal(page + length - 8, "</html>\n");
    expect_part(page, "default-src 'none'");
    expect_part(page, "script-src 'sha256-");
    assert_null(strstr(page, "_HASH@"));
    const char *name = "http://www.w3.org/2000/svg"; /* of a namespace, which nobody loads */
    for (const char *at = strstr(page, "://"); at != NULL; at = strstr(at + 1, "://")) {
        assert_memory_equal(at - 4, name, strlen(name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_weir_without_policies_and_fleet_is_told),
        cmocka_unit_test(test_policies_have_their_limits_modes_and_counters),
        cmocka_unit_test(test_keys_of_any_bytes_leave_the_json_whole),
        cmocka_unit_test(test_a_node_of_a_fleet_writes_these_fields_in_this_order),
        cmocka_unit_test(test_a_text_that_is_cut_is_terminated_and_says_how_much_it_needs),
        cmocka_unit_test(test_the_page_is_whole_and_asks_no_other_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
