/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sync state of one cell, by each function that writes, moves, copies or takes it: in a table whose cells all have
 * a full state, and in one with fewer. (What a state outlasts, on a fleet: sync_state_test.c.)
 *
 * Guards: src/process/sync_pool.c, src/process/sync_state.c, src/process/sync_state.h, src/process/allowance.h,
 * src/process/refund_ledger.c, src/process/process.c, src/process/key_name.c
 */
#include <stdio.h>

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/minifloat.h"
#include "base/record_hash.h"
#include "process/evict.h"
#include "support/bare_process.h"

#define LIMIT   1000
#define NOW_NS  BARE_NOW_NS
#define AT      5
#define TO      9
#define HASH    77
#define QUARTER (UINT32_C(1) << 30)
#define FEWER   20000 /* keys of a table with fewer full states than cells */

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct subject {
    struct process process;
    struct policy policy;
    struct rule rule;
    struct sync_compact *compact;
};

static void subject_open(struct subject *s, weir_algorithm algorithm, size_t max_keys)
{
    bare_process_open(&s->process, max_keys, true);
    bare_policy_init(&s->policy, algorithm, LIMIT);
    s->rule = s->policy.limits[0].rule;
    bare_occupy(&s->process, &s->policy, AT, HASH, (struct state){0, 0});
    s->compact = &s->process.syncs.compacts[AT];
}

static void subject_close(struct subject *s)
{
    process_close(&s->process);
}

static struct sync_full *give_full(struct subject *s, uint32_t index)
{
    store_relaxed(&s->compact->sync, COMPACT_HAS_FULL | index);
    store_relaxed(&s->process.syncs.pool[index].cell, AT);
    return &s->process.syncs.pool[index];
}

static void fill(void *to, size_t size, uint64_t *rng)
{
    for (size_t i = 0; i < size; i++) {
        ((unsigned char *) to)[i] = (unsigned char) random_next(rng);
    }
}

#define SAME_PLAIN(field)           assert_true(is->field == was->field);
#define SAME_ATOMIC(field)          assert_true(load_relaxed(&is->field) == load_relaxed(&was->field));
#define SAME_OF_TWO(field, initial) SAME_ATOMIC(field)

static void same_counts(const struct sync_counts *is, const struct sync_counts *was)
{
    SAME_PLAIN(acked)
    SAME_PLAIN(acked_refunds)
    SAME_ATOMIC(remote)
    SAME_ATOMIC(remote_refunds)
    SAME_PLAIN(deficit)
    SAME_PLAIN(own)
    SAME_PLAIN(demand)
    SAME_PLAIN(remote_demand)
    SAME_ATOMIC(restored)
}

static void same_allowance(const struct allowance *is, const struct allowance *was)
{
    ALLOWANCE_FIELDS(SAME_OF_TWO)
}

static void same_full(const struct sync_full *is, const struct sync_full *was)
{
    same_allowance(&is->allowance, &was->allowance);
    SAME_ATOMIC(denied)
    SAME_PLAIN(incarnation)
    same_counts(&is->now, &was->now);
    same_counts(&is->before, &was->before);
    assert_memory_equal(&is->demand, &was->demand, sizeof(is->demand));
    SAME_ATOMIC(history_end)
    SAME_PLAIN(ledger)
    SAME_PLAIN(round)
}

static void same_ledger(const struct refund_ledger *is, const struct refund_ledger *was)
{
    REFUND_LEDGER_FIELDS(SAME_ATOMIC)
}

static void test_a_copy_of_a_full_state_has_all_of_it_but_the_cell(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    static const struct sync_full zero;
    struct sync_full from = zero;
    struct sync_full to = zero;
    fill((void *) &from, sizeof(from), &rng);
    from.demand = (struct demand_stats){.learned_ns = random_next(&rng), .denied = true, .fraction_ns = 9};
    fill((void *) &to.allowance, sizeof(to.allowance), &rng);
    store_relaxed(&to.cell, 4711);
    sync_state_copy(&to, &from);
    same_full(&to, &from);
    assert_int_equal(load_relaxed(&to.cell), 4711);
    counts_clear(&to.now);
    same_counts(&to.now, &zero.now);
}

static void test_a_compact_state_moves_with_its_long_key_and_what_is_spilled(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned i = 0; i < 8; i++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW, FEWER);
        struct sync_states *syncs = &s.process.syncs;
        fill((void *) s.compact, sizeof(*s.compact), &rng);
        fill((void *) &syncs->spills[AT], sizeof(syncs->spills[AT]), &rng);
        fill(&syncs->tails[AT], sizeof(syncs->tails[AT]), &rng);
        const bool is_long = i % 2 != 0;
        const bool spilled = i / 2 % 2 != 0;
        const bool refunded = i / 4 != 0;
        s.compact->key_length = is_long ? COMPACT_KEY + 1 : COMPACT_KEY;
        store_relaxed(&s.compact->flags, spilled ? 0xff : 0xff & ~COMPACT_SPILLED);
        store_relaxed(&s.compact->sync, 12);
        if (refunded) {
            (void) refund_ledger_make(&s.process, AT);
        }
        sync_move(&s.process, AT, TO);
        const struct sync_compact *is = &syncs->compacts[TO];
        const struct sync_compact *was = s.compact;
        SAME_ATOMIC(acked_at)
        SAME_ATOMIC(flags)
        SAME_ATOMIC(residency)
        SAME_ATOMIC(words[0])
        SAME_ATOMIC(words[1])
        SAME_PLAIN(key_length)
        assert_memory_equal(is->key, was->key, COMPACT_KEY);
        assert_int_equal(load_relaxed(&is->sync), 12);
        static const struct sync_spill none;
        static const struct key_tail nothing;
        same_counts(&syncs->spills[TO].now, spilled ? &syncs->spills[AT].now : &none.now);
        same_counts(&syncs->spills[TO].before, spilled ? &syncs->spills[AT].before : &none.before);
        same_ledger(&syncs->spills[TO].ledger, refunded ? &syncs->spills[AT].ledger : &none.ledger);
        assert_memory_equal(&syncs->tails[TO], is_long ? &syncs->tails[AT] : &nothing, sizeof(nothing));
        subject_close(&s);
    }
}

static void test_refunds_of_a_window_add_up_until_the_second_next_one_has_some(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, 100);
    assert_int_equal(load_relaxed(&refund_ledger_of(&s.process, AT)->refunds[0]), 0);
    struct refund_ledger *ledger = refund_ledger_make(&s.process, AT);
    assert_ptr_equal(refund_ledger_of(&s.process, AT), ledger);
    assert_ptr_not_equal(refund_ledger_of(&s.process, TO), ledger);
    const uint32_t seq = 0x0fffff0;
    refund_ledger_add_window(ledger, seq, 5);
    refund_ledger_add_window(ledger, seq, 6);
    refund_ledger_add_window(ledger, seq + 1, 7);
    assert_int_equal(load_relaxed(&ledger->refunds[0]) & WINDOW_COUNT_MASK, 11);
    assert_int_equal(load_relaxed(&ledger->refunds[0]) >> WINDOW_COUNT_BITS, seq & 0xfffff);
    assert_int_equal(load_relaxed(&ledger->refunds[1]) & WINDOW_COUNT_MASK, 7);
    refund_ledger_add_window(ledger, seq + 2, 3);
    assert_int_equal(load_relaxed(&ledger->refunds[0]) & WINDOW_COUNT_MASK, 3);
    assert_int_equal(load_relaxed(&ledger->refunds[0]) >> WINDOW_COUNT_BITS, (seq + 2) & 0xfffff);
    refund_ledger_add_window(ledger, seq + 2, WINDOW_COUNT_MASK - 1);
    assert_int_equal(load_relaxed(&ledger->refunds[0]) & WINDOW_COUNT_MASK, WINDOW_COUNT_MASK);
    assert_int_equal(load_relaxed(&ledger->refunds[0]) >> WINDOW_COUNT_BITS, (seq + 2) & 0xfffff);
    /* Only where there are any does another key clear them. */
    fill((void *) ledger, sizeof(*ledger), &rng);
    fill((void *) &s.process.syncs.spills[TO].ledger, sizeof(*ledger), &rng);
    const struct refund_ledger was = s.process.syncs.spills[TO].ledger;
    static const struct refund_ledger none;
    refund_ledger_clear(&s.process, TO);
    refund_ledger_clear(&s.process, AT);
    same_ledger(&s.process.syncs.spills[TO].ledger, &was);
    same_ledger(ledger, &none);
    subject_close(&s);
}

static void test_a_new_key_has_its_name_and_an_incarnation_that_no_other_has(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, FEWER);
    uint64_t rng = test_seed();
    char name[KEY_NAME_SIZE] = "0123456789abcdef0123456789abcde";
    for (uint64_t n = 1; n <= UINT64_C(2) * KEY_NAME_SIZE; n++) {
        const uint32_t length = (uint32_t) n % (KEY_NAME_SIZE + 1);
        fill((void *) s.compact, sizeof(*s.compact), &rng);
        const weir_key key = {.data = name, .length = length};
        sync_begin(&s.process, AT, &s.policy, &s.rule, &key, NULL, NOW_NS);
        assert_int_equal(load_relaxed(&s.compact->sync), 0);
        assert_int_equal(load_relaxed(&s.compact->words[0]), 0);
        assert_int_equal(load_relaxed(&s.compact->words[1]), 0);
        assert_int_equal(load_relaxed(&s.compact->acked_at), 0);
        assert_int_equal(load_relaxed(&s.compact->flags), 0);
        assert_int_equal(load_relaxed(&s.compact->residency), (2 * n - 1) << RESIDENCY_SHIFT);
        const struct key_name kept = compact_key(&s.process, AT);
        assert_int_equal(kept.flags, 0);
        assert_int_equal(kept.length, length);
        assert_memory_equal(kept.bytes, name, length);
        sync_blank(&s.process, AT);
        assert_int_equal(load_relaxed(&s.compact->residency), (2 * n) << RESIDENCY_SHIFT);
        assert_int_equal(s.compact->key_length, 0);
    }
    fill((void *) s.compact, sizeof(*s.compact), &rng);
    sync_blank(&s.process, AT);
    assert_int_equal(load_relaxed(&s.compact->sync), 0);
    assert_int_equal(load_relaxed(&s.compact->words[0]), 0);
    assert_int_equal(load_relaxed(&s.compact->words[1]), 0);
    assert_int_equal(load_relaxed(&s.compact->acked_at), 0);
    assert_int_equal(load_relaxed(&s.compact->flags), 0);
    subject_close(&s);
}

/* Up to 32 bytes are kept; of a longer key twelve and a hash; of a secret one the hash alone. */
static void test_a_key_is_named_by_its_bytes_or_by_a_hash(void **state)
{
    (void) state;
    struct record_hash hash;
    record_hash_init(&hash, NULL);
    const char *text = "0123456789abcdef0123456789abcdefXYZ";
    static const struct {
        uint32_t length;
        bool secret;
        uint8_t flags, kept;
    } rows[] = {{0, false, 0, 0},
                {31, false, 0, 31},
                {32, false, 0, 32},
                {33, false, KEY_NAME_HASHED, 28},
                {5, true, KEY_NAME_HASHED | KEY_NAME_HASH_ONLY, 16},
                {33, true, KEY_NAME_HASHED | KEY_NAME_HASH_ONLY, 16}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct policy policy;
        bare_policy_init(&policy, WEIR_FIXED_WINDOW, LIMIT);
        policy.hash_keys = rows[i].secret;
        const weir_key key = {.data = rows[i].length != 0 ? text : NULL, .length = rows[i].length};
        struct key_name name;
        memset(&name, 0x55, sizeof(name));
        key_name_make(&name, &hash, &policy, &key);
        assert_int_equal(name.flags, rows[i].flags);
        assert_int_equal(name.length, rows[i].kept);
        unsigned char own[RECORD_HASH_SIZE];
        record_hash_of(&hash, key.data, key.length, own);
        const size_t readable = rows[i].flags == 0 ? rows[i].length : rows[i].kept - sizeof(own);
        assert_memory_equal(name.bytes, text, readable);
        if (rows[i].flags != 0) {
            assert_memory_equal(name.bytes + readable, own, sizeof(own));
        }
        char expected[KEY_NAME_TEXT_SIZE];
        int length =
            snprintf(expected, sizeof(expected), "%.*s%s", (int) readable, text, rows[i].flags != 0 ? "~" : "");
        for (size_t b = 0; b < sizeof(own) && rows[i].flags != 0; b++) {
            length += snprintf(expected + length, 3, "%02x", own[b]);
        }
        char written[KEY_NAME_TEXT_SIZE];
        assert_int_equal(key_name_write(written, &name, NULL), length);
        assert_string_equal(written, expected);
    }
}

static void test_what_is_restored_of_a_key_is_in_its_compact_state_by_its_algorithm(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        struct state state;
        uint64_t now, before, seq;
    } rows[] = {
        {WEIR_FIXED_WINDOW, {UINT64_C(0x12345) << 44 | 20, UINT64_C(0x67) << 44 | 30}, 20, 30, 0x6712345},
        {WEIR_SLIDING_LOG, {NOW_NS, 40}, 40, NOW_NS, 0},
        {WEIR_TOKEN_BUCKET, {5000, 40}, 5000, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, rows[i].algorithm, FEWER);
        const weir_key key = {.data = "name", .length = 4};
        sync_begin(&s.process, AT, &s.policy, &s.rule, &key, &rows[i].state, NOW_NS);
        assert_int_equal(load_relaxed(&s.compact->words[0]), rows[i].now);
        assert_int_equal(load_relaxed(&s.compact->words[1]), rows[i].before);
        assert_int_equal(load_relaxed(&s.compact->flags), COMPACT_RESTORED | COMPACT_RESTORED << 1);
        assert_int_equal(load_relaxed(&s.compact->residency), UINT64_C(1) << RESIDENCY_SHIFT | rows[i].seq);
        /* The fleet is to report as much before it counts as other nodes' units. */
        struct sync_full full;
        compact_expand(&s.process, AT, &s.rule, NOW_NS, &full);
        assert_int_equal(load_relaxed(&full.allowance.seq), rows[i].seq);
        assert_int_equal(load_relaxed(&full.now.restored), rows[i].now);
        assert_int_equal(load_relaxed(&full.before.restored), rows[i].before);
        assert_int_equal(load_relaxed(&full.now.remote), 0);
        assert_int_equal(load_relaxed(&full.before.remote), 0);
        subject_close(&s);
    }
}

/* 2^28 ns, some 0.27 s, are the unit; the age is never said to be greater than it is. */
static void test_the_age_of_an_answer_is_known_to_half_a_second_for_five_hours(void **state)
{
    (void) state;
    const uint64_t unit = UINT64_C(1) << 28;
    static const struct {
        uint64_t acked_at, now, age; /* units */
    } rows[] = {{5, 5, 0}, {5, 6, 0}, {5, 7, 1}, {5, 105, 99}, {65535, 65536 + 4, 4}, {0, 65535, 65534}, {1, 65537, 0}};
    struct sync_compact compact = {.key_length = 0};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        store_relaxed(&compact.acked_at, (uint16_t) rows[i].acked_at);
        assert_int_equal(compact_age_ns(&compact, rows[i].now * unit), rows[i].age * unit);
        assert_int_equal(compact_age_ns(&compact, (rows[i].now + 1) * unit - 1), rows[i].age * unit);
    }
}

static void test_a_compact_state_stands_for_a_full_one(void **state)
{
    (void) state;
    static const struct {
        weir_algorithm algorithm;
        weir_calendar calendar;
        bool acked;
        uint64_t seen;
        uint32_t fraction;
        bool known; /* of a bucket served in part: what the fleet knows of its time */
    } rows[] = {
        {WEIR_FIXED_WINDOW, WEIR_CALENDAR_NONE, true, 60 + 30, 0, false},
        {WEIR_FIXED_WINDOW, WEIR_CALENDAR_DAY, true, 60 + 30, 0, false},
        {WEIR_SLIDING_WINDOW, WEIR_CALENDAR_DAY, false, 60 + 30, QUARTER, false},
        {WEIR_SLIDING_LOG, WEIR_CALENDAR_NONE, true, 0, 0, false},
        {WEIR_TOKEN_BUCKET, WEIR_CALENDAR_NONE, true, 30, 0, false},
        {WEIR_TOKEN_BUCKET, WEIR_CALENDAR_NONE, false, 30, QUARTER, true},
        {WEIR_LEAKY_BUCKET, WEIR_CALENDAR_NONE, true, 30, QUARTER, true},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct subject s;
        subject_open(&s, rows[i].algorithm, FEWER);
        store_relaxed(&s.process.shared->nodes, 4);
        s.rule.calendar = rows[i].calendar;
        const bool bucket = rule_is_bucket(&s.rule);
        const bool window = rule_kind(&s.rule) == RULE_WINDOW;
        store_relaxed(&s.compact->sync, 42);
        store_relaxed(&s.compact->acked_at, (uint16_t) ((NOW_NS >> 28) - 10));
        store_relaxed(&s.compact->residency, UINT64_C(9) << RESIDENCY_SHIFT | (window ? 1234 : 0));
        store_relaxed(&s.compact->flags, rows[i].acked ? COMPACT_ACKED | COMPACT_AGAIN : 0);
        store_relaxed(&s.compact->words[0], window ? 60 | UINT64_C(30) << WINDOW_COUNT_BITS : 60);
        store_relaxed(&s.compact->words[1], window ? 8 | UINT64_C(4) << WINDOW_COUNT_BITS : bucket ? 30 : 8);
        const uint64_t tat = bucket_time(&s.rule, NOW_NS) + 500 * s.rule.unit;
        bare_set_state(&s.process, AT, (struct state){tat, 100});
        store_relaxed(&refund_ledger_make(&s.process, AT)->refunds[0], 3);
        struct sync_full full;
        memset((void *) &full, 0x55, sizeof(full));
        compact_expand(&s.process, AT, &s.rule, NOW_NS, &full);
        assert_int_equal(load_relaxed(&full.denied), 42);
        assert_int_equal(load_relaxed(&s.compact->sync), 0);
        assert_int_equal(full.incarnation, 9);
        assert_ptr_equal(full.ledger, refund_ledger_of(&s.process, AT));
        assert_int_equal(load_relaxed(&full.history_end), 0);
        assert_int_equal(load_relaxed(&full.now.remote), 60);
        assert_int_equal(full.now.acked, window || bucket ? 30 : 0);
        assert_int_equal(full.now.own, full.now.acked);
        assert_int_equal(full.now.demand, full.now.acked);
        assert_int_equal(full.now.remote_demand, 60);
        assert_int_equal(load_relaxed(&full.before.remote), bucket ? 0 : 8);
        assert_int_equal(full.before.acked, window ? 4 : 0);
        assert_int_equal(full.before.demand, full.before.acked);
        assert_int_equal(full.before.remote_demand, bucket ? 0 : 8);
        assert_int_equal(full.now.acked_refunds + full.now.deficit + full.before.acked_refunds + full.before.deficit,
                         0);
        assert_int_equal(load_relaxed(&full.allowance.seq), window ? 1234 : 0);
        assert_int_equal(load_relaxed(&full.allowance.seen), rows[i].seen);
        assert_int_equal(load_relaxed(&full.allowance.fraction), rows[i].fraction);
        assert_int_equal(load_relaxed(&full.allowance.since_ns), rows[i].acked);
        assert_int_equal(load_relaxed(&full.allowance.quota_unacked), rows[i].calendar != 0 && !rows[i].acked);
        assert_int_equal(load_relaxed(&full.allowance.remote_rate), 0);
        assert_int_equal(full.demand.again, rows[i].acked);
        assert_int_equal(full.demand.own, full.now.acked);
        assert_int_equal(full.demand.local_seen, full.now.acked);
        assert_int_equal(full.demand.learned_ns, rows[i].acked ? NOW_NS - 9 * (UINT64_C(1) << 28) : 0);
        /* 70 units were charged since, each for four times as long as by the whole rule. */
        assert_int_equal(full.demand.known_time, rows[i].known ? tat - 280 * s.rule.unit : 0);
        assert_int_equal(full.demand.known_total, rows[i].known ? 30 : 0);
        assert_int_equal(full.demand.known_refunds, rows[i].known ? 3 : 0);
        assert_int_equal(full.demand.known_rate_id, rows[i].known ? s.rule.rate_id : 0);
        assert_int_equal(full.demand.fraction_ns, rows[i].known ? NOW_NS : 0);
        /* The estimate that checks read of it. */
        const struct merged_counts merged = sync_state_merged(&s.process, AT);
        assert_int_equal(merged.seq, window ? 1234 : 0);
        assert_int_equal(merged.now, 60);
        assert_int_equal(merged.before, bucket ? 0 : 8);
        assert_int_equal(merged.acked, full.now.acked);
        /* A load takes the denied units; a store gives them back. */
        store_relaxed(&s.compact->sync, 42);
        struct sync_full room;
        assert_ptr_equal(sync_load(&s.process, AT, &s.rule, NOW_NS, &room), &room);
        assert_int_equal(load_relaxed(&room.denied), 42);
        assert_int_equal(load_relaxed(&s.compact->sync), 0);
        sync_add_denied(&s.process.syncs, AT, 3);
        room.demand.again = !rows[i].acked;
        sync_store(&s.process, AT, &room);
        assert_int_equal(load_relaxed(&s.compact->sync), 45);
        assert_int_equal(compact_is(s.compact, COMPACT_AGAIN), !rows[i].acked);
        assert_int_equal(compact_is(s.compact, COMPACT_ACKED), rows[i].acked);
        assert_int_equal(load_relaxed(&s.compact->residency) >> RESIDENCY_SHIFT, 9);
        subject_close(&s);
    }
}

/* What a compact state has no room for goes to the spill: all counts, or none. */
static void test_a_full_state_is_kept_in_two_words_where_they_have_room(void **state)
{
    (void) state;
    const uint64_t most = WINDOW_COUNT_MASK;
    const uint64_t all = UINT64_C(1) << MINIFLOAT_BITS; /* all local units are acknowledged */
    const struct {
        weir_algorithm algorithm;
        struct sync_counts now, before;
        bool spilled;
        uint64_t word_now, word_before; /* of a window: the merged units; then what stands above them */
        uint64_t acked_now, acked_before;
    } rows[] = {
        {WEIR_FIXED_WINDOW,
         {.remote = 60, .acked = 30, .own = 31},
         {.remote = 8, .acked = 4, .own = 4},
         false,
         60,
         8,
         30,
         all | 4},
        {WEIR_FIXED_WINDOW, {.restored = 50, .acked = 30, .own = 30}, {.remote = 8}, false, 50, 8, all | 30, all},
        {WEIR_FIXED_WINDOW, {.remote = 7}, {.restored = 8, .own = 1}, false, 7, 8, all, 0},
        {WEIR_SLIDING_WINDOW, {.remote = most}, {.restored = most}, false, most, most, all, all},
        {WEIR_FIXED_WINDOW,
         {.acked = most, .own = most},
         {.acked = most, .own = 1},
         false,
         0,
         0,
         all | minifloat_encode(most),
         minifloat_encode(most)},
        {WEIR_FIXED_WINDOW, {.remote = most + 1}, {.own = 0}, true, 0, 0, 0, 0},
        {WEIR_FIXED_WINDOW, {.own = 0}, {.restored = most + 1}, true, 0, 0, 0, 0},
        {WEIR_FIXED_WINDOW, {.acked = most + 1}, {.own = 0}, true, 0, 0, 0, 0},
        {WEIR_FIXED_WINDOW, {.own = 0}, {.acked = most + 1}, true, 0, 0, 0, 0},
        {WEIR_FIXED_WINDOW, {.acked = most << 6}, {.own = 0}, true, 0, 0, 0, 0}, /* and what no minifloat has */
        {WEIR_FIXED_WINDOW, {.remote = 1, .restored = 1}, {.own = 0}, true, 0, 0, 0, 0},
        {WEIR_FIXED_WINDOW, {.own = 0}, {.remote = 1, .restored = 1}, true, 0, 0, 0, 0},
        {WEIR_FIXED_WINDOW, {.acked_refunds = 1}, {.own = 0}, true, 0, 0, 0, 0},
        {WEIR_FIXED_WINDOW, {.own = 0}, {.deficit = 1}, true, 0, 0, 0, 0},
        {WEIR_SLIDING_WINDOW, {.remote_refunds = 1}, {.own = 0}, true, 0, 0, 0, 0},
        {WEIR_SLIDING_LOG, {.restored = 40}, {.restored = NOW_NS}, false, 40, NOW_NS, 0, 0},
        {WEIR_TOKEN_BUCKET, {.remote = 60, .acked = 30}, {.acked = 30}, false, 60, 30, 0, 0},
        {WEIR_TOKEN_BUCKET, {.restored = 50, .acked = 30}, {.acked = 29}, false, 50, 30, 0, 0},
        {WEIR_LEAKY_BUCKET, {.acked = 30}, {.acked = 31}, true, 0, 0, 0, 0},
        {WEIR_TOKEN_BUCKET, {.restored = 1, .remote = 1}, {.acked = 0}, true, 0, 0, 0, 0},
        {WEIR_TOKEN_BUCKET, {.deficit = 1}, {.acked = 0}, true, 0, 0, 0, 0},
        {WEIR_LEAKY_BUCKET, {.acked = 1}, {.acked_refunds = 1}, true, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        for (unsigned told = 0; told < 4; told++) {
            struct subject s;
            subject_open(&s, rows[i].algorithm, FEWER);
            const unsigned name = told << COMPACT_KEY_SHIFT;
            store_relaxed(&s.compact->flags, (uint8_t) (0x3f | name));
            static const struct sync_full none;
            struct sync_full full = none;
            full.now = rows[i].now;
            full.before = rows[i].before;
            full.incarnation = 9;
            full.demand.again = told == 1;
            full.demand.learned_ns = (UINT64_C(0x54321) << ACKED_AT_SHIFT) + 99;
            store_relaxed(&full.allowance.since_ns, told == 2);
            store_relaxed(&full.allowance.seq, told == 3 ? 0x1234567 : 0);
            compact_write(&s.process, AT, &full);
            static const unsigned flags[] = {0, COMPACT_AGAIN, COMPACT_ACKED, 0};
            const unsigned restored = (load_relaxed(&rows[i].now.remote) == 0 ? COMPACT_RESTORED : 0) |
                                      (load_relaxed(&rows[i].before.remote) == 0 ? COMPACT_RESTORED << 1 : 0);
            assert_int_equal(load_relaxed(&s.compact->flags),
                             restored | (rows[i].spilled ? COMPACT_SPILLED : 0) | name | flags[told]);
            assert_int_equal(load_relaxed(&s.compact->residency),
                             UINT64_C(9) << RESIDENCY_SHIFT | (told == 3 ? 0x1234567 : 0));
            assert_int_equal(load_relaxed(&s.compact->acked_at), 0x4321);
            if (!rows[i].spilled) {
                assert_int_equal(load_relaxed(&s.compact->words[0]),
                                 rows[i].word_now | rows[i].acked_now << WINDOW_COUNT_BITS);
                assert_int_equal(load_relaxed(&s.compact->words[1]),
                                 rows[i].word_before | rows[i].acked_before << WINDOW_COUNT_BITS);
            }
            const struct sync_spill *spill = &s.process.syncs.spills[AT];
            same_counts(&spill->now, rows[i].spilled ? &rows[i].now : &none.now);
            same_counts(&spill->before, rows[i].spilled ? &rows[i].before : &none.before);
            /* Read again: what is spilled as it was, to the demand; of acknowledged units somewhat less for checks. */
            struct sync_full again;
            compact_expand(&s.process, AT, &s.rule, NOW_NS, &again);
            if (rows[i].spilled) {
                same_counts(&again.now, &rows[i].now);
                same_counts(&again.before, &rows[i].before);
            }
            const struct merged_counts merged = sync_state_merged(&s.process, AT);
            assert_int_equal(merged.seq, told == 3 ? 0x1234567 : 0);
            assert_int_equal(merged.now, counts_net(&rows[i].now));
            assert_int_equal(merged.before, rule_is_bucket(&s.rule) ? 0 : counts_net(&rows[i].before));
            const uint64_t acked = min_u64(rows[i].now.acked, most);
            assert_in_range(merged.acked, acked - (acked >> 13), acked);
            subject_close(&s);
        }
    }
}

/* A new bucket of which nothing was reported has nothing that the fleet knows. */
static void test_of_a_bucket_that_nobody_has_heard_of_nothing_is_known_to_the_fleet(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_TOKEN_BUCKET, FEWER);
    store_relaxed(&s.process.shared->nodes, 4);
    bare_set_state(&s.process, AT, (struct state){bucket_time(&s.rule, NOW_NS), 100});
    struct sync_full full;
    compact_expand(&s.process, AT, &s.rule, NOW_NS, &full);
    assert_int_equal(load_relaxed(&full.allowance.fraction), QUARTER);
    assert_int_equal(full.demand.known_time, 0);
    assert_int_equal(full.demand.fraction_ns, 0);
    subject_close(&s);
}

/* Local and remote units, less refunds, modulo 2^44. */
static void test_the_fleets_record_of_a_bucket_has_the_units_of_all_less_their_refunds(void **state)
{
    (void) state;
    for (int full = 0; full < 2; full++) {
        struct subject s;
        subject_open(&s, WEIR_TOKEN_BUCKET, 100);
        const struct state total = {12345, 100};
        store_relaxed(&s.compact->words[0], 60);
        if (full != 0) {
            struct sync_full *sync = give_full(&s, AT);
            store_relaxed(&sync->now.remote, 60);
            store_relaxed(&sync->now.remote_refunds, 9);
        }
        const uint64_t less = full != 0 ? 9 : 0;
        assert_int_equal(sync_state_bucket_units(&s.process, AT, total), 160 - less);
        store_relaxed(&refund_ledger_make(&s.process, AT)->refunds[0], 30);
        assert_int_equal(sync_state_bucket_units(&s.process, AT, total), 130 - less);
        store_relaxed(&refund_ledger_make(&s.process, AT)->refunds[0], 161);
        assert_int_equal(sync_state_bucket_units(&s.process, AT, total), BUCKET_TOTAL_MASK - less);
        store_relaxed(&s.compact->flags, COMPACT_RESTORED);
        store_relaxed(&s.process.syncs.pool[AT].now.restored, 1);
        assert_true(sync_state_bucket_units(&s.process, AT, total) == UINT64_MAX);
        subject_close(&s);
    }
}

static void test_merged_counts_are_the_remote_or_restored_units_less_refunds(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_SLIDING_WINDOW, 100);
    struct sync_full *sync = give_full(&s, AT);
    store_relaxed(&sync->allowance.seq, 77);
    store_relaxed(&sync->now.remote, 60);
    store_relaxed(&sync->now.restored, 70);
    store_relaxed(&sync->now.remote_refunds, 8);
    store_relaxed(&sync->before.remote, 50);
    store_relaxed(&sync->before.restored, 40);
    store_relaxed(&sync->before.remote_refunds, 60);
    sync->now.acked = 5;
    const struct merged_counts merged = sync_state_merged(&s.process, AT);
    assert_int_equal(merged.seq, 77);
    assert_int_equal(merged.now, 62);
    assert_int_equal(merged.before, 0);
    assert_int_equal(merged.acked, 0); /* of a compact state alone */
    subject_close(&s);
}

static void test_a_table_has_a_full_state_for_each_of_16384_cells_and_then_for_one_in_64(void **state)
{
    (void) state;
    static const struct {
        size_t cells;
        uint32_t count;
    } rows[] = {{24, 24}, {16384, 16384}, {16392, 16384}, {1048576, 16384}, {1048640, 16385}, {2000000, 31250}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct sync_states syncs = {.count = 0};
        assert_int_equal(syncs_open(&syncs, rows[i].cells, NULL), 0);
        const bool all = rows[i].count == rows[i].cells;
        assert_int_equal(syncs.count, rows[i].count);
        assert_int_equal(syncs.all, all);
        assert_int_equal(syncs.memory_size, syncs_size(rows[i].cells));
        assert_in_range(syncs.memory_size, 48 * rows[i].cells + sizeof(struct sync_full) * rows[i].count,
                        48 * rows[i].cells + sizeof(struct sync_full) * rows[i].count + 256);
        for (uint32_t n = 0; n < syncs.count; n += syncs.count - 1) {
            assert_int_equal(load_relaxed(&syncs.pool[n].cell), all ? n : TABLE_NONE);
        }
        /* The parts are apart. */
        assert_true((unsigned char *) syncs.pool >= (unsigned char *) &syncs.compacts[rows[i].cells]);
        assert_true((unsigned char *) syncs.shared >= (unsigned char *) &syncs.pool[syncs.count]);
        syncs_close(&syncs, NULL);
    }
}

/* In a table whose cells all have a full state it is made with the key; else by the background thread. */
static void test_a_new_key_has_a_full_state_at_once_where_all_have_one(void **state)
{
    (void) state;
    for (int all = 0; all < 2; all++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW, all != 0 ? 100 : FEWER);
        store_relaxed(&s.process.shared->nodes, 4);
        struct sync_full *own = &s.process.syncs.pool[AT];
        own->round = 99;
        const weir_key key = {.data = "name", .length = 4};
        store_relaxed(&s.process.syncs.shared->incarnations, 6);
        sync_begin(&s.process, AT, &s.policy, &s.rule, &key, NULL, NOW_NS);
        const struct sync_full *sync = sync_of(&s.process.syncs, AT);
        assert_ptr_equal(sync, all != 0 ? own : NULL);
        if (all != 0) {
            assert_int_equal(sync->round, 0);
            assert_int_equal(sync->incarnation, 7);
            assert_int_equal(load_relaxed(&sync->cell), AT);
            assert_int_equal(load_relaxed(&sync->allowance.fraction), QUARTER);
            assert_int_equal(load_relaxed(&sync->denied), 0);
        }
        /* The evicted key's state is copied, and free. */
        store_relaxed(&s.compact->sync, load_relaxed(&s.compact->sync) | (all == 0 ? 3 : 0));
        struct sync_full out;
        sync_evict(&s.process, AT, &s.rule, NOW_NS, &out);
        assert_int_equal(out.incarnation, 7);
        assert_null(sync_of(&s.process.syncs, AT));
        assert_int_equal(load_relaxed(&out.denied), all != 0 ? 0 : 3);
        assert_int_equal(load_relaxed(&s.compact->sync), 0);
        if (all == 0) {
            sync = give_full(&s, 12);
            sync_evict(&s.process, AT, NULL, NOW_NS, NULL);
            assert_int_equal(load_relaxed(&sync->cell), TABLE_NONE);
            assert_int_equal(load_relaxed(&s.compact->sync), 0);
        } else {
            assert_int_equal(load_relaxed(&own->cell), AT); /* it is the cell's for ever */
        }
        subject_close(&s);
    }
}

static void test_a_key_that_moves_takes_its_states_along(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    enum { ALL, FEWER_FULL, FEWER_COMPACT, CASES };
    for (int which = 0; which < CASES; which++) {
        struct subject s;
        subject_open(&s, WEIR_FIXED_WINDOW, which == ALL ? 100 : FEWER);
        struct sync_states *syncs = &s.process.syncs;
        memcpy(s.compact->key, "name", 4);
        s.compact->key_length = 4;
        store_relaxed(&s.compact->sync, 41);
        const uint32_t index = which == ALL ? AT : 12;
        struct sync_full *sync = which != FEWER_COMPACT ? give_full(&s, index) : NULL;
        struct sync_full was = syncs->pool[index];
        if (sync != NULL) {
            fill((void *) &sync->now, sizeof(sync->now), &rng);
            store_relaxed(&sync->denied, 30);
            sync->incarnation = 8;
            was = *sync;
        }
        if (which == ALL) {
            store_relaxed(&syncs->pool[TO].denied, 0);
        }
        struct refund_ledger *ledger = &syncs->spills[AT].ledger;
        store_relaxed(&ledger->refunds[1], 5);
        if (which != FEWER_FULL) {
            cell_meta_record(&s.process.table.metas[AT], EVENT_REFUNDED);
        }
        sync_move(&s.process, AT, TO);
        assert_int_equal(load_relaxed(&syncs->spills[TO].ledger.refunds[1]), which != FEWER_FULL ? 5 : 0);
        assert_memory_equal(syncs->compacts[TO].key, "name", 4);
        const struct sync_full *moved = sync_of(syncs, TO);
        assert_ptr_equal(moved, which == ALL ? &syncs->pool[TO] : sync);
        if (sync != NULL && moved != NULL) {
            assert_null(sync_of(syncs, AT));
            assert_int_equal(load_relaxed(&s.compact->sync), 0);
            assert_int_equal(load_relaxed(&moved->cell), TO);
            same_full(moved, &was);
        } else {
            assert_int_equal(load_relaxed(&syncs->compacts[TO].sync), 41);
        }
        subject_close(&s);
    }
}

/* Gives the full states of the pool to cells of keys, each with this round. */
static void hand_out(struct subject *s, uint32_t count, uint32_t round)
{
    for (uint32_t i = 0; i < count; i++) {
        if (i != AT) {
            bare_occupy(&s->process, &s->policy, i, 1000 + i, (struct state){0, 0});
        }
        store_relaxed(&s->process.syncs.compacts[i].sync, COMPACT_HAS_FULL | i);
        store_relaxed(&s->process.syncs.pool[i].cell, i);
        s->process.syncs.pool[i].round = round;
    }
}

/* Of eight in turn the one that was inspected longest ago, and a free one first; none of this round. */
static void test_the_full_state_that_was_inspected_longest_ago_is_given_to_another_key(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, FEWER);
    struct sync_states *syncs = &s.process.syncs;
    hand_out(&s, 60, 20);
    const uint32_t at = 100;
    bare_occupy(&s.process, &s.policy, at, 5000, (struct state){0, 0});
    static const struct sync_full none;
    struct sync_full room = none;
    room.incarnation = 4;
    store_relaxed(&room.denied, 5);
    store_relaxed(&syncs->compacts[at].sync, 3);
    syncs->pool[3].round = 18;
    syncs->pool[6].round = 19;
    store_relaxed(&syncs->pool[3].denied, 6);
    const struct sync_full *sync = sync_promote(&s.process, at, &room, 21);
    assert_ptr_equal(sync, &syncs->pool[3]);
    assert_ptr_equal(sync_of(syncs, at), sync);
    assert_int_equal(sync->round, 21);
    assert_int_equal(sync->incarnation, 4);
    assert_int_equal(load_relaxed(&sync->cell), at);
    assert_int_equal(load_relaxed(&sync->denied), 8);
    assert_int_equal(load_relaxed(&syncs->compacts[3].sync), 6); /* its last key has what it was denied */
    assert_int_equal(load_relaxed(&s.process.table.cells[3].held) & HELD_IN_USE, 0);
    assert_int_equal(syncs->shared->hand, 8);
    /* A free one, however old the others are. */
    store_relaxed(&syncs->compacts[at].sync, 0);
    store_relaxed(&syncs->pool[12].cell, TABLE_NONE);
    syncs->pool[12].round = 21;
    syncs->pool[9].round = 1;
    assert_ptr_equal(sync_promote(&s.process, at, &room, 21), &syncs->pool[12]);
    assert_int_equal(syncs->shared->hand, 16);
    /* Four searches, of states of this round or of cells that are locked or have no key. */
    store_relaxed(&syncs->compacts[at].sync, 0);
    for (uint32_t i = 16; i < 48; i++) {
        syncs->pool[i].round = 21;
    }
    syncs->pool[17].round = 20;
    assert_true(cell_lock(&s.process.table.cells[17]));
    syncs->pool[25].round = 20;
    store_relaxed(&s.process.table.cells[25].hash, 0);
    syncs->pool[33].round = 20;
    store_relaxed(&syncs->compacts[33].sync, 0); /* the key has just moved */
    assert_null(sync_promote(&s.process, at, &room, 21));
    assert_int_equal(syncs->shared->hand, 48);
    assert_int_equal(load_relaxed(&syncs->pool[17].cell), 17);
    assert_int_equal(load_relaxed(&syncs->pool[33].cell), 33);
    assert_non_null(sync_promote(&s.process, at, &room, 21));
    /* The hand comes around. */
    syncs->shared->hand = syncs->count - 3;
    store_relaxed(&syncs->compacts[at].sync, 0);
    assert_ptr_equal(sync_promote(&s.process, at, &room, 21), &syncs->pool[syncs->count - 3]);
    assert_int_equal(syncs->shared->hand, 5);
    subject_close(&s);
}

static void test_full_states_that_no_cell_has_are_free_after_a_repair(void **state)
{
    (void) state;
    struct subject s;
    subject_open(&s, WEIR_FIXED_WINDOW, FEWER);
    struct sync_states *syncs = &s.process.syncs;
    const size_t cells = s.process.table.cell_count;
    hand_out(&s, 4, 1);
    store_relaxed(&syncs->compacts[1].sync, 7);                    /* denied units, and no full state */
    store_relaxed(&syncs->compacts[2].sync, COMPACT_HAS_FULL | 3); /* another one */
    store_relaxed(&syncs->pool[4].cell, (uint32_t) cells);         /* no cell; what lies there is no compact state */
    store_relaxed(&syncs->compacts[cells].sync, COMPACT_HAS_FULL | 4);
    sync_mend(syncs, cells);
    static const uint32_t expected[] = {0, TABLE_NONE, TABLE_NONE, 3, TABLE_NONE, TABLE_NONE};
    for (size_t i = 0; i < COUNT_OF(expected); i++) {
        assert_int_equal(load_relaxed(&syncs->pool[i].cell), expected[i]);
    }
    subject_close(&s);
    subject_open(&s, WEIR_FIXED_WINDOW, 100);
    store_relaxed(&s.compact->sync, 7);
    sync_mend(&s.process.syncs, s.process.table.cell_count);
    assert_int_equal(load_relaxed(&s.process.syncs.pool[AT].cell), AT); /* there it is the cell's for ever */
    subject_close(&s);
}

static void test_a_process_says_what_it_takes_and_begins_with_one_node(void **state)
{
    (void) state;
    for (int fleet = 0; fleet < 2; fleet++) {
        struct process p;
        bare_process_open(&p, 1000, fleet != 0);
        assert_int_equal(load_relaxed(&p.shared->nodes), 1);
        assert_int_equal(p.shared->origin_ns, BARE_ORIGIN_NS);
        assert_int_equal(load_relaxed(&p.sketch.shared->origin_ns), BARE_ORIGIN_NS);
        assert_int_equal(p.lock_word, 1);
        assert_int_equal(p.fleet, fleet);
        const size_t cells = p.table.cell_count;
        assert_int_equal(process_size(1000, fleet != 0), p.table.memory_size + p.syncs.memory_size);
        assert_int_equal(p.syncs.memory_size != 0, fleet);
        const size_t parts[] = {p.memory_size,           p.table.memory_size,     p.syncs.memory_size,
                                p.syncs.spills_size,     p.syncs.tails_size,      p.sketch.memory_size,
                                p.histories.memory_size, p.histories.places_size, p.top_denied.entries_size,
                                p.top_denied.lists_size, p.top_denied.memory_size};
        size_t sum = 0;
        for (size_t i = 0; i < COUNT_OF(parts); i++) {
            assert_true(parts[i] != 0 || fleet == 0);
            sum += parts[i];
        }
        assert_int_equal(process_reserved(&p), sum);
        assert_int_equal((unsigned char *) (p.evicted_ring + EVICTED_COUNT) - (unsigned char *) p.memory,
                         p.memory_size);
        assert_true((unsigned char *) (p.shared + 1) <= (unsigned char *) p.evicted_ring);
        assert_int_equal(p.top_denied.entries_size, cells * sizeof(struct denied_entry));
        assert_int_equal(p.syncs.spills_size, fleet != 0 ? cells * sizeof(struct sync_spill) : 0);
        process_close(&p);
        memset(&p, 0, sizeof(p));
        const struct process_options too_much = {.max_keys = SIZE_MAX / 4096, .max_log_units = 1, .fleet = fleet != 0};
        assert_int_equal(process_open(&p, &too_much), -12);
        process_close(&p);
    }
}

static void test_what_passes_from_window_to_window_of_presumed_units_is_the_newer_half(void **state)
{
    (void) state;
    const uint64_t packed = presumed_pack(LIMIT, 300, 200);
    assert_int_equal(presumed_now(LIMIT, presumed_pass_on(packed)), 0);
    assert_int_equal(presumed_before(LIMIT, presumed_pass_on(packed)), 300);
    assert_int_equal(presumed_now(LIMIT, presumed_pack(LIMIT, UINT64_C(5) * LIMIT, 0)), LIMIT); /* at most the limit */
    assert_int_equal(presumed_before(LIMIT, presumed_pack(LIMIT, 0, UINT64_C(5) * LIMIT)), LIMIT);
    assert_int_equal(allowance_urgent_units(1280), 10);
    assert_int_equal(allowance_urgent_units(383), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copy_of_a_full_state_has_all_of_it_but_the_cell),
        cmocka_unit_test(test_a_compact_state_moves_with_its_long_key_and_what_is_spilled),
        cmocka_unit_test(test_refunds_of_a_window_add_up_until_the_second_next_one_has_some),
        cmocka_unit_test(test_a_new_key_has_its_name_and_an_incarnation_that_no_other_has),
        cmocka_unit_test(test_a_key_is_named_by_its_bytes_or_by_a_hash),
        cmocka_unit_test(test_what_is_restored_of_a_key_is_in_its_compact_state_by_its_algorithm),
        cmocka_unit_test(test_the_age_of_an_answer_is_known_to_half_a_second_for_five_hours),
        cmocka_unit_test(test_a_compact_state_stands_for_a_full_one),
        cmocka_unit_test(test_a_full_state_is_kept_in_two_words_where_they_have_room),
        cmocka_unit_test(test_of_a_bucket_that_nobody_has_heard_of_nothing_is_known_to_the_fleet),
        cmocka_unit_test(test_the_fleets_record_of_a_bucket_has_the_units_of_all_less_their_refunds),
        cmocka_unit_test(test_merged_counts_are_the_remote_or_restored_units_less_refunds),
        cmocka_unit_test(test_a_table_has_a_full_state_for_each_of_16384_cells_and_then_for_one_in_64),
        cmocka_unit_test(test_a_new_key_has_a_full_state_at_once_where_all_have_one),
        cmocka_unit_test(test_a_key_that_moves_takes_its_states_along),
        cmocka_unit_test(test_the_full_state_that_was_inspected_longest_ago_is_given_to_another_key),
        cmocka_unit_test(test_full_states_that_no_cell_has_are_free_after_a_repair),
        cmocka_unit_test(test_a_process_says_what_it_takes_and_begins_with_one_node),
        cmocka_unit_test(test_what_passes_from_window_to_window_of_presumed_units_is_the_newer_half),
    };
    return cmocka_run_group_tests_name("unit/process/sync_pool", tests, NULL, NULL);
}
