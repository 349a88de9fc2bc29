/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers and bytes as text, against printf; text of any length in a buffer of any size; the sentence of an error.
 *
 * Guards: src/base/digits.h, src/base/percent.c, src/base/text.h, src/base/error.c, src/base/plain.h
 */
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/digits.h"
#include "base/error.h"
#include "base/percent.h"
#include "base/plain.h"
#include "support/support.h"

static void test_numbers_are_written_as_printf_writes_them(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned i = 0; i < 20000; i++) {
        /* Of any length; 0 and the greatest are among the first. */
        const uint64_t number =
            i < 65 ? (i != 64 ? (UINT64_C(1) << i) - 1 : UINT64_MAX) : random_next(&rng) >> random_below(&rng, 64);
        char expected[40];
        char out[40];
        memset(out, 'x', sizeof(out));
        (void) snprintf(expected, sizeof(expected), "%" PRIu64, number);
        assert_int_equal(decimal_write(out, number), strlen(expected));
        assert_string_equal(out, expected);
    }
    assert_int_equal(decimal_write((char[DECIMAL_SIZE]){""}, UINT64_MAX), DECIMAL_SIZE - 1);
    assert_string_equal(plain_number(0, "policy", "policies"), "policies");
    assert_string_equal(plain_number(1, "policy", "policies"), "policy");
    assert_string_equal(plain_number(2, "policy", "policies"), "policies");
}

static bool is_digit(int c)
{
    return c != '\0' && strchr("0123456789abcdefABCDEF", c) != NULL;
}

static void test_bytes_are_two_digits_each_of_either_case(void **state)
{
    (void) state;
    for (int first = -128; first < 128; first++) {
        for (int second = -128; second < 128; second++) {
            const char digits[] = {(char) first, (char) second, '\0'};
            const bool good = is_digit(first) && is_digit(second);
            assert_int_equal(hex_read_byte(digits), good ? (int) strtol(digits, NULL, 16) : -1);
        }
    }
    unsigned char bytes[256];
    char out[512 + 1] = "";
    char expected[512 + 1];
    for (unsigned i = 0; i < 256; i++) {
        bytes[i] = (unsigned char) i;
        (void) snprintf(expected + (size_t) 2 * i, 3, "%02x", i);
    }
    out[512] = '!'; /* no terminator is written */
    assert_int_equal(hex_write(out, bytes, sizeof(bytes)), 512);
    assert_memory_equal(out, expected, 512);
    assert_int_equal(out[512], '!');
}

static void test_printable_bytes_stay_and_others_are_escaped(void **state)
{
    (void) state;
    unsigned char bytes[256];
    char out[3 * 256];
    char expected[3 * 256 + 1] = "";
    size_t length = 0;
    for (unsigned i = 0; i < 256; i++) {
        const bool stays = i > 0x20 && i < 0x7f && strchr("%{}", (int) i) == NULL;
        bytes[i] = (unsigned char) i;
        length += (size_t) snprintf(expected + length, 4, stays ? "%c" : "%%%02x", i);
    }
    assert_int_equal(percent_escape(out, bytes, sizeof(bytes)), length);
    assert_memory_equal(out, expected, length);
    unsigned char again[256 + 1];
    assert_int_equal(percent_unescape(again, 256, expected), 256);
    assert_memory_equal(again, bytes, 256);
    assert_int_equal(percent_unescape(again, 255, expected), SIZE_MAX); /* too long by one */
    assert_int_equal(percent_escape(out, "", 0), 0);
}

static void test_escapes_are_read_in_either_case_and_malformed_ones_are_refused(void **state)
{
    (void) state;
    static const struct {
        const char *text, *bytes;
        size_t size, length; /* of the room; of the bytes */
    } all[] = {{"", "", 0, 0},
               {"a", "a", 1, 1},
               {"a", "", 0, SIZE_MAX},
               {"%4a%4A x", "JJ x", 4, 4},
               {"%4a%4A x", "", 3, SIZE_MAX},
               {"a%00b", "a\0b", 3, 3},
               {"%25", "%", 1, 1},
               {"%ff", "\xff", 1, 1},
               {"\xff ", "\xff ", 2, 2},
               {"%", "", 4, SIZE_MAX},
               {"a%4", "", 4, SIZE_MAX},
               {"%g0", "", 4, SIZE_MAX},
               {"%0g", "", 4, SIZE_MAX},
               {"%%41", "", 4, SIZE_MAX}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        char out[8];
        memset(out, '!', sizeof(out));
        assert_int_equal(percent_unescape(out, all[i].size, all[i].text), all[i].length);
        if (all[i].length != SIZE_MAX) {
            assert_memory_equal(out, all[i].bytes, all[i].length);
        }
        assert_int_equal(out[all[i].size], '!'); /* nothing behind the room is written */
    }
}

static void test_text_is_cut_where_the_buffer_ends_and_counted_as_a_whole(void **state)
{
    (void) state;
    static const char whole[] = "7 of 12, \"a\\\"b\\\\c\".";
    for (size_t size = 0; size <= sizeof(whole) + 2; size++) {
        char buffer[sizeof(whole) + 8];
        memset(buffer, '!', sizeof(buffer));
        struct text text = {.buffer = buffer, .size = size};
        text_add(&text, "%d of %d", 7, 12);
        text_add(&text, ", ");
        text_add_quoted(&text, "a\"b\\c");
        text_add(&text, "%s", ".");
        assert_int_equal(text.length, strlen(whole));
        const size_t fits = size < sizeof(whole) ? size : sizeof(whole);
        if (fits != 0) {
            assert_memory_equal(buffer, whole, fits - 1);
            assert_int_equal(buffer[fits - 1], '\0');
        }
        assert_int_equal(buffer[fits], '!');
    }
    struct text none = {.buffer = NULL};
    text_add_quoted(&none, "ab");
    assert_int_equal(none.length, 4);
}

static void test_an_error_is_one_printable_sentence(void **state)
{
    (void) state;
    weir_error error;
    char bytes[256];
    char expected[256];
    for (unsigned i = 1; i < 256; i++) {
        bytes[i - 1] = (char) i;
        expected[i - 1] = (char) (i >= 0x20 && i < 0x7f ? i : '?');
    }
    bytes[255] = expected[255] = '\0';
    assert_int_equal(error_set(&error, -EINVAL, "%d: %s", 5, bytes), -EINVAL);
    assert_int_equal(error.code, -EINVAL);
    assert_memory_equal(error.message, "5: ", 3);
    expected[sizeof(error.message) - 4 < 255 ? sizeof(error.message) - 4 : 255] = '\0'; /* as much as there is room */
    assert_string_equal(error.message + 3, expected);
    assert_int_equal(error_set(NULL, -ENOMEM, "nobody reads it"), -ENOMEM);
    assert_int_equal(error_clear(&error), 0);
    assert_int_equal(error.code, 0);
    assert_string_equal(error.message, "");
    assert_int_equal(error_clear(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_written_as_printf_writes_them),
        cmocka_unit_test(test_bytes_are_two_digits_each_of_either_case),
        cmocka_unit_test(test_printable_bytes_stay_and_others_are_escaped),
        cmocka_unit_test(test_escapes_are_read_in_either_case_and_malformed_ones_are_refused),
        cmocka_unit_test(test_text_is_cut_where_the_buffer_ends_and_counted_as_a_whole),
        cmocka_unit_test(test_an_error_is_one_printable_sentence),
    };
    return cmocka_run_group_tests_name("unit/base/text", tests, NULL, NULL);
}
