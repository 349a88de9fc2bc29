/* SPDX-License-Identifier: Apache-2.0 */
/* See presumed.h. */
#include "fleet/presumed.h"

#include "base/numbers.h"
#include "fleet/state.h"

/* The part that nodes which have not spoken lately have of all demand. */
uint32_t presumed_fraction(const struct demand_stats *demand)
{
    const uint64_t all = max_u64(demand->rates.local_rate + demand->rates.remote_rate, 1);
    return (uint32_t) min_u64(muldiv_floor(demand->presumed_rate, FRACTION_WHOLE, all), FRACTION_WHOLE - 1);
}

/* Units of a window, from `start_ns` to `end_ns`, that they are presumed to have used. */
static uint64_t presumed_units(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                               uint64_t start_ns, uint64_t end_ns)
{
    const uint64_t span_ns = saturating_sub(end_ns, max_u64(start_ns, fleet->membership.spoken_ns));
    const uint64_t share = muldiv_floor(rule->limit << RATE_BITS, presumed_fraction(demand), FRACTION_WHOLE);
    /* What slides is used as it becomes free; a log frees in an instant what passed in one. */
    const bool slides = rule->algorithm == WEIR_SLIDING_WINDOW;
    const uint64_t most = slides ? muldiv_floor(share, NS_PER_S, rule->period_ns) : UINT64_MAX;
    const uint64_t asked = muldiv_floor(min_u64(demand->presumed_rate, most), span_ns, NS_PER_S);
    return (min_u64(asked, share) + (UINT64_C(1) << (RATE_BITS - 1))) >> RATE_BITS;
}

/* What they are presumed to have used that counts now, as the mirror's level. */
uint64_t presumed_in_window(const struct fleet *fleet, const struct demand_stats *demand, const struct rule *rule,
                            uint64_t start_ns)
{
    if (demand->presumed_rate == 0) {
        return 0;
    }
    /* What they used since the others' news is in the estimate, as the others' is. */
    const uint64_t told_ns = saturating_sub(fleet->gather.now_ns, fleet->news.age_ns);
    start_ns = rule_has_history(rule) ? saturating_sub(fleet->gather.now_ns, rule->period_ns) : start_ns;
    const uint64_t units = presumed_units(fleet, demand, rule, start_ns, told_ns);
    if (rule->algorithm != WEIR_SLIDING_WINDOW) {
        return units;
    }
    const uint64_t before =
        presumed_units(fleet, demand, rule, saturating_sub(start_ns, rule->period_ns), min_u64(start_ns, told_ns));
    return presumed_pack(rule->limit, units, before);
}

bool presumed_failed(const struct fleet *fleet, const struct demand_stats *demand)
{
    return demand->resumed && fleet->membership.failed;
}
