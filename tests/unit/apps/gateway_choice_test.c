/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which backend a client goes to: balance, weights, and who moves, over drawn sets of backends and clients. Also texts
 * of backends and of probes.
 *
 * Guards: apps/gateway/backends/rendezvous.c, apps/gateway/backends/choice.c, apps/gateway/backends/probe.c,
 * apps/gateway/mix.h
 */
#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "../apps/gateway/backends/choice.h"
#include "../apps/gateway/backends/probe.h"
#include "../apps/gateway/backends/rendezvous.h"
#include "support/support.h"

#define CLIENTS 20000

static struct rendezvous rendezvous;
static struct rendezvous_name clients[CLIENTS];

static uint64_t state;

static uint64_t draw(void)
{
    return random_next(&state);
}

static struct address ipv4(uint32_t host, uint16_t port)
{
    struct address address = {.length = sizeof(address.u.v4)};
    address.u.v4.sin_family = AF_INET;
    address.u.v4.sin_addr.s_addr = htonl(host);
    address.u.v4.sin_port = htons(port);
    return address;
}

static struct address ipv6(const char *text, uint16_t port)
{
    struct address address = {.length = sizeof(address.u.v6)};
    address.u.v6.sin6_family = AF_INET6;
    assert_int_equal(inet_pton(AF_INET6, text, &address.u.v6.sin6_addr), 1);
    address.u.v6.sin6_port = htons(port);
    return address;
}

static int setup(void **arg)
{
    (void) arg;
    state = test_seed();
    rendezvous_init(&rendezvous, draw() % 2 == 0 ? NULL : "a secret of the fleet");
    const bool in_a_row = draw() % 2 == 0;
    const uint32_t first = (uint32_t) draw();
    for (uint32_t i = 0; i < CLIENTS; i++) {
        const struct address client = ipv4(in_a_row ? first + i : (uint32_t) draw(), (uint16_t) draw());
        clients[i] = rendezvous_client(&rendezvous, &client);
    }
    return 0;
}

struct set {
    unsigned count;
    struct rendezvous_name names[BACKENDS_MAX];
    uint32_t weights[BACKENDS_MAX];
};

static struct set draw_set(unsigned least, bool weighted)
{
    struct set set = {.count = least + (unsigned) (draw() % (BACKENDS_MAX - least + 1))};
    const uint32_t network = (uint32_t) draw();
    for (unsigned i = 0; i < set.count; i++) { /* as backends are: neighbours, of one port */
        const struct address backend = ipv4(network + i, 7777);
        set.names[i] = rendezvous_backend(&rendezvous, &backend);
        set.weights[i] = weighted ? 1 + (uint32_t) (draw() % 16) : 1;
    }
    return set;
}

/* The backend of a client, as a fleet of gateways would find it; the list begins at `from`. `without`: one is out. */
static unsigned choose(const struct set *set, const struct rendezvous_name *client, unsigned from, unsigned without)
{
    unsigned best = BACKENDS_MAX;
    struct rendezvous_draw best_draw = {0, 0};
    for (unsigned n = 0; n < set->count; n++) {
        const unsigned i = (from + n) % set->count;
        const struct rendezvous_draw d = rendezvous_draw(client, &set->names[i], set->weights[i]);
        if (i != without && (best == BACKENDS_MAX || rendezvous_beats(&d, &best_draw))) {
            best = i;
            best_draw = d;
        }
    }
    return best;
}

/* Each count is within 6 standard deviations of the binomial distribution of its weight's part. */
static void check_balance(const struct set *set, unsigned without)
{
    unsigned counts[BACKENDS_MAX] = {0};
    double sum = 0;
    for (unsigned i = 0; i < set->count; i++) {
        sum += i != without ? set->weights[i] : 0;
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        counts[choose(set, &clients[i], 0, without)]++;
    }
    for (unsigned i = 0; i < set->count; i++) {
        const double p = i != without ? set->weights[i] / sum : 0;
        const double away = counts[i] - CLIENTS * p;
        if (away * away > 36 * CLIENTS * p * (1 - p)) {
            fail_msg("backend %u of %u, weight %u: %u clients, %.1f expected", i, set->count, set->weights[i],
                     counts[i], CLIENTS * p);
        }
    }
}

static void test_clients_are_spread_by_weight(void **arg)
{
    (void) arg;
    for (unsigned n = 0; n < 12; n++) {
        const struct set set = draw_set(2, n % 2 == 0);
        check_balance(&set, BACKENDS_MAX);
        check_balance(&set, (unsigned) (draw() % set.count)); /* those that move are spread, too */
    }
}

static void test_a_weight_of_256_beside_1_is_its_share(void **arg)
{
    (void) arg;
    struct set set = draw_set(3, false);
    set.weights[0] = BACKEND_WEIGHT_MAX;
    set.count = 3;
    check_balance(&set, BACKENDS_MAX);
}

static void test_only_clients_of_a_backend_that_goes_move(void **arg)
{
    (void) arg;
    for (unsigned n = 0; n < 6; n++) {
        const struct set set = draw_set(2, n % 2 == 0);
        const unsigned gone = (unsigned) (draw() % set.count);
        for (unsigned i = 0; i < CLIENTS; i++) {
            const unsigned before = choose(&set, &clients[i], 0, BACKENDS_MAX);
            const unsigned after = choose(&set, &clients[i], 0, gone);
            assert_int_not_equal(after, gone);
            assert_true(before == gone || after == before);
        }
    }
}

static void test_only_clients_that_it_wins_move_to_a_backend_whose_weight_grows(void **arg)
{
    (void) arg;
    struct set before = draw_set(2, true);
    struct set after = before;
    const unsigned grown = (unsigned) (draw() % before.count);
    after.weights[grown] *= 2;
    for (unsigned i = 0; i < CLIENTS; i++) {
        const unsigned was = choose(&before, &clients[i], 0, BACKENDS_MAX);
        const unsigned is = choose(&after, &clients[i], 0, BACKENDS_MAX);
        assert_true(is == was || is == grown);
    }
}

static void test_the_order_of_the_list_makes_no_difference(void **arg)
{
    (void) arg;
    for (unsigned n = 0; n < 6; n++) {
        const struct set set = draw_set(2, n % 2 == 0);
        for (unsigned i = 0; i < CLIENTS / 10; i++) {
            assert_int_equal(choose(&set, &clients[i], 0, BACKENDS_MAX),
                             choose(&set, &clients[i], (unsigned) (draw() % set.count), BACKENDS_MAX));
        }
    }
}

static bool is_same_name(struct rendezvous_name a, struct rendezvous_name b)
{
    return a.words[0] == b.words[0] && a.words[1] == b.words[1];
}

static struct rendezvous_name client_of(struct address address)
{
    return rendezvous_client(&rendezvous, &address);
}

static void test_a_client_is_its_source(void **arg)
{
    (void) arg;
    const struct rendezvous_name one = client_of(ipv4(0xc6336407, 1000));
    assert_true(is_same_name(one, client_of(ipv4(0xc6336407, 2000))));
    assert_true(is_same_name(one, client_of(ipv6("::ffff:198.51.100.7", 3000))));
    assert_false(is_same_name(one, client_of(ipv4(0xc6336408, 1000))));
    assert_false(is_same_name(one, client_of(ipv6("::ffff:198.51.100.8", 1000))));
    assert_true(is_same_name(client_of(ipv6("2001:db8::1", 1)), client_of(ipv6("2001:db8::ffff:1:2:3", 2))));
    assert_false(is_same_name(client_of(ipv6("2001:db8::1", 1)), client_of(ipv6("2001:db8:0:1::1", 1))));
    const struct address backend = ipv4(0xc6336407, 1000);
    const struct address other_port = ipv4(0xc6336407, 1001);
    assert_false(is_same_name(one, rendezvous_backend(&rendezvous, &backend)));
    assert_false(is_same_name(rendezvous_backend(&rendezvous, &backend), rendezvous_backend(&rendezvous, &other_port)));
}

/*
 * Gateways of all versions and machines choose alike: a change of these breaks fleets while they are upgraded. The sum
 * is that of the same choice in Python, by hmac and math.log2.
 */
static void test_the_choice_is_one_for_all_machines(void **arg)
{
    (void) arg;
    struct rendezvous fixed;
    rendezvous_init(&fixed, NULL);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        const struct address client = ipv4(0xc0000200 + i * 7919, 1);
        const struct rendezvous_name name = rendezvous_client(&fixed, &client);
        struct rendezvous_draw best = {0, 0};
        uint64_t chosen = 0;
        for (uint32_t j = 0; j < 16; j++) {
            const struct address backend = ipv4(0x0a000001 + j, 7777);
            const struct rendezvous_name other = rendezvous_backend(&fixed, &backend);
            const struct rendezvous_draw d = rendezvous_draw(&name, &other, 1 + j % 4);
            if (j == 0 || rendezvous_beats(&d, &best)) {
                best = d;
                chosen = j;
            }
        }
        sum = sum * 31 + chosen;
    }
    assert_int_equal(sum, UINT64_C(0x3de8671817e4359c));
}

static void test_texts_of_backends(void **arg)
{
    (void) arg;
    struct backend_choice choice;
    char problem[256];
    assert_int_equal(backend_choice_parse("127.0.0.1:7", &choice, problem, sizeof(problem)), 0);
    assert_string_equal(choice.text, "127.0.0.1:7");
    assert_true(choice.weight == 1 && !choice.drain);
    assert_int_equal(backend_choice_parse("[::1]:7,drain,weight=256", &choice, problem, sizeof(problem)), 0);
    assert_string_equal(choice.text, "[::1]:7");
    assert_true(choice.weight == 256 && choice.drain && choice.address.u.any.sa_family == AF_INET6);
    static const char *const wrong[] = {"",
                                        "127.0.0.1",
                                        "127.0.0.1:7,",
                                        "127.0.0.1:7,,drain",
                                        "127.0.0.1:7,weight=",
                                        "127.0.0.1:7,weight=0",
                                        "127.0.0.1:7,weight=257",
                                        "127.0.0.1:7,weight=-1",
                                        "127.0.0.1:7,weight= 1",
                                        "127.0.0.1:7,weight=18446744073709551617",
                                        "127.0.0.1:7,draining",
                                        "127.0.0.1:7 ,drain",
                                        "\"127.0.0.1:7"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        *problem = '\0';
        assert_int_equal(backend_choice_parse(wrong[i], &choice, problem, sizeof(problem)), ADDRESS_MALFORMED);
        assert_string_not_equal(problem, "");
        assert_false(backend_choice_read(wrong[i], &choice, problem, sizeof(problem)));
    }
    char *longest = calloc(1, 2000);
    memset(longest, 'a', 1999);
    assert_int_equal(backend_choice_parse(longest, &choice, problem, sizeof(problem)), ADDRESS_MALFORMED);
    free(longest);
}

static void test_texts_of_probes(void **arg)
{
    (void) arg;
    static struct probe_payload payload;
    char problem[256];
    assert_true(probe_parse("ping", &payload, problem, sizeof(problem)));
    assert_true(payload.size == 4 && memcmp(payload.bytes, "ping", 4) == 0);
    assert_true(probe_parse("0xfF00a1", &payload, problem, sizeof(problem)));
    assert_true(payload.size == 3 && memcmp(payload.bytes, "\xff\x00\xa1", 3) == 0);
    probe_introduce(&payload);
    assert_true(payload.size == 19 && payload.bytes[12] == 0x20 && payload.bytes[18] == 0xa1);
    assert_false(probe_parse("", &payload, problem, sizeof(problem)));
    assert_false(probe_parse("0x", &payload, problem, sizeof(problem)));
    assert_false(probe_parse("0x123", &payload, problem, sizeof(problem)));
    assert_false(probe_parse("0x12 4", &payload, problem, sizeof(problem)));
    char *longest = calloc(1, PROBE_SIZE_MAX);
    memset(longest, 'a', PROBE_SIZE_MAX - 16);
    assert_true(probe_parse(longest, &payload, problem, sizeof(problem)));
    probe_introduce(&payload);
    assert_int_equal(payload.size, PROBE_SIZE_MAX);
    longest[PROBE_SIZE_MAX - 16] = 'a';
    assert_false(probe_parse(longest, &payload, problem, sizeof(problem)));
    free(longest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clients_are_spread_by_weight),
        cmocka_unit_test(test_a_weight_of_256_beside_1_is_its_share),
        cmocka_unit_test(test_only_clients_of_a_backend_that_goes_move),
        cmocka_unit_test(test_only_clients_that_it_wins_move_to_a_backend_whose_weight_grows),
        cmocka_unit_test(test_the_order_of_the_list_makes_no_difference),
        cmocka_unit_test(test_a_client_is_its_source),
        cmocka_unit_test(test_the_choice_is_one_for_all_machines),
        cmocka_unit_test(test_texts_of_backends),
        cmocka_unit_test(test_texts_of_probes),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_choice", tests, setup, NULL);
}
