/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic at its ends: a sum or a product that has no room is the greatest number, and a difference below 0 is 0.
 * Counts that begin anew, and numbers in few bits.
 *
 * Guards: src/base/numbers.h, src/base/minifloat.h
 */
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
        cmocka_unit_test(test_a_form_is_the_least_number_that_it_stands_for),
    };
    return cmocka_run_group_tests_name("unit/base/numbers", tests, NULL, NULL);
}
