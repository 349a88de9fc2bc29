/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of memory against a map of the region: where a block may lie, when there is none, and that the counts hold.
 *
 * Guards: src/base/memory/buddy.c, src/base/memory/buddy.h
 */
#include "base/memory/buddy.h"

#include <string.h>

#include "support/support.h"

#define LARGEST_UNITS (BUDDY_LARGEST / BUDDY_SMALLEST)
#define PARTS         3 /* so many of the largest blocks */
#define UNITS         (PARTS * LARGEST_UNITS)
#define NONE          BUDDY_ORDERS
#define STEPS         test_draws(3000)

static _Alignas(64) unsigned char region[UNITS * BUDDY_SMALLEST];
static uint8_t orders[UNITS];

/* The blocks in use, by the unit that they begin at. */
static struct {
    size_t asked;
    uint32_t units; /* 0: none begins here */
} used[UNITS];

/* The unit of the first block in use from this one on; UNITS: there is none. */
static uint32_t next_used(uint32_t at)
{
    while (at < UNITS && used[at].units == 0) {
        at++;
    }
    return at;
}

static bool is_free(uint32_t at, uint32_t units)
{
    for (uint32_t begin = next_used(0); begin < at + units; begin = next_used(begin + 1)) {
        if (begin + used[begin].units > at) {
            return false;
        }
    }
    return true;
}

/* The order of the largest block that begins at this free unit: as far as its number and the blocks in use allow. */
static unsigned order_at(uint32_t at)
{
    const uint32_t next = next_used(at);
    unsigned order = 0;
    while (order + 1 < BUDDY_ORDERS && at % (2U << order) == 0 && at + (2U << order) <= next) {
        order++;
    }
    return order;
}

/* The smallest order, from `order` on, of a free block among the first `end` units; NONE: there is none. */
static unsigned best_fit(unsigned order, uint32_t end)
{
    unsigned best = NONE;
    for (uint32_t at = 0; at < end;) {
        const unsigned here = order_at(at);
        if (used[at].units != 0) {
            at += used[at].units;
            continue;
        }
        best = here >= order && here < best ? here : best;
        at += 1U << here;
    }
    return best;
}

/* The order of the free block that a unit lies in. */
static unsigned order_around(uint32_t at)
{
    unsigned order = 0;
    while (order + 1 < BUDDY_ORDERS && is_free(at & ~((2U << order) - 1), 2U << order)) {
        order++;
    }
    return order;
}

static void mark(const struct buddy *buddy, uint32_t at)
{
    unsigned char *bytes = buddy_at(buddy, at + 1);
    memset(bytes, (int) (at % 251 + 1), used[at].asked < 64 ? used[at].asked : 64);
}

static void expect_mark(const struct buddy *buddy, uint32_t at)
{
    const unsigned char *bytes = buddy_at(buddy, at + 1);
    for (size_t i = 0; i < used[at].asked && i < 64; i++) {
        assert_int_equal(bytes[i], at % 251 + 1);
    }
}

static void take(struct buddy *buddy, size_t asked)
{
    const size_t fresh = buddy->shared->fresh;
    unsigned order = 0;
    while (((size_t) BUDDY_SMALLEST << order) < asked) {
        order++;
    }
    const unsigned best = order < BUDDY_ORDERS ? best_fit(order, (uint32_t) (fresh / BUDDY_SMALLEST)) : NONE;
    const bool new_part = best == NONE && order < BUDDY_ORDERS && buddy->shared->present - fresh >= BUDDY_LARGEST;
    const uint32_t block = buddy_take(buddy, asked);
    assert_int_equal(buddy->shared->fresh, fresh + (new_part ? BUDDY_LARGEST : 0));
    if (best == NONE && !new_part) {
        assert_int_equal(block, 0);
        return;
    }
    assert_int_not_equal(block, 0);
    const uint32_t at = block - 1;
    const uint32_t units = UINT32_C(1) << order;
    assert_int_equal(at % units, 0);
    assert_true((at + units) * (size_t) BUDDY_SMALLEST <= buddy->shared->fresh && is_free(at, units));
    assert_int_equal(order_around(at), new_part ? BUDDY_ORDERS - 1 : best); /* the smallest one that is enough */
    used[at].asked = asked;
    used[at].units = units;
    mark(buddy, at);
}

static void give(struct buddy *buddy, uint32_t at)
{
    expect_mark(buddy, at);
    used[at].units = 0;
    buddy_give(buddy, at + 1);
}

static void expect_counts(const struct buddy *buddy, uint32_t from)
{
    size_t bytes = 0;
    for (uint32_t at = next_used(0); at < UNITS; at = next_used(at + 1)) {
        bytes += (size_t) used[at].units * BUDDY_SMALLEST;
    }
    assert_int_equal(buddy->shared->used, bytes);
    const uint32_t next = next_used(from);
    assert_int_equal(buddy_next(buddy, from + 1), next < UNITS ? next + 1 : 0);
}

/* A process died within a change: nothing is known but the blocks in use. */
static void make_anew(struct buddy *buddy)
{
    memset(buddy->shared->free, 0xff, sizeof(buddy->shared->free));
    memset(orders, 0x55, buddy->shared->fresh / BUDDY_SMALLEST);
    buddy->shared->used = 12345;
    buddy_clear(buddy);
    for (uint32_t at = next_used(0); at < UNITS; at = next_used(at + 1)) {
        buddy_restore(buddy, at + 1, used[at].asked);
    }
    buddy_restore_free(buddy);
}

static void test_blocks_are_those_of_a_map_of_the_region(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    struct buddy_shared shared = {.present = 0};
    struct buddy buddy;
    assert_int_equal(buddy_overhead(sizeof(region)), sizeof(orders));
    buddy_init(&buddy, &shared, region, sizeof(region), orders);
    assert_int_equal(buddy_take(&buddy, 1), 0); /* no part is present */
    assert_int_equal(buddy_next(&buddy, 1), 0);
    for (unsigned step = 0; step < STEPS; step++) {
        if (step == STEPS / 4 || step == STEPS / 2) {
            make_anew(&buddy);
        }
        if (step % 400 == 0 && shared.present < sizeof(region)) {
            shared.present += BUDDY_LARGEST;
            buddy_init(&buddy, &shared, region, sizeof(region), orders); /* as another process */
        }
        const uint32_t at = next_used((uint32_t) random_below(&rng, UNITS));
        /* For some time more is taken than given, then more is given. */
        if (at < UNITS && random_below(&rng, 8) < (step / 200 % 2 == 0 ? 2 : 5)) {
            give(&buddy, at);
        } else {
            take(&buddy, draw_once_in(&rng, 20) ? BUDDY_LARGEST + random_below(&rng, 2)
                                                : draw_magnitude(&rng, 1, BUDDY_LARGEST / 2));
        }
        expect_counts(&buddy, (uint32_t) random_below(&rng, UNITS));
        for (size_t part = shared.fresh; part < sizeof(region); part += BUDDY_SMALLEST) {
            assert_int_equal(region[part], 0); /* never touched before it is handed out */
        }
    }
    for (uint32_t at = next_used(0); at < UNITS; at = next_used(at)) {
        give(&buddy, at);
    }
    assert_int_equal(shared.used, 0);
    assert_int_equal(shared.fresh, sizeof(region));
    /* All is joined again. */
    for (size_t i = 0; i < PARTS; i++) {
        take(&buddy, BUDDY_LARGEST);
    }
    assert_int_equal(buddy_take(&buddy, 1), 0);
}

static void test_a_block_is_the_smallest_power_of_two_that_is_enough(void **state)
{
    (void) state;
    struct buddy_shared shared = {.present = BUDDY_LARGEST};
    struct buddy buddy;
    memset(orders, 0, sizeof(orders));
    buddy_init(&buddy, &shared, region, sizeof(region), orders);
    static const struct {
        size_t asked, taken;
    } sizes[] = {{BUDDY_LARGEST + 1, 0}, {0, 256},    {1, 256}, {256, 256}, {257, 512}, {512, 512}, {513, 1024},
                 {1 << 19, 1 << 19},     {1 << 20, 0}};
    size_t all = 0;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const uint32_t block = buddy_take(&buddy, sizes[i].asked);
        assert_int_equal(block != 0, sizes[i].taken != 0);
        all += sizes[i].taken;
        assert_int_equal(shared.used, all);
    }
    assert_ptr_equal(buddy_at(&buddy, 1), region);
    assert_ptr_equal(buddy_at(&buddy, 3), region + 512);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_those_of_a_map_of_the_region),
        cmocka_unit_test(test_a_block_is_the_smallest_power_of_two_that_is_enough),
    };
    return cmocka_run_group_tests_name("unit/base/buddy", tests, NULL, NULL);
}
