/* SPDX-License-Identifier: Apache-2.0 */
/* clang-format off */
/*
 * One cell of the table of keys: the state of one key under one limit. Threads read, charge, pin and lock it.
 *
 * Invariants
 *   I2  A cell changes its key only while it is locked. It can be locked only while no thread pins it or holds units
 *       of it: (held & HELD_IN_USE) == 0 -> HELD_LOCKED.
 *   I3  A cell's generation (top bits of state.b) changes with its key, and with every grant. A charge reads hash,
 *       state and hash again, and compare-and-swaps the state with the generation in it. So a charge cannot fall on
 *       another key, nor overlook a grant.
 *   I4  `state` counts units that have passed; it decreases only with time. `held` counts units that may still pass:
 *       of grants that are not settled, and of requests under way. The state's headroom less `held` may pass now.
 *       `held` is raised before a unit may pass on it, and lowered after what passed was charged. Its version changes
 *       each time.
 *
 * Ordering
 *   [T1] hash: published with release after the state and the sync state of the cell were written; read with acquire.
 *   [T2] state: dwcas_swap is a full barrier. cell_read loads with acquire, so what it reads after the state (the hash
 *        again, I3) is no older than the state.
 *   [T3] held: seq_cst read-modify-writes, loads with acquire. Pairs with itself in the rule for denials (decide.c).
 *
 * Progress: all functions are lock-free.
 */
/* clang-format on */
#ifndef WEIR_PROCESS_CELL_H
#define WEIR_PROCESS_CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/rule.h"
#include "base/atomics.h"
#include "base/dwcas.h"
#include "policy/policy.h"
#include "weir/weir.h"

/*
 * held, from the top: version (8 bits), locked (1), pins (12), units (43).
 *
 * Pins: for every thread one by a slot and one by its call under way, and one by the background thread: 2 * 1,024 + 1
 * at most. Units: up to HOLD_MOST by every thread, and more than that by one request at a time, up to WEIR_MAX_UNITS
 * (reserved_charge.c).
 */
#define HELD_VERSION (UINT64_C(1) << 56)
#define HELD_LOCKED  (UINT64_C(1) << 55)
#define HELD_PIN     (UINT64_C(1) << 43)
#define HOLD_MOST    (UINT64_C(1) << 30)
#define HELD_UNITS   (HELD_PIN - 1)
#define HELD_IN_USE  (HELD_VERSION - 1)

/*
 * A cell's generation: the bits of state.b above those that the algorithms use, but for the highest bit. That bit marks
 * a state to which a settler of another process has charged what passed on a grant, and of which the settler has not
 * noted that yet (settling.c). The generation then names the settler's slot. Charges keep the mark. A thread that is
 * to change the generation waits until the settler has.
 */
#define GENERATION_ONE (UINT64_C(1) << STATE_B_BITS)
#define CELL_MARK      (UINT64_C(1) << 63)
#define CELL_MARK_BITS (CELL_MARK | (CELL_MARK - GENERATION_ONE))

struct cell {
    _Atomic uint64_t hash; /* 0: empty, or between two keys */
    _Atomic uint64_t held;
    struct dwcas state;
};

_Static_assert(sizeof(struct cell) == 32, "two cells to a cache line");

/* What a cell's key is. Written while the cell is locked; read without a pin by searches for a key to evict. */
struct cell_meta {
    _Atomic uint32_t limit_tag; /* POLICY_LIMIT_ID of the limit_hash */
    _Atomic uint16_t group;     /* id of the policy's group: the policy and its pricing tiers */
    _Atomic uint8_t flags;      /* CELL_* */
    _Atomic uint8_t events;     /* EVENT_*; set by any thread */
};

#define CELL_SHARED  1 /* the fleet shares the limit */
#define CELL_HISTORY 2 /* the limit is a sliding log */
#define CELL_BUCKET  4 /* the limit is a bucket */

#define EVENT_DENIED   1 /* top_denied.h may have units of the key */
#define EVENT_REFUSED  2 /* a request asked for more units than there was room for */
#define EVENT_REFUNDED 4 /* the key's refund ledger may not be empty */

/* All fields of struct cell_meta. */
#define CELL_META_FIELDS(X)                                                                                            \
    X(limit_tag)                                                                                                       \
    X(group)                                                                                                           \
    X(flags)                                                                                                           \
    X(events)

#define CELL_META_SIZE(field) +sizeof(((struct cell_meta *) NULL)->field)
_Static_assert(sizeof(struct cell_meta) == 0 CELL_META_FIELDS(CELL_META_SIZE), "CELL_META_FIELDS lists every field");

/* Of two locked cells. */
static inline void cell_meta_copy(struct cell_meta *to, const struct cell_meta *from)
{
    /* Relaxed: searches without a pin read a guess. */
#define CELL_META_COPY(field) store_relaxed(&to->field, load_relaxed(&from->field));
    CELL_META_FIELDS(CELL_META_COPY)
}

/* Writes the metadata of a locked, vacant cell for its next key. */
static inline void cell_meta_write(struct cell_meta *meta, uint32_t limit_tag, uint16_t group, uint8_t flags)
{
    store_relaxed(&meta->limit_tag, limit_tag);
    store_relaxed(&meta->group, group);
    store_relaxed(&meta->events, 0);
    store_relaxed(&meta->flags, flags);
}

static inline bool cell_meta_is(const struct cell_meta *meta, uint8_t flag)
{
    return (load_relaxed(&meta->flags) & flag) != 0;
}

/* The flag of a kind of rules, and back. */
static inline uint8_t cell_kind_flag(enum rule_kind kind)
{
    switch (kind) {
    case RULE_WINDOW:
        return 0;
    case RULE_HISTORY:
        return CELL_HISTORY;
    case RULE_BUCKET:
        return CELL_BUCKET;
    }
    return 0;
}

static inline enum rule_kind cell_meta_kind(const struct cell_meta *meta)
{
    if (cell_meta_is(meta, CELL_BUCKET)) {
        return RULE_BUCKET;
    }
    return cell_meta_is(meta, CELL_HISTORY) ? RULE_HISTORY : RULE_WINDOW;
}

static inline bool cell_meta_had(const struct cell_meta *meta, uint8_t event)
{
    return (load_relaxed(&meta->events) & event) != 0;
}

/* Writes only the first time, so that a flood of denials only reads. */
static inline void cell_meta_record(struct cell_meta *meta, uint8_t event)
{
    if (!cell_meta_had(meta, event)) {
        (void) or_seq_cst(&meta->events, event);
    }
}

/* The hash of a cell, from a key's hash and the salt of a limit: never 0. */
static inline uint64_t cell_hash_salted(uint64_t key_hash, uint64_t salt)
{
    const uint64_t hash = key_hash ^ salt;
    return hash != 0 ? hash : 1;
}

/* The hash of a key's cell under one limit of its policy: distinct for each policy and limit. */
static inline uint64_t cell_hash(const struct policy *policy, const weir_key *key, size_t limit_index)
{
    return cell_hash_salted(key->hash ^ policy->group_key_mask, policy->limits[limit_index].limit_hash);
}

/* Reads the state. False: the cell is not this hash's. */
static inline bool cell_read(const struct cell *cell, uint64_t hash, struct dwcas_value *value)
{
    *value = dwcas_read(&cell->state);
    /* Relaxed: ordered behind the state by [T2]. */
    return load_relaxed(&cell->hash) == hash;
}

static inline struct state cell_state(struct dwcas_value value)
{
    return (struct state){value.a, value.b & STATE_B_MASK};
}

/* A state with the generation of `like`. */
static inline struct dwcas_value cell_value(struct state state, struct dwcas_value like)
{
    return (struct dwcas_value){state.a, (like.b & ~STATE_B_MASK) | (state.b & STATE_B_MASK)};
}

/* `like` with the next generation. The state of `like` has no mark, or its settler is known to have ended. */
static inline struct dwcas_value cell_next_generation(struct dwcas_value like)
{
    return (struct dwcas_value){like.a, (like.b + GENERATION_ONE) & ~CELL_MARK};
}

static inline bool cell_is_marked(struct dwcas_value value)
{
    return (value.b & CELL_MARK) != 0;
}

/* [T3] Adds `delta` (units, pins; two's complement) to held and changes its version; returns held before. */
static inline uint64_t cell_hold(struct cell *cell, uint64_t delta)
{
    return add_seq_cst(&cell->held, delta + HELD_VERSION);
}

/* Keeps the cell this hash's until cell_unpin. False: the cell is not this hash's, and was not pinned. */
bool cell_pin(struct cell *cell, uint64_t hash);
void cell_unpin(struct cell *cell);

/* Locks the cell (I2). False: it is in use. No other thread changes the cell until cell_unlock. */
bool cell_lock(struct cell *cell);
void cell_unlock(struct cell *cell);

#endif
