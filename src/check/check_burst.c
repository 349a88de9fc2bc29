/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_burst: many keys at once, their cache misses overlapped.
 *
 * A key that has no slot costs a miss for its cell, one for its note where other nodes use it too, and a locked
 * instruction, which begins when all loads before it are done, and before all that come after it. So keys go in passes,
 * each of which needs no more than what the one before it has asked for, and all locked instructions are in the last:
 *
 *   ask          chooses those that go the short way, and asks for the first line of each;
 *   look         finds those that are there, and asks for the second lines of the others;
 *   work out     what is to be swapped for what, first of those that were found; meanwhile the others' lines come;
 *   decide       swaps, in order.
 *
 * Where a key is cannot be predicted, so it is found out without branches.
 *
 * Until it is decided a key's cell may have changed: by another thread, or as the key came twice. Then the swap fails,
 * by the state's generation also where the cell has changed hands (I3), and the key is decided anew in its turn, as by
 * weir_check. What a key has in common with the others of its policy (the policy, the time, what window it is) is
 * worked out once for all.
 *
 * Progress: as weir_check.
 */
#include "base/numbers.h"
#include "base/rcu.h"
#include "check/check.h"
#include "check/direct_charge.h"
#include "process/insert.h"
#include "thread/limiter.h"
#include "thread/slot.h"

/*
 * Keys that are looked for ahead. Processors have 10 to 24 misses of one core under way (more with huge pages and the
 * second level's own), so more than two or three times that gain nothing, and must not push one another out of 32 KiB.
 */
#define AHEAD 32

/* Policies of a burst that are remembered. */
#define POLICIES 4

/* A key on its way. */
struct ahead {
    _Alignas(CACHE_LINE) uint64_t hash; /* of its cell */
    struct cell *cell; /* its line; then where it was found; then where it is to be swapped; NULL: nowhere */
    struct policy_snapshot *snapshot; /* NULL: it is decided by itself */
    uint64_t cost;
    union {
        struct direct_swap swap;
        struct cell *noted; /* where other nodes use the key too: its cell, perhaps; there is nothing to swap ahead */
    };
};

_Static_assert(sizeof(struct ahead) == CACHE_LINE, "one line");

struct burst {
    struct weir_thread *t;
    struct table *table;
    const struct policy_set *set;
    uint32_t print;         /* of the epoch: recent_fingerprint */
    weir_policy_id last_id; /* of `last`; of no key: none yet */
    struct policy_snapshot *last;
    size_t direct_count;
    size_t found_count, missing_count;
    struct policy_snapshot snapshots[POLICIES];
    struct policy_snapshot none; /* of keys that do not go the short way: its limit is 0, and no cost below that */
    struct ahead ahead[AHEAD];
    /* Those in their first lines, and the others; in order. One more is written than there are. */
    struct ahead *found[AHEAD + 1], *missing[AHEAD + 1];
};

/* No policy's. */
#define NO_LAST UINT32_MAX

/* The policy of a key at this moment; `none`: the key does not go the short way, or there is no place for another. */
static __attribute__((noinline)) struct policy_snapshot *policy_slow(struct burst *b, const weir_key *key)
{
    const struct policy *policy = check_policy(b->set, key);
    struct policy_snapshot *snapshot = NULL;
    for (size_t i = 0; i < b->direct_count && snapshot == NULL; i++) {
        snapshot = b->snapshots[i].policy == policy ? &b->snapshots[i] : NULL;
    }
    if (snapshot == NULL && policy != NULL && b->direct_count < POLICIES) {
        snapshot = &b->snapshots[b->direct_count++];
        *snapshot = policy_snapshot_of(b->t->process, policy, tick_now(b->t, policy));
    }
    if (snapshot == NULL || !policy_snapshot_is_plain(snapshot)) {
        return &b->none;
    }
    /* Where keys have entries of their own, the next one of this policy may. Acquire: pairs with their publication. */
    if (load_acquire(&b->set->overrides) == NULL) {
        b->last_id = key->policy;
        b->last = snapshot;
    }
    return snapshot;
}

/* A key with a slot, or that does not go the short way: asks for what weir_check will look at. */
static __attribute__((noinline)) void prepare_alone(const struct burst *b, const weir_key *key)
{
    const struct weir_thread *t = b->t;
    const struct policy *policy = key->policy <= WEIR_MAX_POLICIES ? b->set->by_id[key->policy] : NULL;
    if (slot_may_have(t, key->hash)) {
        for (size_t way = 0; way < SLOT_WAYS; way++) {
            __builtin_prefetch(&t->slots[slot_set(t, key->hash) + way], 1);
        }
        return;
    }
    for (size_t limit = 0; policy != NULL && limit < policy->limit_count; limit++) {
        table_prefetch(b->table, cell_hash(policy, key, limit));
    }
}

/* Chooses those that go the short way (without a slot, and not given one now), and asks for their first lines. */
static void ask(struct burst *b, const weir_key *keys, const uint64_t *costs, size_t count)
{
    const struct weir_thread *t = b->t;
    const struct table *table = b->table;
    const uint32_t epoch_fingerprint = b->print;
    for (size_t i = 0; i < count; i++) {
        const weir_key *key = &keys[i];
        struct ahead *ahead = &b->ahead[i];
        uint32_t *seen = recent_key(t, key->hash);
        const uint32_t print = epoch_fingerprint ^ recent_fingerprint(key->hash, 0);
        struct policy_snapshot *snapshot = b->last;
        if (unlikely(key->policy != b->last_id)) {
            snapshot = policy_slow(b, key);
        }
        /* Of no units, and of more than there ever are, others tell. */
        if (unlikely(costs[i] - 1 >= snapshot->limit_at.limit || *seen == print || slot_may_have(t, key->hash))) {
            ahead->snapshot = NULL;
            ahead->cell = NULL;
            prepare_alone(b, key);
            continue;
        }
        *seen = print;
        ahead->snapshot = snapshot;
        ahead->cost = costs[i];
        ahead->hash = policy_snapshot_hash(snapshot, key);
        ahead->cell = &table->cells[table_pair(table, ahead->hash)];
        __builtin_prefetch(ahead->cell, 1);
    }
}

/* The cell of a line that is a hash's, if any is. */
static inline struct cell *in_line(struct cell *line, uint64_t hash)
{
    return line + (load_acquire(&line->hash) != hash); /* [T1] acquire */
}

/* Whether a key may be beyond a line that it is not in (I6). */
static inline bool line_full(const struct cell *line)
{
    return load_relaxed(&line[0].hash) != 0 && load_relaxed(&line[1].hash) != 0;
}

/* Finds those that are in their first lines, and asks for the others' second ones. */
static void look(struct burst *b, size_t count)
{
    size_t found = 0;
    size_t missing = 0;
    for (struct ahead *ahead = b->ahead; ahead < b->ahead + count; ahead++) {
        if (unlikely(ahead->cell == NULL)) {
            continue;
        }
        const struct cell *cell = in_line(ahead->cell, ahead->hash);
        const bool there = load_acquire(&cell->hash) == ahead->hash;
        b->found[found] = b->missing[missing] = ahead;
        found += there;
        missing += !there;
    }
    b->found_count = found;
    b->missing_count = missing;
    for (size_t i = 0; i < missing; i++) {
        struct ahead *ahead = b->missing[i];
        ahead->cell = line_full(ahead->cell) ? &b->table->cells[table_second_pair(b->table, ahead->hash)] : ahead->cell;
        __builtin_prefetch(ahead->cell, 1);
    }
}

/* What is to be swapped for what in the lines of so many keys; the cell NULL: that is for others to say. */
static void work_out(const struct burst *b, struct ahead *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct ahead *ahead = list[i];
        struct cell *cell = in_line(ahead->cell, ahead->hash);
        struct policy_snapshot *snapshot = ahead->snapshot;
        uint64_t held;
        if (unlikely(snapshot->fleet)) {
            __builtin_prefetch(&b->t->process->syncs.compacts[cell - b->table->cells]);
            ahead->noted = cell;
            ahead->cell = NULL;
        } else if (likely(direct_look(snapshot, cell, ahead->hash, ahead->cost, &ahead->swap, &held))) {
            ahead->cell = cell;
            snapshot->allowed++;
        } else {
            ahead->cell = NULL;
            if (load_relaxed(&cell->hash) != ahead->hash) {
                table_prefetch_far(b->table, ahead->hash); /* it is there, or new */
            }
        }
    }
}

/* What the short way has not counted. */
static __attribute__((noinline)) bool decide_long(struct burst *b, const struct ahead *ahead, const weir_key *key,
                                                  uint64_t cost)
{
    struct policy_snapshot *snapshot = ahead->snapshot;
    if (snapshot == NULL) {
        return check_one_of_burst(b->t, key, cost);
    }
    snapshot->allowed -= ahead->cell != NULL;
    struct direct_answer how;
    const bool found = snapshot->fleet && load_relaxed(&ahead->noted->hash) == ahead->hash;
    if (found ? direct_charge(b->t->process, snapshot, ahead->noted, ahead->hash, cost, &how)
              : direct_check(b->t, snapshot, key, cost, NULL)) {
        snapshot->allowed++;
        return true;
    }
    /* It may have been given a slot since it was chosen: when it came twice. */
    return slot_find(b->t, key->hash) != SLOT_NONE
               ? check_one_of_burst(b->t, key, cost)
               : check_without_slot(b->t, snapshot->policy, key, cost, snapshot->now_ns);
}

static uint64_t decide(struct burst *b, const weir_key *keys, const uint64_t *costs, size_t count)
{
    uint64_t denied = UINT64_MAX << count;
    for (size_t i = 0; i < count; i++) {
        struct ahead *ahead = &b->ahead[i];
        if (unlikely(ahead->cell == NULL || !dwcas_swap(&ahead->cell->state, &ahead->swap.from, ahead->swap.to))) {
            denied |= (uint64_t) !decide_long(b, ahead, &keys[i], costs[i]) << i;
        }
    }
    return ~denied;
}

/* Counts what went the short way. */
static void collect(struct burst *b)
{
    uint64_t count = 0;
    for (size_t i = 0; i < b->direct_count; i++) {
        counter_add(&b->t->tallies[b->snapshots[i].policy->id].allowed, b->snapshots[i].allowed);
        count += b->snapshots[i].allowed;
    }
    counter_add(&b->t->slow_count, count);
}

static void begin(struct burst *b, struct weir_thread *t)
{
    b->t = t;
    b->table = &t->process->table;
    b->none.limit_at.limit = 0;
    b->last_id = NO_LAST;
    b->last = &b->none; /* a key's policy may be that */
    b->direct_count = 0;
    b->print = recent_fingerprint(0, load_acquire(&t->line->epoch)); /* [S4] before the policies */
    b->set = load_acquire(&t->process->policies);
}

/* Up to AHEAD keys. */
static uint64_t check_part(struct weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count)
{
    struct burst b;
    rcu_enter(); /* once for all: it costs half a key */
    begin(&b, t);
    ask(&b, keys, costs, count);
    look(&b, count);
    work_out(&b, b.found, b.found_count);
    work_out(&b, b.missing, b.missing_count);
    const uint64_t bits = decide(&b, keys, costs, count);
    collect(&b);
    rcu_leave();
    return bits;
}

/* What keys cost that nothing is said of. */
#define ONES_4 1, 1, 1, 1
static const uint64_t ones[AHEAD] = {ONES_4, ONES_4, ONES_4, ONES_4, ONES_4, ONES_4, ONES_4, ONES_4};

size_t weir_check_burst(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count,
                        uint64_t *allowed_bits)
{
    size_t allowed = 0;
    uint64_t word = 0;
    if (t == NULL) {
        for (size_t first = 0; first < count && allowed_bits != NULL; first += 64) {
            allowed_bits[first / 64] = UINT64_MAX >> (64 - min_u64(count - first, 64));
        }
        return count;
    }
    for (size_t first = 0; first < count; first += AHEAD) {
        const size_t part = min_u64(count - first, AHEAD);
        const uint64_t *part_costs = costs != NULL ? costs + first : ones;
        const uint64_t bits =
            part > 1 ? check_part(t, keys + first, part_costs, part) : weir_check(t, &keys[first], *part_costs, NULL);
        allowed += (size_t) __builtin_popcountll(bits);
        word |= bits << (first % 64);
        if (first % 64 + AHEAD == 64 || first + part == count) {
            if (allowed_bits != NULL) {
                allowed_bits[first / 64] = word;
            }
            word = 0;
        }
    }
    return allowed;
}
