/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round settles grants that have lapsed, reports cells (gather.c), and merges the answers (merge.c).
 *
 * A regular round comes every interval. Another one follows at once while something is left over or a call of weir_sync
 * waits, and an urgent one URGENT_NS after the last round. A round that fails leaves nothing behind: its cells are
 * dirty again, and counts are cumulative, so that repeating them does no harm. Regular rounds of a node keep their
 * moment of the interval, and return to it after an outage (schedule.phase_ns). An outage ends for all nodes at one
 * time, and must not let them report at one time from then on.
 *
 * Ordering
 *   [F1] sync_calls.requests: seq_cst add by a caller of weir_sync, read with acquire by round_begin: what the caller
 *        used before the call is in the full sync.
 *   [F2] sync_calls.served: stored with release by round_finish, read with acquire by weir_sync: what the answers
 *        changed is seen after the call.
 */
#include "fleet/round.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/numbers.h"
#include "base/plain.h"
#include "base/probe.h"
#include "fleet/fleet_clock.h"
#include "fleet/fleet_log.h"
#include "fleet/keys/full_sync.h"
#include "fleet/keys/gather.h"
#include "fleet/keys/merge.h"
#include "fleet/outage.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/process.h"
#include "thread/settle_pass.h"
#include "thread/tick.h"

/* Lets every grant lapse and settles it, so that a full sync reports all there is. */
static void settle_everything(struct limiter *limiter)
{
    tick_epoch(limiter);
    for (int pass = 0; pass < SETTLE_PASSES && settle_lapsed(limiter) != 0; pass++) {
    }
}

/*
 * Whether there was no good round for so long that other nodes may have had none either. The time counts from the
 * beginning of the last good round, as that of the outage modes does: a node whose policies left the fleet's counts
 * awaits the other nodes.
 */
static bool was_away(const struct fleet *fleet, uint64_t monotonic_ns)
{
    const uint64_t last_ns = fleet->news.good_ns != 0 ? fleet->news.begun_ns : fleet->opened_ns;
    /* A node whose rounds take long, but are answered, has missed nothing. */
    return fleet->news.failed_ns != 0 && monotonic_ns - last_ns > OUTAGE_INTERVALS * fleet->process->interval_ns;
}

static uint64_t fleet_time(const struct fleet *fleet, uint64_t monotonic_ns)
{
    return monotonic_ns + load_relaxed(&fleet->line->offset_ns); /* this thread's own stores */
}

/* Begins a full sync if one is asked for, and settles grants: all of them when a full sync begins for the first time.
 */
static void begin_full_sync(struct fleet *fleet)
{
    struct full_sync *full_sync = &fleet->full_sync;
    bool settled = true;
    if (full_sync->request == 0 && full_sync_wanted(fleet) && fleet->clock.known) {
        const uint64_t request = load_acquire(&fleet->sync_calls.requests); /* [F1] */
        settled = request == full_sync->restarts;
        *full_sync = (struct full_sync){.request = request, .urgent = full_sync->urgent};
    }
    if (settled) {
        (void) settle_lapsed(fleet->limiter);
    } else {
        settle_everything(fleet->limiter);
    }
}

/* Fills in what the transport is told with the reports. */
static void fill_heartbeat(struct fleet *fleet, bool asks, uint64_t monotonic_ns)
{
    struct round *round = &fleet->round;
    round->reports = fleet->batch.reports;
    round->node = fleet->node;
    round->part = fleet->part != 0 ? fleet->part - 1 : 0;
    round->suspect_ms = NODE_SUSPECT_INTERVALS * fleet->interval_ms;
    round->leaves = fleet->leaves;
    round->asks = asks;
    round->fleet_ns = fleet->clock.known ? fleet_time(fleet, monotonic_ns) : 0;
    round->wall_ns = clock_wall_ns(fleet->node_clock);
    round->node_lifetime_ms = (uint32_t) (membership_lifetime_ns(fleet->process->interval_ns) / NS_PER_MS);
    round->first = fleet->news.good_ns == 0;
    round->sent_size = 0;
    round->overrides_new = false;
    memcpy(round->overrides_version, fleet->overrides.version, sizeof(fleet->overrides.version));
    agreement_tell(fleet, monotonic_ns);
}

/* Whether the debts of an outage are reported. A node that has lost the fleet since does not know which nodes are
 * there. */
static bool tells_debt(const struct fleet *fleet, uint64_t monotonic_ns)
{
    const bool interrupted = fleet->news.failed_ns != 0 && fleet->news.awaits_peers;
    return membership_tells(&fleet->membership, monotonic_ns) && !interrupted;
}

static __attribute__((noinline, cold)) void trace_reports(const struct fleet *fleet)
{
    for (size_t i = 0; i < fleet->round.report_count; i++) {
        const struct report *report = &fleet->round.reports[i];
        probe_report(report->record, report->count, report->demand);
    }
}

void round_begin(struct fleet *fleet, const struct policy_set *set, enum round_kind kind, uint64_t monotonic_ns)
{
    struct full_sync *full_sync = &fleet->full_sync;
    begin_full_sync(fleet);
    if (full_sync->request != 0) {
        full_sync->urgent = !full_sync->urgent && load_relaxed(&fleet->process->shared->urgent) != 0;
        kind = full_sync->urgent ? ROUND_URGENT : ROUND_FULL_SYNC;
    }
    const bool asks = kind == ROUND_ASK || !fleet->clock.known || was_away(fleet, monotonic_ns);
    /* A full sync reports all there is; and a node that leaves has no other time to report its debt. */
    fleet->batch.tells_debt = kind == ROUND_FULL_SYNC || fleet->leaves || tells_debt(fleet, monotonic_ns);
    if (!asks) {
        gather_round(fleet, set, fleet_time(fleet, monotonic_ns), kind);
    } else {
        /*
         * The first round asks the time: a report before that could have a wrong window's number. After an outage it
         * asks whether the fleet still has what was reported.
         */
        fleet->round.report_count = 0;
        fleet->gather.has_rest = kind != ROUND_ASK;
        full_sync->done = false;
    }
    /* An urgent round reports some keys alone, so the node has not spoken by it. */
    fill_heartbeat(fleet, asks || kind == ROUND_URGENT, monotonic_ns);
    if (probe_is_traced(report)) {
        trace_reports(fleet);
    }
    fleet->schedule.begun_ns = monotonic_ns;
    counter_add(&fleet->stats.urgent_sync_count, kind == ROUND_URGENT);
    if (fleet->transport->ops->begin(fleet->transport, &fleet->round, monotonic_ns) == 0) {
        fleet->schedule.under_way = true;
    } else {
        agreement_forget(fleet);
        merge_failed_round(fleet);
    }
}

/* Logs records that were refused, once per change. */
static void log_refused(struct fleet *fleet, size_t refused, const struct report *first)
{
    if (refused != 0 && !fleet->schedule.logged_refused) {
        fleet_log(fleet, WEIR_LOG_ERROR,
                  "%s rejected %zu of %zu %s, such as that of \"%s\": the record is not one of weir's; delete it or "
                  "choose another prefix. These keys are limited by this node's own counts",
                  fleet->transport->ops->server(fleet->transport), refused, fleet->round.report_count,
                  plain_number(fleet->round.report_count, "report", "reports"), first->record);
    } else if (refused == 0 && fleet->schedule.logged_refused && fleet->round.report_count != 0) {
        fleet_log(fleet, WEIR_LOG_INFO, "%s accepts all reports again",
                  fleet->transport->ops->server(fleet->transport));
    }
    if (fleet->round.report_count != 0) {
        fleet->schedule.logged_refused = refused != 0;
    }
}

/* Keeps the overrides that the round has brought until the limiter takes them. */
static void take_overrides(struct fleet *fleet)
{
    struct round *round = &fleet->round;
    if (!round->overrides_new) {
        return;
    }
    overrides_drop(fleet->overrides.texts, fleet->overrides.count);
    fleet->overrides.texts = round->overrides;
    fleet->overrides.count = round->override_count;
    fleet->overrides.left_out = round->overrides_left_out;
    fleet->overrides.changed = true;
    memcpy(fleet->overrides.version, round->overrides_version, sizeof(fleet->overrides.version));
    round->overrides = NULL;
    round->overrides_new = false;
}

/* Fleet time when the first round since the last good one failed; 0: none did, or there was no good one. */
static uint64_t gone_since_ns(const struct fleet *fleet, uint64_t monotonic_ns)
{
    if (fleet->news.failed_ns == 0 || fleet->news.good_ns == 0) {
        return 0;
    }
    return saturating_sub(fleet->round.fleet_wall_ns, monotonic_ns - fleet->news.failed_ns);
}

/* Takes in what a good round says of the nodes. */
static void hear_of_nodes(struct fleet *fleet, uint64_t monotonic_ns)
{
    struct membership *membership = &fleet->membership;
    const bool slow = monotonic_ns - fleet->schedule.begun_ns > SLOW_HALF_INTERVALS * fleet->process->interval_ns / 2;
    const bool was_slow = fleet->news.slow && !slow;
    const bool late = was_away(fleet, monotonic_ns);
    const uint64_t gone_ns = gone_since_ns(fleet, monotonic_ns);
    const bool interrupted = fleet->news.failed_ns != 0 && fleet->news.awaits_peers;
    const uint64_t tells_ns = membership_tells_ns(membership);
    fleet->news.failed_ns = 0;
    fleet->news.slow = slow;
    if (late || was_slow || interrupted || fleet->round.lost_state) {
        membership_await(membership, gone_ns, monotonic_ns);
    } else if (gone_ns != 0) {
        membership_resume(membership, monotonic_ns); /* other nodes may have been away for a little longer */
    }
    if (late || fleet->outage.began) {
        fleet->outage.back_ns = monotonic_ns;
        fleet->outage.began = false;
    }
    const bool resumed = membership_resumes(membership, monotonic_ns);
    membership_heard(membership, fleet->round.live_nodes, fleet->round.suspect_nodes, fleet->round.watermark_ns,
                     monotonic_ns);
    fleet->news.awaits_peers = membership_awaits(membership, monotonic_ns);
    fleet->news.peers_resume = membership_resumes(membership, monotonic_ns);
    const bool resumed_now = fleet->news.peers_resume && !resumed;
    if (fleet->news.awaits_peers && membership_tells_ns(membership) != tells_ns) {
        fleet->schedule.extra_ns =
            membership_tells_ns(membership); /* when it reports the debt that it held back (tell_of_outage) */
    } else if (resumed_now) {
        fleet->schedule.extra_ns = monotonic_ns; /* before the nodes that are back report */
    }
    store_relaxed(&fleet->stats.live_nodes, membership->live);
    store_relaxed(&fleet->stats.suspect_nodes, membership->suspect);
    store_relaxed(&fleet->stats.awaiting_peers, fleet->news.awaits_peers);
    store_relaxed(&fleet->process->shared->nodes, membership_nodes(membership));
}

/* Logs once that more nodes are live than this node assumes before its first round. */
static void hint_expected(struct fleet *fleet)
{
    const uint32_t expected = fleet->expected_nodes != 0 ? fleet->expected_nodes : 1;
    if (fleet->round.live_nodes <= expected || fleet->schedule.logged_expected) {
        return;
    }
    fleet->schedule.logged_expected = true;
    char is[24] = "not set";
    char part[40] = "the whole";
    if (fleet->expected_nodes != 0) {
        (void) snprintf(is, sizeof(is), "%" PRIu32, fleet->expected_nodes);
    }
    if (expected > 1) {
        (void) snprintf(part, sizeof(part), "1/%" PRIu32, expected);
    }
    fleet_log(fleet, WEIR_LOG_INFO,
              "%" PRIu32 " nodes are live, and expected_nodes is %s: a node that starts admits up to %s of each limit "
              "until Redis has answered it once. Set expected_nodes to %" PRIu32 ", and it admits 1/%" PRIu32
              " until then",
              fleet->round.live_nodes, is, part, fleet->round.live_nodes, fleet->round.live_nodes);
}

/*
 * The authors of a large fleet are in several parts of a record, each of which Redis keeps small. A node belongs to one
 * part for good, as its counts are there.
 */
static void choose_part(struct fleet *fleet)
{
    const uint32_t nodes = (uint32_t) max_u64(fleet->round.live_nodes, fleet->expected_nodes);
    if (fleet->part == 0) {
        fleet->part = 1 + (uint32_t) (strtoull(fleet->node, NULL, 16) % max_u64(nodes / PART_NODES, 1));
    }
}

static void log_joined(const struct fleet *fleet)
{
    fleet_log(fleet, WEIR_LOG_INFO, "%s: joined the fleet as node %s (%s), %" PRIu32 " live %s",
              fleet->transport->ops->server(fleet->transport), fleet->node, fleet->name, fleet->round.live_nodes,
              plain_number(fleet->round.live_nodes, "node", "nodes"));
}

/* The log has one line at once, and then at most one in ten minutes: a Redis that evicts loses its data again and
 * again. */
static void log_lost(struct fleet *fleet, const char *what, uint64_t monotonic_ns)
{
    struct round_schedule *schedule = &fleet->schedule;
    if (!schedule->logged_lost || monotonic_ns >= schedule->logged_lost_ns + LOST_LINES_NS) {
        fleet_log(fleet, WEIR_LOG_WARNING, "%s has lost %s: reporting all keys again",
                  fleet->transport->ops->server(fleet->transport), what);
        schedule->logged_lost = true;
        schedule->logged_lost_ns = monotonic_ns;
    }
}

/*
 * Begins a resync where the fleet has lost counts. Where single records tell of it, a resync is what brings the others
 * back, and not each answer begins one: sums fall short until the other nodes have resynced too, and records are missed
 * until their turn has come.
 */
static void resync_if_lost(struct fleet *fleet, uint64_t monotonic_ns)
{
    const struct gather_cursors *gather = &fleet->gather;
    const bool rested = gather->resync_left == 0 &&
                        gather->interval_count > gather->resynced_at + (uint64_t) RESYNC_EVERY * gather->resync_parts;
    const bool gone = fleet->merge.gone && rested;
    if (fleet->round.lost_state) {
        log_lost(fleet, "its data (restarted empty, flushed, evicted, or another server)", monotonic_ns);
        full_sync_restart(fleet);
    } else if (gone) {
        log_lost(fleet, "records that are in use (evicted, or deleted)", monotonic_ns);
    }
    counter_add(&fleet->stats.redis_lost_state_count, fleet->round.lost_state || gone);
    if (fleet->round.lost_state || gone || (fleet->merge.lost && rested)) {
        gather_resync(fleet);
    }
}

static void count_round(struct fleet *fleet, size_t refused)
{
    struct fleet_stats *stats = &fleet->stats;
    store_relaxed(&stats->round_trip_ns, fleet->round.received_ns - fleet->round.sent_ns);
    counter_add(&stats->sync_count, 1);
    counter_add(&stats->report_count, fleet->round.report_count - refused - fleet->merge.retry_count);
    counter_add(&stats->report_retry_count, fleet->merge.retry_count);
    counter_add(&stats->rejected_report_count, refused);
    counter_add(&stats->sent_size, fleet->round.sent_size);
}

/*
 * Moves this node's rounds away from those of the node that reports next: the node with the earliest heartbeat. Nodes
 * that report at one moment hear of each other in an order of chance: nothing in one round, and twice the units in the
 * next.
 */
static void spread_rounds(struct fleet *fleet)
{
    const struct round *round = &fleet->round;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t least_ns = interval_ns / (SPREAD_DIVISOR * max_u64(round->live_nodes, 1));
    const uint64_t age_ns = saturating_sub(fleet->gather.now_ns, round->watermark_ns);
    if (!fleet->schedule.regular || round->asks) {
        return;
    }
    const bool known = round->live_nodes > 1 && round->suspect_nodes == 0 && age_ns <= interval_ns + least_ns;
    const uint64_t gap_ns = saturating_sub(interval_ns, age_ns);
    const bool close = known && gap_ns < least_ns && least_ns >= SPREAD_LEAST_NS;
    fleet->schedule.close_count += close; /* of two nodes that report at one moment now this one is first, now that */
    if (fleet->schedule.close_count >= SPREAD_ROUNDS) {
        fleet->schedule.phase_ns -= least_ns - gap_ns;
        fleet->schedule.close_count = 0;
    }
}

static void trace_round(const struct fleet *fleet, bool good)
{
    if (probe_is_traced(round)) {
        probe_round(fleet->transport->ops->server(fleet->transport), good, fleet->round.report_count,
                    good ? fleet->round.received_ns - fleet->round.sent_ns : 0, fleet->membership.live);
    }
}

void round_finish(struct fleet *fleet, struct policy_set *set, uint64_t monotonic_ns)
{
    const struct report *first_refused = NULL;
    fleet->schedule.under_way = false;
    const bool first_time = !fleet->clock.known;
    hear_of_nodes(fleet, monotonic_ns);
    choose_part(fleet);
    spread_rounds(fleet);
    fleet->news.good_ns = monotonic_ns;
    fleet->news.begun_ns = fleet->schedule.begun_ns;
    /* Before the answers are merged: the answer that ends an outage is taken in. */
    if (outage_update(fleet, set, monotonic_ns)) {
        tick_epoch(fleet->limiter);
    }
    fleet->news.age_ns =
        membership_news_age(fleet->round.live_nodes, fleet->round.suspect_nodes, fleet->round.watermark_ns,
                            fleet->gather.now_ns, fleet->process->interval_ns);
    const size_t refused = merge_round(fleet, set, fleet_time(fleet, monotonic_ns), &first_refused);
    if (fleet->merge.refunded) {
        tick_epoch(fleet->limiter); /* ends the denials that threads answer from their slots */
    }
    take_overrides(fleet);
    agreement_hear(fleet);
    fleet_clock_sample(fleet, monotonic_ns);
    fleet_clock_report(fleet);
    log_refused(fleet, refused, first_refused);
    if (first_time) {
        log_joined(fleet);
    }
    hint_expected(fleet);
    resync_if_lost(fleet, monotonic_ns);
    tick_news(fleet->limiter, fleet_time(fleet, monotonic_ns));
    count_round(fleet, refused);
    trace_round(fleet, true);
    if (fleet->full_sync.done) {
        store_release(&fleet->sync_calls.served, fleet->full_sync.request); /* [F2] */
        fleet->full_sync = (struct full_sync){.request = 0};
    }
}

uint64_t round_asks_at_ns(const struct fleet *fleet)
{
    const bool asks = fleet->news.awaits_peers && !membership_complete(&fleet->membership);
    return asks ? fleet->schedule.begun_ns + fleet->process->interval_ns / ASK_DIVISOR : UINT64_MAX;
}

bool round_due(const struct fleet *fleet, uint64_t monotonic_ns, enum round_kind *kind)
{
    const bool urgent =
        load_relaxed(&fleet->process->shared->urgent) != 0 && monotonic_ns >= fleet->schedule.begun_ns + URGENT_NS;
    const bool interval = monotonic_ns >= min_u64(fleet->schedule.next_ns, fleet->schedule.extra_ns);
    const bool asks = monotonic_ns >= round_asks_at_ns(fleet);
    if (interval) {
        *kind = ROUND_INTERVAL;
    } else if (fleet->gather.has_rest) {
        *kind = ROUND_REST;
    } else {
        *kind = asks && !urgent && !full_sync_wanted(fleet) ? ROUND_ASK : ROUND_URGENT;
    }
    return interval || fleet->gather.has_rest || urgent || asks || full_sync_wanted(fleet);
}

void round_fail(struct fleet *fleet)
{
    fleet->schedule.under_way = false;
    if (fleet->round.overrides_new) {
        overrides_drop(fleet->round.overrides, fleet->round.override_count);
        fleet->round.overrides_new = false;
    }
    agreement_forget(fleet);
    counter_add(&fleet->stats.sync_error_count, 1);
    trace_round(fleet, false);
    merge_failed_round(fleet);
}
