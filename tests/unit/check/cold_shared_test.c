/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys without a slot that the fleet shares. Each check is made twice, in the same state of its key: by a handle that
 * goes by the policies' numbers that it has cached for the epoch, and by a handle that works them out for each check.
 * Between checks time passes, policies change, and the fleet goes down and comes back. Both verdicts are equal.
 *
 * Guards: src/check/check.c, src/check/direct_charge.c, src/thread/policy_snapshot.h, src/fleet/outage.c
 */
#include "support/nodes.h"
#include "thread/policy_snapshot.h"

#define KEYS     960
#define ROUNDS   3000
#define CHECKS   24 /* of a round; a key comes once in an epoch, so it gets no slot */
#define POLICIES 3
#define SETS     2

/* The same names with other numbers, and another mode in an outage. */
static const weir_limit limits[SETS][POLICIES] = {
    {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 9, .period_ns = 10 * SECOND},
     {.algorithm = WEIR_FIXED_WINDOW, .limit = 6, .period_ns = 5 * SECOND},
     {.algorithm = WEIR_SLIDING_WINDOW, .limit = 6, .period_ns = 5 * SECOND}},
    {{.algorithm = WEIR_TOKEN_BUCKET, .limit = 6, .period_ns = 10 * SECOND},
     {.algorithm = WEIR_FIXED_WINDOW, .limit = 12, .period_ns = 5 * SECOND},
     {.algorithm = WEIR_SLIDING_WINDOW, .limit = 3, .period_ns = 5 * SECOND}},
};
static weir_policy policies[SETS][POLICIES];

struct played {
    struct nodes n;
    weir_thread *other[NODES]; /* handles that work out the numbers */
    uint64_t rng;
    bool down;
    uint64_t set;
    uint64_t cached, outage, denied; /* checks */
};

static void make_policies(void)
{
    static const char *const names[POLICIES] = {"bucket", "fixed", "sliding"};
    static const weir_outage outages[POLICIES] = {WEIR_OUTAGE_SHARE, WEIR_OUTAGE_CLOSED, WEIR_OUTAGE_OPEN};
    for (size_t set = 0; set < SETS; set++) {
        for (size_t i = 0; i < POLICIES; i++) {
            policies[set][i] = (weir_policy){.name = names[i],
                                             .limits = &limits[set][i],
                                             .limit_count = 1,
                                             .scope = WEIR_SCOPE_FLEET,
                                             .on_outage = outages[(i + set) % POLICIES]};
        }
    }
}

static bool is_cached(const struct node *node, weir_policy_id id)
{
    const struct policy_snapshot *snapshot = policy_snapshot_place(node->t, id);
    return snapshot->epoch == load_acquire(&node->w->limiter.shared->line.epoch) && snapshot->id == id;
}

static void drop_cached(const weir_thread *t)
{
    for (size_t i = 0; i < POLICY_SNAPSHOTS_KEPT; i++) {
        t->snapshots[i].epoch = 0;
    }
}

/* The state of a key's cell; the key is in the table. */
static struct dwcas *state_of(const struct node *node, const weir_key *key)
{
    rcu_enter(node->t);
    const struct policy *policy =
        check_policy(&node->w->limiter.process, process_policies(&node->w->limiter.process), key);
    struct table *table = &node->w->limiter.process.table;
    const uint32_t at = table_find(table, cell_hash(policy, key, 0));
    rcu_leave(node->t);
    assert_int_not_equal(at, TABLE_NONE);
    return &table->cells[at].state;
}

static void assert_same_verdict(const weir_verdict *a, const weir_verdict *b)
{
    assert_int_equal(a->allowed, b->allowed);
    assert_int_equal(a->basis, b->basis);
    assert_int_equal(a->limit, b->limit);
    assert_int_equal(a->remaining, b->remaining);
    assert_int_equal(a->retry_after_ns, b->retry_after_ns);
    assert_int_equal(a->reset_after_ns, b->reset_after_ns);
    assert_int_equal(a->fleet_age_ns, b->fleet_age_ns);
}

static void check_twice(struct played *p, uint64_t name)
{
    const size_t at = random_below(&p->rng, NODES);
    const struct node *node = &p->n.node[at];
    const uint64_t cost = random_below(&p->rng, 4);
    const weir_policy_id id = weir_find_policy(node->w, policies[0][random_below(&p->rng, POLICIES)].name);
    const weir_key key = weir_make_key(node->w, id, &name, sizeof(name));
    weir_verdict by_cached;
    weir_verdict by_other;
    (void) weir_peek(node->t, &key, 1, NULL); /* adds the key */
    struct dwcas *state = state_of(node, &key);
    const struct dwcas_value before = dwcas_read(state);
    p->cached += is_cached(node, id);
    (void) weir_check(node->t, &key, cost, &by_cached);
    struct dwcas_value charged = dwcas_read(state);
    assert_true(dwcas_swap(state, &charged, before));
    drop_cached(p->other[at]);
    (void) weir_check(p->other[at], &key, cost, &by_other);
    assert_same_verdict(&by_cached, &by_other);
    const struct dwcas_value again = dwcas_read(state);
    assert_int_equal(charged.a, again.a);
    assert_int_equal(charged.b, again.b);
    p->outage += by_cached.basis == WEIR_BASIS_OUTAGE;
    p->denied += !by_cached.allowed;
}

/* What may change between two checks: the policies, the fleet's state, or the time alone. */
static void change_something(struct played *p)
{
    const uint64_t what = random_below(&p->rng, 200);
    if (what < 2) {
        p->down = !p->down;
        loopback_fleet_set_down(p->n.fleet, p->down);
    }
    if (what >= 2 && what < 8) {
        p->set ^= 1;
        for (size_t at = 0; at < NODES; at++) {
            assert_int_equal(weir_set_policies(p->n.node[at].w, policies[p->set], POLICIES, NULL), 0);
        }
    } else {
        pass(&p->n, STEP_MS);
    }
}

static void test_checks_by_cached_numbers_are_those_by_numbers_worked_out_anew(void **state)
{
    (void) state;
    static struct played p;
    make_policies();
    p = (struct played){.rng = test_seed()};
    nodes_init(&p.n, policies[0], POLICIES);
    p.n.max_keys = 4 * KEYS;
    nodes_meet(&p.n);
    for (size_t at = 0; at < NODES; at++) {
        p.other[at] = weir_attach(p.n.node[at].w);
        assert_non_null(p.other[at]);
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < CHECKS; i++) {
            check_twice(&p, (round * CHECKS + i) % KEYS);
        }
        change_something(&p);
    }
    assert_true(p.cached > ROUNDS);
    assert_true(p.outage > ROUNDS / 10);
    assert_true(p.denied > ROUNDS / 10);
    nodes_stop(&p.n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checks_by_cached_numbers_are_those_by_numbers_worked_out_anew),
    };
    return cmocka_run_group_tests_name("unit/check/cold_shared", tests, NULL, NULL);
}
