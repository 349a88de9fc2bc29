/* SPDX-License-Identifier: Apache-2.0 */
/*
 * New keys in a full table: a key that comes once gets no cell of another key, and what it used is remembered; a key
 * that comes again gets one.
 *
 * Guards: src/process/admission.c, src/process/insert.c, src/process/evicted_sketch.c
 */
#include <string.h>

#include "algorithm/limit_snapshot.h"
#include "limiter/weir_private.h"
#include "process/admission.h"
#include "process/insert.h"
#include "support/bare_process.h"
#include "support/support.h"
#include "thread/rcu.h"

#define MAX_KEYS 1000
#define LIMIT    8
#define FILLERS  (4 * MAX_KEYS)
#define SOME     200
#define NEW      (UINT64_C(1) << 32)

struct subject {
    struct fake_clock clock;
    weir *w;
    weir_thread *t;
    weir_policy_id policy;
};

static weir_key named(const struct subject *s, const uint64_t *name)
{
    return weir_make_key(s->w, s->policy, name, sizeof(*name));
}

static bool is_held(const struct subject *s, uint64_t name)
{
    rcu_enter(s->t);
    const struct policy_set *set = process_policies(&s->w->limiter.process);
    const weir_key key = named(s, &name);
    const bool held =
        table_find(&s->w->limiter.process.table, cell_hash(policy_set_by_id(set, s->policy), &key, 0)) != TABLE_NONE;
    rcu_leave(s->t);
    return held;
}

static bool check(const struct subject *s, uint64_t name, uint64_t cost)
{
    const weir_key key = named(s, &name);
    return weir_check(s->t, &key, cost, NULL);
}

/* A table of which every cell has a key that used a unit of its limit. */
static void subject_open(struct subject *s, weir_algorithm algorithm)
{
    memset(s, 0, sizeof(*s));
    fake_clock_init(&s->clock, 1760000000 * SECOND);
    weir_options options = WEIR_OPTIONS_INIT;
    options.max_keys = MAX_KEYS;
    options.max_threads = 1;
    options.clock = &s->clock.clock;
    s->w = open_or_fail(&options);
    s->t = weir_attach(s->w);
    const weir_limit limit = {.algorithm = algorithm, .limit = LIMIT, .period_ns = HOUR};
    s->policy = set_one_policy(s->w, &limit, 1, WEIR_SCOPE_PROCESS);
    for (uint64_t name = 0; name < FILLERS; name++) {
        (void) check(s, name, 1);
    }
    weir_detach(s->t); /* its slots hold keys */
    s->t = weir_attach(s->w);
}

static uint64_t count_held(const struct subject *s, uint64_t first, uint64_t count)
{
    uint64_t held = 0;
    for (uint64_t name = first; name < first + count; name++) {
        held += is_held(s, name);
    }
    return held;
}

static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_WINDOW, WEIR_TOKEN_BUCKET};

#define ALGORITHMS (sizeof(algorithms) / sizeof(algorithms[0]))

/* By weir_check, or by bursts. */
static void check_once(struct subject *s, bool burst)
{
    uint64_t denied = 0;
    for (uint64_t first = 0; first < SOME; first += 10) {
        uint64_t names[10];
        weir_key keys[10];
        for (uint64_t i = 0; i < 10; i++) {
            names[i] = NEW + first + i;
            keys[i] = named(s, &names[i]);
        }
        if (burst) {
            denied += 10 - weir_check_burst(s->t, keys, NULL, 10, NULL);
        }
        for (uint64_t i = 0; i < 10 && !burst; i++) {
            denied += !weir_check(s->t, &keys[i], 1, NULL);
        }
    }
    assert_int_equal(denied, 0);
}

static void test_a_key_that_comes_once_evicts_no_key(void **state)
{
    (void) state;
    for (size_t a = 0; a < 2 * ALGORITHMS; a++) {
        struct subject s;
        subject_open(&s, algorithms[a / 2]);
        const uint64_t before = count_held(&s, 0, FILLERS);
        check_once(&s, a % 2 != 0);
        /* One in six hundred finds a fingerprint like its own, and gets a cell at once. */
        assert_in_range(count_held(&s, NEW, SOME), 0, 4);
        assert_in_range(count_held(&s, 0, FILLERS), before - 4, before);
        weir_close(s.w);
    }
}

static void test_a_key_that_comes_again_gets_a_cell_and_owes_what_it_used(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        struct subject s;
        subject_open(&s, algorithms[a]);
        uint64_t held_after_one = 0;
        uint64_t held_after_two = 0;
        uint64_t passed = 0;
        for (uint64_t name = NEW; name < NEW + SOME; name++) {
            passed += check(&s, name, 1);
            held_after_one += is_held(&s, name);
            passed += check(&s, name, LIMIT - 2);
            held_after_two += is_held(&s, name);
            passed += check(&s, name, 1);
            assert_false(check(&s, name, 1)); /* the unit of the first time counts */
        }
        assert_in_range(passed, 3 * SOME - 4, 3 * SOME); /* less where a key finds another key's record */
        assert_in_range(held_after_one, 0, 4);
        assert_int_equal(held_after_two, SOME);
        weir_close(s.w);
    }
}

static void test_a_key_that_was_unused_for_a_minute_gives_way_to_a_key_that_comes_once(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        struct subject s;
        subject_open(&s, algorithms[a]);
        fake_clock_advance(&s.clock, 5 * HOUR);
        (void) weir_poll(s.w);
        check_once(&s, false);
        assert_in_range(count_held(&s, NEW, SOME), SOME * 9 / 10, SOME);
        weir_stats stats;
        weir_get_stats(s.w, &stats);
        assert_true(stats.evicted_unused_count >= SOME * 8 / 10);
        weir_close(s.w);
    }
}

/* The process layer alone, and a key that it does not have. */
struct alone {
    struct process process;
    struct policy policy;
    struct limit_snapshot limit_at;
    struct admission_counts counts;
    struct newcomer new;
};

static void alone_open(struct alone *a, weir_algorithm algorithm, bool fleet)
{
    memset(a, 0, sizeof(*a));
    bare_process_open(&a->process, 1000, fleet);
    bare_policy_init(&a->policy, algorithm, 100);
    a->limit_at = limit_snapshot_of(&a->policy.limits[0].rule, BARE_NOW_NS);
    a->new = (struct newcomer){.rule = &a->policy.limits[0].rule,
                               .limit_at = &a->limit_at,
                               .hash = UINT64_C(0x9876543210fedcba),
                               .cost = 7,
                               .now_ns = BARE_NOW_NS,
                               .limit_tag = POLICY_LIMIT_ID(a->policy.limits[0].limit_hash),
                               .group = 1,
                               .counts = &a->counts};
}

static void alone_close(struct alone *a)
{
    process_close(&a->process);
}

/* Fills both pairs of the key with keys that used so many units, and of which none can move. */
static void fill_pairs(struct alone *a, uint64_t units)
{
    const struct table_pairs pairs = table_pairs_of(&a->process.table, a->new.hash);
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t at = (uint32_t) ((i < 2 ? pairs.first : pairs.second) - a->process.table.cells) + i % 2;
        struct usage usage;
        /* The first set of these hashes is 0. */
        bare_occupy(&a->process, &a->policy, at, i + 1, limit_snapshot_first(&a->limit_at, units, &usage));
    }
}

/* As if the table held all keys that have room. */
static void be_full(struct alone *a)
{
    table_count_keys(&a->process.table, 1000 - load_relaxed(&a->process.table.shared->key_count));
}

static void expect_counts(const struct alone *a, uint64_t recorded, uint64_t dropped, uint64_t replaced)
{
    assert_int_equal(load_relaxed(&a->counts.recorded), recorded);
    assert_int_equal(load_relaxed(&a->counts.records_dropped), dropped);
    assert_int_equal(load_relaxed(&a->counts.idle_replaced), replaced);
}

/* The set of the key is not locked, and neither is a cell. */
static void expect_unlocked(struct alone *a)
{
    const size_t set = table_first_set(&a->process.table, a->new.hash);
    assert_true(table_trylock(&a->process.table, set));
    table_unlock(&a->process.table, set);
    for (size_t at = 0; at < a->process.table.cell_count; at++) {
        assert_int_equal(load_relaxed(&a->process.table.cells[at].held) & HELD_IN_USE, 0);
    }
}

static void expect_cell(const struct alone *a, uint32_t at, uint64_t cost)
{
    const struct rule *rule = a->new.rule;
    assert_int_equal(load_relaxed(&a->process.table.cells[at].hash), a->new.hash);
    const struct state is = cell_state(dwcas_read(&a->process.table.cells[at].state));
    assert_int_equal(rule_headroom(rule, is, BARE_NOW_NS), rule->limit - cost);
    const struct cell_meta *meta = &a->process.table.metas[at];
    assert_int_equal(load_relaxed(&meta->limit_tag), a->new.limit_tag);
    assert_int_equal(load_relaxed(&meta->group), 1);
    assert_int_equal(load_relaxed(&meta->flags), cell_kind_flag(rule_kind(rule)));
    assert_int_equal(load_relaxed(&meta->events), 0);
}

static void test_a_new_key_gets_the_first_empty_cell_of_its_pairs(void **state)
{
    (void) state;
    for (size_t a = 0; a < ALGORITHMS; a++) {
        for (unsigned full = 0; full < 5; full++) {
            struct alone s;
            alone_open(&s, algorithms[a], false);
            fill_pairs(&s, 100);
            const struct table_pairs pairs = table_pairs_of(&s.process.table, s.new.hash);
            const uint32_t at = (uint32_t) ((full < 2 ? pairs.first : pairs.second) - s.process.table.cells) + full % 2;
            for (unsigned i = full; i < 4; i++) {
                const uint32_t empty =
                    (uint32_t) ((i < 2 ? pairs.first : pairs.second) - s.process.table.cells) + i % 2;
                assert_true(cell_lock(&s.process.table.cells[empty]));
                (void) table_vacate(&s.process.table, empty);
                cell_unlock(&s.process.table.cells[empty]);
            }
            struct state first = {1, 1};
            assert_int_equal(admission_fill(&s.process, &s.new, &first), full < 4);
            if (full < 4) {
                expect_cell(&s, at, 7);
                const struct state is = cell_state(dwcas_read(&s.process.table.cells[at].state));
                assert_int_equal(first.a, is.a);
                assert_int_equal(first.b, is.b);
                assert_int_equal(load_relaxed(&s.process.table.shared->key_count), full); /* the caller counts it */
                assert_false(admission_fill(&s.process, &s.new, &first));                 /* it has a cell */
            }
            expect_unlocked(&s);
            alone_close(&s);
        }
    }
}

static void test_a_new_key_that_the_general_path_is_for_gets_no_cell_at_once(void **state)
{
    (void) state;
    enum { TOO_MUCH, SHARED, REMEMBERED, LOCKED, CASES };
    for (int which = 0; which < CASES; which++) {
        struct alone s;
        struct state first = {1, 2};
        alone_open(&s, WEIR_FIXED_WINDOW, which == SHARED);
        const uint32_t at = table_place(&s.process.table, s.new.hash).empty;
        if (which == TOO_MUCH) {
            s.new.cost = 101;
        } else if (which == REMEMBERED) {
            const struct usage usage = {1, BARE_NOW_NS + SECOND};
            assert_true(sketch_record(&s.process.sketch, s.new.hash, usage, SKETCH_UNDER_HALF, BARE_NOW_NS));
        } else if (which == LOCKED) {
            assert_true(cell_lock(&s.process.table.cells[at]));
        }
        assert_false(admission_fill(&s.process, &s.new, &first));
        assert_int_equal(first.a, 1);
        assert_int_equal(load_relaxed(&s.process.table.cells[at].hash), 0);
        if (which == LOCKED) {
            cell_unlock(&s.process.table.cells[at]);
        }
        /* With all of the limit at once, and when the record is over, it does. */
        s.new.cost = 100;
        s.new.now_ns = BARE_NOW_NS + 2 * SECOND;
        assert_int_equal(admission_fill(&s.process, &s.new, &first), which != SHARED);
        if (which != SHARED) {
            expect_cell(&s, at, 100);
        }
        expect_unlocked(&s);
        alone_close(&s);
    }
}

static void test_where_keys_have_room_another_key_moves_for_a_new_one(void **state)
{
    (void) state;
    for (int moves = 0; moves < 2; moves++) {
        struct alone s;
        alone_open(&s, WEIR_TOKEN_BUCKET, false);
        fill_pairs(&s, 100);
        struct table *table = &s.process.table;
        const uint32_t at = (uint32_t) table_pair(table, s.new.hash) + 1;
        /* A key whose first pair is this one, and whose second pair is empty. */
        uint64_t hash = s.new.hash;
        do {
            hash += 256;
        } while (table_second_pair(table, hash) == table_second_pair(table, s.new.hash) ||
                 table_pair(table, hash) != table_pair(table, s.new.hash));
        assert_true(cell_lock(&table->cells[at]));
        const struct state was = table_vacate(table, at);
        cell_unlock(&table->cells[at]);
        bare_occupy(&s.process, &s.policy, at, hash, was);
        if (moves == 0) {
            (void) cell_hold(&table->cells[at], HELD_PIN); /* in use: it stays */
        }
        struct state first;
        assert_true(admission_charge(&s.process, &s.new, &first) || moves == 0);
        if (moves != 0) {
            expect_cell(&s, at, 7);
            assert_int_equal(rule_headroom(s.new.rule, first, BARE_NOW_NS), 93);
            const uint32_t to = table_find(table, hash);
            assert_int_equal(to, table_second_pair(table, hash));
            const struct state is = cell_state(dwcas_read(&table->cells[to].state));
            assert_int_equal(is.a, was.a);
            assert_int_equal(is.b, was.b);
            assert_int_equal(load_relaxed(&table->shared->key_count), 5);
        } else {
            assert_int_equal(table_find(table, hash), at);
            (void) cell_hold(&table->cells[at], (uint64_t) 0 - HELD_PIN);
        }
        expect_counts(&s, 0, 0, 0);
        expect_unlocked(&s);
        alone_close(&s);
    }
}

static void test_a_new_key_that_fits_nowhere_is_charged_once_and_remembered(void **state)
{
    (void) state;
    static const struct {
        uint64_t cost;
        enum sketch_priority priority;
    } rows[] = {{1, SKETCH_UNDER_HALF}, {49, SKETCH_UNDER_HALF}, {50, SKETCH_HALF}, {100, SKETCH_HALF}};
    for (size_t i = 0; i < ALGORITHMS * 4; i++) {
        struct alone s;
        alone_open(&s, algorithms[i / 4], false);
        fill_pairs(&s, 100);
        be_full(&s);
        s.new.cost = rows[i % 4].cost;
        struct state first;
        assert_true(admission_charge(&s.process, &s.new, &first));
        assert_int_equal(rule_headroom(s.new.rule, first, BARE_NOW_NS), 100 - s.new.cost);
        assert_int_equal(table_find(&s.process.table, s.new.hash), TABLE_NONE);
        const struct usage usage = sketch_find(&s.process.sketch, s.new.hash, 100, BARE_NOW_NS);
        assert_int_equal(usage.units, s.new.cost);
        const struct usage expected = rule_usage(s.new.rule, first, BARE_NOW_NS);
        assert_in_range(usage.until_ns, expected.until_ns, expected.until_ns + 3 * MILLISECOND);
        uint64_t words = 0;
        for (size_t word = 0; word < s.process.sketch.row_count * 8; word++) {
            words |= load_relaxed(&s.process.sketch.words[word]);
        }
        assert_int_equal(words >> 62, rows[i % 4].priority);
        expect_counts(&s, 1, 0, 0);
        assert_false(admission_charge(&s.process, &s.new, &first)); /* it comes again */
        expect_counts(&s, 1, 0, 0);
        expect_unlocked(&s);
        alone_close(&s);
    }
}

static void test_a_record_that_gives_way_to_a_new_keys_is_counted_and_a_greater_one_stays(void **state)
{
    (void) state;
    struct alone s;
    uint64_t rng = test_seed();
    alone_open(&s, WEIR_FIXED_WINDOW, false);
    const struct usage usage = {10, BARE_NOW_NS + HOUR};
    for (int i = 0; i < 20000; i++) {
        (void) sketch_record(&s.process.sketch, random_next(&rng), usage, SKETCH_UNDER_HALF, BARE_NOW_NS);
    }
    /* The random ones may have had the fingerprint of this key. */
    s.new.hash++;
    for (int i = 0; sketch_find(&s.process.sketch, s.new.hash, 100, BARE_NOW_NS).units != 0; i++) {
        assert_true(i < 100);
        s.new.hash++;
    }
    const uint64_t kept = s.new.hash;
    fill_pairs(&s, 100);
    be_full(&s);
    s.new.cost = 10;
    struct state first;
    assert_false(admission_charge(&s.process, &s.new, &first)); /* it would end sooner than all that are there */
    expect_counts(&s, 0, 0, 0);
    s.new.cost = 60;
    assert_true(admission_charge(&s.process, &s.new, &first));
    expect_counts(&s, 1, 1, 0);
    assert_int_equal(sketch_find(&s.process.sketch, kept, 100, BARE_NOW_NS).units, 60);
    alone_close(&s);
}

static void test_a_new_key_gets_the_cell_of_an_idle_key_of_its_own_limit(void **state)
{
    (void) state;
    enum { IDLE, OTHER_LIMIT, OTHER_GROUP, IN_USE, REMEMBERED, USED_LATELY, CASES };
    for (size_t i = 0; i < ALGORITHMS * CASES; i++) {
        const size_t which = i % CASES;
        struct alone s;
        alone_open(&s, algorithms[i / CASES], false);
        fill_pairs(&s, 100);
        be_full(&s);
        /* Of its four neighbours all were used ten minutes ago, or just before the last minute was over. */
        const uint64_t later_ns = BARE_NOW_NS + (which == USED_LATELY ? 60 * SECOND : 600 * SECOND);
        s.new.now_ns = later_ns;
        s.limit_at = limit_snapshot_of(s.new.rule, later_ns);
        const struct table_pairs pairs = table_pairs_of(&s.process.table, s.new.hash);
        const uint32_t second = (uint32_t) (pairs.second - s.process.table.cells);
        if (which == OTHER_LIMIT) {
            s.new.limit_tag++;
        } else if (which == OTHER_GROUP) {
            s.new.group++;
        } else if (which == REMEMBERED) {
            const struct usage usage = {1, later_ns + HOUR};
            assert_true(sketch_record(&s.process.sketch, s.new.hash, usage, SKETCH_UNDER_HALF, later_ns));
        }
        for (size_t cell = 0; cell < s.process.table.cell_count && which == IN_USE; cell++) {
            (void) cell_hold(&s.process.table.cells[cell], HELD_PIN);
        }
        cell_meta_record(&s.process.table.metas[second], EVENT_REFUSED);
        struct state first;
        assert_int_equal(admission_charge(&s.process, &s.new, &first), which != REMEMBERED);
        const bool gets = which == IDLE;
        expect_counts(&s, !gets && which != REMEMBERED, 0, gets);
        assert_int_equal(load_relaxed(&s.process.table.shared->key_count), 1000);
        assert_int_equal(table_find(&s.process.table, s.new.hash), gets ? second : TABLE_NONE);
        if (gets) {
            const struct state is = cell_state(dwcas_read(&s.process.table.cells[second].state));
            assert_int_equal(rule_headroom(s.new.rule, is, later_ns), 93);
            assert_int_equal(load_relaxed(&s.process.table.metas[second].events), 0);
            assert_int_equal(load_relaxed(&s.process.table.metas[second].limit_tag), s.new.limit_tag);
            /* Nothing is remembered of the key before: it had nothing in use. */
            assert_int_equal(load_relaxed(&s.process.sketch.shared->used), 0);
        }
        for (size_t cell = 0; cell < s.process.table.cell_count && which == IN_USE; cell++) {
            (void) cell_hold(&s.process.table.cells[cell], (uint64_t) 0 - HELD_PIN);
        }
        expect_unlocked(&s);
        alone_close(&s);
    }
}

/*
 * The state that a charge leaves after a key was found idle, and before its cell is given away. The linker's --wrap
 * leads the call here (tests/meson.build).
 */
static struct {
    struct process *process; /* NULL: there is no charge */
    struct state state;
} late_charge;

struct state __real_table_replace(struct table *table, uint32_t at, uint64_t hash, struct state state);
struct state __wrap_table_replace(struct table *table, uint32_t at, uint64_t hash, struct state state);

struct state __wrap_table_replace(struct table *table, uint32_t at, uint64_t hash, struct state state)
{
    if (late_charge.process != NULL) {
        bare_set_state(late_charge.process, at, late_charge.state);
    }
    return __real_table_replace(table, at, hash, state);
}

static void test_what_an_idle_key_is_charged_while_its_cell_is_given_away_is_remembered(void **state)
{
    (void) state;
    for (size_t i = 0; i < ALGORITHMS; i++) {
        struct alone s;
        alone_open(&s, algorithms[i], false);
        fill_pairs(&s, 100);
        be_full(&s);
        s.new.now_ns = BARE_NOW_NS + 600 * SECOND;
        s.limit_at = limit_snapshot_of(s.new.rule, s.new.now_ns);
        const size_t at = table_second_pair(&s.process.table, s.new.hash);
        const uint64_t hash = load_relaxed(&s.process.table.cells[at].hash);
        late_charge.process = &s.process;
        late_charge.state = rule_charge(s.new.rule, rule_fresh(s.new.rule, s.new.now_ns), s.new.now_ns, 20);
        struct state first;
        assert_true(admission_charge(&s.process, &s.new, &first));
        late_charge.process = NULL;
        expect_counts(&s, 0, 0, 1);
        assert_int_equal(table_find(&s.process.table, s.new.hash), at);
        assert_int_equal(sketch_find(&s.process.sketch, hash, 100, s.new.now_ns).units, 20);
        alone_close(&s);
    }
}

static void test_a_key_that_has_a_cell_or_may_have_an_empty_one_is_not_charged_as_new(void **state)
{
    (void) state;
    enum { IN_FIRST, IN_SECOND, FAR, EMPTY, TOO_MUCH, HALTED, CASES };
    for (int which = 0; which < CASES; which++) {
        struct alone s;
        alone_open(&s, WEIR_FIXED_WINDOW, false);
        fill_pairs(&s, 100);
        be_full(&s);
        struct table *table = &s.process.table;
        const uint32_t first_pair = (uint32_t) table_pair(table, s.new.hash);
        uint32_t at = which == IN_FIRST ? first_pair + 1 : (uint32_t) table_second_pair(table, s.new.hash) + 1;
        if (which == IN_FIRST || which == IN_SECOND || which == EMPTY) {
            assert_true(cell_lock(&table->cells[at]));
            (void) table_vacate(table, at);
            cell_unlock(&table->cells[at]);
        }
        if (which == FAR) {
            at = (uint32_t) table_other_set(table, s.new.hash) + 3;
        }
        if (which <= FAR) {
            bare_occupy(&s.process, &s.policy, at, s.new.hash, (struct state){0, 0});
        }
        s.new.cost = which == TOO_MUCH ? 101 : 7;
        if (which == HALTED) {
            assert_true(table_trylock(table, first_pair / SET_CELLS));
            store_relaxed(&s.process.shared->halted_by, 1);
        }
        struct state first;
        assert_false(admission_charge(&s.process, &s.new, &first));
        if (which == HALTED) {
            assert_false(table_trylock(table, first_pair / SET_CELLS));
            table_unlock(table, first_pair / SET_CELLS);
        }
        expect_counts(&s, 0, 0, 0);
        expect_unlocked(&s);
        alone_close(&s);
    }
}

/* The key of a name, which the general path inserts. */
static weir_key key_of(const struct alone *a, const char *name, uint64_t hash)
{
    return (weir_key){.hash = hash ^ a->policy.limits[0].limit_hash, .data = name, .length = (uint32_t) strlen(name)};
}

static void test_a_key_of_the_fleet_gets_a_cell_with_its_name_and_a_quota_is_asked_for(void **state)
{
    (void) state;
    for (unsigned i = 0; i < 4; i++) {
        struct alone s;
        alone_open(&s, WEIR_FIXED_WINDOW, true);
        s.policy.scope = i % 2 != 0 ? WEIR_SCOPE_PROCESS : WEIR_SCOPE_FLEET;
        s.policy.limits[0].rule.calendar = i / 2 != 0 ? WEIR_CALENDAR_DAY : WEIR_CALENDAR_NONE;
        const bool shared = i % 2 == 0;
        const weir_key key = key_of(&s, "name", s.new.hash);
        struct table *table = &s.process.table;
        const uint32_t place = table_place(table, s.new.hash).empty;
        cell_meta_record(&table->metas[place], EVENT_REFUNDED | EVENT_DENIED);
        store_relaxed(&s.process.syncs.spills[place].ledger.refunds[0], 5);
        store_relaxed(&s.process.top_denied.entries[place].units, 6);
        const uint32_t at = insert_key(&s.process, &s.policy, 0, &key, BARE_NOW_NS);
        assert_int_equal(at, place);
        assert_int_equal(load_relaxed(&table->cells[at].hash), s.new.hash);
        assert_int_equal(load_relaxed(&table->metas[at].flags), shared ? CELL_SHARED : 0);
        assert_int_equal(load_relaxed(&table->metas[at].limit_tag), s.new.limit_tag);
        assert_int_equal(load_relaxed(&table->metas[at].group), 1);
        assert_int_equal(load_relaxed(&table->metas[at].events), 0);
        assert_int_equal(load_relaxed(&s.process.syncs.spills[place].ledger.refunds[0]), 0);
        assert_int_equal(load_relaxed(&s.process.top_denied.entries[place].units), 0);
        const struct key_name name = compact_key(&s.process, at);
        assert_int_equal(name.length, 4);
        assert_memory_equal(name.bytes, "name", 4);
        assert_non_null(sync_of(&s.process.syncs, at));
        const bool quota = shared && i / 2 != 0;
        uint32_t cursor = 0;
        assert_int_equal(bitmap_count(&table->dirty), quota);
        assert_int_equal(load_relaxed(&s.process.shared->urgent), quota);
        assert_int_equal(bitmap_next(&table->urgent, &cursor, (uint32_t) table->cell_count), quota ? at : BITMAP_NONE);
        assert_int_equal(load_relaxed(&table->shared->key_count), 1);
        /* It is there: nothing changes. */
        const struct state used = rule_charge(s.new.rule, rule_fresh(s.new.rule, BARE_NOW_NS), BARE_NOW_NS, 9);
        bare_set_state(&s.process, at, used);
        assert_int_equal(insert_key(&s.process, &s.policy, 0, &key, BARE_NOW_NS), at);
        assert_int_equal(cell_state(dwcas_read(&table->cells[at].state)).a, used.a);
        uint32_t cells[WEIR_MAX_LIMITS];
        assert_true(insert_locate(&s.process, &s.policy, &key, BARE_NOW_NS, cells));
        assert_int_equal(cells[0], at);
        expect_unlocked(&s);
        alone_close(&s);
    }
}

/* Fills both sets of the key: each cell with a key that used so many units, by the number of the cell. */
static void fill_sets(struct alone *a, uint64_t units)
{
    struct table *table = &a->process.table;
    const size_t sets[2] = {table_first_set(table, a->new.hash) * SET_CELLS, table_other_set(table, a->new.hash)};
    for (size_t i = 0; i < 20; i++) {
        const size_t second = table_second_pair(table, a->new.hash);
        const uint32_t at = (uint32_t) (i < 16 ? sets[i / SET_CELLS] + i % SET_CELLS : second + (i - 16) % PAIR_CELLS);
        if (load_relaxed(&table->cells[at].hash) == 0) {
            struct usage usage;
            bare_occupy(&a->process, &a->policy, at, i + 1, limit_snapshot_first(&a->limit_at, units, &usage));
        }
    }
}

static void test_the_key_with_the_least_to_lose_gives_its_cell_and_one_in_use_never(void **state)
{
    (void) state;
    enum { IN_FIRST, IN_SECOND, IN_SETS, LEAST_IN_USE, ALL_IN_USE, PAIR_BELOW_HALF, CASES };
    for (int which = 0; which < CASES; which++) {
        struct alone s;
        alone_open(&s, WEIR_TOKEN_BUCKET, false);
        struct policy_set *set = bare_set_of(&s.policy);
        reference_set(&s.process.shared->policies, set);
        fill_sets(&s, 90);
        be_full(&s);
        struct table *table = &s.process.table;
        const weir_key key = key_of(&s, "name", s.new.hash);
        const uint32_t first = (uint32_t) table_pair(table, s.new.hash) + 1;
        const uint32_t second = (uint32_t) table_second_pair(table, s.new.hash) + 1;
        const uint32_t far = (uint32_t) table_other_set(table, s.new.hash) + 3;
        struct usage usage;
        const struct state less = limit_snapshot_first(&s.limit_at, 20, &usage);
        const uint32_t least = which == IN_SECOND ? second : which == IN_SETS ? far : first;
        bare_set_state(&s.process, least, less);
        if (which == LEAST_IN_USE) {
            (void) cell_hold(&table->cells[least], HELD_PIN);
            bare_set_state(&s.process, second, limit_snapshot_first(&s.limit_at, 40, &usage));
        } else if (which == PAIR_BELOW_HALF) {
            /* A neighbour far away would have less to lose, but nobody looks there. */
            bare_set_state(&s.process, least, limit_snapshot_first(&s.limit_at, 49, &usage));
            bare_set_state(&s.process, far, less);
        }
        for (size_t at = 0; at < table->cell_count && which == ALL_IN_USE; at++) {
            (void) cell_hold(&table->cells[at], HELD_PIN);
        }
        const uint32_t at = insert_key(&s.process, &s.policy, 0, &key, BARE_NOW_NS);
        assert_int_equal(at, which == ALL_IN_USE ? TABLE_NONE : which == LEAST_IN_USE ? second : least);
        assert_int_equal(load_relaxed(&s.process.shared->evicted_used_count), which != ALL_IN_USE);
        assert_int_equal(load_relaxed(&table->shared->key_count), 1000);
        if (which == LEAST_IN_USE) {
            (void) cell_hold(&table->cells[least], (uint64_t) 0 - HELD_PIN);
        }
        uint32_t cells[WEIR_MAX_LIMITS];
        if (which == ALL_IN_USE) {
            assert_false(insert_locate(&s.process, &s.policy, &key, BARE_NOW_NS, cells));
            assert_false(insert_pin(&s.process, &s.policy, &key, BARE_NOW_NS, cells));
            for (size_t n = 0; n < table->cell_count; n++) {
                (void) cell_hold(&table->cells[n], (uint64_t) 0 - HELD_PIN);
            }
        } else {
            assert_int_equal(table_find(table, s.new.hash), at);
        }
        expect_unlocked(&s);
        free(set);
        alone_close(&s);
    }
}

/* A key that may move out of a cell of its own first set: where to. TABLE_NONE: it stays. */
static uint32_t target_of(const struct alone *a, size_t at, bool far)
{
    const struct table *table = &a->process.table;
    const struct cell *cells = table->cells;
    const uint64_t hash = load_relaxed(&cells[at].hash);
    if (hash == 0 || table_first_set(table, hash) != at / SET_CELLS ||
        (load_relaxed(&cells[at].held) & HELD_IN_USE) != 0 || cell_meta_is(&table->metas[at], CELL_HISTORY)) {
        return TABLE_NONE;
    }
    const size_t pair = table_second_pair(table, hash);
    const size_t set = table_other_set(table, hash);
    for (size_t i = 0; i < PAIR_CELLS + (far ? SET_CELLS : 0); i++) {
        const size_t to = i < PAIR_CELLS ? pair + i : set + i - PAIR_CELLS;
        if (load_relaxed(&cells[to].hash) == 0 && (load_relaxed(&cells[to].held) & HELD_IN_USE) == 0) {
            return (uint32_t) to;
        }
    }
    return TABLE_NONE;
}

/* Where a new key, whose first set is locked, is to have room, and where the key goes that was there (or TABLE_NONE).
 */
static uint32_t room_of(const struct alone *a, bool moves, uint32_t *to)
{
    const struct table *table = &a->process.table;
    const uint64_t hash = a->new.hash;
    const size_t own = table_first_set(table, hash);
    const struct {
        size_t first, count;
        bool movable;
    } places[] = {{table_pair(table, hash), PAIR_CELLS, true}, {table_second_pair(table, hash), PAIR_CELLS, true},
                  {own * SET_CELLS, SET_CELLS, false},         {table_other_set(table, hash), SET_CELLS, false},
                  {own * SET_CELLS, SET_CELLS, true},          {table_other_set(table, hash), SET_CELLS, true}};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const size_t set = places[i].first / SET_CELLS;
        const bool locks = i % 2 != 0 && places[i].movable; /* it needs the lock of another set, not of the same */
        if (places[i].movable && (!moves || (locks && load_relaxed(&table->guards[set].lock) != 0))) {
            continue;
        }
        for (size_t at = places[i].first; at < places[i].first + places[i].count; at++) {
            const bool empty =
                load_relaxed(&table->cells[at].hash) == 0 && (load_relaxed(&table->cells[at].held) & HELD_IN_USE) == 0;
            *to = places[i].movable ? target_of(a, at, i >= 4) : TABLE_NONE;
            if (places[i].movable ? *to != TABLE_NONE : empty) {
                return (uint32_t) at;
            }
        }
    }
    *to = TABLE_NONE;
    return TABLE_NONE;
}

/* Small tables in which few cells are empty; some keys are in use or have a log, and some sets and cells are locked. */
static void test_room_for_a_key_is_made_where_a_plain_search_finds_it(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    unsigned found = 0;
    for (unsigned i = 0; i < test_draws(1000); i++) {
        struct alone s;
        memset(&s, 0, sizeof(s));
        bare_process_open(&s.process, draw_between(&rng, 10, 40), false);
        bare_policy_init(&s.policy, WEIR_FIXED_WINDOW, 100);
        struct table *table = &s.process.table;
        const uint64_t empty = draw_between(&rng, 1, 6);
        for (uint32_t at = 0; at < table->cell_count; at++) {
            uint64_t hash = random_next(&rng);
            for (int tries = 0; tries < 20 && table_first_set(table, hash) != at / SET_CELLS; tries++) {
                hash = random_next(&rng); /* most keys are in their first set */
            }
            if (random_below(&rng, table->cell_count) >= empty) {
                bare_occupy(&s.process, &s.policy, at, hash | 1, (struct state){at, 0});
                store_relaxed(&table->metas[at].flags, draw_once_in(&rng, 5) ? CELL_HISTORY : 0);
            }
            (void) cell_hold(&table->cells[at], draw_once_in(&rng, 5) ? HELD_PIN : 0);
        }
        s.new.hash = random_next(&rng) | 1;
        const size_t set = table_first_set(table, s.new.hash);
        for (size_t other = 0; other < table->set_count; other++) {
            if (other == set || draw_once_in(&rng, 8)) {
                assert_true(table_trylock(table, other));
            }
        }
        const bool moves = !draw_once_in(&rng, 4);
        uint32_t to;
        const uint32_t expected = room_of(&s, moves, &to);
        const uint64_t was = expected != TABLE_NONE ? load_relaxed(&table->cells[expected].hash) : 0;
        const uint64_t keys = load_relaxed(&table->shared->key_count);
        assert_int_equal(insert_lock_room(&s.process, s.new.hash, moves), expected);
        assert_int_equal(load_relaxed(&table->shared->key_count), keys);
        if (expected != TABLE_NONE) {
            found++;
            assert_int_equal(load_relaxed(&table->cells[expected].hash), 0);
            assert_int_equal(load_relaxed(&table->cells[expected].held) & HELD_IN_USE, HELD_LOCKED);
            cell_unlock(&table->cells[expected]);
        }
        if (to != TABLE_NONE) {
            assert_int_equal(load_relaxed(&table->cells[to].hash), was);
            assert_int_equal(load_relaxed(&table->cells[to].held) & HELD_IN_USE, 0);
            assert_int_equal(cell_state(dwcas_read(&table->cells[to].state)).a, expected);
        }
        alone_close(&s);
    }
    assert_true(found > test_draws(1000) / 4);
}

/*
 * Other threads pin the key that is about to be evicted, after all that could be were looked at, and before its cell is
 * locked. The linker's --wrap leads the look here (tests/meson.build).
 */
static struct {
    struct table *table;   /* NULL: there are no such threads */
    const uint32_t *cells; /* pinned in turn */
    unsigned count, looks;
    uint32_t last; /* the last cell that is looked at */
} racing;

uint64_t __real_evict_worth(const struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns);
uint64_t __wrap_evict_worth(const struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns);

uint64_t __wrap_evict_worth(const struct process *process, const struct policy_set *set, uint32_t at, uint64_t now_ns)
{
    if (racing.table != NULL && at == racing.last && racing.looks < racing.count) {
        struct cell *cell = &racing.table->cells[racing.cells[racing.looks]];
        (void) cell_hold(cell, HELD_PIN);
        racing.looks++;
    }
    return __real_evict_worth(process, set, at, now_ns);
}

static void test_a_key_that_is_used_when_it_is_to_be_evicted_stays_and_another_one_goes(void **state)
{
    (void) state;
    struct alone s;
    alone_open(&s, WEIR_TOKEN_BUCKET, false);
    struct policy_set *set = bare_set_of(&s.policy);
    reference_set(&s.process.shared->policies, set);
    fill_sets(&s, 40);
    be_full(&s);
    struct table *table = &s.process.table;
    const uint32_t first = (uint32_t) table_pair(table, s.new.hash);
    const uint32_t second = (uint32_t) table_second_pair(table, s.new.hash);
    const uint32_t cells[] = {first + 1, second, first};
    for (uint32_t i = 0; i < 3; i++) {
        struct usage usage;
        bare_set_state(&s.process, cells[i], limit_snapshot_first(&s.limit_at, 10 * (i + 1), &usage));
    }
    racing.table = table;
    racing.cells = cells;
    racing.count = 3;
    racing.looks = 0;
    racing.last = second + 1;
    const weir_key key = key_of(&s, "name", s.new.hash);
    assert_int_equal(insert_key(&s.process, &s.policy, 0, &key, BARE_NOW_NS), second + 1);
    assert_int_equal(racing.looks, 3);
    racing.table = NULL;
    for (uint32_t i = 0; i < 3; i++) {
        (void) cell_hold(&table->cells[cells[i]], (uint64_t) 0 - HELD_PIN);
        assert_int_not_equal(load_relaxed(&table->cells[cells[i]].hash), 0);
    }
    expect_unlocked(&s);
    free(set);
    alone_close(&s);
}

static void test_all_cells_of_a_key_are_pinned_or_none(void **state)
{
    (void) state;
    struct alone s;
    alone_open(&s, WEIR_FIXED_WINDOW, false);
    s.policy.limit_count = 3;
    s.policy.limits[1] = s.policy.limits[2] = s.policy.limits[0];
    s.policy.limits[1].limit_hash ^= UINT64_C(0x1111111111111111);
    s.policy.limits[2].limit_hash ^= UINT64_C(0x7777777777777777);
    struct table *table = &s.process.table;
    const weir_key key = key_of(&s, "name", s.new.hash);
    uint32_t cells[WEIR_MAX_LIMITS];
    assert_true(insert_pin(&s.process, &s.policy, &key, BARE_NOW_NS, cells));
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(load_relaxed(&table->cells[cells[i]].hash), cell_hash(&s.policy, &key, i));
        assert_int_equal(load_relaxed(&table->cells[cells[i]].held) & HELD_IN_USE, HELD_PIN);
    }
    insert_unpin(&s.process, &s.policy, cells);
    expect_unlocked(&s);
    /* The last one is locked by a process that has died: a repair is to come before. */
    const uint32_t last = cells[2];
    assert_true(cell_lock(&table->cells[last]));
    store_relaxed(&s.process.shared->halted_by, 1);
    assert_false(insert_pin(&s.process, &s.policy, &key, BARE_NOW_NS, cells));
    store_relaxed(&s.process.shared->halted_by, 0);
    cell_unlock(&table->cells[last]);
    expect_unlocked(&s);
    /* The cell that a new key is to get is locked, or its set is. */
    const weir_key other = key_of(&s, "other", s.new.hash + (UINT64_C(1) << 60));
    const uint64_t hash = cell_hash(&s.policy, &other, 0);
    const uint32_t empty = table_place(table, hash).empty;
    store_relaxed(&s.process.shared->halted_by, 1);
    assert_true(cell_lock(&table->cells[empty]));
    assert_int_equal(insert_key(&s.process, &s.policy, 0, &other, BARE_NOW_NS), TABLE_NONE);
    cell_unlock(&table->cells[empty]);
    assert_true(table_trylock(table, table_first_set(table, hash)));
    assert_int_equal(insert_key(&s.process, &s.policy, 0, &other, BARE_NOW_NS), TABLE_NONE);
    table_unlock(table, table_first_set(table, hash));
    assert_int_equal(insert_key(&s.process, &s.policy, 0, &other, BARE_NOW_NS), empty);
    expect_unlocked(&s);
    alone_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_key_gets_the_first_empty_cell_of_its_pairs),
        cmocka_unit_test(test_a_new_key_that_the_general_path_is_for_gets_no_cell_at_once),
        cmocka_unit_test(test_where_keys_have_room_another_key_moves_for_a_new_one),
        cmocka_unit_test(test_a_new_key_that_fits_nowhere_is_charged_once_and_remembered),
        cmocka_unit_test(test_a_record_that_gives_way_to_a_new_keys_is_counted_and_a_greater_one_stays),
        cmocka_unit_test(test_a_new_key_gets_the_cell_of_an_idle_key_of_its_own_limit),
        cmocka_unit_test(test_what_an_idle_key_is_charged_while_its_cell_is_given_away_is_remembered),
        cmocka_unit_test(test_a_key_that_has_a_cell_or_may_have_an_empty_one_is_not_charged_as_new),
        cmocka_unit_test(test_a_key_of_the_fleet_gets_a_cell_with_its_name_and_a_quota_is_asked_for),
        cmocka_unit_test(test_the_key_with_the_least_to_lose_gives_its_cell_and_one_in_use_never),
        cmocka_unit_test(test_room_for_a_key_is_made_where_a_plain_search_finds_it),
        cmocka_unit_test(test_a_key_that_is_used_when_it_is_to_be_evicted_stays_and_another_one_goes),
        cmocka_unit_test(test_all_cells_of_a_key_are_pinned_or_none),
        cmocka_unit_test(test_a_key_that_comes_once_evicts_no_key),
        cmocka_unit_test(test_a_key_that_comes_again_gets_a_cell_and_owes_what_it_used),
        cmocka_unit_test(test_a_key_that_was_unused_for_a_minute_gives_way_to_a_key_that_comes_once),
    };
    return cmocka_run_group_tests_name("unit/process/admission", tests, NULL, NULL);
}
