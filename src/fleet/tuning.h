/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every constant of the fleet layer that was chosen by measurement or by judgement. Names: none; constants alone.
 *
 * Each entry says what the constant is, what half and double the value made of the figures, and which runs show that.
 * The runs are of weir-fleetsim, with --delay 1-5 and the mean over --seed 1, 2 and 3:
 *
 *   skew      --limit bucket:1000/1s:2000 --nodes 16 --demand 3 --pattern skew --seconds 30
 *   jump      --limit bucket:1000/1s:200 --nodes 4 --demand 0.9 --pattern jump --seconds 20
 *   burst     --limit bucket:100/1s:100 --nodes 8 --demand 1.5 --pattern burst --seconds 30
 *   turns     --limit bucket:200/1s:200 --nodes 8 --demand 1.2 --pattern turns --seconds 30
 *   window    --limit fixed:1000/2s --nodes 16 --demand 2 --seconds 30
 *   sliding   --limit sliding:500/5s --nodes 8 --demand 1.5 --pattern turns --seconds 40
 *   small     --limit sliding:10/1s --nodes 16 --demand 3 --seconds 30
 *   log       --limit log:300/5s --nodes 8 --demand 2 --pattern onoff --seconds 40
 *   leaky     --limit leaky:100/1s:50 --nodes 8 --demand 1.2 --pattern skew --seconds 30
 *   keys      --limit fixed:100/10s --keys 500 --zipf 1 --nodes 8 --demand 2 --seconds 60
 *   manykeys  --limit bucket:50/1s:100 --keys 300 --zipf 0.8 --nodes 8 --demand 1.2 --seconds 40
 *   cut       --limit bucket:500/1s:500 --nodes 8 --demand 1.5 --partition 2-3@10-20 --loss 0.01 --seconds 40
 *   cutwindow the run "cut" with --limit fixed:500/2s
 *   down      the run "cut" with --redis-down 10-20 in place of the partition and the loss
 *   empty     --limit sliding:500/5s --nodes 8 --demand 1.5 --redis-empty 17 --seconds 40
 *   rollback  --limit fixed:2000/20s --keys 50 --zipf 0.5 --nodes 8 --demand 1 --redis-rollback 25:3000 --seconds 60
 *   kill      --limit bucket:500/1s:500 --nodes 8 --demand 1.2 --kill 1-2@15 --seconds 40
 *   slow      the run "cut" with --redis-slow 10-20:500 for 30 s in place of the partition and the loss
 *   clock     --limit fixed:500/2s --nodes 4 --demand 1.5 --drift 500 --clock 1=30 --seconds 60, with --delay 5-60
 *
 * Any change moves single figures by chance: most in a window by 0.1 in "burst", false denials by 0.0008 in "clock",
 * of "cut" by 0.0014. "No effect" says that nothing moved by more than that. "Judgement" says that no figure or test
 * tells a better value. The constants of process/allowance.h and allowance.c stay there: process must not include
 * fleet.
 */
#ifndef WEIR_FLEET_TUNING_H
#define WEIR_FLEET_TUNING_H

#include <assert.h>
#include <stdint.h>

#include "base/numbers.h"
#include "process/allowance.h"

/* --- Size of a round -------------------------------------------------------------------------------------------- */

/*
 * Most reports in one round; the rest goes in the next round, which follows at once. Above: a round takes longer to
 * gather, and Redis longer to answer it. Below: more rounds after an outage. No effect on the runs at half or double,
 * but bytes a round. fleet_test: more keys in an interval than a round holds.
 */
#define ROUND_REPORTS 1000

/*
 * A fleet has one part for each so many nodes, and the authors of a part are in one hash (counts.lua). Redis looks
 * through a small hash field by field. Half: 600 nodes take 8.5 KB a record instead of 7.7. Double: their reports cost
 * Redis 2 us more (bench/redis_cost.py). No effect on the runs, which have fewer nodes.
 */
#define PART_NODES 150

/* Most sliding logs in one round: each has a buffer of 3.5 KiB. No effect on the runs. full_sync_test fills a round. */
#define ROUND_HISTORIES 128

/* Most refunded units of one log that a round reports. Judgement: no run refunds that many. */
#define ROUND_REFUNDS 1000

/* Most evicted keys in one round. Judgement: with two windows each they fill half of it. full_sync_test. */
#define ROUND_EVICTED 256

/*
 * How long the background thread gathers, and sweeps, at a time. Above: the tick of 1 ms comes late. Below: more rounds
 * for as many keys. sweep_test and full_sync_test hold it with a clock that creeps; the value is judgement. Naps come
 * on top of it: a tick that comes late by them is made by a thread that checks (tick.c).
 */
#define GATHER_SLICE_NS (500 * NS_PER_US)
#define SWEEP_SLICE_NS  (500 * NS_PER_US)

/*
 * Cells visited between two looks at the clock, and two naps of the background thread. Judgement: a look costs about as
 * much as a visit, and so many reports take some 100 us.
 */
#define CLOCK_EVERY_CELLS 64

/* --- When a key is reported --------------------------------------------------------------------------------------- */

/*
 * A key is reported when its unreported units are this part of the headroom, divided among the nodes: what all nodes
 * have not reported is less than an eighth of it. Double: manykeys 26 % more reports, accuracy equal. Half: 39 % fewer,
 * "kill" denies 1.1 % falsely, not 0.8 %, and "keys" needs 13 % more rounds.
 */
#define DUE_SHARE 8

/* Or this part of the headroom that is left to this node. Half, double: no effect but 1 % of "rollback"'s reports. */
#define DUE_OWN_SHARE 4

/*
 * A deferred key is scanned once in so many intervals; a scanned key is reported when half as much is due, and at the
 * latest after AGE_INTERVALS. Above: news of idle keys is older. Below: more reports. fleet_test measures both.
 */
#define SCAN_INTERVALS 16
#define AGE_INTERVALS  150

/*
 * For so many intervals after a window's end the other nodes may still report units of it. Double: "small" and
 * "cutwindow" 21 % more reports. At 1: 14 % fewer reports in "window" and "cutwindow", accuracy equal; but units of an
 * idle node, which speaks every second interval, would be missed.
 */
#define BEFORE_INTERVALS 3

/* A sliding window's previous window is read again every so many intervals. Half: 2 % more reports in "small". */
#define BEFORE_EVERY 8

/*
 * A key whose requests are all denied is read every so many intervals: units may have been refunded elsewhere. Half:
 * under 1 % more reports. Double: no effect on the runs; a refund is heard later.
 */
#define DENIED_EVERY 4

/* --- When a round comes */

/*
 * How soon after a round an urgent one may follow. Double: "burst" admits 1.04, not 0.80, of what one limiter would,
 * and at most 1.22 of the limit; but it denies 2.6 % falsely, not 9.2 %. Half: 4 % more rounds in "burst", nothing
 * better.
 */
#define URGENT_NS (10 * NS_PER_MS)

/*
 * The interval is so many times longer while no thread checks. Above: an idle node is taken for suspect. Below: more
 * rounds of idle nodes. The runs have no idle node, and no unit test fails at half or double. Judgement.
 */
#define IDLE_INTERVALS 2

/*
 * After an outage a node's rounds return to their moment of the interval by this part of an interval each. Above: nodes
 * report at one moment for longer. At 1 the first two reports are close to each other, and show other nodes too small a
 * demand. A window of four nodes then had a second of 1.18 where Redis flapped. Half, double: not measured.
 */
#define PHASE_DIVISOR 8

/*
 * Rounds of two nodes move apart when they were closer than the interval / (SPREAD_DIVISOR * nodes) SPREAD_ROUNDS
 * times. Less than SPREAD_LEAST_NS is not measurable: clocks differ, and ticks come late. With coinciding rounds four
 * nodes had seconds of up to 1.10 of a fixed window. Half, double: not measured.
 */
#define SPREAD_DIVISOR  4
#define SPREAD_ROUNDS   8
#define SPREAD_LEAST_NS (2 * NS_PER_MS)

/* The transport is stepped at least so often, to notice a timeout. No effect on the runs. */
#define TRANSPORT_STEP_NS (50 * NS_PER_MS)

/*
 * While nodes are awaited, a node asks so often in an interval whether they are back. Double: 107 % more rounds in
 * "cut", and "cutwindow" denies 5.3 % falsely, not 3.6 %. Half: "cut" 23 % fewer rounds, 0.4 s longer to recover, and
 * at most 1.15, not 1.04, of the limit in "cutwindow".
 */
#define ASK_DIVISOR 8

/* A resync that only sums call for comes at most once in the time of so many. Half, double: no effect. Judgement. */
#define RESYNC_EVERY 2

/* How often the log says that the fleet has lost its data. */
#define LOST_LINES_NS (600 * NS_PER_S)

/* A resync reports the table in so many intervals. Half, double: no effect on "empty"; it spreads the load on Redis. */
#define RESYNC_INTERVALS 4

/*
 * Within RESYNC_CALM intervals the next resync takes so many times as long, up to RESYNC_MOST intervals. With one pace
 * a Redis that had room for 6,000 values, for 8,000 keys and a neighbour, evicted 4.2 times as many as for the
 * neighbour alone, and not 1.8 times. At 8: 1.3 times; but a second resync of idle nodes would take longer than a
 * bucket has to be repaired (REPAIR_US in report_bucket.lua).
 */
#define RESYNC_SLOWER 4
#define RESYNC_MOST   1024
#define RESYNC_CALM   4096

/* Attempts to settle all grants for weir_sync while other threads settle too. Judgement. */
#define SETTLE_PASSES 100

/* --- Outages and other nodes */

/*
 * Without a heartbeat for so many intervals a node is suspect. Double: "cut" admits 1.036, not 1.007, of one limiter,
 * and at most 1.47, not 1.32, of the limit. At 2: most in a window of "cutwindow" 1.10, not 1.04.
 */
#define NODE_SUSPECT_INTERVALS 3

/*
 * A node without a good round for so many intervals was away: it asks before it reports, and awaits the others. Double:
 * at most 1.13, not 1.04, of the limit in "cutwindow". At 2: no effect on the runs, but share_test fails: a reset is
 * lost with the answers.
 */
#define OUTAGE_INTERVALS 3

/*
 * A round that takes longer than so many half intervals is slow: with the pause before it, its news may be older than
 * a grace. Double: at most 1.30, not 1.20, of the limit in "slow". At 2: no effect.
 */
#define SLOW_HALF_INTERVALS 3

/*
 * Without a good round for so many intervals a policy enters its outage mode, where the policy does not say; and the
 * least that a policy may say: news is an interval old before the next answer comes. Half, double: no effect on the
 * runs within chance.
 */
#define GRACE_INTERVALS       3
#define GRACE_LEAST_INTERVALS 2

/* Without a heartbeat for so many intervals a node has failed; but not before the minimum. Judgement. */
#define LIFETIME_INTERVALS UINT64_C(20)
#define LIFETIME_MIN_NS    (10 * NS_PER_S)

/*
 * Awaited nodes have an interval plus this part of it to hear that all are back, and an interval less this part of it
 * to report: together two intervals. Judgement.
 */
#define SETTLE_DIVISOR 4

/*
 * A bucket that owes more than its burst by this part of it was charged without being asked (weir_charge). Not measured
 * at half and double. Judgement.
 */
#define CHARGED_DIVISOR 8

/* --- Demand */

/*
 * A key is urgent when more than this part of its headroom was used since the answer. Double: "turns" 24 % more
 * reports, accuracy equal. Half: 21 % fewer in "turns" and 47 % fewer in "leaky", accuracy equal within chance.
 */
#define URGENT_THRESHOLD_DIVISOR 8

/* Fewer units between two inspections tell no rate. Half: 13 % more reports in "turns". Double: 7 % fewer. */
#define RECENT_UNITS 8

/* Local demand has risen when it grew by more than this part, and not by chance. Half, double: no effect. */
#define RISE_DIVISOR 4

/*
 * A rise is no chance from so many standard deviations of the number of units on. A node in an outage keeps the rate
 * that it had last. At 0, a fleet with an urgent round just before an outage let 1.12 of the limit pass for three
 * seconds (events_test, flapping, seed 144). Half, double: not measured.
 */
#define RISE_DEVIATIONS UINT64_C(3)

/*
 * Remote demand has fallen when it fell by more than this part. Double: "small" admits 1.24, not 1.19, of one limiter.
 * Half: no effect.
 */
#define FALL_DIVISOR 4

/*
 * Demand that changed by this factor makes its key urgent sooner, for so many intervals. Factor 1: 105 % more rounds in
 * "jump", and "sliding" denies 2.6 % falsely, not 2.1 %. Factor 4: no effect but 19 % fewer reports in "leaky". Twice
 * the intervals: 42 % more reports in "turns". Half: 21 % fewer, accuracy equal.
 */
#define CHANGE_FACTOR    2
#define CHANGE_INTERVALS 4

/* Demand that grew by this factor is treated as a first contact. No effect on the runs. Half: forgotten_test fails;
 * double: no unit test does. */
#define SURGE_FACTOR 8

/*
 * Below so many units for each node, sharing in proportion to demand is too coarse. At 1: "small" admits 1.65, not
 * 1.19, of one limiter. At 4: 1.15, and 5.3 %, not 4.6 %, denied falsely.
 */
#define OVERSUBSCRIBED_UNITS 2

/* A heartbeat is late by this part of an interval. Half, double: no effect. Judgement. */
#define LATE_DIVISOR 32

/*
 * News that is older than an interval by more than this part of the time since the last answer tells no rate. Without
 * a bound up to 1.21 of the limit passed in a second, with one of an interval 1.10 (events_test, flapping, a bucket
 * with a burst of 500, 100 seeds). Half, double: not measured.
 */
#define LATE_SPAN_DIVISOR 8

/*
 * A silent node is presumed to have at most so many equal shares of the demand. Half: "cut" admits 1.013, not 1.007, of
 * one limiter, which may be chance. Double: no effect.
 */
#define PRESUMED_FACTOR 16

/*
 * When the same nodes have been silent for so many intervals, one answer moves the rate of the others by this part of
 * what it would. Without: a log has 1.147 of the limit in a second, not 1.053 (halves_test, seed 278). From the start
 * of the silence on: 1.072 (seed 271). Half, double: not measured.
 */
#define SILENCE_INTERVALS UINT64_C(6)
#define SILENCE_DIVISOR   4

/*
 * A node waits interval / 4 after first contact, and learns demand from answers 3/4 interval apart or more. At 8:
 * "burst" admits 1.14, not 0.80, of one limiter, and 1.36 of the limit at most. At 2: "turns" denies 6.2 % in the worst
 * second, not 1.7 %.
 */
#define WAIT_DIVISOR 4

/*
 * The first rates of a log on a new node wait for every node's report for at most so many intervals. Without the wait
 * two of 1,200 seeds have more in a second: 1.164 of the limit, not 1.083, and 1.097, not 1.014 (joins_test, seeds 506
 * and 896). Half, double: no effect on seed 506.
 */
#define FIRST_RATE_INTERVALS 2

/*
 * A new node takes a log for kept full where the other nodes have all but this part of the limit, and leaves these this
 * part. Without: 1.090, 1.085 and 1.084 of the limit in a second, not 1.025, 1.038 and 1.011 (joins_test, seeds 145,
 * 256 and 45). Twice the part that is left: 1.134, not 1.099, where it is left during bursts, too (seed 59).
 */
#define FULL_DIVISOR    8
#define UNAWARE_DIVISOR 4

/*
 * For so many intervals after a node has joined, local demand that falls and remote demand that rises are believed at
 * once, and remote demand that falls is not. Where only the rise was believed, a fixed window had 1.062 of the limit in
 * a second, not 1.048 (joins_test, 300 seeds). Half: 1.079 of a fixed window (joins_test, seed 59), and 1.095 of a
 * sliding one. Double: the worst seconds stay, the least second of a bucket is 0.989 on average, not 0.992.
 */
#define JOINED_INTERVALS 2

/*
 * What the fleet admitted below its limit while requests were denied is made up for within so many intervals. Of an
 * interval without denials this part is made up for: else an unused bucket would admit more than its burst. Half,
 * double: no effect on the runs, and no unit test fails. Judgement.
 */
#define CREDIT_INTERVALS 1
#define CREDIT_DIVISOR   8

/* --- Records in Redis: how long they outlive their use. The runs do not depend on them. */

/* A bucket's record stays so long after it is full again: a node may be away, or its clock wrong, for a minute. Half:
 * sweep_test fails (the way back from an outage outlasts the record). */
#define BUCKET_SLACK_MS 60000

/* Slack for clocks and delays on a window's record, which is needed until the end of the window after it. */
#define WINDOW_SLACK_MS 1000

/* Slack for clocks and delays on a sliding log's record. */
#define HISTORY_SLACK_MS 1000

/* Two nodes' clocks may be so far apart before each takes the other's expired units for lost ones. Judgement. */
#define HISTORY_SKEW_NS (100 * NS_PER_MS)

/* --- Fleet time */

/* The clock filter keeps the best of so many samples. Half, double: no effect on "clock" within chance. */
#define CLOCK_SAMPLES 8

/* Fleet time gains or loses at most this part of the time that passes. Half, double: no effect on "clock". */
#define CLOCK_SLEW_DIVISOR 100

/* A first error above this moves the keys' states; a smaller one is slewed. Half, double: no effect on "clock". */
#define CLOCK_FIRST_STEP_NS ((int64_t) 20 * 1000 * 1000)

/*
 * An error above CLOCK_STEP_NS is no drift: a clock was set. So many samples must say so; until then the node's
 * heartbeats look as late as the error is. Judgement.
 */
#define CLOCK_STEP_SAMPLES 2
#define CLOCK_STEP_NS      ((int64_t) NS_PER_S)

/* An error this far back is stepped, and the keys' states move with it; a smaller one is slewed. Judgement. */
#define CLOCK_STEP_BACK_NS ((int64_t) 3540 * (int64_t) NS_PER_S)

/* Fleet time this far from Redis's clock is logged: neither drift nor a paused machine makes that. Judgement. */
#define CLOCK_APART_NS ((int64_t) 3600 * (int64_t) NS_PER_S)

/* A problem that does not change is logged again after so long. Judgement. */
#define LOG_AGAIN_NS (600 * NS_PER_S)

/* --- Relations --- */

static_assert(2 * ROUND_EVICTED <= ROUND_REPORTS - ROUND_REPORTS / 4,
              "keys in the table have room beside evicted ones");
static_assert(2 * ROUND_HISTORIES <= ROUND_REPORTS, "logs leave room for other keys");
static_assert(GATHER_SLICE_NS + SWEEP_SLICE_NS <= NS_PER_MS, "a step ends within a tick");
static_assert(SCAN_INTERVALS < AGE_INTERVALS, "age is looked at in a scan");
static_assert(IDLE_INTERVALS < NODE_SUSPECT_INTERVALS, "an idle node is not suspect");
static_assert(IDLE_INTERVALS < GRACE_INTERVALS, "idleness is within the grace");
static_assert(IDLE_INTERVALS < OUTAGE_INTERVALS, "idleness is no outage");
static_assert(IDLE_INTERVALS < BEFORE_INTERVALS, "the last units of an idle node are read");
static_assert(IDLE_INTERVALS < STALE_INTERVALS, "an idle node's answers are not stale");
static_assert(1 < GRACE_LEAST_INTERVALS && GRACE_LEAST_INTERVALS <= GRACE_INTERVALS, "news is an interval old");
static_assert(SLOW_HALF_INTERVALS + 2 < 2 * GRACE_INTERVALS, "a round that is not slow ends within a grace");
static_assert(PHASE_DIVISOR > WAIT_DIVISOR, "rounds that return to their moment tell rates");
static_assert(NODE_SUSPECT_INTERVALS < LIFETIME_INTERVALS, "a node is suspect before it has failed");
static_assert(RESYNC_INTERVALS < RESYNC_MOST, "resyncs grow slower");
static_assert(RESYNC_EVERY * RESYNC_MOST < RESYNC_CALM, "sums that stay short are no calm");
static_assert(CHANGE_FACTOR < SURGE_FACTOR, "a surge is a change");
static_assert(WAIT_DIVISOR > 1, "demand can be learned from two regular answers");
static_assert(CLOCK_FIRST_STEP_NS < CLOCK_STEP_NS && CLOCK_STEP_BACK_NS < CLOCK_APART_NS, "small errors are slewed");
static_assert(CLOCK_STEP_SAMPLES <= CLOCK_SAMPLES, "a step is found no later than a drift");

#endif
