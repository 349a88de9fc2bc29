/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving a key a cell.
 *
 * A new key takes an empty cell of its first pair, or of its second (I8 of table.h). When both are full, a key of the
 * first pair moves to its own second pair. This is one step of cuckoo hashing (Pagh and Rodler, Cuckoo Hashing, J.
 * Algorithms 51, 2004). When no such key can move, both sets are tried in the same way. So the table holds as many keys
 * as max_keys says.
 *
 * When no key can move, or the table holds that many keys already, another key is evicted (evict.c). A key whose state
 * equals a fresh one comes first, as nothing is lost; then the key with the smallest part of its limit used. Keys of
 * which a thread holds units are not evicted.
 *
 * A key that returns after it was evicted begins with the usage that the sketch kept (evicted_sketch.c). In a fleet
 * these units are not reported by this stay of the key. They count as remote units until the fleet reports as many
 * (sync_counts.restored).
 *
 * Progress: the lock of the key's first set is held throughout; see table.h.
 */
#include "process/insert.h"

#include "base/compiler.h"
#include "base/spin.h"
#include "process/evict.h"
#include "process/process.h"
#include "process/sync_pool.h"

/* A key to be inserted, and where it may live. */
struct insertion {
    const struct policy *policy;
    const struct policy_limit *limit;
    const weir_key *key;
    uint64_t hash, now_ns;
    size_t pairs[2], sets[2]; /* the first cell of each */
};

static struct insertion insertion_of(const struct table *table, const struct policy *policy, size_t limit_index,
                                     const weir_key *key, uint64_t now_ns)
{
    const uint64_t hash = cell_hash(policy, key, limit_index);
    return (struct insertion){.policy = policy,
                              .limit = &policy->limits[limit_index],
                              .key = key,
                              .hash = hash,
                              .now_ns = now_ns,
                              .pairs = {table_pair(table, hash), table_second_pair(table, hash)},
                              .sets = {table_first_set(table, hash) * SET_CELLS, table_other_set(table, hash)}};
}

static void write_meta(const struct process *process, struct cell_meta *meta, const struct insertion *new)
{
    const uint8_t shared = process_shares(process, new->policy) ? CELL_SHARED : 0;
    cell_meta_write(meta, POLICY_LIMIT_ID(new->limit->limit_hash), (uint16_t) new->policy->group,
                    shared | cell_kind_flag(rule_kind(&new->limit->rule)));
}

/* Locks an empty cell among `count`; TABLE_NONE: none is empty. */
static uint32_t lock_empty(struct table *table, size_t first, size_t count)
{
    for (size_t at = first; at < first + count; at++) {
        if (load_relaxed(&table->cells[at].hash) == 0 && table_lock_empty(table, (uint32_t) at)) {
            return (uint32_t) at;
        }
    }
    return TABLE_NONE;
}

/* Moves a key between two locked cells, of which the second is empty; then unlocks the second. The first is vacant. */
static void move_key(struct process *process, uint32_t from, uint32_t to)
{
    struct table *table = &process->table;
    const uint64_t hash = load_relaxed(&table->cells[from].hash);
    cell_meta_copy(&table->metas[to], &table->metas[from]);
    if (process->fleet) {
        sync_move(process, from, to);
    }
    top_denied_move(process, from, to);
    table_occupy(table, to, hash, table_vacate(table, from));
    if (cell_meta_is(&table->metas[to], CELL_SHARED)) {
        table_set_dirty(table, to); /* an answer under way will not find the key: it is reported again */
    }
    cell_unlock(&table->cells[to]);
}

/* An empty cell that a key can move to, locked: in its second pair, or (`far`) in its other set. */
static uint32_t lock_target(struct table *table, uint64_t hash, bool far)
{
    const uint32_t to = lock_empty(table, table_second_pair(table, hash), PAIR_CELLS); /* I6: before any other */
    return to != TABLE_NONE || !far ? to : lock_empty(table, table_other_set(table, hash), SET_CELLS);
}

/* Whether any of `count` cells is empty. */
static bool any_empty(const struct table *table, size_t first, size_t count)
{
    bool any = false;
    for (size_t at = first; at < first + count; at++) {
        any = any || load_relaxed(&table->cells[at].hash) == 0;
    }
    return any;
}

/* Whether lock_target() may find a cell. */
static bool may_have_target(const struct table *table, uint64_t hash, bool far)
{
    return any_empty(table, table_second_pair(table, hash), PAIR_CELLS) ||
           (far && any_empty(table, table_other_set(table, hash), SET_CELLS));
}

/* Locks a cell of a locked set after moving its key, which must be in its first set, elsewhere; TABLE_NONE: none. */
static uint32_t lock_movable(struct process *process, size_t first, size_t count, bool far)
{
    struct table *table = &process->table;
    for (size_t from = first; from < first + count; from++) {
        struct cell *cell = &table->cells[from];
        const uint64_t hash = load_acquire(&cell->hash);
        if (hash == 0 || table_first_set(table, hash) != from / SET_CELLS ||
            (load_relaxed(&cell->held) & HELD_IN_USE) != 0 || !may_have_target(table, hash, far) ||
            cell_meta_is(&table->metas[from], CELL_HISTORY) || /* a guess, until the cell is locked */
            !cell_lock(cell)) {
            continue;
        }
        /* The target is locked last, so that it is filled (I6). */
        const bool same = load_relaxed(&cell->hash) == hash && !cell_meta_is(&table->metas[from], CELL_HISTORY);
        const uint32_t to = same ? lock_target(table, hash, far) : TABLE_NONE;
        if (to != TABLE_NONE) {
            move_key(process, (uint32_t) from, to);
            return (uint32_t) from;
        }
        cell_unlock(cell);
    }
    return TABLE_NONE;
}

/* As lock_movable, in two places; the set of the first is locked. */
static uint32_t lock_movable_of_two(struct process *process, const size_t firsts[2], size_t count, bool far)
{
    uint32_t at = lock_movable(process, firsts[0], count, far);
    const size_t set = firsts[1] / SET_CELLS;
    /* Only tried: the thread that holds the second set's lock may wait for the first's. */
    if (at == TABLE_NONE && table_trylock(&process->table, set)) {
        at = lock_movable(process, firsts[1], count, far);
        table_unlock(&process->table, set);
    }
    return at;
}

/* A key to be evicted, and what is lost with it. */
struct victim {
    uint32_t at; /* TABLE_NONE: all cells are in use */
    uint64_t worth;
};

/* The key with the least to lose of two places of `count` cells each. */
static struct victim least_worth(const struct process *process, const struct policy_set *policies,
                                 const size_t firsts[2], size_t count, uint64_t now_ns)
{
    struct victim least = {TABLE_NONE, UINT64_MAX};
    for (size_t i = 0; i < 2 * count; i++) {
        const uint32_t at = (uint32_t) (firsts[i / count] + i % count);
        if ((load_relaxed(&process->table.cells[at].held) & HELD_IN_USE) != 0) {
            continue;
        }
        const uint64_t worth = evict_worth(process, policies, at, now_ns);
        if (worth < least.worth) {
            least = (struct victim){at, worth};
        }
    }
    return least;
}

/* Evicts a key for a new one and locks the cell; TABLE_NONE: all cells are in use. */
static uint32_t lock_evicted(struct process *process, const struct policy_set *policies, const struct insertion *new)
{
    struct table *table = &process->table;
    for (unsigned attempt = 0; attempt < 2 * SET_CELLS; attempt++) {
        struct victim victim = least_worth(process, policies, new->pairs, PAIR_CELLS, new->now_ns);
        if (victim.worth >= EVICT_WORTH_HALF) { /* or none */
            victim = least_worth(process, policies, new->sets, SET_CELLS, new->now_ns);
        }
        if (victim.at == TABLE_NONE) {
            return TABLE_NONE;
        }
        if (cell_lock(&table->cells[victim.at])) {
            if (load_relaxed(&table->cells[victim.at].hash) != 0) {
                evict_cell(process, policies, victim.at, new->now_ns);
            }
            return victim.at;
        }
    }
    return TABLE_NONE;
}

void insert_prefetch_moves(const struct table *table, uint64_t hash)
{
    const size_t pairs[2] = {table_pair(table, hash), table_second_pair(table, hash)};
    for (size_t i = 0; i < (size_t) 2 * PAIR_CELLS; i++) {
        const size_t from = pairs[i / PAIR_CELLS] + i % PAIR_CELLS;
        const uint64_t other = load_relaxed(&table->cells[from].hash); /* a guess */
        if (table_first_set(table, other) == from / SET_CELLS) {
            prefetch_line(&table->cells[table_second_pair(table, other)]);
            prefetch_line(&table->metas[from]);
        }
    }
}

uint32_t insert_lock_room(struct process *process, uint64_t hash, bool moves)
{
    struct table *table = &process->table;
    const size_t pairs[2] = {table_pair(table, hash), table_second_pair(table, hash)};
    const size_t sets[2] = {table_first_set(table, hash) * SET_CELLS, table_other_set(table, hash)};
    uint32_t at = moves ? lock_movable_of_two(process, pairs, PAIR_CELLS, false) : TABLE_NONE;
    at = at != TABLE_NONE ? at : lock_empty(table, sets[0], SET_CELLS);
    at = at != TABLE_NONE ? at : lock_empty(table, sets[1], SET_CELLS);
    return at != TABLE_NONE || !moves ? at : lock_movable_of_two(process, sets, SET_CELLS, true);
}

/* Locks a cell for a new key of which both pairs are full; it may not be vacant. TABLE_NONE: no cell is to be had. */
static uint32_t lock_any(struct process *process, const struct insertion *new)
{
    const struct table *table = &process->table;
    /* In a full table the search for a key that can move reads sixteen sets in vain, for each key of a flood. */
    const bool moves = load_relaxed(&table->shared->key_count) < table->max_keys;
    const uint32_t at = insert_lock_room(process, new->hash, moves);
    /* Acquire: within the caller's RCU section; pairs with the publication in weir_set_policies. */
    return at != TABLE_NONE ? at : lock_evicted(process, process_policies(process), new);
}

/* Gives a locked cell to a key, and unlocks it. */
static void occupy(struct process *process, uint32_t at, const struct insertion *new)
{
    struct table *table = &process->table;
    const struct rule *rule = &new->limit->rule;
    (void) table_vacate(table, at);
    top_denied_evict(process, at);
    if (process->fleet) {
        refund_ledger_clear(process, at);
    }
    write_meta(process, &table->metas[at], new);
    const bool shared = cell_meta_is(&table->metas[at], CELL_SHARED);
    bool restored;
    const struct state state = evict_restore(process, rule, new->hash, new->now_ns, &restored);
    if (process->fleet) { /* of a key that is not shared, too: sweeps read every cell */
        sync_begin(process, at, new->policy, rule, new->key, restored && shared ? &state : NULL, new->now_ns);
    }
    table_occupy(table, at, new->hash, state);
    history_store_resume(process, at, rule, new->now_ns);
    if (shared && rule->calendar != WEIR_CALENDAR_NONE) { /* the quota may be used up elsewhere, or before a restart */
        table_set_dirty(table, at);
        bitmap_set(&table->urgent, at);
        store_relaxed(&process->shared->urgent, 1);
    }
    cell_unlock(&table->cells[at]);
}

/*
 * Prefetches what a key needs that gets the empty cell; without one, the cells searched for the key and the candidates
 * for eviction, so that their cache misses overlap.
 */
static void prefetch(const struct process *process, const struct insertion *new, uint32_t empty)
{
    const struct table *table = &process->table;
    prefetch_line(table_guard(table, new->hash));
    sketch_prefetch(&process->sketch, new->hash);
    if (empty != TABLE_NONE) {
        prefetch_line(&table->metas[empty]);
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        const size_t first = new->sets[i];
        prefetch_line(&table->metas[first]);
        for (size_t at = first; at < first + SET_CELLS; at += PAIR_CELLS) {
            prefetch_line(&table->cells[at]);
        }
    }
}

/* Waits a moment for a lock. False: another process wants to be alone with the table, or the holder may have died. */
static bool wait_for_lock(struct process *process, unsigned waits)
{
    return process_wait(process, waits) && !process_is_halted(process);
}

bool insert_wait_for_set(struct process *process, size_t set)
{
    bool locked = false;
    for (unsigned waits = 0; !locked && wait_for_lock(process, waits); waits++) {
        locked = table_trylock(&process->table, set);
    }
    return locked;
}

/* The cell of a key whose first set is locked; or (*vacant) one that is locked for it, or TABLE_NONE. */
static uint32_t find_or_lock(struct process *process, const struct insertion *new, bool *vacant)
{
    struct table *table = &process->table;
    struct table_place place = table_place(table, new->hash);
    for (unsigned waits = 0; place.empty != TABLE_NONE; waits++) {
        if (table_lock_empty(table, place.empty)) {
            *vacant = true;
            return place.empty;
        }
        if (!wait_for_lock(process, waits)) { /* I8: the cell may be locked for this key */
            *vacant = true;
            return TABLE_NONE;
        }
        place = table_place(table, new->hash);
    }
    const uint32_t at = place.at != TABLE_NONE ? place.at : table_find_far(table, new->hash);
    *vacant = at == TABLE_NONE;
    return at != TABLE_NONE ? at : lock_any(process, new);
}

uint32_t insert_key(struct process *process, const struct policy *policy, size_t limit_index, const weir_key *key,
                    uint64_t now_ns)
{
    struct table *table = &process->table;
    const struct insertion new = insertion_of(table, policy, limit_index, key, now_ns);
    const size_t set = new.sets[0] / SET_CELLS;
    bool vacant;

    prefetch(process, &new, table_place(table, new.hash).empty);
    if (!insert_lock_set(process, set)) {
        return TABLE_NONE;
    }
    const uint32_t at = find_or_lock(process, &new, &vacant);
    if (vacant && at != TABLE_NONE) {
        occupy(process, at, &new);
    }
    table_unlock(table, set);
    return at;
}

/* The cell of a key under one limit; a missing one is inserted. TABLE_NONE: the table has no room. */
static uint32_t locate_one(struct process *process, const struct policy *policy, size_t limit_index,
                           const weir_key *key, uint64_t now_ns)
{
    const uint32_t at = table_find(&process->table, cell_hash(policy, key, limit_index));
    return at != TABLE_NONE ? at : insert_key(process, policy, limit_index, key, now_ns);
}

bool insert_locate(struct process *process, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                   uint32_t cells[WEIR_MAX_LIMITS])
{
    for (size_t i = 0; i < policy->limit_count; i++) {
        cells[i] = locate_one(process, policy, i, key, now_ns);
        if (cells[i] == TABLE_NONE) {
            return false;
        }
    }
    return true;
}

static void unpin_first(struct process *process, const uint32_t *cells, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        cell_unpin(&process->table.cells[cells[i]]);
    }
}

void insert_unpin(struct process *process, const struct policy *policy, const uint32_t cells[WEIR_MAX_LIMITS])
{
    unpin_first(process, cells, policy->limit_count);
}

/* As locate_one(), pinned. TABLE_NONE also where the cell may be locked by a dead process. */
static uint32_t pin_one(struct process *process, const struct policy *policy, size_t limit_index, const weir_key *key,
                        uint64_t now_ns)
{
    /* A cell that was just found is lost only to a key inserted in between. */
    for (unsigned waits = 0;; waits++) {
        const uint32_t at = locate_one(process, policy, limit_index, key, now_ns);
        if (at == TABLE_NONE || cell_pin(&process->table.cells[at], cell_hash(policy, key, limit_index))) {
            return at;
        }
        if (!wait_for_lock(process, waits)) {
            return TABLE_NONE;
        }
    }
}

/*
 * Each cell is pinned before the next limit's is looked for. In a full table a new key has the least to lose, so the
 * next limit's cell may be had by evicting the one before, if they share a set; and that one by evicting the next.
 */
bool insert_pin(struct process *process, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                uint32_t cells[WEIR_MAX_LIMITS])
{
    for (size_t i = 0; i < policy->limit_count; i++) {
        cells[i] = pin_one(process, policy, i, key, now_ns);
        if (cells[i] == TABLE_NONE) {
            unpin_first(process, cells, i);
            return false;
        }
    }
    return true;
}
