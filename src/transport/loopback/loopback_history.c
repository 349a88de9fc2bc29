/* SPDX-License-Identifier: Apache-2.0 */
/* See loopback_history.h. Written as plainly as possible: the tests hold the Redis script against this file. */
#include "transport/loopback/loopback_history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/numbers.h"

/* The demand of a sliding log's author counts for this long after its report. */
#define DEMAND_US UINT64_C(120000000)

/* Removes an author's units of numbers from .. to - 1 (NULL: of no author), and all units up to a time. */
static void remove_units(struct record *record, const char *author, uint64_t from, uint64_t to, uint64_t until_us)
{
    for (struct unit **at = &record->units; *at != NULL;) {
        struct unit *unit = *at;
        const bool named =
            author != NULL && strcmp(unit->author, author) == 0 && unit->number >= from && unit->number < to;
        if (named || unit->time_us <= until_us) {
            *at = unit->next;
            free(unit);
        } else {
            at = &unit->next;
        }
    }
}

static void add_unit(struct record *record, const char *author, uint64_t number, uint64_t time_us)
{
    remove_units(record, author, number, number + 1, 0);
    struct unit *unit = calloc(1, sizeof(*unit));
    if (unit == NULL) {
        return;
    }
    (void) snprintf(unit->author, sizeof(unit->author), "%s", author);
    unit->number = number;
    unit->time_us = time_us;
    struct unit **at = &record->units;
    while (*at != NULL && (*at)->time_us <= time_us) {
        at = &(*at)->next;
    }
    unit->next = *at;
    *at = unit;
}

/* Answers the demand of the other authors (scripts/report_history.lua). */
static void answer_demand(struct record *record, struct report *report)
{
    struct history_report *history = report->history;
    struct author *own = loopback_record_author(record, report->author);
    if (own != NULL) {
        own->demand = report->demand;
        own->reported_us = history->now_us;
    }
    report->sum_demand = history->other_authors = 0;
    for (const struct author *other = record->authors; other != NULL; other = other->next) {
        if (strcmp(other->name, report->author) != 0 && other->reported_us + DEMAND_US > history->now_us) {
            report->sum_demand += other->demand;
            history->other_authors++;
        }
    }
}

/* Answers the units in groups of equal size. The time of a group is that of its last unit. */
static void answer_units(const struct record *record, uint64_t units, struct history_report *history)
{
    const uint64_t each = max_u64((units + HISTORY_GROUPS - 1) / HISTORY_GROUPS, 1);
    history->group_count = 0;
    for (const struct unit *unit = record->units; unit != NULL; unit = unit->next) {
        struct history_group *last = history->group_count != 0 ? &history->groups[history->group_count - 1] : NULL;
        if (last == NULL || (last->units >= each && last->time_ns != unit->time_us)) {
            last = &history->groups[history->group_count++];
            last->units = 0;
        }
        last->time_ns = unit->time_us;
        last->units++;
    }
}

void loopback_history_apply(struct record *record, struct report *report, uint64_t now_ns)
{
    struct history_report *history = report->history;
    const uint64_t over_us = saturating_sub(history->now_us, history->period_us);
    record->reset_us = max_u64(record->reset_us, report->reset_us);
    remove_units(record, report->author, history->refund_from, history->refund_to, 0);
    for (uint32_t i = 0; i < history->time_count; i++) {
        add_unit(record, report->author, history->first + i, history->times_us[i]);
    }
    remove_units(record, NULL, 0, 0, max_u64(over_us, record->reset_us));
    uint64_t units = 0;
    for (const struct unit *unit = record->units; unit != NULL; unit = unit->next) {
        units++;
    }
    while (units > history->limit) {
        struct unit *next = record->units->next;
        free(record->units);
        record->units = next;
        units--;
    }
    record->expires_ns = now_ns + report->expire_ms * NS_PER_MS;
    record->net = (int64_t) units;
    report->status = 0;
    report->author_count = 0;
    report->sum = units;
    history->reset_us = record->reset_us;
    answer_demand(record, report);
    for (const struct unit *unit = record->units; unit != NULL; unit = unit->next) {
        report->author_count += strcmp(unit->author, report->author) == 0;
    }
    answer_units(record, units, history);
}
