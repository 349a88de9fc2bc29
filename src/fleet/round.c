/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds: one every interval, at once while something is left over or somebody waits for one, and 10 ms after the last
 * one for keys that cannot wait.
 *
 * A round settles what has lapsed, reports what matters (gather.c), and folds the answers in. One that fails leaves
 * nothing behind: what it held is dirty again, and counts are cumulative, so saying them twice is harmless.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/numbers.h"
#include "base/pages.h"
#include "base/plain.h"
#include "base/rcu.h"
#include "fleet/fleet_log.h"
#include "fleet/full_sync.h"
#include "fleet/gather.h"
#include "fleet/merge.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "thread/settle.h"

/* Lets every grant lapse and settles them, so that a flush holds all there is. */
static void settle_everything(struct limiter *limiter)
{
    tick_epoch(limiter);
    for (int pass = 0; pass < SETTLE_PASSES && settle_lapsed(limiter) != 0; pass++) {
    }
}

/* Whether nothing was heard of the fleet for so long that other nodes may have failed to speak with it, too. */
static bool was_away(const struct fleet *fleet, uint64_t monotonic_ns)
{
    const uint64_t last_ns = fleet->news.good_ns != 0 ? fleet->news.good_ns : fleet->opened_ns;
    /* Whose rounds take long, and are answered, has missed nothing. */
    return fleet->news.failed && monotonic_ns - last_ns > OUTAGE_INTERVALS * fleet->process->interval_ns;
}

void round_begin(struct fleet *fleet, const struct policy_set *set, enum round_kind kind, uint64_t monotonic_ns)
{
    struct limiter *limiter = fleet->limiter;
    struct full_sync *full_sync = &fleet->full_sync;
    bool settled = true;
    if (full_sync->request == 0 && full_sync_wanted(fleet) && fleet->clock.known) {
        /* Acquire: pairs with full_sync_call_begin; what its caller did before is in the flush. */
        const uint64_t request = load_acquire(&fleet->sync_calls.requests);
        settled = request == full_sync->restarts; /* when it began for the first time */
        *full_sync = (struct full_sync){.request = request, .urgent = full_sync->urgent};
    }
    if (settled) {
        (void) settle_lapsed(limiter);
    } else {
        settle_everything(limiter);
    }
    if (full_sync->request != 0) {
        full_sync->urgent = !full_sync->urgent && load_relaxed(&limiter->process.urgent) != 0;
        kind = full_sync->urgent ? ROUND_URGENT : ROUND_FULL_SYNC;
    }
    const bool asks = kind == ROUND_ASK || !fleet->clock.known || was_away(fleet, monotonic_ns);
    /* Who waits for a flush waits for all there is; and who leaves has no other time to tell it. */
    fleet->batch.tells_debt =
        kind == ROUND_FULL_SYNC || fleet->leaves || membership_tells(&fleet->membership, monotonic_ns);
    if (!asks) {
        gather_round(fleet, set, monotonic_ns + load_relaxed(&limiter->line.offset_ns), kind);
    } else {
        /*
         * The first round asks the time: what is reported before that may carry a wrong window's number. After an
         * outage it asks whether the fleet still has what it was told.
         */
        fleet->round.report_count = 0;
        fleet->gather.has_rest = kind != ROUND_ASK;
        fleet->full_sync.done = false;
    }
    fleet->round.reports = fleet->batch.reports;
    fleet->round.node = fleet->node;
    fleet->round.suspect_ms = NODE_SUSPECT_INTERVALS * fleet->interval_ms;
    fleet->round.leaves = fleet->leaves;
    fleet->round.asks = asks || kind == ROUND_URGENT; /* which tells of some keys alone */
    fleet->round.fleet_ns = fleet->clock.known ? monotonic_ns + load_relaxed(&fleet->limiter->line.offset_ns) : 0;
    fleet->round.wall_ns = clock_wall_ns(fleet->limiter->clock);
    fleet->round.node_lifetime_ms = (uint32_t) (membership_lifetime_ns(fleet->process->interval_ns) / NS_PER_MS);
    fleet->round.first = fleet->news.good_ns == 0;
    fleet->round.sent_size = 0;
    fleet->round.overrides_new = false;
    memcpy(fleet->round.overrides_version, fleet->overrides.version, sizeof(fleet->overrides.version));
    fleet->schedule.begun_ns = monotonic_ns;
    counter_add(&fleet->stats.urgent_sync_count, kind == ROUND_URGENT);
    if (fleet->transport->ops->begin(fleet->transport, &fleet->round, monotonic_ns) == 0) {
        fleet->schedule.under_way = true;
    } else {
        merge_failed_round(fleet);
    }
}

/* What a good round says about records that were refused, once per change. */
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

/* Keeps what the round has told of entries of single keys, until the weir takes them. */
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

/* What a good round says of the nodes. */
static void hear_of_nodes(struct fleet *fleet, uint64_t monotonic_ns)
{
    struct membership *membership = &fleet->membership;
    const bool late = was_away(fleet, monotonic_ns);
    const bool slow = monotonic_ns - fleet->schedule.begun_ns > SLOW_HALF_INTERVALS * fleet->process->interval_ns / 2;
    const bool was_slow = fleet->news.slow && !slow;
    fleet->news.failed = false;
    fleet->news.slow = slow;
    if (late || was_slow || fleet->round.forgot) {
        membership_await(membership, monotonic_ns);
    }
    if (late || fleet->outage.began) {
        fleet->outage.back_ns = monotonic_ns;
        fleet->outage.began = false;
    }
    const bool was_complete = membership_complete(membership);
    const bool resumed = membership_resumes(membership, monotonic_ns);
    membership_heard(membership, fleet->round.live_nodes, fleet->round.suspect_nodes, fleet->round.watermark_ns,
                     monotonic_ns);
    fleet->news.awaits_peers = membership_awaits(membership, monotonic_ns);
    fleet->news.peers_resume = membership_resumes(membership, monotonic_ns);
    const bool resumed_now = fleet->news.peers_resume && !resumed;
    if (!was_complete && membership_complete(membership)) {
        fleet->schedule.extra_ns =
            monotonic_ns + membership->settle_ns; /* then it tells what it held back (report.c) */
    } else if (resumed_now) {
        fleet->schedule.extra_ns = monotonic_ns; /* before those who are back do */
    }
    store_relaxed(&fleet->stats.live_nodes, membership->live);
    store_relaxed(&fleet->stats.suspect_nodes, membership->suspect);
    store_relaxed(&fleet->stats.awaiting_peers, fleet->news.awaits_peers);
    store_relaxed(&fleet->process->nodes, membership_nodes(membership));
}

/* Says once that there are more nodes than this one would have shared with until it had heard. */
static void hint_expected(struct fleet *fleet)
{
    const uint32_t expected = fleet->expected_nodes != 0 ? fleet->expected_nodes : 1;
    if (fleet->round.live_nodes <= expected || fleet->schedule.logged_expected) {
        return;
    }
    fleet->schedule.logged_expected = true;
    fleet_log(fleet, WEIR_LOG_INFO,
              "expected_nodes is %" PRIu32 " and %" PRIu32
              " nodes are live: a node that starts lets pass up to 1/%" PRIu32
              " of each limit before its first sync; set expected_nodes to %" PRIu32,
              fleet->expected_nodes, fleet->round.live_nodes, expected, fleet->round.live_nodes);
}

void round_finish(struct fleet *fleet, const struct policy_set *set, uint64_t monotonic_ns)
{
    struct fleet_stats *stats = &fleet->stats;
    const struct report *first_refused = NULL;
    fleet->schedule.under_way = false;
    const bool first_time = !fleet->clock.known;
    hear_of_nodes(fleet, monotonic_ns);
    fleet->news.good_ns = monotonic_ns;
    fleet->news.begun_ns = fleet->schedule.begun_ns;
    /* Before the answers are brought home: the one that ends an outage is taken in. */
    if (outage_update(fleet, set, monotonic_ns)) {
        tick_epoch(fleet->limiter);
    }
    fleet->news.age_ns =
        membership_news_age(fleet->round.live_nodes, fleet->round.suspect_nodes, fleet->round.watermark_ns,
                            fleet->gather.now_ns, fleet->process->interval_ns);
    const size_t refused =
        merge_round(fleet, set, monotonic_ns + load_relaxed(&fleet->limiter->line.offset_ns), &first_refused);
    if (fleet->merge.refunded) {
        tick_epoch(fleet->limiter); /* what threads deny from their slots may pass again */
    }
    take_overrides(fleet);
    fleet_clock_sample(fleet, monotonic_ns);
    fleet_clock_report(fleet);
    log_refused(fleet, refused, first_refused);
    if (first_time) {
        fleet_log(fleet, WEIR_LOG_INFO, "%s: joined the fleet as node %s (%s), %" PRIu32 " live %s",
                  fleet->transport->ops->server(fleet->transport), fleet->node, fleet->name, fleet->round.live_nodes,
                  plain_number(fleet->round.live_nodes, "node", "nodes"));
    }
    hint_expected(fleet);
    if (fleet->round.forgot) {
        counter_add(&stats->redis_lost_state_count, 1);
        fleet_log(fleet, WEIR_LOG_WARNING,
                  "%s has lost its data (restarted empty, flushed, or another server): reporting all keys again",
                  fleet->transport->ops->server(fleet->transport));
    }
    if (fleet->round.forgot) {
        gather_resync(fleet);
        full_sync_restart(fleet);
    } else if (fleet->merge.lost && fleet->gather.resync_cursor >= fleet->process->table.cell_count &&
               fleet->gather.interval_count > fleet->gather.resynced_at + RESYNC_EVERY) {
        gather_resync(fleet); /* until the others have told theirs again, there is no end to it */
    }
    tick_news(fleet->limiter, monotonic_ns + load_relaxed(&fleet->limiter->line.offset_ns));
    store_relaxed(&stats->round_trip_ns, fleet->round.received_ns - fleet->round.sent_ns);
    counter_add(&stats->sync_count, 1);
    counter_add(&stats->report_count, fleet->round.report_count - refused - fleet->merge.retry_count);
    counter_add(&stats->report_retry_count, fleet->merge.retry_count);
    counter_add(&stats->rejected_report_count, refused);
    counter_add(&stats->sent_size, fleet->round.sent_size);
    if (fleet->full_sync.done) {
        store_release(&fleet->sync_calls.served, fleet->full_sync.request); /* pairs with weir_sync */
        fleet->full_sync = (struct full_sync){.request = 0};
    }
}

/* When to ask whether all nodes are back; UINT64_MAX: nobody is awaited. */
uint64_t round_asks_at_ns(const struct fleet *fleet)
{
    const bool asks = fleet->news.awaits_peers && !membership_complete(&fleet->membership);
    return asks ? fleet->schedule.begun_ns + fleet->process->interval_ns / ASK_DIVISOR : UINT64_MAX;
}

/* Whether a round is to begin, and which. */
bool round_due(const struct fleet *fleet, uint64_t monotonic_ns, enum round_kind *kind)
{
    const bool urgent =
        load_relaxed(&fleet->process->urgent) != 0 && monotonic_ns >= fleet->schedule.begun_ns + URGENT_NS;
    const bool interval = monotonic_ns >= min_u64(fleet->schedule.next_ns, fleet->schedule.extra_ns);
    const bool asks = monotonic_ns >= round_asks_at_ns(fleet);
    *kind = interval                                       ? ROUND_INTERVAL
            : fleet->gather.has_rest                       ? ROUND_REST
            : asks && !(urgent || full_sync_wanted(fleet)) ? ROUND_ASK
                                                           : ROUND_URGENT;
    return interval || fleet->gather.has_rest || urgent || asks || full_sync_wanted(fleet);
}

void round_fail(struct fleet *fleet)
{
    fleet->schedule.under_way = false;
    if (fleet->round.overrides_new) {
        overrides_drop(fleet->round.overrides, fleet->round.override_count);
        fleet->round.overrides_new = false;
    }
    counter_add(&fleet->stats.sync_error_count, 1);
    merge_failed_round(fleet);
}
