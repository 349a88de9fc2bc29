/* SPDX-License-Identifier: Apache-2.0 */
/* See unseen.h. */
#include "process/unseen.h"

#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/numbers.h"
#include "process/process.h"
#include "process/sync_state.h"

uint64_t unseen_local(const struct sync_full *sync, const struct allowance_query *query, uint64_t *since_ns)
{
    const uint64_t seen = load_relaxed(&sync->allowance.seen);
    switch (rule_kind(query->rule)) {
    case RULE_WINDOW: {
        uint64_t into_ns;
        const struct state state = window_roll(query->rule, query->state, query->now_ns, &into_ns);
        *since_ns = max_u64(*since_ns, query->now_ns - into_ns);
        const bool current = load_relaxed(&sync->allowance.seq) == window_seq(state);
        return saturating_sub(window_count(state), current ? seen : 0);
    }
    case RULE_HISTORY: {
        /* A log that was freed when it was empty counts from 0 again. */
        const uint64_t end = load_relaxed(&sync->history_end);
        return min_u64(end >= seen ? end - seen : end, history_state_count(query->state));
    }
    case RULE_BUCKET:
        return unseen_of_bucket(&sync->allowance, query->state);
    }
    return 0;
}

/*
 * Where rounds bring no answers, the sync state follows the state into the next window, and `seen` is of that window.
 * Then the estimate uses all local units of the window before, less what was reported of it.
 */
uint64_t unseen_before(const struct process *process, const struct allowance *allowance,
                       const struct allowance_query *query, bool alone)
{
    const struct rule *rule = query->rule;
    uint64_t into_ns;
    const struct state state = window_roll(rule, query->state, query->now_ns, &into_ns);
    const uint32_t ago = (window_seq(state) - load_relaxed(&allowance->seq)) & WINDOW_SEQ_MASK;
    if (!rule_slides(rule) || window_previous(state) == 0) {
        return 0;
    }
    struct estimate estimate = allowance_estimate(allowance);
    const uint64_t end_ns = query->now_ns - into_ns;
    const uint64_t start_ns = saturating_sub(end_ns, rule->period_ns);
    uint64_t known = ago == 1 ? load_relaxed(&allowance->seen) : 0;
    uint64_t merged_before = 0;
    if (ago == 0) {
        if (estimate.since_ns + process->interval_ns >= end_ns) {
            return 0; /* the answer is of this window, or of its last interval before */
        }
        const struct merged_counts merged = sync_state_merged(process, query->cell);
        known = merged_before = merged.seq == window_seq(state) ? merged.before : 0;
    }
    estimate.since_ns = ago <= 1 ? max_u64(estimate.since_ns, start_ns) : start_ns;
    estimate.remote_rate = alone ? RATE_MOST : estimate.remote_rate;
    const uint64_t local = saturating_sub(window_previous(state), known);
    const uint64_t remote = estimate_remote(&estimate, local, end_ns) >> RATE_BITS;
    return muldiv_ceil(saturating_sub(remote, merged_before), rule->period_ns - into_ns, rule->period_ns);
}

/* Presumed units of a window, as far as they count now. */
static uint64_t presumed_left_in_window(const struct allowance *allowance, const struct allowance_query *query,
                                        uint64_t presumed)
{
    const struct rule *rule = query->rule;
    uint64_t into_ns;
    const struct state state = window_roll(rule, query->state, query->now_ns, &into_ns);
    const uint32_t ago = (window_seq(state) - load_relaxed(&allowance->seq)) & WINDOW_SEQ_MASK;
    if (!rule_slides(rule)) {
        return ago == 0 ? presumed : 0;
    }
    const uint64_t newest = presumed_now(rule->limit, presumed);
    if (ago == 0) {
        const uint64_t before = presumed_before(rule->limit, presumed);
        return newest + muldiv_ceil(before, rule->period_ns - into_ns, rule->period_ns);
    }
    return ago == 1 ? muldiv_ceil(newest, rule->period_ns - into_ns, rule->period_ns) : 0;
}

uint64_t unseen_presumed(const struct allowance *allowance, const struct allowance_query *query)
{
    const uint64_t presumed = load_relaxed(&allowance->level);
    if (presumed == 0) {
        return 0;
    }
    switch (rule_kind(query->rule)) {
    case RULE_WINDOW:
        return presumed_left_in_window(allowance, query, presumed);
    case RULE_HISTORY: {
        if ((presumed & PRESUMED_HELD) != 0) {
            return presumed & ~PRESUMED_HELD;
        }
        /* The units leave the history's period one by one. */
        const uint64_t period_ns = query->rule->period_ns;
        const uint64_t age_ns = saturating_sub(query->now_ns, load_relaxed(&allowance->since_ns));
        return muldiv_ceil(presumed, saturating_sub(period_ns, age_ns), period_ns);
    }
    case RULE_BUCKET:
        return 0; /* a bucket's level has the units of silent nodes: bucket_level.c */
    }
    return 0;
}
