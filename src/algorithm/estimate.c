/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mirror estimate.
 *
 * Nodes report every interval S, each at its own phase. When one hears an answer, what the others last said is between
 * 0 and S old, S/2 on average; from then to the next answer it is blind. So at time `now` the others' units of the last
 * lag = now - answer + S/2 are unseen. Two things are known of them: they are no more than the others were asked for,
 * remote_rate * lag; and the others decide by the same rule as this node does, so that at a key which is short of room
 * they admit in proportion to what they are asked for. With r = others' demand / own demand, and `unseen` own units
 * admitted within lag, the others have admitted about r * unseen, and will admit r more for each one admitted here:
 *
 *     own + r * own <= headroom - r * unseen         own = (headroom - r * unseen) / (1 + r)
 *     budget = max(headroom - remote_rate * lag, own)
 *
 * The code says the same the other way round, by what is left to the others. With H = headroom + unseen, the room there
 * was when lag began, headroom - own = H * r / (1 + r), which does not depend on what passes here; and r / (1 + r) is
 * the others' part of the demand:
 *
 *     left to the others = min(remote_rate * lag, H * part)
 *
 * A budget of a fraction of a unit is rounded up as often as it is large (`dither`), but once for all requests until
 * the next answer: rounded anew for each request, many requests would make every fraction a unit.
 *
 * In a window that began less than S before the answer, a node whose phase is p has told of the units before p and of
 * none after it, so of a window x old the share p / x, if p < x, else nothing; over p that is x / 2S. (S is twice the
 * age that the news has on average.)
 *
 * Demand is smoothed: what was known before an interval counts half as much after it.
 */
#include "algorithm/estimate.h"

#include "base/numbers.h"

uint64_t estimate_remote(const struct estimate *e, uint64_t own, uint64_t now_ns)
{
    const uint64_t asked = muldiv_floor(e->remote_rate, saturating_sub(now_ns, e->since_ns), NS_PER_S);
    const uint64_t own_part = FRACTION_WHOLE - e->remote_fraction;
    const uint64_t beside = muldiv_floor(saturating_mul(own, UINT64_C(1) << RATE_BITS), e->remote_fraction, own_part);
    return min_u64(asked, beside);
}

uint64_t estimate_left(const struct estimate *e, uint64_t headroom, uint64_t unseen, uint64_t now_ns)
{
    const uint64_t lag_ns = saturating_sub(now_ns, e->since_ns);
    const uint64_t all = saturating_mul(saturating_add(headroom, unseen), UINT64_C(1) << RATE_BITS);
    const uint64_t asked = muldiv_floor(e->remote_rate, lag_ns, NS_PER_S);
    const uint64_t remote = min_u64(asked, muldiv_floor(all, e->remote_fraction, FRACTION_WHOLE));
    if (remote == 0) {
        return headroom;
    }
    const uint64_t room = saturating_mul(headroom, UINT64_C(1) << RATE_BITS);
    const uint64_t whole = saturating_add(room, e->dither);
    return min_u64(saturating_sub(whole, remote) >> RATE_BITS, headroom);
}

uint64_t estimate_rate(uint64_t units, uint64_t span_ns)
{
    return min_u64(muldiv_floor(saturating_mul(units, UINT64_C(1) << RATE_BITS), NS_PER_S, span_ns), RATE_MOST);
}

/* What is left of an old rate after so many halvings, and the new one for the rest. */
static uint64_t smooth(uint64_t old, uint64_t new, uint64_t halvings)
{
    return halvings >= 64 ? new : (old >> halvings) + (new - (new >> halvings));
}

void rates_update(struct demand_rates *rates, uint64_t own, uint64_t remote, uint64_t span_ns, uint64_t interval_ns)
{
    const uint64_t halvings =
        rates->known ? max_u64(saturating_add(span_ns, interval_ns / 2) / max_u64(interval_ns, 1), 1) : 64;
    rates->local_rate = smooth(rates->local_rate, own, halvings);
    rates->remote_rate = smooth(rates->remote_rate, remote, halvings);
    rates->known = true;
}

uint32_t rates_remote_fraction(const struct demand_rates *rates, uint64_t interval_ns)
{
    const uint64_t own = max_u64(rates->local_rate, estimate_rate(1, max_u64(interval_ns, 1)));
    const uint64_t fraction = muldiv_floor(rates->remote_rate, FRACTION_WHOLE, own + rates->remote_rate);
    return (uint32_t) min_u64(fraction, FRACTION_WHOLE - 1);
}

uint64_t estimate_seen(uint64_t count, uint64_t span_ns, uint64_t age_ns, bool from_start)
{
    if (span_ns == 0 || age_ns == 0) {
        return span_ns == 0 ? 0 : count;
    }
    if (from_start && span_ns < 2 * age_ns) {
        return muldiv_floor(count, span_ns, 4 * age_ns);
    }
    return count - muldiv_floor(count, min_u64(age_ns, span_ns), span_ns);
}
