/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The estimate of remote usage by mirroring: other nodes decide by the same rule as this one.
 *
 * Nodes report every interval S, each at its own phase. When an answer arrives, the reports of the remote nodes are 0
 * to S old, S/2 on average. Until the next answer nothing more is known. So at time `now` the remote units of the last
 * lag = now - answer + S/2 are unknown. Two bounds hold for them. They are at most the remote demand, remote_rate *
 * lag. And the remote nodes decide by this same rule, so at a key that is short of room they admit in proportion to
 * their demand. Let r = remote demand / local demand, and let this node have admitted `unseen` units within lag. The
 * remote nodes have then admitted about r * unseen, and will admit r more for each unit admitted here:
 *
 *     own + r * own <= headroom - r * unseen         own = (headroom - r * unseen) / (1 + r)
 *     budget = max(headroom - remote_rate * lag, own)
 *
 * The code computes the units left to the remote nodes. With H = headroom + unseen, the room when lag began,
 * headroom - own = H * r / (1 + r). This does not depend on what passes here, and r / (1 + r) is the remote fraction of
 * the demand:
 *
 *     left to remote nodes = min(remote_rate * lag, H * fraction)
 *
 * A budget of a fraction of a unit is rounded up with a probability of that fraction (`dither`), once for all requests
 * until the next answer. With a new decision for each request, many requests would round every fraction up.
 *
 * In a window that began x < S before the answer, a node of phase p has reported the units before p and none after p.
 * That is p / x of its units if p < x, and otherwise none; the mean over p is x / 2S. (S is twice the mean age of the
 * reports.)
 *
 * Demand is smoothed: the weight of older demand halves with each interval.
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

/* The old rate halved so many times, and the new rate for the rest. */
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
