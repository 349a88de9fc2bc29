/* SPDX-License-Identifier: Apache-2.0 */
/* What a check may let pass of a key that other nodes use as well; see allowance.c. */
#ifndef WEIR_PROCESS_ALLOWANCE_H
#define WEIR_PROCESS_ALLOWANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "algorithm/estimate.h"
#include "algorithm/rule.h"
#include "base/atomics.h"
#include "base/numbers.h"
#include "policy/policy.h"

#define SEQ_NONE UINT32_MAX /* no window's */

/* What the fleet last told of a key's demand, for checks (allowance.c). Written by the background thread alone. */
struct allowance {
    _Alignas(64) _Atomic uint64_t remote_rate; /* see struct estimate */
    _Atomic uint64_t since_ns;                 /* likewise; 0: it has told nothing yet */
    _Atomic uint64_t inspected_ns; /* when the background thread last found that the answer does, or was given one */
    _Atomic uint64_t seen; /* what the state counted then: of the note's window, a bucket's total, or a log's end */
    _Atomic uint64_t urgent_threshold; /* so many units later the fleet's news is too old to go by */
    /* Of a bucket: what its a was taken to be at since_ns, with what others had not told yet. Of a window or a log:
     * what silent nodes are presumed to have used that counts; of a sliding window as presumed_pack says. */
    _Atomic uint64_t level;
    _Atomic uint32_t remote_fraction;
    /* Not 0: what the others have is not known, and this part of the limit may pass here; of 2^32. */
    _Atomic uint32_t fraction;
    _Atomic uint32_t seq;          /* the window of `seen`, and of the note's `now`; SEQ_NONE: none yet */
    _Atomic uint16_t dither;       /* see struct estimate */
    _Atomic uint8_t quota_unacked; /* 1: a quota's key that may have been used up before this process began */
    _Atomic uint8_t flags;         /* MIRROR_* */
};

#define ALLOWANCE_AWAITS_PEERS   1 /* the others may not have told yet what they have just begun */
#define ALLOWANCE_DEMAND_UNKNOWN 2 /* what others ask for is not known yet */

_Static_assert(sizeof(struct allowance) == 64, "a check reads one cache line of it");

/* All fields of struct allowance, and what they are while the fleet has not answered of a key. */
#define ALLOWANCE_FIELDS(X)                                                                                            \
    X(remote_rate, 0)                                                                                                  \
    X(since_ns, 0)                                                                                                     \
    X(inspected_ns, 0)                                                                                                 \
    X(seen, 0)                                                                                                         \
    X(urgent_threshold, UINT64_MAX)                                                                                    \
    X(level, 0)                                                                                                        \
    X(remote_fraction, 0)                                                                                              \
    X(fraction, 0)                                                                                                     \
    X(seq, SEQ_NONE)                                                                                                   \
    X(dither, 0)                                                                                                       \
    X(quota_unacked, 0)                                                                                                \
    X(flags, ALLOWANCE_DEMAND_UNKNOWN)

#define ALLOWANCE_SIZE(field, initial) +sizeof(((struct allowance *) NULL)->field)
_Static_assert(sizeof(struct allowance) == 0 ALLOWANCE_FIELDS(ALLOWANCE_SIZE), "ALLOWANCE_FIELDS lists every field");

/* Both relaxed: checks read estimates. */
static inline void allowance_clear(struct allowance *allowance)
{
#define ALLOWANCE_CLEAR(field, initial) store_relaxed(&allowance->field, initial);
    ALLOWANCE_FIELDS(ALLOWANCE_CLEAR)
}

static inline void allowance_copy(struct allowance *to, const struct allowance *from)
{
#define ALLOWANCE_COPY(field, initial) store_relaxed(&to->field, load_relaxed(&from->field));
    ALLOWANCE_FIELDS(ALLOWANCE_COPY)
}

/*
 * The level of a sliding window, in one word: presumed units of the window, and of the window before, each as a
 * fraction of the limit in 2^-32. Kept apart, they slide out between two answers as all other units do.
 */
static inline uint64_t presumed_pack(uint64_t limit, uint64_t now, uint64_t before)
{
    const uint64_t whole = max_u64(limit, 1);
    const uint64_t most = UINT32_MAX;
    return min_u64(muldiv_ceil(now, most, whole), most) << 32 | min_u64(muldiv_ceil(before, most, whole), most);
}

static inline uint64_t presumed_now(uint64_t limit, uint64_t packed)
{
    return muldiv_floor(limit, packed >> 32, UINT32_MAX);
}

static inline uint64_t presumed_before(uint64_t limit, uint64_t packed)
{
    return muldiv_floor(limit, packed & UINT32_MAX, UINT32_MAX);
}

struct process;

/*
 * An answer is old when the ones after it have not come, and the background thread has not found that it will do: the
 * key was not used here. Others may have used it since, whatever they did before; as with a new key no more than an
 * even part passes before the next one.
 */
#define STALE_INTERVALS 3

/* Units of an even part that pass before the fleet is asked at once. */
#define URGENT_DIVISOR 128
#define URGENT_UNITS   2

static inline uint64_t allowance_urgent_units(uint64_t fraction)
{
    return max_u64(fraction / URGENT_DIVISOR, URGENT_UNITS);
}

/* A rule where this part of it may pass (of FRACTION_WHOLE; 0: all), for a request of so many units. */
struct rule allowance_fraction_rule(const struct rule *rule, uint64_t fraction, uint64_t asked);
/* This node's part of the demand last seen; 0: all of it. */
uint32_t allowance_demand_fraction(const struct process *process, const struct allowance *allowance);
/* The part of a key that has no note. `told`: the fleet has told of it. */
uint32_t allowance_compact_fraction(const struct process *process, const struct rule *rule, bool counts);
/* Whether a key is decided by the limit as it is configured: not in part, nor by the outage ladder. */
bool allowance_is_whole(const struct process *process, const struct policy *policy, const struct rule *rule,
                        uint32_t cell);
/* The rule in force for one limit of any policy at a cell, for a request of so many units. */
struct rule allowance_rule(const struct process *process, const struct policy *policy, size_t limit, uint32_t cell,
                           uint64_t asked);
/*
 * What a state comes to by that rule, of a policy that it concerns: of a queue, and in an outage of any bucket, with
 * the others' units that nobody has told of; where each node has the whole limit, without the others' units.
 */
struct state allowance_level(const struct process *process, const struct policy *policy, const struct rule *rule,
                             uint32_t cell, struct state state, uint64_t now_ns);
/*
 * Of a headroom by that rule and level, less the units that are held, the units that may pass, of which `asked` are
 * wanted now. It concerns the policy.
 */
uint64_t allowance_left(struct process *process, const struct policy *policy, const struct rule *rule, uint32_t cell,
                        struct state state, uint64_t headroom, uint64_t held, uint64_t asked, uint64_t now_ns);
/* The wait until the fleet's next answer at the latest, where that can let more pass; else 0. */
/* Units of a bucket were given back here. */
void allowance_refund(const struct process *process, uint32_t cell, const struct rule *rule, uint64_t units);
uint64_t allowance_retry_after(const struct process *process, const struct policy *policy, uint32_t cell,
                               uint64_t now_ns);

#endif
