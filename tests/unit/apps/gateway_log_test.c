/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's log: what the library says of a policy that denies, as fields, whatever bytes a key has.
 *
 * Guards: apps/gateway/log.c, apps/gateway/denial_line.c
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../apps/gateway/denial_line.h"
#include "../apps/gateway/log.h"
#include "support/support.h"

#define KEYS_OF(policy) policy ":a (7 units), " policy ":b,(1 (6 units), " policy ":c) (5 units)"

static void test_every_line_of_the_library_is_read_as_fields(void **state)
{
    (void) state;
    static const struct {
        const char *line, *policy, *state;
        uint64_t denied, would_deny, seconds;
        size_t keys;
    } lines[] = {
        {"policy api begins to deny: 41 checks in 1 s", "api", "begins", 41, 0, 1, 0},
        {"policy a denies: 812 checks in 10 s, most by " KEYS_OF("a"), "a", "lasts", 812, 0, 10, 3},
        {"policy a.b-c_d denies: 9 checks in 10 s, by many keys", "a.b-c_d", "lasts", 9, 0, 10, 0},
        {"policy api denies no more: 4100 checks in 55 s", "api", "ends", 4100, 0, 55, 0},
        {"policy api would begin to deny: 3 checks in 2 s, most by api:x (3 units)", "api", "begins", 0, 3, 2, 1},
        {"policy api would deny: 3 checks in 10 s", "api", "lasts", 0, 3, 10, 0},
        {"policy api would deny no more: 3 checks in 4 s", "api", "ends", 0, 3, 4, 0},
        {"policy api begins to deny: 20 checks and would deny 10 in 2 s", "api", "begins", 20, 10, 2, 0},
        {"policy api denies no more: 20 checks and would deny 10 in 2 s", "api", "ends", 20, 10, 2, 0},
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        struct denial_line read;
        assert_true(denial_line_read(lines[i].line, &read));
        assert_string_equal(read.policy, lines[i].policy);
        assert_string_equal(read.state, lines[i].state);
        assert_int_equal(read.denied, lines[i].denied);
        assert_int_equal(read.would_deny, lines[i].would_deny);
        assert_int_equal(read.seconds, lines[i].seconds);
        assert_int_equal(read.key_count, lines[i].keys);
        /* And no beginning of it is taken for another one, but where it is one. */
        for (size_t length = 0; length < strlen(lines[i].line); length++) {
            char fraction[300];
            (void) snprintf(fraction, sizeof(fraction), "%.*s", (int) length, lines[i].line);
            assert_true(!denial_line_read(fraction, &read) || fraction[length - 1] == 's' ||
                        fraction[length - 1] == ')');
        }
    }
    struct denial_line read;
    assert_true(denial_line_read(lines[1].line, &read));
    assert_string_equal(read.keys[1].key, "a:b,(1");
    assert_int_equal(read.keys[1].units, 6);
    assert_string_equal(read.keys[2].key, "a:c)");
    assert_int_equal(read.keys[2].units, 5);
}

static void test_the_longest_keys_have_room_and_longer_ones_are_no_fields(void **state)
{
    (void) state;
    char key[WEIR_MAX_NAME + 1 + WEIR_OFFENDER_KEY_SIZE + 1];
    memset(key, 'k', sizeof(key) - 1);
    key[sizeof(key) - 1] = '\0';
    for (size_t over = 0; over < 2; over++) {
        char line[600];
        struct denial_line read;
        (void) snprintf(line, sizeof(line), "policy api denies: 1 checks in 1 s, most by %s (1 units)", key + 1 - over);
        assert_int_equal(denial_line_read(line, &read), over == 0);
    }
}

/* What log_library writes of a message. */
static const char *written(enum log_format format, weir_log_level most, weir_log_level level, const char *message)
{
    static char text[16384];
    int ends[2];
    const int before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    log_start(most, format);
    log_library(NULL, level, message);
    (void) dup2(before, STDERR_FILENO);
    (void) close(before);
    (void) close(ends[1]);
    const ssize_t size = read(ends[0], text, sizeof(text) - 1);
    (void) close(ends[0]);
    assert_true(size >= 0);
    text[size] = '\0';
    return text;
}

static void test_keys_are_escaped_in_json_and_stand_as_they_are_elsewhere(void **state)
{
    (void) state;
    static const char line[] = "policy api denies: 5 checks in 10 s, most by api:a\"%0a\\%1b (5 units)";
    const char *json = written(LOG_JSON, WEIR_LOG_INFO, WEIR_LOG_INFO, line);
    assert_int_equal(strncmp(json, "{\"time\":\"20", 11), 0);
    assert_string_equal(
        strstr(json, ",\"level\""),
        ",\"level\":\"info\",\"message\":\"policy api denies: 5 checks in 10 s, most by "
        "api:a\\\"%0a\\\\%1b (5 units)\",\"policy\":\"api\",\"state\":\"lasts\",\"denied\":5,"
        "\"would_deny\":0,\"seconds\":10,\"offenders\":[{\"key\":\"api:a\\\"%0a\\\\%1b\",\"units\":5}]}\n");
    assert_string_equal(written(LOG_JOURNAL, WEIR_LOG_INFO, WEIR_LOG_INFO, line),
                        "<6>policy api denies: 5 checks in 10 s, most by api:a\"%0a\\%1b (5 units)\n");
    assert_string_equal(strstr(written(LOG_TEXT, WEIR_LOG_INFO, WEIR_LOG_INFO, "a\nb\x1b\xff"), " weir"),
                        " weir-gateway: info: a\\x0ab\\x1b\\xff\n");
}

static void test_a_line_is_whole_however_long_its_message_is(void **state)
{
    (void) state;
    static char message[6000];
    for (size_t fill = 0; fill < 3; fill++) {
        memset(message, "\"\\\x01"[fill], sizeof(message) - 1);
        const char *json = written(LOG_JSON, WEIR_LOG_INFO, WEIR_LOG_ERROR, message);
        assert_int_equal(strcmp(json + strlen(json) - 3, "\"}\n"), 0);
        assert_non_null(strstr(json, "\"level\":\"error\""));
    }
}

static void test_levels_beyond_the_one_that_is_asked_for_are_left_out(void **state)
{
    (void) state;
    static const char *const priorities[] = {"<3>", "<4>", "<6>"};
    for (int most = WEIR_LOG_ERROR; most <= WEIR_LOG_INFO; most++) {
        for (int level = WEIR_LOG_ERROR; level <= WEIR_LOG_INFO; level++) {
            char line[16] = "";
            (void) snprintf(line, sizeof(line), "%s", level <= most ? priorities[level] : "");
            (void) snprintf(line + strlen(line), sizeof(line) - strlen(line), "%s", level <= most ? "x\n" : "");
            assert_string_equal(written(LOG_JOURNAL, (weir_log_level) most, (weir_log_level) level, "x"), line);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_line_of_the_library_is_read_as_fields),
        cmocka_unit_test(test_the_longest_keys_have_room_and_longer_ones_are_no_fields),
        cmocka_unit_test(test_keys_are_escaped_in_json_and_stand_as_they_are_elsewhere),
        cmocka_unit_test(test_a_line_is_whole_however_long_its_message_is),
        cmocka_unit_test(test_levels_beyond_the_one_that_is_asked_for_are_left_out),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_log", tests, NULL, NULL);
}
