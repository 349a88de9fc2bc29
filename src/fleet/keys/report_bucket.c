/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The report of a bucket: its units, and up to when this node has seen the bucket used. After an outage the report also
 * says what of the units still counts against the bucket.
 */
#include "fleet/keys/report_bucket.h"

#include "algorithm/bucket.h"
#include "base/numbers.h"
#include "fleet/keys/account.h"
#include "fleet/keys/bucket_level.h"
#include "fleet/keys/demand.h"
#include "fleet/keys/presumed.h"
#include "fleet/keys/reading.h"
#include "fleet/keys/record.h"
#include "fleet/keys/report.h"
#include "fleet/keys/waive.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/fraction.h"
#include "process/process.h"
#include "process/sync_state.h"
#include "process/table.h"
#include "transport/transport.h"

/*
 * The state of a bucket that is served in part, without what the smaller rate adds to its time. Units that are new came
 * after `since_ns`.
 */
static struct state whole_bucket(const struct sync_full *sync, const struct rule *rule, struct state state,
                                 uint64_t since_ns)
{
    if (demand_in_parts(sync, since_ns)) {
        const uint64_t since = (bucket_total(state) - sync->demand.known_total) & BUCKET_TOTAL_MASK;
        const uint64_t from_ns = max_u64(load_relaxed(&sync->allowance.inspected_ns), since_ns);
        const uint64_t known = max_u64(sync->demand.known_time, bucket_time(rule, from_ns));
        const uint64_t charged =
            since == 0 ? sync->demand.known_time : saturating_add(known, saturating_mul(since, rule->unit));
        const uint64_t refunds = saturating_sub(load_relaxed(&sync->ledger->refunds[0]), sync->demand.known_refunds);
        state.a = min_u64(state.a, saturating_sub(charged, saturating_mul(refunds, rule->unit)));
    }
    return state;
}

/* Up to when every node has reported all it used. */
static uint64_t watermark_ns(const struct fleet *fleet, uint64_t now_ns)
{
    const uint64_t reported_ns = fleet->membership.watermark_ns;
    return reported_ns != 0 ? min_u64(reported_ns, now_ns) : now_ns;
}

/*
 * Up to when the fleet's bucket may be taken to be full before the units of this report: they were used after that.
 *
 * The watermark is such a time for all nodes. It is up to an interval old, so a burst on a full bucket would have an
 * interval's refill on top. The state has a later time: units that were charged from a full bucket on reach its tat
 * less their time. Units of other nodes that are not reported yet may be older. They are estimated by the demand last
 * learned, and the later time is moved back by the time in which they refill.
 *
 * Where that estimate is too low, units of other nodes that have refilled still count against the bucket. That is less
 * than half of what the burst has beyond an interval's refill. A smaller burst goes by the watermark.
 */
static uint64_t full_until_ns(const struct fleet *fleet, const struct report_subject *subject, const struct rule *rule,
                              struct state state, uint64_t unreported)
{
    const struct demand_stats *demand = &subject->sync->demand;
    const uint64_t now_ns = subject->now_ns;
    const uint64_t interval_ns = fleet->process->interval_ns;
    const uint64_t burst_ns = rule->tolerance >> BUCKET_FRACTION_BITS;
    const uint64_t mark_ns = watermark_ns(fleet, now_ns);
    if (demand->shared || rule->unit == 0 || burst_ns <= interval_ns) {
        return mark_ns;
    }
    /* The most that a unit has taken: that of an equal share. */
    const uint64_t parts =
        demand_in_parts(subject->sync, now_ns - interval_ns) ? membership_nodes(&fleet->membership) : 1;
    const uint64_t time = saturating_mul(unreported, saturating_mul(rule->unit, parts));
    const uint64_t begun_ns = min_u64(bucket_time_ns(rule, saturating_sub(bucket_tat(state), time)), now_ns);
    const uint64_t later_ns = saturating_sub(begun_ns, mark_ns);
    /* Older demand counts half with each interval, as in rates_update. */
    const uint64_t ago = saturating_sub(now_ns, demand->learned_ns) / max_u64(interval_ns, 1);
    const uint64_t remote_rate = demand->learned_ns != 0 && ago < 64 ? demand->rates.remote_rate >> ago : 0;
    const uint64_t limit_rate = max_u64(bucket_level_rule_rate(rule), 1);
    const uint64_t remote_ns = muldiv_ceil(later_ns, min_u64(remote_rate, limit_rate), limit_rate);
    return mark_ns + min_u64(later_ns - remote_ns, (burst_ns - interval_ns) / 2);
}

/*
 * Writes what this node has seen of a bucket, without the units that the report is about: the fleet may have lost it.
 *
 * Where units of other nodes are among it, that is the last answer. The state itself has taken each unit in where the
 * bucket was full, so it is later than what the fleet makes of the same units when they come in any order.
 */
static void seen_bucket(const struct fleet *fleet, const struct report_subject *subject, const struct rule *rule,
                        struct state whole, struct report *report)
{
    const struct sync_full *sync = subject->sync;
    const uint64_t now_ns = subject->now_ns;
    const struct demand_stats *demand = &sync->demand;
    const bool alone = load_relaxed(&sync->now.remote) == 0 && membership_nodes(&fleet->membership) == 1;
    const bool known = demand->learned_ns != 0 && demand->known_rate_id == rule->rate_id;
    uint64_t units = report->count;     /* that are in `seen` */
    uint64_t refunds = report->refunds; /* that were taken off `seen` */
    uint64_t seen = whole.a;
    bool is_counted = false; /* the counts have all units that are in `seen` */
    const bool resumed = fleet->news.peers_resume && demand->presumed_rate != 0;
    if (load_relaxed(&sync->allowance.level) != 0 && (presumed_failed(fleet, demand) || resumed)) {
        /*
         * What was left to nodes that have failed was used by no node, and is over. What was left to nodes that were
         * cut off and are back is in the level: it has to be in the fleet's bucket before they report what they owe.
         */
        seen = bucket_level_reported(fleet, sync, rule, report->count, now_ns);
    } else if (!alone && known) {
        const uint64_t since = (demand->known_total - report->acked) & BUCKET_TOTAL_MASK;
        const bool is_later = since <= BUCKET_TOTAL_MASK / 2;
        units = report->acked + (is_later ? since : 0);
        seen = saturating_add(demand->known_time,
                              is_later ? 0 : saturating_mul(BUCKET_TOTAL_MASK + 1 - since, rule->unit));
        refunds = demand->known_refunds;
        is_counted = true;
    } else if (alone) {
        is_counted = true;
    } else {
        seen = saturating_sub(seen, (now_ns - watermark_ns(fleet, now_ns)) << BUCKET_FRACTION_BITS);
    }
    /* The bucket before the units of this report. */
    const uint64_t acked_refunds = report->acked_refunds;
    seen = saturating_add(seen, saturating_mul(saturating_sub(refunds, acked_refunds), rule->unit));
    seen = saturating_sub(seen, saturating_mul(saturating_sub(acked_refunds, refunds), rule->unit));
    const uint64_t unacked_time = saturating_mul(saturating_sub(units, report->acked), rule->unit);
    /* 0: none. A time that is cut off at the rule's origin would not be without all of these units. */
    report->tat_us = seen > unacked_time ? bucket_time_ns(rule, seen - unacked_time) / NS_PER_US : 0;
    report->known_refunds = acked_refunds + load_relaxed(&sync->now.remote_refunds);
    const uint64_t counted = report->acked + load_relaxed(&sync->now.remote);
    const bool told = report->tat_us != 0 && is_counted;
    report->known = told ? saturating_sub(counted, report->known_refunds) : 0;
}

/*
 * After an outage: what was used meanwhile has refilled, at this node's fraction of the rate, except for what its own
 * bucket owes. So that much moves the fleet's bucket, from now on, and the rest only counts. What is owed is held back
 * until all nodes are there: then the debts of all nodes are added up as of one time, whenever each node has come back.
 * An evicted key cannot wait.
 *
 * Nodes that were not away have left the fraction of the others to them, and that is in the fleet's bucket
 * (seen_bucket). So the bucket is moved no further than to where it is empty: else it would deny what refills. A node
 * that owes more than an empty bucket has charged it without asking (weir_charge).
 */
static void tell_of_outage(const struct fleet *fleet, const struct report_subject *subject, const struct rule *rule,
                           struct state state, uint64_t unreported, struct report *report)
{
    const bool last = subject->cell == TABLE_NONE;
    const uint64_t now_ns = subject->now_ns;
    const uint32_t fraction = fraction_demand(fleet->process, &subject->sync->allowance);
    const uint64_t now = bucket_time(rule, now_ns);
    const uint64_t debt = saturating_sub(state.a, now);
    const uint64_t own = fraction != 0 ? muldiv_ceil(debt, fraction, FRACTION_WHOLE) : debt;
    const uint64_t owed = min_u64(own / max_u64(rule->unit, 1) + (own % max_u64(rule->unit, 1) != 0), unreported);
    const bool charged = debt > saturating_add(rule->tolerance, rule->tolerance / CHARGED_DIVISOR);
    report->moves = owed + 1;
    if (!fleet->batch.tells_debt && !last) {
        report->count -= owed;
        report->moves = 1; /* none */
    }
    report->most_us = charged ? UINT64_MAX : bucket_time_ns(rule, saturating_add(now, rule->tolerance)) / NS_PER_US;
}

void report_bucket_add(struct fleet *fleet, const struct report_subject *subject, const struct reading *reading,
                       const struct account *account)
{
    struct sync_full *sync = subject->sync;
    const struct policy *policy = subject->policy;
    const uint64_t now_ns = subject->now_ns;
    /* By the rate the bucket was last charged at: of a pricing tier, an override of the key, or an earlier policy. */
    struct rule rule = subject->limit->rule;
    rule_convert_rate(&rule, bucket_rate_id(reading->state));
    /* A single node has no fraction but the whole. */
    const bool in_parts =
        membership_nodes(&fleet->membership) > 1 || load_relaxed(&sync->allowance.remote_fraction) != 0;
    sync->demand.shared = sync->demand.shared || (in_parts && load_relaxed(&policy->outage_mode) == OUTAGE_MODE_SHARE);
    const struct state whole = whole_bucket(sync, &rule, reading->state, now_ns - fleet->process->interval_ns);
    if (load_relaxed(&policy->outage_mode) == OUTAGE_MODE_OPEN || waive_pending(fleet, policy, subject->cell)) {
        /* The node was told to admit everything: no debt. */
        sync->before.acked = account->own[0];
        sync->before.acked_refunds = account->refunds[0];
    }
    struct report_source *source = NULL;
    struct report *report = record_add(fleet, subject->cell, sync, false, &source);
    source->again = account->again;
    (void) record_name(fleet, report->record, policy, subject->limit, subject->key);
    report->kind = REPORT_BUCKET;
    report->count = account->own[0];
    report->demand = max_u64(sync->now.demand, report->count);
    report->acked = max_u64(sync->now.acked, sync->before.acked);
    report->refunds = account->refunds[0];
    report->reset_us = record_reset_us(sync);
    report->reset_kept = load_relaxed(&sync->ledger->reset_emptied) != 0 ? bucket_owed_up(&rule, whole, now_ns) : 0;
    report->rate_id = rule.rate_id;
    report->acked_refunds = max_u64(sync->now.acked_refunds, sync->before.acked_refunds);
    report->now_us = now_ns / NS_PER_US;
    report->from_us = full_until_ns(fleet, subject, &rule, reading->state, account->unreported) / NS_PER_US;
    seen_bucket(fleet, subject, &rule, whole, report);
    if (sync->demand.shared && fleet->news.awaits_peers) {
        tell_of_outage(fleet, subject, &rule, reading->state, account->unreported, report);
    }
    report->unit_ps = max_u64(rule.unit * 1000 >> BUCKET_FRACTION_BITS, 1);
    report->expire_ms = BUCKET_SLACK_MS;
}
