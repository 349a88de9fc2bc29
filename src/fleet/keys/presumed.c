/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See presumed.h. The presumed rate is part of demand.rates.remote_rate while nodes are silent (demand_learn.c).
 */
#include "fleet/keys/presumed.h"

#include "base/numbers.h"
#include "fleet/state.h"
#include "process/process.h"
#include "process/sync_state.h"

uint32_t presumed_fraction(const struct demand_stats *demand)
{
    const uint64_t all = max_u64(demand->rates.local_rate + demand->rates.remote_rate, 1);
    return (uint32_t) min_u64(muldiv_floor(demand->presumed_rate, FRACTION_WHOLE, all), FRACTION_WHOLE - 1);
}

/* What silent nodes may use of a limit, by their part of the demand; in 1/65536 units. */
static uint64_t share_of(const struct demand_stats *demand, const struct rule *rule)
{
    return muldiv_floor(rule->limit << RATE_BITS, presumed_fraction(demand), FRACTION_WHOLE);
}

/* What silent nodes may have used of a log, of which units from before the silence still take a part. */
static uint64_t free_share_of(const struct demand_stats *demand, const struct rule *rule, uint64_t kept)
{
    const uint64_t share = share_of(demand, rule);
    return muldiv_floor(share, saturating_sub(rule->limit, kept), max_u64(rule->limit, 1));
}

bool presumed_held(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule, uint64_t kept)
{
    if (demand->presumed_rate == 0 || rule_kind(rule) != RULE_HISTORY || demand->silent == 0 ||
        fleet->news.peers_resume) {
        return false;
    }
    const uint64_t age_ns = fleet->news.age_ns;
    const uint64_t silent_ns =
        saturating_sub(fleet->gather.now_ns, saturating_add(fleet->membership.spoken_ns, age_ns));
    const uint64_t span_ns = min_u64(silent_ns, saturating_sub(rule->period_ns, age_ns));
    return muldiv_floor(demand->presumed_rate, span_ns, NS_PER_S) >= free_share_of(demand, rule, kept);
}

/* Units of a window, from `start_ns` to `end_ns`, that silent nodes are presumed to have used. */
static uint64_t presumed_units(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                               uint64_t start_ns, uint64_t end_ns)
{
    const uint64_t span_ns = saturating_sub(end_ns, max_u64(start_ns, fleet->membership.spoken_ns));
    const uint64_t share = share_of(demand, rule);
    /* A sliding window is used as it becomes free; a log frees at once what was admitted at once. */
    const uint64_t most = rule_slides(rule) ? muldiv_floor(share, NS_PER_S, rule->period_ns) : UINT64_MAX;
    const uint64_t asked = muldiv_floor(min_u64(demand->presumed_rate, most), span_ns, NS_PER_S);
    return (min_u64(asked, share) + (UINT64_C(1) << (RATE_BITS - 1))) >> RATE_BITS;
}

uint64_t presumed_in_window(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                            uint64_t start_ns)
{
    if (demand->presumed_rate == 0) {
        return 0;
    }
    /* What silent nodes used since the other nodes' news is in the estimate, as theirs is. */
    const uint64_t told_ns = saturating_sub(fleet->gather.now_ns, fleet->news.age_ns);
    switch (rule_kind(rule)) {
    case RULE_WINDOW: {
        const uint64_t units = presumed_units(fleet, demand, rule, start_ns, told_ns);
        if (!rule_slides(rule)) {
            return units;
        }
        const uint64_t before =
            presumed_units(fleet, demand, rule, saturating_sub(start_ns, rule->period_ns), min_u64(start_ns, told_ns));
        return presumed_pack(rule->limit, units, before);
    }
    case RULE_HISTORY: /* presumed_in_log */
    case RULE_BUCKET:
        break; /* a bucket has a level: bucket_level.c */
    }
    return 0;
}

uint64_t presumed_in_log(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                         uint64_t kept)
{
    if (demand->presumed_rate == 0) {
        return 0;
    }
    const uint64_t told_ns = saturating_sub(fleet->gather.now_ns, fleet->news.age_ns);
    const uint64_t period_ago_ns = saturating_sub(fleet->gather.now_ns, rule->period_ns);
    const uint64_t asked = presumed_units(fleet, demand, rule, period_ago_ns, told_ns);
    const uint64_t most = (free_share_of(demand, rule, kept) + (UINT64_C(1) << (RATE_BITS - 1))) >> RATE_BITS;
    return min_u64(asked, most) | (presumed_held(fleet, demand, rule, kept) ? PRESUMED_HELD : 0);
}

/*
 * Where this node was away, the other nodes may have been away as well. Then all of them were silent for a part of the
 * time, and not some of them all the time. So each answer adds what the demand of all lets expect since the last
 * answer, and takes off what was reported. With what is reported it adds up to the other nodes' fraction at most.
 */
uint64_t presumed_in_fixed(const struct fleet *fleet, const struct sync_full *sync, const struct rule *rule,
                           uint64_t start_ns, uint64_t remote)
{
    const struct demand_rates *rates = &sync->demand.rates;
    if (!fleet->news.peers_resume || sync->demand.presumed_rate == 0) {
        return presumed_in_window(fleet, &sync->demand, rule, start_ns);
    }
    const uint64_t told_ns = saturating_sub(fleet->gather.now_ns, fleet->news.age_ns);
    const uint64_t since_ns = max_u64(load_relaxed(&sync->allowance.since_ns), start_ns);
    const uint64_t asked = muldiv_floor(rates->remote_rate, saturating_sub(told_ns, since_ns), NS_PER_S) >> RATE_BITS;
    const uint64_t missing = saturating_sub(saturating_add(load_relaxed(&sync->allowance.level), asked), remote);
    const uint64_t share =
        muldiv_floor(rule->limit, rates_remote_fraction(rates, fleet->process->interval_ns), FRACTION_WHOLE);
    return min_u64(missing, saturating_sub(share, load_relaxed(&sync->now.remote)));
}

bool presumed_failed(const struct fleet *fleet, const struct demand_stats *demand)
{
    return demand->resumed && fleet->membership.failed;
}
