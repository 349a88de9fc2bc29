/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weir simulate keeps of a replay in fixed memory: keys beside a plain list of all of them, and steps of time
 * beside the counts of every second.
 *
 * Guards: apps/weir/simulate/clients.c, apps/weir/simulate/timeline.c
 */
#include <stdlib.h>
#include <string.h>

#include "../apps/weir/simulate/clients.h"
#include "../apps/weir/simulate/timeline.h"
#include "support/support.h"

#define KEYS 4000
#define MOST 500
#define ROWS 2

/* A key, as the test knows it. */
static struct plain_key {
    char text[48];
    size_t length;
    bool known;
    uint64_t hash, requests, denied;
} keys[KEYS];

static int compare_down(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Makes room as clients.h says: a sample of half of the places at most, and of the others those denied most. */
static void cull(uint64_t *threshold, uint64_t *lost)
{
    static uint64_t denials[KEYS];
    size_t count = 0;
    for (size_t sampled = MOST; sampled > MOST / 2; *threshold /= sampled > MOST / 2 ? 2 : 1) {
        sampled = 0;
        for (size_t i = 0; i < KEYS; i++) {
            sampled += keys[i].known && keys[i].hash <= *threshold;
        }
    }
    for (size_t i = 0; i < KEYS; i++) {
        if (keys[i].known && keys[i].hash > *threshold && keys[i].denied != 0) {
            denials[count++] = keys[i].denied;
        }
    }
    qsort(denials, count, sizeof(*denials), compare_down);
    const uint64_t cutoff = count > MOST / 4 ? denials[MOST / 4] : 0;
    *lost += cutoff;
    for (size_t i = 0; i < KEYS; i++) {
        keys[i].known = keys[i].known && (keys[i].hash <= *threshold || keys[i].denied > cutoff);
    }
}

static void test_the_sample_is_known_from_the_first_request_and_the_others_that_are_denied_most(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < 6; round++) {
        const size_t among = round == 0 ? MOST : KEYS; /* at first all of them have room */
        struct clients clients;
        uint64_t threshold = UINT64_MAX, lost = 0, known = 0;
        assert_true(clients_open(&clients, MOST, ROWS));
        for (size_t i = 0; i < KEYS; i++) {
            keys[i] = (struct plain_key){.length = random_below(&rng, 41)};
            for (size_t at = 0; at < keys[i].length; at++) {
                keys[i].text[at] = (char) ('a' + random_below(&rng, 26));
            }
            if (keys[i].length >= 4) { /* no two alike */
                memcpy(keys[i].text, (const uint32_t[]){(uint32_t) i}, 4);
            } else {
                memcpy(keys[i].text, (const uint32_t[]){(uint32_t) i}, 3);
                keys[i].length = 3;
            }
            keys[i].hash = clients_hash(&clients, keys[i].text, keys[i].length);
        }
        for (unsigned draw = 0; draw < 30000; draw++) {
            struct plain_key *key = &keys[random_below(&rng, draw_once_in(&rng, 2) ? among : among / 20)];
            const struct client_key asked = {key->hash, key->text, key->length, key->length % 2 == 0};
            const bool denied = draw_once_in(&rng, 3);
            bool wanted = key->known || key->hash <= threshold || denied;
            if (!key->known && wanted && known == MOST) {
                cull(&threshold, &lost);
                wanted = key->hash <= threshold || denied;
            }
            struct client *client = clients_get(&clients, &asked, denied);
            assert_int_equal(client != NULL, wanted);
            if (client != NULL) {
                struct candidate_row *rows = clients_rows(&clients, client);
                if (!key->known) {
                    key->known = true;
                    key->requests = key->denied = 0;
                    assert_int_equal(client->requests, 0);
                    assert_int_equal(rows[0].last, 0); /* nothing is left of a key that was there before */
                    assert_int_equal(rows[1].denied, 0);
                }
                client->requests++;
                client->denied += denied;
                key->requests++;
                key->denied += denied;
                rows[0].last = key->requests;
                rows[1].denied = (uint32_t) key->denied;
            }
            known = clients.count;
        }
        size_t count = 0;
        for (size_t i = 0; i < KEYS; i++) {
            count += keys[i].known;
        }
        assert_int_equal(clients.count, count);
        assert_int_equal(clients.threshold, threshold);
        assert_int_equal(clients.lost, lost);
        assert_int_equal(clients.halvings != 0, round != 0);
        assert_true(UINT64_MAX >> clients.halvings == threshold);
        for (size_t i = 0; i < KEYS; i++) {
            const struct client_key asked = {keys[i].hash, keys[i].text, keys[i].length, false};
            struct client *client = keys[i].known ? clients_get(&clients, &asked, false) : NULL;
            if (client == NULL) {
                assert_false(keys[i].known);
                continue;
            }
            assert_int_equal(client->requests, keys[i].requests);
            assert_int_equal(client->denied, keys[i].denied);
            assert_int_equal(client->hash, keys[i].hash);
            assert_int_equal(client->address, keys[i].length % 2 == 0);
            assert_int_equal(client->length, keys[i].length);
            assert_memory_equal(client_key_text(client), keys[i].text, keys[i].length);
            assert_int_equal(clients_sampled(&clients, client), keys[i].hash <= threshold);
            assert_int_equal(clients_rows(&clients, client)[0].last, keys[i].requests);
            assert_int_equal(clients_rows(&clients, client)[1].denied, keys[i].denied);
            clients_prefetch_slot(&clients, keys[i].hash);
            clients_prefetch_client(&clients, keys[i].hash);
        }
        assert_int_equal(clients.count, count);
        clients_close(&clients);
        assert_null(clients.all);
    }
}

static void test_steps_have_the_requests_of_their_seconds(void **state)
{
    (void) state;
    enum { REQUESTS = 3000 };
    static struct {
        uint64_t second;
        bool denied, denied_old;
    } all[REQUESTS];
    static struct timeline timeline;
    static const uint64_t gaps_ms[] = {0, 1, 900, 5000, 90000, 5000000, 400000000};
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < 60; round++) {
        uint64_t now_ms = (UINT64_C(1764064800) + random_below(&rng, 100000)) * 1000;
        const unsigned most_gap = (unsigned) random_below(&rng, 7);
        const size_t count = 1 + random_below(&rng, REQUESTS);
        timeline_init(&timeline);
        assert_true(timeline.count == 0 && timeline.first_s == UINT64_MAX);
        for (size_t i = 0; i < count; i++) {
            all[i].second = now_ms / 1000;
            all[i].denied = draw_once_in(&rng, 3);
            all[i].denied_old = draw_once_in(&rng, 4);
            timeline_add(&timeline, now_ms, all[i].denied, all[i].denied_old);
            now_ms += gaps_ms[random_below(&rng, most_gap + 1)];
        }
        for (size_t most = TIMELINE_STEPS; most != 0; most = most * 3 / 10) {
            const uint64_t before_s = timeline.step_s;
            const size_t before = timeline.count;
            size_t at = 0;
            timeline_fit(&timeline, most);
            assert_true(timeline.count <= most && timeline.first_s <= all[0].second);
            assert_int_equal(timeline.step_s == before_s, before <= most);
            assert_int_equal(timeline.first_s % timeline.step_s, 0);
            for (size_t step = 0; step < timeline.count; step++) {
                struct step sum = {0, 0, 0};
                const uint64_t end_s = timeline.first_s + (step + 1) * timeline.step_s;
                for (; at < count && all[at].second < end_s; at++) {
                    sum.requests++;
                    sum.denied += all[at].denied;
                    sum.denied_old += all[at].denied_old;
                }
                assert_memory_equal(&timeline.steps[step], &sum, sizeof(sum));
            }
            assert_int_equal(at, count);
            assert_true(timeline.steps[timeline.count - 1].requests != 0);
        }
    }
}

static void test_a_step_is_no_longer_than_it_must_be(void **state)
{
    (void) state;
    static const struct {
        uint64_t seconds; /* from the first request to the last */
        size_t most;
        uint64_t step_s;
    } rows[] = {
        {9, 10, 1},          {10, 10, 5},          {49, 10, 5},
        {50, 10, 10},        {99, 10, 10},         {100, 10, 30},
        {299, 10, 30},       {300, 10, 60},        {600, 10, 300},
        {2999, 10, 300},     {3000, 10, 600},      {6000, 10, 1800},
        {18000, 10, 3600},   {36000, 10, 10800},   {107999, 10, 10800},
        {108000, 10, 21600}, {216000, 10, 43200},  {432000, 10, 86400},
        {863999, 10, 86400}, {864000, 10, 172800}, {1728000, 10, 345600},
        {719, 720, 1},       {720, 720, 5},        {3600, 1, 10800},
    };
    static struct timeline timeline;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        timeline_init(&timeline);
        timeline_add(&timeline, 0, false, false);
        timeline_add(&timeline, rows[i].seconds * 1000 + 999, true, true);
        timeline_fit(&timeline, rows[i].most);
        if (timeline.step_s != rows[i].step_s) {
            fail_msg("%llu s: %llu", (unsigned long long) rows[i].seconds, (unsigned long long) timeline.step_s);
        }
        assert_int_equal(timeline.count, rows[i].seconds / rows[i].step_s + 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_sample_is_known_from_the_first_request_and_the_others_that_are_denied_most),
        cmocka_unit_test(test_steps_have_the_requests_of_their_seconds),
        cmocka_unit_test(test_a_step_is_no_longer_than_it_must_be),
    };
    return cmocka_run_group_tests_name("unit/apps/weir_simulate", tests, NULL, NULL);
}
