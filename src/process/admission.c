/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * New keys at the price of held ones.
 *
 * A flood brings keys that come once. Such a key takes an empty cell of its pairs, or the cell of an idle key there: one
 * that was not used for a minute and longer. If there is neither, only the usage of the new key is recorded. The record
 * goes to the row of the sketch in which the key would be looked for when it came back (evicted_sketch.h). The record is
 * that of a key that was inserted, charged and evicted at once. So the flood evicts no key that is used. A key of the
 * flood touches four cache lines: two pairs, the guard of a set, and a row.
 *
 * A key that comes again finds its fingerprint in the row. The key then gets the cell of another key (insert.c). This is
 * the doorkeeper of TinyLFU (Einziger, Friedman, Manes, ACM Transactions on Storage 13, 2017). A first access is a bit
 * in a filter, and only a second one competes for memory. Here the filter also counts what the first access used. A
 * record that has ended is no usage any more. Its fingerprint still tells that the key came before, until another record
 * takes the word.
 *
 * The general path inserts a key that has a record, and a key whose record would give way at once, as all records of the
 * row are greater. In a fleet the general path fills empty cells, as such a cell gets a sync state.
 *
 * Invariants: I1, I6 and I7 of table.h. Of a key that admission_charge() charges, either a cell has the charge or the
 * sketch.
 *
 * Ordering: [E3] of evicted_sketch.c: the row is read after the key was not found, under the lock of its set.
 *
 * Progress: the lock of the key's first set is held throughout; see table.h.
 */
/* clang-format on */
#include "process/admission.h"

#include "base/compiler.h"
#include "process/evict.h"
#include "process/insert.h"
#include "process/process.h"

/* Whether the key of a cell looks idle by a limit, which may be another key's. */
static inline bool looks_idle(const struct cell *cell, const struct limit_snapshot *limit_at)
{
    return limit_snapshot_idle(limit_at, load_relaxed(&cell->state.a)); /* a guess */
}

void admission_prefetch(const struct process *process, const struct limit_snapshot *limit_at, uint64_t hash,
                        const struct cell *pair)
{
    const struct table *table = &process->table;
    const bool full = table_pair_is_full(pair);
    sketch_prefetch(&process->sketch, hash);
    if (full) {
        prefetch_line(table_guard(table, hash));
    }
    if (full && load_relaxed(&table->shared->key_count) < table->max_keys) {
        insert_prefetch_moves(table, hash);
        return;
    }
    if (!full || looks_idle(&pair[0], limit_at) || looks_idle(&pair[1], limit_at)) {
        prefetch_line(&table->metas[pair - table->cells]);
    }
}

/* Whether the key is to get a cell at once: it needs no sync state, and has used no units before. */
static inline bool may_occupy(const struct process *process, const struct newcomer *new)
{
    return !process->fleet &&
           sketch_find(&process->sketch, new->hash, new->rule->limit, new->now_ns).units == 0; /* [E3] */
}

static inline void write_newcomer_meta(struct process *process, uint32_t at, const struct newcomer *new)
{
    cell_meta_write(&process->table.metas[at], new->limit_tag, new->group, cell_kind_flag(rule_kind(new->rule)));
}

static void write_newcomer(struct process *process, uint32_t at, const struct newcomer *new)
{
    top_denied_evict(process, at);
    write_newcomer_meta(process, at, new);
}

bool admission_fill(struct process *process, const struct newcomer *new, struct state *state)
{
    struct table *table = &process->table;
    const uint32_t at = table_place(table, new->hash).empty;
    struct usage usage;
    if (at == TABLE_NONE || new->cost - 1 >= new->limit_at->limit || !may_occupy(process, new) ||
        !table_lock_empty(table, at)) {
        return false;
    }
    *state = limit_snapshot_first(new->limit_at, new->cost, &usage);
    write_newcomer_meta(process, at, new);
    table_fill(table, at, new->hash, *state);
    cell_unlock(&table->cells[at]);
    return true;
}

/* Makes room by moving another key, and gives the cell to the key. */
static bool occupy_room(struct process *process, const struct newcomer *new, struct state state)
{
    /* Before a cell is locked: a cell that is locked is filled (I6). */
    const uint32_t at = may_occupy(process, new) ? insert_lock_room(process, new->hash, true) : TABLE_NONE;
    if (at == TABLE_NONE) {
        return false;
    }
    write_newcomer(process, at, new);
    table_occupy(&process->table, at, new->hash, state);
    cell_unlock(&process->table.cells[at]);
    return true;
}

/* Gives a locked cell, of which the key is idle, to the new key. */
static void replace_idle(struct process *process, uint32_t at, const struct newcomer *new, struct state state)
{
    struct table *table = &process->table;
    const uint64_t hash = load_relaxed(&table->cells[at].hash);
    const struct state before = cell_state(dwcas_read(&table->cells[at].state));
    const struct state last = table_replace(table, at, new->hash, state);
    if (last.a != before.a || last.b != before.b) { /* as in evict_cell() */
        evict_record_usage(process, at, new->rule, hash, last, new->now_ns);
    }
    write_newcomer(process, at, new);
    counter_add(&new->counts->idle_replaced, 1);
}

/* Whether the key of a cell is idle under the newcomer's limit. Of keys under other limits insert.c decides. */
static bool is_idle(const struct table *table, uint32_t at, const struct newcomer *new)
{
    const struct cell_meta *meta = &table->metas[at];
    return load_relaxed(&table->cells[at].hash) != 0 && looks_idle(&table->cells[at], new->limit_at) &&
           load_relaxed(&meta->limit_tag) == new->limit_tag &&load_relaxed(&meta->group) == new->group;
}

/* Gives a cell to the new key, if the cell's key is idle. */
static bool occupy_if_idle(struct process *process, uint32_t at, const struct newcomer *new, struct state state)
{
    const struct table *table = &process->table;
    struct cell *cell = &table->cells[at];
    if (!is_idle(table, at, new) || !may_occupy(process, new) || !cell_lock(cell)) {
        return false;
    }
    const bool occupies = is_idle(table, at, new);
    if (occupies) {
        replace_idle(process, at, new, state);
    }
    cell_unlock(cell);
    return occupies;
}

/* Gives the cell of an idle key to the new key. */
static bool occupy_idle(struct process *process, const struct newcomer *new, struct state state)
{
    const struct table *table = &process->table;
    const size_t pairs[2] = {table_second_pair(table, new->hash), table_pair(table, new->hash)};
    bool occupies = false;
    for (size_t i = 0; i < (size_t) 2 * PAIR_CELLS && !occupies; i++) {
        occupies = occupy_if_idle(process, (uint32_t) (pairs[i / PAIR_CELLS] + i % PAIR_CELLS), new, state);
    }
    return occupies;
}

/* Records the charge of a key that gets no cell. False: the key has come before, or there is no room for the record. */
static bool record_charge(struct process *process, const struct newcomer *new, struct usage usage)
{
    const enum sketch_priority priority =
        new->cost >= new->limit_at->limit - new->cost ? SKETCH_HALF : SKETCH_UNDER_HALF;
    switch (sketch_record_first(&process->sketch, new->hash, usage, priority, new->now_ns)) { /* [E3] */
    case SKETCH_NOT_RECORDED:
        return false;
    case SKETCH_DROPPED_OTHER:
        counter_add(&new->counts->records_dropped, 1);
        break;
    case SKETCH_RECORDED:
        break;
    }
    counter_add(&new->counts->recorded, 1);
    return true;
}

/* The cells of a key's pairs: how many are empty, and how many have a key that looks idle. */
struct look {
    unsigned empty, idle;
    bool found; /* the key is in the table */
};

static inline void look_at(const struct table *table, const struct newcomer *new, size_t at, struct look *look)
{
    const struct cell *cell = &table->cells[at];
    const uint64_t hash = load_acquire(&cell->hash); /* [T1] */
    look->found |= hash == new->hash;
    look->empty += hash == 0;
    look->idle += looks_idle(cell, new->limit_at);
}

static inline struct look look_at_pairs(const struct table *table, const struct newcomer *new)
{
    const size_t first = table_pair(table, new->hash);
    const size_t second = table_second_pair(table, new->hash);
    struct look look = {0, 0, false};
    look_at(table, new, first, &look);
    look_at(table, new, first + 1, &look);
    look_at(table, new, second, &look);
    look_at(table, new, second + 1, &look);
    look.found = look.found || table_find_far(table, new->hash) != TABLE_NONE;
    return look;
}

/* Charges a key whose first set is locked. */
static inline bool charge_locked(struct process *process, const struct newcomer *new, struct state state,
                                 struct usage usage)
{
    const struct table *table = &process->table;
    const struct look look = look_at_pairs(table, new);
    if (look.found) {
        return false;
    }
    if (new->cost == 0) { /* a key that uses nothing takes no room */
        return may_occupy(process, new);
    }
    if (look.empty != 0) { /* admission_fill() was tried */
        return false;
    }
    if (load_relaxed(&table->shared->key_count) < table->max_keys) {
        return occupy_room(process, new, state);
    }
    return (look.idle != 0 && occupy_idle(process, new, state)) || record_charge(process, new, usage);
}

bool admission_charge(struct process *process, const struct newcomer *new, struct state *state)
{
    struct table *table = &process->table;
    const size_t set = table_first_set(table, new->hash);
    struct usage usage;
    if (units_asked(new->cost) > new->limit_at->limit) {
        return false;
    }
    *state = limit_snapshot_first(new->limit_at, new->cost, &usage);
    if (!insert_lock_set(process, set)) {
        return false;
    }
    const bool done = charge_locked(process, new, *state, usage);
    table_unlock(table, set);
    return done;
}
