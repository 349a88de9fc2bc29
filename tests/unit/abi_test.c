/* SPDX-License-Identifier: Apache-2.0 */
/* What a program may rely on that was compiled with another version of the header. */
#include <stdio.h>
#include <string.h>

#include "support/support.h"

#define UNTOUCHED 0xa5

/* What weir_stats was in version 0.1.0, in bytes. */
#define FIRST_STATS_SIZE 264

static void test_the_version_is_that_of_the_header_and_of_the_build(void **state)
{
    (void) state;
    char header[32];
    (void) snprintf(header, sizeof(header), "%d.%d.%d", WEIR_VERSION_MAJOR, WEIR_VERSION_MINOR, WEIR_VERSION_PATCH);
    assert_string_equal(weir_version(), header);
    assert_string_equal(weir_version(), PROJECT_VERSION);
}

/* Room for the struct of a later header. */
union later {
    weir_stats stats;
    unsigned char bytes[sizeof(weir_stats) + 64];
};

static void expect_bytes(const union later *later, size_t from, size_t to, unsigned char value)
{
    for (size_t i = from; i < to; i++) {
        if (later->bytes[i] != value) {
            fail_msg("byte %zu is 0x%02x, not 0x%02x", i, later->bytes[i], value);
        }
    }
}

static void test_statistics_fill_the_room_that_the_caller_has(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    union later later;

    memset(&later, UNTOUCHED, sizeof(later));
    weir_get_stats_sized(w, &later.stats, offsetof(weir_stats, key_capacity));
    expect_bytes(&later, 0, offsetof(weir_stats, key_capacity), 0); /* nothing was checked */
    expect_bytes(&later, offsetof(weir_stats, key_capacity), sizeof(later), UNTOUCHED);

    memset(&later, UNTOUCHED, sizeof(later));
    weir_get_stats_sized(w, &later.stats, sizeof(later));
    assert_true(later.stats.key_capacity >= 65536);
    assert_true(later.stats.memory_size > 0);
    expect_bytes(&later, sizeof(weir_stats), sizeof(later), 0);

    memset(&later, UNTOUCHED, sizeof(later));
    weir_get_stats(w, &later.stats);
    assert_true(later.stats.key_capacity >= 65536);
    expect_bytes(&later, sizeof(weir_stats), sizeof(later), UNTOUCHED);
    weir_close(w);
}

static void test_statistics_without_a_size_stay_within_the_first_struct(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    union later later;
    memset(&later, UNTOUCHED, sizeof(later));
    (weir_get_stats)(w, &later.stats);
    assert_true(later.stats.key_capacity >= 65536);
    assert_int_equal(later.stats.forgiven_count, 0);
    expect_bytes(&later, FIRST_STATS_SIZE, sizeof(later), UNTOUCHED);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_version_is_that_of_the_header_and_of_the_build),
        cmocka_unit_test(test_statistics_fill_the_room_that_the_caller_has),
        cmocka_unit_test(test_statistics_without_a_size_stay_within_the_first_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
