/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports of sliding logs: this node's units by number and time, and the units of the other nodes in return.
 *
 * A unit is reported by number and time. The answer is what the other nodes have in the window; it replaces what was
 * known of them. A log knows up to which unit it was reported (`counts`), and up to which the fleet may know of units
 * that were refunded since (`acked_most`). `counts` is raised when a report is made. It is set back when the round
 * fails, or when the fleet turns out to have fewer of this node's units than were reported: then all units in the
 * window are reported again. A refund lowers it, so that numbers that are used again are reported again.
 */
#include "fleet/keys/report_history.h"
#include "algorithm/history.h"
#include "base/numbers.h"
#include "fleet/keys/demand.h"
#include "fleet/keys/full_sync.h"
#include "fleet/keys/record.h"
#include "fleet/state.h"
#include "fleet/tuning.h"
#include "process/evict.h"
#include "process/process.h"

/* A report of a log, to be filled in; NULL: no more logs fit in this round. */
static struct report *report_units(struct fleet *fleet, const struct report_subject *subject)
{
    if (fleet->batch.history_count == ROUND_HISTORIES) {
        return NULL;
    }
    const struct policy_limit *limit = subject->limit;
    struct report_source *source = NULL;
    struct report *report = record_add(fleet, subject->cell, subject->sync, false, &source);
    struct history_report *history = &fleet->batch.histories[fleet->batch.history_count++];
    (void) record_name(fleet, report->record, subject->policy, limit, subject->key);
    record_demand_name(fleet, limit, report->record, history->demand_record);
    report->kind = REPORT_HISTORY;
    report->history = history;
    report->reset_us = record_reset_us(subject->sync);
    report->expire_ms = limit->rule.period_ns / NS_PER_MS + HISTORY_SLACK_MS;
    history->first = history->refund_from = history->refund_to = history->live = history->window_first = 0;
    history->now_us = subject->now_ns / NS_PER_US;
    history->period_us = (limit->rule.period_ns + NS_PER_US - 1) / NS_PER_US;
    history->limit = max_u64(load_relaxed(&limit->history_max), limit->rule.limit);
    history->time_count = 0;
    return report;
}

/* Number of the first unit that no node can have dropped yet. */
static uint64_t first_certain(struct history *history, uint64_t now_ns, uint64_t period_ns)
{
    const uint64_t uncertain_ns = saturating_sub(now_ns, period_ns) + min_u64(HISTORY_SKEW_NS, period_ns / 2);
    uint64_t number = history->first;
    while (number < history->end && *history_time(history, number) <= uncertain_ns) {
        number++;
    }
    return number;
}

bool report_history_add(struct fleet *fleet, const struct report_subject *subject, bool again)
{
    struct report *report = report_units(fleet, subject);
    if (report == NULL) {
        return false;
    }
    const uint32_t cell = subject->cell;
    const struct rule *rule = &subject->limit->rule;
    const uint64_t now_ns = subject->now_ns;
    bool all = true;
    struct history_report *news = report->history;
    history_store_lock(fleet->process, cell);
    struct history *history = history_store_get(fleet->process, cell);
    if (history != NULL) {
        history_expire(history, rule, now_ns);
        history_store_publish(fleet->process, cell, rule);
        demand_units(fleet, subject->sync, history->counts, history->end, now_ns);
        report->demand = subject->sync->now.demand % REPORT_HISTORY_DEMAND;
        history->counts = again ? history->first : history->counts;
        news->window_first = history->first;
        const uint64_t first = max_u64(history->counts, history->first);
        const uint64_t fleet_end = history_fleet_number(history, history->end);
        news->first = history_fleet_number(history, first);
        news->time_count = (uint32_t) min_u64(saturating_sub(history->end, first), REPORT_HISTORY_TIMES);
        for (uint32_t i = 0; i < news->time_count; i++) {
            news->times_us[i] = record_time_us(*history_time(history, first + i));
        }
        const uint64_t counts = first + news->time_count;
        report->count = counts;
        news->live = saturating_sub(counts, first_certain(history, now_ns, rule->period_ns));
        news->refund_to = max_u64(history->acked_most, fleet_end);
        news->refund_from = max_u64(fleet_end, saturating_sub(news->refund_to, ROUND_REFUNDS));
        all = counts == history->end && news->refund_from == fleet_end;
        history->counts = counts; /* until the round fails, or units are refunded */
        history->acked_most = max_u64(history->acked_most, history_fleet_number(history, counts));
    }
    history_store_unlock(fleet->process, cell);
    return all;
}

bool report_history_outrun(const struct fleet *fleet, uint32_t cell, uint64_t *counts, uint64_t *end)
{
    history_store_lock(fleet->process, cell);
    const struct history *history = history_store_get(fleet->process, cell);
    /* A round also reports ROUND_REFUNDS refunded units. */
    const bool outrun = history != NULL && history->counts < history->end &&
                        history->acked_most <= history_fleet_number(history, history->end) + ROUND_REFUNDS;
    if (outrun) {
        *counts = history->counts;
        *end = history->end;
    }
    history_store_unlock(fleet->process, cell);
    return outrun;
}

bool report_history_evicted(struct fleet *fleet, const struct report_subject *subject,
                            const struct evicted_report *evicted)
{
    if (evicted->time_count == 0) {
        return true;
    }
    struct report *report = report_units(fleet, subject);
    if (report == NULL) {
        return false;
    }
    report->history->first = evicted->first;
    report->history->time_count = evicted->time_count;
    for (uint32_t i = 0; i < evicted->time_count; i++) {
        report->history->times_us[i] = record_time_us(evicted->times[i]);
    }
    return true;
}

/*
 * Adds to the groups of the other nodes, in the order of time and with room for one more, the units that the key is
 * remembered to have used and that are not among them. Returns the number of groups.
 */
static uint32_t add_restored(const struct sync_full *sync, const struct rule *rule, struct history_group groups[],
                             uint32_t count, uint64_t now_ns)
{
    const uint64_t until_ns = load_relaxed(&sync->before.restored);
    uint64_t missing = until_ns > now_ns ? load_relaxed(&sync->now.restored) : 0;
    for (uint32_t i = 0; i < count; i++) {
        missing = saturating_sub(missing, groups[i].units);
    }
    if (missing == 0) {
        return count;
    }
    const struct history_group group = {.time_ns = saturating_sub(until_ns, rule->period_ns), .units = missing};
    uint32_t at = count;
    for (; at > 0 && groups[at - 1].time_ns > group.time_ns; at--) {
        groups[at] = groups[at - 1];
    }
    groups[at] = group;
    return count + 1;
}

/* Of the units from .. to - 1, how many are no later than a time. Units that this node no longer has were earlier. */
static uint64_t units_until(struct history *history, uint64_t from, uint64_t to, uint64_t time_us)
{
    uint64_t low = history != NULL ? min_u64(max_u64(history->first, from), to) : to;
    uint64_t high = history != NULL ? max_u64(min_u64(history->end, to), low) : to;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (record_time_us(*history_time(history, middle)) <= time_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - from;
}

/*
 * Takes this node's units out of the answered groups; the units of the other nodes stay, and their number is exact. The
 * fleet has the latest `mine` of the units that were reported, as the earliest units leave first.
 */
static void keep_remote(struct history *history, const struct report *report)
{
    struct history_report *news = report->history;
    const uint64_t mine = min_u64(report->author_count, report->sum);
    const uint64_t counts = max_u64(report->count, saturating_add(news->window_first, mine));
    const uint64_t remote = report->sum - mine;
    const uint32_t count = news->group_count <= HISTORY_GROUPS ? news->group_count : HISTORY_GROUPS;
    uint64_t all = 0;
    uint64_t kept = 0;
    news->group_count = 0;
    for (uint32_t i = 0; i < count && kept < remote; i++) {
        const struct history_group group = news->groups[i];
        all = saturating_add(all, group.units);
        const uint64_t own = units_until(history, counts - mine, counts, group.time_ns);
        const uint64_t until = i + 1 == count ? remote : min_u64(saturating_sub(all, own), remote);
        if (until > kept) {
            news->groups[news->group_count++] = (struct history_group){group.time_ns, until - kept};
            kept = until;
        }
    }
}

/* Of the units in a log, with these groups of the other nodes, those from before all nodes had spoken that still count
 * when the next answer comes. */
static uint64_t kept_units(const struct fleet *fleet, struct history *history, const struct rule *rule,
                           const struct history_group groups[], uint32_t count)
{
    const uint64_t spoken_ns = fleet->membership.spoken_ns;
    const uint64_t next_ns = fleet->gather.now_ns + fleet->process->interval_ns;
    const uint64_t gone_ns = min_u64(saturating_sub(next_ns, rule->period_ns), spoken_ns);
    const uint64_t first = history->first;
    const uint64_t end = history->end;
    uint64_t kept = units_until(history, first, end, record_time_us(spoken_ns)) -
                    units_until(history, first, end, record_time_us(gone_ns));
    for (uint32_t i = 0; i < count; i++) {
        kept += groups[i].time_ns > gone_ns && groups[i].time_ns <= spoken_ns ? groups[i].units : 0;
    }
    return kept;
}

/* Drops from what a key is remembered to have used what is no later than the reset that an answer tells of. */
static void reset_restored(struct sync_full *sync, const struct report *report, const struct rule *rule)
{
    if (report->history->reset_us * NS_PER_US + rule->period_ns >= load_relaxed(&sync->before.restored)) {
        store_relaxed(&sync->now.restored, 0); /* the reset came after the last of them */
    }
}

/* Takes from an answer which of this node's units the fleet has. */
static void acknowledge_units(struct fleet *fleet, uint32_t cell, struct history *history, const struct report *report)
{
    const struct history_report *news = report->history;
    /* What the fleet may have now: the units just reported, and all reported before but those just taken away. */
    history->acked_most = max_u64(news->first + news->time_count, min_u64(news->refund_to, news->refund_from));
    if (report->author_count < news->live && report->sum < news->limit) {
        history->counts = history->first; /* the fleet has lost some: all are reported again */
        table_set_dirty(&fleet->process->table, cell);
        full_sync_restart(fleet);
        fleet->merge.gone = fleet->merge.gone || news->reset_us == 0; /* else a reset has taken them */
    }
}

bool report_history_acknowledge(struct fleet *fleet, const struct report_subject *subject, const struct report *report,
                                const struct rule *rule)
{
    const uint64_t reset_us = report->history->reset_us;
    reset_restored(subject->sync, report, rule);
    history_store_lock(fleet->process, subject->cell);
    struct history *history = history_store_get(fleet->process, subject->cell);
    if (history != NULL) {
        acknowledge_units(fleet, subject->cell, history, report);
        history_clear(history, reset_us * NS_PER_US);
        history_store_publish(fleet->process, subject->cell, rule);
    }
    history_store_unlock(fleet->process, subject->cell);
    return history != NULL && reset_us != 0;
}

bool report_history_merge(struct fleet *fleet, const struct report_subject *subject, const struct report *report,
                          const struct rule *rule, struct history_news *told)
{
    const uint32_t at = subject->cell;
    struct sync_full *sync = subject->sync;
    const uint64_t now_ns = subject->now_ns;
    const struct history_report *news = report->history;
    struct history_group groups[HISTORY_GROUPS + 1];
    history_store_lock(fleet->process, at);
    struct history *history = history_store_get(fleet->process, at);
    keep_remote(history, report);
    uint32_t count = news->group_count;
    for (uint32_t i = 0; i < count; i++) {
        groups[i] =
            (struct history_group){.time_ns = news->groups[i].time_ns * NS_PER_US, .units = news->groups[i].units};
    }
    reset_restored(sync, report, rule);
    count = add_restored(sync, rule, groups, count, now_ns);
    bool returned = false;
    if (count != 0) {
        struct history *room = history_store_room(fleet->process, at, rule, count, now_ns);
        history = room != NULL ? room : history;
    }
    *told = (struct history_news){.remote = 0, .seen = report->count};
    if (history != NULL) {
        history_expire(history, rule, now_ns);
        const uint64_t had = history->remote;
        history_set_remote(history, groups, count);
        acknowledge_units(fleet, at, history, report);
        returned = history->remote < had || news->reset_us != 0;
        history_clear(history, news->reset_us * NS_PER_US);
        history_expire(history, rule, now_ns);
        told->remote = saturating_sub(history->remote, had);
        const uint64_t told_us = record_time_us(saturating_sub(fleet->gather.now_ns, fleet->news.age_ns));
        told->seen = history->first + units_until(history, history->first, history->end, told_us);
        told->kept = kept_units(fleet, history, rule, groups, count);
        history_store_publish(fleet->process, at, rule);
    }
    history_store_unlock(fleet->process, at);
    return returned;
}

void report_history_retry(struct fleet *fleet, const struct report_source *source)
{
    struct cell *cell = &fleet->process->table.cells[source->cell];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    history_store_lock(fleet->process, source->cell);
    struct history *history = history_store_get(fleet->process, source->cell);
    if (history != NULL) {
        history->counts = history->first;
    }
    history_store_unlock(fleet->process, source->cell);
    cell_unpin(cell);
}
