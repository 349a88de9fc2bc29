/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sources and networks whose packets the kernel drops, with a kernel that the test plays: drawn denials, packets and
 * times, against a table of what each key must have.
 *
 * Guards: apps/gateway/xdp/drop.h, apps/gateway/xdp/held.c, apps/gateway/xdp/lines.c
 */
#include <stdlib.h>
#include <string.h>

#include "../apps/gateway/xdp/held.h"
#include "support/support.h"

#define CAPACITY 64
#define LINES    128
#define KEYS     100
#define STEPS    20000

static struct {
    struct held held;
    struct drop_line lines[LINES];
    uint64_t now_ns;
    uint64_t dropped[KEYS], told[KEYS]; /* packets */
    uint32_t line_of[KEYS];             /* LINES: the kernel finds none */
    uint64_t left_ns[LINES];            /* when a key was last found in a line */
    uint32_t left_by[LINES];            /* and which one */
} d;

static const struct drop_key key_of_none = {.address = {9}, .family = 4, .prefix = 32};

static struct drop_key key_of(uint32_t i)
{
    return (struct drop_key){.address = {(uint8_t) (i >> 8), (uint8_t) i, 7, 7}, .family = 4, .prefix = 32};
}

/* As the kernel's program looks for a key: LINES where it finds none. */
static uint32_t look_up(const struct drop_key *key)
{
    uint64_t words[DROP_KEY_WORDS];
    memcpy(words, key, sizeof(words));
    const __u64 in[DROP_KEY_WORDS] = {words[0], words[1], words[2]};
    const __u64 secret[2] = {d.held.lines.secret[0], d.held.lines.secret[1]};
    const uint32_t home = drop_home(secret, in, LINES);
    assert_true(d.lines[home].farthest <= DROP_FARTHEST);
    for (uint32_t i = 0; i <= d.lines[home].farthest; i++) {
        const uint32_t at = (home + i) % LINES;
        if (memcmp(&d.lines[at].key, key, sizeof(*key)) == 0) {
            return at;
        }
    }
    return LINES;
}

/* Looks at all keys as the program does: no two are in one line, and no line has another key before it has rested. */
static uint32_t look_at_all(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        const struct drop_key key = key_of(i);
        const uint32_t at = look_up(&key);
        d.line_of[i] = at;
        if (at == LINES) {
            continue;
        }
        count++;
        assert_true(d.left_ns[at] == 0 || d.left_by[at] == i || d.left_ns[at] + HELD_REST_NS < d.now_ns);
        d.left_ns[at] = d.now_ns;
        d.left_by[at] = i;
    }
    uint32_t with_keys = 0;
    for (size_t i = 0; i < LINES; i++) {
        with_keys += d.lines[i].key.family != 0;
        assert_true(d.lines[i].key.family != 0 || d.lines[i].until_ns == 0);
    }
    assert_int_equal(with_keys, count);
    return count;
}

static void begin(void)
{
    memset(&d, 0, sizeof(d));
    d.now_ns = SECOND;
    assert_int_equal(held_open(&d.held, CAPACITY, d.lines, LINES), 0);
    (void) look_at_all();
}

/* Has a key's packets dropped; keys with an even number count bytes. */
static bool deny(uint32_t i, uint64_t until_ns)
{
    const unsigned char bytes[4] = {(unsigned char) (i >> 8), (unsigned char) i, 7, 7};
    const weir_key key = {.hash = i / 3, .data = bytes, .length = sizeof(bytes), .policy = 1};
    const struct drop_key drop = key_of(i);
    const bool done = held_until(&d.held, &drop, &key, i % 2 == 0, until_ns);
    (void) look_at_all();
    return done;
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
    assert_int_equal(held_count(&d.held), look_at_all());
}

static uint64_t until_of(uint32_t i)
{
    assert_true(d.line_of[i] < LINES);
    return d.lines[d.line_of[i]].until_ns;
}

/* The kernel drops packets of a key, or of the key that a core found in a line just before. */
static void drop_packets(uint32_t i, uint32_t line)
{
    d.lines[line].packets += 1 + i;
    d.lines[line].bytes += UINT64_C(10) * (1 + i);
    d.dropped[i] += 1 + i;
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
            const bool was_held = d.line_of[i] < LINES;
            if (deny(i, until)) {
                until_ns[i] = was_held && until_ns[i] > until ? until_ns[i] : until;
                assert_int_equal(until_of(i), until_ns[i]);
            } else {
                assert_false(was_held); /* a held key needs no room */
            }
        } else if (kind < 90) {
            if (d.line_of[i] < LINES && until_of(i) > d.now_ns) {
                drop_packets(i, d.line_of[i]);
            }
        } else if (kind < 99) {
            uint32_t before[KEYS];
            memcpy(before, d.line_of, sizeof(before));
            sweep();
            for (uint32_t k = 0; k < KEYS; k++) {
                if (before[k] < LINES && d.line_of[k] == LINES) {
                    assert_true(until_ns[k] + HELD_IDLE_NS < d.now_ns);
                    drop_packets(k, before[k]); /* by a core that looked before */
                }
            }
        } else {
            held_release_all(&d.held);
            memset(until_ns, 0, sizeof(until_ns));
            for (size_t k = 0; k < LINES; k++) {
                assert_int_equal(d.lines[k].until_ns, 0);
            }
        }
    }
    d.now_ns += 2 * HELD_IDLE_NS;
    sweep();
    assert_int_equal(held_count(&d.held), 0);
    assert_memory_equal(d.told, d.dropped, sizeof(d.told));
    held_close(&d.held);
}

static void test_when_there_is_no_room_the_others_are_left_to_the_gateway(void **state)
{
    (void) state;
    begin();
    uint32_t count = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        count += deny(i, d.now_ns + SECOND / 10);
    }
    assert_in_range(count, CAPACITY - 4, CAPACITY); /* a key whose lines are all taken has none */
    d.now_ns += 2 * HELD_IDLE_NS;
    sweep();
    assert_int_equal(held_count(&d.held), 0);
    const uint32_t rested = CAPACITY - count;
    uint32_t more = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        more += deny(i, d.now_ns + SECOND / 10);
    }
    assert_true(more <= rested); /* the numbers rest */
    d.now_ns += 2 * HELD_IDLE_NS;
    sweep();
    d.now_ns += 2 * HELD_REST_NS;
    sweep();
    count = 0;
    for (uint32_t i = 0; i < KEYS; i++) {
        count += deny(KEYS - 1 - i, d.now_ns + SECOND / 10);
    }
    assert_in_range(count, CAPACITY - 4, CAPACITY);
    held_close(&d.held);
}

/* Two policies of one source, by packets and by bytes, have keys of their own, and the kernel has one line for both. */
static void test_a_source_that_two_policies_deny_is_held_once_until_the_later_time(void **state)
{
    (void) state;
    begin();
    const unsigned char bytes[4] = {0, 1, 7, 7};
    const struct drop_key drop = key_of(1);
    const weir_key by_packets = {.hash = 1, .data = bytes, .length = sizeof(bytes), .policy = 1};
    const weir_key by_bytes = {.hash = 2, .data = bytes, .length = sizeof(bytes), .policy = 2};
    assert_true(held_until(&d.held, &drop, &by_packets, false, d.now_ns + SECOND / 10));
    assert_true(held_until(&d.held, &drop, &by_bytes, true, d.now_ns + SECOND / 4));
    assert_int_equal(held_count(&d.held), 1);
    assert_int_equal(look_at_all(), 1);
    assert_int_equal(until_of(1), d.now_ns + SECOND / 4);
    for (int turn = 0; turn < 20; turn++) { /* the first policy's denials have long ended */
        d.now_ns += SECOND / 4;
        assert_true(held_until(&d.held, &drop, &by_bytes, true, d.now_ns + SECOND / 4));
        sweep();
        assert_int_equal(until_of(1), d.now_ns + SECOND / 4);
    }
    held_close(&d.held);
}

static struct held_drops sweep_one(uint32_t i)
{
    struct held_drops drops[7] = {{.packets = 0}};
    uint32_t cursor = 0;
    drop_packets(i, d.line_of[i]);
    assert_int_equal(held_sweep(&d.held, &cursor, 7, d.now_ns, drops), 1);
    assert_int_equal(cursor, 0);
    return drops[0];
}

static void test_a_key_is_renewed_until_it_is_to_be_denied_anew(void **state)
{
    (void) state;
    begin();
    assert_true(deny(1, d.now_ns + SECOND));
    const struct drop_key key = key_of(1);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < HELD_RENEWALS; i++) {
            const struct held_drops drops = sweep_one(1);
            assert_memory_equal(&drops.drop, &key, sizeof(key));
            assert_int_equal(drops.until_ns, until_of(1));
            d.now_ns += SECOND / 3;
            held_renew(&d.held, &key, d.now_ns + SECOND);
            assert_int_equal(until_of(1), d.now_ns + SECOND);
            held_renew(&d.held, &key_of_none, d.now_ns + SECOND); /* of no held key: nothing */
        }
        assert_int_equal(sweep_one(1).until_ns, 0);
        assert_true(deny(1, d.now_ns + SECOND));
    }
    held_release_all(&d.held);
    held_renew(&d.held, &key, d.now_ns + SECOND); /* what was let pass stays so */
    assert_int_equal(until_of(1), 0);
    assert_int_equal(sweep_one(1).until_ns, 0);
    held_close(&d.held);
}

/* Keys that differ in family, prefix or any bit of the address are apart. */
static void test_keys_that_differ_in_one_part_are_apart(void **state)
{
    (void) state;
    begin();
    const weir_key key = {.hash = 1, .data = "k", .length = 1, .policy = 1};
    const struct drop_key plain = {.address = {1, 2, 3, 4}, .family = 4, .prefix = 24};
    struct drop_key others[4] = {plain, plain, plain, plain};
    others[0].family = 6;
    others[1].prefix = 16;
    others[2].address[0] = 2;
    others[3].address[15] = 1;
    assert_true(held_until(&d.held, &plain, &key, false, d.now_ns + SECOND));
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(look_up(&others[i]), LINES);
        assert_true(held_until(&d.held, &others[i], &key, false, d.now_ns + (i + 2) * SECOND));
        assert_int_equal(held_count(&d.held), i + 2);
        assert_int_equal(d.lines[look_up(&others[i])].until_ns, d.now_ns + (i + 2) * SECOND);
    }
    assert_int_equal(d.lines[look_up(&plain)].until_ns, d.now_ns + SECOND);
    held_close(&d.held);
}

static void test_words_are_mixed_as_splitmix64_mixes_them(void **state)
{
    (void) state;
    /* The first three numbers of SplitMix64 (Steele, Lea and Flood, 2014) from 0, which steps by the golden ratio. */
    static const uint64_t known[3] = {0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f};
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(drop_mix((i + 1) * 0x9e3779b97f4a7c15), known[i]);
    }
}

/* 4,096 keys of 65,536 lines meet 126 times, give or take 11, if they are spread by chance. */
static void test_keys_that_differ_in_one_word_are_spread(void **state)
{
    (void) state;
    enum { HOMES = 65536, COUNT = 4096 };
    uint64_t rng = test_seed();
    for (size_t word = 0; word < DROP_KEY_WORDS; word++) {
        static bool taken[HOMES];
        memset(taken, 0, sizeof(taken));
        const __u64 secret[2] = {random_next(&rng), random_next(&rng)};
        __u64 words[DROP_KEY_WORDS] = {random_next(&rng), random_next(&rng), random_next(&rng)};
        size_t met = 0;
        for (__u64 i = 0; i < COUNT; i++) {
            words[word] = i;
            const __u32 home = drop_home(secret, words, HOMES);
            met += taken[home];
            taken[home] = true;
        }
        assert_in_range(met, 126 - 80, 126 + 80);
    }
}

/* Half as many keys as there are lines find one, but for a few in a thousand, whatever their addresses have in common.
 */
static void test_nearly_all_keys_find_a_line(void **state)
{
    (void) state;
    struct drop_line *at = calloc(DROP_LINES, sizeof(*at));
    assert_non_null(at);
    uint64_t rng = test_seed();
    for (size_t shape = 0; shape < 3; shape++) {
        memset(at, 0, DROP_LINES * sizeof(*at));
        struct lines lines = {.at = at, .count = DROP_LINES, .secret = {random_next(&rng), random_next(&rng)}};
        uint32_t without = 0;
        for (uint32_t i = 0; i < DROP_LINES / 2; i++) {
            struct drop_key key = {.family = shape == 0 ? 4 : 6, .prefix = shape == 0 ? 32 : 64};
            memcpy(key.address + 4 * shape, &i, sizeof(i));
            const uint32_t line = lines_place(&lines, &key, i);
            without += line == LINES_NONE;
            if (line != LINES_NONE) {
                assert_int_equal(lines_find(&lines, &key), line);
                assert_int_equal(lines_number(&lines, line), i);
            }
        }
        assert_in_range(without, 0, DROP_LINES / 200);
    }
    free(at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_denials_are_held_until_their_times_and_all_drops_are_told_once),
        cmocka_unit_test(test_when_there_is_no_room_the_others_are_left_to_the_gateway),
        cmocka_unit_test(test_a_source_that_two_policies_deny_is_held_once_until_the_later_time),
        cmocka_unit_test(test_a_key_is_renewed_until_it_is_to_be_denied_anew),
        cmocka_unit_test(test_keys_that_differ_in_one_part_are_apart),
        cmocka_unit_test(test_words_are_mixed_as_splitmix64_mixes_them),
        cmocka_unit_test(test_keys_that_differ_in_one_word_are_spread),
        cmocka_unit_test(test_nearly_all_keys_find_a_line),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_held", tests, NULL, NULL);
}
