/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Charging the keys of a request that have no slot, all or none: windows and token buckets, one limit each. The table
 * takes some 2,000 instructions for such a key, as it pins, reserves, verifies and commits; this takes some 250.
 *
 * The keys go through four passes:
 *
 *   plan_policy   works out the policy's numbers, and prefetches the key's lines;
 *   plan_cell     finds the key's cell, and inserts a new key;
 *   plan_swap     works out the swap that charges the cell. Where a key has no room nothing was done so far;
 *   swap_cells      swaps, in order.
 *
 * A swap fails where another thread has charged the cell since the plan. The swap is then planned anew. If the room is
 * gone by now, the charges before it are taken back. Meanwhile each cell but the last is held by a unit. So no other
 * thread is denied by a charge that is taken back (the denial rule of decide.c), and no such key is evicted.
 *
 * Ordering: [P1] of decide.c, [T3] of cell.h, [S4] in check.c. Progress: lock-free, but for the insertion of a key, and
 * for refunds.
 */
#include "check/all_direct.h"

#include "check/direct_charge.h"
#include "check/refund.h"
#include "check/subject.h"
#include "process/insert.h"
#include "thread/slot.h"

/* How often a swap is planned. Each time another thread has charged the cell. */
#define SWAP_TRIES 4

/* A key on its way through the passes. */
struct direct_key {
    const weir_key *key;
    uint64_t cost, hash;
    const struct policy *policy;
    const struct policy_snapshot *snapshot;
    struct cell *cell;
    struct direct_plan plan;
    struct policy_snapshot own; /* where the thread has not cached the policy's */
};

/* A request on its way through the passes. */
struct direct_all {
    struct weir_thread *t;
    const struct policy_set *set;
    uint32_t epoch;
    size_t count;
    struct direct_key keys[WEIR_MAX_KEYS_AT_ONCE];
};

/* Whether a key without a slot is to get one: it comes a second time within the epoch, and a slot may be had. */
static bool wants_slot(const struct weir_thread *t, const weir_key *key, uint32_t epoch)
{
    return *recent_key(t, key->hash) == recent_fingerprint(key->hash, epoch) && *set_busy_epoch(t, key->hash) != epoch;
}

/* The policy's numbers, as the thread has cached them for this epoch, or worked out. NULL: the table must decide. */
static const struct policy_snapshot *find_snapshot(const struct direct_all *all, struct direct_key *k)
{
    const struct weir_thread *t = all->t;
    const struct policy_snapshot *cached = policy_snapshot_place(t, k->policy->id);
    if (cached->epoch == all->epoch && cached->id == k->policy->id) {
        return cached;
    }
    if (k->policy->fine_clock) {
        return NULL;
    }
    k->own = policy_snapshot_of(t->process, k->policy, load_relaxed(&t->line->now_ns));
    policy_snapshot_keep(all->t, all->set, &k->own, all->epoch);
    return policy_snapshot_is_plain(&k->own) ? &k->own : NULL;
}

/* False: the table must decide. */
static bool plan_policy(const struct direct_all *all, struct direct_key *k)
{
    k->policy = k->key->policy <= WEIR_MAX_POLICIES ? all->set->by_id[k->key->policy] : NULL;
    if (k->policy == NULL || k->cost == 0 || wants_slot(all->t, k->key, all->epoch)) {
        return false;
    }
    k->snapshot = find_snapshot(all, k);
    if (k->snapshot == NULL || !slot_meta_same_set(k->snapshot->meta, all->keys[0].snapshot->meta)) {
        return false;
    }
    k->hash = policy_snapshot_hash(k->snapshot, k->key);
    table_prefetch(&all->t->process->table, k->hash);
    return true;
}

/* False: the table has no room, or the key is named twice. */
static bool plan_cell(const struct direct_all *all, struct direct_key *k)
{
    struct process *process = all->t->process;
    uint32_t cells[WEIR_MAX_LIMITS];
    cells[0] = table_find(&process->table, k->hash);
    if (cells[0] == TABLE_NONE && !insert_locate(process, k->policy, k->key, k->snapshot->now_ns, cells)) {
        return false;
    }
    k->cell = &process->table.cells[cells[0]];
    for (const struct direct_key *earlier = all->keys; earlier < k; earlier++) {
        if (earlier->hash == k->hash) {
            return false;
        }
    }
    return true;
}

/* False: the charge needs more than one swap. */
static bool plan_swap(const struct direct_all *all, struct direct_key *k)
{
    return k->cost <= k->snapshot->limit_at.limit &&
           direct_plan_charge(all->t->process, k->snapshot, k->cell, k->hash, k->cost, &k->plan);
}

static bool swap_one(const struct direct_all *all, struct direct_key *k)
{
    for (unsigned tries = 0; tries < SWAP_TRIES; tries++) {
        if (direct_swap_cell(all->t->process, k->snapshot, k->cell, &k->plan.swap)) {
            return true;
        }
        if (!plan_swap(all, k)) {
            return false;
        }
    }
    return false;
}

/* Holds a unit of a cell beside what is charged. False: the cell has become another key's. */
static bool hold(const struct direct_key *k)
{
    const uint64_t before = cell_hold(k->cell, 1);
    /* As cell_pin(): a lock taken before is seen here, one tried later fails (I2). */
    if ((before & HELD_LOCKED) == 0 && load_acquire(&k->cell->hash) == k->hash) {
        return true;
    }
    (void) cell_hold(k->cell, (uint64_t) 0 - 1);
    return false;
}

/* Takes back what was charged to cells that are held. */
static void undo(const struct direct_all *all, size_t count)
{
    struct process *process = all->t->process;
    for (const struct direct_key *k = all->keys; k < all->keys + count; k++) {
        const uint32_t at = (uint32_t) (k->cell - process->table.cells);
        (void) refund_cell(process, at, &k->snapshot->rule, k->cost, k->snapshot->now_ns, REFUND_ALL);
        subject_set_dirty(process, k->policy, at);
    }
}

/* Swaps all cells or none. */
static bool swap_cells(struct direct_all *all)
{
    size_t held = 0;
    size_t swapped = 0;
    while (swapped < all->count) {
        struct direct_key *k = &all->keys[swapped];
        if (swapped + 1 < all->count) {
            if (!hold(k)) {
                break;
            }
            held++;
        }
        if (!swap_one(all, k)) {
            break;
        }
        swapped++;
    }
    if (swapped < all->count) {
        undo(all, swapped);
    }
    for (size_t i = 0; i < held; i++) {
        (void) cell_hold(all->keys[i].cell, (uint64_t) 0 - 1); /* I4: after it was charged */
    }
    return swapped == all->count;
}

/* The verdict on the key with the least left. */
static void write_verdict(const struct direct_all *all, const struct cold_keys *cold, weir_verdict *verdict)
{
    for (size_t i = 0; i < all->count; i++) {
        weir_verdict one;
        direct_verdict(&one, all->t, all->keys[i].snapshot, &all->keys[i].plan.answer);
        if (i == 0 || one.remaining < verdict->remaining) {
            *verdict = one;
            verdict->key_index = cold->indices[i];
        }
    }
}

/* Counts the checks, and remembers the keys: one that comes again in this epoch gets a slot. */
static void count_all(struct direct_all *all)
{
    struct weir_thread *t = all->t;
    for (size_t i = 0; i < all->count; i++) {
        const weir_key *key = all->keys[i].key;
        *recent_key(t, key->hash) = recent_fingerprint(key->hash, all->epoch);
        counter_add(&t->tallies[all->keys[i].policy->id].allowed, 1);
    }
    counter_add(&t->slow_count, 1);
}

bool all_direct_charge(struct weir_thread *t, const struct key_list *list, const struct cold_keys *cold,
                       const struct slot *slot, weir_verdict *verdict)
{
    struct direct_all all;
    all.t = t;
    all.epoch = load_acquire(&t->line->epoch);     /* [S4] before the policies */
    all.set = load_acquire(&t->process->policies); /* [S4] */
    all.count = cold->count;
    /* Acquire: pairs with override_set.h. Where keys have entries of their own the table looks for them. */
    if (all.epoch == EPOCH_ASLEEP || load_acquire(&all.set->overrides) != NULL) {
        return false;
    }
    for (size_t i = 0; i < all.count; i++) {
        all.keys[i].key = &list->keys[cold->indices[i]];
        all.keys[i].cost = list->costs[cold->indices[i]];
        if (!plan_policy(&all, &all.keys[i])) {
            return false;
        }
    }
    if (slot != NULL && !slot_meta_same_set(load_relaxed(&slot->meta), all.keys[0].snapshot->meta)) {
        return false;
    }
    for (size_t i = 0; i < all.count; i++) {
        if (!plan_cell(&all, &all.keys[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < all.count; i++) {
        if (!plan_swap(&all, &all.keys[i])) {
            return false;
        }
    }
    if (!swap_cells(&all)) {
        return false;
    }
    if (verdict != NULL) {
        write_verdict(&all, cold, verdict);
    }
    count_all(&all);
    return true;
}
