/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sweeps over all keys of a table, some cells at a time: when an outage begins, on the way back from the mode open,
 * and when the first reading of the fleet's clock moves the time.
 *
 * Guards: src/fleet/keys/sweep.c, src/fleet/keys/waive.c, src/fleet/clock_shift.c
 */
#include "fleet/keys/reading.h"
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT 300
#define KEYS  200 /* all over the table */

/* The longest step of a sweep, by a clock that goes on by 0.1 ms whenever it is read. */
#define MOST_CELLS 1024

struct keys {
    uint64_t names[KEYS];
    weir_key keys[KEYS];
    uint64_t admitted[KEYS];
};

static void keys_make(struct keys *keys, const struct node *node, uint64_t first_name)
{
    memset(keys, 0, sizeof(*keys));
    for (size_t i = 0; i < KEYS; i++) {
        keys->names[i] = first_name + i;
        keys->keys[i] = weir_make_key(node->w, node->key.policy, &keys->names[i], sizeof(keys->names[i]));
    }
}

static uint64_t use_key(struct keys *keys, const struct node *node, size_t i, uint64_t units)
{
    uint64_t admitted = 0;
    while (admitted < units && weir_check(node->t, &keys->keys[i], 1, NULL)) {
        admitted++;
    }
    keys->admitted[i] += admitted;
    return admitted;
}

/* A fleet whose nodes have tables of `max_keys`; the test opens the nodes. */
static void big_nodes(struct nodes *n, const weir_policy *policy)
{
    nodes_init(n, policy, 1);
    n->max_keys = 20000;
}

/* One step of a sweep that stands at *cursor; between two of them every seventh key is used. */
static void step(const struct node *node, struct keys *keys, const uint32_t *cursor)
{
    const uint32_t from = *cursor;
    for (size_t i = 0; i < KEYS; i += 7) {
        (void) use_key(keys, node, i, 1);
    }
    const int wait_ms = weir_poll(node->w);
    assert_in_range(*cursor, from + 1, from + MOST_CELLS);
    if (*cursor < node->w->limiter.process.table.cell_count) {
        assert_int_equal(wait_ms, 0); /* it goes on at once */
    }
}

/* Nodes that have met, and the keys of the first node. */
struct subject {
    struct nodes n;
    weir_limit limit;
    weir_policy policy;
    struct keys keys;
    struct creep creep;
};

static struct node *subject_start(struct subject *s, weir_algorithm algorithm, weir_outage on_outage)
{
    s->limit = limit_of(algorithm, LIMIT);
    s->policy = policy_of(&s->limit);
    s->policy.on_outage = on_outage;
    big_nodes(&s->n, &s->policy);
    nodes_meet(&s->n);
    keys_make(&s->keys, &s->n.node[0], 0);
    return &s->n.node[0];
}

static void use_all(struct subject *s, uint64_t units)
{
    for (size_t i = 0; i < KEYS; i++) {
        assert_int_equal(use_key(&s->keys, &s->n.node[0], i, units), units);
    }
}

/* Steps of a sweep from *cursor to the end; returns how many. */
static size_t sweep_all(struct subject *s, const uint32_t *cursor)
{
    const struct node *node = &s->n.node[0];
    const uint32_t cells = (uint32_t) node->w->limiter.process.table.cell_count;
    size_t steps = 0;
    for (; *cursor < cells; steps++) {
        step(node, &s->keys, cursor);
    }
    assert_true(steps > cells / MOST_CELLS);
    return steps;
}

static void test_the_way_back_from_letting_everything_pass_is_in_parts(void **state)
{
    (void) state;
    struct subject s;
    struct node *node = subject_start(&s, WEIR_TOKEN_BUCKET, WEIR_OUTAGE_OPEN);
    const struct fleet *fleet = node->w->fleet;
    const uint32_t cells = (uint32_t) node->w->limiter.process.table.cell_count;
    loopback_fleet_set_down(s.n.fleet, true);
    pass(&s.n, 1000);
    use_all(&s, 10);
    loopback_fleet_set_down(s.n.fleet, false);
    creep_begin(&s.creep, node, MILLISECOND / 10);
    assert_int_equal(fleet->waive.cells_done, cells);
    while (fleet->waive.cells_done == cells) {
        use_all(&s, LIMIT); /* to the end: the last report of the outage goes by the new mode */
        pass(&s.n, STEP_MS);
    }
    /* From now on the limit holds, and this node has a fraction of it until its answer comes. */
    const uint64_t counts = fleet->stats.report_count;
    node->w->fleet->schedule.next_ns = 0; /* a round is due */
    const size_t steps = 1 + sweep_all(&s, &fleet->waive.cells_done);
    assert_true(fleet->stats.report_count > counts);
    pass(&s.n, SCAN_MS);
    /*
     * Units from before are no debt, whether they were reported before the sweep or after it. All of them are reported.
     */
    struct node *other = &s.n.node[1];
    for (size_t i = 0; i < KEYS; i++) {
        other->key = weir_make_key(other->w, other->key.policy, &s.keys.names[i], sizeof(s.keys.names[i]));
        assert_int_equal(ask(other, 1), 1);
    }
    pass(&s.n, SCAN_MS);
    uint64_t admitted = 0;
    for (size_t i = 0; i < KEYS; i++) {
        other->key = weir_make_key(other->w, other->key.policy, &s.keys.names[i], sizeof(s.keys.names[i]));
        assert_in_range(room(other), LIMIT - 1 - steps, LIMIT - 1);
        admitted += s.keys.admitted[i];
    }
    assert_int_equal(loopback_fleet_sum(s.n.fleet, ":p:"), admitted + KEYS);
    nodes_stop(&s.n);
}

/*
 * A key admits its limit in all. Of the units that it admitted during the sweep, `forgotten` may be lost. A bucket gets
 * one unit back in two seconds, and may lose another one in a second by which a clock was wrong.
 */
static void expect_all(struct keys *keys, const struct node *node, size_t i, uint64_t forgotten)
{
    (void) use_key(keys, node, i, 2 * LIMIT);
    assert_in_range(keys->admitted[i], LIMIT, LIMIT + forgotten + 2);
}

/* A node whose host's clock is wrong meets the fleet, and may lose it again, while its keys are in use. */
static void first_reading(weir_algorithm algorithm, int64_t wrong_ns, bool loses)
{
    struct nodes n;
    const weir_limit limit = {.algorithm = algorithm,
                              .limit = LIMIT,
                              .period_ns = 600 * SECOND,
                              .delay = algorithm == WEIR_LEAKY_BUCKET ? LIMIT : 0};
    const weir_policy policy = patient_policy_of(&limit);
    big_nodes(&n, &policy);
    n.key_is_new = true;
    node_open(&n, 0, wrong_ns);
    struct node *node = &n.node[0];
    struct fleet *fleet = node->w->fleet;
    const uint32_t cells = (uint32_t) node->w->limiter.process.table.cell_count;
    struct keys keys;
    keys_make(&keys, node, 0);
    for (size_t i = 0; i < KEYS; i++) {
        assert_int_equal(use_key(&keys, node, i, 30), 30);
    }
    struct creep creep;
    creep_begin(&creep, node, MILLISECOND / 10);
    while (fleet->clock.step_ns == 0) {
        assert_true(weir_poll(node->w) >= 0);
    }
    loopback_fleet_set_down(n.fleet, loses);
    const uint64_t counts = fleet->stats.sync_count;
    size_t steps = 1;
    uint64_t before[KEYS];
    memcpy(before, keys.admitted, sizeof(before));
    struct keys fresh;
    keys_make(&fresh, node, KEYS);
    for (; fleet->clock.step_ns != 0; steps++) {
        for (size_t i = 0; i < 10; i++) {
            (void) use_key(&fresh, node, (10 * steps + i) % KEYS, 5);
        }
        step(node, &keys, &fleet->clock_shift.cells_done);
        assert_int_equal(fleet->stats.sync_count, counts); /* no round while fleet time moves */
    }
    assert_int_equal(fleet->clock_shift.cells_done, cells);
    assert_true(steps > cells / MOST_CELLS);
    assert_in_range(look(node).fleet_age_ns, 0, SECOND); /* since the round of the reading, by the new time */
    for (size_t i = 0; i < KEYS; i++) {
        expect_all(&keys, node, i, wrong_ns < 0 ? keys.admitted[i] - before[i] : 0);
        expect_all(&fresh, node, i, wrong_ns < 0 ? fresh.admitted[i] : 0);
    }
    nodes_stop(&n);
}

static void test_the_first_reading_of_the_time_moves_keys_in_parts(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        for (int loses = 0; loses < 2; loses++) {
            first_reading(algorithms[a], 3900 * (int64_t) SECOND, loses);
            first_reading(algorithms[a], -3900 * (int64_t) SECOND, loses);
            first_reading(algorithms[a], SECOND, loses);
            first_reading(algorithms[a], -(int64_t) SECOND, loses);
        }
    }
}

/* A sweep waives what passed in the outage. It waives nothing of the debt in the last answer. */
static void test_what_a_bucket_owed_before_letting_everything_pass_stays_owed(void **state)
{
    (void) state;
    static const struct {
        bool learned;
        int64_t known; /* units after now, as last answered */
        int64_t owed;  /* units after now, then; the state's are 100 */
    } cases[] = {{true, 40, 40}, {true, -5, 0}, {false, 40, 0}, {true, 200, 100}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct subject s;
        struct node *node = subject_start(&s, WEIR_TOKEN_BUCKET, WEIR_OUTAGE_OPEN);
        struct limiter *limiter = &node->w->limiter;
        rcu_enter(node->t);
        const struct policy *policy;
        const uint32_t at = cell_at(node, &policy);
        const struct rule *rule = &policy->limits[0].rule;
        const uint64_t now = bucket_time(rule, tick_time(limiter));
        struct dwcas *word = &limiter->process.table.cells[at].state;
        struct dwcas_value value = dwcas_read(word);
        struct state used = cell_state(value);
        used.a = now + 100 * rule->unit;
        used.b = (used.b & ~BUCKET_TOTAL_MASK) | 70;
        const bool set = dwcas_swap(word, &value, cell_value(used, value));
        struct sync_full *sync = sync_at(&limiter->process, at, rule, tick_now(node->t, policy));
        sync->demand.learned_ns = cases[i].learned;
        sync->demand.known_time = now + (uint64_t) cases[i].known * rule->unit;
        /* Of 70 units, whose total has begun anew, the fleet has 60 fewer; and it has heard of no refund. */
        sync->now.acked = 3 * (BUCKET_TOTAL_MASK + 1) + (BUCKET_TOTAL_MASK - 59) + 70;
        sync->ledger = refund_ledger_make(&limiter->process, at);
        store_relaxed(&sync->ledger->refunds[0], 6);
        waive_debt(node->w->fleet, policy);
        while (node->w->fleet->waive.cells_done != limiter->process.table.cell_count) {
            waive_step(node->w->fleet, process_policies(&limiter->process));
        }
        const uint64_t owed = sync->demand.known_time;
        const uint64_t expected = now + (uint64_t) cases[i].owed * rule->unit;
        const uint64_t acked = sync->before.acked - sync->now.acked;
        const uint64_t refunds = sync->before.acked_refunds;
        const struct demand_stats demand = sync->demand;
        rcu_leave(node->t);
        assert_true(set);
        assert_int_equal(owed, expected);
        assert_int_equal(acked, 60); /* no debt, of all that the bucket has admitted and taken back */
        assert_int_equal(refunds, 6);
        assert_int_equal(demand.known_total, 70);
        assert_int_equal(demand.known_refunds, 6);
        assert_int_equal(demand.known_rate_id, bucket_rate_id(used));
        nodes_stop(&s.n);
    }
}

/*
 * A fleet that has lost its records may begin earlier, long after the first reading. Acked and refunded units of a
 * window move with the window.
 */
static void test_what_the_fleet_was_told_of_a_window_moves_with_it(void **state)
{
    (void) state;
    for (int64_t windows = -3; windows <= 3; windows++) {
        struct nodes n;
        const weir_limit limit = {.algorithm = WEIR_SLIDING_WINDOW, .limit = LIMIT, .period_ns = SECOND};
        const weir_policy policy = patient_policy_of(&limit);
        nodes_start(&n, &policy, 1);
        struct node *node = &n.node[0];
        struct fleet *fleet = node->w->fleet;
        pass(&n, 5000);
        assert_int_equal(ask(node, 20), 20);
        pass(&n, 10); /* the grant ends: units that come back to one are no refund in the table */
        give_back(node, 3);
        pass(&n, TWO_INTERVALS);
        rcu_enter(node->t);
        const struct policy *inside;
        struct process *process = &node->w->limiter.process;
        const uint32_t at = cell_at(node, &inside);
        const struct rule *rule = &inside->limits[0].rule;
        const uint64_t now_ns = tick_now(node->t, inside);
        const struct sync_full *sync = sync_at(process, at, rule, now_ns);
        const struct state was = cell_state(dwcas_read(&process->table.cells[at].state));
        const uint32_t seq = load_relaxed(&sync->allowance.seq);
        const uint64_t back = reading_window_refunds(sync, seq);
        fleet->clock_shift.cells_done = 0;
        while (!clock_shift_step(fleet, process_policies(process), now_ns, windows * (int64_t) SECOND)) {
        }
        const struct state is = cell_state(dwcas_read(&process->table.cells[at].state));
        const uint32_t moved = (seq + (uint32_t) windows) & WINDOW_SEQ_MASK;
        sync = sync_at(process, at, rule, now_ns);
        rcu_leave(node->t);
        assert_int_equal(window_seq(was), seq);
        assert_int_equal(back, 3);
        assert_int_equal(window_seq(is), moved);
        assert_int_equal(window_count(is), window_count(was));
        assert_int_equal(window_previous(is), window_previous(was));
        assert_int_equal(load_relaxed(&sync->allowance.seq), moved);
        assert_int_equal(reading_window_refunds(sync, moved), back);
        nodes_stop(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_way_back_from_letting_everything_pass_is_in_parts),
        cmocka_unit_test(test_what_a_bucket_owed_before_letting_everything_pass_stays_owed),
        cmocka_unit_test(test_what_the_fleet_was_told_of_a_window_moves_with_it),
        cmocka_unit_test(test_the_first_reading_of_the_time_moves_keys_in_parts),
    };
    return cmocka_run_group_tests_name("unit/fleet/sweep", tests, NULL, NULL);
}
