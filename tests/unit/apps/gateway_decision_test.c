/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gateway's other threads read of a worker's counts while it decides. Nothing is limited: every packet passes.
 *
 * Guards: apps/gateway/decision.c
 */
#include <pthread.h>
#include <stdlib.h>

#include "../apps/gateway/decision.h"
#include "../apps/gateway/gateway.h"
#include "support/draw.h"
#include "support/support.h"

/* These two are for packets that are denied, and there are none. */
void record_denied(struct record_view *view, const struct address *from, const struct address *to,
                   const unsigned char *data, size_t size, size_t policy, uint32_t now)
{
    (void) view, (void) from, (void) to, (void) data, (void) size, (void) policy, (void) now;
    abort();
}

void xdp_denied(struct xdp_view *view, weir_thread *limits, const weir_key *key, const struct gateway_policy *policy,
                const struct address *from, uint32_t now)
{
    (void) view, (void) limits, (void) key, (void) policy, (void) from, (void) now;
    abort();
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_reads_of_packets_finds_what_became_of_them),
    };
    return cmocka_run_group_tests_name("unit/apps/gateway_decision", tests, NULL, NULL);
}
