/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic at its ends: a sum or a product that has no room is the greatest number, and a difference below 0 is 0.
 * Counts that begin anew, and numbers in few bits.
 *
 * Guards: src/base/numbers.h, src/base/count.h, src/base/minifloat.h
 */
#include "base/count.h"
#include "base/minifloat.h"
#include "base/numbers.h"
#include "support/support.h"

#define MOST UINT64_MAX
#define HALF (UINT64_C(1) << 63) /* twice this number is one more than the greatest */
#define ROOT (UINT64_C(1) << 32) /* the square of this number is one more than the greatest */

static void test_a_sum_without_room_is_the_greatest_number(void **state)
{
    (void) state;
    assert_int_equal(saturating_add(0, 0), 0);
    assert_int_equal(saturating_add(2, 3), 5);
    assert_int_equal(saturating_add(MOST - 1, 0), MOST - 1);
    assert_int_equal(saturating_add(MOST - 2, 1), MOST - 1);
    assert_int_equal(saturating_add(MOST - 1, 1), MOST);
    assert_int_equal(saturating_add(MOST, 1), MOST); /* would be 0 */
    assert_int_equal(saturating_add(1, MOST), MOST);
    assert_int_equal(saturating_add(HALF, HALF), MOST); /* would be 0 */
    assert_int_equal(saturating_add(MOST, MOST), MOST); /* would be MOST - 1 */
}

static void test_a_difference_below_zero_is_zero(void **state)
{
    (void) state;
    assert_int_equal(saturating_sub(5, 3), 2);
    assert_int_equal(saturating_sub(5, 5), 0);
    assert_int_equal(saturating_sub(MOST, 0), MOST);
    assert_int_equal(saturating_sub(MOST, MOST), 0);
    assert_int_equal(saturating_sub(5, 6), 0); /* would be MOST */
    assert_int_equal(saturating_sub(0, 1), 0);
    assert_int_equal(saturating_sub(0, MOST), 0); /* would be 1 */
    assert_int_equal(saturating_sub(HALF - 1, HALF), 0);
}

static void test_a_product_without_room_is_the_greatest_number(void **state)
{
    (void) state;
    assert_int_equal(saturating_mul(6, 7), 42);
    assert_int_equal(saturating_mul(MOST, 0), 0);
    assert_int_equal(saturating_mul(0, MOST), 0);
    assert_int_equal(saturating_mul(MOST, 1), MOST);
    assert_int_equal(saturating_mul(ROOT - 1, ROOT + 1), MOST); /* exactly the greatest number */
    assert_int_equal(saturating_mul(ROOT, ROOT - 1), MOST - (ROOT - 1));
    assert_int_equal(saturating_mul(ROOT, ROOT), MOST); /* would be 0 */
    assert_int_equal(saturating_mul(HALF, 2), MOST);    /* would be 0 */
    assert_int_equal(saturating_mul(HALF + 1, 2), MOST);
    assert_int_equal(saturating_mul(MOST, MOST), MOST); /* would be 1 */
}

static void test_a_quotient_is_rounded_as_its_name_says(void **state)
{
    (void) state;
    assert_int_equal(muldiv_floor(7, 3, 2), 10);
    assert_int_equal(muldiv_ceil(7, 3, 2), 11);
    assert_int_equal(muldiv_floor(8, 3, 2), 12);
    assert_int_equal(muldiv_ceil(8, 3, 2), 12);
    assert_int_equal(muldiv_floor(0, MOST, 1), 0);
    assert_int_equal(muldiv_ceil(0, MOST, MOST), 0);
    assert_int_equal(muldiv_floor(1, 1, MOST), 0);
    assert_int_equal(muldiv_ceil(1, 1, MOST), 1);
}

/* The product has 128 bits, whatever the quotient has. */
static void test_a_product_that_is_divided_again_may_be_beyond_the_greatest_number(void **state)
{
    (void) state;
    assert_int_equal(muldiv_floor(MOST, MOST, MOST), MOST);
    assert_int_equal(muldiv_ceil(MOST, MOST, MOST), MOST);
    assert_int_equal(muldiv_floor(MOST, 3, 4), MOST / 4 * 3 + 2);
    assert_int_equal(muldiv_ceil(MOST, 3, 4), MOST / 4 * 3 + 3);
    assert_int_equal(muldiv_floor(HALF, ROOT, ROOT), HALF);
    assert_int_equal(muldiv_ceil(MOST, MOST - 1, MOST), MOST - 1);
}

static void test_a_quotient_without_room_is_the_greatest_number(void **state)
{
    (void) state;
    assert_int_equal(muldiv_floor(HALF, 2, 1), MOST); /* would be 0 */
    assert_int_equal(muldiv_ceil(HALF, 2, 1), MOST);
    assert_int_equal(muldiv_floor(MOST, MOST, 1), MOST); /* would be 1 */
    assert_int_equal(muldiv_ceil(MOST, MOST, 1), MOST);
    assert_int_equal(muldiv_floor(MOST, MOST, MOST - 1), MOST); /* a little more than the greatest number */
    assert_int_equal(muldiv_ceil(MOST, MOST, MOST - 1), MOST);
    /* This product is 2^65 - 1: half of it lies between the greatest number and the next one. */
    assert_int_equal(muldiv_floor(UINT64_C(145295143558111), 253921, 2), MOST);
    assert_int_equal(muldiv_ceil(UINT64_C(145295143558111), 253921, 2), MOST); /* would be 0 */
}

static void test_the_lesser_and_the_greater_of_two(void **state)
{
    (void) state;
    assert_int_equal(min_u64(MOST, 0), 0);
    assert_int_equal(min_u64(0, MOST), 0);
    assert_int_equal(min_u64(HALF - 1, HALF), HALF - 1); /* as signed numbers the other way round */
    assert_int_equal(max_u64(MOST, 0), MOST);
    assert_int_equal(max_u64(0, MOST), MOST);
    assert_int_equal(max_u64(HALF - 1, HALF), HALF);
    assert_int_equal(min_u64(3, 3), 3);
    assert_int_equal(max_u64(3, 3), 3);
}

/* Counts: base/count.h */

#define RESTART (UINT64_C(1) << 52)

/* A true count as it is reported: exact below 2^53, then the same numbers over and over. */
static uint64_t reported(uint64_t count)
{
    return count < 2 * RESTART ? count : RESTART + count % RESTART;
}

/* A count that grows for ever, often near a number at which what is reported begins anew. */
static uint64_t draw_count(uint64_t *rng)
{
    const uint64_t near = RESTART * random_below(rng, 40);
    const uint64_t away = draw_magnitude(rng, 1, RESTART / 2);
    return draw_once_in(rng, 2) && near > away ? near - away : near + away - 1;
}

static void test_counts_that_begin_anew_are_added_and_compared_as_if_they_did_not(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    assert_int_equal(count_wire(2 * RESTART - 1), 2 * RESTART - 1);
    assert_int_equal(count_wire(2 * RESTART), RESTART);
    assert_int_equal(count_growth(0, RESTART - 1), RESTART - 1); /* exact, however far */
    assert_int_equal(count_growth(0, 2 * RESTART - 1), 2 * RESTART - 1);
    assert_int_equal(count_growth(5, 4), 0);
    assert_int_equal(count_growth(RESTART, RESTART + RESTART / 2 - 1), RESTART / 2 - 1);
    assert_int_equal(count_growth(RESTART, RESTART + RESTART / 2), 0); /* as if it were earlier */
    assert_int_equal(count_growth(RESTART, RESTART - 1), 0);
    for (unsigned i = 0; i < 100000; i++) {
        const uint64_t was = RESTART + draw_count(&rng);
        const uint64_t more = draw_magnitude(&rng, 1, RESTART / 2) - 1;
        assert_int_equal(count_wire(was), reported(was));
        assert_int_equal(count_add(reported(was), more), reported(was + more));
        assert_int_equal(count_growth(reported(was), reported(was + more)), more);
        assert_int_equal(count_growth(reported(was + more), reported(was)), 0);
        const uint64_t early = draw_magnitude(&rng, 1, RESTART) - 1;
        const uint64_t later = draw_magnitude(&rng, 1, 2 * RESTART);
        assert_int_equal(count_growth(early, later), later > early ? later - early : 0);
        assert_int_equal(count_add(early, later), reported(early + later));
    }
    assert_int_equal(count_add(5, UINT64_MAX), RESTART + (5 + UINT64_MAX % RESTART) % RESTART);
}

static void test_the_remote_part_of_a_sum_never_decreases(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    assert_int_equal(count_remote(0, 10, 3), 7);
    assert_int_equal(count_remote(8, 10, 3), 8);
    assert_int_equal(count_remote(0, 3, 10), 0); /* the fleet has lost what was reported */
    assert_int_equal(count_remote(0, RESTART + 100, 5),
                     RESTART + 95); /* 5 is exact: the others have so much at least */
    assert_int_equal(count_remote(0, RESTART, RESTART - 1), 1);
    for (unsigned i = 0; i < 100000; i++) {
        const uint64_t local = draw_count(&rng);
        const uint64_t known = draw_once_in(&rng, 2) ? draw_count(&rng) : draw_magnitude(&rng, 1, RESTART - 1);
        const uint64_t more = draw_magnitude(&rng, 1, RESTART / 2) - 1;
        const uint64_t sum = reported(local + known + more);
        const uint64_t own = draw_once_in(&rng, 2) ? local : reported(local);
        assert_int_equal(count_remote(known, sum, own), known + more);
        assert_false(count_is_behind(known, sum, own));
        assert_int_equal(count_remote(known + more, reported(local + known), own), known + more);
        assert_int_equal(count_is_behind(known + more, reported(local + known), own), more != 0);
        if (known < RESTART) { /* of what is not known yet, the least that it can be */
            assert_int_equal(count_remote(0, reported(local + known), reported(local)), known);
        }
    }
}

/* Numbers in few bits: base/minifloat.h */

static void test_a_form_is_the_least_number_that_it_stands_for(void **state)
{
    (void) state;
    uint64_t before = 0;
    for (uint64_t form = 0; form < (UINT64_C(31) << MINIFLOAT_EXACT); form++) {
        const uint64_t number = minifloat_decode(form);
        assert_true(form == 0 ? number == 0 : number > before);
        assert_true(number < (UINT64_C(1) << 44));
        assert_int_equal(minifloat_encode(number), form);
        if (form != 0) { /* all between two forms are rounded down, by less than one in 16,384 */
            assert_int_equal(minifloat_encode(number - 1), form - 1);
            assert_true(number - 1 - before <= before >> MINIFLOAT_EXACT);
        }
        before = number;
    }
    assert_int_equal(minifloat_encode((UINT64_C(1) << 44) - 1), (UINT64_C(31) << MINIFLOAT_EXACT) - 1);
    assert_int_equal(minifloat_decode(5 | UINT64_C(3) << MINIFLOAT_BITS), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sum_without_room_is_the_greatest_number),
        cmocka_unit_test(test_a_difference_below_zero_is_zero),
        cmocka_unit_test(test_a_product_without_room_is_the_greatest_number),
        cmocka_unit_test(test_a_quotient_is_rounded_as_its_name_says),
        cmocka_unit_test(test_a_product_that_is_divided_again_may_be_beyond_the_greatest_number),
        cmocka_unit_test(test_a_quotient_without_room_is_the_greatest_number),
        cmocka_unit_test(test_the_lesser_and_the_greater_of_two),
        cmocka_unit_test(test_counts_that_begin_anew_are_added_and_compared_as_if_they_did_not),
        cmocka_unit_test(test_the_remote_part_of_a_sum_never_decreases),
        cmocka_unit_test(test_a_form_is_the_least_number_that_it_stands_for),
    };
    return cmocka_run_group_tests_name("unit/base/numbers", tests, NULL, NULL);
}
