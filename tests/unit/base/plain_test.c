/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text from outside that comes into a log or into metrics: it stays in its line, and cannot command a terminal.
 *
 * Guards: src/base/plain.c
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/plain.h"
#include "support/nodes.h"
#include "support/server.h"

/* U+202E: what follows stands from right to left. By its bytes, as source text must not hold it. */
static const char to_the_left[] = {'p', ':', (char) 0xe2, (char) 0x80, (char) 0xae, '\0'};

static void test_what_is_printable_stays_and_the_rest_becomes_digits(void **state)
{
    (void) state;
    static const struct {
        const char *text, *line, *quoted;
    } cases[] = {
        {"", "", ""},
        {"weir:{0f3}:f1s:p:key 200/50 ~", "weir:{0f3}:f1s:p:key 200/50 ~", "weir:{0f3}:f1s:p:key 200/50 ~"},
        {"a\nb\r\tc", "a\\x0ab\\x0d\\x09c", "a\\x0ab\\x0d\\x09c"},
        {"\x1b[31m\x07\x7f", "\\x1b[31m\\x07\\x7f", "\\x1b[31m\\x07\\x7f"},
        {"\"a\\b\"", "\"a\\b\"", "\\x22a\\x5cb\\x22"},
        {"h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
         "h\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"\xff\x80", "\\xff\\x80", "\\xff\\x80"},
        {"\xc3", "\\xc3", "\\xc3"},                                           /* cut */
        {"\xe2\x82\nx", "\\xe2\\x82\\x0ax", "\\xe2\\x82\\x0ax"},              /* cut */
        {"\xc0\x8a", "\\xc0\\x8a", "\\xc0\\x8a"},                             /* a newline, too long */
        {"\xe0\x80\x8a", "\\xe0\\x80\\x8a", "\\xe0\\x80\\x8a"},               /* a newline, in three bytes */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80", "\\xed\\xa0\\x80"},               /* half of a pair */
        {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80", "\\xf4\\x90\\x80\\x80"}, /* beyond Unicode */
        {"\xc2\x9b"
         "31m",
         "\\xc2\\x9b31m", "\\xc2\\x9b31m"},                     /* CSI in one character */
        {"\xe2\x80\xa8", "\\xe2\\x80\\xa8", "\\xe2\\x80\\xa8"}, /* line separator */
        {to_the_left, "p:\\xe2\\x80\\xae", "p:\\xe2\\x80\\xae"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[100];
        assert_int_equal(plain_line(out, sizeof(out), cases[i].text), strlen(cases[i].line));
        assert_string_equal(out, cases[i].line);
        assert_int_equal(plain_quoted(out, sizeof(out), cases[i].text), strlen(cases[i].quoted));
        assert_string_equal(out, cases[i].quoted);
    }
}

/* Writes a number in the form of UTF-8 with so many bytes, whether it is a character of that length or not. */
static void encode(uint32_t character, size_t length, char out[5])
{
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char) (0x80 | (character & 0x3f));
        character >>= 6;
    }
    out[0] = (char) (first[length] | character);
    out[length] = '\0';
}

static void test_every_character_stays_but_those_that_control_a_line_and_other_forms_are_none(void **state)
{
    (void) state;
    /* First and last ones: controls, marks of direction, separators of lines, isolates; and halves of pairs. */
    static const uint32_t escaped[][2] = {{1, 0x1f},        {0x7f, 0x9f},     {0x61c, 0x61c},  {0x200e, 0x200f},
                                          {0x2028, 0x202e}, {0x2066, 0x2069}, {0xd800, 0xdfff}};
    static const uint32_t ends[] = {0, 0x80, 0x800, 0x10000, 0x110000}; /* of the characters of each length */
    static const uint32_t most[] = {0, 0x7f, 0x7ff, 0xffff, 0x1fffff};  /* what each length could hold */
    for (size_t length = 1; length <= 4; length++) {
        size_t range = 0;
        for (uint32_t character = 1; character <= most[length]; character++) {
            char text[5];
            char line[20];
            encode(character, length, text);
            while (range < sizeof(escaped) / sizeof(escaped[0]) && character > escaped[range][1]) {
                range++;
            }
            const bool is_character = character >= ends[length - 1] && character < ends[length];
            const bool stays =
                is_character && (range == sizeof(escaped) / sizeof(escaped[0]) || character < escaped[range][0]);
            const size_t written = plain_line(line, sizeof(line), text);
            if (written != (stays ? length : 4 * length) || (stays && strcmp(line, text) != 0)) {
                fail_msg("%x in %zu bytes: \"%s\"", character, length, line);
            }
        }
    }
    char line[30];
    for (unsigned byte = 1; byte < 256; byte++) { /* only some bytes go on with a character */
        const char two[] = {'\xc3', (char) byte, '\0'};
        const char three[] = {'\xe2', '\x82', (char) byte, '\0'};
        const bool goes_on = byte >= 0x80 && byte < 0xc0;
        (void) plain_line(line, sizeof(line), two);
        assert_int_equal(memcmp(line, goes_on ? two : "\\xc3", goes_on ? 3 : 4), 0);
        (void) plain_line(line, sizeof(line), three);
        assert_int_equal(memcmp(line, goes_on ? three : "\\xe2\\x82", goes_on ? 4 : 8), 0);
    }
    assert_int_equal(plain_line(line, sizeof(line), "\xf8\x88\x80\x80\x80"), 20); /* five bytes */
    assert_int_equal(plain_line(line, sizeof(line), "\xff\xbf\xbf\xbf"), 16);
    /* What does not fit is left out as a whole. */
    assert_int_equal(plain_line(line, 4, "a\xe2\x82\xac"), 1);
    assert_int_equal(plain_line(line, 5, "a\xe2\x82\xac"), 4);
    assert_int_equal(plain_line(line, 5, "a\n"), 1);
    assert_int_equal(plain_line(line, 6, "a\n"), 5);
    assert_int_equal(plain_line(line, 1, "a"), 0);
    assert_string_equal(line, "");
}

static void expect_plain(const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        if ((unsigned char) *at < ' ' || *at == 0x7f) {
            fail_msg("\"%s\" has byte %d at %zu", text, *at, (size_t) (at - text));
        }
    }
    char again[2000];
    (void) plain_line(again, sizeof(again), text);
    assert_string_equal(again, text); /* so what is not ASCII is whole UTF-8 */
}

static void test_whatever_comes_in_and_however_little_room_there_is_plain_text_comes_out(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int times = 0; times < 20000; times++) {
        char text[64];
        char out[256 + 4];
        const size_t length = random_below(&rng, sizeof(text));
        for (size_t i = 0; i < length; i++) {
            text[i] = (char) (1 + random_below(&rng, 255));
        }
        text[length] = '\0';
        const size_t size = 1 + random_below(&rng, 256);
        memset(out, 'z', sizeof(out));
        const size_t written = plain_line(out, size, text);
        assert_true(written < size);
        assert_int_equal(strlen(out), written);
        assert_int_equal(out[size], 'z');
        expect_plain(out);
        memset(out, 'z', sizeof(out));
        (void) plain_quoted(out, size, text);
        assert_int_equal(out[size], 'z');
        expect_plain(out);
        assert_null(strchr(out, '"'));
    }
}

static void test_entries_that_are_malformed_come_into_the_log_as_one_line(void **state)
{
    (void) state;
    static const char *const fields[] = {"p:x\nERROR redis: all is lost", "p:\x1b[2J\x1b[H", "p:a\xff\xfe", "p:\"; \"",
                                         to_the_left};
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = SECOND};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    for (size_t i = 0; i < 2 * sizeof(fields) / sizeof(fields[0]); i++) {
        struct nodes n;
        nodes_init(&n, &policy, 1);
        const char *text = fields[i / 2];
        loopback_fleet_set_override(n.fleet, i % 2 == 0 ? text : "p:key", i % 2 == 0 ? "nonsense" : text);
        node_open(&n, 0, 0);
        pass(&n, UINT64_C(5) * INTERVAL_MS);
        assert_int_equal(n.node[0].error_lines, 1);
        assert_non_null(strstr(n.node[0].error, "malformed"));
        expect_plain(n.node[0].error);
        /* The entry's own quotes end neither of the quoted texts. */
        const char *field = strstr(n.node[0].error, "malformed: \"");
        assert_non_null(field);
        const char *value = strchr(field + strlen("malformed: \""), '"');
        assert_non_null(value);
        assert_int_equal(strncmp(value, "\" with \"", strlen("\" with \"")), 0);
        value = strchr(value + strlen("\" with \""), '"');
        assert_non_null(value);
        assert_int_equal(value[1], ':');
        nodes_stop(&n);
    }
}

static void test_the_name_of_a_node_stays_within_its_label(void **state)
{
    (void) state;
    static char metrics[65536];
    weir_options options = WEIR_OPTIONS_INIT;
    options.redis_url = "redis://127.0.0.1:1";
    options.node_name = "a\"} 1\nweir_redis_up 1\n\\\x1b[31m\xff";
    weir *w = open_or_fail(&options);
    assert_in_range(weir_write_metrics(w, metrics, sizeof(metrics)), 1, sizeof(metrics) - 1);
    const char *line = strstr(metrics, "\nweir_node_info{");
    assert_non_null(line);
    line = strstr(line, ",name=\"");
    assert_non_null(line);
    assert_string_equal(line, ",name=\"a_} 1_weir_redis_up 1___[31m_\"} 1\n");
    weir_close(w);
}

/* What has been logged so far. */
struct kept {
    _Atomic uint64_t lines;
    char line[500];
};

static void keep(void *arg, weir_log_level level, const char *message)
{
    struct kept *kept = arg;
    if (level != WEIR_LOG_INFO && load_acquire(&kept->lines) == 0) {
        (void) snprintf(kept->line, sizeof(kept->line), "%s", message);
        store_release(&kept->lines, 1);
    }
}

static void test_what_a_server_says_comes_into_the_log_as_one_line(void **state)
{
    (void) state;
    static const char *const answers[] = {"-ERR \x1b[31m\x07 \"a\tb\" \xff\xc2\x9b[1m\r\n",
                                          "-NOAUTH \xe2\x80\xa8 ERROR redis: all is lost\r\n"};
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct fake_server fake;
        struct kept kept = {0};
        char url[64];
        fake_server_start(&fake, answers[i], strlen(answers[i]), false);
        (void) snprintf(url, sizeof(url), "redis://127.0.0.1:%d", fake.port);
        weir_options options = WEIR_OPTIONS_INIT;
        options.redis_url = url;
        options.log = keep;
        options.log_arg = &kept;
        weir *w = open_or_fail(&options);
        const uint64_t until_ns = real_ns() + 60 * SECOND;
        while (load_acquire(&kept.lines) == 0) {
            const struct timespec pause = {.tv_nsec = 1000000};
            assert_true(real_ns() < until_ns);
            (void) nanosleep(&pause, NULL);
        }
        weir_close(w);
        fake_server_stop(&fake);
        assert_non_null(strstr(kept.line, i == 0 ? "\\x1b[31m\\x07" : "\\xe2\\x80\\xa8 ERROR"));
        expect_plain(kept.line);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_printable_stays_and_the_rest_becomes_digits),
        cmocka_unit_test(test_every_character_stays_but_those_that_control_a_line_and_other_forms_are_none),
        cmocka_unit_test(test_whatever_comes_in_and_however_little_room_there_is_plain_text_comes_out),
        cmocka_unit_test(test_entries_that_are_malformed_come_into_the_log_as_one_line),
        cmocka_unit_test(test_what_a_server_says_comes_into_the_log_as_one_line),
        cmocka_unit_test(test_the_name_of_a_node_stays_within_its_label),
    };
    return cmocka_run_group_tests_name("unit/base/plain", tests, NULL, NULL);
}
