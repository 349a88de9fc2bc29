/* SPDX-License-Identifier: Apache-2.0 */
/* The units that a check may let pass of a key that other nodes use as well; see allowance.c. Names: presumed_. */
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

/* What checks know of a key's use by the other nodes. Written by the background thread; see sync_state.h. */
struct allowance {
    _Alignas(64) _Atomic uint64_t remote_rate; /* see struct estimate */
    _Atomic uint64_t since_ns;                 /* see struct estimate; 0: the fleet has not answered of the key */
    _Atomic uint64_t inspected_ns; /* when the background thread last found the answer current, or merged one */
    _Atomic uint64_t seen; /* what the state counted then: units of the window `seq`, a bucket's total, a log's end */
    _Atomic uint64_t urgent_threshold; /* unseen units that make the answer too old */
    /*
     * Of a bucket: its tat at since_ns, with the remote units unreported then. Of a window or a log: the units that
     * silent nodes are presumed to have used; of a sliding window packed by presumed_pack.
     */
    _Atomic uint64_t level;
    _Atomic uint32_t remote_fraction; /* see struct estimate */
    _Atomic uint32_t fraction; /* not 0: remote units are unknown, and this fraction of the limit is in force; 2^-32 */
    _Atomic uint32_t seq;      /* the window of `seen`, and of the sync state's `now`; of no window: 0, as the counts */
    _Atomic uint16_t dither;   /* see struct estimate */
    _Atomic uint8_t quota_unacked; /* 1: a quota that may have been used up before this process started */
    _Atomic uint8_t flags;         /* ALLOWANCE_* */
};

#define ALLOWANCE_AWAITS_PEERS   1 /* first contact: other nodes may use the key and not have reported yet */
#define ALLOWANCE_DEMAND_UNKNOWN 2 /* the remote demand is not known yet */
#define ALLOWANCE_NODE_IS_NEW    4 /* beside one of the others: this node has just joined, and the others may not know */

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
    X(seq, 0)                                                                                                          \
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

/* Of a log's level: silent nodes have asked for their share, and it is held for them until there is news. */
#define PRESUMED_HELD (UINT64_C(1) << 63)

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

/* The level when the next window begins: what is presumed of this window is of the one before from then on. */
static inline uint64_t presumed_pass_on(uint64_t packed)
{
    return packed >> 32;
}

static inline uint64_t presumed_now(uint64_t limit, uint64_t packed)
{
    return muldiv_floor(limit, packed >> 32, UINT32_MAX);
}

static inline uint64_t presumed_before(uint64_t limit, uint64_t packed)
{
    return muldiv_floor(limit, packed & UINT32_MAX, UINT32_MAX);
}

/* Relaxed: an estimate. */
static inline struct estimate allowance_estimate(const struct allowance *allowance)
{
    return (struct estimate){.remote_rate = load_relaxed(&allowance->remote_rate),
                             .remote_fraction = load_relaxed(&allowance->remote_fraction),
                             .since_ns = load_relaxed(&allowance->since_ns),
                             .dither = load_relaxed(&allowance->dither)};
}

/* The outage mode in force; it changes at any time. */
static inline enum outage_mode allowance_outage_mode(const struct policy *policy)
{
    return (enum outage_mode) load_relaxed(&policy->outage_mode);
}

struct process;

/*
 * Intervals after which an answer is stale: no later one came, and no inspection found it current, as the key was not
 * used here. Other nodes may have used the key since. So, as of a new key, an equal share passes before the next one.
 */
#define STALE_INTERVALS 3

/* Units of an equal share that pass before a sync is requested at once: 1/128, and at least 2. */
#define URGENT_DIVISOR 128
#define URGENT_UNITS   2

static inline uint64_t allowance_urgent_units(uint64_t share)
{
    return max_u64(share / URGENT_DIVISOR, URGENT_UNITS);
}

/* The rule in force for one limit of any policy at a cell, for a request of `asked` units. */
struct rule allowance_rule(const struct process *process, const struct policy *policy, size_t limit, uint32_t cell,
                           uint64_t asked);

/*
 * The state that decides by that rule, of a policy that the fleet shares. A queue's, and in an outage any bucket's,
 * includes estimated remote units. In the outage mode `local` a window's is without the remote units.
 */
struct state allowance_level(const struct process *process, const struct policy *policy, const struct rule *rule,
                             uint32_t cell, struct state state, uint64_t now_ns);

/* A request at a cell of a policy that the fleet shares. */
struct allowance_query {
    enum outage_mode outage_mode;
    const struct rule *rule; /* from allowance_rule */
    struct state state;
    uint64_t headroom; /* by `rule` and allowance_level, less `held` */
    uint64_t held;     /* units that other threads hold */
    uint64_t asked;    /* units wanted now */
    uint64_t now_ns;
    uint32_t cell;
};

/* The units of the headroom that may pass here. */
uint64_t allowance_left(struct process *process, const struct allowance_query *query);

/* *left: allowance_left(), of a key that is decided by its configured limit. False: a fraction is in force. */
bool allowance_left_whole(struct process *process, const struct allowance_query *query, uint64_t *left);

/* Units of a bucket were refunded here. */
void allowance_refund(const struct process *process, uint32_t cell, const struct rule *rule, uint64_t units);

/* The longest wait until the fleet's next answer, if that can let more pass; else 0. */
uint64_t allowance_retry_after(const struct process *process, const struct policy *policy, uint32_t cell,
                               uint64_t now_ns);

#endif
