/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What clients send, as the lines of nginx's log have it: it stays between its quotes, and is as long as it says.
 *
 * Guards: apps/nginx/quote.c, src/base/plain.c
 */
#include <stdio.h>
#include <string.h>

#include "../apps/nginx/quote.h"
#include "support/support.h"

static void test_a_value_stays_between_its_quotes(void **state)
{
    (void) state;
    static const struct {
        const char *value;
        size_t length;
        const char *quoted;
    } cases[] = {
        {"", 0, ""},
        {"12x", 3, "12x"},
        {"a\nb\0c", 5, "a\\x0ab\\x00c"},
        {"\x1b[31m", 5, "\\x1b[31m"},
        {"\"a\\\"", 4, "\\x22a\\x5c\\x22"},
        {"h\xc3\xa9", 3, "h\xc3\xa9"},
        {"h\xc3\xa9", 2, "h\\xc3"}, /* what stands behind the value is not read */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[QUOTE_SIZE];
        assert_ptr_equal(quote(out, (const unsigned char *) cases[i].value, cases[i].length), out);
        assert_string_equal(out, cases[i].quoted);
    }
}

/* One byte more than is quoted shows as three dots, however long the text is as escapes. */
static void test_a_long_value_is_cut_and_says_so(void **state)
{
    (void) state;
    static const unsigned char bytes[] = {'x', '\n'};
    for (size_t b = 0; b < 2; b++) {
        for (size_t length = QUOTE_MOST - 1; length < QUOTE_MOST + 3; length++) {
            unsigned char value[QUOTE_MOST + 3];
            char out[QUOTE_SIZE];
            char expected[QUOTE_SIZE] = "";
            size_t at = 0;
            memset(value, bytes[b], sizeof(value));
            for (size_t i = 0; i < length && i < QUOTE_MOST; i++) {
                at += (size_t) snprintf(expected + at, sizeof(expected) - at, "%s", b == 0 ? "x" : "\\x0a");
            }
            (void) snprintf(expected + at, sizeof(expected) - at, "%s", length > QUOTE_MOST ? "..." : "");
            assert_string_equal(quote(out, value, length), expected);
        }
    }
}

/* Whatever the bytes are: no quote, backslash or control character is left but those of escapes. */
static void test_no_bytes_get_out(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int round = 0; round < 20000; round++) {
        unsigned char value[2 * QUOTE_MOST];
        char out[QUOTE_SIZE];
        const size_t length = random_below(&rng, sizeof(value) + 1);
        for (size_t i = 0; i < length; i++) {
            value[i] = (unsigned char) random_below(&rng, 256);
        }
        (void) quote(out, value, length);
        for (const unsigned char *c = (const unsigned char *) out; *c != '\0'; c++) {
            assert_true(*c >= ' ' && *c != 0x7f && *c != '"');
            assert_true(*c != '\\' || c[1] == 'x');
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_value_stays_between_its_quotes),
        cmocka_unit_test(test_a_long_value_is_cut_and_says_so),
        cmocka_unit_test(test_no_bytes_get_out),
    };
    return cmocka_run_group_tests_name("unit/apps/nginx_quote", tests, NULL, NULL);
}
