/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fleet time: the node's monotonic clock plus an offset, moved to agree with the fleet's clock.
 *
 * Every round brings a reading of the fleet's clock, good to half its round trip. Of some rounds' readings the reading
 * with the least round trip counts (as in NTP's clock filter, RFC 5905). Before the first reading of all, fleet time is
 * a guess by the host's wall clock. A guess within half a round trip of the first reading may be right, and stays. A
 * guess further off moves by the rest; where the rest is large, every key's state moves with the time. Later readings
 * are slewed, so that fleet time never steps back; only far forward it steps. The fleet's time does not go back either,
 * whatever Redis's clock does (redis/scripts/heartbeat.lua). Only a fleet that has lost all its data may begin earlier,
 * by the time of the node that joined first: then the states move once more.
 *
 * Progress: fleet_clock_step waits for readers (rcu_synchronize) in a step back, in the background thread.
 */
#include "fleet/fleet_log.h"
#include "fleet/state.h"
#include "fleet/tuning.h"

#include <inttypes.h>

#include "base/numbers.h"
#include "process/process.h"
#include "thread/rcu.h"
#include "thread/rcu_lane.h"
#include "thread/settle_pass.h"
#include "thread/tick.h"

/* The value in -most .. most that is nearest to `value`. */
static int64_t clamp(int64_t value, int64_t most)
{
    if (value > most) {
        return most;
    }
    return value < -most ? -most : value;
}

static uint64_t offset_of(const struct fleet *fleet)
{
    return load_relaxed(&fleet->line->offset_ns); /* this thread's own stores */
}

/*
 * Begins a step. The clock and the states of all keys cannot move at once: there may be a hundred million keys. During
 * a step the clock lags the keys: it moves first when stepping back, last when stepping on. Keys ahead of the clock are
 * denied until the sweep reaches them; what is counted behind it meanwhile is dropped. The other way round a key might
 * be denied for as long as the step is.
 *
 * Buckets stay as they are: the origin of their times moves, for all buckets at once, while the clock lags. So no check
 * ever goes by the later time and the earlier origin.
 */
static void begin_step(struct fleet *fleet, uint64_t monotonic_ns, int64_t error_ns)
{
    struct limiter *limiter = fleet->limiter;
    tick_epoch(limiter);
    (void) settle_lapsed(limiter);
    sketch_shift(&fleet->process->sketch, error_ns);
    if (error_ns < 0) {
        tick_set_offset(limiter, monotonic_ns, offset_of(fleet) + (uint64_t) error_ns, true);
        (void) settle_lapsed(limiter);
    }
    fleet->clock.step_ns = error_ns;
    fleet->clock.readers_drained = error_ns > 0;
    fleet->clock_shift.cells_done = 0;
}

void fleet_clock_step(struct fleet *fleet, uint64_t monotonic_ns)
{
    struct fleet_clock *clock = &fleet->clock;
    const int64_t step_ns = clock->step_ns;
    if (step_ns == 0) {
        return;
    }
    if (!clock->readers_drained) {
        /* A check that read the time before it went back would charge a key that has moved as of that time. */
        if (!rcu_synchronize(fleet->limiter) || !fleet->clock.move_origin(fleet->clock.move_arg, step_ns)) {
            return;
        }
        clock->readers_drained = true;
    }
    const int64_t done_ns = step_ns < 0 ? step_ns : 0;
    const unsigned lane = rcu_enter_lane(fleet->limiter);
    const bool done = clock_shift_step(fleet, process_policies(fleet->process),
                                       monotonic_ns + offset_of(fleet) - (uint64_t) done_ns, step_ns);
    rcu_leave_lane(fleet->limiter, lane);
    if (!done || (step_ns > 0 && !fleet->clock.move_origin(fleet->clock.move_arg, step_ns))) {
        return;
    }
    if (step_ns > 0) {
        tick_set_offset(fleet->limiter, monotonic_ns, offset_of(fleet) + (uint64_t) step_ns, true);
        tick_news(fleet->limiter,
                  fleet->news.good_ns + offset_of(fleet)); /* it was stored by the time before the step */
    }
    clock->step_ns = 0;
    clock->known = true;
}

void fleet_clock_sample(struct fleet *fleet, uint64_t monotonic_ns)
{
    struct fleet_clock *clock = &fleet->clock;
    const struct round *round = &fleet->round;
    /* At least 1, as a least_rtt_ns of 0 stands for none. By a clock that is moved by hand an answer takes no time. */
    const uint64_t rtt_ns = max_u64(saturating_sub(round->received_ns, round->sent_ns), 1);
    const uint64_t middle_ns = round->sent_ns + rtt_ns / 2;
    const int64_t error_ns = (int64_t) (round->fleet_wall_ns - (middle_ns + offset_of(fleet)));
    store_relaxed(&fleet->stats.clock_skew_ns, error_ns);
    if (!clock->known) {
        const int64_t certain_ns = error_ns - clamp(error_ns, (int64_t) (rtt_ns / 2));
        if (certain_ns > CLOCK_FIRST_STEP_NS || certain_ns < -CLOCK_FIRST_STEP_NS) {
            begin_step(fleet, monotonic_ns, certain_ns);
            return;
        }
        clock->known = true;
        clock->slew_left_ns = certain_ns;
        return;
    }
    if (clock->samples == 0 || rtt_ns < clock->best_rtt_ns) {
        clock->best_rtt_ns = rtt_ns;
        clock->best_error_ns = error_ns;
    }
    clock->least_rtt_ns = clock->least_rtt_ns == 0 ? rtt_ns : min_u64(clock->least_rtt_ns, rtt_ns);
    if (++clock->samples <
        (error_ns > CLOCK_STEP_NS && clock->best_error_ns > CLOCK_STEP_NS ? CLOCK_STEP_SAMPLES : CLOCK_SAMPLES)) {
        return;
    }
    clock->samples = 0;
    /* What this round trip took longer than the shortest may have been on either way: so much of the error is doubtful.
     */
    const int64_t doubt_ns = (int64_t) ((clock->best_rtt_ns - clock->least_rtt_ns) / 2);
    const int64_t found_ns = clock->best_error_ns;
    clock->slew_left_ns = found_ns - clamp(found_ns, doubt_ns);
    if (clock->slew_left_ns > CLOCK_STEP_NS) {
        tick_set_offset(fleet->limiter, monotonic_ns, offset_of(fleet) + (uint64_t) clock->slew_left_ns, false);
        clock->slew_left_ns = 0;
    } else if (clock->slew_left_ns < -CLOCK_STEP_BACK_NS) {
        begin_step(fleet, monotonic_ns, clock->slew_left_ns);
        clock->slew_left_ns = 0;
    }
}

void fleet_clock_report(struct fleet *fleet)
{
    struct fleet_clock *clock = &fleet->clock;
    const int64_t ahead_ns = fleet->round.ahead_ns;
    const int64_t since_ns = ahead_ns - clock->logged_ahead_ns;
    const bool apart = ahead_ns > CLOCK_APART_NS || ahead_ns < -CLOCK_APART_NS;
    const char *server = fleet->transport->ops->server(fleet->transport);
    /* Fleet time approaches Redis's clock by 1/256: no line is logged for that. */
    if (!apart && clock->logged_ahead_ns != 0) {
        clock->logged_ahead_ns = 0;
        fleet_log(fleet, WEIR_LOG_INFO, "%s: its clock agrees with the fleet's time again, to an hour", server);
    } else if (apart && (clock->logged_ahead_ns == 0 || since_ns > CLOCK_APART_NS || since_ns < -CLOCK_APART_NS)) {
        clock->logged_ahead_ns = ahead_ns;
        const uint64_t by_s = (uint64_t) (ahead_ns > 0 ? ahead_ns : -ahead_ns) / NS_PER_S;
        fleet_log(
            fleet, WEIR_LOG_WARNING,
            "%s: its clock is %" PRIu64 " days %" PRIu64 " h %" PRIu64
            " min %s the fleet's time: it was set, or another server has taken over. Limits go on by the fleet's "
            "time; calendar days and months end %s by as much. If the clock is wrong, set it right; if it is right, "
            "%s",
            server, by_s / 86400, by_s / 3600 % 24, by_s / 60 % 60, ahead_ns > 0 ? "behind" : "ahead of",
            ahead_ns > 0 ? "too early" : "too late",
            ahead_ns > 0 ? "start all nodes with another prefix, by which limits begin anew"
                         : "set the clocks of the nodes' hosts, and the fleet follows");
    }
}

void fleet_clock_slew(struct fleet *fleet, uint64_t elapsed_ns)
{
    struct fleet_clock *clock = &fleet->clock;
    const int64_t most_ns = (int64_t) (elapsed_ns / CLOCK_SLEW_DIVISOR);
    const int64_t by_ns = clamp(clock->slew_left_ns, most_ns);
    if (by_ns != 0) {
        clock->slew_left_ns -= by_ns;
        /* The next tick reads the offset here. */
        store_relaxed(&fleet->line->offset_ns, offset_of(fleet) + (uint64_t) by_ns);
    }
}
