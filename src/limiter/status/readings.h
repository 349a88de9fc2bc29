/* SPDX-License-Identifier: Apache-2.0 */
/* What the metrics and the status both read of an open weir. */
#ifndef WEIR_LIMITER_STATUS_READINGS_H
#define WEIR_LIMITER_STATUS_READINGS_H

#include "limiter/weir_private.h"

/* The checks of a policy, by answer. */
struct policy_sums {
    uint64_t allowed, denied, would_deny;
};

/* Sums of counters with one writer each: relaxed, and right as soon as the writers are quiet. */
static inline struct policy_sums policy_sums_read(const struct limiter *limiter, weir_policy_id id)
{
    struct policy_sums sums = {0, 0, 0};
    for (uint32_t i = 0; i < limiter_thread_high(limiter); i++) {
        const struct tally *tally = &limiter->threads[i].tallies[id];
        sums.allowed += load_relaxed(&tally->allowed);
        sums.denied += load_relaxed(&tally->denied);
        sums.would_deny += load_relaxed(&tally->would_deny);
    }
    return sums;
}

/* The name of an outage mode in force; "fleet" is normal operation. */
static inline const char *outage_mode_name(unsigned outage_mode)
{
    static const char *const names[] = {"fleet", "share", "local", "open", "closed"};
    return outage_mode < sizeof(names) / sizeof(names[0]) ? names[outage_mode] : names[0]; /* memory may be damaged */
}

/* Time since weir_open, by the same clock as the age of the fleet's news. */
static inline uint64_t since_open_ns(const weir *w)
{
    const uint64_t now_ns = tick_time(&w->limiter) - load_relaxed(&w->limiter.shared->line.offset_ns);
    return saturating_sub(now_ns, w->fleet->opened_ns);
}

#endif
