/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is remembered of evicted keys: usage records against the states they are of, and the sketch against a map that
 * has every record.
 *
 * Guards: src/process/evicted_sketch.c, src/algorithm/rule.c
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/numbers.h"
#include "process/evicted_sketch.h"
#include "support/support.h"

#define START_NS  (UINT64_C(1760000000) * SECOND)
#define ORIGIN_NS (START_NS - UINT64_C(366) * 24 * HOUR)

/* Of any algorithm but a log, whose units are beside its state. */
static weir_limit draw_limit_in_state(uint64_t *rng)
{
    static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET,
                                                WEIR_LEAKY_BUCKET};
    return draw_weir_limit(rng, draw_one_of(rng, algorithms), 0);
}

static void test_a_resumed_state_is_never_fuller_than_the_one_it_was_of(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (int round = 0; round < 200000; round++) {
        const weir_limit limit = draw_limit_in_state(&rng);
        const struct rule rule = rule_make(&limit, ORIGIN_NS);
        uint64_t now_ns = START_NS + random_below(&rng, 24 * HOUR);
        struct state kept = rule_fresh(&rule, now_ns);
        for (uint64_t i = random_below(&rng, 6); i > 0; i--) {
            now_ns += random_below(&rng, 3) == 0 ? random_below(&rng, rule.period_ns) : 0;
            kept = rule_charge(&rule, kept, now_ns, 1 + random_below(&rng, rule.limit));
        }
        now_ns += random_below(&rng, 2) == 0 ? random_below(&rng, rule.period_ns) : 0;
        const struct usage usage = rule_usage(&rule, kept, now_ns);
        assert_int_equal(usage.units == 0, rule_reset_after(&rule, kept, now_ns) == 0);
        now_ns += random_below(&rng, 2 * rule.period_ns);
        const struct usage greater = {usage.units + random_below(&rng, 3), usage.until_ns + random_below(&rng, HOUR)};
        struct state resumed = rule_resume(&rule, usage, now_ns);
        struct state more = rule_resume(&rule, greater, now_ns);
        for (int later = 0; later < 4; later++) {
            const uint64_t left = rule_headroom(&rule, kept, now_ns);
            const uint64_t resumed_left = rule_headroom(&rule, resumed, now_ns);
            if (resumed_left > left || (later == 0 && rule_headroom(&rule, more, now_ns) > resumed_left)) {
                fail_msg("round %d, algorithm %d, %" PRIu64 " in %" PRIu64 " ns, burst %" PRIu64 ": %" PRIu64
                         " left, and %" PRIu64 " when resumed",
                         round, (int) limit.algorithm, limit.limit, limit.period_ns, limit.burst, left, resumed_left);
            }
            if (rule.algorithm != WEIR_SLIDING_WINDOW) { /* a bucket's last unit may have a fraction missing */
                const uint64_t missing = min_u64(left, rule.limit) - resumed_left;
                assert_in_range(missing, 0, rule_is_bucket(&rule));
            }
            if (usage.until_ns <= now_ns) {
                assert_int_equal(resumed_left, rule.limit);
            }
            now_ns += random_below(&rng, rule.period_ns);
        }
    }
}

static void test_a_log_resumes_as_units_that_leave_together(void **state)
{
    (void) state;
    const weir_limit limit = {.algorithm = WEIR_SLIDING_LOG, .limit = 10, .period_ns = SECOND};
    const struct rule rule = rule_make(&limit, ORIGIN_NS);
    const struct state kept = {START_NS + SECOND, 7};
    const struct usage usage = rule_usage(&rule, kept, START_NS);
    const struct state resumed = rule_resume(&rule, usage, START_NS + SECOND - 1);
    assert_int_equal(rule_headroom(&rule, resumed, START_NS + SECOND - 1), 3);
    assert_int_equal(rule_headroom(&rule, resumed, START_NS + SECOND), 10);
    assert_int_equal(rule_usage(&rule, kept, START_NS + SECOND).units, 0);
}

/* The last record of a key. */
struct memory {
    struct usage usage;
    enum sketch_priority weight;
};

#define KEYS 6000

static uint64_t hash_of(uint64_t key)
{
    uint64_t rng = key;
    return random_next(&rng);
}

/* A limit of 1000 units; a greater part of it has a higher priority. */
static struct memory random_memory(uint64_t *rng, uint64_t now_ns)
{
    const uint64_t units = 1 + random_below(rng, 1000);
    static const uint64_t periods[] = {100 * MILLISECOND, SECOND, 60 * SECOND, 24 * HOUR};
    return (struct memory){{units, now_ns + 1 + random_below(rng, periods[random_below(rng, 4)])},
                           units < 500                 ? SKETCH_UNDER_HALF
                           : random_below(rng, 3) == 0 ? SKETCH_REFUSED
                                                       : SKETCH_HALF};
}

/* Random keys of all periods, and time that passes: no record that is found is less than the record that was put. */
static void never_too_little(uint64_t *rng, size_t max_keys, uint64_t keys)
{
    struct sketch sketch = {0};
    assert_int_equal(sketch_open(&sketch, max_keys, ORIGIN_NS, 0), 0);
    struct memory *map = calloc(KEYS, sizeof(*map));
    assert_non_null(map);
    bool forgiven = false;
    uint64_t now_ns = START_NS;
    for (int i = 0; i < 100000; i++) {
        const uint64_t key = random_below(rng, keys);
        const struct memory next = random_memory(rng, now_ns);
        /* A refused key that is evicted a second time has used no less since. */
        struct memory *memory = &map[key];
        if (memory->usage.until_ns > now_ns && memory->weight == SKETCH_REFUSED && next.weight != SKETCH_REFUSED) {
            continue;
        }
        *memory = next;
        forgiven = !sketch_record(&sketch, hash_of(key), next.usage, next.weight, now_ns) || forgiven;
        now_ns += random_below(rng, 20) == 0 ? random_below(rng, 5 * MILLISECOND) : 0;
        const uint64_t other = random_below(rng, keys);
        const struct memory *there = &map[other];
        if (there->usage.until_ns <= now_ns || (forgiven && there->weight != SKETCH_REFUSED)) {
            continue;
        }
        const struct usage found = sketch_find(&sketch, hash_of(other), 1000, now_ns);
        if (found.units < there->usage.units || found.until_ns < there->usage.until_ns) {
            fail_msg("key %" PRIu64 ": %" PRIu64 " units are remembered of %" PRIu64, other, found.units,
                     there->usage.units);
        }
    }
    assert_int_equal(forgiven, keys > max_keys / 4);
    free(map);
    sketch_close(&sketch, NULL);
}

static void test_nothing_is_under_counted_that_was_not_forgiven(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    never_too_little(&rng, 4000, 200);
    never_too_little(&rng, 1000, KEYS);
    never_too_little(&rng, 1, 100);
}

static void test_what_is_remembered_is_over_with_its_time(void **state)
{
    (void) state;
    struct sketch sketch = {0};
    assert_int_equal(sketch_open(&sketch, 1000, ORIGIN_NS, 0), 0);
    assert_int_equal(sketch_find(&sketch, 1, 10, START_NS).units, 0);
    assert_true(sketch_record(&sketch, 1, (struct usage){9, START_NS + SECOND}, SKETCH_HALF, START_NS));
    assert_int_equal(sketch_find(&sketch, 1, 10, START_NS + SECOND - 1).units, 9);
    assert_in_range(sketch_find(&sketch, 1, 10, START_NS).until_ns, START_NS + SECOND,
                    START_NS + SECOND + 3 * MILLISECOND);
    assert_int_equal(sketch_find(&sketch, 1, 10, START_NS + SECOND + 3 * MILLISECOND).units, 0);
    /* A step of the clock moves the record. */
    sketch_shift(&sketch, (int64_t) HOUR);
    assert_int_equal(sketch_find(&sketch, 1, 10, START_NS + HOUR + SECOND - 1).units, 9);
    sketch_shift(&sketch, -(int64_t) HOUR);
    assert_int_equal(sketch_find(&sketch, 1, 10, START_NS + SECOND - 1).units, 9);
    assert_int_equal(sketch_find(&sketch, 1, 10, START_NS + SECOND + 10 * MILLISECOND).units, 0);
    assert_true(sketch_record(&sketch, 1, (struct usage){9, START_NS + SECOND}, SKETCH_HALF, START_NS));
    sketch_erase(&sketch, 1);
    assert_int_equal(sketch_find(&sketch, 1, 10, START_NS).units, 0);
    sketch_close(&sketch, NULL);
}

static void test_units_are_kept_to_one_in_128_and_never_less(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    struct sketch sketch = {0};
    assert_int_equal(sketch_open(&sketch, 1, ORIGIN_NS, 0), 0);
    for (int i = 0; i < 100000; i++) {
        const uint64_t units = i < 1000 ? (uint64_t) i + 1 : 1 + (random_next(&rng) >> (14 + random_below(&rng, 50)));
        assert_true(sketch_record(&sketch, 1, (struct usage){units, START_NS + SECOND}, SKETCH_HALF, START_NS));
        const uint64_t found = sketch_find(&sketch, 1, 1, START_NS).units;
        assert_in_range(found, units, units + units / 128);
        sketch_erase(&sketch, 1);
    }
    sketch_close(&sketch, NULL);
}

/* The part of new keys that find any record, and the part that find all of their limit of 10 used. */
static void ask_new_keys(const struct sketch *sketch, double *any, double *all)
{
    const uint64_t demand = 200000;
    uint64_t some = 0;
    uint64_t whole = 0;
    for (uint64_t i = 0; i < demand; i++) {
        const uint64_t units = sketch_find(sketch, hash_of(UINT64_C(1) << 40 | i), 10, START_NS).units;
        some += units != 0;
        whole += units >= 10;
    }
    *any = (double) some / (double) demand;
    *all = (double) whole / (double) demand;
}

#define WORDS 65536

static void test_few_new_keys_begin_with_what_others_have_used(void **state)
{
    (void) state;
    /* Refused keys, for each hundred keys of the table's size; and new keys that then have no units left. */
    static const struct {
        uint64_t percent;
        double most;
    } loads[] = {{10, 0.001}, {20, 0.002}, {33, 0.01}, {50, 0.08}};
    for (size_t i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
        struct sketch sketch = {0};
        assert_int_equal(sketch_open(&sketch, WORDS, ORIGIN_NS, 0), 0);
        for (uint64_t key = 0; key < WORDS * loads[i].percent / 100; key++) {
            const struct usage usage = {10, START_NS + SECOND};
            assert_true(sketch_record(&sketch, hash_of(key), usage, SKETCH_REFUSED, START_NS));
        }
        double any;
        double all;
        ask_new_keys(&sketch, &any, &all);
        print_message("# %" PRIu64 "%% refused: %.3f%% of new keys have nothing left\n", loads[i].percent, 100 * all);
        assert_true(all < loads[i].most);
        sketch_close(&sketch, NULL);
    }
}

static void test_a_flood_of_little_use_neither_hides_who_was_refused_nor_harms_who_is_new(void **state)
{
    (void) state;
    struct sketch sketch = {0};
    assert_int_equal(sketch_open(&sketch, 4096, ORIGIN_NS, 0), 0);
    for (uint64_t key = 0; key < 400; key++) {
        const struct usage usage = {10, START_NS + SECOND};
        assert_true(sketch_record(&sketch, hash_of(key), usage, SKETCH_REFUSED, START_NS));
    }
    for (uint64_t key = 1000; key < 1000000; key++) {
        const struct usage usage = {1, START_NS + SECOND};
        (void) sketch_record(&sketch, hash_of(key), usage, SKETCH_UNDER_HALF, START_NS);
    }
    for (uint64_t key = 0; key < 400; key++) {
        assert_int_equal(sketch_find(&sketch, hash_of(key), 10, START_NS).units, 10);
    }
    double any;
    double all;
    ask_new_keys(&sketch, &any, &all);
    print_message("# %.3f%% of new keys begin with something, %.3f%% have nothing left\n", 100 * any, 100 * all);
    assert_true(any < 0.0025 && all < 0.001);
    sketch_close(&sketch, NULL);
}

/* One line has room for seven records. */
static void test_a_key_that_is_back_gives_way_first_and_burdens_nobody(void **state)
{
    (void) state;
    struct sketch sketch = {.words = NULL};
    assert_int_equal(sketch_open(&sketch, 1, ORIGIN_NS, 0), 0);
    const struct usage usage = {5, START_NS + HOUR};
    uint64_t hash = 1;
    uint64_t hashes[8];
    for (size_t i = 0; i < 8; i++) {
        while (sketch_find(&sketch, hash, 10, START_NS).units != 0) {
            hash++; /* the fingerprint of another key */
        }
        hashes[i] = hash++;
        if (i == 7) {
            assert_int_equal(sketch_find_returned(&sketch, hashes[3], 10, START_NS).units, 5);
        }
        assert_true(sketch_record(&sketch, hashes[i], usage, SKETCH_REFUSED, START_NS));
    }
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(sketch_find(&sketch, hashes[i], 10, START_NS).units, i == 3 ? 0 : 5);
    }
    sketch_close(&sketch, NULL);
}

/* Hashes of different fingerprints; 0 is that of an empty word. */
static uint64_t distinct_hash(size_t n)
{
    uint64_t hash = 0;
    for (size_t found = 0; found <= n; found++) {
        do {
            hash++;
        } while ((hash_mix(hash) & 0xfff) % 64 != found % 63 + 1);
    }
    return hash;
}

/* Of a sketch of one row; `ms`: from the start on. */
static enum sketch_first record_first(struct sketch *sketch, size_t n, uint64_t until_ms, enum sketch_priority priority,
                                      uint64_t now_ms)
{
    const struct usage usage = {5, START_NS + until_ms * MILLISECOND};
    return sketch_record_first(sketch, distinct_hash(n), usage, priority, START_NS + now_ms * MILLISECOND);
}

static uint64_t found(const struct sketch *sketch, size_t n, uint64_t now_ms)
{
    return sketch_find(sketch, distinct_hash(n), 10, START_NS + now_ms * MILLISECOND).units;
}

static void test_the_first_record_of_a_key_takes_the_place_of_what_is_worth_no_more(void **state)
{
    (void) state;
    struct sketch sketch = {.words = NULL};
    assert_int_equal(sketch_open(&sketch, 1, ORIGIN_NS, 0), 0);
    assert_int_equal(sketch.row_count, 1);
    for (size_t n = 0; n < 7; n++) {
        assert_int_equal(record_first(&sketch, n, 1000 * (n + 1), SKETCH_UNDER_HALF, 0), SKETCH_RECORDED);
        assert_int_equal(record_first(&sketch, n, 9000, SKETCH_REFUSED, 0), SKETCH_NOT_RECORDED); /* it came before */
    }
    assert_int_equal(record_first(&sketch, 7, 900, SKETCH_UNDER_HALF, 0), SKETCH_NOT_RECORDED);
    assert_int_equal(record_first(&sketch, 7, 1000, SKETCH_UNDER_HALF, 0), SKETCH_DROPPED_OTHER);
    assert_int_equal(found(&sketch, 0, 0), 0);
    assert_int_equal(record_first(&sketch, 8, 100, SKETCH_HALF, 0), SKETCH_DROPPED_OTHER); /* a greater priority */
    assert_int_equal(found(&sketch, 7, 0), 0);
    assert_int_equal(found(&sketch, 8, 0), 5);
    /* Of records that have ended the first one to end goes; the others' keys came before all the same. */
    assert_int_equal(record_first(&sketch, 9, 9000, SKETCH_UNDER_HALF, 3500), SKETCH_RECORDED);
    assert_int_equal(record_first(&sketch, 8, 9000, SKETCH_UNDER_HALF, 3500), SKETCH_RECORDED);
    assert_int_equal(record_first(&sketch, 2, 9000, SKETCH_UNDER_HALF, 3500), SKETCH_NOT_RECORDED);
    assert_int_equal(found(&sketch, 2, 3500), 0);
    assert_int_equal(record_first(&sketch, 10, 9000, SKETCH_UNDER_HALF, 3500), SKETCH_RECORDED);
    assert_int_equal(record_first(&sketch, 2, 9000, SKETCH_UNDER_HALF, 3500), SKETCH_DROPPED_OTHER);
    /* A key that is back keeps its record from first charges, and loses it to any evicted key. */
    for (size_t n = 0; n < 16; n++) {
        (void) sketch_find_returned(&sketch, distinct_hash(n), 10, START_NS + 3500 * MILLISECOND);
    }
    assert_int_equal(record_first(&sketch, 11, 99000, SKETCH_REFUSED, 3500), SKETCH_NOT_RECORDED);
    const struct usage usage = {6, START_NS + 3600 * MILLISECOND};
    assert_true(sketch_record(&sketch, distinct_hash(11), usage, SKETCH_UNDER_HALF, START_NS + 3500 * MILLISECOND));
    assert_int_equal(found(&sketch, 11, 3500), 6);
    sketch_close(&sketch, NULL);
}

static void test_what_refused_keys_have_no_room_for_is_every_keys_until_it_ends(void **state)
{
    (void) state;
    struct sketch sketch = {.words = NULL};
    assert_int_equal(sketch_open(&sketch, 1, ORIGIN_NS, 0), 0);
    for (size_t n = 0; n < 9; n++) {
        const struct usage usage = {20 + n, START_NS + (2000 + 1000 * n) * MILLISECOND};
        assert_true(sketch_record(&sketch, distinct_hash(n), usage, SKETCH_REFUSED, START_NS));
    }
    /* The first two went to the overflow: 21 units until the third second, and of another limit at most that. */
    assert_int_equal(found(&sketch, 20, 0), 10);
    const struct usage other = sketch_find(&sketch, distinct_hash(20), 1000, START_NS);
    assert_int_equal(other.units, 21);
    assert_in_range(other.until_ns, START_NS + 3 * SECOND, START_NS + 3 * SECOND + 3 * MILLISECOND);
    /* The overflow has the fingerprint of the key that went there first; to erase that key leaves it to the others. */
    sketch_erase(&sketch, distinct_hash(0));
    assert_int_equal(sketch_find(&sketch, distinct_hash(20), 1000, START_NS).units, 21);
    assert_int_equal(sketch_find(&sketch, distinct_hash(8), 10, START_NS).units, 28); /* its own record */
    assert_int_equal(record_first(&sketch, 21, 99000, SKETCH_REFUSED, 0), SKETCH_NOT_RECORDED);
    /* A smaller one that is refused as well goes there, too; others are dropped. */
    const struct usage more = {30, START_NS + 2500 * MILLISECOND};
    assert_false(sketch_record(&sketch, distinct_hash(22), more, SKETCH_HALF, START_NS));
    assert_int_equal(sketch_find(&sketch, distinct_hash(20), 1000, START_NS).units, 21);
    assert_true(sketch_record(&sketch, distinct_hash(22), more, SKETCH_RETURNED, START_NS));
    assert_true(sketch_record(&sketch, distinct_hash(22), more, SKETCH_REFUSED, START_NS));
    assert_int_equal(sketch_find(&sketch, distinct_hash(20), 1000, START_NS).units, 30);
    /* It ends, and then another takes its place and none of its units. */
    assert_int_equal(found(&sketch, 20, 3010), 0);
    const struct usage later = {7, START_NS + 3500 * MILLISECOND};
    assert_true(sketch_record(&sketch, distinct_hash(23), later, SKETCH_REFUSED, START_NS + 3010 * MILLISECOND));
    assert_int_equal(found(&sketch, 20, 3010), 7);
    assert_int_equal(record_first(&sketch, 21, 99000, SKETCH_REFUSED, 3510), SKETCH_DROPPED_OTHER);
    /* Its own record of a key is erased, and no other one. */
    sketch_erase(&sketch, distinct_hash(21));
    assert_int_equal(found(&sketch, 21, 3510), 0);
    assert_int_equal(sketch_find(&sketch, distinct_hash(8), 10, START_NS + 3510 * MILLISECOND).units, 28);
    sketch_close(&sketch, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_record_of_a_key_takes_the_place_of_what_is_worth_no_more),
        cmocka_unit_test(test_what_refused_keys_have_no_room_for_is_every_keys_until_it_ends),
        cmocka_unit_test(test_a_key_that_is_back_gives_way_first_and_burdens_nobody),
        cmocka_unit_test(test_a_resumed_state_is_never_fuller_than_the_one_it_was_of),
        cmocka_unit_test(test_a_log_resumes_as_units_that_leave_together),
        cmocka_unit_test(test_nothing_is_under_counted_that_was_not_forgiven),
        cmocka_unit_test(test_what_is_remembered_is_over_with_its_time),
        cmocka_unit_test(test_units_are_kept_to_one_in_128_and_never_less),
        cmocka_unit_test(test_few_new_keys_begin_with_what_others_have_used),
        cmocka_unit_test(test_a_flood_of_little_use_neither_hides_who_was_refused_nor_harms_who_is_new),
    };
    return cmocka_run_group_tests_name("unit/process/evicted_sketch", tests, NULL, NULL);
}
