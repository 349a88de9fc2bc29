/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys are denied again and again, among any number of others.
 *
 * Guards: apps/gateway/xdp/repeats.c
 */
#include <stdlib.h>

#include "../apps/gateway/xdp/repeats.h"
#include "support/support.h"

static struct repeats *none(void)
{
    struct repeats *repeats = calloc(1, sizeof(*repeats));
    assert_non_null(repeats);
    return repeats;
}

/* A hash for each number, and another one in each run. */
static uint64_t hash_of(uint64_t seed, uint64_t number)
{
    uint64_t x = (number + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed;
    x = (x ^ x >> 31) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 29;
}

static void test_a_key_repeats_from_its_eighth_denial_in_a_second_on(void **state)
{
    (void) state;
    struct repeats *r = none();
    for (unsigned n = 1; n <= 20; n++) {
        assert_int_equal(repeats_count(r, 77, 1000), n >= REPEATS_LEAST);
    }
    assert_true(repeats_count(r, 77, 1002)); /* and goes on to, when it was held in between */
    for (unsigned n = 1; n <= 20; n++) {
        assert_int_equal(repeats_count(r, 77, 1005), n >= REPEATS_LEAST); /* after a rest it does not */
    }
    free(r);
}

static void test_seven_denials_a_second_never_repeat(void **state)
{
    (void) state;
    struct repeats *r = none();
    for (uint32_t second = 1; second < 100; second++) {
        for (unsigned n = 0; n < REPEATS_LEAST - 1; n++) {
            assert_false(repeats_count(r, 5, second));
        }
    }
    free(r);
}

/* How many of `count` keys, denied in turns, repeat in the end. */
static unsigned count_repeating(uint64_t seed, unsigned count)
{
    struct repeats *r = none();
    unsigned repeating = 0;
    for (unsigned turn = 0; turn < 2 * REPEATS_LEAST; turn++) {
        repeating = 0;
        for (unsigned i = 0; i < count; i++) {
            repeating += repeats_count(r, hash_of(seed, i), 9);
        }
    }
    free(r);
    return repeating;
}

static void test_ten_thousand_sources_in_turns_all_repeat(void **state)
{
    (void) state;
    const uint64_t seed = test_seed();
    /* Some sets have more keys than ways: 10,000 keys in 16,384 sets leave fewer than one in 1,000 without an entry. */
    assert_true(count_repeating(seed, 10000) >= 9900);
    assert_true(count_repeating(seed, 32768) >= 32768 * 8 / 10);
}

static void test_keys_that_repeat_are_seen_beside_others_that_do_not(void **state)
{
    (void) state;
    const uint64_t seed = test_seed();
    struct repeats *r = none();
    uint64_t forged = 1000;
    unsigned repeating = 0;
    /* A hundred keys, and a quarter as many others as there are entries between two denials of each. */
    for (unsigned turn = 0; turn < 2 * REPEATS_LEAST; turn++) {
        repeating = 0;
        for (unsigned i = 0; i < 100; i++) {
            repeating += repeats_count(r, hash_of(seed, i), 9);
        }
        for (unsigned i = 0; i < REPEATS_ENTRIES / 4; i++) {
            assert_false(repeats_count(r, hash_of(seed, forged++), 9));
        }
    }
    assert_true(repeating >= 70);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_key_repeats_from_its_eighth_denial_in_a_second_on),
        cmocka_unit_test(test_seven_denials_a_second_never_repeat),
        cmocka_unit_test(test_ten_thousand_sources_in_turns_all_repeat),
        cmocka_unit_test(test_keys_that_repeat_are_seen_beside_others_that_do_not),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_repeats", tests, NULL, NULL);
}
