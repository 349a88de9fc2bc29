/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_all: several keys, all or nothing.
 *
 * A request tries these in order, until one answers:
 *
 *   granted   Every key has a slot with a grant that covers its cost. The request is one store per key. The grants are
 *             this thread's own, so no other thread can spend them between the test and the stores.
 *   denied    One slot has a denial of this epoch. With a verdict, all other keys must have a slot of this epoch as
 *             well: the verdict is of the key with the longest wait, as in the table. Without a verdict the other keys
 *             are not looked at. So a flood of keys behind one prefix that is over its limit touches no cell, and takes
 *             no room in the table.
 *   charged   No key has a denial. Those that no grant covers are charged directly, or given a grant (all_direct.c).
 *             Then the grants are spent, which cannot fail.
 *   table     All keys are claims of one request (all_table.c), and the slots learn from the answer.
 *
 * What is counted is what the table would count, with one exception: of a request that is denied without a verdict, a
 * key without a slot counts no denied units.
 *
 * Ordering: [S1] in settle.c. Progress: as weir_check.
 */
#include "check/check_all.h"
#include "check/all_direct.h"
#include "check/all_table.h"
#include "check/check.h"
#include "process/process.h"
#include "thread/misuse.h"
#include "thread/rcu.h"
#include "thread/slot.h"
#include "thread/tick.h"

/* The costs where the caller gives none. */
#define ONES_4 1, 1, 1, 1
static const uint64_t ones[] = {ONES_4, ONES_4, ONES_4, ONES_4};

_Static_assert(sizeof(ones) / sizeof(ones[0]) == WEIR_MAX_KEYS_AT_ONCE, "one for each key");

/* Whether one of the first `count` keys has this slot: a key is named twice. */
static inline bool has_slot(struct slot *const *slots, size_t count, const struct slot *slot)
{
    for (size_t i = 0; i < count; i++) {
        if (slots[i] == slot) {
            return true;
        }
    }
    return false;
}

/*
 * Finds the slots of the first keys that have a grant that covers their cost. Returns how many. A key that is named
 * twice ends them: its grant must cover both costs.
 */
static inline __attribute__((always_inline)) size_t find_granted(const struct weir_thread *t, const weir_key *keys,
                                                                 const uint64_t *costs, size_t count,
                                                                 struct slot **slots)
{
    const uint32_t epoch = load_relaxed(&t->line->epoch);
    for (size_t i = 0; i < count; i++) {
        struct slot *slot;
        if (!slot_get(t, keys[i].hash, &slot)) {
            return i;
        }
        const uint64_t grant = load_relaxed(&slot->grant); /* [S1] grant before used */
        if (grant_epoch(grant) != epoch || !grant_covers(grant, load_relaxed(&slot->used), costs[i])) {
            return i;
        }
        slots[i] = slot;
        /* Between the publication of a policy set and the epoch that follows it, grants of both sets have this epoch.
         * There are never more than two sets at a time. */
        if (!slot_meta_same_set(load_relaxed(&slot->meta), load_relaxed(&slots[0]->meta))) {
            return i;
        }
        if (has_slot(slots, i, slot)) {
            return i;
        }
    }
    return count;
}

/*
 * Spends the costs. The grants are this thread's own: one that is being taken back is spent late, as by weir_check
 * [S1]. `charged`: keys without a slot here were charged, and the verdict is of one of them so far. The verdict becomes
 * that of the key with the least left.
 */
static inline __attribute__((always_inline)) void spend_grants(const struct weir_thread *t, struct slot *const *slots,
                                                               const uint64_t *costs, size_t count, bool charged,
                                                               weir_verdict *verdict)
{
    const struct slot *least = charged ? NULL : slots[0];
    uint64_t least_left = UINT64_MAX;
    size_t key_index = WEIR_MAX_KEYS_AT_ONCE;
    if (charged && verdict != NULL) {
        least_left = verdict->remaining;
        key_index = verdict->key_index;
    }
    for (size_t i = 0; i < count; i++) {
        struct slot *slot = slots[i];
        if (charged && slot == NULL) {
            continue;
        }
        const uint64_t meta = load_relaxed(&slot->meta); /* the owner's own */
        const uint64_t used = slot_spend(t, slot, meta, load_relaxed(&slot->used), costs[i]);
        const uint64_t left = load_relaxed(&slot->remaining_base) - used;
        if (left < least_left || (charged && left == least_left && i < key_index)) {
            least = slot;
            least_left = left;
            key_index = i;
        }
    }
    if (verdict != NULL && (!charged || least != NULL)) {
        slot_verdict_allowed(verdict, t, least, load_relaxed(&least->meta), least_left);
        verdict->key_index = (uint8_t) key_index;
    }
}

/* A request of `count` keys passes: it counts for the policy of each key, and is one request (limiter/stats.c). */
static inline void count_more_keys(const struct weir_thread *t, size_t count)
{
    counter_add(&t->shared->more_keys, count - 1);
}

/* How a key stands, by its slot. */
enum standing {
    STANDING_UNKNOWN, /* the slot does not say */
    STANDING_NO_SLOT,
    STANDING_UNCOVERED, /* the slot has no grant that covers the cost, and no denial */
    STANDING_COVERED,   /* the slot's grant covers the cost */
    STANDING_HAD_ROOM,  /* the table had room for as much in this epoch */
    STANDING_DENIED,    /* or would be, in shadow mode */
};

/* Looks for the slot of key `i`. `exact`: a denial answers for its own cost alone, as its verdict does. */
static enum standing find_standing(const struct weir_thread *t, struct slots_found *found, size_t i, bool exact)
{
    const uint64_t cost = found->list->costs[i];
    const uint64_t asked = units_asked(cost);
    struct slot *slot;
    found->slots[i] = NULL;
    if (!slot_get(t, found->list->keys[i].hash, &slot)) {
        return STANDING_NO_SLOT;
    }
    found->slots[i] = slot;
    const uint64_t grant = load_relaxed(&slot->grant); /* [S1] grant before used */
    const uint64_t word = load_relaxed(&slot->meta);   /* the owner's own */
    if (has_slot(found->slots, i, slot)) {
        return STANDING_UNKNOWN;
    }
    if (grant_epoch(grant) != load_relaxed(&t->line->epoch)) {
        return STANDING_UNCOVERED;
    }
    found->any = found->any != NULL ? found->any : slot;
    /* Where a policy set was just published there may be grants of two. */
    if (!slot_meta_same_set(word, load_relaxed(&found->any->meta))) {
        return STANDING_UNKNOWN;
    }
    if (grant_covers(grant, load_relaxed(&slot->used), cost)) {
        return STANDING_COVERED;
    }
    const struct slot_meta meta = slot_meta_unpack(word);
    if (meta.had_room) {
        return asked <= load_relaxed(&slot->room) ? STANDING_HAD_ROOM : STANDING_UNKNOWN;
    }
    if (meta.denies_from == 0) {
        return STANDING_UNCOVERED;
    }
    return asked == meta.denies_from || (asked > meta.denies_from && !exact) ? STANDING_DENIED : STANDING_UNKNOWN;
}

/*
 * Denies a request by the slot of key `denied_by`, whose denial is the one with the longest wait. The denial counts for
 * that key's policy. Units of any key that had no room are demand, but for those that can never pass.
 */
static void deny(struct weir_thread *t, const struct slots_found *found, uint8_t denied_by, weir_verdict *verdict)
{
    const struct slot *decided = found->slots[denied_by];
    const uint64_t word = load_relaxed(&decided->meta);
    for (size_t i = 0; i < found->list->count; i++) {
        struct slot *slot = found->slots[i];
        const uint64_t units = slot != NULL ? slot_meta_unpack(load_relaxed(&slot->meta)).denies_from : 0;
        if (units != 0) {
            counter_add(&slot->denied, slot->retry_ns == UINT64_MAX ? 0 : units);
        }
    }
    counter_add(&slot_tally(t, word)->denied, 1);
    if (verdict != NULL) {
        const uint64_t remaining = t->accounts[decided - t->slots].denied_remaining;
        slot_verdict_denied(verdict, t->line, decided, word, false, remaining, false);
        verdict->key_index = denied_by;
    }
}

/* Charges the keys that no grant covers, and spends the grants of the others. False: nothing was counted. */
static bool charge(struct weir_thread *t, const struct slots_found *found, const struct cold_keys *cold,
                   weir_verdict *verdict)
{
    rcu_enter(t);
    const bool charged = all_direct_charge(t, found, cold, verdict);
    rcu_leave(t);
    if (charged) {
        spend_grants(t, found->slots, found->list->costs, found->list->count, true, verdict);
    }
    return charged;
}

/* SLOT_NO_ANSWER: nothing was counted. SLOT_DENIED: *denied_by is the key that denies. */
static enum slot_answer check_slots(struct weir_thread *t, struct slots_found *found, weir_verdict *verdict,
                                    uint8_t *denied_by)
{
    struct cold_keys cold;
    size_t denied = SIZE_MAX;
    bool may_pass = true;
    cold.count = 0;
    found->any = found->granted != 0 ? found->slots[0] : NULL;
    for (size_t i = found->granted; i < found->list->count; i++) {
        const struct slot *slot;
        switch (find_standing(t, found, i, verdict != NULL)) {
        case STANDING_UNKNOWN:
            return SLOT_NO_ANSWER;
        case STANDING_NO_SLOT:
        case STANDING_UNCOVERED:
            cold.indices[cold.count++] = (uint8_t) i;
            break;
        case STANDING_COVERED:
            break;
        case STANDING_HAD_ROOM:
            may_pass = false;
            break;
        case STANDING_DENIED:
            slot = found->slots[i];
            may_pass = false;
            if (!slot_meta_unpack(load_relaxed(&slot->meta)).shadow &&
                (denied == SIZE_MAX || slot->retry_ns > found->slots[denied]->retry_ns)) {
                denied = i;
            }
            break;
        }
    }
    if (denied != SIZE_MAX && (cold.count == 0 || verdict == NULL)) {
        for (size_t i = 0; i < cold.count; i++) {
            found->slots[cold.indices[i]] = NULL; /* a slot without a word of this epoch says nothing */
        }
        *denied_by = (uint8_t) denied;
        deny(t, found, *denied_by, verdict);
        return SLOT_DENIED;
    }
    return may_pass && cold.count != 0 && charge(t, found, &cold, verdict) ? SLOT_ALLOWED : SLOT_NO_ANSWER;
}

/* A request that grants do not cover. Denied: *denied_by is the key that decided. */
static __attribute__((noinline)) bool check_all_slow(struct weir_thread *t, struct slots_found *found,
                                                     weir_verdict *verdict, uint8_t *denied_by)
{
    if (!misuse_begin(t, "weir_check_all")) {
        return check_allow_unattached(verdict);
    }
    tick_look(t);
    const enum slot_answer answer = check_slots(t, found, verdict, denied_by);
    const bool pass =
        answer != SLOT_NO_ANSWER ? answer == SLOT_ALLOWED : all_table_check(t, found->list, verdict, denied_by);
    if (pass && found->list->count != 0) {
        count_more_keys(t, found->list->count);
    }
    return pass;
}

bool check_all_requested(struct weir_thread *t, const weir_requests *requests, size_t i, uint8_t *denied_by)
{
    const size_t width = requests->keys_per_request;
    const weir_key *keys = requests->keys + i * width;
    const uint64_t *costs = requests->costs != NULL ? requests->costs + i * width : ones;
    struct slot *slots[WEIR_MAX_KEYS_AT_ONCE];
    const size_t granted = find_granted(t, keys, costs, width, slots);
    if (likely(granted == width && width != 0)) {
        spend_grants(t, slots, costs, width, false, NULL);
        count_more_keys(t, width);
        return true;
    }
    const struct key_list list = {keys, costs, width};
    struct slots_found found = {.list = &list, .slots = slots, .granted = granted};
    return check_all_slow(t, &found, NULL, denied_by);
}

bool weir_check_all(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count, weir_verdict *verdict)
{
    if (t == NULL) {
        return check_allow_unattached(verdict);
    }
    if (count > WEIR_MAX_KEYS_AT_ONCE) {
        if (verdict != NULL) {
            *verdict = (weir_verdict){.retry_after_ns = UINT64_MAX, .fleet_age_ns = UINT64_MAX};
        }
        return false;
    }
    struct slot *slots[WEIR_MAX_KEYS_AT_ONCE];
    costs = costs != NULL ? costs : ones;
    const size_t granted = find_granted(t, keys, costs, count, slots);
    if (likely(granted == count && count != 0)) {
        spend_grants(t, slots, costs, count, false, verdict);
        count_more_keys(t, count);
        return true;
    }
    const struct key_list list = {keys, costs, count};
    struct slots_found found = {.list = &list, .slots = slots, .granted = granted};
    uint8_t denied_by;
    return check_all_slow(t, &found, verdict, &denied_by);
}
