/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request of several keys that are charged directly, while another thread is at the same keys. The test is that other
 * thread: it acts when the charge of a key is planned, which is just before the keys are charged.
 *
 * Guards: src/check/all_direct.c, src/check/direct_charge.c, src/check/direct_charge.h, src/check/check_all.c,
 * src/check/charge.c, src/check/decide.c, src/thread/slot.c
 */
#include "check/all_table.h"
#include "check/direct_charge.h"
#include "support/nodes.h"

#define LIMIT 1000
#define KEYS  4

static const weir_limit limit = {.algorithm = WEIR_FIXED_WINDOW, .limit = LIMIT, .period_ns = 24 * HOUR};
static const weir_limit small = {.algorithm = WEIR_FIXED_WINDOW, .limit = 10, .period_ns = 24 * HOUR};
static const weir_policy policies[] = {
    {.name = "p", .limits = &limit, .limit_count = 1},
    {.name = "small", .limits = &small, .limit_count = 1},
    {.name = "here", .limits = &limit, .limit_count = 1, .scope = WEIR_SCOPE_PROCESS},
    {.name = "trial", .limits = &limit, .limit_count = 1, .mode = WEIR_SHADOW},
};

/* What the other thread does, amid a request. */
enum act {
    NOTHING,
    CHARGES,   /* one unit of a key */
    TAKES_ALL, /* of a key */
    LOCKS,     /* a cell, as to evict its key, until the request goes to the table */
    REPLACES,  /* the key of a cell, until the request goes to the table */
    TAKES_BACK /* what the request's thread was granted of a key */
};

static struct {
    struct nodes n;
    struct node *node;
    weir_thread *other;
    uint64_t names[64 * KEYS];
    size_t named;
    weir_key keys[KEYS];
    /* The act, from the plan of this number on, and how often. */
    enum act act;
    size_t key; /* at which key */
    unsigned from, times;
    unsigned plans, tables; /* charges that were planned, and requests that went to the table */
    bool acts;
} d;

bool __real_direct_look_shared(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                               uint64_t hash, uint64_t cost, struct direct_plan *plan);
bool __wrap_direct_look_shared(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                               uint64_t hash, uint64_t cost, struct direct_plan *plan);
bool __real_all_table_check(struct weir_thread *t, const struct key_list *list, weir_verdict *verdict,
                            uint8_t *denied_by);
bool __wrap_all_table_check(struct weir_thread *t, const struct key_list *list, weir_verdict *verdict,
                            uint8_t *denied_by);

static struct cell *cell_of_key(size_t key)
{
    d.node->key = d.keys[key];
    const uint32_t at = cell_of(d.node);
    assert_int_not_equal(at, TABLE_NONE);
    return &d.node->w->limiter.process.table.cells[at];
}

/* Units that the key has left, whatever is held. */
static uint64_t left_of(size_t key)
{
    d.node->key = d.keys[key];
    return room(d.node);
}

static void act(void)
{
    weir_verdict v;
    struct cell *cell = cell_of_key(d.key);
    switch (d.act) {
    case NOTHING:
        break;
    case CHARGES:
        weir_charge(d.other, &d.keys[d.key], 1);
        break;
    case TAKES_ALL:
        (void) weir_peek(d.other, &d.keys[d.key], 1, &v);
        weir_charge(d.other, &d.keys[d.key], v.remaining);
        break;
    case LOCKS:
        (void) add_relaxed(&cell->held, HELD_LOCKED);
        break;
    case REPLACES:
        store_relaxed(&cell->hash, load_relaxed(&cell->hash) + 1);
        break;
    case TAKES_BACK:
        (void) weir_peek(d.other, &d.keys[d.key], LIMIT, &v);
        break;
    }
}

bool __wrap_direct_look_shared(struct process *process, const struct policy_snapshot *snapshot, struct cell *cell,
                               uint64_t hash, uint64_t cost, struct direct_plan *plan)
{
    const bool planned = __real_direct_look_shared(process, snapshot, cell, hash, cost, plan);
    if (!d.acts) {
        d.plans++;
        d.acts = true;
        if (d.plans >= d.from && d.plans < d.from + d.times) {
            act();
        }
        d.acts = false;
    }
    return planned;
}

static void undo_act(void)
{
    struct table *table = &d.node->w->limiter.process.table;
    for (uint32_t at = 0; at < table->cell_count; at++) {
        if (d.act == LOCKS && (load_relaxed(&table->cells[at].held) & HELD_LOCKED) != 0) {
            (void) add_relaxed(&table->cells[at].held, (uint64_t) 0 - HELD_LOCKED);
        }
    }
}

static struct cell *replaced;

bool __wrap_all_table_check(struct weir_thread *t, const struct key_list *list, weir_verdict *verdict,
                            uint8_t *denied_by)
{
    d.tables++;
    undo_act();
    if (replaced != NULL && d.act == REPLACES) {
        store_relaxed(&replaced->hash, load_relaxed(&replaced->hash) - 1);
        replaced = NULL;
    }
    const bool acts = d.acts;
    d.acts = true;
    const bool allowed = __real_all_table_check(t, list, verdict, denied_by);
    d.acts = acts;
    return allowed;
}

static int open_node(void **state)
{
    (void) state;
    memset(&d, 0, sizeof(d));
    nodes_init(&d.n, policies, sizeof(policies) / sizeof(policies[0]));
    d.n.key_is_new = true;
    node_open(&d.n, 0, 0);
    d.node = &d.n.node[0];
    d.other = weir_attach(d.node->w);
    assert_non_null(d.other);
    d.acts = true; /* what the test itself does is no request */
    pass(&d.n, 1000);
    return 0;
}

static int close_node(void **state)
{
    (void) state;
    nodes_stop(&d.n);
    return 0;
}

/* Whether a thread remembers one of the first so many keys in the place of this one: neither would get a slot. */
static bool is_rival(const weir_key *key, size_t count)
{
    const weir_thread *t = d.node->t;
    bool found = false;
    for (size_t i = 0; i < count; i++) {
        found |= recent_key(t, d.keys[i].hash) == recent_key(t, key->hash);
    }
    return found;
}

/* New keys, of which the node knows all. Neither thread has a slot of them. */
static void new_keys(const char *policy)
{
    for (size_t i = 0; i < KEYS; i++) {
        do {
            uint64_t *name = &d.names[d.named];
            assert_true(d.named < sizeof(d.names) / sizeof(d.names[0]));
            *name = d.named++;
            d.keys[i] = weir_make_key(d.node->w, weir_find_policy(d.node->w, policy), name, sizeof(*name));
        } while (is_rival(&d.keys[i], i));
        d.node->key = d.keys[i];
        know_all(d.node);
    }
    tick_epoch(&d.node->w->limiter);
}

static bool request(const uint64_t *costs, size_t count, weir_verdict *v)
{
    d.plans = d.tables = 0;
    replaced = d.act == REPLACES ? cell_of_key(d.key) : NULL;
    d.acts = false;
    const bool allowed = weir_check_all(d.node->t, d.keys, costs, count, v);
    d.acts = true;
    return allowed;
}

/* Every key has so many units less than the limit, and nothing is held of it. */
static void expect_used(const uint64_t used[KEYS])
{
    for (size_t i = 0; i < KEYS; i++) {
        assert_int_equal(left_of(i), LIMIT - used[i]);
        assert_int_equal(load_relaxed(&cell_of_key(i)->held) & (HELD_UNITS | HELD_LOCKED), 0);
    }
}

static void test_keys_without_slots_are_charged_without_the_table(void **state)
{
    (void) state;
    static const uint64_t costs[KEYS] = {3, 5, 7, 2};
    weir_verdict v;
    for (size_t count = 1; count <= KEYS; count++) {
        uint64_t used[KEYS] = {0};
        weir_stats before;
        weir_stats after;
        new_keys("p");
        weir_get_stats(d.node->w, &before);
        assert_true(request(costs, count, &v));
        weir_get_stats(d.node->w, &after);
        assert_int_equal(d.tables, 0);
        assert_int_equal(d.plans, count);
        assert_int_equal(after.allowed_count - before.allowed_count, 1);
        assert_int_equal(after.slow_count - before.slow_count, 1);
        memcpy(used, costs, count * sizeof(costs[0]));
        expect_used(used);
        const size_t least = count < 3 ? count - 1 : 2;
        assert_true(v.allowed && v.key_index == least && v.remaining == LIMIT - costs[least] && v.limit == LIMIT);
        assert_int_equal(v.basis, WEIR_BASIS_FLEET);
    }
    /* Keys with as much left: the first one. */
    new_keys("p");
    assert_true(request(NULL, KEYS, &v) && v.key_index == 0 && v.remaining == LIMIT - 1);
    /* A cost of 0 asks for a unit, and takes none. */
    new_keys("p");
    assert_true(request((const uint64_t[]){1, 0}, 2, &v) && d.tables == 0 && v.key_index == 0);
    expect_used((const uint64_t[KEYS]){1});
    /* What the table decides: a key that is named twice, one of no policy, more than the limit. */
    new_keys("p");
    d.keys[2] = d.keys[0];
    assert_true(request(NULL, 3, &v) && d.tables == 1 && v.remaining == LIMIT - 2);
    new_keys("p");
    d.keys[1].policy = WEIR_NO_POLICY;
    assert_true(request(NULL, 2, NULL) && d.tables == 1);
    new_keys("p");
    assert_true(!request((const uint64_t[]){1, LIMIT + 1}, 2, NULL) && d.tables == 1);
    expect_used((const uint64_t[KEYS]){0});
}

/* Each key in turn is charged by another thread between the plan and the swap. */
static void test_a_charge_in_between_is_counted_beside_the_request(void **state)
{
    (void) state;
    static const struct {
        unsigned times, tables; /* a swap that fails again and again is left to the table */
    } rows[] = {{1, 0}, {3, 0}, {4, 1}};
    d.act = CHARGES;
    for (d.key = 0; d.key < 3; d.key++) {
        for (size_t i = 0; i < 3; i++) {
            uint64_t used[KEYS] = {2, 2, 2, 0};
            static const uint64_t costs[] = {2, 2, 2};
            new_keys("p");
            d.from = 3;
            d.times = rows[i].times;
            assert_true(request(costs, 3, NULL));
            assert_int_equal(d.tables, rows[i].tables);
            used[d.key] += rows[i].times;
            expect_used(used);
        }
    }
}

/* All or nothing: where one key has no room at its turn, the charges before it are taken back. */
static void test_a_key_whose_room_is_gone_takes_the_others_back(void **state)
{
    (void) state;
    static const uint64_t costs[] = {2, 3, 4};
    d.act = TAKES_ALL;
    d.from = 3;
    d.times = 1;
    for (d.key = 0; d.key < 3; d.key++) {
        weir_verdict v;
        uint64_t used[KEYS] = {0};
        new_keys("p");
        assert_false(request(costs, 3, &v));
        assert_int_equal(d.tables, 1);
        assert_int_equal(v.key_index, d.key);
        used[d.key] = LIMIT;
        expect_used(used);
    }
    /* The fleet learns of what was kept, and of nothing else. */
    d.act = NOTHING;
    pass(&d.n, 3000);
    for (size_t i = 0; i < KEYS; i++) {
        assert_int_equal(left_of(i), i == 2 ? 0 : LIMIT);
    }
}

/* A cell that is being given to another key cannot be held; the last key of a request is not held. */
static void test_a_cell_that_changes_hands_leaves_the_request_to_the_table(void **state)
{
    (void) state;
    static const enum act acts[] = {LOCKS, REPLACES};
    static const uint64_t costs[] = {2, 3, 4};
    d.from = 3;
    d.times = 1;
    for (size_t i = 0; i < 2; i++) {
        for (d.key = 0; d.key < 2; d.key++) {
            d.act = acts[i];
            new_keys("p");
            assert_true(request(costs, 3, NULL));
            assert_int_equal(d.tables, 1);
            d.act = NOTHING;
            expect_used((const uint64_t[KEYS]){2, 3, 4, 0});
        }
    }
}

/* A key with a grant beside two without: the grant is spent. One that was taken back meanwhile is not. */
static void test_a_grant_that_is_taken_back_meanwhile_is_not_spent(void **state)
{
    (void) state;
    static const uint64_t costs[] = {1, 3, 4};
    for (size_t i = 0; i < 6; i++) {
        const size_t at = i / 2; /* the granted one */
        const bool back = i % 2 != 0;
        struct slot *slot = NULL;
        uint64_t used[KEYS] = {1, 3, 4, 0};
        new_keys("p");
        d.act = NOTHING;
        do {
            assert_true(weir_check(d.node->t, &d.keys[at], 1, NULL));
            used[at]++;
        } while (used[at] < 100 && slot_covering(d.node->t, d.keys[at].hash, costs[at]) == NULL);
        assert_true(slot_get(d.node->t, d.keys[at].hash, &slot));
        const uint64_t grant = load_relaxed(&slot->grant);
        const uint64_t spent = load_relaxed(&slot->used);
        d.act = back ? TAKES_BACK : NOTHING;
        d.key = at;
        d.from = 2;
        d.times = 1;
        assert_true(request(costs, 3, NULL));
        assert_int_equal(d.tables, back);
        assert_int_equal(load_relaxed(&slot->used), spent + (back ? 0 : costs[at]));
        assert_true(back || load_relaxed(&slot->grant) == grant);
        d.act = NOTHING;
        expect_used(used);
        weir_stats stats;
        weir_get_stats(d.node->w, &stats);
        assert_int_equal(stats.late_units, 0);
    }
}

/* No other key can be evicted, as all cells are pinned. Without a key in shadow mode the request goes on. */
static void test_a_key_that_finds_no_cell_leaves_the_others_as_they_were(void **state)
{
    (void) state;
    struct table *table = &d.node->w->limiter.process.table;
    weir_stats before;
    weir_stats after;
    new_keys("p");
    const weir_key new_key = weir_make_key(d.node->w, d.keys[0].policy, "new", 3);
    weir_get_stats(d.node->w, &before);
    for (uint32_t at = 0; at < table->cell_count; at++) {
        (void) cell_hold(&table->cells[at], HELD_PIN);
        if (load_relaxed(&table->cells[at].hash) == 0) {
            store_relaxed(&table->cells[at].hash, UINT64_MAX - at);
        }
    }
    for (size_t at = 0; at < 2; at++) {
        const weir_key other = d.keys[1 - at];
        d.keys[1 - at] = new_key;
        assert_false(request(NULL, 2, NULL));
        assert_int_equal(d.tables, 1);
        d.keys[1 - at] = other;
    }
    const weir_key others[] = {d.keys[1], d.keys[2]};
    const weir_policy_id trial = weir_find_policy(d.node->w, "trial");
    d.keys[1] = weir_make_key(d.node->w, trial, "new", 3);
    d.keys[2] = new_key;
    for (size_t count = 2; count <= 3; count++) {
        weir_verdict v;
        tick_epoch(&d.node->w->limiter); /* the first key gets no slot, which would pin its cell */
        assert_int_equal(request(NULL, count, &v), count == 2);
        assert_true(count == 3 || (v.would_deny && v.remaining == LIMIT - 1));
        weir_get_stats(d.node->w, &after);
        /* Only the key in shadow mode would have been denied: no other key is, when nobody can track the request. */
        assert_int_equal(after.would_deny_count - before.would_deny_count, 1);
        assert_int_equal(after.allowed_count - before.allowed_count, 1);
        assert_int_equal(after.denied_count - before.denied_count, count == 2 ? 2 : 3);
    }
    memcpy(&d.keys[1], others, sizeof(others));
    for (uint32_t at = 0; at < table->cell_count; at++) {
        assert_int_equal(load_relaxed(&table->cells[at].held) & HELD_IN_USE, HELD_PIN);
        (void) cell_hold(&table->cells[at], (uint64_t) 0 - HELD_PIN);
        if (load_relaxed(&table->cells[at].hash) == UINT64_MAX - at) {
            store_relaxed(&table->cells[at].hash, 0);
        }
    }
    weir_get_stats(d.node->w, &after);
    assert_int_equal(after.untracked_count - before.untracked_count, 3);
    expect_used((const uint64_t[KEYS]){1});
}

/* What a slot knows that its key has used in this epoch. */
static uint64_t used_by_slot(const weir_thread *t, size_t slot)
{
    return load_relaxed(&t->slots[slot].used) - t->accounts[slot].used_before + t->accounts[slot].direct;
}

/* Grants are sized by what a key has used of late: by requests of several keys, or charges, as by checks. */
static void test_a_key_gets_its_slot_and_its_grants_as_soon_by_any_call(void **state)
{
    (void) state;
    static const unsigned requests[] = {1, 2, 5, 3, 6, 7, 4, 12, 2, 8, 1, 9, 9}; /* by epoch */
    weir_thread *t = d.node->t;
    for (uint64_t cost = 1; cost <= 3; cost++) {
        const uint64_t costs[] = {cost, cost};
        uint64_t used[KEYS] = {0};
        new_keys("here");
        const weir_key *alone = &d.keys[KEYS - 1];
        for (size_t epoch = 0; epoch < sizeof(requests) / sizeof(requests[0]); epoch++) {
            for (unsigned i = 0; i < requests[epoch]; i++) {
                weir_verdict v;
                assert_true(weir_check(t, alone, cost, NULL) && request(costs, 2, &v));
                assert_int_equal(d.tables, 0);
                assert_true(v.key_index == 0 && v.remaining == LIMIT - used[0] - cost); /* of two with as much left */
                weir_charge(t, &d.keys[2], cost);
                const size_t own = slot_find(t, alone->hash);
                for (size_t key = 0; key < KEYS - 1; key++) {
                    const size_t slot = slot_find(t, d.keys[key].hash);
                    assert_int_equal(slot == SLOT_NONE, own == SLOT_NONE);
                    if (slot != SLOT_NONE) {
                        assert_int_equal(used_by_slot(t, slot), used_by_slot(t, own));
                        assert_int_equal(t->accounts[slot].touched, t->accounts[own].touched);
                        assert_true(i != 0 || t->accounts[slot].size == t->accounts[own].size);
                        assert_true(i != 0 || (slot_covering(t, d.keys[key].hash, cost) != NULL) ==
                                                  (slot_covering(t, alone->hash, cost) != NULL));
                    }
                }
                for (size_t key = 0; key < KEYS; key++) {
                    used[key] += cost;
                }
            }
            tick_epoch(&d.node->w->limiter);
        }
        expect_used(used);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_keys_without_slots_are_charged_without_the_table, open_node, close_node),
        cmocka_unit_test_setup_teardown(test_a_charge_in_between_is_counted_beside_the_request, open_node, close_node),
        cmocka_unit_test_setup_teardown(test_a_key_whose_room_is_gone_takes_the_others_back, open_node, close_node),
        cmocka_unit_test_setup_teardown(test_a_cell_that_changes_hands_leaves_the_request_to_the_table, open_node,
                                        close_node),
        cmocka_unit_test_setup_teardown(test_a_grant_that_is_taken_back_meanwhile_is_not_spent, open_node, close_node),
        cmocka_unit_test_setup_teardown(test_a_key_that_finds_no_cell_leaves_the_others_as_they_were, open_node,
                                        close_node),
        cmocka_unit_test_setup_teardown(test_a_key_gets_its_slot_and_its_grants_as_soon_by_any_call, open_node,
                                        close_node),
    };
    return cmocka_run_group_tests_name("unit/check/all_direct", tests, NULL, NULL);
}
