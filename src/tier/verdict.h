/* SPDX-License-Identifier: Apache-2.0 */
/* Filling in verdicts. */
#ifndef WEIR_TIER_VERDICT_H
#define WEIR_TIER_VERDICT_H

#include "base/numbers.h"
#include "tier/tier.h"

/* How old the fleet's news is at `now_ns`. */
static inline uint64_t fleet_age(const struct tick_line *line, uint64_t now_ns)
{
    const uint64_t news_ns = load_relaxed(&line->news_ns); /* a number that stands for itself */
    return news_ns == 0 ? UINT64_MAX : saturating_sub(now_ns, news_ns);
}

/* From what the table said. */
static inline void verdict_write(weir_verdict *verdict, const struct weir_thread *t, const struct policy *policy,
                                 const struct decision *decision, uint64_t now_ns)
{
    const bool shadow = policy->mode == WEIR_SHADOW && !decision->allowed;
    *verdict = (weir_verdict){
        .allowed = decision->allowed || shadow,
        .would_deny = shadow,
        .limit_index = decision->limit_index,
        .basis = (weir_basis) load_relaxed(&policy->basis),
        .limit = decision->limit,
        .remaining = decision->remaining,
        .retry_after_ns = decision->allowed ? 0 : decision->retry_after_ns,
        .reset_after_ns = decision->reset_after_ns,
        .fleet_age_ns = fleet_age(t->line, now_ns),
        .key_index = decision->key_index,
    };
}

/* A hit's verdict. What is a constant where it is inlined costs nothing: a slot that denies has no `unit`. */
static inline __attribute__((always_inline)) void verdict_hit(weir_verdict *verdict, const struct weir_thread *t,
                                                              const struct slot *slot, bool allowed, bool shadow,
                                                              uint64_t remaining, uint64_t unit, uint64_t retry_ns)
{
    const uint64_t now_ns = load_relaxed(&t->line->now_ns); /* may be one tick old */
    verdict->allowed = allowed || shadow;
    verdict->would_deny = shadow;
    verdict->limit_index = slot->limit_index;
    verdict->key_index = 0;
    verdict->basis = (weir_basis) (slot->flags & SLOT_BASIS_MASK);
    verdict->limit = slot->limit;
    verdict->remaining = remaining;
    verdict->retry_after_ns = retry_ns == UINT64_MAX ? UINT64_MAX : saturating_sub(retry_ns, now_ns);
    /* Modulo 2^64: a difference of up to some four years is right. */
    const int64_t reset = (int64_t) (slot->reset - remaining * unit - (now_ns << BUCKET_FRACTION_BITS));
    verdict->reset_after_ns = reset > 0 ? ((uint64_t) reset + 63) >> BUCKET_FRACTION_BITS : 0;
    verdict->fleet_age_ns = fleet_age(t->line, now_ns);
}

#endif
