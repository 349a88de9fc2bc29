/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_burst: many keys at once, their cache misses overlapped; and weir_prefetch, for one key at a time.
 *
 * A key with a slot costs no miss: the first pass answers it, where its grant or its denial does. A key without a slot
 * costs a miss for its cell, one for its sync state where other nodes use it too, and a locked instruction. That begins
 * when all loads before it are done, and before all loads after it. So the keys go through four passes. Each pass needs
 * no more than what the pass before it has prefetched, and all locked instructions are in the last:
 *
 *   choose_direct   answers the keys whose slot does, chooses those to be charged directly, and prefetches the first
 *                   line of each;
 *   find_lines      finds the keys that are in their first lines, and prefetches the second lines of the others;
 *   prepare_swaps   works out each key's swap, first of the keys that were found, while the other lines come;
 *   swap_all        swaps, in order.
 *
 * Where a key is cannot be predicted, so it is found without branches.
 *
 * The answer of a slot depends on no other key: the units of its grant are its own. So an answer before its turn is the
 * answer in its turn, as long as no check of that slot is still to come from before it (`waiting`).
 *
 * Before its swap a cell may change: by another thread, or as the key came twice. Then the swap fails, by the state's
 * generation also where the cell has become another key's (I3), and the key is checked in its turn as by weir_check.
 * What the keys of a policy have in common is worked out once (policy_snapshot_of).
 *
 * Ordering: as direct_charge.h; [S4] in check.c. Progress: as weir_check.
 */
#include "check/check_burst.h"

#include "base/compiler.h"
#include "base/numbers.h"
#include "check/check.h"
#include "check/direct_charge.h"
#include "process/admission.h"
#include "process/sync_state.h"
#include "thread/misuse.h"
#include "thread/policy_snapshot.h"
#include "thread/rcu.h"
#include "thread/slot.h"

/*
 * Keys of one pass. A core has 10 to 24 misses under way, so more than two or three times as many keys gain nothing.
 * The lines of a pass must also stay in a first cache of 32 KiB.
 */
#define AHEAD 32

/* Policies of a burst whose snapshots are kept; keys of any more are checked one by one. */
#define POLICIES 4

/* Why no swap was worked out for a key: ABSENT_: it is in none of its pairs. */
enum absence { NOT_ABSENT, ABSENT_WITH_ROOM, ABSENT_WITHOUT_ROOM };

/* A key on its way through the passes. */
struct ahead {
    _Alignas(CACHE_LINE) uint64_t hash; /* of its cell */
    struct cell *cell;                  /* first its line; then where it was found; then the cell to swap; NULL: none */
    struct policy_snapshot *snapshot;   /* NULL: the key is checked by itself */
    uint64_t cost;
    union {
        struct direct_swap swap;
        enum absence absence; /* no swap was worked out */
        struct cell *shared;  /* where other nodes use the key too: probably its cell; no swap is worked out */
    };
};

_Static_assert(sizeof(struct ahead) == CACHE_LINE, "one line");

struct burst {
    struct weir_thread *t;
    struct table *table;
    const struct policy_set *set;
    uint32_t epoch;
    weir_policy_id last_id; /* of `last`; NO_LAST: none yet */
    struct policy_snapshot *last;
    size_t direct_count;
    size_t count; /* keys that no slot has answered */
    size_t found_count, missing_count;
    uint64_t filled_count; /* new keys that are not yet counted */
    uint64_t allowed;      /* a bit per key: its slot allowed it */
    uint64_t waiting;      /* a bit per hash modulo 64: a key with a slot was not answered by it */
    struct policy_snapshot snapshots[POLICIES];
    struct policy_snapshot none; /* of keys that are not charged directly: its limit is 0, below every cost */
    struct ahead ahead[AHEAD];
    uint8_t index[AHEAD]; /* of the burst's keys; by `ahead` */
    /* The keys in their first lines, and the others, in order. One entry more is written than there are keys. */
    struct ahead *found[AHEAD + 1], *missing[AHEAD + 1];
};

void burst_prefetch_cells(const struct weir_thread *t, const struct policy_set *set, const weir_key *key)
{
    const struct policy *policy = policy_set_by_id(set, key->policy);
    for (size_t limit = 0; policy != NULL && limit < policy->limit_count && !slot_may_have(t, key->hash); limit++) {
        table_prefetch(&t->process->table, cell_hash(policy, key, limit));
    }
}

/* The id of no policy. */
#define NO_LAST UINT32_MAX

/* The snapshot of a key's policy; `none`: the key is not charged directly, or there is no place for another policy. */
static __attribute__((noinline)) struct policy_snapshot *policy_slow(struct burst *b, const weir_key *key)
{
    const struct policy *policy = check_policy(b->t->process, b->set, key);
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
    /* Where keys have entries of their own, the next key of the policy may have one. Acquire: pairs with
     * override_set.h. */
    if (policy_set_overrides(b->set) == NULL) {
        b->last_id = key->policy;
        b->last = snapshot;
    }
    return snapshot;
}

/* Answers key `i` by its slot. False: the slot does not, or a check of the slot is still to come from before. */
static inline bool answer_by_slot(struct burst *b, const weir_key *key, uint64_t cost, size_t i)
{
    struct slot *slot;
    const uint64_t bit = UINT64_C(1) << (key->hash >> 32) % 64;
    enum slot_answer answer = SLOT_NO_ANSWER;
    if ((b->waiting & bit) == 0 && slot_get(b->t, key->hash, &slot)) {
        answer = slot_answer(b->t, slot, cost, NULL);
    }
    b->waiting |= answer == SLOT_NO_ANSWER ? bit : 0;
    b->allowed |= (uint64_t) (answer == SLOT_ALLOWED) << i;
    return answer != SLOT_NO_ANSWER;
}

/* Answers the keys whose slot does. Chooses those without a slot that get none now, and prefetches their first lines.
 */
static void choose_direct(struct burst *b, const weir_key *keys, const uint64_t *costs, size_t count)
{
    struct weir_thread *t = b->t;
    const struct table *table = b->table;
    for (size_t i = 0; i < count; i++) {
        const weir_key *key = &keys[i];
        const bool may_have_slot = slot_may_have(t, key->hash);
        if (may_have_slot && answer_by_slot(b, key, costs[i], i)) {
            continue;
        }
        struct ahead *ahead = &b->ahead[b->count];
        b->index[b->count++] = (uint8_t) i;
        struct policy_snapshot *snapshot = b->last;
        if (unlikely(key->policy != b->last_id)) {
            snapshot = policy_slow(b, key);
        }
        /* A cost above the limit is for decide_request(). */
        if (unlikely(units_asked(costs[i]) > snapshot->limit_at.limit || may_have_slot ||
                     slot_is_wanted(t, key->hash, b->epoch))) {
            ahead->snapshot = NULL;
            ahead->cell = NULL;
            burst_prefetch_cells(t, b->set, key);
            continue;
        }
        ahead->snapshot = snapshot;
        ahead->cost = costs[i];
        ahead->hash = policy_snapshot_hash(snapshot, key);
        ahead->cell = &table->cells[table_pair(table, ahead->hash)];
        prefetch_line(ahead->cell);
    }
}

/* The cell of a line that is a hash's, if either is. */
static inline struct cell *in_line(struct cell *line, uint64_t hash)
{
    return line + (load_acquire(&line->hash) != hash); /* [T1] acquire */
}

/* Finds the keys that are in their first lines, and prefetches the second lines of the others. */
static void find_lines(struct burst *b)
{
    size_t found = 0;
    size_t missing = 0;
    for (struct ahead *ahead = b->ahead; ahead < b->ahead + b->count; ahead++) {
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
        ahead->cell =
            table_pair_is_full(ahead->cell) ? &b->table->cells[table_second_pair(b->table, ahead->hash)] : ahead->cell;
        prefetch_line(ahead->cell);
    }
}

/* Works out the swaps of so many keys. cell NULL after that: there is none. */
static void prepare_swaps(const struct burst *b, struct ahead *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct ahead *ahead = list[i];
        const struct cell *line = ahead->cell;
        struct cell *cell = in_line(ahead->cell, ahead->hash);
        struct policy_snapshot *snapshot = ahead->snapshot;
        uint64_t held;
        if (unlikely(snapshot->fleet)) {
            prefetch_line(&b->t->process->syncs.compacts[cell - b->table->cells]);
            ahead->shared = cell;
            ahead->cell = NULL;
        } else if (likely(direct_look(snapshot, cell, ahead->hash, ahead->cost, &ahead->swap, &held))) {
            ahead->cell = cell;
            snapshot->allowed++;
        } else {
            ahead->cell = NULL;
            ahead->absence = NOT_ABSENT;
            if (load_relaxed(&cell->hash) != ahead->hash) {
                ahead->absence = table_pair_is_full(line) ? ABSENT_WITHOUT_ROOM : ABSENT_WITH_ROOM;
                admission_prefetch(b->t->process, &snapshot->limit_at, ahead->hash, line); /* the key is new, or far */
            }
        }
    }
}

/* Charges a key that was found in none of its pairs. False: nothing was done. */
static inline bool charge_absent(struct burst *b, const struct ahead *ahead, uint64_t cost)
{
    struct state state;
    const bool fills =
        ahead->absence == ABSENT_WITH_ROOM && direct_fill_new(b->t, ahead->snapshot, ahead->hash, cost, &state);
    b->filled_count += fills;
    return fills || direct_charge_new(b->t, ahead->snapshot, ahead->hash, cost, &state);
}

/* Checks a key that was not swapped. */
static __attribute__((noinline)) bool check_unswapped(struct burst *b, const struct ahead *ahead, const weir_key *key,
                                                      uint64_t cost)
{
    struct policy_snapshot *snapshot = ahead->snapshot;
    if (snapshot == NULL) {
        return check_one_of_burst(b->t, key, cost);
    }
    if (!snapshot->fleet && ahead->cell == NULL && ahead->absence != NOT_ABSENT && charge_absent(b, ahead, cost)) {
        snapshot->allowed++;
        return true;
    }
    snapshot->allowed -= ahead->cell != NULL;
    struct direct_answer how;
    const bool found = snapshot->fleet && load_relaxed(&ahead->shared->hash) == ahead->hash;
    if (found ? direct_charge(b->t->process, snapshot, ahead->shared, ahead->hash, cost, &how)
              : direct_check(b->t, snapshot, key, cost, NULL)) {
        snapshot->allowed++;
        return true;
    }
    /* A key that came twice may have been given a slot since it was chosen. */
    return slot_find(b->t, key->hash) != SLOT_NONE
               ? check_one_of_burst(b->t, key, cost)
               : check_without_slot(b->t, b->set, snapshot->policy, key, cost, snapshot->now_ns);
}

/* Swaps, or checks one by one. Returns a bit per key: it is allowed. */
static uint64_t swap_all(struct burst *b, const weir_key *keys, const uint64_t *costs)
{
    uint64_t allowed = b->allowed;
    for (size_t at = 0; at < b->count; at++) {
        struct ahead *ahead = &b->ahead[at];
        const size_t i = b->index[at];
        const bool swapped =
            likely(ahead->cell != NULL) && dwcas_swap(&ahead->cell->state, &ahead->swap.from, ahead->swap.to);
        allowed |= (uint64_t) (likely(swapped) || check_unswapped(b, ahead, &keys[i], costs[i])) << i;
    }
    return allowed;
}

/* Adds what was charged directly to the thread's counts. */
static void collect_counts(struct burst *b)
{
    uint64_t count = 0;
    for (size_t i = 0; i < b->direct_count; i++) {
        counter_add(&b->t->tallies[b->snapshots[i].policy->id].allowed, b->snapshots[i].allowed);
        count += b->snapshots[i].allowed;
    }
    counter_add(&b->t->shared->slow_count, count);
    if (b->filled_count != 0) {
        table_count_keys(b->table, b->filled_count);
    }
}

static void begin_burst(struct burst *b, struct weir_thread *t)
{
    b->t = t;
    b->table = &t->process->table;
    b->none.limit_at.limit = 0;
    b->last_id = NO_LAST;
    b->last = &b->none; /* a key may be of the policy NO_LAST */
    b->direct_count = 0;
    b->count = 0;
    b->filled_count = 0;
    b->allowed = 0;
    b->waiting = 0;
    b->epoch = load_acquire(&t->line->epoch); /* [S4] before the policies */
    b->set = process_policies(t->process);
}

/* Checks up to AHEAD keys. Returns a bit per key: it is allowed. */
static uint64_t check_part(struct weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count)
{
    struct burst b;
    rcu_enter(t); /* once for all keys: it costs half a key */
    begin_burst(&b, t);
    choose_direct(&b, keys, costs, count);
    find_lines(&b);
    prepare_swaps(&b, b.found, b.found_count);
    prepare_swaps(&b, b.missing, b.missing_count);
    const uint64_t bits = swap_all(&b, keys, costs);
    collect_counts(&b);
    rcu_leave(t);
    return bits;
}

/* The costs where the caller gives none. */
#define ONES_4 1, 1, 1, 1
static const uint64_t ones[AHEAD] = {ONES_4, ONES_4, ONES_4, ONES_4, ONES_4, ONES_4, ONES_4, ONES_4};

size_t weir_check_burst(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count,
                        uint64_t *allowed_bits)
{
    size_t allowed = 0;
    uint64_t word = 0;
    if (t == NULL || !misuse_begin(t, "weir_check_burst")) {
        for (size_t first = 0; first < count && allowed_bits != NULL; first += 64) {
            allowed_bits[first / 64] = UINT64_MAX >> (64 - min_u64(count - first, 64));
        }
        return count;
    }
    if (thread_may_stand_still(t)) {
        tick_look(t);
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

/* Slots stay in a second cache. A locked instruction keeps the loads behind it waiting, but no prefetches. */
void weir_prefetch(weir_thread *t, const weir_key *key)
{
    if (t == NULL || slot_may_have(t, key->hash)) {
        return;
    }
    /* A snapshot of an old epoch will do: the hashes of a policy's cells hardly ever change. */
    const struct policy_snapshot *snapshot = policy_snapshot_place(t, key->policy);
    if (likely(snapshot->epoch != 0 && snapshot->id == key->policy)) {
        table_prefetch(&t->process->table, policy_snapshot_hash(snapshot, key));
    } else {
        rcu_enter(t);
        burst_prefetch_cells(t, process_policies(t->process), key); /* a hint: the check loads it again */
        rcu_leave(t);
    }
}
