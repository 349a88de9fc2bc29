/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hot path: a slot, the two packed words in it, and the two functions that answer a check from it.
 * A slot is what one thread keeps of one key. slot.c gives slots to keys; settle.c charges what was used of them.
 * Names: slot_, grant_.
 *
 * A hit: slot_get() finds the key's slot; slot_answer() compares the grant's epoch with the tick's, and its end with
 * `used`; slot_spend() adds the cost to `used`. A cached denial: the epoch is the present one, no units are left, and
 * the meta word has the cost from which on requests are denied.
 *
 * The calls that are no checks find a live grant by slot_covering(). weir_refund lowers `used` (slot_give_back(), in
 * slot.h).
 *
 * Ordering: [S1] in settle.c. Progress: wait-free.
 */
#ifndef WEIR_THREAD_SLOT_WORD_H
#define WEIR_THREAD_SLOT_WORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "algorithm/rule.h"
#include "base/numbers.h"
#include "policy/policy.h"
#include "thread/thread.h"
#include "thread/tick.h"

/*
 * Invariants
 *   used is written by the owner alone. It decreases by refunds alone, under the account's lock, and never below
 *   `accounted` [S5].
 *   The key's cells have been charged exactly `accounted` units for this slot; used - accounted passed since then.
 *   While a grant is live, the cells hold `granted` units for it, and used - accounted <= granted. Units that pass
 *   after another thread took the grant back are late: the next settling charges them.
 *   (`accounted` and `granted` are in struct slot_account, slot.h.)
 *
 * The struct is the one line that a hit reads and writes. All of it but `grant` is written by the owner alone.
 */
struct slot {
    _Alignas(CACHE_LINE) _Atomic uint64_t hash; /* the key's; 0: free. Changed under the account's lock */
    _Atomic uint64_t grant;                     /* grant word; 0: none. Changed under the account's lock */
    _Atomic uint64_t used;                      /* units, cumulative, less those given back to grants */
    /* The first member of each union is for a grant, the second for a cached denial, the third for neither. */
    union {
        _Atomic uint64_t remaining_base; /* remaining = remaining_base - used */
        _Atomic uint64_t denied;         /* units denied from this slot, cumulative; see slot_denied() */
    };
    union {
        /*
         * The key is as unused at (reset - remaining * unit) / 64, in ns of fleet time, once a unit has passed on the
         * grant; until then the account says when (asked_reset_ns).
         */
        uint64_t reset;
        uint64_t reset_ns; /* fleet time at which the key is as unused */
    };
    union {
        uint64_t unit;         /* bucket: time one unit takes to refill, 1/64 ns; else 0 */
        uint64_t retry_ns;     /* fleet time at which the cost passes; UINT64_MAX: never */
        _Atomic uint64_t room; /* neither: the cost that the key had room for; see had_room */
    };
    uint64_t limit;
    _Atomic uint64_t meta; /* meta word. Changed under the account's lock */
};

_Static_assert(sizeof(struct slot) == CACHE_LINE, "a hit touches one line of its own");

/*
 * The grant word: the epoch in which the grant is live, and the low 32 bits of the `used` at which it ends. The low 32
 * bits of `end` and `used` are enough, as a grant has at most GRANT_MAX units.
 */
#define GRANT_EPOCH_AT 32

static inline uint64_t grant_make(uint32_t epoch, uint64_t end)
{
    return (uint64_t) epoch << GRANT_EPOCH_AT | (uint32_t) end;
}

static inline uint32_t grant_epoch(uint64_t grant)
{
    return (uint32_t) (grant >> GRANT_EPOCH_AT);
}

static inline uint32_t grant_end(uint64_t grant)
{
    return (uint32_t) grant;
}

/* Whether a grant, `used` units into it, has room for a cost. */
static inline bool grant_covers(uint64_t grant, uint64_t used, uint64_t cost)
{
    const uint32_t left = grant_end(grant) - (uint32_t) used;
    return units_asked(cost) <= left;
}

/*
 * The meta word: what a slot answers by, in 64 bits. limit_index and basis have the places that weir_verdict gives
 * them, so the first 8 bytes of a verdict are this word under a mask (slot_verdict_head).
 *
 *   bit  bits  field of struct slot_meta
 *    0    16   policy_id, as the byte offset of the policy's tally in weir_thread.tallies
 *   16     2   limit_index
 *   18     1   shadow
 *   19     1   set_is_odd
 *   20     1   plain_denial
 *   21     1   had_room
 *   22     1   asked
 *   32     2   basis
 *   34    30   denies_from
 */
#define META_LIMIT_AT        16
#define META_SHADOW_AT       18
#define META_ODD_SET_AT      19
#define META_PLAIN_DENIAL_AT 20
#define META_HAD_ROOM_AT     21
#define META_ASKED_AT        22
#define META_BASIS_AT        32
#define META_DENIES_FROM_AT  34

#define META_TALLY       UINT64_C(0xffff)
#define META_TWO_BITS    UINT64_C(3)
#define META_LIMIT       (META_TWO_BITS << META_LIMIT_AT)
#define META_BASIS       (META_TWO_BITS << META_BASIS_AT)
#define META_ASKED       (UINT64_C(1) << META_ASKED_AT)
#define META_DENIES_MOST (UINT64_MAX >> META_DENIES_FROM_AT) /* the largest cost a slot can deny */

_Static_assert(WEIR_MAX_LIMITS <= 4 && WEIR_BASIS_OUTAGE < 4, "limit_index and basis have two bits each");
_Static_assert(WEIR_MAX_POLICIES * sizeof(struct tally) <= META_TALLY, "16 bits hold the offset of every tally");

struct slot_meta {
    uint32_t policy_id;
    uint8_t limit_index;
    bool shadow;          /* the policy is in shadow mode */
    bool set_is_odd;      /* the parity of the policy set that the grant was made by; see check_all.c */
    bool plain_denial;    /* denial: not in shadow mode, it passes some time, no units are left */
    bool asked;           /* grant: nothing had passed before it that counts as long as its units do */
    bool had_room;        /* no grant and no denial: the key had room when another key of a request had none */
    uint8_t basis;        /* weir_basis */
    uint64_t denies_from; /* requests of this cost and more are denied while the epoch lasts; 0: a grant */
};

static inline uint64_t slot_meta_pack(struct slot_meta meta)
{
    return meta.policy_id * sizeof(struct tally) | (uint64_t) meta.limit_index << META_LIMIT_AT |
           (uint64_t) meta.shadow << META_SHADOW_AT | (uint64_t) meta.set_is_odd << META_ODD_SET_AT |
           (uint64_t) meta.plain_denial << META_PLAIN_DENIAL_AT | (uint64_t) meta.had_room << META_HAD_ROOM_AT |
           (uint64_t) meta.asked << META_ASKED_AT | (uint64_t) meta.basis << META_BASIS_AT |
           meta.denies_from << META_DENIES_FROM_AT;
}

static inline struct slot_meta slot_meta_unpack(uint64_t word)
{
    return (struct slot_meta){
        .policy_id = (uint32_t) ((word & META_TALLY) / sizeof(struct tally)),
        .limit_index = (uint8_t) (word >> META_LIMIT_AT & META_TWO_BITS),
        .shadow = (word >> META_SHADOW_AT & 1) != 0,
        .set_is_odd = (word >> META_ODD_SET_AT & 1) != 0,
        .plain_denial = (word >> META_PLAIN_DENIAL_AT & 1) != 0,
        .had_room = (word >> META_HAD_ROOM_AT & 1) != 0,
        .asked = (word >> META_ASKED_AT & 1) != 0,
        .basis = (uint8_t) (word >> META_BASIS_AT & META_TWO_BITS),
        .denies_from = word >> META_DENIES_FROM_AT,
    };
}

/* Whether the grants of two meta words were made by one policy set, of the two that there may be. */
static inline bool slot_meta_same_set(uint64_t meta, uint64_t other)
{
    return ((meta ^ other) & UINT64_C(1) << META_ODD_SET_AT) == 0;
}

/* What every meta word of a policy has. */
static inline struct slot_meta slot_meta_of(const struct policy *policy)
{
    /* Relaxed: a number that stands for itself. */
    return (struct slot_meta){.policy_id = policy->id,
                              .shadow = policy->mode == WEIR_SHADOW,
                              .set_is_odd = policy->set_is_odd,
                              .basis = load_relaxed(&policy->basis)};
}

/* The tally of a meta word's policy. */
static inline struct tally *slot_tally(const struct weir_thread *t, uint64_t meta)
{
    return (struct tally *) ((unsigned char *) t->tallies + (meta & META_TALLY));
}

/* The first slot of the set that a hash belongs to. */
static inline size_t slot_set(const struct weir_thread *t, uint64_t hash)
{
    return (size_t) (hash * SLOT_WAYS) & t->slot_mask;
}

/* The slot of a hash. False: the hash has none. Relaxed: the owner reads its own stores, others look again locked. */
static inline bool slot_get(const struct weir_thread *t, uint64_t hash, struct slot **slot)
{
    struct slot *set = &t->slots[slot_set(t, hash)];
    /* Most keys are in the first way. The hint lays a hit out in one piece: one cycle of twelve (hot/weir). */
    if (__builtin_expect(load_relaxed(&set->hash) == hash, 1)) {
        *slot = set;
        return true;
    }
    for (size_t way = 1; way < SLOT_WAYS; way++) {
        if (load_relaxed(&set[way].hash) == hash) {
            *slot = &set[way];
            return true;
        }
    }
    return false;
}

_Static_assert(offsetof(weir_verdict, allowed) == 0 && offsetof(weir_verdict, would_deny) == 1 &&
                   offsetof(weir_verdict, limit_index) == 2 && offsetof(weir_verdict, key_index) == 3 &&
                   offsetof(weir_verdict, basis) == 4 && offsetof(weir_verdict, limit) == 8 && true == 1,
               "the first 8 bytes of a verdict are a meta word under a mask");

static inline __attribute__((always_inline)) void slot_verdict_head(weir_verdict *verdict, const struct slot *slot,
                                                                    uint64_t meta, bool allowed, bool would_deny)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t head = (meta & (META_LIMIT | META_BASIS)) | (would_deny ? UINT64_C(1) << 8 : 0) | allowed;
    memcpy((void *) verdict, &head, sizeof(head));
#else
    const struct slot_meta fields = slot_meta_unpack(meta);
    verdict->allowed = allowed;
    verdict->would_deny = would_deny;
    verdict->limit_index = fields.limit_index;
    verdict->key_index = 0;
    verdict->basis = (weir_basis) fields.basis;
#endif
    verdict->limit = slot->limit;
}

/* Corrects the reset of a verdict by a grant that was made without a charge: nothing may have passed on it yet. */
void slot_correct_reset(const struct weir_thread *t, const struct slot *slot, weir_verdict *verdict);
/* Notes that units which were charged before a slot's grant were refunded. The slot is locked. By the owner. */
void slot_note_reset(const struct weir_thread *t, struct slot *slot, uint64_t now_ns);

/* The verdict on a request that a grant has allowed. */
static inline __attribute__((always_inline)) void slot_verdict_allowed(weir_verdict *verdict,
                                                                       const struct weir_thread *t,
                                                                       const struct slot *slot, uint64_t meta,
                                                                       uint64_t remaining)
{
    const struct tick_line *line = t->line;
    const uint64_t now_ns = load_relaxed(&line->now_ns); /* [C1] relaxed: may be one tick old */
    slot_verdict_head(verdict, slot, meta, true, false);
    verdict->remaining = remaining;
    verdict->retry_after_ns = 0;
    /* Modulo 2^64: a difference of up to some four years is right. */
    const int64_t reset = (int64_t) (slot->reset - remaining * slot->unit - (now_ns << BUCKET_FRACTION_BITS));
    verdict->reset_after_ns = reset > 0 ? ((uint64_t) reset + 63) >> BUCKET_FRACTION_BITS : 0;
    verdict->fleet_age_ns = load_relaxed(&line->age_ns);
    verdict->decided_ns = now_ns;
    if (unlikely((meta & META_ASKED) != 0)) {
        slot_correct_reset(t, slot, verdict);
    }
}

/*
 * The verdict of a cached denial. Where the clock was raised within the epoch, and says that the wait is over, the
 * verdict is of the moment before. `passes`: a plain denial, whose wait has an end.
 */
static inline __attribute__((always_inline)) void slot_verdict_denied(weir_verdict *verdict,
                                                                      const struct tick_line *line,
                                                                      const struct slot *slot, uint64_t meta,
                                                                      bool shadow, uint64_t remaining, bool passes)
{
    /* [C1] relaxed: may be one tick old. */
    const uint64_t now_ns = min_u64(load_relaxed(&line->now_ns), slot->retry_ns - 1);
    slot_verdict_head(verdict, slot, meta, shadow, shadow);
    verdict->remaining = remaining;
    verdict->retry_after_ns = passes || slot->retry_ns != UINT64_MAX ? slot->retry_ns - now_ns : UINT64_MAX;
    verdict->reset_after_ns = saturating_sub(slot->reset_ns, now_ns);
    verdict->fleet_age_ns = load_relaxed(&line->age_ns);
    verdict->decided_ns = now_ns;
}

enum slot_answer { SLOT_NO_ANSWER, SLOT_ALLOWED, SLOT_DENIED };

/* Spends units of a grant that covers them. Returns `used` after that. */
static inline __attribute__((always_inline)) uint64_t slot_spend(const struct weir_thread *t, struct slot *slot,
                                                                 uint64_t meta, uint64_t used, uint64_t cost)
{
    store_release(&slot->used, used + cost); /* [S1] */
    counter_add(&slot_tally(t, meta)->allowed, 1);
    return used + cost;
}

/* Answers a check by the key's slot: from its grant, or by a plain denial (other denials: try_cached_denial()). */
static inline __attribute__((always_inline)) enum slot_answer slot_answer(const struct weir_thread *t,
                                                                          struct slot *slot, uint64_t cost,
                                                                          weir_verdict *verdict)
{
    const struct tick_line *line = t->line;
    /* [S1] grant before used. Relaxed: a grant is compared with the epoch alone; taking it back waits for no answer. */
    const uint64_t grant = load_relaxed(&slot->grant);
    if (unlikely(grant_epoch(grant) != load_relaxed(&line->epoch))) {
        return SLOT_NO_ANSWER;
    }
    uint64_t used = load_relaxed(&slot->used);
    if (likely(grant_covers(grant, used, cost))) {
        const uint64_t meta = load_relaxed(&slot->meta); /* the owner's own */
        used = slot_spend(t, slot, meta, used, cost);
        if (verdict != NULL) {
            slot_verdict_allowed(verdict, t, slot, meta, load_relaxed(&slot->remaining_base) - used);
        }
        return SLOT_ALLOWED;
    }
    const uint64_t meta = load_relaxed(&slot->meta);
    const struct slot_meta fields = slot_meta_unpack(meta);
    if (fields.denies_from != units_asked(cost) || !fields.plain_denial) {
        return SLOT_NO_ANSWER;
    }
    counter_add(&slot->denied, units_asked(cost));
    counter_add(&slot_tally(t, meta)->denied, 1);
    if (verdict != NULL) {
        slot_verdict_denied(verdict, line, slot, meta, false, 0, true);
    }
    return SLOT_DENIED;
}

/* Whether a slot's grant word is of the present epoch: the slot has a grant, a denial, or remembers that it had room.
 */
static inline bool slot_is_live(const struct weir_thread *t, const struct slot *slot)
{
    return grant_epoch(load_relaxed(&slot->grant)) == load_relaxed(&t->line->epoch);
}

/* The slot of a hash whose grant is of this epoch and covers a cost; NULL: there is none. For calls that are no checks.
 */
static inline struct slot *slot_covering(const struct weir_thread *t, uint64_t hash, uint64_t cost)
{
    struct slot *slot;
    if (!slot_get(t, hash, &slot)) {
        return NULL;
    }
    const uint64_t grant = load_relaxed(&slot->grant); /* [S1] grant before used */
    const bool live = grant_epoch(grant) == load_relaxed(&t->line->epoch);
    return live && grant_covers(grant, load_relaxed(&slot->used), cost) ? slot : NULL;
}

#endif
