/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See demand.h. Local demand is counted when a cell is inspected: units admitted since the last inspection, and units
 * denied.
 *
 * Invariant: sync_counts.demand is the demand that this node reports for a window, and it never decreases. Units denied
 * after the last inspection of a window count in the next window.
 */
#include "fleet/keys/demand.h"
#include "base/numbers.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/process.h"

void demand_begin(struct sync_full *sync)
{
    sync->demand.recent_units = 0;
}

void demand_local(struct sync_full *sync, struct sync_counts *counts, uint64_t own)
{
    const uint64_t more = saturating_sub(own, counts->own);
    counts->own += more;
    counts->demand = saturating_add(counts->demand, more);
    sync->demand.local_demand += more;
    sync->demand.recent_units += more;
}

/* Whether so many units are more than a rate lets expect: by three standard deviations of their number. */
static bool exceeds_chance(uint64_t units, uint64_t span_ns, uint64_t rate)
{
    const uint64_t expected = (muldiv_floor(rate, span_ns, NS_PER_S) >> RATE_BITS) + 1;
    const uint64_t more = saturating_sub(units, expected);
    return saturating_mul(more, more) >= saturating_mul(expected, RISE_DEVIATIONS * RISE_DEVIATIONS);
}

/* Takes the rate of `units` in the time since the last inspection. An inspection 10 ms after another tells no rate of a
 * key that is used 700 times a second: then the rate before it stays for an interval. */
static void demand_recent(struct demand_stats *demand, uint64_t units, uint64_t span_ns, uint64_t now_ns,
                          uint64_t interval_ns)
{
    if (units >= RECENT_UNITS) {
        demand->recent_rate = estimate_rate(units, span_ns);
        demand->recent_ns = now_ns;
        demand->risen = exceeds_chance(units, span_ns, demand->rates.local_rate);
    } else if (now_ns >= demand->recent_ns + interval_ns) {
        demand->recent_rate = 0;
    }
}

uint64_t demand_denied(const struct fleet *fleet, struct sync_full *sync, uint64_t into_ns, uint64_t period_ns,
                       uint64_t now_ns)
{
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t denied = load_relaxed(&sync->denied) != 0 ? exchange_acquire(&sync->denied, 0) : 0; /* statistics */
    /* More than any limit admits tells nothing more. */
    const uint64_t more = min_u64(denied, WEIR_MAX_UNITS);
    sync->demand.local_demand += more;
    /* A cell is inspected within an interval of its use, or after an outage in the first round. */
    const uint64_t inspected_ns = load_relaxed(&sync->allowance.inspected_ns);
    const uint64_t most_ns = max_u64(interval_ns, saturating_sub(now_ns, fleet->gather.before_ns));
    const uint64_t span_ns = max_u64(min_u64(now_ns - inspected_ns, most_ns), 1);
    /* Most of what was denied in an outage was denied in earlier windows. */
    const bool earlier = into_ns < span_ns && span_ns > interval_ns + interval_ns / 2;
    sync->now.demand = saturating_add(sync->now.demand, earlier ? muldiv_ceil(more, into_ns, span_ns) : more);
    if (earlier) {
        const uint64_t before_ns = min_u64(span_ns - into_ns, period_ns);
        sync->before.demand = saturating_add(sync->before.demand, muldiv_floor(more, before_ns, span_ns));
    }
    sync->demand.idle =
        sync->demand.idle || inspected_ns + STALE_INTERVALS * interval_ns < now_ns - (most_ns - interval_ns);
    demand_recent(&sync->demand, sync->demand.recent_units + more, span_ns, now_ns, interval_ns);
    sync->demand.denied_before = sync->demand.denied;
    sync->demand.denied = more != 0;
    if (!sync->demand.idle) {
        store_relaxed(&sync->allowance.inspected_ns, now_ns);
    } /* else the answer is stale until there is a new one, however little was used so far */
    return more;
}

void demand_units(const struct fleet *fleet, struct sync_full *sync, uint64_t counts, uint64_t end, uint64_t now_ns)
{
    demand_begin(sync);
    /* A new full sync state does not know what was reported before; and numbers of refunded units are used again. */
    sync->now.own = sync->now.own == 0 ? counts : min_u64(sync->now.own, end);
    demand_local(sync, &sync->now, end);
    (void) demand_denied(fleet, sync, UINT64_MAX, 0, now_ns);
}

void demand_reset(struct sync_full *sync, uint64_t now_ns, uint64_t interval_ns, bool steady)
{
    struct demand_stats *demand = &sync->demand;
    if (!steady || demand->learned_ns == 0) {
        demand->learned_ns = 0;
        return;
    }
    /* The units of the last inspection came since then. */
    const uint64_t span_ns = max_u64(now_ns - min_u64(demand->learned_ns, now_ns), interval_ns);
    demand_recent(demand, demand->recent_units, span_ns, now_ns, 0);
    demand->idle = false;
    store_relaxed(&sync->allowance.inspected_ns, now_ns);
}

void demand_remote(struct sync_full *sync, struct sync_counts *counts, const struct report *report)
{
    const uint64_t demand = saturating_sub(report->sum_demand, report->demand);
    const uint64_t more = saturating_sub(demand, counts->remote_demand);
    counts->remote_demand += more;
    sync->demand.remote_demand += more;
}
