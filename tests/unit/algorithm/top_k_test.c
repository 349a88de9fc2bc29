/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The top-k list against exact counts: under Zipf's law, and with halved counts.
 *
 * Guards: src/algorithm/top_k.c
 */
#include <stdio.h>
#include <string.h>

#include "algorithm/top_k.h"
#include "support/support.h"

#define KEYS 3000

struct stream {
    struct top_k list;
    uint64_t truth[KEYS];
    uint64_t total;
    uint64_t below[KEYS]; /* sums of the keys' odds */
    uint64_t rng;
};

/* Key i comes with odds 1 / (i + 1)^(power / 2). */
static void stream_init(struct stream *stream, int power, uint64_t seed)
{
    memset(stream, 0, sizeof(*stream));
    stream->rng = seed;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < KEYS; i++) {
        uint64_t root = 1;
        while ((root + 1) * (root + 1) <= (i + 1) * 1000000) {
            root++;
        }
        const uint64_t odds[] = {1000000, 1000000000 / root, 1000000 / (i + 1)};
        sum += odds[power];
        stream->below[i] = sum;
    }
}

static uint32_t stream_key(struct stream *stream)
{
    const uint64_t drawn = random_below(&stream->rng, stream->below[KEYS - 1]);
    uint32_t low = 0;
    uint32_t high = KEYS - 1;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (stream->below[middle] <= drawn) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void stream_run(struct stream *stream, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const uint32_t key = stream_key(stream);
        const uint64_t weight = 1 + random_below(&stream->rng, 3) * random_below(&stream->rng, 20);
        top_k_add(&stream->list, &key, sizeof(key), weight);
        stream->truth[key] += weight;
        stream->total += weight;
    }
}

static void stream_halve(struct stream *stream, uint64_t times)
{
    top_k_halve(&stream->list, times);
    for (uint32_t i = 0; i < KEYS; i++) {
        stream->truth[i] = times < 64 ? stream->truth[i] >> times : 0;
    }
    stream->total = times < 64 ? stream->total >> times : 0;
}

/* H1 to H3, and the order of the top. */
static void stream_look(const struct stream *stream)
{
    const struct top_k *list = &stream->list;
    bool listed[KEYS] = {false};
    uint64_t sum = 0;
    uint64_t least = list->used < TOP_K_COUNT ? 0 : UINT64_MAX;
    assert_int_equal(list->total, stream->total);
    assert_true(list->used <= TOP_K_COUNT);
    for (uint32_t i = 0; i < list->used; i++) {
        uint32_t key;
        assert_int_equal(list->keys[i].length, sizeof(key));
        memcpy(&key, list->keys[i].bytes, sizeof(key));
        assert_false(listed[key]);
        listed[key] = true;
        assert_true(list->sure[i] <= stream->truth[key]);
        assert_true(stream->truth[key] <= list->counts[i]);
        sum += list->counts[i];
        least = list->counts[i] < least ? list->counts[i] : least;
    }
    assert_true(sum <= list->total);
    for (uint32_t key = 0; key < KEYS; key++) {
        assert_true(listed[key] || stream->truth[key] <= least);
        assert_true(listed[key] || stream->truth[key] <= stream->total / TOP_K_COUNT);
    }
    uint8_t top[TOP_K_COUNT];
    for (size_t most = 0; most <= TOP_K_COUNT; most += 16) {
        const size_t count = top_k_top(list, top, most);
        assert_int_equal(count, list->used < most ? list->used : most);
        uint64_t left_out = 0;
        for (uint32_t i = 0; i < list->used; i++) {
            left_out += count != 0 && list->counts[i] > list->counts[top[count - 1]];
        }
        assert_true(left_out < most || most == 0);
        for (size_t i = 1; i < count; i++) {
            assert_true(list->counts[top[i - 1]] >= list->counts[top[i]]);
        }
    }
}

static void test_a_list_bounds_the_exact_counts_of_any_stream(void **state)
{
    (void) state;
    const uint64_t seed = test_seed();
    static struct stream stream;
    for (int power = 0; power < 3; power++) {
        stream_init(&stream, power, seed + (uint64_t) power);
        for (int fraction = 0; fraction < 60; fraction++) {
            stream_run(&stream, 1 + (unsigned) random_below(&stream.rng, 2000));
            stream_look(&stream);
        }
    }
}

static void test_halving_keeps_the_bounds_and_ends_with_an_empty_list(void **state)
{
    (void) state;
    const uint64_t seed = test_seed();
    static struct stream stream;
    for (int power = 0; power < 3; power++) {
        stream_init(&stream, power, seed + (uint64_t) power);
        for (int fraction = 0; fraction < 200; fraction++) {
            stream_run(&stream, (unsigned) random_below(&stream.rng, fraction % 5 == 0 ? 2000 : 60));
            stream_look(&stream);
            stream_halve(&stream, 1 + random_below(&stream.rng, 3));
            stream_look(&stream);
        }
        stream_run(&stream, 1000);
        stream_halve(&stream, 64 + (uint64_t) power);
        stream_look(&stream);
        assert_int_equal(stream.list.used, 0);
    }
}

static void test_keys_that_share_bytes_are_told_apart_by_length_and_sums_saturate(void **state)
{
    (void) state;
    static struct top_k list;
    top_k_add(&list, "", 0, 5);
    top_k_add(&list, "a", 1, UINT64_MAX);
    top_k_add(&list, "ab", 2, 7);
    top_k_add(&list, "a", 1, 1);
    top_k_add(&list, "", 0, 1);
    uint8_t top[3];
    assert_int_equal(top_k_top(&list, top, 3), 3);
    assert_int_equal(list.counts[top[0]], UINT64_MAX);
    assert_int_equal(list.counts[top[1]], 7);
    assert_int_equal(list.counts[top[2]], 6);
    assert_int_equal(list.total, UINT64_MAX);
}

static void expect_counter(const struct top_k *list, const char *key, uint64_t count, uint64_t sure)
{
    for (uint32_t i = 0; i < list->used; i++) {
        if (list->keys[i].length == strlen(key) && memcmp(list->keys[i].bytes, key, strlen(key)) == 0) {
            assert_int_equal(list->counts[i], count);
            assert_int_equal(list->sure[i], sure);
            return;
        }
    }
    fail_msg("%s has no counter", key);
}

/* Key i has the weight 10 + i. */
static void test_a_new_key_takes_over_the_least_count_and_is_sure_of_its_own(void **state)
{
    (void) state;
    static struct top_k list;
    char key[TOP_K_KEY_SIZE + 1];
    for (unsigned i = 0; i < TOP_K_COUNT; i++) {
        (void) snprintf(key, sizeof(key), "%039u", i); /* as long as a key may be */
        top_k_add(&list, key, TOP_K_KEY_SIZE, 10 + i);
        expect_counter(&list, key, 10 + i, 10 + i);
    }
    top_k_add(&list, "new", 3, 3); /* in the place of key 0 */
    assert_int_equal(list.used, TOP_K_COUNT);
    expect_counter(&list, "new", 13, 3);
    (void) snprintf(key, sizeof(key), "%039u", 1U);
    expect_counter(&list, key, 11, 11);
    top_k_add(&list, "next", 4, 1); /* in the place of key 1 */
    expect_counter(&list, "next", 12, 1);
    top_k_add(&list, "new", 3, 7);
    expect_counter(&list, "new", 20, 10);
    /* Of equal counts the surer one stands first. */
    uint8_t top[TOP_K_COUNT];
    assert_int_equal(top_k_top(&list, top, TOP_K_COUNT), TOP_K_COUNT);
    for (size_t i = 1; i < TOP_K_COUNT; i++) {
        const size_t before = top[i - 1];
        assert_true(list.counts[before] > list.counts[top[i]] ||
                    (list.counts[before] == list.counts[top[i]] && list.sure[before] >= list.sure[top[i]]));
    }
    assert_int_equal(top_k_top(&list, top, 0), 0);
    /* Where two are as sure, the one that has had its counter for longer comes first. */
    const struct top_k ties = {.used = 4, .counts = {7, 7, 9, 7}, .sure = {3, 5, 1, 3}};
    static const uint8_t expected[] = {2, 1, 0, 3};
    assert_int_equal(top_k_top(&ties, top, TOP_K_COUNT), sizeof(expected));
    assert_memory_equal(top, expected, sizeof(expected));
    top_k_halve(&list, 1);
    expect_counter(&list, "new", 10, 5);
    expect_counter(&list, "next", 6, 0);
    top_k_halve(&list, 3); /* those below eight are gone */
    expect_counter(&list, "new", 1, 0);
    for (uint32_t i = 0; i < list.used; i++) {
        assert_true(list.counts[i] >= 1 && list.counts[i] <= 4);
    }
    assert_int_equal(list.used, 1 + (73 - 16 + 1)); /* "new", and what had 16 to 73 */
    assert_int_equal(list.total, (64 * 10 + 63 * 64 / 2 + 11) / 16);
    top_k_add(&list, "last", 4, 9); /* a counter is free */
    expect_counter(&list, "last", 9, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_list_bounds_the_exact_counts_of_any_stream),
        cmocka_unit_test(test_halving_keeps_the_bounds_and_ends_with_an_empty_list),
        cmocka_unit_test(test_a_new_key_takes_over_the_least_count_and_is_sure_of_its_own),
        cmocka_unit_test(test_keys_that_share_bytes_are_told_apart_by_length_and_sums_saturate),
    };
    return cmocka_run_group_tests_name("unit/algorithm/top_k", tests, NULL, NULL);
}
