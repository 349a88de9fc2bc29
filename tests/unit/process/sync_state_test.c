/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys without a full sync state: no count is lost, and no report is sent more often. Tables here have fewer full
 * states than cells. (The suites of the fleet run with such tables as well: see tests/meson.build.)
 *
 * Guards: src/process/sync_state.c, src/process/sync_pool.c, src/process/key_name.c,
 * src/base/minifloat.h
 */
#include <string.h>

#include "process/sync_pool.h"
#include "support/nodes.h"
#include "support/policies.h"

#define MAX_KEYS 20000 /* with more cells than the least number of full sync states */
#define LIMIT    300

struct subject {
    struct nodes n;
    weir_limit limit;
    weir_policy policy;
    struct process *process;
    const struct policy *inside; /* `policy` as the library has it; no call changes it */
    const struct rule *rule;
    uint32_t at; /* the cell of the first node's key */
};

static void subject_start(struct subject *s, weir_algorithm algorithm, uint64_t limit, int count)
{
    s->limit = limit_of(algorithm, limit);
    s->policy = patient_policy_of(&s->limit);
    nodes_init(&s->n, &s->policy, 1);
    s->n.max_keys = MAX_KEYS;
    for (int i = 0; i < count; i++) {
        node_open(&s->n, i, 0);
    }
    s->process = &s->n.node[0].w->limiter.process;
    rcu_enter(s->n.node[0].t);
    s->at = cell_at(&s->n.node[0], &s->inside);
    s->rule = &s->inside->limits[0].rule;
    rcu_leave(s->n.node[0].t);
    assert_false(s->process->syncs.all);
}

/* Uses a unit of one more key of the first node; returns its cell. */
static uint32_t subject_use(struct subject *s, const void *name, size_t length)
{
    struct node *node = &s->n.node[0];
    node->key = weir_make_key(node->w, node->key.policy, name, length);
    assert_true(weir_check(node->t, &node->key, 1, NULL));
    return cell_of(node);
}

/* Takes the full sync state of a cell that has one. */
static void subject_take(const struct subject *s, const struct sync_full *sync)
{
    assert_true(sync_demote(s->process, (uint32_t) (sync - s->process->syncs.pool)));
}

static uint64_t some_units(uint64_t *rng)
{
    return random_next(rng) >> (20 + random_below(rng, 44));
}

static void counts_fill(struct sync_counts *counts, uint64_t *rng, bool plain)
{
    counts_clear(counts);
    counts->acked = some_units(rng);
    if (random_below(rng, 2) == 0) {
        store_relaxed(&counts->remote, some_units(rng));
    }
    if (random_below(rng, plain ? 16 : 3) == 0) {
        store_relaxed(&counts->restored, some_units(rng));
    }
    if (!plain) {
        counts->acked_refunds = random_below(rng, 2) == 0 ? some_units(rng) : 0;
        store_relaxed(&counts->remote_refunds, random_below(rng, 2) == 0 ? some_units(rng) : 0);
        counts->deficit = random_below(rng, 2) == 0 ? some_units(rng) : 0;
    }
}

static void counts_expect(const struct sync_counts *now, const struct sync_counts *was, bool exact)
{
    assert_int_equal(load_relaxed(&now->remote), load_relaxed(&was->remote));
    assert_int_equal(load_relaxed(&now->remote_refunds), load_relaxed(&was->remote_refunds));
    assert_int_equal(load_relaxed(&now->restored), load_relaxed(&was->restored));
    assert_int_equal(now->acked_refunds, was->acked_refunds);
    assert_int_equal(now->deficit, was->deficit);
    /* N3: a repeated report is harmless, a missing one is not. */
    assert_true(now->acked <= was->acked);
    assert_true(was->acked - now->acked <= (exact ? 0 : was->acked >> 14));
}

/* Moves what is known of a key without a full sync state to an empty cell, which is returned, as insert.c does. */
static uint32_t subject_move(const struct subject *s, uint32_t from)
{
    struct table *table = &s->process->table;
    uint32_t to = 0;
    while (load_relaxed(&table->cells[to].hash) != 0) {
        to++;
    }
    cell_meta_copy(&table->metas[to], &table->metas[from]);
    struct dwcas_value value = dwcas_read(&table->cells[to].state);
    assert_true(dwcas_swap(&table->cells[to].state, &value,
                           cell_value(cell_state(dwcas_read(&table->cells[from].state)), value)));
    sync_move(s->process, from, to);
    return to;
}

static void counts_are_same(const struct sync_counts *one, const struct sync_counts *other)
{
    counts_expect(one, other, true);
    assert_int_equal(one->acked, other->acked);
    assert_int_equal(one->own, other->own);
    assert_int_equal(one->demand, other->demand);
    assert_int_equal(one->remote_demand, other->remote_demand);
}

static void test_what_a_full_sync_state_says_outlasts_its_demotion(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (size_t a = 0; a < ALGORITHMS; a++) {
        const bool log = algorithms[a] == WEIR_SLIDING_LOG;
        const bool window = algorithms[a] == WEIR_FIXED_WINDOW || algorithms[a] == WEIR_SLIDING_WINDOW;
        struct subject s;
        subject_start(&s, algorithms[a], LIMIT, 1);
        for (int round = 0; round < 20000; round++) {
            struct sync_full was;
            struct sync_full *sync = sync_at(s.process, s.at, s.rule, START_NS);
            const bool plain = random_below(&rng, 2) == 0;
            counts_fill(&sync->now, &rng, plain || log);
            counts_fill(&sync->before, &rng, plain || log);
            if (!window) {
                /* A bucket has these counts alone; a log has what is restored. */
                sync->before.acked = sync->before.acked_refunds = sync->before.deficit = 0;
                store_relaxed(&sync->before.remote, 0);
                store_relaxed(&sync->before.remote_refunds, 0);
                if (log) {
                    sync->now.acked = 0;
                    store_relaxed(&sync->now.remote, 0);
                } else {
                    store_relaxed(&sync->before.restored, 0);
                }
            }
            const bool tagged = random_below(&rng, 4) != 0;
            store_relaxed(&sync->allowance.seq, tagged ? (uint32_t) random_next(&rng) & WINDOW_SEQ_MASK : 0);
            store_relaxed(&sync->allowance.since_ns, random_below(&rng, 2) * START_NS);
            sync->demand.learned_ns = START_NS - random_below(&rng, HOUR);
            sync->demand.again = random_below(&rng, 2) == 0;
            was = *sync;
            const struct key_name key = compact_key(s.process, s.at);
            subject_take(&s, sync);
            assert_null(sync_of(&s.process->syncs, s.at));
            struct sync_full room;
            struct sync_full *now = sync_load(s.process, s.at, s.rule, START_NS, &room);
            assert_ptr_equal(now, &room);
            counts_expect(&now->now, &was.now, !window);
            counts_expect(&now->before, &was.before, !window);
            assert_int_equal(load_relaxed(&now->allowance.seq), load_relaxed(&was.allowance.seq));
            assert_int_equal(now->incarnation, was.incarnation);
            assert_int_equal(now->demand.again, was.demand.again);
            assert_int_equal(load_relaxed(&now->allowance.since_ns) != 0, load_relaxed(&was.allowance.since_ns) != 0);
            if (load_relaxed(&was.allowance.since_ns) != 0) {
                /* The time of the last report, to some 0.3 s. */
                assert_in_range(now->demand.learned_ns + SECOND, was.demand.learned_ns + SECOND / 2,
                                was.demand.learned_ns + 3 * SECOND / 2);
            }
            const struct key_name kept = compact_key(s.process, s.at);
            assert_memory_equal(&kept, &key, sizeof(kept));
            /* Where nobody asked for more than they got, as in what is not spilled, demand is what was used. */
            if (!compact_is(&s.process->syncs.compacts[s.at], COMPACT_SPILLED)) {
                assert_int_equal(now->now.demand, now->now.acked);
                assert_int_equal(now->now.remote_demand, load_relaxed(&now->now.remote));
                assert_int_equal(now->before.demand, now->before.acked);
                assert_int_equal(now->before.remote_demand, load_relaxed(&now->before.remote));
            }
            /* It also outlasts that the key moves. */
            struct sync_full moved;
            const uint32_t to = subject_move(&s, s.at);
            assert_ptr_equal(sync_load(s.process, to, s.rule, START_NS, &moved), &moved);
            counts_are_same(&moved.now, &now->now);
            counts_are_same(&moved.before, &now->before);
            assert_int_equal(load_relaxed(&moved.allowance.seq), load_relaxed(&now->allowance.seq));
            assert_int_equal(load_relaxed(&moved.allowance.since_ns), load_relaxed(&now->allowance.since_ns));
            assert_int_equal(moved.demand.again, now->demand.again);
        }
        nodes_stop(&s.n);
    }
}

/* Large numbers are rounded. But a window that is over and was reported in full has no unreported units. */
static void test_a_window_that_was_told_in_full_is_not_news_again(void **state)
{
    (void) state;
    struct subject s;
    subject_start(&s, WEIR_SLIDING_WINDOW, 10000000, 1);
    for (uint64_t remote = 0; remote < 2; remote++) {
        struct sync_full *sync = sync_at(s.process, s.at, s.rule, START_NS);
        const uint64_t own = 1234567;
        const uint32_t seq = window_seq_at(s.rule, START_NS);
        struct dwcas *pair = &s.process->table.cells[s.at].state;
        struct dwcas_value value = dwcas_read(pair);
        assert_true(dwcas_swap(pair, &value, cell_value(window_state(seq, 5, own + remote * 77777), value)));
        counts_clear(&sync->now);
        counts_clear(&sync->before);
        sync->before.acked = sync->before.own = own;
        store_relaxed(&sync->before.remote, remote * 77777);
        store_relaxed(&sync->allowance.seq, seq);
        subject_take(&s, sync);
        struct sync_full room;
        assert_int_equal(sync_load(s.process, s.at, s.rule, START_NS, &room)->before.acked, own);
        /* Unreported units stay unreported. */
        sync = sync_at(s.process, s.at, s.rule, START_NS);
        sync->before.acked = own - 1;
        subject_take(&s, sync);
        assert_true(sync_load(s.process, s.at, s.rule, START_NS, &room)->before.acked < own);
    }
    nodes_stop(&s.n);
}

static void test_units_denied_without_a_full_sync_state_are_counted(void **state)
{
    (void) state;
    struct subject s;
    subject_start(&s, WEIR_FIXED_WINDOW, LIMIT, 1);
    struct sync_full *sync = sync_at(s.process, s.at, s.rule, START_NS);
    subject_take(&s, sync);
    sync_add_denied(&s.process->syncs, s.at, 40);
    sync_add_denied(&s.process->syncs, s.at, 2);
    sync = sync_at(s.process, s.at, s.rule, START_NS);
    assert_int_equal(load_relaxed(&sync->denied), 42);
    sync_add_denied(&s.process->syncs, s.at, 8);
    assert_int_equal(load_relaxed(&sync->denied), 50);
    /* Also after another demotion; as many denials as fit. */
    subject_take(&s, sync);
    sync_add_denied(&s.process->syncs, s.at, UINT64_MAX);
    assert_null(sync_of(&s.process->syncs, s.at));
    sync = sync_at(s.process, s.at, s.rule, START_NS);
    assert_int_equal(load_relaxed(&sync->denied), COMPACT_HAS_FULL - 1);
    nodes_stop(&s.n);
}

/* Keys longer than the compact state's room, shorter keys, and hashed keys. */
static void test_keys_of_any_length_keep_their_names(void **state)
{
    (void) state;
    struct subject s;
    subject_start(&s, WEIR_FIXED_WINDOW, LIMIT, 1);
    char name[KEY_NAME_SIZE + 8];
    memset(name, 'x', sizeof(name));
    for (size_t length = 1; length <= sizeof(name); length++) {
        name[0] = (char) ('A' + length % 26);
        const uint32_t at = subject_use(&s, name, length);
        struct key_name expected;
        memset(&expected, 0, sizeof(expected));
        key_name_make(&expected, s.process->record_hash, s.inside, &s.n.node[0].key);
        const struct key_name kept = compact_key(s.process, at);
        assert_int_equal(kept.flags, expected.flags);
        assert_int_equal(kept.length, expected.length);
        assert_memory_equal(kept.bytes, expected.bytes, expected.length);
        /* Also where the key moves. */
        const struct key_name moved = compact_key(s.process, subject_move(&s, at));
        assert_memory_equal(&moved, &kept, sizeof(moved));
    }
    nodes_stop(&s.n);
}

static void test_a_note_is_not_taken_from_a_report_under_way(void **state)
{
    (void) state;
    struct subject s;
    subject_start(&s, WEIR_FIXED_WINDOW, LIMIT, 1);
    const struct sync_states *syncs = &s.process->syncs;
    uint32_t promoted = 0;
    /*
     * Promotes the keys of one round, one after the other, until no full state is free. The keys do not fill the table,
     * so none is evicted.
     */
    const uint32_t round = 7;
    for (uint64_t name = 0; name < MAX_KEYS - 2000; name++) {
        const uint32_t at = subject_use(&s, &name, sizeof(name));
        struct sync_full room;
        const struct sync_full *sync = sync_load(s.process, at, s.rule, START_NS, &room);
        if (sync == &room && sync_promote(s.process, at, &room, round) != NULL) {
            promoted++;
        }
    }
    /* Except for states that no search has met. */
    assert_in_range(promoted, syncs->count - syncs->count / 8, syncs->count);
    uint32_t there = 0;
    for (uint32_t at = 0; at < s.process->table.cell_count; at++) { /* some keys have moved since */
        const struct sync_full *sync = sync_of(syncs, at);
        if (sync != NULL) {
            assert_int_equal(load_relaxed(&sync->cell), at);
            there++;
        }
    }
    assert_in_range(there, promoted, promoted + 1); /* the node's first key has a full state, too */
    /* In the next round there are free states again. */
    for (uint32_t at = 0; at < s.process->table.cell_count; at++) {
        struct sync_full room;
        if (load_relaxed(&s.process->table.cells[at].hash) != 0 &&
            sync_load(s.process, at, s.rule, START_NS, &room) == &room) {
            assert_non_null(sync_promote(s.process, at, &room, round + 1));
            break;
        }
    }
    nodes_stop(&s.n);
}

static void test_a_note_is_not_taken_while_the_fleet_has_a_reset_to_confirm(void **state)
{
    (void) state;
    struct subject s;
    subject_start(&s, WEIR_TOKEN_BUCKET, LIMIT, 1);
    const struct sync_full *sync = sync_at(s.process, s.at, s.rule, START_NS);
    struct refund_ledger *ledger = refund_ledger_make(s.process, s.at);
    store_relaxed(&ledger->reset, START_NS);
    assert_false(sync_demote(s.process, (uint32_t) (sync - s.process->syncs.pool)));
    assert_ptr_equal(sync_of(&s.process->syncs, s.at), sync);
    store_relaxed(&ledger->reset, 0);
    subject_take(&s, sync);
    nodes_stop(&s.n);
}

/* With a full state, and without one. */
static void test_what_was_given_back_goes_with_a_key_that_moves(void **state)
{
    (void) state;
    for (int with_full_state = 0; with_full_state < 2; with_full_state++) {
        struct subject s;
        subject_start(&s, WEIR_FIXED_WINDOW, LIMIT, 1);
        struct sync_full *sync = sync_at(s.process, s.at, s.rule, START_NS);
        sync->now.acked_refunds = 5; /* the compact state has no room for that */
        if (with_full_state == 0) {
            subject_take(&s, sync);
        }
        struct refund_ledger *was = refund_ledger_make(s.process, s.at);
        store_relaxed(&was->refunds[0], 11);
        store_relaxed(&was->refunds[1], 12);
        store_relaxed(&was->reset, START_NS);
        store_relaxed(&was->reset_emptied, 1);
        uint32_t to = 0;
        while (load_relaxed(&s.process->table.cells[to].hash) != 0) {
            to++;
        }
        const uint64_t incarnation = sync->incarnation;
        sync_move(s.process, s.at, to);
        cell_meta_record(&s.process->table.metas[to], EVENT_REFUNDED);
        const struct refund_ledger *is = refund_ledger_of(s.process, to);
        assert_int_equal(load_relaxed(&is->refunds[0]), 11);
        assert_int_equal(load_relaxed(&is->refunds[1]), 12);
        assert_int_equal(load_relaxed(&is->reset), START_NS);
        assert_int_equal(load_relaxed(&is->reset_emptied), 1);
        struct sync_full room;
        const struct sync_full *moved = sync_load(s.process, to, s.rule, START_NS, &room);
        assert_int_equal(moved == sync, with_full_state);
        assert_int_equal(moved->now.acked_refunds, 5);
        assert_int_equal(moved->incarnation, incarnation);
        nodes_stop(&s.n);
    }
}

static void test_many_keys_far_from_their_limits_are_reported_no_more_often_without_full_sync_states(void **state)
{
    (void) state;
    static const size_t sizes[] = {3000, MAX_KEYS}; /* with a full state for each key, and without one that lasts */
    uint64_t reports[2] = {0};
    for (size_t which = 0; which < 2; which++) {
        struct subject s;
        s.limit = (weir_limit){.algorithm = WEIR_FIXED_WINDOW, .limit = 100000, .period_ns = 24 * HOUR};
        s.policy = (weir_policy){.name = "p", .limits = &s.limit, .limit_count = 1};
        nodes_init(&s.n, &s.policy, 1);
        s.n.max_keys = sizes[which];
        s.n.demotes_sync_states = which == 1;
        for (int i = 0; i < 2; i++) {
            node_open(&s.n, i, 0);
        }
        pass(&s.n, 500);
        struct node *node = &s.n.node[0];
        const uint64_t keys = 1000;
        uint64_t used = 0;
        for (int round = 0; round < 40; round++) {
            for (uint64_t name = 0; name < keys; name++) {
                const weir_key key = weir_make_key(node->w, node->key.policy, &name, sizeof(name));
                used += weir_check(node->t, &key, 1, NULL);
            }
            pass(&s.n, 100);
        }
        assert_int_equal(used, 40 * keys);
        weir_stats stats;
        weir_get_stats(node->w, &stats);
        reports[which] = stats.report_count;
        pass(&s.n, SCAN_MS);
        assert_int_equal(loopback_fleet_sum(s.n.fleet, ":p:"), used);
        nodes_stop(&s.n);
    }
    /* Each key is new once, and then waits for the scan. */
    assert_in_range(reports[1], 1000, reports[0] + reports[0] / 4);
}

static void test_a_table_takes_128_bytes_a_key(void **state)
{
    (void) state;
    struct nodes n;
    const weir_limit limit = {.algorithm = WEIR_TOKEN_BUCKET, .limit = LIMIT, .period_ns = SECOND};
    const weir_policy policy = {.name = "p", .limits = &limit, .limit_count = 1};
    nodes_init(&n, &policy, 1);
    n.max_keys = 2000000;
    node_open(&n, 0, 0);
    const struct process *process = &n.node[0].w->limiter.process;
    /* The memory that is resident from the beginning; other pages become resident when they are used. */
    const size_t size = process->table.memory_size + process->syncs.memory_size + process->sketch.memory_size;
    assert_in_range(size, 64 * n.max_keys, 128 * n.max_keys);
    nodes_stop(&n);
}

/* A count up to 2^32 is exact. A larger one is never less, and greater by no more than the rounding of the form. */
static void test_presumed_units_of_two_windows_fit_in_a_word(void **state)
{
    (void) state;
    static const uint64_t limits[] = {1, 2, 3, 7, 1000, 2000, 65537, 1000003, UINT64_C(4294967295), WEIR_MAX_UNITS};
    uint64_t random = test_seed();
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        const uint64_t limit = limits[i];
        const uint64_t off = limit >> 32;
        for (int round = 0; round < 1000; round++) {
            const uint64_t now = round == 0 ? 0 : round == 1 ? limit : random_below(&random, limit + 1);
            const uint64_t before = round == 0 ? 0 : round == 2 ? limit : random_below(&random, limit + 1);
            const uint64_t packed = presumed_pack(limit, now, before);
            assert_in_range(presumed_now(limit, packed), now, now + off + (off != 0));
            assert_in_range(presumed_before(limit, packed), before, before + off + (off != 0));
            assert_int_equal(packed == 0, now == 0 && before == 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_full_sync_state_says_outlasts_its_demotion),
        cmocka_unit_test(test_a_window_that_was_told_in_full_is_not_news_again),
        cmocka_unit_test(test_units_denied_without_a_full_sync_state_are_counted),
        cmocka_unit_test(test_keys_of_any_length_keep_their_names),
        cmocka_unit_test(test_a_note_is_not_taken_from_a_report_under_way),
        cmocka_unit_test(test_a_note_is_not_taken_while_the_fleet_has_a_reset_to_confirm),
        cmocka_unit_test(test_what_was_given_back_goes_with_a_key_that_moves),
        cmocka_unit_test(test_many_keys_far_from_their_limits_are_reported_no_more_often_without_full_sync_states),
        cmocka_unit_test(test_a_table_takes_128_bytes_a_key),
        cmocka_unit_test(test_presumed_units_of_two_windows_fit_in_a_word),
    };
    return cmocka_run_group_tests_name("unit/process/sync_state", tests, NULL, NULL);
}
