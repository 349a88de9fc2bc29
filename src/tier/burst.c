/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_burst: many keys at once, their cache misses overlapped.
 *
 * A key that has no slot costs a miss for its cell, one for its note where other nodes use it too, and a locked
 * instruction, behind which the processor does not look for the next key's misses. So before any key is decided its
 * cell is looked for, in passes over all keys, each of which needs no more than what the one before it has asked for:
 * the line a key is most probably in; where it is not there, the rest of its group; then its second group. The last
 * pass decides every key in order, as by weir_check: a key that comes twice finds what its first coming has left.
 *
 * What was found may have changed hands since: the decision looks again (I3). What a key has in common with the others
 * of its policy (the policy, the time, what window it is) is worked out once for all.
 *
 * Progress: as weir_check.
 */
#include "base/numbers.h"
#include "base/rcu.h"
#include "tier/cold.h"
#include "tier/slot.h"
#include "tier/tier.h"

#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/*
 * Keys that are looked for ahead. Processors have 10 to 16 misses of one core under way (more with huge pages and the
 * second level's own), so more than two or three times that gain nothing, and must not push one another out of 32 KiB.
 */
#define AHEAD 32

/* Policies of a burst that are remembered. */
#define POLICIES 4

/* A key on its way. */
struct ahead {
    struct cell *cell; /* where it was found last; before, its home line; NULL: nowhere */
    uint64_t hash;     /* of its cell */
    struct cold *cold; /* NULL: it is decided by itself */
};

struct burst {
    struct weir_thread *t;
    struct table *table;
    const struct policy_set *set;
    uint32_t print;         /* of the epoch: slot_print */
    weir_policy_id last_id; /* of `last`; of no key: none yet */
    struct cold *last;
    size_t cold_count;
    struct cold colds[POLICIES];
    struct ahead ahead[AHEAD];
    uint8_t missing[AHEAD]; /* of `ahead`: not in the lines looked at so far */
    size_t missing_count;
};

/* No policy's. A key of it is decided by itself, as `last` is NULL then. */
#define NO_LAST UINT32_MAX

/* The policy of a key at this moment; NULL: the key does not go the short way, or there is no place for its policy. */
static __attribute__((noinline)) struct cold *policy_slow(struct burst *b, const weir_key *key)
{
    const struct policy *policy = thread_policy(b->set, key);
    struct cold *cold = NULL;
    for (size_t i = 0; i < b->cold_count && cold == NULL; i++) {
        cold = b->colds[i].policy == policy ? &b->colds[i] : NULL;
    }
    if (cold == NULL && policy != NULL && b->cold_count < POLICIES) {
        cold = &b->colds[b->cold_count++];
        *cold = cold_of(b->t->tier, policy, tick_now(b->t, policy));
    }
    if (cold == NULL || !cold_is_short(cold)) {
        return NULL;
    }
    /* Where keys have entries of their own, the next one of this policy may. Acquire: pairs with their publication. */
    if (load_acquire(&b->set->overrides) == NULL) {
        b->last_id = key->policy;
        b->last = cold;
    }
    return cold;
}

/* A key with a slot, or that does not go the short way: asks for what weir_check will look at. */
static __attribute__((noinline)) void prepare_alone(const struct burst *b, const weir_key *key)
{
    const struct weir_thread *t = b->t;
    const struct policy *policy = key->policy <= WEIR_MAX_POLICIES ? b->set->by_id[key->policy] : NULL;
    if (slot_maybe(t, key->hash)) {
        for (size_t way = 0; way < SLOT_WAYS; way++) {
            __builtin_prefetch(&t->slots[slot_set(t, key->hash) + way], 1);
        }
        return;
    }
    for (size_t limit = 0; policy != NULL && limit < policy->limit_count; limit++) {
        table_prefetch(b->table, cell_hash(policy, key, limit));
    }
}

/* Chooses those that go the short way (without a slot, and not given one now), and asks for their home lines. */
static void ask_for_homes(struct burst *b, const weir_key *keys, const uint64_t *costs, size_t count)
{
    const struct weir_thread *t = b->t;
    const struct table *table = b->table;
    const uint32_t epoch_print = b->print;
    for (size_t i = 0; i < count; i++) {
        const weir_key *key = &keys[i];
        struct ahead *ahead = &b->ahead[i];
        uint32_t *seen = slot_seen(t, key->hash);
        const uint32_t print = epoch_print ^ slot_print(key->hash, 0);
        struct cold *cold = likely(key->policy == b->last_id) ? b->last : policy_slow(b, key);
        if (unlikely(cold == NULL || costs[i] == 0 || *seen == print || slot_maybe(t, key->hash))) {
            ahead->cold = NULL;
            prepare_alone(b, key);
            continue;
        }
        *seen = print;
        ahead->cold = cold;
        ahead->hash = cold_hash(cold, key);
        ahead->cell = &table->cells[table_home(table, ahead->hash)];
        __builtin_prefetch(ahead->cell, 1);
    }
}

/* Asks for what the fleet has told of a key, where there is one. */
static inline void ask_for_note(const struct burst *b, const struct ahead *ahead)
{
    if (ahead->cold->fleet) {
        __builtin_prefetch(&b->t->tier->notes.stubs[ahead->cell - b->table->cells]);
    }
}

/* Finds those that are in their home lines, and asks for the rest of the others' groups. */
static void look_at_homes(struct burst *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct ahead *ahead = &b->ahead[i];
        if (ahead->cold == NULL) {
            continue;
        }
        /* [T1] acquire. Without a branch: it would be mispredicted half of the time. */
        struct cell *cell = ahead->cell + (load_acquire(&ahead->cell->hash) != ahead->hash);
        if (load_acquire(&cell->hash) == ahead->hash) {
            ahead->cell = cell;
            ask_for_note(b, ahead);
            continue;
        }
        table_prefetch_rest(b->table, (size_t) (ahead->cell - b->table->cells));
        b->missing[b->missing_count++] = (uint8_t) i;
    }
}

/*
 * The cell of a hash in one group, or NULL; *full: the group holds no empty cell. All of it is looked at without a
 * branch: where the hash is cannot be predicted.
 */
static inline struct cell *find_in_group(const struct table *table, size_t group, uint64_t hash, bool *full)
{
    struct cell *cells = &table->cells[group * GROUP_CELLS];
    struct cell *found = NULL;
    bool all = true;
    for (size_t i = 0; i < GROUP_CELLS; i++) {
        const uint64_t there = load_acquire(&cells[i].hash); /* [T1] */
        found = there == hash ? &cells[i] : found;
        all = all & (there != 0);
    }
    *full = all;
    return found;
}

/* Finds those that are in their groups, and asks for the second ones. */
static void look_in_groups(struct burst *b)
{
    for (size_t i = 0; i < b->missing_count; i++) {
        struct ahead *ahead = &b->ahead[b->missing[i]];
        bool full = false;
        ahead->cell = find_in_group(b->table, table_group(b->table, ahead->hash), ahead->hash, &full);
        if (ahead->cell != NULL) {
            ask_for_note(b, ahead);
            continue;
        }
        const size_t second = full ? table_second_group(b->table, ahead->hash) * GROUP_CELLS : 0;
        for (size_t cell = 0; cell < GROUP_CELLS && full; cell += LINE_CELLS) {
            __builtin_prefetch(&b->table->cells[second + cell], 1);
        }
    }
}

/* The cell of a key that is not in its first group; NULL: nor in its second. */
static __attribute__((noinline)) struct cell *find_in_second(const struct burst *b, uint64_t hash)
{
    bool full = false;
    return find_in_group(b->table, table_second_group(b->table, hash), hash, &full);
}

/* What the short way has not counted. */
static __attribute__((noinline)) bool decide_long(struct burst *b, const struct cold *cold, const weir_key *key,
                                                  uint64_t cost)
{
    /* It may have been given a slot since it was chosen: when it came twice. */
    return slot_find(b->t, key->hash) != SLOT_NONE ? thread_check_within(b->t, key, cost)
                                                   : thread_check_cold(b->t, cold->policy, key, cost, cold->now_ns);
}

static uint64_t decide(struct burst *b, const weir_key *keys, const uint64_t *costs, size_t count)
{
    struct tier *tier = b->t->tier;
    uint64_t denied = 0;
    for (size_t i = 0; i < count; i++) {
        const struct ahead *ahead = &b->ahead[i];
        struct cold *cold = ahead->cold;
        if (unlikely(cold == NULL)) {
            denied |= (uint64_t) !thread_check_within(b->t, &keys[i], costs[i]) << i;
            continue;
        }
        struct cell *cell = likely(ahead->cell != NULL) ? ahead->cell : find_in_second(b, ahead->hash);
        if (likely(cell != NULL && cold_charge(tier, cold, cell, ahead->hash, costs[i], NULL))) {
            cold->allowed++;
        } else {
            denied |= (uint64_t) !decide_long(b, cold, &keys[i], costs[i]) << i;
        }
    }
    return ~denied & (UINT64_MAX >> (64 - count));
}

/* Counts what went the short way. */
static void collect(struct burst *b)
{
    uint64_t count = 0;
    for (size_t i = 0; i < b->cold_count; i++) {
        counter_add(&b->t->tallies[b->colds[i].policy->id].allowed, b->colds[i].allowed);
        count += b->colds[i].allowed;
    }
    counter_add(&b->t->slow_count, count);
}

static void begin(struct burst *b, struct weir_thread *t)
{
    b->t = t;
    b->table = &t->tier->table;
    b->last_id = NO_LAST;
    b->last = NULL;
    b->cold_count = 0;
    b->missing_count = 0;
    b->print = slot_print(0, load_acquire(&t->line->epoch)); /* [S4] before the policies */
    b->set = load_acquire(&t->tier->policies);
}

/* Up to AHEAD keys. */
static uint64_t check_part(struct weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count)
{
    struct burst b;
    rcu_enter(); /* once for all: it costs half a key */
    begin(&b, t);
    ask_for_homes(&b, keys, costs, count);
    look_at_homes(&b, count);
    look_in_groups(&b);
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
