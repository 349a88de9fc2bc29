/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports of sliding logs: this node's units by number and time, and the others' in return.
 *
 * A log knows up to which unit the fleet has been told (`told`), and up to which it may know of units that have been
 * given back since (`told_most`). The first is raised when a report is made, and set back when the round fails, or when
 * the fleet turns out to have fewer of this node's units than it was told: then all in the window are told again.
 * Giving units back lowers it, so that the numbers that are used again are told again.
 */
#include "algorithm/history.h"
#include "base/numbers.h"
#include "fleet/fleet.h"
#include "fleet/report.h"

/* Slack for clocks and delays on a log's record. */
#define LOG_SLACK_MS 1000

/* A report of a log, to be filled in; NULL: no more fit in this round. */
static struct report *log_add(struct fleet *fleet, uint32_t cell, const struct note *note, const struct kept_key *key,
                              const struct policy *policy, const struct policy_limit *limit, uint64_t now_ns)
{
    if (fleet->log_count == ROUND_LOGS) {
        return NULL;
    }
    struct report *report = report_add(fleet, cell, note, false);
    struct log_news *log = &fleet->logs[fleet->log_count++];
    (void) report_record(fleet, report->record, policy, limit, key);
    report_asked_record(fleet, limit, report->record, log->asked_record);
    report->kind = REPORT_LOG;
    report->log = log;
    report->reset_us = report_reset_us(note);
    report->expire_ms = limit->rule.period_ns / NS_PER_MS + LOG_SLACK_MS;
    log->first = log->gone_from = log->gone_to = log->live = log->window_first = 0;
    log->now_us = now_ns / NS_PER_US;
    log->period_us = (limit->rule.period_ns + NS_PER_US - 1) / NS_PER_US;
    log->limit = max_u64(load_relaxed(&limit->log_most), limit->rule.limit);
    log->time_count = 0;
    return report;
}

/* How far apart two nodes' clocks may be before each takes the other's expired units for lost ones. */
#define LOG_SKEW_NS (100 * NS_PER_MS)

/* Number of the first unit that no node can have dropped yet. */
static uint64_t log_first_after(struct log *log, uint64_t now_ns, uint64_t period_ns)
{
    const uint64_t doubtful_ns = saturating_sub(now_ns, period_ns) + min_u64(LOG_SKEW_NS, period_ns / 2);
    uint64_t number = log->first;
    while (number < log->end && *log_time(log, number) <= doubtful_ns) {
        number++;
    }
    return number;
}

bool report_log(struct fleet *fleet, uint32_t cell, struct note *note, const struct kept_key *key,
                const struct policy *policy, const struct policy_limit *limit, uint64_t now_ns, bool again)
{
    struct report *report = log_add(fleet, cell, note, key, policy, limit, now_ns);
    if (report == NULL) {
        return false;
    }
    bool all = true;
    struct log_news *news = report->log;
    logs_lock(fleet->process, cell);
    struct log *log = logs_get(fleet->process, cell);
    if (log != NULL) {
        log_expire(log, &limit->rule, now_ns);
        logs_publish(fleet->process, cell, &limit->rule);
        learn_units(fleet, note, log->told, log->end, now_ns);
        report->asked = note->now.asked % REPORT_LOG_ASKED;
        log->told = again ? log->first : log->told;
        news->window_first = log->first;
        news->first = max_u64(log->told, log->first);
        news->time_count = (uint32_t) min_u64(saturating_sub(log->end, news->first), REPORT_LOG_TIMES);
        for (uint32_t i = 0; i < news->time_count; i++) {
            news->times_us[i] = report_time_us(*log_time(log, news->first + i));
        }
        const uint64_t told = news->first + news->time_count;
        report->count = told;
        news->live = saturating_sub(told, log_first_after(log, now_ns, limit->rule.period_ns));
        news->gone_to = max_u64(log->told_most, log->end);
        news->gone_from = max_u64(log->end, saturating_sub(news->gone_to, ROUND_GONE));
        all = told == log->end && news->gone_from == log->end;
        log->told = told; /* until the round fails, or units are given back */
        log->told_most = max_u64(log->told_most, told);
    }
    logs_unlock(fleet->process, cell);
    return all;
}

bool report_log_outrun(const struct fleet *fleet, uint32_t cell, uint64_t *told, uint64_t *end)
{
    logs_lock(fleet->process, cell);
    const struct log *log = logs_get(fleet->process, cell);
    /* Of what was given back a round tells ROUND_GONE units as well. */
    const bool outrun = log != NULL && log->told < log->end && log->told_most <= log->end + ROUND_GONE;
    if (outrun) {
        *told = log->told;
        *end = log->end;
    }
    logs_unlock(fleet->process, cell);
    return outrun;
}

bool report_log_orphan(struct fleet *fleet, const struct orphan *orphan, const struct policy *policy,
                       const struct policy_limit *limit, uint64_t now_ns)
{
    if (orphan->time_count == 0) {
        return true;
    }
    struct report *report = log_add(fleet, TABLE_NONE, &orphan->note, &orphan->key, policy, limit, now_ns);
    if (report == NULL) {
        return false;
    }
    report->log->first = orphan->first;
    report->log->time_count = orphan->time_count;
    for (uint32_t i = 0; i < orphan->time_count; i++) {
        report->log->times_us[i] = report_time_us(orphan->times[i]);
    }
    return true;
}

uint32_t report_log_remembered(const struct note *note, const struct rule *rule, struct log_group groups[],
                               uint32_t count, uint64_t now_ns)
{
    const uint64_t until_ns = load_relaxed(&note->before.remembered);
    uint64_t missing = until_ns > now_ns ? load_relaxed(&note->now.remembered) : 0;
    for (uint32_t i = 0; i < count; i++) {
        missing = saturating_sub(missing, groups[i].units);
    }
    if (missing == 0) {
        return count;
    }
    const struct log_group group = {.time_ns = saturating_sub(until_ns, rule->period_ns), .units = missing};
    uint32_t at = count;
    for (; at > 0 && groups[at - 1].time_ns > group.time_ns; at--) {
        groups[at] = groups[at - 1];
    }
    groups[at] = group;
    return count + 1;
}

/* Of the units from .. to - 1 those that are no later than a time. What this node no longer has was earlier. */
static uint64_t units_until(struct log *log, uint64_t from, uint64_t to, uint64_t time_us)
{
    uint64_t low = log != NULL ? min_u64(max_u64(log->first, from), to) : to;
    uint64_t high = log != NULL ? max_u64(min_u64(log->end, to), low) : to;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (report_time_us(*log_time(log, middle)) <= time_us) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low - from;
}

/*
 * Takes this node's own units out of the answered groups; the others' units stay, and their number is exact. The fleet
 * has the latest `mine` of what it was told, as the earliest units leave first.
 */
static void keep_others(struct log *log, const struct report *report)
{
    struct log_news *news = report->log;
    const uint64_t mine = min_u64(report->mine, report->sum);
    const uint64_t told = max_u64(report->count, saturating_add(news->window_first, mine));
    const uint64_t others = report->sum - mine;
    const uint32_t count = news->group_count <= LOG_GROUPS ? news->group_count : LOG_GROUPS;
    uint64_t all = 0;
    uint64_t kept = 0;
    news->group_count = 0;
    for (uint32_t i = 0; i < count && kept < others; i++) {
        const struct log_group group = news->groups[i];
        all = saturating_add(all, group.units);
        const uint64_t own = units_until(log, told - mine, told, group.time_ns);
        const uint64_t until = i + 1 == count ? others : min_u64(saturating_sub(all, own), others);
        if (until > kept) {
            news->groups[news->group_count++] = (struct log_group){group.time_ns, until - kept};
            kept = until;
        }
    }
}

bool report_log_fold(struct fleet *fleet, uint32_t at, struct note *note, const struct rule *rule,
                     const struct report *report, uint64_t now_ns, uint64_t *others)
{
    const struct log_news *news = report->log;
    struct log_group groups[LOG_GROUPS + 1];
    logs_lock(fleet->process, at);
    struct log *log = logs_get(fleet->process, at);
    keep_others(log, report);
    uint32_t count = news->group_count;
    for (uint32_t i = 0; i < count; i++) {
        groups[i] = (struct log_group){.time_ns = news->groups[i].time_ns * NS_PER_US, .units = news->groups[i].units};
    }
    if (news->reset_us * NS_PER_US + rule->period_ns >= load_relaxed(&note->before.remembered)) {
        store_relaxed(&note->now.remembered, 0); /* the reset was after the last of them */
    }
    count = report_log_remembered(note, rule, groups, count, now_ns);
    bool returned = false;
    if (count != 0) {
        struct log *room = logs_room(fleet->process, at, rule, count, now_ns);
        log = room != NULL ? room : log;
    }
    *others = 0;
    if (log != NULL) {
        log_expire(log, rule, now_ns);
        const uint64_t had = log->others;
        log_set_others(log, groups, count);
        /* What may be there now: what was just told, and of what was told before all but what was just taken away. */
        log->told_most = max_u64(news->first + news->time_count, min_u64(news->gone_to, news->gone_from));
        if (report->mine < news->live && report->sum < news->limit) {
            log->told = log->first; /* the fleet has lost some: tell it all again */
            table_set_dirty(&fleet->process->table, at);
            report_flush_again(fleet);
        }
        returned = log->others < had || news->reset_us != 0;
        log_clear(log, news->reset_us * NS_PER_US);
        log_expire(log, rule, now_ns);
        *others = saturating_sub(log->others, had);
        logs_publish(fleet->process, at, rule);
    }
    logs_unlock(fleet->process, at);
    return returned;
}

void report_log_retry(struct fleet *fleet, const struct origin *origin)
{
    struct cell *cell = &fleet->process->table.cells[origin->cell];
    const uint64_t hash = load_acquire(&cell->hash);
    if (hash == 0 || !cell_pin(cell, hash)) {
        return;
    }
    logs_lock(fleet->process, origin->cell);
    struct log *log = logs_get(fleet->process, origin->cell);
    if (log != NULL) {
        log->told = log->first;
    }
    logs_unlock(fleet->process, origin->cell);
    cell_unpin(cell);
}
