/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evicted keys that come back, and that other nodes use as well. A key begins with what it had used; its usage is
 * reported once, and counts once. (One process: stress/flood_test.c.)
 *
 * Guards: src/process/evict.c, src/process/evicted_sketch.c, src/process/sync_pool.c, src/fleet/keys/report.c,
 * src/fleet/keys/record.c
 */
#include <inttypes.h>

#include "algorithm/window.h"
#include "process/evict.h"
#include "process/insert.h"
#include "process/sync_state.h"
#include "support/bare_process.h"
#include "support/nodes.h"
#include "support/policies.h"

#define LIMIT 300

/* A policy of the fleet, and one that fills the table of one node. */
struct subject {
    struct nodes n;
    weir_limit limits[2];
    weir_policy policies[2];
    uint64_t fillers;
};

static void subject_start(struct subject *s, weir_algorithm algorithm)
{
    s->limits[0] = limit_of(algorithm, LIMIT);
    s->limits[1] = (weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 2, .period_ns = 366 * 24 * HOUR};
    s->policies[0] = policy_of(&s->limits[0]);
    s->policies[0].on_outage = WEIR_OUTAGE_LOCAL;
    s->policies[1] =
        (weir_policy){.name = "filler", .limits = &s->limits[1], .limit_count = 1, .scope = WEIR_SCOPE_PROCESS};
    s->fillers = 0;
    nodes_start(&s->n, s->policies, 2);
    pass(&s->n, 2 * TWO_INTERVALS); /* as if no other node had ever been there */
}

/*
 * Fills a node's table with keys that have no units left, until the node's own key is evicted. The own key was refused
 * before. Each key comes twice: a key that comes once gets no other key's cell (admission.c).
 */
static void evict_key(struct subject *s, struct node *node)
{
    const uint32_t at = cell_of(node);
    assert_int_not_equal(at, TABLE_NONE);
    cell_meta_record(&node->w->limiter.process.table.metas[at], EVENT_REFUSED);
    weir_detach(node->t); /* its slots hold keys in the table */
    node->t = weir_attach(node->w);
    const weir_policy_id filler = weir_find_policy(node->w, "filler");
    for (int i = 0; cell_of(node) != TABLE_NONE; i++) {
        assert_true(i < 100000);
        const uint64_t name = s->fillers++;
        const weir_key key = weir_make_key(node->w, filler, &name, sizeof(name));
        (void) weir_check(node->t, &key, 1, NULL);
        (void) weir_check(node->t, &key, 1, NULL);
    }
}

/* The last report of an evicted log has its latest units alone. */
static void tell_log(struct subject *s)
{
    if (s->limits[0].algorithm == WEIR_SLIDING_LOG) {
        pass(&s->n, TWO_INTERVALS);
    }
}

static uint64_t returned(const struct node *node)
{
    weir_stats stats;
    weir_get_stats(node->w, &stats);
    return stats.evicted_restored_count;
}

/* Whether a node's sketch has a usage record of its key. */
static bool is_remembered(const struct node *node)
{
    rcu_enter(node->t);
    const struct policy *policy =
        check_policy(&node->w->limiter.process, process_policies(&node->w->limiter.process), &node->key);
    const uint64_t now_ns = tick_now(node->t, policy);
    const struct usage usage =
        sketch_find(&node->w->limiter.process.sketch, cell_hash(policy, &node->key, 0), LIMIT, now_ns);
    rcu_leave(node->t);
    return usage.units != 0;
}

/* What is left by all nodes when every node has every answer. */
static void all_agree_on(struct subject *s, uint64_t used)
{
    agree(&s->n);
    for (int i = 0; i < NODES; i++) {
        const uint64_t left = room(&s->n.node[i]);
        if (left != LIMIT - used) {
            fail_msg("node %d has %" PRIu64 " left, not %" PRIu64, i, left, LIMIT - used);
        }
    }
}

static void test_a_key_that_comes_back_is_told_and_counted_once(void **state)
{
    (void) state;
    unsigned forgiven = 0;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        struct subject s;
        subject_start(&s, algorithms[a]);
        struct node *node = &s.n.node[0];
        uint64_t admitted = ask_freely(node, 160);
        assert_int_equal(admitted, 160);
        bool restored = true;
        for (int residency = 0; residency < 3; residency++) {
            tell_log(&s);
            evict_key(&s, node);
            const uint64_t before = returned(node);
            /*
             * Since a bucket came back this node has used only a thirtieth of its limit. Its usage record gives way
             * where seven records of the fillers are on its line (evicted_sketch.c: unrecorded evictions), in one of
             * some thousand runs.
             */
            restored = is_remembered(node);
            (void) look(node);
            assert_int_equal(returned(node), before + restored);
            if (!restored) {
                assert_true(residency != 0 &&
                            (algorithms[a] == WEIR_TOKEN_BUCKET || algorithms[a] == WEIR_LEAKY_BUCKET));
                forgiven++;
                break;
            }
            if (residency != 0) {
                pass(&s.n, TWO_INTERVALS); /* else the last report of the evicted key comes later than the key */
            }
            assert_in_range(room(node), LIMIT - admitted - 1, LIMIT - admitted);
            admitted += ask_freely(node, 10);
            pass(&s.n, TWO_INTERVALS);
        }
        if (restored) {
            assert_int_equal(admitted, 190);
            pass(&s.n, SCAN_MS / 4);
            all_agree_on(&s, admitted);
            assert_int_equal(fleet_sum(&s.n), admitted);
        }
        nodes_stop(&s.n);
    }
    assert_in_range(forgiven, 0, 1);
}

static void test_a_key_that_had_nothing_left_has_nothing_before_the_fleet_has_told(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        struct subject s;
        subject_start(&s, algorithms[a]);
        struct node *node = &s.n.node[0];
        uint64_t admitted = ask_freely(node, LIMIT - 1);
        assert_int_equal(admitted, LIMIT - 1);
        tell_log(&s);
        evict_key(&s, node);
        /* The other nodes have no answer yet. */
        for (int i = 0; i < 3; i++) {
            admitted += ask(node, 100);
            pass(&s.n, STEP_MS);
        }
        assert_in_range(admitted, LIMIT - 1, LIMIT);
        for (int i = 0; i < 10; i++) {
            admitted += ask(node, 100);
            pass(&s.n, INTERVAL_MS);
        }
        assert_in_range(admitted, LIMIT - 1, LIMIT);
        assert_int_equal(fleet_sum(&s.n), admitted);
        nodes_stop(&s.n);
    }
}

/* Gives a key a usage record that is wrong. */
static void remember_wrongly(struct node *node, uint64_t units)
{
    rcu_enter(node->t);
    const struct policy *policy =
        check_policy(&node->w->limiter.process, process_policies(&node->w->limiter.process), &node->key);
    const uint64_t now_ns = tick_now(node->t, policy);
    const struct rule *rule = &policy->limits[0].rule;
    const struct state used = rule_has_history(rule) ? (struct state){now_ns + rule->period_ns, units}
                                                     : rule_charge(rule, rule_fresh(rule, now_ns), now_ns, units);
    const struct usage usage = rule_usage(rule, used, now_ns);
    (void) sketch_record(&node->w->limiter.process.sketch, cell_hash(policy, &node->key, 0), usage, SKETCH_REFUSED,
                         now_ns);
    rcu_leave(node->t);
}

static void test_what_is_remembered_wrongly_stays_here_and_is_no_reason_to_tell_all_again(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        if (algorithms[a] == WEIR_TOKEN_BUCKET || algorithms[a] == WEIR_LEAKY_BUCKET) {
            continue; /* a bucket's time goes to the fleet */
        }
        struct subject s;
        subject_start(&s, algorithms[a]);
        struct node *node = &s.n.node[0];
        (void) look(node);
        evict_key(&s, node);
        remember_wrongly(node, 100);
        (void) look(node);
        const uint64_t resynced_at = node->w->fleet->gather.resynced_at;
        pass(&s.n, TWO_INTERVALS);
        uint64_t admitted = ask_freely(node, 50);
        assert_int_equal(admitted, 50);
        assert_int_equal(ask_freely(&s.n.node[1], 30), 30);
        pass(&s.n, TWO_INTERVALS);
        agree(&s.n);
        assert_int_equal(fleet_sum(&s.n), 80);
        /* Remote units are taken out of the restored usage, as long as the usage is greater. */
        assert_int_equal(room(node), LIMIT - 50 - 100);
        assert_int_equal(room(&s.n.node[1]), LIMIT - 80);
        assert_int_equal(ask_freely(&s.n.node[1], 100), 100);
        agree(&s.n);
        assert_int_equal(room(node), LIMIT - 50 - 130);
        assert_int_equal(node->w->fleet->gather.resynced_at, resynced_at);
        /* The restored usage ends with its window. */
        for (int i = 0; i < NODES; i++) {
            fake_clock_advance(&s.n.node[i].clock, 48 * HOUR);
        }
        fake_clock_advance(&s.n.fleet_clock, 48 * HOUR);
        pass(&s.n, TWO_INTERVALS);
        assert_int_equal(room(node), LIMIT);
        nodes_stop(&s.n);
    }
}

/* The first node has used 200 units, reported them, and evicted its key, and the key has come back. */
static struct node *subject_start_evicted(struct subject *s, weir_algorithm algorithm)
{
    subject_start(s, algorithm);
    struct node *node = &s->n.node[0];
    assert_int_equal(ask_freely(node, 200), 200);
    pass(&s->n, TWO_INTERVALS);
    evict_key(s, node);
    (void) look(node);
    return node;
}

static void test_an_outage_does_not_give_back_what_is_remembered(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        struct subject s;
        struct node *node = subject_start_evicted(&s, algorithms[a]);
        pass(&s.n, TWO_INTERVALS);
        loopback_fleet_set_down(s.n.fleet, true);
        pass(&s.n, 2000);
        assert_int_equal(look(node).basis, WEIR_BASIS_OUTAGE);
        assert_in_range(room(node), algorithms[a] == WEIR_LEAKY_BUCKET ? 0 : 1, LIMIT - 199);
        nodes_stop(&s.n);
    }
}

/*
 * On the way back a node holds back the debt of buckets until all nodes are there. It cannot hold back that of an
 * evicted bucket.
 */
static void test_what_an_outage_was_worth_is_told_of_a_key_that_is_forgotten_on_the_way_back(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        struct subject s;
        subject_start(&s, algorithms[a]);
        struct node *node = &s.n.node[0];
        s.policies[0].on_outage = WEIR_OUTAGE_SHARE;
        assert_int_equal(weir_set_policies(node->w, s.policies, 2, NULL), 0);
        assert_int_equal(ask_freely(node, 50), 50);
        pass(&s.n, TWO_INTERVALS);
        loopback_fleet_set_down(s.n.fleet, true);
        pass(&s.n, 2000);
        const uint64_t more = ask_freely(node, 30);
        assert_in_range(more, 1, 30);
        node_close(&s.n.node[2]); /* the node is awaited in vain */
        loopback_fleet_set_down(s.n.fleet, false);
        while (load_relaxed(&node->w->fleet->stats.awaiting_peers) == 0) {
            pass(&s.n, STEP_MS);
        }
        evict_key(&s, node);
        pass(&s.n, SCAN_MS);
        assert_int_equal(fleet_sum(&s.n), 50 + more);
        nodes_stop(&s.n);
    }
}

static void test_a_reset_is_one_of_what_is_remembered_too(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        for (int down = 0; down < 2; down++) {
            struct subject s;
            struct node *node = subject_start_evicted(&s, algorithms[a]);
            pass(&s.n, down != 0 ? STEP_MS : TWO_INTERVALS);
            loopback_fleet_set_down(s.n.fleet, down != 0);
            (void) weir_reset(node->w, &node->key);
            loopback_fleet_set_down(s.n.fleet, false);
            pass(&s.n, 2000);
            all_agree_on(&s, 0);
            evict_key(&s, node);
            pass(&s.n, TWO_INTERVALS);
            assert_int_equal(room(node), LIMIT);
            nodes_stop(&s.n);
        }
    }
}

/* The process layer alone, with a key in one cell. */
struct alone {
    struct process process;
    struct policy policy;
    struct policy_set *set;
    const struct rule *rule;
};

#define AT   5
#define HASH UINT64_C(0x123456789abcdef0)

static void alone_open(struct alone *a, weir_algorithm algorithm, bool fleet)
{
    bare_process_open(&a->process, 100, fleet);
    bare_policy_init(&a->policy, algorithm, LIMIT);
    a->set = bare_set_of(&a->policy);
    a->rule = &a->policy.limits[0].rule;
}

static void alone_close(struct alone *a)
{
    process_close(&a->process);
    free(a->set);
}

/* The state of a key that has used so many units so long ago. */
static struct state used(const struct alone *a, uint64_t units, uint64_t ago_ns)
{
    const uint64_t then_ns = BARE_NOW_NS - ago_ns;
    if (units != 0 && rule_has_history(a->rule)) {
        return (struct state){then_ns + a->rule->period_ns, units};
    }
    return units != 0 ? rule_charge(a->rule, rule_fresh(a->rule, then_ns), then_ns, units)
                      : rule_fresh(a->rule, then_ns);
}

static uint64_t worth(struct alone *a, uint64_t units, uint64_t ago_ns)
{
    bare_set_state(&a->process, AT, used(a, units, ago_ns));
    return evict_worth(&a->process, a->set, AT, BARE_NOW_NS);
}

static void test_a_used_key_is_worth_the_part_of_its_limit_and_an_unused_one_less_the_longer_it_was(void **state)
{
    (void) state;
    for (size_t i = 0; i < ALGORITHMS; i++) {
        struct alone a;
        alone_open(&a, algorithms[i], false);
        bare_occupy(&a.process, &a.policy, AT, HASH, (struct state){0, 0});
        const uint64_t used_of[] = {1, LIMIT / 4, LIMIT / 2, LIMIT - 1, LIMIT};
        for (size_t u = 0; u < sizeof(used_of) / sizeof(used_of[0]); u++) {
            const uint64_t units = algorithms[i] == WEIR_LEAKY_BUCKET && used_of[u] == LIMIT ? LIMIT - 1 : used_of[u];
            assert_int_equal(worth(&a, units, 0), (UINT64_C(1) << 16) + (units << 32) / LIMIT);
        }
        /* More than the limit is worth no more. */
        assert_int_equal(worth(&a, 2 * LIMIT, 0), (UINT64_C(1) << 16) + (UINT64_C(1) << 32));
        /* An hour after its time, two, four, ...: eight less each time, and in between less and less. */
        const uint64_t over_ns = a.rule->algorithm == WEIR_SLIDING_WINDOW ? 2 * a.rule->period_ns : a.rule->period_ns;
        uint64_t last = EVICT_WORTH_USED;
        for (uint64_t eighths = 8; eighths < 128; eighths++) {
            /* A window is counted by whole windows; a bucket from the moment it is full. */
            const uint64_t idle_ns = eighths * 20 * a.rule->period_ns;
            const bool window = rule_kind(a.rule) == RULE_WINDOW;
            const uint64_t ago_ns = window ? idle_ns : idle_ns + a.rule->period_ns;
            const uint64_t is = worth(&a, LIMIT, ago_ns);
            assert_in_range(is, 1, last);
            last = is;
            assert_int_equal(worth(&a, LIMIT, window ? 2 * idle_ns : 2 * idle_ns + a.rule->period_ns), is - 8);
        }
        assert_true(worth(&a, LIMIT, over_ns + 8 * SECOND) < EVICT_WORTH_USED);
        assert_true(worth(&a, 0, 0) < EVICT_WORTH_USED);
        /* Nothing is lost with a key whose limit, or policy, is no more. */
        assert_true(worth(&a, LIMIT, 0) > EVICT_WORTH_HALF);
        store_relaxed(&a.process.table.metas[AT].limit_tag, 1);
        assert_int_equal(worth(&a, LIMIT, 0), 0);
        alone_close(&a);
    }
}

/* The steps of eight a time that doubles, by the time that a log was empty. */
static void test_keys_that_were_unused_for_twice_as_long_are_worth_eight_less(void **state)
{
    (void) state;
    static const struct {
        uint64_t idle_ns, worth;
    } rows[] = {{0, 513 - 24},
                {8, 513 - 24},
                {9, 513 - 25},
                {15, 513 - 31},
                {24, 513 - 36},
                {31, 513 - 39},
                {UINT64_C(1) << 40, 513 - 320},
                {UINT64_C(3) << 39, 513 - 324},
                {UINT64_C(7) << 38, 513 - 326},
                {UINT64_C(1) << 41, 513 - 328}};
    struct alone a;
    alone_open(&a, WEIR_SLIDING_LOG, false);
    bare_occupy(&a.process, &a.policy, AT, HASH, (struct state){0, 0});
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bare_set_state(&a.process, AT, (struct state){BARE_NOW_NS - rows[i].idle_ns, 3});
        assert_int_equal(evict_worth(&a.process, a.set, AT, BARE_NOW_NS), rows[i].worth);
    }
    alone_close(&a);
}

/* The priority of the only record. */
static uint64_t priority_of(const struct alone *a)
{
    uint64_t words = 0;
    for (size_t i = 0; i < a->process.sketch.row_count * 8; i++) {
        words |= load_relaxed(&a->process.sketch.words[i]);
    }
    return words >> 62;
}

static void test_what_an_evicted_key_used_is_remembered_by_how_much_would_be_lost(void **state)
{
    (void) state;
    static const struct {
        uint64_t units;
        bool refused;
        enum sketch_priority priority;
    } rows[] = {{1, false, SKETCH_UNDER_HALF},     {LIMIT / 2 - 1, true, SKETCH_UNDER_HALF},
                {LIMIT / 2, false, SKETCH_HALF},   {LIMIT / 2, true, SKETCH_REFUSED},
                {LIMIT, false, SKETCH_HALF},       {LIMIT, true, SKETCH_REFUSED},
                {3 * LIMIT, true, SKETCH_REFUSED}, {0, true, SKETCH_RETURNED /* no record */}};
    for (size_t i = 0; i < ALGORITHMS * 8; i++) {
        struct alone a;
        alone_open(&a, algorithms[i / 8], false);
        const uint64_t units = rows[i % 8].units;
        bare_occupy(&a.process, &a.policy, AT, HASH, used(&a, units, 0));
        cell_meta_record(&a.process.table.metas[AT], rows[i % 8].refused ? EVENT_REFUSED : EVENT_DENIED);
        assert_true(cell_lock(&a.process.table.cells[AT]));
        evict_cell(&a.process, a.set, AT, BARE_NOW_NS);
        assert_int_equal(load_relaxed(&a.process.table.cells[AT].hash), 0);
        assert_int_equal(load_relaxed(&a.process.table.shared->key_count), 0);
        const struct usage usage = sketch_find(&a.process.sketch, HASH, LIMIT, BARE_NOW_NS);
        assert_in_range(usage.units, units, units + units / 128);
        assert_int_equal(priority_of(&a), rows[i % 8].priority);
        const struct process_shared *shared = a.process.shared;
        assert_int_equal(load_relaxed(&shared->evicted_used_count), units != 0);
        assert_int_equal(load_relaxed(&shared->evicted_unused_count), units == 0);
        assert_int_equal(load_relaxed(&shared->evicted_unrecorded_count), 0);
        /* Without a fleet nobody is told. */
        assert_int_equal(evict_begun_count(&a.process), 0);
        struct evicted_report report;
        assert_false(evict_take_report(&a.process, &report));
        /* It comes back with what it had used, or as a fresh key. */
        bool restored;
        const struct state back = evict_restore(&a.process, a.rule, HASH, BARE_NOW_NS, &restored);
        assert_int_equal(restored, units != 0);
        const uint64_t left = rule_headroom(a.rule, back, BARE_NOW_NS);
        assert_in_range(left, units < LIMIT ? LIMIT - units - units / 128 : 0, units < LIMIT ? LIMIT - units : 0);
        assert_int_equal(load_relaxed(&shared->evicted_restored_count), units != 0);
        assert_int_equal(priority_of(&a), SKETCH_RETURNED);
        alone_close(&a);
    }
}

/*
 * The state that a charge leaves after the key's usage was looked at, and before its cell is vacated. The linker's
 * --wrap leads the call here (tests/meson.build).
 */
static struct {
    struct process *process; /* NULL: there is no charge */
    struct state state;
} late_charge;

struct state __real_table_vacate(struct table *table, uint32_t at);
struct state __wrap_table_vacate(struct table *table, uint32_t at);

struct state __wrap_table_vacate(struct table *table, uint32_t at)
{
    if (late_charge.process != NULL) {
        bare_set_state(late_charge.process, at, late_charge.state);
    }
    return __real_table_vacate(table, at);
}

static void test_what_a_key_is_charged_while_it_is_evicted_is_remembered_and_told(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 4; i++) { /* the present window, the one before, both, and none */
        struct alone a;
        alone_open(&a, WEIR_SLIDING_WINDOW, true);
        const uint32_t seq = window_seq_at(a.rule, BARE_NOW_NS);
        bare_occupy(&a.process, &a.policy, AT, HASH, window_state(seq, 50, 100));
        late_charge.process = &a.process;
        late_charge.state = window_state(seq, i % 2 == 0 ? 70 : 50, i == 1 || i == 2 ? 120 : 100);
        assert_true(cell_lock(&a.process.table.cells[AT]));
        evict_cell(&a.process, a.set, AT, BARE_NOW_NS);
        late_charge.process = NULL;
        struct evicted_report report;
        assert_true(evict_take_report(&a.process, &report));
        assert_int_equal(report.state.a, late_charge.state.a);
        assert_int_equal(report.state.b, late_charge.state.b);
        const struct usage usage = sketch_find(&a.process.sketch, HASH, LIMIT, BARE_NOW_NS);
        const uint64_t units = rule_usage(a.rule, late_charge.state, BARE_NOW_NS).units;
        assert_in_range(usage.units, units, units + units / 128);
        assert_int_equal(load_relaxed(&a.process.shared->evicted_used_count), 1);
        alone_close(&a);
    }
}

static void test_a_usage_that_is_over_restores_nothing(void **state)
{
    (void) state;
    for (size_t i = 0; i < ALGORITHMS; i++) {
        struct alone a;
        alone_open(&a, algorithms[i], false);
        const struct usage usage = {100, BARE_NOW_NS + SECOND};
        assert_true(sketch_record(&a.process.sketch, HASH, usage, SKETCH_HALF, BARE_NOW_NS));
        bool restored;
        const struct state back = evict_restore(&a.process, a.rule, HASH, BARE_NOW_NS + 100 * SECOND, &restored);
        assert_false(restored);
        const struct state fresh = rule_fresh(a.rule, BARE_NOW_NS + 100 * SECOND);
        assert_int_equal(back.a, fresh.a);
        assert_int_equal(back.b, fresh.b);
        assert_int_equal(load_relaxed(&a.process.shared->evicted_restored_count), 0);
        alone_close(&a);
    }
    /* A record lasts up to two milliseconds longer than its window. */
    struct alone a;
    alone_open(&a, WEIR_FIXED_WINDOW, false);
    const struct usage usage = rule_usage(a.rule, used(&a, 100, 0), BARE_NOW_NS);
    assert_true(sketch_record(&a.process.sketch, HASH, usage, SKETCH_HALF, BARE_NOW_NS));
    assert_int_equal(sketch_find(&a.process.sketch, HASH, LIMIT, usage.until_ns).units, 100);
    bool restored;
    const struct state back = evict_restore(&a.process, a.rule, HASH, usage.until_ns, &restored);
    assert_false(restored);
    const struct state fresh = rule_fresh(a.rule, usage.until_ns);
    assert_int_equal(back.a, fresh.a);
    assert_int_equal(back.b, fresh.b);
    assert_int_equal(load_relaxed(&a.process.shared->evicted_restored_count), 0);
    alone_close(&a);
}

/* An evicted key of the fleet, with all that its last report tells. */
static void test_the_last_report_of_a_key_has_its_counts_its_name_and_its_refunds(void **state)
{
    (void) state;
    for (size_t i = 0; i < 2 * ALGORITHMS; i++) {
        const bool full = i % 2 == 0;
        struct alone a;
        alone_open(&a, algorithms[i / 2], true);
        const struct state was = used(&a, 100, 0);
        bare_occupy(&a.process, &a.policy, AT, HASH, was);
        struct sync_compact *compact = &a.process.syncs.compacts[AT];
        memcpy(compact->key, "a name", 6);
        compact->key_length = 6;
        struct sync_full *sync = &a.process.syncs.pool[AT];
        sync->incarnation = 77;
        sync->now.acked_refunds = 5;
        store_relaxed(&compact->residency, UINT64_C(77) << RESIDENCY_SHIFT);
        store_relaxed(&compact->sync, full ? COMPACT_HAS_FULL | AT : 0);
        store_relaxed(&refund_ledger_make(&a.process, AT)->refunds[0], 9);
        assert_true(cell_lock(&a.process.table.cells[AT]));
        evict_cell(&a.process, a.set, AT, BARE_NOW_NS);
        assert_null(sync_of(&a.process.syncs, AT));
        assert_int_equal(evict_begun_count(&a.process), 1);
        assert_int_equal(evict_ended_count(&a.process), 1);
        struct evicted_report report;
        assert_true(evict_take_report(&a.process, &report));
        assert_int_equal(report.state.a, was.a);
        assert_int_equal(report.state.b, was.b);
        assert_int_equal(load_relaxed(&report.meta.group), 1);
        assert_true(cell_meta_is(&report.meta, CELL_SHARED));
        assert_int_equal(report.sync.incarnation, 77);
        assert_int_equal(report.sync.now.acked_refunds, full ? 5 : 0);
        assert_int_equal(load_relaxed(&report.ledger.refunds[0]), 9);
        assert_int_equal(report.key.length, 6);
        assert_memory_equal(report.key.bytes, "a name", 6);
        assert_int_equal(report.time_count, 0);
        assert_false(evict_take_report(&a.process, &report));
        assert_int_equal(load_relaxed(&a.process.shared->lost_report_count), 0);
        alone_close(&a);
    }
}

/* As if others had used it, until they tell. A key that is not shared has no others. */
static void test_what_comes_back_of_a_shared_key_counts_as_remote_units(void **state)
{
    (void) state;
    for (int shared = 0; shared < 2; shared++) {
        struct alone a;
        alone_open(&a, WEIR_FIXED_WINDOW, true);
        a.policy.scope = shared != 0 ? WEIR_SCOPE_FLEET : WEIR_SCOPE_PROCESS;
        const weir_key key = {.policy = 1, .hash = HASH, .data = (const unsigned char *) "a name", .length = 6};
        const struct usage usage = rule_usage(a.rule, used(&a, 100, 0), BARE_NOW_NS);
        assert_true(sketch_record(&a.process.sketch, cell_hash(&a.policy, &key, 0), usage, SKETCH_HALF, BARE_NOW_NS));
        const uint32_t at = insert_key(&a.process, &a.policy, 0, &key, BARE_NOW_NS);
        assert_int_not_equal(at, TABLE_NONE);
        assert_int_equal(load_relaxed(&a.process.shared->evicted_restored_count), 1);
        const struct state back = cell_state(dwcas_read(&a.process.table.cells[at].state));
        assert_int_equal(window_count(back), 100);
        const struct merged_counts merged = sync_state_merged(&a.process, at);
        assert_int_equal(merged.now, shared != 0 ? 100 : 0);
        const struct sync_full *sync = sync_of(&a.process.syncs, at);
        assert_non_null(sync);
        assert_int_equal(load_relaxed(&sync->now.restored), shared != 0 ? 100 : 0);
        assert_int_equal(load_relaxed(&sync->now.remote), 0);
        alone_close(&a);
    }
}

static void test_4096_reports_wait_in_order_and_later_ones_are_counted_as_lost(void **state)
{
    (void) state;
    struct alone a;
    alone_open(&a, WEIR_FIXED_WINDOW, true);
    struct evicted_report report;
    uint64_t next = 0;
    uint64_t lost = 0;
    uint64_t taken = 0;
    for (uint64_t key = 0; key < 2 * EVICTED_COUNT + 10; key++) {
        bare_occupy(&a.process, &a.policy, AT, HASH, used(&a, 1 + key % 100, 0));
        a.process.syncs.compacts[AT].key_length = sizeof(key);
        memcpy(a.process.syncs.compacts[AT].key, &key, sizeof(key));
        assert_true(cell_lock(&a.process.table.cells[AT]));
        evict_cell(&a.process, a.set, AT, BARE_NOW_NS);
        cell_unlock(&a.process.table.cells[AT]);
        lost += key + 1 - next - lost > EVICTED_COUNT; /* of those that are neither taken nor lost */
        assert_int_equal(load_relaxed(&a.process.shared->lost_report_count), lost);
        if (key == EVICTED_COUNT + 1) {
            /* Two were lost. Room for ten, and the ring begins anew. */
            assert_int_equal(lost, 2);
            for (; taken < 10; taken++, next++) {
                assert_true(evict_take_report(&a.process, &report));
                assert_memory_equal(report.key.bytes, &next, sizeof(next));
            }
        }
    }
    assert_int_equal(evict_begun_count(&a.process), 2 * EVICTED_COUNT + 10);
    assert_int_equal(evict_ended_count(&a.process), 2 * EVICTED_COUNT + 10);
    for (; taken < EVICTED_COUNT + 10; taken++) {
        assert_true(evict_take_report(&a.process, &report));
        const uint64_t expected = taken < EVICTED_COUNT ? taken : taken + 2;
        assert_memory_equal(report.key.bytes, &expected, sizeof(expected));
    }
    assert_false(evict_take_report(&a.process, &report));
    alone_close(&a);
}

static void test_a_key_that_is_not_shared_or_has_no_limit_any_more_is_not_reported(void **state)
{
    (void) state;
    for (int which = 0; which < 2; which++) {
        struct alone a;
        alone_open(&a, WEIR_TOKEN_BUCKET, true);
        a.policy.scope = which == 0 ? WEIR_SCOPE_PROCESS : WEIR_SCOPE_FLEET;
        bare_occupy(&a.process, &a.policy, AT, HASH, used(&a, 100, 0));
        store_relaxed(&a.process.syncs.compacts[AT].sync, COMPACT_HAS_FULL | AT);
        store_relaxed(&a.process.table.metas[AT].group, which == 0 ? 1 : 2);
        assert_true(cell_lock(&a.process.table.cells[AT]));
        evict_cell(&a.process, a.set, AT, BARE_NOW_NS);
        struct evicted_report report;
        assert_false(evict_take_report(&a.process, &report));
        assert_int_equal(evict_begun_count(&a.process) + evict_ended_count(&a.process), 0);
        assert_null(sync_of(&a.process.syncs, AT));
        const uint64_t units = sketch_find(&a.process.sketch, HASH, LIMIT, BARE_NOW_NS).units;
        assert_int_equal(units, which == 0 ? 100 : 0);
        assert_int_equal(load_relaxed(&a.process.shared->evicted_unused_count), which);
        alone_close(&a);
    }
}

static void test_records_that_give_way_in_an_eviction_are_counted(void **state)
{
    (void) state;
    struct alone a;
    alone_open(&a, WEIR_FIXED_WINDOW, false);
    bare_occupy(&a.process, &a.policy, AT, HASH, used(&a, 1, 0));
    uint64_t rng = test_seed();
    for (int i = 0; i < 1000; i++) {
        evict_record_usage(&a.process, AT, a.rule, random_next(&rng), used(&a, LIMIT, 0), BARE_NOW_NS);
    }
    const uint64_t room = a.process.sketch.row_count * 7;
    const uint64_t dropped = load_relaxed(&a.process.shared->evicted_unrecorded_count);
    assert_in_range(dropped, 1000 - room - 200, 1000 - room + 20); /* some have the fingerprint of another */
    alone_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_used_key_is_worth_the_part_of_its_limit_and_an_unused_one_less_the_longer_it_was),
        cmocka_unit_test(test_keys_that_were_unused_for_twice_as_long_are_worth_eight_less),
        cmocka_unit_test(test_what_an_evicted_key_used_is_remembered_by_how_much_would_be_lost),
        cmocka_unit_test(test_what_a_key_is_charged_while_it_is_evicted_is_remembered_and_told),
        cmocka_unit_test(test_a_usage_that_is_over_restores_nothing),
        cmocka_unit_test(test_the_last_report_of_a_key_has_its_counts_its_name_and_its_refunds),
        cmocka_unit_test(test_what_comes_back_of_a_shared_key_counts_as_remote_units),
        cmocka_unit_test(test_4096_reports_wait_in_order_and_later_ones_are_counted_as_lost),
        cmocka_unit_test(test_a_key_that_is_not_shared_or_has_no_limit_any_more_is_not_reported),
        cmocka_unit_test(test_records_that_give_way_in_an_eviction_are_counted),
        cmocka_unit_test(test_a_key_that_comes_back_is_told_and_counted_once),
        cmocka_unit_test(test_a_key_that_had_nothing_left_has_nothing_before_the_fleet_has_told),
        cmocka_unit_test(test_what_is_remembered_wrongly_stays_here_and_is_no_reason_to_tell_all_again),
        cmocka_unit_test(test_an_outage_does_not_give_back_what_is_remembered),
        cmocka_unit_test(test_what_an_outage_was_worth_is_told_of_a_key_that_is_forgotten_on_the_way_back),
        cmocka_unit_test(test_a_reset_is_one_of_what_is_remembered_too),
    };
    return cmocka_run_group_tests_name("unit/process/evict", tests, NULL, NULL);
}
