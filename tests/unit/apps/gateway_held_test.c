/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources and networks whose packets the kernel drops, with a kernel that the test plays: drawn denials, packets and
 * times, against a table of what each key must have.
 *
 * Guards: apps/gateway/xdp/held.c
 */
#include <string.h>

#include "../apps/gateway/xdp/held.h"
#include "support/support.h"

#define CAPACITY 64
#define KEYS     100
#define STEPS    20000

static struct {
    struct held held;
    struct drop_slot slots[CAPACITY];
    uint32_t number_of[KEYS]; /* what the kernel was told; CAPACITY: nothing */
    uint64_t freed_ns[CAPACITY];
    uint64_t now_ns;
    uint64_t dropped[KEYS], told[KEYS]; /* packets */
    bool refuses;                       /* the kernel has no room */
} d;

static uint32_t index_of(const struct drop_key *key)
{
    return (uint32_t) key->address[0] << 8 | key->address[1];
}

static bool add(void *arg, const struct drop_key *key, uint32_t number)
{
    (void) arg;
    if (d.refuses) {
        return false;
    }
    assert_int_equal(d.number_of[index_of(key)], CAPACITY);
    for (size_t i = 0; i < KEYS; i++) {
        assert_int_not_equal(d.number_of[i], number); /* no two keys have one slot */
    }
    /* No packet that was looked up under the number's last key is under way. */
    assert_true(d.freed_ns[number] == 0 || d.freed_ns[number] + HELD_REST_NS < d.now_ns);
    assert_int_equal(d.slots[number].until_ns, 0);
    d.number_of[index_of(key)] = number;
    return true;
}

static void removed(void *arg, const struct drop_key *key)
{
    (void) arg;
    const uint32_t number = d.number_of[index_of(key)];
    assert_true(number < CAPACITY);
    assert_true(d.slots[number].until_ns + HELD_IDLE_NS < d.now_ns);
    d.freed_ns[number] = d.now_ns;
    d.number_of[index_of(key)] = CAPACITY;
}

static void begin(void)
{
    const struct held_kernel kernel = {add, removed, NULL};
    memset(&d, 0, sizeof(d));
    d.now_ns = SECOND;
    for (size_t i = 0; i < KEYS; i++) {
        d.number_of[i] = CAPACITY;
    }
    assert_int_equal(held_open(&d.held, CAPACITY, d.slots, &kernel), 0);
}

/* Has a key's packets dropped; keys with an even number count bytes. Several keys have one hash. */
static bool deny(uint32_t i, uint64_t until_ns)
{
    const unsigned char bytes[4] = {(unsigned char) (i >> 8), (unsigned char) i, 7, 7};
    const weir_key key = {.hash = i / 3, .data = bytes, .length = sizeof(bytes), .policy = 1};
    struct drop_key drop = {.family = 4, .prefix = 32};
    memcpy(drop.address, bytes, sizeof(bytes));
    return held_until(&d.held, &drop, &key, i % 2 == 0, until_ns);
}

static void sweep(void)
{
    struct held_drops drops[7];
    uint32_t cursor = 0;
    do {
        const size_t count = held_sweep(&d.held, &cursor, 7, d.now_ns, drops);
        for (size_t n = 0; n < count; n++) {
            const unsigned char *bytes = drops[n].key.data;
            const uint32_t i = (uint32_t) bytes[0] << 8 | bytes[1];
            assert_int_equal(drops[n].packet_bytes, 10 * drops[n].packets);
            assert_int_equal(drops[n].units, (i % 2 == 0 ? 10 : 1) * drops[n].packets);
            d.told[i] += drops[n].packets;
        }
    } while (cursor != 0);
}

static uint32_t count_held(void)
{
    uint32_t count = 0;
    for (size_t i = 0; i < KEYS; i++) {
        count += d.number_of[i] < CAPACITY;
    }
    return count;
}

static void test_drawn_denials_are_held_until_their_times_and_all_drops_are_told_once(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    uint64_t until_ns[KEYS] = {0};
    begin();
    for (int step = 0; step < STEPS; step++) {
        const uint32_t i = (uint32_t) random_below(&rng, KEYS);
        const uint64_t kind = random_below(&rng, 100);
        d.now_ns += random_below(&rng, 30 * MILLISECOND);
        if (kind < 40) {
            const uint64_t until = d.now_ns + random_below(&rng, SECOND / 4);
            const bool was_held = d.number_of[i] < CAPACITY;
            d.refuses = random_below(&rng, 20) == 0;
            if (deny(i, until)) {
                until_ns[i] = was_held && until_ns[i] > until ? until_ns[i] : until;
                assert_int_equal(d.slots[d.number_of[i]].until_ns, until_ns[i]);
            } else {
                assert_false(was_held); /* a held key needs no room */
            }
        } else if (kind < 90) {
            if (d.number_of[i] < CAPACITY && d.slots[d.number_of[i]].until_ns > d.now_ns) {
                d.slots[d.number_of[i]].packets += 1 + i;
                d.slots[d.number_of[i]].bytes += 10 * (1 + i);
                d.dropped[i] += 1 + i;
            }
        } else if (kind < 99) {
            sweep();
            assert_int_equal(held_count(&d.held), count_held());
        } else {
            held_release_all(&d.held);
            memset(until_ns, 0, sizeof(until_ns));
            for (size_t k = 0; k < CAPACITY; k++) {
                assert_int_equal(d.slots[k].until_ns, 0);
            }
        }
    }
    d.now_ns += 2 * HELD_IDLE_NS;
    sweep();
    assert_int_equal(held_count(&d.held), 0);
    assert_memory_equal(d.told, d.dropped, sizeof(d.told));
    held_close(&d.held);
}

static void test_when_all_slots_are_taken_the_others_are_left_to_the_gateway(void **state)
{
    (void) state;
    begin();
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_int_equal(deny(i, d.now_ns + SECOND / 10), i < CAPACITY);
    }
    d.now_ns += 2 * HELD_IDLE_NS;
    sweep();
    assert_int_equal(held_count(&d.held), 0);
    assert_false(deny(KEYS - 1, d.now_ns + SECOND / 10)); /* the slots rest */
    d.now_ns += 2 * HELD_REST_NS;
    sweep();
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_int_equal(deny(KEYS - 1 - i, d.now_ns + SECOND / 10), i < CAPACITY);
    }
    held_close(&d.held);
}

/* Two policies of one source, by packets and by bytes, have keys of their own, and the kernel has one number for both.
 */
static void test_a_source_that_two_policies_deny_is_held_once_until_the_later_time(void **state)
{
    (void) state;
    begin();
    const unsigned char bytes[4] = {0, 1, 7, 7};
    const struct drop_key drop = {.address = {0, 1, 7, 7}, .family = 4, .prefix = 32};
    const weir_key by_packets = {.hash = 1, .data = bytes, .length = sizeof(bytes), .policy = 1};
    const weir_key by_bytes = {.hash = 2, .data = bytes, .length = sizeof(bytes), .policy = 2};
    assert_true(held_until(&d.held, &drop, &by_packets, false, d.now_ns + SECOND / 10));
    assert_true(held_until(&d.held, &drop, &by_bytes, true, d.now_ns + SECOND / 4));
    assert_int_equal(held_count(&d.held), 1);
    assert_int_equal(d.slots[d.number_of[1]].until_ns, d.now_ns + SECOND / 4);
    for (int turn = 0; turn < 20; turn++) { /* the first policy's denials have long ended */
        d.now_ns += SECOND / 4;
        assert_true(held_until(&d.held, &drop, &by_bytes, true, d.now_ns + SECOND / 4));
        sweep();
        assert_true(d.number_of[1] < CAPACITY);
        assert_int_equal(d.slots[d.number_of[1]].until_ns, d.now_ns + SECOND / 4);
    }
    held_close(&d.held);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_denials_are_held_until_their_times_and_all_drops_are_told_once),
        cmocka_unit_test(test_when_all_slots_are_taken_the_others_are_left_to_the_gateway),
        cmocka_unit_test(test_a_source_that_two_policies_deny_is_held_once_until_the_later_time),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_held", tests, NULL, NULL);
}
