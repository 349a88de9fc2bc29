/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off: it would join the entries of the list. */
/*
 * Charging the keys of a request that no grant covers, all or none: windows and token buckets, one limit each. The
 * table takes some 2,000 instructions for such a key, as it pins, reserves, verifies and commits; this takes some 400.
 *
 * The keys go through four passes:
 *
 *   plan_policy  works out the policy's numbers, and prefetches the key's lines.
 *   plan_cell    finds the key's cell, and inserts a new key. A key with a slot that is worth a grant is given one that
 *                covers the cost, and is not charged here: a grant counts nothing.
 *   plan_swap    works out the swap that charges the cell. Where a key has no room nothing was done so far.
 *   swap_cells   swaps, in order.
 *
 * A swap fails where another thread has charged the cell since the plan. The swap is then planned anew. If the room is
 * gone by now, the charges before it are taken back. Meanwhile each cell but the last is held by a unit. So no other
 * thread is denied by a charge that is taken back (the denial rule of decide.c), and no such key is evicted.
 *
 * Ordering: [P1] of decide.c, [T3] of cell.h, [S1] in settle.c, [S4] in check.c. Progress: lock-free, but for the
 * insertion of a key, and for refunds.
 */
/* clang-format on */
#include "check/all_direct.h"

#include "base/numbers.h"
#include "check/check.h"
#include "check/direct_charge.h"
#include "check/refund.h"
#include "check/renew_grant.h"
#include "check/subject.h"
#include "process/insert.h"
#include "thread/slot.h"

/* How often a swap is planned. Each time another thread has charged the cell. */
#define SWAP_TRIES 4

/* A key on its way through the passes. */
struct direct_key {
    const weir_key *key;
    struct slot *slot; /* NULL: it has none */
    size_t index;      /* in the request */
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
    size_t count; /* of keys to charge: those in `charged` */
    struct direct_key *charged[WEIR_MAX_KEYS_AT_ONCE];
    struct direct_key keys[WEIR_MAX_KEYS_AT_ONCE];
};

/* Gives a slot to a key that comes a second time within the epoch, where there is one to be had. */
static struct slot *give_slot_if_recent(const struct direct_all *all, const struct direct_key *k)
{
    struct weir_thread *t = all->t;
    if (*recent_key(t, k->key->hash) != recent_fingerprint(k->key->hash, all->epoch)) {
        return NULL;
    }
    const size_t index = slot_give(t, k->policy, k->key, all->epoch, k->snapshot->now_ns);
    if (index == SLOT_NONE) {
        return NULL;
    }
    slot_account_unlock(&t->accounts[index]);
    return &t->slots[index];
}

/* Whether an earlier key of the request goes by the snapshot in this place of the cache. */
static bool is_in_use(const struct direct_all *all, const struct direct_key *k, const struct policy_snapshot *place)
{
    for (const struct direct_key *earlier = all->keys; earlier < k; earlier++) {
        if (earlier->snapshot == place) {
            return true;
        }
    }
    return false;
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
    if (!is_in_use(all, k, cached)) {
        policy_snapshot_keep(all->t, all->set, &k->own, all->epoch);
    }
    return policy_snapshot_is_plain(&k->own) ? &k->own : NULL;
}

/* Whether a key before this one has its cell: the key is named twice, or under two tiers. */
static bool is_cell_named_before(const struct direct_all *all, const struct direct_key *k)
{
    for (const struct direct_key *earlier = all->keys; earlier < k; earlier++) {
        if (earlier->hash == k->hash) {
            return true;
        }
    }
    return false;
}

/* False: the table must decide. */
static bool plan_policy(const struct direct_all *all, struct direct_key *k)
{
    k->policy = policy_set_by_id(all->set, k->key->policy);
    if (k->policy == NULL) {
        return false;
    }
    k->snapshot = find_snapshot(all, k);
    if (k->snapshot == NULL || !slot_meta_same_set(k->snapshot->meta, all->keys[0].snapshot->meta)) {
        return false;
    }
    k->hash = policy_snapshot_hash(k->snapshot, k->key);
    if (k->slot == NULL) {
        table_prefetch(&all->t->process->table, k->hash);
    }
    return !is_cell_named_before(all, k);
}

/* What becomes of a key with a slot. */
enum plan { PLAN_CHARGE, PLAN_COVERED, PLAN_TABLE };

/* A key that is used rarely is charged in the cell that its slot pins; another one is given a grant. */
static enum plan plan_slot(const struct direct_all *all, struct direct_key *k)
{
    struct weir_thread *t = all->t;
    const size_t index = (size_t) (k->slot - t->slots);
    const uint64_t wanted = slot_grant_size(t, index, all->epoch, units_asked(k->cost));
    if (wanted != 0 || !renew_is_idle(k->slot, &t->accounts[index], all->epoch)) {
        /* The cost is spent from the grant, once every key has room. */
        const struct check free_of_cost = {.t = t,
                                           .key = k->key,
                                           .cost = 0,
                                           .slot = k->slot,
                                           .epoch = all->epoch,
                                           .grant_wanted = max_u64(wanted, units_asked(k->cost))};
        return renew_grant_of(&free_of_cost, k->snapshot) >= units_asked(k->cost) ? PLAN_COVERED : PLAN_TABLE;
    }
    t->accounts[index].touched = all->epoch; /* no later key of the request is given this slot */
    k->cell = renew_pinned_cell(t, &t->accounts[index], k->hash);
    return k->cell != NULL ? PLAN_CHARGE : PLAN_TABLE;
}

/* Finds the cell of a key without a slot. False: the table has no room. */
static bool find_cell(const struct direct_all *all, struct direct_key *k)
{
    struct process *process = all->t->process;
    uint32_t cells[WEIR_MAX_LIMITS];
    cells[0] = table_find(&process->table, k->hash);
    if (cells[0] == TABLE_NONE && !insert_locate(process, k->policy, k->key, k->snapshot->now_ns, cells)) {
        return false;
    }
    k->cell = &process->table.cells[cells[0]];
    return true;
}

/* Adds a key to those that are charged, or gives it a grant. False: the table must decide. */
static bool plan_cell(struct direct_all *all, struct direct_key *k)
{
    k->slot = k->slot != NULL ? k->slot : give_slot_if_recent(all, k);
    if (k->slot != NULL) {
        const enum plan plan = plan_slot(all, k);
        if (plan != PLAN_CHARGE) {
            return plan == PLAN_COVERED;
        }
    } else if (!find_cell(all, k)) {
        return false;
    }
    all->charged[all->count++] = k;
    return true;
}

/* False: the charge needs more than one swap. */
static bool plan_swap(const struct direct_all *all, struct direct_key *k)
{
    return units_asked(k->cost) <= k->snapshot->limit_at.limit &&
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
    for (size_t i = 0; i < count; i++) {
        const struct direct_key *k = all->charged[i];
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
        struct direct_key *k = all->charged[swapped];
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
        (void) cell_hold(all->charged[i]->cell, (uint64_t) 0 - 1); /* I4: after it was charged */
    }
    return swapped == all->count;
}

/*
 * Whether the grants of the other keys are still there. The plans may have taken a while, for a lock of the table. A
 * grant that is taken back from here on is spent late, as by weir_check [S1].
 */
static bool are_covered(const struct direct_all *all, const struct slots_found *found)
{
    for (size_t i = 0; i < found->list->count; i++) {
        const struct slot *slot = found->slots[i];
        if (slot != NULL) {
            const uint64_t grant = load_relaxed(&slot->grant); /* [S1] grant before used */
            if (grant_epoch(grant) != all->epoch ||
                !grant_covers(grant, load_relaxed(&slot->used), found->list->costs[i])) {
                return false;
            }
        }
    }
    return true;
}

/* The verdict on the charged key with the least left. */
static void write_verdict(const struct direct_all *all, weir_verdict *verdict)
{
    *verdict = (weir_verdict){.remaining = UINT64_MAX};
    for (size_t i = 0; i < all->count; i++) {
        const struct direct_key *k = all->charged[i];
        weir_verdict one;
        direct_verdict(&one, all->t, k->snapshot, &k->plan.answer);
        if (one.remaining < verdict->remaining) {
            *verdict = one;
            verdict->key_index = (uint8_t) k->index;
        }
    }
}

/* Counts the checks, and remembers the keys: one that comes again in this epoch gets a slot, or a grant. */
static void count_charged(struct direct_all *all)
{
    struct weir_thread *t = all->t;
    for (size_t i = 0; i < all->count; i++) {
        const struct direct_key *k = all->charged[i];
        if (k->slot != NULL) {
            t->accounts[k->slot - t->slots].direct += units_asked(k->cost);
        } else {
            *recent_key(t, k->key->hash) = recent_fingerprint(k->key->hash, all->epoch);
        }
        counter_add(&t->tallies[k->policy->id].allowed, 1);
    }
    counter_add(&t->shared->slow_count, 1);
}

/* Plans all keys. False: the table must decide. */
static bool plan_all(struct direct_all *all, const struct slots_found *found, const struct cold_keys *cold)
{
    for (size_t i = 0; i < cold->count; i++) {
        struct direct_key *k = &all->keys[i];
        k->index = cold->indices[i];
        k->key = &found->list->keys[k->index];
        k->cost = found->list->costs[k->index];
        k->slot = found->slots[k->index];
        if (!plan_policy(all, k)) {
            return false;
        }
    }
    const bool one_set = cold->count != 0 && (found->any == NULL || slot_meta_same_set(load_relaxed(&found->any->meta),
                                                                                       all->keys[0].snapshot->meta));
    if (!one_set) {
        return false;
    }
    for (size_t i = 0; i < cold->count; i++) {
        if (!plan_cell(all, &all->keys[i])) {
            return false;
        }
    }
    for (size_t i = 0; i < all->count; i++) {
        if (!plan_swap(all, all->charged[i])) {
            return false;
        }
    }
    return true;
}

bool all_direct_charge(struct weir_thread *t, const struct slots_found *found, const struct cold_keys *cold,
                       weir_verdict *verdict)
{
    struct direct_all all;
    all.t = t;
    all.epoch = load_acquire(&t->line->epoch); /* [S4] before the policies */
    all.set = process_policies(t->process);    /* [S4] */
    all.count = 0;
    /* Acquire: pairs with override_set.h. Where keys have entries of their own the table looks for them. */
    if (all.epoch == EPOCH_ASLEEP || policy_set_overrides(all.set) != NULL || !plan_all(&all, found, cold)) {
        return false;
    }
    for (size_t i = 0; i < all.count; i++) {
        found->slots[all.charged[i]->index] = NULL; /* a key that was just given a slot is charged, too */
    }
    if (!are_covered(&all, found) || !swap_cells(&all)) {
        return false;
    }
    if (verdict != NULL) {
        write_verdict(&all, verdict);
    }
    count_charged(&all);
    return true;
}
