/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Units from the texts that nginx's variables have.
 *
 * Guards: apps/nginx/units.c
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../apps/nginx/units.h"
#include "support/support.h"

static void test_numbers_are_read_and_added_up(void **state)
{
    (void) state;
    static const struct {
        const char *text;
        uint64_t units;
    } good[] = {
        {"", 0},
        {"0", 0},
        {"1", 1},
        {"007", 7},
        {"4096", 4096},
        {"0.000", 0},
        {"0.001", 1},
        {"1.5", 2},
        {"2.", 2},
        {"-", 0},
        {"-, -", 0},
        {"100, 200 : 300", 600},
        {"0.5, -, 0.25", 2},
        {"4398046511103", WEIR_MAX_UNITS},
        {"4398046511104", WEIR_MAX_UNITS},
        {"4398046511103, 1", WEIR_MAX_UNITS},
        {"4398046511103.9", WEIR_MAX_UNITS},
        {"99999999999999999999999999999999", WEIR_MAX_UNITS},
        {"18446744073709551616", WEIR_MAX_UNITS},
        {"4398046511102, 1", WEIR_MAX_UNITS},
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        uint64_t units = 12345;
        const size_t length = strlen(good[i].text);
        if (!units_read((const unsigned char *) good[i].text, length, &units) || units != good[i].units) {
            fail_msg("\"%s\" is %" PRIu64 ", not %" PRIu64, good[i].text, units, good[i].units);
        }
    }
}

static void test_what_is_no_number_is_refused(void **state)
{
    (void) state;
    static const char *const bad[] = {"x", "1x", "-1", "--", ".5", "1.2.3", "1;2", "+1", "1e3", "0x10", "1,a", "\t1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        uint64_t units = 0;
        if (units_read((const unsigned char *) bad[i], strlen(bad[i]), &units)) {
            fail_msg("\"%s\" is read as %" PRIu64, bad[i], units);
        }
    }
}

/* The text need not be terminated, and nothing behind it is read. */
static void test_a_text_ends_where_its_length_says(void **state)
{
    (void) state;
    static const unsigned char text[] = "12345.6";
    uint64_t units = 0;
    for (size_t length = 1; length <= 5; length++) {
        uint64_t expected = 0;
        for (size_t i = 0; i < length; i++) {
            expected = expected * 10 + (uint64_t) (text[i] - '0');
        }
        assert_true(units_read(text, length, &units));
        assert_int_equal(units, expected);
    }
    assert_true(units_read(text, 6, &units));
    assert_int_equal(units, 12345);
    assert_true(units_read(text, 7, &units));
    assert_int_equal(units, 12346);
}

/* Sums of drawn numbers, against the plain sum. */
static void test_drawn_sums_are_right(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int round = 0; round < 2000; round++) {
        char text[256] = "";
        size_t length = 0;
        uint64_t sum = 0;
        for (uint64_t left = random_below(&rng, 6); left > 0; left--) {
            const uint64_t number = random_next(&rng) >> (8 + random_below(&rng, 56));
            length +=
                (size_t) snprintf(text + length, sizeof(text) - length, "%s%" PRIu64, length != 0 ? ", " : "", number);
            sum += number;
        }
        uint64_t units = 0;
        assert_true(units_read((const unsigned char *) text, length, &units));
        assert_int_equal(units, sum < WEIR_MAX_UNITS ? sum : WEIR_MAX_UNITS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_are_read_and_added_up),
        cmocka_unit_test(test_what_is_no_number_is_refused),
        cmocka_unit_test(test_a_text_ends_where_its_length_says),
        cmocka_unit_test(test_drawn_sums_are_right),
    };
    return cmocka_run_group_tests_name("unit/apps/nginx_units", tests, NULL, NULL);
}
