/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See bucket_level.h.
 *
 * Times are a bucket's own, of 1/64 ns. Rates are in 1/65536 units a second (algorithm/estimate.h).
 */
#include "fleet/keys/bucket_level.h"

#include "algorithm/bucket.h"
#include "base/numbers.h"
#include "fleet/keys/presumed.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/process.h"
#include "process/sync_state.h"

uint64_t bucket_level_rule_rate(const struct rule *rule)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
    case RULE_HISTORY:
        break;
    case RULE_BUCKET:
        return rule->unit != 0 ? muldiv_floor(NS_PER_S << BUCKET_FRACTION_BITS, UINT64_C(1) << RATE_BITS, rule->unit)
                               : UINT64_MAX;
    }
    return estimate_rate(rule->limit, rule->period_ns);
}

/* Time that so many units take to refill, of 1/65536 units. */
static uint64_t refill_time(const struct rule *rule, uint64_t units)
{
    return muldiv_ceil(units, rule->unit, UINT64_C(1) << RATE_BITS);
}

/* What the other nodes use of a bucket in a time, as time. */
static uint64_t flow(const struct rule *rule, uint64_t remote_rate, uint64_t remote_fraction, uint64_t span_ns)
{
    const uint64_t rate =
        min_u64(remote_rate, muldiv_floor(bucket_level_rule_rate(rule), remote_fraction, FRACTION_WHOLE));
    return refill_time(rule, muldiv_floor(rate, span_ns, NS_PER_S));
}

/* The level by now, with `count` local units and the units that the other nodes have used since the last answer by the
 * estimate. */
static uint64_t level_now(const struct sync_full *sync, const struct rule *rule, uint64_t count, uint64_t now_ns)
{
    const struct allowance *allowance = &sync->allowance;
    const struct estimate estimate = {.remote_rate = load_relaxed(&allowance->remote_rate),
                                      .remote_fraction = load_relaxed(&allowance->remote_fraction),
                                      .since_ns = load_relaxed(&allowance->since_ns)};
    const uint64_t since = (count - load_relaxed(&allowance->seen)) & BUCKET_TOTAL_MASK;
    const uint64_t own = since <= BUCKET_TOTAL_MASK / 2 ? since : 0;
    const uint64_t remote = refill_time(rule, estimate_remote(&estimate, own, now_ns));
    return saturating_add(load_relaxed(&allowance->level), saturating_add(saturating_mul(own, rule->unit), remote));
}

uint64_t bucket_level_reported(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule,
                               uint64_t count, uint64_t now_ns)
{
    const struct allowance *allowance = &sync->allowance;
    const uint64_t ahead = flow(rule, load_relaxed(&allowance->remote_rate), load_relaxed(&allowance->remote_fraction),
                                fleet->process->interval_ns / 2);
    return saturating_sub(level_now(sync, rule, count, now_ns), ahead);
}

/*
 * The level of a bucket as of an answer (struct allowance).
 *
 * For the fleet it is what has been reported, and what the other nodes used in the time that their news is old. How old
 * each node's news is, is not known: as much may be missing again, or be too much. Within that range the level stays
 * what this node has made of it, so that of a bucket that is asked for too often each node keeps its share, whenever it
 * reports. What goes beyond the range was admitted, or was not, and is made up for. So in the long run the fleet admits
 * what refills.
 */
uint64_t bucket_level_answer(const struct fleet *fleet, const struct bucket_level_input *input,
                             const struct demand_rates *rates, const struct estimate *estimate)
{
    const struct sync_full *sync = input->sync;
    const struct rule *rule = input->rule;
    const struct report *report = input->report;
    const struct state state = input->state;
    const struct demand_stats *demand = &sync->demand;
    const struct allowance *allowance = &sync->allowance;
    const uint64_t now = bucket_time(rule, fleet->gather.now_ns);
    const uint64_t ahead = flow(rule, rates->known ? rates->remote_rate : estimate->remote_rate,
                                estimate->remote_fraction, fleet->news.age_ns);
    const uint64_t known = (report->count - demand->known_total) & BUCKET_TOTAL_MASK;
    const uint64_t counts =
        saturating_add(demand->known_time, saturating_mul(known <= BUCKET_TOTAL_MASK / 2 ? known : 0, rule->unit));
    uint64_t level = saturating_add(counts, ahead);
    if (load_relaxed(&allowance->level) != 0) {
        const uint64_t unseen = (bucket_total(state) - report->count) & BUCKET_TOTAL_MASK;
        level = max_u64(level_now(sync, rule, report->count, fleet->gather.now_ns),
                        saturating_sub(state.a, saturating_mul(unseen, rule->unit)));
        /* While nodes are silent, the level that this node goes by stays. What was presumed of nodes that no longer
         * count is over; the next report tells the fleet. */
        const bool keeps = demand->presumed_rate != 0;
        level = keeps ? level : max_u64(level, counts + ahead / 2);
        level =
            keeps || presumed_failed(fleet, demand) ? level : min_u64(level, saturating_add(counts, ahead + ahead / 2));
    }
    const uint64_t interval = fleet->process->interval_ns << BUCKET_FRACTION_BITS;
    const uint64_t credit =
        demand->denied && demand->denied_before ? CREDIT_INTERVALS * interval : interval / CREDIT_DIVISOR;
    return max_u64(level, saturating_sub(now, credit));
}
