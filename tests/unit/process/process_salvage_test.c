/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an opener makes of a table that is damaged: drawn words of all its arrays change, and after that each array is
 * looked at in the plainest way. (With memory that processes open: stress/named_damage_test.c.)
 *
 * Guards: src/process/process_salvage.c, src/process/table.c, src/process/bitmap.c, src/process/history_store.c,
 * src/process/sync_pool.c, src/process/sync_state.c, src/process/top_denied.c, src/process/evict.c,
 * src/algorithm/history.c, src/base/memory/buddy.c
 */
#include "algorithm/history.h"
#include "process/evict.h"
#include "process/insert.h"
#include "process/process_salvage.h"
#include "support/bare_process.h"
#include "support/draw.h"

#define KEYS         700
#define MONOTONIC_NS (1000 * SECOND)

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/*
 * Of the limits of keys. One is of a policy that no fleet shares. The last two are of policies that are not in force
 * any more: their keys have what they had.
 */
static const weir_algorithm algorithms[] = {WEIR_FIXED_WINDOW, WEIR_SLIDING_LOG, WEIR_TOKEN_BUCKET,
                                            WEIR_FIXED_WINDOW, WEIR_SLIDING_LOG, WEIR_TOKEN_BUCKET};

#define NOT_SHARED 3
#define IN_FORCE   4

struct subject {
    struct process process;
    struct policy policies[COUNT_OF(algorithms)];
    struct policy_set *set;
    struct cell *cells; /* before the damage */
    struct cell_meta *metas;
};

static const struct rule *rule_of(const struct subject *s, size_t kind)
{
    return &s->policies[kind].limits[0].rule;
}

/* Gives a key the first empty cell of its places, far ones too; and a log, where it is to have one. */
static void add_key(struct subject *s, uint64_t *rng)
{
    struct process *process = &s->process;
    const uint64_t hash = random_next(rng);
    const size_t kind = random_below(rng, COUNT_OF(algorithms));
    const uint32_t at = insert_lock_room(process, hash, false);
    const struct table_place place = table_place(&process->table, hash);
    const uint32_t to = place.empty != TABLE_NONE ? place.empty : at;
    if (at != TABLE_NONE) {
        cell_unlock(&process->table.cells[at]);
    }
    if (to == TABLE_NONE) {
        return;
    }
    const struct state fresh = rule_fresh(rule_of(s, kind), BARE_NOW_NS);
    bare_occupy(process, &s->policies[kind], to, hash, fresh);
    if (process_shares(process, &s->policies[kind])) {
        const weir_key key = {
            .policy = 1, .hash = hash, .data = (const unsigned char *) "a key of twenty bytes", .length = 20};
        sync_begin(process, to, &s->policies[kind], rule_of(s, kind), &key, NULL, BARE_NOW_NS);
    }
    if (algorithms[kind] == WEIR_SLIDING_LOG) {
        history_store_lock(process, to);
        assert_true(history_store_charge(process, to, rule_of(s, kind), BARE_NOW_NS, 1 + random_below(rng, 60)));
        history_store_unlock(process, to);
    } else {
        bare_set_state(process, to, rule_charge(rule_of(s, kind), fresh, BARE_NOW_NS, 1 + random_below(rng, 60)));
    }
}

static void subject_open(struct subject *s, uint64_t *rng, bool fleet)
{
    bare_process_open(&s->process, 600, fleet);
    s->set = calloc(1, sizeof(*s->set) + sizeof(s->policies));
    assert_non_null(s->set);
    s->set->count = IN_FORCE;
    for (size_t i = 0; i < COUNT_OF(algorithms); i++) {
        struct policy *policy = &s->policies[i];
        bare_policy_init(policy, algorithms[i], 1000);
        policy->scope = i == NOT_SHARED ? WEIR_SCOPE_PROCESS : WEIR_SCOPE_FLEET;
        policy->limits[0].limit_hash += (uint64_t) i << 40;
        policy->id = policy->group = (weir_policy_id) i + 1;
        if (i >= IN_FORCE) {
            continue;
        }
        memcpy((void *) &s->set->policies[i], (const void *) policy, sizeof(*policy));
        s->set->by_id[i + 1] = s->set->by_group[i + 1] =
            (uint32_t) (offsetof(struct policy_set, policies) + i * sizeof(*policy));
    }
    for (unsigned i = 0; i < KEYS; i++) {
        add_key(s, rng);
    }
    const struct table *table = &s->process.table;
    s->cells = malloc(table->cell_count * sizeof(*s->cells));
    s->metas = malloc(table->cell_count * sizeof(*s->metas));
    assert_non_null(s->cells);
    assert_non_null(s->metas);
    memcpy((void *) s->cells, (const void *) table->cells, table->cell_count * sizeof(*s->cells));
    memcpy((void *) s->metas, (const void *) table->metas, table->cell_count * sizeof(*s->metas));
}

static void subject_close(struct subject *s)
{
    free(s->set);
    free(s->cells);
    free(s->metas);
    process_close(&s->process);
}

static void salvage(struct subject *s)
{
    process_salvage(&s->process, s->set, BARE_NOW_NS, MONOTONIC_NS);
    process_salvage_held(&s->process);
}

/* Changes a word of the bytes: one bit, or all. */
static void damage(uint64_t *rng, void *bytes, size_t size)
{
    static const uint64_t words[] = {0, 1, 2, UINT32_MAX, UINT64_MAX, INT64_MAX, UINT64_C(1) << 63};
    unsigned char *at = (unsigned char *) bytes + random_below(rng, size);
    if (random_below(rng, 2) == 0) {
        *at ^= (unsigned char) (1U << random_below(rng, 8));
        return;
    }
    const uint64_t word = random_below(rng, 3) == 0 ? random_next(rng) : draw_one_of(rng, words);
    at -= (uintptr_t) at % 8 > (uintptr_t) (at - (unsigned char *) bytes) ? 0 : (uintptr_t) at % 8;
    memcpy(at, &word, min_u64(8, (uint64_t) ((unsigned char *) bytes + size - at)));
}

static void damage_some(struct subject *s, uint64_t *rng)
{
    struct process *process = &s->process;
    struct table *table = &process->table;
    struct history_store *histories = &process->histories;
    struct top_denied *denied = &process->top_denied;
    const size_t cells = table->cell_count;
    const struct {
        void *at;
        size_t size;
    } parts[] = {
        {table->cells, cells * sizeof(struct cell)},
        {table->metas, cells * sizeof(struct cell_meta)},
        {table->guards, table->set_count * sizeof(struct set_guard)},
        {table->shared, sizeof(*table->shared)},
        {histories->places, cells * sizeof(struct history_place)},
        {histories->metas, 4096 * sizeof(uint32_t)},
        {histories->blocks.orders, 4096},
        {histories->blocks.region, 1 << 18},
        {&process->shared->evicted_reports, sizeof(process->shared->evicted_reports)},
        {&process->shared->oversized, sizeof(uint32_t)},
        {&denied->shared->lock, sizeof(denied->shared->lock)},
        {&denied->shared->cursor, sizeof(denied->shared->cursor)},
        {denied->shared->listed, 8},
        {denied->lists, 4 * sizeof(struct top_k)},
        {denied->entries, cells * sizeof(struct denied_entry)},
        {(void *) denied->denied.words, bitmap_size(cells) * sizeof(uint64_t)},
        {histories->shared, offsetof(struct history_store_shared, blocks)},
        {process->fleet ? (void *) process->syncs.compacts : table->cells, cells * sizeof(struct cell)},
        {process->fleet ? (void *) process->syncs.pool : table->cells, cells * sizeof(struct cell)},
        {process->fleet ? (void *) process->syncs.shared : table->cells, sizeof(*process->syncs.shared)},
        {process->fleet ? (void *) table->dirty.words : table->cells, bitmap_size(cells) * sizeof(uint64_t)},
        {process->fleet ? (void *) table->urgent.words : table->cells, bitmap_size(cells) * sizeof(uint64_t)},
        {process->fleet ? (void *) table->deferred.words : table->cells, bitmap_size(cells) * sizeof(uint64_t)},
        {process->evicted_ring, process->fleet ? 8 * sizeof(struct evicted_report) : 1},
    };
    const size_t part = random_below(rng, COUNT_OF(parts));
    damage(rng, parts[part].at, parts[part].size);
}

/* The plainest counts of far keys, of each set and class. */
static void expect_guards(const struct table *table)
{
    unsigned *counts = calloc(table->set_count * FAR_CLASSES, sizeof(*counts));
    uint64_t keys = 0;
    assert_non_null(counts);
    for (uint32_t at = 0; at < table->cell_count; at++) {
        const uint64_t hash = load_relaxed(&table->cells[at].hash);
        const size_t pair = at / PAIR_CELLS * PAIR_CELLS;
        keys += hash != 0;
        if (hash != 0 && pair != table_pair(table, hash) && pair != table_second_pair(table, hash)) {
            counts[table_first_set(table, hash) * FAR_CLASSES + (size_t) ((hash & UINT32_MAX) * FAR_CLASSES >> 32)]++;
        }
    }
    assert_int_equal(load_relaxed(&table->shared->key_count), keys);
    for (size_t set = 0; set < table->set_count; set++) {
        assert_int_equal(load_relaxed(&table->guards[set].lock), 0);
        for (unsigned class = 0; class < FAR_CLASSES; class ++) {
            const unsigned both = load_relaxed(&table->guards[set].far_counts[class / 2]);
            assert_int_equal(both >> class % 2 * FAR_COUNT_BITS & FAR_COUNT_MASK,
                             min_u64(counts[set * FAR_CLASSES + class], FAR_COUNT_MASK));
        }
    }
    free(counts);
}

static void expect_bitmap(const struct bitmap *bitmap, size_t cell_count)
{
    size_t count = 0;
    for (size_t cell = 0; cell < bitmap->word_count * 64; cell++) {
        const bool has = (load_relaxed(&bitmap->words[cell / 64]) >> cell % 64 & 1) != 0;
        assert_false(has && cell >= cell_count);
        count += has;
    }
    assert_int_equal(bitmap_count(bitmap), count);
}

static void expect_cells(const struct subject *s)
{
    const struct table *table = &s->process.table;
    for (uint32_t at = 0; at < table->cell_count; at++) {
        const struct cell *cell = &table->cells[at];
        const struct cell_meta *meta = &table->metas[at];
        const uint64_t hash = load_relaxed(&cell->hash);
        assert_int_equal(load_relaxed(&cell->held) & HELD_IN_USE, 0);
        assert_false(cell_is_marked(dwcas_read(&cell->state)));
        assert_int_equal(load_relaxed(&s->process.histories.places[at].lock), 0);
        assert_true(hash != 0 ? table_find(table, hash) == at : load_relaxed(&meta->group) == 0);
        assert_in_range(load_relaxed(&meta->group), 0, WEIR_MAX_POLICIES);
        assert_false(cell_meta_is(meta, CELL_HISTORY) && cell_meta_is(meta, CELL_BUCKET));
        assert_false(!s->process.fleet && cell_meta_is(meta, CELL_SHARED));
        const struct policy *policy;
        const struct policy_limit *limit =
            policy_set_limit(s->set, load_relaxed(&meta->group), load_relaxed(&meta->limit_tag), &policy);
        assert_true(limit == NULL || cell_meta_kind(meta) == rule_kind(&limit->rule));
    }
}

/* Each log lies in the region, beside all others and beside the free blocks. */
static void expect_logs(struct process *process)
{
    const struct history_store *histories = &process->histories;
    const size_t count = histories->blocks.size / BUDDY_SMALLEST;
    bool *taken = calloc(count, sizeof(*taken));
    size_t used = 0;
    assert_non_null(taken);
    for (uint32_t at = 0; at < process->table.cell_count; at++) {
        const uint32_t block = histories->places[at].block;
        if (block == 0) {
            continue;
        }
        const struct history *history = history_store_get(process, at);
        size_t size = BUDDY_SMALLEST;
        while (size < history_size(history->capacity, history->group_capacity)) {
            size *= 2;
        }
        assert_true(cell_meta_is(&process->table.metas[at], CELL_HISTORY));
        assert_true(history->first <= history->end && history->end - history->first <= history->capacity);
        assert_true(history->group_first <= history->group_end && history->group_end <= history->group_capacity);
        for (uint64_t number = history->first; number < history->end; number++) {
            assert_in_range(*history_time((struct history *) (uintptr_t) history, number), 0, BARE_NOW_NS);
        }
        assert_int_equal((block - 1) % (size / BUDDY_SMALLEST), 0);
        for (size_t i = 0; i < size / BUDDY_SMALLEST; i++) {
            assert_in_range(block - 1 + i, 0, count - 1);
            assert_false(taken[block - 1 + i]);
            taken[block - 1 + i] = true;
        }
        used += size;
    }
    assert_int_equal(histories->shared->blocks.used, used);
    assert_int_equal(load_relaxed(&histories->shared->lock), 0);
    for (uint32_t block; (block = buddy_take((struct buddy *) (uintptr_t) &histories->blocks, 1)) != 0;
         used += BUDDY_SMALLEST) {
        assert_false(taken[block - 1]);
        taken[block - 1] = true;
    }
    assert_int_equal(used, histories->shared->blocks.present);
    free(taken);
}

static void expect_syncs(const struct process *process)
{
    const struct sync_states *syncs = &process->syncs;
    bool *has = calloc(syncs->count, sizeof(*has));
    assert_non_null(has);
    assert_in_range(syncs->shared->hand, 0, syncs->count - 1);
    for (uint32_t at = 0; at < process->table.cell_count; at++) {
        const struct sync_full *sync = sync_of(syncs, at);
        assert_in_range(compact_key(process, at).length, 0, KEY_NAME_SIZE);
        assert_true((load_relaxed(&syncs->compacts[at].residency) >> RESIDENCY_SHIFT) <=
                    load_relaxed(&syncs->shared->incarnations));
        if (sync != NULL) {
            assert_in_range(sync - syncs->pool, 0, syncs->count - 1);
            assert_int_equal(load_relaxed(&sync->cell), at);
            has[sync - syncs->pool] = true;
        }
    }
    for (uint32_t i = 0; i < syncs->count; i++) {
        assert_true(has[i] || syncs->all || load_relaxed(&syncs->pool[i].cell) == TABLE_NONE);
    }
    free(has);
}

static void expect_rest(struct process *process)
{
    struct process_shared *shared = process->shared;
    assert_int_equal(load_relaxed(&shared->oversized), 0);
    assert_int_equal(load_relaxed(&shared->evicted_reports.lock), 0);
    assert_int_equal(load_relaxed(&shared->evicted_reports.begun), load_relaxed(&shared->evicted_reports.ended));
    struct evicted_report report;
    size_t reports = 0;
    for (; evict_take_report(process, &report); reports++) {
        assert_in_range(report.key.length, 0, KEY_NAME_SIZE);
        assert_in_range(report.time_count, 0, EVICTED_TIMES);
    }
    assert_in_range(reports, 0, EVICTED_COUNT);
    expect_bitmap(&process->top_denied.denied, process->table.cell_count);
    static struct top_k list;
    weir_offender top[WEIR_TOP_OFFENDERS];
    for (weir_policy_id group = 0; group < 4; group++) {
        top_denied_read(process, group, &list);
        assert_in_range(list.used, 0, TOP_K_COUNT);
        (void) top_denied_list(&list, NULL, top, WEIR_TOP_OFFENDERS);
    }
    top_denied_step(process, MONOTONIC_NS);
    assert_in_range(process->top_denied.shared->next_ns, MONOTONIC_NS, MONOTONIC_NS + SECOND);
}

/* How many keys have what they had. */
static size_t expect_kept(const struct subject *s)
{
    size_t kept = 0;
    size_t keys = 0;
    for (uint32_t at = 0; at < s->process.table.cell_count; at++) {
        const struct cell *was = &s->cells[at];
        const struct cell *is = &s->process.table.cells[at];
        const struct state before = cell_state(dwcas_read(&was->state));
        const struct state after = cell_state(dwcas_read(&is->state));
        keys += load_relaxed(&was->hash) != 0;
        kept +=
            load_relaxed(&was->hash) != 0 && load_relaxed(&is->hash) == load_relaxed(&was->hash) &&
            before.a == after.a && before.b == after.b &&
            memcmp((const void *) &s->metas[at], (const void *) &s->process.table.metas[at], sizeof(*s->metas)) == 0;
    }
    return keys - kept;
}

static void test_what_is_not_damaged_stays_as_it_is(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < test_draws(10); round++) {
        static struct subject s;
        subject_open(&s, &rng, round % 2 != 0);
        const size_t used = s.process.histories.shared->blocks.used;
        const size_t dirty = s.process.fleet ? bitmap_count(&s.process.table.dirty) : 0;
        salvage(&s);
        assert_int_equal(expect_kept(&s), 0);
        assert_memory_equal(s.cells, s.process.table.cells, s.process.table.cell_count * sizeof(*s.cells));
        assert_int_equal(s.process.histories.shared->blocks.used, used);
        assert_int_equal(s.process.fleet ? bitmap_count(&s.process.table.dirty) : 0, dirty);
        salvage(&s); /* as where an opener dies, and another one begins anew */
        assert_int_equal(expect_kept(&s), 0);
        expect_cells(&s);
        expect_logs(&s.process);
        subject_close(&s);
    }
}

static void test_each_number_is_in_range_whatever_was_damaged(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    for (unsigned round = 0; round < test_draws(600); round++) {
        static struct subject s;
        const unsigned damages = 1U << random_below(&rng, 7);
        subject_open(&s, &rng, round % 2 != 0);
        for (unsigned i = 0; i < damages; i++) {
            damage_some(&s, &rng);
        }
        salvage(&s);
        /* One word of damage makes no more than the key that it is in lose something, and one that it names. */
        assert_in_range(expect_kept(&s), 0, 2 * damages);
        expect_guards(&s.process.table);
        expect_cells(&s);
        expect_logs(&s.process);
        if (s.process.fleet) {
            expect_syncs(&s.process);
            expect_bitmap(&s.process.table.dirty, s.process.table.cell_count);
            expect_bitmap(&s.process.table.urgent, s.process.table.cell_count);
            expect_bitmap(&s.process.table.deferred, s.process.table.cell_count);
        }
        expect_rest(&s.process);
        subject_close(&s);
    }
}

/* A hash that has no place in the sets of a cell and of the next six. */
static uint64_t hash_far_from(const struct table *table, size_t at, uint64_t *rng)
{
    const size_t last_set = (at + 6) / SET_CELLS;
    uint64_t hash;
    size_t nearest;
    do {
        hash = random_next(rng);
        nearest =
            min_u64(table_other_set(table, hash), min_u64(table_pair(table, hash), table_second_pair(table, hash)));
    } while (nearest / SET_CELLS <= last_set);
    return hash;
}

/* As a process leaves a cell that dies between two keys: it must not become empty. */
static void test_a_cell_between_two_keys_goes_to_nobody(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    static const uint32_t places[] = {0, 10};
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        struct process process;
        struct policy policy;
        const uint32_t first = places[i];
        bare_process_open(&process, 600, false);
        bare_policy_init(&policy, WEIR_FIXED_WINDOW, 100);
        struct policy_set *set = bare_set_of(&policy);
        const struct table *table = &process.table;
        const struct cell *cells = table->cells;
        /* Where no search looks for it, and units are held of it. */
        bare_occupy(&process, &policy, first, hash_far_from(table, first, &rng), (struct state){0, 5});
        (void) cell_hold(&process.table.cells[first], 50);
        bare_occupy(&process, &policy, first + 1, 78, (struct state){0, 5});
        store_relaxed(&process.table.cells[first + 1].hash, 0);  /* its key has just been evicted */
        assert_true(cell_lock(&process.table.cells[first + 2])); /* it is about to get its first key */
        /* By damage alone: it never had a key. */
        store_relaxed(&process.table.cells[first + 3].hash, hash_far_from(table, first, &rng));
        store_relaxed(&table->metas[first + 4].flags, 0xff);
        store_relaxed(&table->metas[first + 4].events, 0xff);
        /* Of a key that has just been evicted as well, whose numbers may be 0. */
        store_relaxed(&table->metas[first + 5].limit_tag, 9);
        store_relaxed(&table->metas[first + 6].group, 9);
        /* A key where it belongs, of the last policy that there can be. A thread was about to note its name. */
        const uint64_t hash = hash_far_from(table, first, &rng);
        const uint32_t own = (uint32_t) table_pair(table, hash);
        policy.group = WEIR_MAX_POLICIES;
        bare_occupy(&process, &policy, own, hash, (struct state){0, 5});
        cell_meta_record(&table->metas[own], EVENT_DENIED);
        struct denied_entry *entry = &process.top_denied.entries[own];
        store_relaxed(&entry->naming, NAMING_BEGUN);
        store_relaxed(&process.shared->news_ns, BARE_NOW_NS + 1);
        process_salvage(&process, set, BARE_NOW_NS, MONOTONIC_NS);
        process_salvage_held(&process);
        for (uint32_t at = first; at <= first + 6; at++) {
            if (at == first + 3 || at == first + 4) {
                assert_int_equal(load_relaxed(&cells[at].hash), 0);
                assert_int_equal(load_relaxed(&table->metas[at].flags) | load_relaxed(&table->metas[at].events), 0);
                assert_int_equal(load_relaxed(&table->metas[at].limit_tag) | load_relaxed(&table->metas[at].group), 0);
                continue;
            }
            assert_int_not_equal(load_relaxed(&cells[at].hash), 0);
            assert_int_equal(load_relaxed(&table->metas[at].group), 0);
            assert_int_equal(cell_state(dwcas_read(&cells[at].state)).b, 0);
            assert_int_equal(load_relaxed(&cells[at].held) & HELD_IN_USE, 0);
        }
        assert_int_equal(load_relaxed(&cells[own].hash), hash);
        assert_int_equal(load_relaxed(&table->metas[own].group), WEIR_MAX_POLICIES);
        assert_int_equal(load_relaxed(&entry->naming), NAMING_NONE);
        assert_int_equal(load_relaxed(&process.shared->news_ns), BARE_NOW_NS);
        free(set);
        process_close(&process);
    }
}

/* Keys of the first cell and of the last one have a name that a thread was about to note. */
static void test_a_name_that_was_begun_is_none_in_every_cell(void **state)
{
    (void) state;
    uint64_t rng = test_seed();
    struct process process;
    struct policy policy;
    bare_process_open(&process, 600, false);
    bare_policy_init(&policy, WEIR_FIXED_WINDOW, 100);
    struct policy_set *set = bare_set_of(&policy);
    const struct table *table = &process.table;
    const uint32_t cells[] = {0, (uint32_t) table->cell_count - 1};
    for (size_t i = 0; i < COUNT_OF(cells); i++) {
        uint64_t hash;
        do {
            hash = random_next(&rng);
        } while (table_pair(table, hash) != cells[i] / PAIR_CELLS * PAIR_CELLS);
        bare_occupy(&process, &policy, cells[i], hash, (struct state){0, 5});
        cell_meta_record(&table->metas[cells[i]], EVENT_DENIED);
        store_relaxed(&process.top_denied.entries[cells[i]].naming, NAMING_BEGUN);
    }
    process_salvage(&process, set, BARE_NOW_NS, MONOTONIC_NS);
    for (size_t i = 0; i < COUNT_OF(cells); i++) {
        assert_int_equal(load_relaxed(&process.top_denied.entries[cells[i]].naming), NAMING_NONE);
        assert_int_equal(load_relaxed(&table->metas[cells[i]].group), policy.group);
    }
    free(set);
    process_close(&process);
}

/* Reports of evicted keys that have not been sent: each is bounded, and more than there is room for are lost. */
static void test_reports_of_evicted_keys_are_bounded(void **state)
{
    (void) state;
    static const struct {
        uint64_t taken, put, left, lost;
    } rows[] = {{2, 5, 3, 0},
                {EVICTED_COUNT - 1, EVICTED_COUNT + 1, 2, 0},
                {3, 3 + EVICTED_COUNT, EVICTED_COUNT, 0},
                {3, 4 + EVICTED_COUNT, 0, 1},
                {5, 2, 0, 1}};
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct process process;
        struct policy policy;
        bare_process_open(&process, 600, true);
        bare_policy_init(&policy, WEIR_FIXED_WINDOW, 100);
        struct policy_set *set = bare_set_of(&policy);
        struct evicted_reports *reports = &process.shared->evicted_reports;
        for (size_t at = 0; at < EVICTED_COUNT; at++) {
            process.evicted_ring[at].key.length = 0xff;
            process.evicted_ring[at].time_count = UINT32_MAX;
        }
        reports->taken = rows[i].taken;
        reports->put = rows[i].put;
        store_relaxed(&reports->lock, 7);
        store_relaxed(&reports->begun, 9);
        store_relaxed(&process.shared->stalled, 7);
        store_relaxed(&process.shared->oversized, 7);
        store_relaxed(&process.shared->urgent, 7);
        process_salvage(&process, set, BARE_NOW_NS, MONOTONIC_NS);
        assert_int_equal(load_relaxed(&reports->lock) | load_relaxed(&reports->begun), 0);
        assert_int_equal(load_relaxed(&process.shared->stalled) | load_relaxed(&process.shared->oversized), 0);
        assert_int_equal(load_relaxed(&process.shared->urgent), 1); /* whatever the bits are */
        assert_int_equal(load_relaxed(&process.shared->lost_report_count), rows[i].lost);
        struct evicted_report report;
        uint64_t left = 0;
        for (; evict_take_report(&process, &report); left++) {
            assert_in_range(report.key.length, 0, KEY_NAME_SIZE);
            assert_in_range(report.time_count, 0, EVICTED_TIMES);
        }
        assert_int_equal(left, rows[i].left);
        free(set);
        process_close(&process);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_not_damaged_stays_as_it_is),
        cmocka_unit_test(test_each_number_is_in_range_whatever_was_damaged),
        cmocka_unit_test(test_a_cell_between_two_keys_goes_to_nobody),
        cmocka_unit_test(test_a_name_that_was_begun_is_none_in_every_cell),
        cmocka_unit_test(test_reports_of_evicted_keys_are_bounded),
    };
    return cmocka_run_group_tests_name("unit/process/process_salvage", tests, NULL, NULL);
}
