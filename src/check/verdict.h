/* SPDX-License-Identifier: Apache-2.0 */
/* Filling in verdicts. */
#ifndef WEIR_CHECK_VERDICT_H
#define WEIR_CHECK_VERDICT_H

#include <string.h>

#include "base/numbers.h"
#include "check/request.h"
#include "thread/slot.h"
#include "thread/tick.h"

/* How old the fleet's news is at `now_ns`. */
static inline uint64_t verdict_fleet_age(const struct process *process, uint64_t now_ns)
{
    const uint64_t news_ns = load_relaxed(&process->news_ns); /* a number that stands for itself */
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
        .fleet_age_ns = verdict_fleet_age(t->process, now_ns),
        .key_index = decision->key_index,
    };
}

_Static_assert(offsetof(weir_verdict, allowed) == 0 && offsetof(weir_verdict, would_deny) == 1 &&
                   offsetof(weir_verdict, limit_index) == 2 && offsetof(weir_verdict, key_index) == 3 &&
                   offsetof(weir_verdict, basis) == 4 && offsetof(weir_verdict, limit) == 8 && true == 1,
               "the first word of a verdict is that of a slot, with a mask over it");

static inline __attribute__((always_inline)) void verdict_head(weir_verdict *verdict, const struct slot *slot,
                                                               uint64_t about, bool allowed, bool would_deny,
                                                               uint64_t remaining)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t head = (about & (SLOT_LIMIT | SLOT_BASIS)) | (would_deny ? UINT64_C(1) << 8 : 0) | allowed;
    memcpy((void *) verdict, &head, sizeof(head));
#else
    verdict->allowed = allowed;
    verdict->would_deny = would_deny;
    verdict->limit_index = (uint8_t) ((about & SLOT_LIMIT) >> SLOT_LIMIT_AT);
    verdict->key_index = 0;
    verdict->basis = (weir_basis) ((about & SLOT_BASIS) >> SLOT_BASIS_AT);
#endif
    verdict->limit = slot->limit;
    verdict->remaining = remaining;
}

/* A hit's verdict. */
static inline __attribute__((always_inline)) void verdict_hit(weir_verdict *verdict, const struct tick_line *line,
                                                              const struct slot *slot, uint64_t about,
                                                              uint64_t remaining)
{
    const uint64_t now_ns = load_relaxed(&line->now_ns); /* may be one tick old */
    verdict_head(verdict, slot, about, true, false, remaining);
    verdict->retry_after_ns = 0;
    /* Modulo 2^64: a difference of up to some four years is right. */
    const int64_t reset = (int64_t) (slot->reset - remaining * slot->unit - (now_ns << BUCKET_FRACTION_BITS));
    verdict->reset_after_ns = reset > 0 ? ((uint64_t) reset + 63) >> BUCKET_FRACTION_BITS : 0;
    verdict->fleet_age_ns = load_relaxed(&line->age_ns);
}

/* That of a denial from a slot. What is a constant where it is inlined costs nothing. */
static inline __attribute__((always_inline)) void verdict_denial(weir_verdict *verdict, const struct tick_line *line,
                                                                 const struct slot *slot, uint64_t about, bool shadow,
                                                                 uint64_t remaining)
{
    verdict_head(verdict, slot, about, shadow, shadow, remaining);
    verdict->retry_after_ns = slot->retry_after_ns;
    verdict->reset_after_ns = slot->reset_after_ns;
    verdict->fleet_age_ns = load_relaxed(&line->age_ns);
}

#endif
