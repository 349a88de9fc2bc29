/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving a key a cell.
 *
 * A key that is new takes an empty cell of its first line, or of its second. When both are full a key in its first line
 * there makes room by moving to its own second one (one step of cuckoo hashing: Pagh and Rodler, Cuckoo Hashing, J.
 * Algorithms 51, 2004); when none of those can, the same is tried with both groups; so the table holds as many keys as
 * it was opened for. When none can, or there are as many already, another key is forgotten: one whose state equals a
 * fresh one, where there is one (nothing is lost), else the one with the smallest part of its limit used. Keys that a
 * thread holds units of are not forgotten. What a forgotten key had used goes into the sketch (evicted_sketch.c), and a
 * key that comes back begins with that. In a fleet these units are not this stay's own, to be reported: they count as
 * the others', until the fleet tells of as many (told.remembered).
 *
 * Progress: the first group's insertion lock is held throughout; see table.h.
 */
#include "process/insert.h"

#include "base/numbers.h"
#include "process/process.h"

/* Who lives in a claimed, vacant cell from now on. */
static void cell_meta_write(const struct process *process, struct cell_meta *meta, const struct policy *policy,
                            const struct policy_limit *limit)
{
    store_relaxed(&meta->group, (uint16_t) policy->group->id);
    store_relaxed(&meta->limit_tag, POLICY_LIMIT_TAG(limit->salt));
    store_relaxed(&meta->events, 0);
    store_relaxed(&meta->flags, (uint8_t) ((process->fleet && policy->scope == WEIR_SCOPE_FLEET ? CELL_SHARED : 0) |
                                           (rule_has_history(&limit->rule) ? CELL_HISTORY : 0) |
                                           (rule_is_bucket(&limit->rule) ? CELL_BUCKET : 0)));
}

/* Where a key may live: the first cells of its lines and of its groups. */
struct candidates {
    size_t lines[2], groups[2];
};

static struct candidates candidates_of(const struct table *table, uint64_t hash)
{
    return (struct candidates){{table_pair(table, hash), table_second_pair(table, hash)},
                               {table_first_set(table, hash) * SET_CELLS, table_other_set(table, hash)}};
}

/* Claims an empty one of some cells; TABLE_NONE: there is none. */
static uint32_t lock_empty(struct table *table, size_t first, size_t count)
{
    for (size_t at = first; at < first + count; at++) {
        struct cell *cell = &table->cells[at];
        if (load_relaxed(&cell->hash) == 0 && cell_lock(cell)) {
            if (load_relaxed(&cell->hash) == 0) {
                return (uint32_t) at;
            }
            cell_unlock(cell); /* it was given to another key in between */
        }
    }
    return TABLE_NONE;
}

/* Moves a key from one claimed cell to another, which is empty; the first is vacant then. */
static void move_key(struct process *process, uint32_t from, uint32_t to)
{
    struct table *table = &process->table;
    const uint64_t hash = load_relaxed(&table->cells[from].hash);
    const struct cell_meta *meta = &table->metas[from];
    struct cell_meta *here = &table->metas[to];
    cell_meta_copy(here, meta);
    if (process->fleet) {
        sync_move(process, from, to);
    }
    top_denied_move(process, from, to);
    table_occupy(table, to, hash, table_vacate(table, from));
    if (cell_meta_is(here, CELL_SHARED)) {
        table_set_dirty(table, to); /* an answer under way finds another key there, and this one is told again */
    }
    cell_unlock(&table->cells[to]);
}

/*
 * Claims one of some cells of a locked group, whose key is where it was to live first, and has room in its second line,
 * or (`far`) its other group; moves it there.
 */
static uint32_t lock_movable(struct process *process, size_t first, size_t count, bool far)
{
    struct table *table = &process->table;
    for (size_t from = first; from < first + count; from++) {
        struct cell *cell = &table->cells[from];
        const uint64_t hash = load_acquire(&cell->hash);
        const bool history = cell_meta_is(&table->metas[from], CELL_HISTORY); /* a guess, as yet */
        if (hash == 0 || history || table_first_set(table, hash) != from / SET_CELLS ||
            (load_relaxed(&cell->held) & HELD_IN_USE) != 0) {
            continue;
        }
        uint32_t to = lock_empty(table, table_second_pair(table, hash), PAIR_CELLS); /* I6: before any other */
        to = to != TABLE_NONE || !far ? to : lock_empty(table, table_other_set(table, hash), SET_CELLS);
        if (to == TABLE_NONE) {
            continue;
        }
        if (cell_lock(cell)) {
            if (load_relaxed(&cell->hash) == hash && !cell_meta_is(&table->metas[from], CELL_HISTORY)) {
                move_key(process, (uint32_t) from, to);
                return (uint32_t) from;
            }
            cell_unlock(cell);
        }
        cell_unlock(&table->cells[to]);
    }
    return TABLE_NONE;
}

/* The same of two places, of which the first one's group is locked. */
static uint32_t lock_moved(struct process *process, const size_t firsts[2], size_t count, bool far)
{
    uint32_t at = lock_movable(process, firsts[0], count, far);
    const size_t group = firsts[1] / SET_CELLS;
    /* Who holds the second's lock may wait for the first's. */
    if (at == TABLE_NONE && table_trylock(&process->table, group)) {
        at = lock_movable(process, firsts[1], count, far);
        table_unlock(&process->table, group);
    }
    return at;
}

/* Claims and empties the cell with the least to lose of two groups; TABLE_NONE: all are in use. */
static uint32_t lock_least(struct process *process, const struct policy_set *set, const size_t groups[2],
                           uint64_t now_ns)
{
    struct table *table = &process->table;
    for (unsigned attempt = 0; attempt < 2 * SET_CELLS; attempt++) {
        uint32_t best = TABLE_NONE;
        uint64_t best_worth = UINT64_MAX;
        for (size_t i = 0; i < 2 * (size_t) SET_CELLS && best_worth != 0; i++) {
            const uint32_t at = (uint32_t) (groups[i / SET_CELLS] + i % SET_CELLS);
            if ((load_relaxed(&table->cells[at].held) & HELD_IN_USE) != 0) {
                continue;
            }
            const uint64_t worth = evict_worth(process, set, at, now_ns);
            if (worth < best_worth) {
                best = at;
                best_worth = worth;
            }
        }
        if (best == TABLE_NONE) {
            return TABLE_NONE;
        }
        if (cell_lock(&table->cells[best])) {
            if (load_relaxed(&table->cells[best].hash) != 0) {
                evict_cell(process, set, best, now_ns);
            }
            return best;
        }
    }
    return TABLE_NONE;
}

/* Claims a cell for a key that has none, vacant or not; TABLE_NONE: there is none to be had. */
static uint32_t lock_any(struct process *process, const struct candidates *candidates, uint64_t now_ns)
{
    struct table *table = &process->table;
    /* In a table that is full to the last cell a search for one that can move reads sixteen groups in vain, for each
     * key of a flood. */
    const bool moves = load_relaxed(&table->key_count) < table->max_keys;
    for (unsigned far = 0; far < 2; far++) {
        const size_t *firsts = far != 0 ? candidates->groups : candidates->lines;
        const size_t count = far != 0 ? SET_CELLS : PAIR_CELLS;
        uint32_t at = lock_empty(table, firsts[0], count);
        at = at != TABLE_NONE ? at : lock_empty(table, firsts[1], count);
        at = at != TABLE_NONE || !moves ? at : lock_moved(process, firsts, count, far != 0);
        if (at != TABLE_NONE) {
            return at;
        }
    }
    /* Acquire: within the caller's RCU section; pairs with the publication in weir_set_policies. */
    return lock_least(process, load_acquire(&process->policies), candidates->groups, now_ns);
}

/* Gives a claimed cell to a key, and releases it. */
static void move_in(struct process *process, uint32_t at, const struct policy *policy, const struct policy_limit *limit,
                    const weir_key *key, uint64_t hash, uint64_t now_ns)
{
    struct table *table = &process->table;
    (void) table_vacate(table, at);
    top_denied_evict(process, at);
    if (process->fleet) {
        sync_clear(process, at);
    }
    cell_meta_write(process, &table->metas[at], policy, limit);
    const bool fleet = cell_meta_is(&table->metas[at], CELL_SHARED);
    if (process->fleet) {
        sync_begin(process, at, policy, key); /* of a process's key, too: a sweep looks at every stub */
    }
    const struct state first = evict_restore(process, &limit->rule, hash, at, now_ns);
    if (process->fleet) {
        sync_begin_full(process, at, &limit->rule, now_ns);
    }
    table_occupy(table, at, hash, first);
    history_store_resume(process, at, &limit->rule, now_ns);
    if (fleet && limit->rule.calendar != WEIR_CALENDAR_NONE) { /* it may have been used up elsewhere, or before */
        table_set_dirty(table, at);
        bitmap_set(&table->urgent, at);
        store_relaxed(&process->urgent, 1);
    }
    cell_unlock(&table->cells[at]);
}

/* Asks for all that a new key is looked for in, and that is looked at for who gives way, so that the misses overlap. */
static void prefetch(const struct process *process, const struct candidates *candidates, uint64_t hash)
{
    const struct table *table = &process->table;
    __builtin_prefetch(&table->locks[candidates->groups[0] / SET_CELLS], 1);
    __builtin_prefetch(&table->cells[candidates->lines[1]]);
    for (size_t i = 0; i < 2; i++) {
        const size_t first = candidates->groups[i];
        __builtin_prefetch(&table->metas[first]);
        for (size_t at = first; at < first + SET_CELLS; at += PAIR_CELLS) {
            __builtin_prefetch(&table->cells[at]);
        }
    }
    sketch_prefetch(&process->sketch, hash);
}

uint32_t insert_key(struct process *process, const struct policy *policy, size_t limit_index, const weir_key *key,
                    uint64_t now_ns)
{
    struct table *table = &process->table;
    const struct policy_limit *limit = &policy->limits[limit_index];
    const uint64_t hash = cell_hash(policy, key, limit_index);
    const struct candidates candidates = candidates_of(table, hash);
    const size_t group = table_first_set(table, hash);

    prefetch(process, &candidates, hash);
    table_lock(table, group);
    uint32_t at = table_find_all(table, hash);
    if (at == TABLE_NONE) {
        at = lock_any(process, &candidates, now_ns);
        if (at != TABLE_NONE) {
            move_in(process, at, policy, limit, key, hash, now_ns);
        }
    }
    table_unlock(table, group);
    return at;
}

bool insert_locate(struct process *process, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                   uint32_t cells[WEIR_MAX_LIMITS])
{
    for (size_t i = 0; i < policy->limit_count; i++) {
        cells[i] = table_find(&process->table, cell_hash(policy, key, i));
        if (cells[i] == TABLE_NONE) {
            cells[i] = insert_key(process, policy, i, key, now_ns);
            if (cells[i] == TABLE_NONE) {
                return false;
            }
        }
    }
    return true;
}

void insert_unpin(struct process *process, const struct policy *policy, const uint32_t cells[WEIR_MAX_LIMITS])
{
    for (size_t i = 0; i < policy->limit_count; i++) {
        cell_unpin(&process->table.cells[cells[i]]);
    }
}

/* Tries to pin cells that may have changed hands since they were found. */
static bool pin_located(struct process *process, const struct policy *policy, const weir_key *key,
                        const uint32_t cells[WEIR_MAX_LIMITS])
{
    for (size_t i = 0; i < policy->limit_count; i++) {
        if (!cell_pin(&process->table.cells[cells[i]], cell_hash(policy, key, i))) {
            while (i-- > 0) {
                cell_unpin(&process->table.cells[cells[i]]);
            }
            return false;
        }
    }
    return true;
}

bool insert_pin(struct process *process, const struct policy *policy, const weir_key *key, uint64_t now_ns,
                uint32_t cells[WEIR_MAX_LIMITS])
{
    /* A cell that was just found is lost only to a key that came in between. */
    while (insert_locate(process, policy, key, now_ns, cells)) {
        if (pin_located(process, policy, key, cells)) {
            return true;
        }
    }
    return false;
}
