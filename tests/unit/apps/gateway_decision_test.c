/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gateway's other threads read of a worker's counts while it decides; and drawn bursts of packets, which have
 * to leave no policy with more than its limit, and to deny none that would have fitted.
 *
 * Guards: apps/gateway/decision.c, apps/gateway/network.c, apps/gateway/packet_rules.c,
 * apps/gateway/policy_kind.c
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../apps/gateway/decision.h"
#include "../apps/gateway/gateway.h"
#include "support/draw.h"
#include "support/support.h"

/* What is told of packets that are denied. */
static size_t told_record, told_kernel;
static const struct address *told_to;

void record_denied(struct record_view *view, const struct address *from, const struct address *to,
                   const unsigned char *data, size_t size, size_t policy, uint32_t now)
{
    (void) view, (void) from, (void) data, (void) policy;
    assert_true(size != 0 && now == 77);
    assert_int_equal(to->u.any.sa_family, told_to->u.any.sa_family);
    assert_memory_equal(&to->u.v6.sin6_addr, &told_to->u.v6.sin6_addr, sizeof(to->u.v6.sin6_addr));
    told_record++;
}

void xdp_denied(struct xdp_view *view, weir_thread *limits, const weir_key *key, const struct gateway_policy *policy,
                const struct address *from, uint32_t now)
{
    (void) view, (void) limits, (void) from;
    assert_true(key->policy == atomic_load(&policy->id) && now == 77);
    told_kernel++;
}

static struct decision decision;
static struct counters counters;
static struct datagram datagrams[BURST_COUNT];
static uint64_t bursts;

static void *decide(void *arg)
{
    (void) arg;
    for (uint64_t i = 0; i < bursts; i++) {
        assert_int_not_equal(decision_make(&decision, 1 + i % BURST_COUNT), 0);
        decision_publish(&decision);
    }
    return NULL;
}

static void test_who_reads_of_packets_finds_what_became_of_them(void **state)
{
    (void) state;
    bursts = test_draws(SLOWED ? 200000 : 2000000);
    uint64_t all = 0;
    for (uint64_t i = 0; i < bursts; i++) {
        all += 1 + i % BURST_COUNT;
    }
    for (size_t i = 0; i < BURST_COUNT; i++) {
        datagrams[i].size = 1; /* bytes are as many as packets */
    }
    decision.counters = &counters;
    decision.datagrams = datagrams;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, decide, NULL), 0);
    for (uint64_t offered = 0; offered != all;) {
        offered = atomic_load_explicit(&counters.offered, memory_order_acquire);
        assert_true(atomic_load(&counters.passed) >= offered);
        assert_true(atomic_load(&counters.offered_bytes) >= offered);
        assert_true(atomic_load(&counters.passed_bytes) >= offered);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(atomic_load(&counters.passed), all);
    assert_int_equal(atomic_load(&counters.passed_bytes), all);
}

/* The policies of the drawn bursts: a year's window, so that nothing comes back. */
static const struct {
    const char *name;
    uint64_t limit;
    bool shadow;
} drawn_policies[] = {
    {"source", 40, false},           {"overall", 900, false},
    {"source_bytes", 9000, false},   {"overall_bytes", 250000, false},
    {"network24", 200, false},       {"network9", 500, false},
    {"network6_32", 300, false},     {"network64_bytes", 30000, false},
    {"source.dear", 5, false},       {"overall.free", 70, false},
    {"network24.no_such", 1, false}, {"overall.dear", 60, true},
};

#define DRAWN     (sizeof(drawn_policies) / sizeof(drawn_policies[0]))
#define KEYS_MOST 200
#define BURSTS    60
#define SHADOW    (DRAWN - 1)

static const struct packet_kind drawn_kinds[] = {
    {.name = "dear", .cost = 4, .value = {0}, .least_size = 1, .most_size = SIZE_MAX},
    {.name = "free", .cost = 0, .value = {0}, .least_size = 1, .most_size = SIZE_MAX},
};

/* What the keys of a policy have used. */
struct used {
    size_t count;
    struct {
        unsigned char bytes[NETWORK_KEY_SIZE];
        size_t length;
        uint64_t units;
    } keys[KEYS_MOST];
};

static struct gateway gateway;
static bool second_is_free; /* the second kind; else it costs 1 */
static struct burst burst;
static struct used used[DRAWN];
static unsigned char packets[BURST_COUNT][1500];

/* A few networks, and some addresses in each; IPv4 as such where `v4_only`, else mapped. */
static struct address draw_source(uint64_t *rng, bool v4_only)
{
    struct address address;
    memset(&address, 0, sizeof(address));
    unsigned char *bytes = address.u.v6.sin6_addr.s6_addr;
    if (v4_only || draw_once_in(rng, 2)) {
        const unsigned char v4[] = {(unsigned char) draw_between(rng, 10, 11),
                                    (unsigned char) (draw_between(rng, 0, 3) << 6), 7,
                                    (unsigned char) draw_between(rng, 1, 4)};
        bytes[10] = bytes[11] = 0xff;
        memcpy(bytes + 12, v4, 4);
        if (v4_only) {
            memset(&address, 0, sizeof(address));
            address.u.v4.sin_family = AF_INET;
            memcpy(&address.u.v4.sin_addr, v4, 4);
            return address;
        }
    } else {
        bytes[0] = 0x20;
        bytes[3] = (unsigned char) draw_between(rng, 1, 2);
        bytes[7] = (unsigned char) draw_between(rng, 1, 3);
        bytes[15] = (unsigned char) random_next(rng);
    }
    address.u.v6.sin6_family = AF_INET6;
    return address;
}

static bool is_v4(const struct address *address)
{
    return address->u.any.sa_family == AF_INET || address->u.v6.sin6_addr.s6_addr[10] == 0xff;
}

/* What a packet of a kind, 0: of none, costs of policy i; -1: the policy is not for it. */
static int64_t cost_for(size_t i, const struct address *from, unsigned kind, size_t size)
{
    static const bool of_v4[DRAWN] = {[4] = true, [5] = true, [10] = true};
    static const bool of_v6[DRAWN] = {[6] = true, [7] = true};
    const char *name = drawn_policies[i].name;
    const bool counts_bytes = strstr(name, "_bytes") != NULL;
    if ((of_v4[i] && !is_v4(from)) || (of_v6[i] && is_v4(from)) || strstr(name, "no_such") != NULL ||
        (strstr(name, ".dear") != NULL && kind != 1) || (strstr(name, ".free") != NULL && kind != 2)) {
        return -1;
    }
    if (strchr(name, '.') != NULL) {
        return 1;
    }
    return counts_bytes ? (int64_t) size : kind == 1 ? 4 : kind == 2 && second_is_free ? -1 : 1;
}

/* The units that the key of a packet has used of policy i. */
static uint64_t *used_by(size_t i, const struct address *from)
{
    static const unsigned bits[DRAWN] = {[4] = 24, [5] = 9, [6] = 32, [7] = 64, [10] = 24};
    const bool v4 = is_v4(from);
    const unsigned char *address = from->u.any.sa_family == AF_INET ? (const unsigned char *) &from->u.v4.sin_addr
                                                                    : from->u.v6.sin6_addr.s6_addr + (v4 ? 12 : 0);
    unsigned char bytes[NETWORK_KEY_SIZE] = {0};
    size_t length = strncmp(drawn_policies[i].name, "overall", 7) == 0 ? 0 : v4 ? 4 : 8;
    if (bits[i] != 0) {
        length = (v4 ? 4 : 16) + 1;
        for (unsigned bit = 0; bit < bits[i]; bit++) {
            bytes[bit / 8] |= (unsigned char) (address[bit / 8] & 0x80 >> bit % 8);
        }
        bytes[length - 1] = (unsigned char) bits[i];
    } else {
        memcpy(bytes, address, length);
    }
    size_t k = 0;
    while (k < used[i].count &&
           (used[i].keys[k].length != length || memcmp(used[i].keys[k].bytes, bytes, length) != 0)) {
        k++;
    }
    if (k == used[i].count) {
        assert_true(used[i].count++ < KEYS_MOST);
        memcpy(used[i].keys[k].bytes, bytes, sizeof(bytes));
        used[i].keys[k].length = length;
        used[i].keys[k].units = 0;
    }
    return &used[i].keys[k].units;
}

/* One burst: every packet's fate is held against what its policies have used in the end. */
static void play_burst(uint64_t *rng, bool v4_only, bool has_kinds, uint64_t checked[DRAWN])
{
    const size_t count = draw_between(rng, 1, BURST_COUNT);
    unsigned kinds[BURST_COUNT];
    size_t message = 0;
    burst.from[0] = draw_source(rng, v4_only);
    for (size_t n = 0; n < count; n++) {
        if (n != 0 && !draw_once_in(rng, 3)) { /* else of the message before, merged */
            burst.from[++message] = draw_source(rng, v4_only);
        }
        const unsigned kind = draw_once_in(rng, 2) ? 0 : (unsigned) draw_between(rng, 1, 2);
        kinds[n] = has_kinds ? kind : 0;
        datagrams[n] = (struct datagram){packets[n], draw_between(rng, 1, draw_once_in(rng, 4) ? 1500 : 100), message};
        packets[n][0] = (unsigned char[]){0x01, 0xff, 0xee}[kind];
    }
    const uint64_t dropped_before = told_record;
    const uint64_t passing = decision_make(&decision, count);
    size_t denied = 0;
    for (size_t n = 0; n < count; n++) {
        for (size_t i = 0; i < DRAWN; i++) {
            const struct address *from = &burst.from[datagrams[n].message];
            const int64_t cost = cost_for(i, from, kinds[n], datagrams[n].size);
            const bool counts = cost >= 0 && (!drawn_policies[i].shadow || (passing >> n & 1) != 0);
            checked[i] += counts && (passing >> n & 1) != 0;
            *used_by(i, from) += counts && (passing >> n & 1) != 0 ? (uint64_t) cost : 0;
        }
    }
    for (size_t n = 0; n < count; n++) {
        bool fits = true;
        for (size_t i = 0; i < SHADOW; i++) {
            const struct address *from = &burst.from[datagrams[n].message];
            const int64_t cost = cost_for(i, from, kinds[n], datagrams[n].size);
            assert_true(*used_by(i, from) <= drawn_policies[i].limit);
            fits = fits && (cost < 0 || *used_by(i, from) + (uint64_t) cost <= drawn_policies[i].limit);
        }
        assert_true((passing >> n & 1) != 0 || !fits);
        denied += (passing >> n & 1) == 0;
    }
    assert_int_equal(passing >> (count - 1) >> 1, 0);
    assert_int_equal(told_record - dropped_before, denied);
    /* And the library has counted what passed, and nothing else. */
    for (size_t i = 0; i < SHADOW; i++) {
        for (size_t k = 0; k < used[i].count; k++) {
            const weir_key key = weir_make_key(gateway.weir, atomic_load(&gateway.policies.all[i].id),
                                               used[i].keys[k].bytes, used[i].keys[k].length);
            weir_verdict verdict;
            (void) weir_peek(decision.limits, &key, 1, &verdict);
            assert_int_equal(verdict.remaining, drawn_policies[i].limit - used[i].keys[k].units);
        }
    }
}

static void test_no_policy_is_overrun_and_no_packet_is_denied_that_would_have_fitted(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < test_draws(16); round++) {
        const bool v4_only = round % 4 == 3, has_kinds = round % 2 == 0, has_free = round % 4 == 0;
        struct fake_clock fake;
        weir_options options = WEIR_OPTIONS_INIT;
        weir_limit limits[DRAWN];
        weir_policy policies[DRAWN];
        struct packet_kinds kinds = {.count = has_kinds ? 2 : 0, .all = {drawn_kinds[0], drawn_kinds[1]}};
        const unsigned char firsts[] = {0xff, 0xee}, mask = 0xff;
        uint64_t checked[DRAWN] = {0};
        weir_error error;
        fake_clock_init(&fake, UINT64_C(1767225600) * SECOND);
        options.clock = &fake.clock;
        options.max_threads = 1;
        memset(&gateway, 0, sizeof(gateway));
        memset(&decision, 0, sizeof(decision));
        memset(&counters, 0, sizeof(counters));
        memset(used, 0, sizeof(used));
        for (size_t i = 0; i < kinds.count; i++) {
            packet_kind_set(&kinds.all[i], &firsts[i], &mask, 1);
        }
        second_is_free = has_free;
        kinds.all[1].cost = has_free ? 0 : 1;
        kind_store_open(&gateway.kinds);
        kind_store_set(&gateway.kinds, &kinds);
        gateway.weir = open_or_fail(&options);
        for (size_t i = 0; i < DRAWN; i++) {
            limits[i] = (weir_limit){
                .algorithm = WEIR_FIXED_WINDOW, .limit = drawn_policies[i].limit, .period_ns = 8760 * HOUR};
            policies[i] = (weir_policy){.name = drawn_policies[i].name,
                                        .limits = &limits[i],
                                        .limit_count = 1,
                                        .mode = drawn_policies[i].shadow ? WEIR_SHADOW : WEIR_ENFORCE};
        }
        assert_int_equal(weir_set_policies(gateway.weir, policies, DRAWN, &error), 0);
        for (size_t i = 0; i < DRAWN; i++) {
            struct gateway_policy *policy = &gateway.policies.all[i];
            assert_true(policy_kind_read(drawn_policies[i].name, &policy->kind));
            atomic_store(&policy->id, weir_find_policy(gateway.weir, drawn_policies[i].name));
            atomic_store(&policy->shadow, drawn_policies[i].shadow);
        }
        atomic_store(&gateway.policies.count, DRAWN);
        struct address listen = draw_source(&rng, v4_only);
        told_record = told_kernel = 0;
        told_to = &listen;
        decision_open(&decision, &gateway, &counters, &burst, datagrams);
        decision.limits = weir_attach(gateway.weir);
        decision.now = 77;
        decision.record = (struct record_view *) (void *) &decision;
        decision.listen = &listen;
        for (unsigned n = 0; n < BURSTS; n++) {
            play_burst(&rng, v4_only, has_kinds, checked);
        }
        uint64_t dropped = 0, in_kernel = 0;
        for (size_t i = 0; i < DRAWN; i++) {
            const char *name = drawn_policies[i].name;
            const uint64_t its = atomic_load(&counters.dropped[i]);
            /* What it let pass, and what it dropped; what another policy dropped it was not asked. */
            assert_int_equal(atomic_load(&counters.checked[i]), checked[i] + atomic_load(&counters.dropped[i]));
            dropped += its;
            in_kernel += strchr(name, '.') == NULL && (!has_free || strstr(name, "_bytes") != NULL) ? its : 0;
        }
        assert_int_equal(dropped, told_record);
        assert_int_equal(in_kernel, told_kernel);
        decision_publish(&decision);
        assert_int_equal(atomic_load(&counters.offered) - atomic_load(&counters.passed), dropped);
        assert_true(dropped != 0 && atomic_load(&counters.passed) != 0);
        const uint64_t of_shadow = checked[SHADOW], limit = drawn_policies[SHADOW].limit;
        assert_int_equal(atomic_load(&counters.would_deny[SHADOW]), of_shadow > limit ? of_shadow - limit : 0);
        weir_detach(decision.limits);
        weir_close(gateway.weir);
    }
}

static void test_the_keys_of_packets_have_texts_in_the_forms_of_their_policies(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < test_draws(20000); round++) {
        const struct address from = draw_source(&rng, draw_once_in(&rng, 4));
        const bool v4 = is_v4(&from);
        const struct policy_kind kind = {.scope = v4 ? SCOPE_NETWORK_V4 : SCOPE_NETWORK_V6,
                                         .prefix = 1 + (unsigned) random_below(&rng, v4 ? 32 : 128)};
        const struct policy_kind of_source = {.scope = SCOPE_SOURCE};
        const weir_key_form *form = policy_kind_form(&kind);
        unsigned char key[NETWORK_KEY_SIZE], read[NETWORK_KEY_SIZE];
        char text[64];
        const size_t length = network_of(&from, kind.prefix, key);
        assert_int_equal(length, v4 ? 5 : 17);
        const size_t written = form->write(text, sizeof(text), key, length);
        assert_int_equal(written, strlen(text));
        assert_int_equal(strchr(text, ':') != NULL, !v4);
        assert_int_equal(strtoul(strchr(text, '/') + 1, NULL, 10), kind.prefix);
        assert_int_equal(form->read(read, sizeof(read), text), length);
        assert_memory_equal(read, key, length);
        size_t source_length;
        const void *source = network_source(&from, &source_length);
        assert_int_not_equal(policy_kind_form(&of_source)->write(text, sizeof(text), source, source_length), 0);
        assert_int_equal(policy_kind_form(&of_source)->read(read, sizeof(read), text), source_length);
        assert_memory_equal(read, source, source_length);
    }
    const struct policy_kind overall = {.scope = SCOPE_OVERALL};
    char none[2];
    assert_int_equal(policy_kind_form(&overall)->write(none, sizeof(none), NULL, 0), 0);
    assert_int_equal(policy_kind_form(&overall)->read(none, sizeof(none), ""), 0);
    assert_int_equal(policy_kind_form(&overall)->read(none, sizeof(none), "127.0.0.5"), SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_reads_of_packets_finds_what_became_of_them),
        cmocka_unit_test(test_the_keys_of_packets_have_texts_in_the_forms_of_their_policies),
        cmocka_unit_test(test_no_policy_is_overrun_and_no_packet_is_denied_that_would_have_fitted),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_decision", tests, NULL, NULL);
}
