/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_check_burst: many keys at once, their cache misses overlapped.
 *
 * A key that has no slot costs a miss for its cell, one for its note where other nodes use it too, and a locked
 * instruction, behind which the processor does not look for the next key's misses. So before any key is decided the
 * lines of all are asked for, in passes, each of which needs no more than what the one before it has brought: slots,
 * cells, notes. Then every key is decided as by weir_check, in order: a key that comes twice finds what its first
 * coming has left.
 *
 * A prefetch is a hint. What it looked at may have changed hands since; the decision looks again.
 *
 * Progress: as weir_check.
 */
#include "base/rcu.h"
#include "tier/slot.h"
#include "tier/tier.h"

/*
 * Keys that are asked for ahead. Processors have 10 to 16 misses of one core under way (more with huge pages and the
 * second level's own), so more than two or three times that gain nothing, and must not push one another out of 32 KiB.
 */
#define AHEAD 32

/* A key without a slot, on its way. */
struct ahead {
    uint64_t hash; /* of its first limit's cell */
    const struct policy *policy;
};

static void ask_for_slots(const struct weir_thread *t, const weir_key *keys, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        __builtin_prefetch(&t->slots[slot_set(t, keys[i].hash)]);
        __builtin_prefetch(slot_seen(t, keys[i].hash));
    }
}

/* For those without a slot. Returns how many there are. */
static size_t ask_for_cells(const struct weir_thread *t, const struct policy_set *set, const weir_key *keys,
                            size_t count, struct ahead ahead[AHEAD])
{
    const struct table *table = &t->tier->table;
    size_t cold = 0;
    for (size_t i = 0; i < count; i++) {
        if (slot_find(t, keys[i].hash) != SLOT_NONE) {
            continue;
        }
        const struct policy *policy = keys[i].policy <= WEIR_MAX_POLICIES ? set->by_id[keys[i].policy] : NULL;
        if (policy == NULL) {
            continue;
        }
        for (size_t limit = 0; limit < policy->limit_count; limit++) {
            table_prefetch(table, cell_hash(policy, &keys[i], limit));
        }
        ahead[cold++] = (struct ahead){.hash = cell_hash(policy, &keys[i], 0), .policy = policy};
    }
    return cold;
}

static void ask_for_notes(const struct weir_thread *t, const struct ahead ahead[AHEAD], size_t count)
{
    const struct tier *tier = t->tier;
    for (size_t i = 0; i < count; i++) {
        if (!mirror_concerns(tier, ahead[i].policy)) {
            continue;
        }
        const uint32_t at = table_find(&tier->table, ahead[i].hash);
        if (at != TABLE_NONE) {
            __builtin_prefetch(&tier->notes.stubs[at]);
        }
    }
}

static size_t decide(struct weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count, uint64_t *bits)
{
    size_t allowed = 0;
    for (size_t i = 0; i < count; i++) {
        const bool pass = thread_check_within(t, &keys[i], costs != NULL ? costs[i] : 1);
        *bits |= (uint64_t) pass << i;
        allowed += pass;
    }
    return allowed;
}

size_t weir_check_burst(weir_thread *t, const weir_key *keys, const uint64_t *costs, size_t count,
                        uint64_t *allowed_bits)
{
    size_t allowed = 0;
    uint64_t word = 0;
    for (size_t first = 0; first < count; first += AHEAD) {
        const size_t part = min_u64(count - first, AHEAD);
        struct ahead ahead[AHEAD];
        rcu_enter(); /* once for all: it costs a sixth of a key */
        if (part > 1) {
            ask_for_slots(t, keys + first, part);
            const size_t cold = ask_for_cells(t, load_acquire(&t->tier->policies), keys + first, part, ahead);
            ask_for_notes(t, ahead, cold);
        }
        uint64_t bits = 0;
        allowed += decide(t, keys + first, costs != NULL ? costs + first : NULL, part, &bits);
        rcu_leave();
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
