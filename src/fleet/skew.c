/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fleet time: the node's monotonic clock, moved to agree with the fleet's.
 *
 * Every round brings a reading of the fleet's clock, good to half its round trip. Of some rounds' readings the one with
 * the least round trip counts (as NTP's clock filter does, RFC 5905). The first reading of all is taken as it is: until
 * then there was no fleet time, only a guess by the host's wall clock, and where that was far off every key's state
 * moves with it. Later ones are slewed, so that fleet time never steps back; only far forward it steps.
 */
#include "fleet/fleet.h"

#include "algorithm/rule.h"
#include "base/numbers.h"

#define FILTER_SAMPLES 8

/* Fleet time gains or loses at most this part of the time that passes. */
#define SLEW_DIVISOR 100

/* A first error above this moves the keys' states; below, they are slewed like any other. */
#define FIRST_STEP_NS ((int64_t) 20 * 1000 * 1000)

/* An error above this is not the clocks' drift: somebody has set one. */
#define STEP_NS ((int64_t) NS_PER_S)

static uint64_t offset_of(const struct fleet *fleet)
{
    return load_relaxed(&fleet->tier->line.offset_ns); /* this thread's own stores */
}

static void step(struct fleet *fleet, const struct policy_set *set, uint64_t monotonic_ns, int64_t error_ns)
{
    tick_epoch(fleet->tier);
    (void) settle_lapsed(fleet->tier);
    report_shift_time(fleet, set, monotonic_ns + offset_of(fleet), error_ns);
    tick_set_offset(fleet->tier, monotonic_ns, offset_of(fleet) + (uint64_t) error_ns, true);
}

void skew_sample(struct fleet *fleet, const struct policy_set *set, uint64_t monotonic_ns)
{
    struct skew *skew = &fleet->skew;
    const struct round *round = &fleet->round;
    const uint64_t rtt_ns = saturating_sub(round->received_ns, round->sent_ns);
    const uint64_t middle_ns = round->sent_ns + rtt_ns / 2;
    const int64_t error_ns = (int64_t) (round->fleet_wall_ns - (middle_ns + offset_of(fleet)));
    store_relaxed(&fleet->stats.clock_skew_ns, error_ns);
    if (!skew->known) {
        skew->known = true;
        if (error_ns > FIRST_STEP_NS || error_ns < -FIRST_STEP_NS) {
            step(fleet, set, monotonic_ns, error_ns);
            return;
        }
        skew->owed_ns = error_ns;
        return;
    }
    if (skew->samples == 0 || rtt_ns < skew->best_rtt_ns) {
        skew->best_rtt_ns = rtt_ns;
        skew->best_error_ns = error_ns;
    }
    if (++skew->samples < FILTER_SAMPLES) {
        return;
    }
    skew->samples = 0;
    skew->owed_ns = skew->best_error_ns;
    if (skew->owed_ns > STEP_NS) {
        tick_set_offset(fleet->tier, monotonic_ns, offset_of(fleet) + (uint64_t) skew->owed_ns, false);
        skew->owed_ns = 0;
    }
}

void skew_slew(struct fleet *fleet, uint64_t elapsed_ns)
{
    struct skew *skew = &fleet->skew;
    const int64_t most_ns = (int64_t) (elapsed_ns / SLEW_DIVISOR);
    const int64_t by_ns = skew->owed_ns > most_ns ? most_ns : skew->owed_ns < -most_ns ? -most_ns : skew->owed_ns;
    if (by_ns != 0) {
        skew->owed_ns -= by_ns;
        /* The next tick takes it from here. */
        store_relaxed(&fleet->tier->line.offset_ns, offset_of(fleet) + (uint64_t) by_ns);
    }
}
