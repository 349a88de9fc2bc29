/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program that was compiled with another version of the header may rely on.
 *
 * Guards: src/limiter/stats.c, src/limiter/weir.c, include/weir/weir.h
 */
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

#define FIELD(name, at)                                                                                                \
    {                                                                                                                  \
#name, offsetof(weir_stats, name), at                                                                          \
    }

/* Where a program that was compiled against 0.1.0 looks for each counter, whatever the counter is called now. */
static void test_a_field_of_statistics_stays_where_it_is(void **state)
{
    (void) state;
    static const struct {
        const char *name;
        size_t is, was;
    } fields[] = {
        FIELD(allowed_count, 0),
        FIELD(denied_count, 8),
        FIELD(would_deny_count, 16),
        FIELD(unknown_policy_count, 24),
        FIELD(slow_count, 32),
        FIELD(untracked_count, 40),
        FIELD(late_units, 48),
        FIELD(key_count, 56),
        FIELD(key_capacity, 64),
        FIELD(evicted_unused_count, 72),
        FIELD(evicted_used_count, 80),
        FIELD(lost_report_count, 88),
        FIELD(thread_count, 96),
        FIELD(live_nodes, 100),
        FIELD(link, 104),
        FIELD(fleet_age_ns, 112),
        FIELD(round_trip_ns, 120),
        FIELD(sync_count, 128),
        FIELD(sync_error_count, 136),
        FIELD(connection_count, 144),
        FIELD(redis_lost_state_count, 152),
        FIELD(report_count, 160),
        FIELD(rejected_report_count, 168),
        FIELD(memory_size, 176),
        FIELD(override_count, 184),
        FIELD(deferred_report_count, 192),
        FIELD(urgent_sync_count, 200),
        FIELD(report_retry_count, 208),
        FIELD(pending_key_count, 216),
        FIELD(deferred_key_count, 224),
        FIELD(denied_units, 232),
        FIELD(evicted_denied_units, 240),
        FIELD(evicted_restored_count, 248),
        FIELD(evicted_unrecorded_count, 256),
        FIELD(connection_attempt_count, 264),
        FIELD(process_count, 272),
        FIELD(stalled_denied_count, 280),
        FIELD(unlimited_count, 288),
        FIELD(attach_error_count, 296),
        FIELD(dropped_policy_count, 304),
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (fields[i].is != fields[i].was) {
            fail_msg("%s is at %zu, and was at %zu", fields[i].name, fields[i].is, fields[i].was);
        }
    }
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

/* A program that was compiled before may have anything in the padding behind its last option, and gives its size. */
static void test_new_options_lie_behind_the_padding_of_earlier_ones(void **state)
{
    (void) state;
    const size_t padded = (offsetof(weir_options, no_denial_log) / sizeof(void *) + 1) * sizeof(void *);
    assert_int_equal(offsetof(weir_options, shared), padded);
    /* A program that was compiled before shared_name ends its options behind max_processes. */
    assert_int_equal(offsetof(weir_options, shared_name), offsetof(weir_options, max_processes) + sizeof(uint32_t));
    assert_int_equal(offsetof(weir_options, required_policies), offsetof(weir_options, shared_name) + sizeof(char *));
    assert_int_equal(offsetof(weir_options, required_policy_count) + sizeof(size_t), sizeof(weir_options));
}

static void test_statistics_fill_the_room_that_the_caller_has(void **state)
{
    (void) state;
    weir *w = open_or_fail(NULL);
    union later later;

    memset(&later, UNTOUCHED, sizeof(later));
    weir_get_stats_sized(w, &later.stats, offsetof(weir_stats, key_capacity));
    expect_bytes(&later, 0, offsetof(weir_stats, key_capacity), 0); /* no check was made */
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
    assert_int_equal(later.stats.evicted_unrecorded_count, 0);
    expect_bytes(&later, FIRST_STATS_SIZE, sizeof(later), UNTOUCHED);
    weir_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_version_is_that_of_the_header_and_of_the_build),
        cmocka_unit_test(test_a_field_of_statistics_stays_where_it_is),
        cmocka_unit_test(test_new_options_lie_behind_the_padding_of_earlier_ones),
        cmocka_unit_test(test_statistics_fill_the_room_that_the_caller_has),
        cmocka_unit_test(test_statistics_without_a_size_stay_within_the_first_struct),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
