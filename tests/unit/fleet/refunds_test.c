/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Refunds, charges and resets on several nodes of the in-memory fleet, while rounds fail and the fleet loses its data.
 * The fleet's sum is compared with what the nodes used. What happens between two steps of a refund, or of the merge of
 * an answer, is made to happen there.
 *
 * Guards: src/check/refund.c, src/check/reset.c, src/process/refund_ledger.c, src/fleet/keys/merge.c,
 * src/fleet/keys/merge_bucket.c, src/fleet/keys/merge_target.h, src/fleet/keys/report.c,
 * src/fleet/keys/reading.c
 */
#include <errno.h>
#include <inttypes.h>

#include "check/reset.h"
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT 300

/* What happens at a place in the library's code, the next so many times that a thread comes there. */
struct amid {
    struct nodes *n;
    void (*happens)(struct nodes *n);
    int times;
};

static struct amid amid_refund, amid_merge;

static void pass_by(struct amid *amid)
{
    if (amid->times > 0) {
        const struct amid now = *amid;
        amid->times = 0; /* what happens comes here as well */
        now.happens(now.n);
        amid->times = now.times - 1;
    }
}

/* Names that the linker gives. */
struct merged_counts __real_sync_state_merged(const struct process *process, uint32_t cell);
struct merged_counts __wrap_sync_state_merged(const struct process *process, uint32_t cell);
struct state __real_window_discharge_seq(struct state s, uint32_t seq, uint64_t units);
struct state __wrap_window_discharge_seq(struct state s, uint32_t seq, uint64_t units);

/* A refund has read the state, and is about to read how much of it is other nodes'. */
struct merged_counts __wrap_sync_state_merged(const struct process *process, uint32_t cell)
{
    pass_by(&amid_refund);
    return __real_sync_state_merged(process, cell);
}

/* A merge has computed the state, and is about to write it. */
struct state __wrap_window_discharge_seq(struct state s, uint32_t seq, uint64_t units)
{
    pass_by(&amid_merge);
    return __real_window_discharge_seq(s, seq, units);
}

/* In the order of `algorithms`; see limit_of. */
static const weir_limit kinds[] = {
    {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_SLIDING_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_TOKEN_BUCKET, .limit = LIMIT, .period_ns = 24 * HOUR},
    {.algorithm = WEIR_LEAKY_BUCKET, .limit = LIMIT, .period_ns = 24 * HOUR, .delay = LIMIT},
    {.algorithm = WEIR_SLIDING_LOG, .limit = LIMIT, .period_ns = 24 * HOUR},
};

/* Every node gets answers. Then each agrees with the fleet's sum, and the sum is what was used. */
static void expect_agreed(struct nodes *n, uint64_t used)
{
    agree(n);
    assert_int_equal(fleet_sum(n), used);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(room(&n->node[i]), LIMIT - used);
        assert_int_equal(look(&n->node[i]).basis, WEIR_BASIS_FLEET);
    }
}

static void test_units_given_back_can_be_had_by_other_nodes(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask_freely(&n.node[0], LIMIT), LIMIT);
    pass(&n, TWO_INTERVALS);
    hear(&n); /* the others may let a unit pass before their answers */
    assert_int_equal(ask(&n.node[1], 1), 0);
    const uint64_t used = used_by_all(&n);
    give_back(&n.node[0], 100);
    pass(&n, TWO_INTERVALS);
    /* A log may have dropped the oldest of the units above its limit. */
    assert_in_range(fleet_sum(&n), kind->algorithm == WEIR_SLIDING_LOG ? LIMIT - 100 : used - 100, used - 100);
    const uint64_t left = LIMIT - fleet_sum(&n);
    assert_in_range(left, 100 - NODES, 100);
    agree(&n);
    assert_int_equal(room(&n.node[1]), left);
    assert_int_equal(ask_for_long(&n, &n.node[1], LIMIT), left);
    assert_int_equal(ask(&n.node[1], 1), 0);
    nodes_stop(&n);
}

static void test_refunds_and_charges_reach_the_sum_and_every_node(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask_freely(&n.node[0], 120), 120);
    charge(&n.node[1], 40);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 160);
    give_back(&n.node[0], 50);
    give_back(&n.node[1], 10);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 100);
    charge(&n.node[0], 7);
    give_back(&n.node[0], 3);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 104);
    expect_agreed(&n, 104);
    hear(&n);
    hear(&n);
    expect_agreed(&n, used_by_all(&n));
    nodes_stop(&n);
}

/* Charges and refunds between checks, so many that most are for grants. Returns the refunds that the slot has answered.
 */
static uint64_t use_grants(struct node *node, uint64_t *rng)
{
    uint64_t by_slot = 0;
    (void) ask(node, 40);
    for (int i = 0; i < 20; i++) {
        charge(node, 1 + random_below(rng, 3));
        const uint64_t slow = load_relaxed(&node->t->shared->slow_count);
        give_back(node, 1 + random_below(rng, 2));
        by_slot += load_relaxed(&node->t->shared->slow_count) == slow;
    }
    return by_slot;
}

static void test_what_is_charged_to_grants_and_given_back_to_them_reaches_the_sum_and_every_node(void **state)
{
    weir_limit wide = *(const weir_limit *) *state;
    wide.limit = 60000;
    wide.period_ns = 366 * 24 * HOUR;
    wide.delay = wide.delay != 0 ? wide.limit : 0;
    struct nodes n;
    const weir_policy policy = patient_policy_of(&wide);
    uint64_t rng = test_seed();
    uint64_t by_slots = 0;
    nodes_start(&n, &policy, 1);
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < NODES; i++) {
            by_slots += use_grants(&n.node[i], &rng);
        }
        pass(&n, STEP_MS);
    }
    print_message("# by slots: %" PRIu64 " of %d\n", by_slots, 60 * NODES * 20);
    assert_true(wide.algorithm == WEIR_LEAKY_BUCKET || by_slots > 20);
    pass(&n, TWO_INTERVALS);
    hear(&n);
    agree(&n);
    const uint64_t used = used_by_all(&n);
    assert_int_equal(fleet_sum(&n), used);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(room(&n.node[i]), wide.limit - used);
    }
    nodes_stop(&n);
}

/* A round comes between checks and a refund of more than passed on their grant. */
static void test_what_is_given_back_beside_a_grant_is_reported(void **state)
{
    struct nodes n;
    const weir_policy policy = patient_policy_of(*state);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask(&n.node[0], 100), 100);
    struct bitmap *dirty = &n.node[0].w->limiter.process.table.dirty;
    bitmap_clear(dirty, cell_of(&n.node[0]));
    assert_int_equal(bitmap_count(dirty), 0);
    give_back(&n.node[0], 90);
    assert_int_equal(bitmap_count(dirty), 1);
    nodes_stop(&n);
}

static void test_units_are_given_back_in_full_where_others_ask_as_well(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    for (int round = 0; round < 5; round++) { /* until each node leaves a fraction to the others */
        for (int i = 0; i < NODES; i++) {
            assert_int_equal(ask_for_long(&n, &n.node[i], 10), 10);
        }
    }
    expect_agreed(&n, 150);
    give_back(&n.node[0], 45);
    give_back(&n.node[1], 20);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(used_by_all(&n), 85);
    expect_agreed(&n, 85);
    nodes_stop(&n);
}

static void test_a_charge_above_the_limit_closes_every_node(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    charge(&n.node[2], LIMIT + 50);
    pass(&n, TWO_INTERVALS);
    hear(&n);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 10), 0);
    }
    give_back(&n.node[2], LIMIT);
    pass(&n, TWO_INTERVALS);
    hear(&n);
    hear(&n);
    expect_agreed(&n, used_by_all(&n));
    const uint64_t left = LIMIT - fleet_sum(&n); /* before the key is checked */
    assert_int_equal(ask_for_long(&n, &n.node[0], LIMIT), left);
    nodes_stop(&n);
}

/*
 * Two windows of 5 s: in the first node 0 uses 200 and node 1 uses 50; 100 ms into the second node 0 uses 20. Windows
 * so short are reported each interval.
 */
#define WINDOW_MS 5000

static void start_two_windows(struct nodes *n, const weir_policy *policy)
{
    nodes_start(n, policy, 1);
    assert_int_equal(ask_freely(&n->node[0], 200), 200);
    assert_int_equal(ask(&n->node[1], 50), 50);
    pass(n, TWO_INTERVALS);
    for (int i = 0; i < 2 * NODES;
         i++) { /* all nodes use the key twice; at first all the room is left to the nodes above */
        assert_int_equal(ask_for_long(n, &n->node[i % NODES], 1), 1);
    }
    pass(n, TWO_INTERVALS);
    const uint64_t into_ms = (n->fleet_clock.wall_ns - START_NS) / MILLISECOND;
    assert_true(into_ms < WINDOW_MS);
    pass(n, WINDOW_MS + 100 - into_ms);
    assert_int_equal(ask_freely(&n->node[0], 20), 20);
    pass(n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(n), 276);
}

static void test_units_of_the_window_before_are_given_back_there(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_limit limit = {.algorithm = kind->algorithm, .limit = LIMIT, .period_ns = WINDOW_MS * MILLISECOND};
    const weir_policy policy = patient_policy_of(&limit);
    start_two_windows(&n, &policy);
    give_back(&n.node[0], 120); /* 20 of this window, 100 of the window before */
    give_back(&n.node[1], 30);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 126);
    loopback_fleet_forget(n.fleet);
    pass(&n, RESYNC_MS);
    if (kind->algorithm == WEIR_SLIDING_WINDOW) {
        assert_int_equal(fleet_sum(&n), 126); /* the window before still counts */
    }
    nodes_stop(&n);
}

static void test_other_nodes_hear_what_was_given_back_of_the_window_before(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_limit limit = {.algorithm = kind->algorithm, .limit = LIMIT, .period_ns = WINDOW_MS * MILLISECOND};
    const weir_policy policy = patient_policy_of(&limit);
    start_two_windows(&n, &policy);
    give_back(&n.node[0], 120);
    pass(&n, TWO_INTERVALS);
    for (int i = 0; i < 10; i++) { /* a scan inspects the window before */
        hear_within(&n, INTERVAL_MS);
    }
    agree(&n);
    /* 2.9 s into the window. The window before, of 256 less 100, counts for 42/100, or not at all. */
    const uint64_t used = kind->algorithm == WEIR_SLIDING_WINDOW ? 66 + 30 : 30;
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(room(&n.node[i]), LIMIT - used);
    }
    nodes_stop(&n);
}

static void test_a_node_gives_back_only_what_it_took(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_limit limit = {.algorithm = kind->algorithm, .limit = LIMIT, .period_ns = WINDOW_MS * MILLISECOND};
    const weir_policy policy = patient_policy_of(&limit);
    start_two_windows(&n, &policy);
    weir_refund(n.node[2].t, &n.node[2].key, 200); /* the node used two units in the window before */
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 274);
    pass(&n, 20000); /* the window is over, so the refund has no effect */
    weir_refund(n.node[0].t, &n.node[0].key, 200);
    pass(&n, TWO_INTERVALS);
    hear_within(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 3);
    nodes_stop(&n);
}

/* Random calls on every node. No node refunds more than it has used. */
static void use_somehow(struct nodes *n, uint64_t *rng, int rounds)
{
    for (int round = 0; round < rounds; round++) {
        struct node *node = &n->node[random_below(rng, NODES)];
        (void) ask(node, random_below(rng, 5));
        if (random_below(rng, 4) == 0) {
            charge(node, 1 + random_below(rng, 3));
        }
        if (random_below(rng, 2) == 0 && node->used > 4) {
            give_back(node, 1 + random_below(rng, 3));
        }
        pass(n, 10 * random_below(rng, 8));
    }
}

static void test_what_is_said_again_because_answers_are_lost_counts_once(void **state)
{
    uint64_t rng = test_seed();
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    n.demotes_sync_states = random_below(&rng, 2) == 0;
    use_somehow(&n, &rng, 10);
    loopback_fleet_lose_answers(n.fleet, true);
    use_somehow(&n, &rng, 30);
    loopback_fleet_lose_answers(n.fleet, false);
    pass(&n, SCAN_MS);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    expect_agreed(&n, used_by_all(&n));
    nodes_stop(&n);
}

static void test_what_a_forgetful_fleet_is_told_again_counts_once(void **state)
{
    uint64_t rng = test_seed();
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    n.demotes_sync_states = random_below(&rng, 2) == 0;
    assert_int_equal(ask(&n.node[0], 60), 60);
    charge(&n.node[1], 40);
    pass(&n, TWO_INTERVALS);
    give_back(&n.node[0], 30);
    for (int times = 0; times < 3; times++) {
        use_somehow(&n, &rng, 10);
        loopback_fleet_forget(n.fleet); /* with rounds under way */
        use_somehow(&n, &rng, 5);
        loopback_fleet_lose_answers(n.fleet, times == 1);
        pass(&n, 500);
        loopback_fleet_lose_answers(n.fleet, false);
        pass_resync(&n);
        /* Units after the loss may wait for the scan. */
        for (int ms = 0; ms < SCAN_MS && fleet_sum(&n) != used_by_all(&n); ms += RESYNC_MS) {
            pass(&n, RESYNC_MS);
        }
        assert_int_equal(fleet_sum(&n), used_by_all(&n));
    }
    nodes_stop(&n);
}

static void test_what_all_nodes_know_no_forgetful_fleet_gives_back(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask(&n.node[0], 60), 60);
    charge(&n.node[1], 40);
    give_back(&n.node[0], 30);
    pass(&n, TWO_INTERVALS);
    for (int times = 0; times < 3; times++) {
        hear(&n);
        give_back(&n.node[times], 1);
        agree(&n);
        loopback_fleet_forget(n.fleet);
        pass_resync(&n);
        assert_int_equal(fleet_sum(&n), used_by_all(&n));
    }
    expect_agreed(&n, used_by_all(&n));
    nodes_stop(&n);
}

static void test_an_idle_key_is_told_again_after_the_fleet_forgot_it(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask(&n.node[0], 70), 70);
    assert_int_equal(ask(&n.node[1], 50), 50);
    give_back(&n.node[0], 20);
    pass(&n, 1000);
    assert_int_equal(fleet_sum(&n), 100);
    loopback_fleet_forget(n.fleet);
    pass(&n, RESYNC_MS); /* and no node is asked */
    assert_int_equal(fleet_sum(&n), 100);
    nodes_stop(&n);
}

static void test_what_is_given_back_ends_a_denial_that_another_node_remembers(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask_freely(&n.node[0], LIMIT), LIMIT);
    pass(&n, TWO_INTERVALS);
    (void) ask(&n.node[1], 1);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(ask(&n.node[1], 5), 0);
    charge(&n.node[1], 1); /* the node has unreported units */
    fake_clock_advance(&n.node[1].clock, INTERVAL_MS * MILLISECOND);
    assert_true(weir_poll(n.node[1].w) >= 0); /* its round is under way */
    assert_int_equal(ask(&n.node[1], 5), 0);
    give_back(&n.node[0], 100);
    assert_int_equal(weir_sync(n.node[0].w, 60000), 0);
    assert_true(weir_poll(n.node[1].w) >= 0); /* no time has passed: only the answer ends the denial */
    assert_int_equal(ask(&n.node[1], 5), 5);
    nodes_stop(&n);
}

/* Every node uses `units` and reports them. */
static void use_on_all(struct nodes *n, uint64_t each)
{
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n->node[i], each), each);
    }
    pass(n, TWO_INTERVALS);
}

static void test_a_reset_on_one_node_clears_the_key_on_all(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    use_on_all(&n, LIMIT / NODES);
    hear(&n);
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask(&n.node[i], 1), 0);
    }
    assert_int_equal(weir_reset(n.node[1].w, &n.node[1].key), 0);
    assert_int_equal(fleet_sum(&n), 0);
    pass(&n, STEP_MS);
    n.node[0].used = n.node[1].used = n.node[2].used = 0;
    hear(&n); /* nodes without the reset yet deny, and then get it */
    for (int i = 0; i < NODES; i++) {
        assert_int_equal(ask_for_long(&n, &n.node[i], 20), 20);
    }
    expect_agreed(&n, used_by_all(&n));
    pass(&n, 5000);
    expect_agreed(&n, used_by_all(&n)); /* no unit used since counts as used before the reset */
    assert_int_equal(weir_reset(n.node[0].w, &n.node[0].key), 0); /* a second reset, from another node */
    assert_int_equal(fleet_sum(&n), 0);
    nodes_stop(&n);
}

static void test_a_reset_survives_lost_answers_and_a_fleet_that_forgets(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    use_on_all(&n, 40);
    hear(&n);
    hear(&n);
    assert_int_equal(weir_reset(n.node[1].w, &n.node[1].key), 0);
    pass(&n, STEP_MS);
    n.node[0].used = n.node[1].used = n.node[2].used = 0;
    loopback_fleet_lose_answers(n.fleet, true);
    hear_within(&n, TWO_INTERVALS);
    loopback_fleet_lose_answers(n.fleet, false);
    pass(&n, SCAN_MS);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    loopback_fleet_forget(n.fleet);
    pass(&n, RESYNC_MS);
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    expect_agreed(&n, used_by_all(&n));
    nodes_stop(&n);
}

static void test_a_reset_while_the_fleet_is_down_is_told_when_it_is_back(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    use_on_all(&n, 60);
    hear(&n);
    hear(&n);
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 100);
    assert_int_equal(weir_reset(n.node[1].w, &n.node[1].key), -ENOTCONN);
    assert_int_equal(room(&n.node[1]), LIMIT); /* at this node at once */
    pass(&n, 500);
    assert_true(room(&n.node[0]) < LIMIT - 150);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, RETURN_MS);
    assert_int_equal(fleet_sum(&n), 0);
    n.node[0].used = n.node[1].used = n.node[2].used = 0;
    expect_agreed(&n, used_by_all(&n));
    nodes_stop(&n);
}

static void test_units_used_between_a_reset_and_its_telling_stay(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask(&n.node[0], 60), 60);
    assert_int_equal(ask(&n.node[1], 60), 60);
    pass(&n, TWO_INTERVALS);
    hear(&n);
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 100);
    assert_int_equal(weir_reset(n.node[1].w, &n.node[1].key), -ENOTCONN);
    pass(&n, 100);
    assert_int_equal(ask(&n.node[1], 50), 50);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 50);
    expect_agreed(&n, 50);
    nodes_stop(&n);
}

/* In an outage a bucket is served in part: a unit takes the time of as many units as there are nodes. */
static void test_a_reset_of_what_was_served_in_part_gives_back_each_unit_once(void **state)
{
    weir_limit limit = *(const weir_limit *) *state;
    limit.limit = 2 * LIMIT;
    limit.delay = limit.delay != 0 ? limit.limit : 0;
    struct nodes n;
    const weir_policy policy = policy_of(&limit);
    nodes_start(&n, &policy, 1);
    use_on_all(&n, 10);
    hear(&n);
    pass(&n, SCAN_MS); /* all units are reported, and each node has about a third of the demand */
    assert_int_equal(fleet_sum(&n), used_by_all(&n));
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 1000);
    assert_int_equal(look(&n.node[1]).basis, WEIR_BASIS_OUTAGE);
    assert_int_equal(ask(&n.node[1], 50), 50);
    assert_int_equal(weir_reset(n.node[1].w, &n.node[1].key), -ENOTCONN);
    pass(&n, 100);
    assert_int_equal(ask(&n.node[1], 20), 20);
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, RETURN_MS);
    /* What the reset keeps of a bucket is rounded up, and served in part it may be taken for some units more. */
    assert_in_range(fleet_sum(&n), 20, 20 + NODES);
    nodes_stop(&n);
}

static void test_a_reset_that_a_round_tells_of_twice_is_one_reset(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    assert_int_equal(ask(&n.node[0], 60), 60);
    assert_int_equal(ask(&n.node[1], 60), 60);
    pass(&n, TWO_INTERVALS);
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 100);
    assert_int_equal(weir_reset(n.node[0].w, &n.node[0].key), -ENOTCONN); /* the node does not know the others' 60 */
    pass(&n, 100);
    assert_int_equal(ask_freely(&n.node[0], 50), 50);
    make_urgent(&n.node[0]); /* the cell is urgent, and has changed as well */
    loopback_fleet_set_down(n.fleet, false);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(fleet_sum(&n), 50);
    expect_agreed(&n, 50);
    nodes_stop(&n);
}

/* Units that the fleet has of the window `ago` windows ago. */
static uint64_t window_sum(const struct nodes *n, uint64_t ago)
{
    char fraction[48];
    const uint64_t number = n->fleet_clock.wall_ns / (WINDOW_MS * MILLISECOND);
    (void) snprintf(fraction, sizeof(fraction), ":p:key:%llu", (unsigned long long) (number - ago));
    return loopback_fleet_sum(n->fleet, fraction);
}

/* A node resets a key, and cannot report that before the next window. Other nodes have used that window meanwhile. */
static void test_a_reset_that_is_told_late_is_none_of_a_window_that_began_after_it(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    weir_limit limit = *kind;
    limit.period_ns = WINDOW_MS * MILLISECOND;
    const weir_policy policy = patient_policy_of(&limit);
    nodes_start(&n, &policy, 1);
    use_on_all(&n, 40);
    hear_within(&n, 2000);
    loopback_fleet_set_down(n.fleet, true);
    pass(&n, 100);
    assert_int_equal(weir_reset(n.node[1].w, &n.node[1].key), -ENOTCONN);
    loopback_transport_set_cut(n.node[1].w->fleet->transport, true);
    loopback_fleet_set_down(n.fleet, false);
    const uint64_t into_ms = (n.fleet_clock.wall_ns - START_NS) / MILLISECOND;
    assert_true(into_ms < WINDOW_MS);
    pass(&n, WINDOW_MS + 100 - into_ms);
    assert_int_equal(ask_freely(&n.node[0], 30), 30);
    assert_int_equal(ask_freely(&n.node[2], 30), 30);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(window_sum(&n, 0), 60);
    assert_true(window_sum(&n, 1) >= 120);
    loopback_transport_set_cut(n.node[1].w->fleet->transport, false);
    assert_int_equal(ask_freely(&n.node[1], 5), 5);
    pass(&n, 2000);
    assert_int_equal(window_sum(&n, 0), 65);
    assert_int_equal(window_sum(&n, 1), 0);
    nodes_stop(&n);
}

/* Reports on the window before are not answered, and have to be sent again. */
static void lose_window_before(struct nodes *n)
{
    char part[48];
    const uint64_t number = n->fleet_clock.wall_ns / (WINDOW_MS * MILLISECOND);
    (void) snprintf(part, sizeof(part), ":p:key:%llu", (unsigned long long) (number - 1));
    loopback_fleet_refuse(n->fleet, part, -EAGAIN);
}

/* The reports of a key's two windows may reach Redis in two calls, one of which is lost. */
static void test_a_reset_lasts_until_both_windows_are_answered(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_limit limit = {.algorithm = kind->algorithm, .limit = LIMIT, .period_ns = WINDOW_MS * MILLISECOND};
    const weir_policy policy = patient_policy_of(&limit);
    start_two_windows(&n, &policy);
    lose_window_before(&n);
    assert_int_equal(reset_key(&n.node[0].w->limiter, &n.node[0].key, true), 0);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(window_sum(&n, 0), 0);
    assert_int_equal(window_sum(&n, 1), 256);
    assert_int_equal(ask(&n.node[0], 5), 5); /* after the reset */
    pass(&n, TWO_INTERVALS);
    loopback_fleet_refuse(n.fleet, NULL, 0);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(window_sum(&n, 0), 5);
    assert_int_equal(window_sum(&n, 1), 0);
    pass(&n, WINDOW_MS / 2);
    assert_int_equal(window_sum(&n, 0), 5);
    assert_int_equal(room(&n.node[0]), LIMIT - 5);
    nodes_stop(&n);
}

static void test_a_resync_lasts_until_both_windows_are_answered(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_limit limit = {.algorithm = kind->algorithm, .limit = LIMIT, .period_ns = WINDOW_MS * MILLISECOND};
    const weir_policy policy = patient_policy_of(&limit);
    start_two_windows(&n, &policy);
    pass(&n, BEFORE_INTERVALS * INTERVAL_MS); /* the window before is reported for a reason alone */
    lose_window_before(&n);
    loopback_fleet_forget(n.fleet);
    pass(&n, RESYNC_MS);
    assert_int_equal(window_sum(&n, 0), 20);
    assert_int_equal(window_sum(&n, 1), 0);
    loopback_fleet_refuse(n.fleet, NULL, 0);
    pass(&n, TWO_INTERVALS);
    assert_int_equal(window_sum(&n, 0), 20);
    assert_int_equal(window_sum(&n, 1), 256);
    nodes_stop(&n);
}

/*
 * A sum lacks units, and the node that let them pass is gone: until the window ends each answer shows that. A node then
 * reports everything again now and then, and not after each answer.
 */
static void miss_units_of_a_node_that_is_gone(const weir_limit *kind)
{
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    nodes_start(&n, &policy, 1);
    struct loopback_snapshot *before = loopback_fleet_snapshot(n.fleet);
    assert_non_null(before);
    assert_int_equal(ask_freely(&n.node[1], 60), 60);
    pass(&n, TWO_INTERVALS);
    hear(&n);
    node_close(&n.node[1]);
    loopback_fleet_restore(n.fleet, before, true);
    loopback_snapshot_free(before);
    const struct fleet *fleet = n.node[0].w->fleet;
    uint64_t resynced_at = fleet->gather.resynced_at;
    unsigned times = 0;
    for (int i = 0; i < 80; i++) {
        (void) ask(&n.node[0], 1);
        table_set_dirty(&n.node[0].w->limiter.process.table, cell_of(&n.node[0]));
        make_urgent(&n.node[0]);
        pass(&n, INTERVAL_MS);
        times += fleet->gather.resynced_at != resynced_at;
        resynced_at = fleet->gather.resynced_at;
    }
    assert_in_range(times, 2, 80 / 16);
    nodes_stop(&n);
}

static void test_units_that_nobody_can_tell_again_are_no_reason_to_tell_all_again_at_each_answer(void **state)
{
    (void) state;
    miss_units_of_a_node_that_is_gone(&kinds[0]);
    miss_units_of_a_node_that_is_gone(&kinds[2]);
}

/* Node 0 has used a unit, which is in its state, and node 1 has used 50. All nodes know of both. */
static void start_with_a_unit(struct nodes *n, const weir_policy *policy)
{
    nodes_start(n, policy, 1);
    assert_int_equal(ask_freely(&n->node[0], 1), 1);
    charge(&n->node[1], 50);
    pass(n, TWO_INTERVALS);
    expect_agreed(n, 51);
}

/* Node 1 uses more units, and node 0 hears of them. */
static void use_and_tell(struct nodes *n)
{
    charge(&n->node[1], 50);
    assert_int_equal(weir_sync(n->node[1].w, 60000), 0);
    mark_as_asked(&n->node[0]);
    assert_int_equal(weir_sync(n->node[0].w, 60000), 0);
}

static void give_one_back(struct nodes *n)
{
    give_back(&n->node[0], 1);
}

static void test_an_answer_that_is_merged_amid_a_refund_keeps_no_unit_back(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    start_with_a_unit(&n, &policy);
    /* Twice: before the refund that leaves grants alone, and before the one that has settled them. */
    amid_refund = (struct amid){.n = &n, .happens = use_and_tell, .times = 2};
    give_back(&n.node[0], 1);
    assert_int_equal(amid_refund.times + amid_merge.times, 0);
    expect_agreed(&n, used_by_all(&n));
    nodes_stop(&n);
}

static void test_a_refund_amid_the_merge_of_an_answer_is_whole(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    start_with_a_unit(&n, &policy);
    amid_merge = (struct amid){.n = &n, .happens = give_one_back, .times = 1};
    use_and_tell(&n);
    assert_int_equal(amid_merge.times, 0);
    expect_agreed(&n, used_by_all(&n));
    nodes_stop(&n);
}

static uint64_t told_of_others; /* units that a refund took for other nodes', amid a merge */

static void look_at_others(struct nodes *n)
{
    told_of_others = __real_sync_state_merged(&n->node[0].w->limiter.process, cell_of(&n->node[0])).now;
}

/* No refund can come between the state of a merge and what is written next. So what is written before it tells. */
static void test_what_other_nodes_have_given_back_is_known_before_the_state_is_lowered(void **state)
{
    const weir_limit *kind = *state;
    struct nodes n;
    const weir_policy policy = patient_policy_of(kind);
    start_with_a_unit(&n, &policy);
    give_back(&n.node[1], 20);
    charge(&n.node[1], 7);
    assert_int_equal(weir_sync(n.node[1].w, 60000), 0);
    mark_as_asked(&n.node[0]);
    amid_merge = (struct amid){.n = &n, .happens = look_at_others, .times = 1};
    assert_int_equal(weir_sync(n.node[0].w, 60000), 0);
    assert_int_equal(amid_merge.times, 0);
    assert_int_equal(told_of_others, 30); /* and not the 7 yet */
    expect_agreed(&n, used_by_all(&n));
    nodes_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OVER_ALL(test_units_given_back_can_be_had_by_other_nodes, kinds),
        OVER_ALL(test_refunds_and_charges_reach_the_sum_and_every_node, kinds),
        OVER_ALL(test_what_is_charged_to_grants_and_given_back_to_them_reaches_the_sum_and_every_node, kinds),
        OVER_ALL(test_what_is_given_back_beside_a_grant_is_reported, kinds),
        OVER_ALL(test_units_are_given_back_in_full_where_others_ask_as_well, kinds),
        OVER_ALL(test_a_charge_above_the_limit_closes_every_node, kinds),
        OVER_WINDOWS(test_units_of_the_window_before_are_given_back_there, kinds),
        OVER_WINDOWS(test_other_nodes_hear_what_was_given_back_of_the_window_before, kinds),
        OVER_WINDOWS(test_a_node_gives_back_only_what_it_took, kinds),
        OVER_WINDOWS(test_an_answer_that_is_merged_amid_a_refund_keeps_no_unit_back, kinds),
        OVER_WINDOWS(test_a_refund_amid_the_merge_of_an_answer_is_whole, kinds),
        OVER_WINDOWS(test_what_other_nodes_have_given_back_is_known_before_the_state_is_lowered, kinds),
        OVER_ALL(test_what_is_said_again_because_answers_are_lost_counts_once, kinds),
        OVER_ALL(test_what_a_forgetful_fleet_is_told_again_counts_once, kinds),
        OVER_ALL(test_what_all_nodes_know_no_forgetful_fleet_gives_back, kinds),
        OVER_ALL(test_an_idle_key_is_told_again_after_the_fleet_forgot_it, kinds),
        cmocka_unit_test(test_units_that_nobody_can_tell_again_are_no_reason_to_tell_all_again_at_each_answer),
        OVER_ALL(test_what_is_given_back_ends_a_denial_that_another_node_remembers, kinds),
        OVER_ALL(test_a_reset_on_one_node_clears_the_key_on_all, kinds),
        OVER_ALL(test_a_reset_survives_lost_answers_and_a_fleet_that_forgets, kinds),
        OVER_ALL(test_a_reset_while_the_fleet_is_down_is_told_when_it_is_back, kinds),
        OVER_ALL(test_units_used_between_a_reset_and_its_telling_stay, kinds),
        OVER_ALL(test_a_reset_of_what_was_served_in_part_gives_back_each_unit_once, kinds),
        OVER_ALL(test_a_reset_that_a_round_tells_of_twice_is_one_reset, kinds),
        OVER_WINDOWS(test_a_reset_that_is_told_late_is_none_of_a_window_that_began_after_it, kinds),
        OVER_WINDOWS(test_a_reset_lasts_until_both_windows_are_answered, kinds),
        OVER_WINDOWS(test_a_resync_lasts_until_both_windows_are_answered, kinds),
    };
    return cmocka_run_group_tests_name("unit/fleet/refunds", tests, NULL, NULL);
}
