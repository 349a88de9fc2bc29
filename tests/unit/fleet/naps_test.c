/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The background thread naps while a round is gathered, so that a server's thread that shares the processor runs. Naps
 * are none of the time of a round; a host's own thread does not nap.
 *
 * Guards: src/fleet/keys/gather.c, src/limiter/leader.c
 */
#include "fleet/tuning.h"
#include "support/nodes.h"
#include "support/policies.h"

#define KEYS 3000 /* more than a table of 1000 has: two thirds are evicted */

static struct creep *napping;
static size_t naps;

static void nap(void)
{
    naps++;
    napping->crept_ns += 10 * MILLISECOND; /* as long as 20 rounds may gather */
}

/* Returns how many keys a round reports that ends by time. */
static size_t gathered(void (*by)(void), size_t *evicted)
{
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = 1000, .period_ns = 24 * HOUR};
    const weir_policy policy = patient_policy_of(&limit);
    nodes_init(&n, &policy, 1);
    n.max_keys = 1000;
    node_open(&n, 0, 0);
    pass(&n, 2 * INTERVAL_MS);
    struct node *node = &n.node[0];
    struct fleet *fleet = node->w->fleet;
    for (uint64_t name = 0; name < KEYS; name++) {
        const weir_key key = weir_make_key(node->w, node->key.policy, &name, sizeof(name));
        assert_true(weir_check(node->t, &key, 1, NULL));
    }
    struct creep creep;
    creep_begin(&creep, node, 3 * MILLISECOND / 40);
    fleet->nap = by;
    napping = &creep;
    naps = 0;
    fake_clock_advance(&node->clock, INTERVAL_MS * MILLISECOND);
    while (!fleet->schedule.under_way) {
        assert_true(weir_poll(node->w) >= 0);
    }
    assert_true(fleet->gather.has_rest);
    const size_t count = fleet->round.report_count;
    *evicted = fleet->batch.evicted_sent;
    fleet->nap = NULL; /* the node tells more as it closes */
    nodes_stop(&n);
    return count;
}

static void test_naps_are_none_of_the_time_of_a_round(void **state)
{
    (void) state;
    size_t evicted = 0;
    size_t evicted_napping = 0;
    const size_t count = gathered(NULL, &evicted);
    assert_int_equal(naps, 0);
    assert_true(evicted > 0 && count - evicted > (size_t) 2 * CLOCK_EVERY_CELLS); /* time is left for the others */
    /* Which keys a table evicts is chance. */
    const size_t count_napping = gathered(nap, &evicted_napping);
    assert_in_range(count_napping, count - CLOCK_EVERY_CELLS / 2, count + CLOCK_EVERY_CELLS / 2);
    assert_in_range(evicted_napping, evicted - CLOCK_EVERY_CELLS / 2, evicted + CLOCK_EVERY_CELLS / 2);
    assert_in_range(naps, count / CLOCK_EVERY_CELLS - 1, 2 + count / CLOCK_EVERY_CELLS);
}

static void test_the_background_thread_naps_and_a_hosts_thread_does_not(void **state)
{
    (void) state;
    for (int own = 0; own < 2; own++) {
        weir_options options = WEIR_OPTIONS_INIT;
        options.redis_url = "unix:///nowhere/redis.sock";
        options.max_keys = 1000;
        options.no_thread = own == 0;
        weir *w = open_or_fail(&options);
        assert_int_equal(w->fleet->nap != NULL, own);
        weir_close(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_naps_are_none_of_the_time_of_a_round),
        cmocka_unit_test(test_the_background_thread_naps_and_a_hosts_thread_does_not),
    };
    return cmocka_run_group_tests_name("unit/fleet/naps", tests, NULL, NULL);
}
