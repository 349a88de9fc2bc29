/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records, by the rules of transport.h, written as plainly as possible. The tests hold the Redis scripts against these
 * rules: random reports are answered alike by both. The rules of sliding logs are in loopback_history.c.
 */
#include "transport/loopback/records.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/count.h"
#include "base/hash.h"
#include "base/numbers.h"
#include "transport/loopback/loopback_history.h"
#include "transport/loopback/loopback_record.h"

/* Some nine years: nodes keep the times of buckets in this range. */
#define TAT_AHEAD_MOST_US UINT64_C(280000000000000)

/* All authors of a lost record report within this time. */
#define REPAIR_US UINT64_C(10000000)

/* Chains of the first record: fewer would double sooner, more would cost each new fleet memory. */
#define CHAINS_FIRST 4096

void records_clear(struct records *records)
{
    for (size_t i = 0; i < records->chain_count; i++) {
        while (records->chains[i] != NULL) {
            struct record *next = records->chains[i]->next;
            loopback_record_free(records->chains[i]);
            records->chains[i] = next;
        }
    }
    free(records->chains);
    records->chains = NULL;
    records->chain_count = records->record_count = 0;
}

bool records_copy(struct records *to, const struct records *from)
{
    records_clear(to);
    to->chains = calloc(from->chain_count + 1, sizeof(struct record *)); /* calloc(0) may return NULL */
    bool all = to->chains != NULL;
    to->chain_count = all ? from->chain_count : 0;
    to->record_count = from->record_count;
    for (size_t i = 0; i < from->chain_count && all; i++) {
        struct record **at = &to->chains[i];
        for (const struct record *next = from->chains[i]; next != NULL && all; next = next->next) {
            *at = loopback_record_copy(next);
            all = *at != NULL;
            if (all) {
                (*at)->next = NULL;
                at = &(*at)->next;
            }
        }
    }
    if (!all) {
        records_clear(to);
    }
    return all;
}

/* Doubles the chains when there are as many records. False: out of memory, and there are no chains. */
static bool make_chains(struct records *records)
{
    if (records->record_count < records->chain_count) {
        return true;
    }
    const size_t count = records->chain_count != 0 ? 2 * records->chain_count : CHAINS_FIRST;
    struct record **chains = calloc(count, sizeof(struct record *));
    if (chains == NULL) {
        return records->chain_count != 0;
    }
    for (size_t i = 0; i < records->chain_count; i++) {
        while (records->chains[i] != NULL) {
            struct record *record = records->chains[i];
            records->chains[i] = record->next;
            record->next = chains[record->hash % count];
            chains[record->hash % count] = record;
        }
    }
    free(records->chains);
    records->chains = chains;
    records->chain_count = count;
    return true;
}

/* The record of this name. `make`: a new record, if there is none or it has expired. */
static struct record *find_record(struct records *records, const char *name, bool make, uint64_t now_ns)
{
    uint64_t hash[2];
    hash_shared(name, strlen(name), hash);
    if (!make_chains(records)) {
        return NULL;
    }
    struct record **at = &records->chains[hash[0] % records->chain_count];
    while (*at != NULL) {
        struct record *record = *at;
        if (record->expires_ns <= now_ns) {
            *at = record->next;
            loopback_record_free(record);
            records->record_count--;
        } else if (record->hash == hash[0] && strcmp(record->name, name) == 0) {
            return record;
        } else {
            at = &record->next;
        }
    }
    if (make && (*at = calloc(1, sizeof(**at))) != NULL) {
        (void) snprintf((*at)->name, sizeof((*at)->name), "%s", name);
        (*at)->hash = hash[0];
        records->record_count++;
    }
    return *at;
}

static uint64_t units_time_us(uint64_t units, uint64_t unit_ps)
{
    return muldiv_ceil(units, unit_ps, 1000000);
}

/*
 * The bucket's time that the author has seen, as of this record. It includes `unacked` units that the record has had
 * already. `unseen_refunds`, which the author had not seen, are taken off.
 */
static uint64_t seen_tat_us(const struct report *report, uint64_t unacked, uint64_t unseen_refunds)
{
    const uint64_t more_us = report->tat_us != 0 ? units_time_us(unacked, report->unit_ps) : 0;
    return saturating_sub(saturating_add(report->tat_us, more_us), units_time_us(unseen_refunds, report->unit_ps));
}

/* What a report says of a bucket, as of the record that it comes to. */
struct bucket_report {
    bool lost;                /* the author has seen a record that was lost */
    uint64_t seen_us;         /* the time that the author has seen */
    uint64_t units, refunded; /* that move the bucket */
};

/* A bucket whose record was lost: as repair() in report_bucket.lua. `is_known`: by the same rate as the last report. */
static void repair_record(struct record *record, const struct report *report, const struct bucket_report *of,
                          bool is_known)
{
    const bool first = record->lost_us == 0 || report->now_us - record->lost_us > REPAIR_US || !is_known;
    const uint64_t from_us = first ? 0 : record->from_us;
    const uint64_t known = first ? 0 : record->known;
    /* In doubles, as Lua has them. */
    const double later_ps = ((double) report->tat_us - (double) from_us) * 1000000;
    const double more_ps = ((double) report->known - (double) known) * (double) report->unit_ps;
    if (first) {
        record->lost_us = 0;
        record->from_us = record->known = 0;
    }
    if (is_known && report->known != 0 && (known == 0 || later_ps > more_ps)) {
        record->lost_us = first ? report->now_us : record->lost_us;
        record->from_us = report->tat_us;
        record->known = report->known;
    }
    const int64_t there = record->net - (int64_t) of->units + (int64_t) of->refunded;
    if (record->known != 0) {
        const int64_t more = there - (int64_t) record->known;
        const uint64_t time_us = muldiv_ceil(more > 0 ? (uint64_t) more : 0, report->unit_ps, 1000000);
        const uint64_t less_us = muldiv_floor(more < 0 ? (uint64_t) -more : 0, report->unit_ps, 1000000);
        record->tat_us = max_u64(record->tat_us, saturating_sub(record->from_us + time_us, less_us));
    }
}

/* Moves a bucket's time by what the report says. */
static void move_record(struct record *record, const struct report *report, const struct bucket_report *of)
{
    const uint64_t now_us = report->now_us;
    const bool is_known = record->unit_ps == 0 || record->unit_ps == report->unit_ps;
    if (record->unit_ps != 0 && record->unit_ps != report->unit_ps && record->tat_us > now_us) {
        /* The rate has changed: the units that are owed stay. */
        record->tat_us = now_us + muldiv_ceil(record->tat_us - now_us, report->unit_ps, record->unit_ps);
    }
    record->unit_ps = report->unit_ps;
    record->tat_us = max_u64(record->tat_us, of->seen_us);
    if (of->lost) {
        repair_record(record, report, of, is_known);
    }
    const uint64_t units = report->moves != 0 ? min_u64(of->units, report->moves - 1) : of->units;
    if (units != 0) {
        const bool all = report->moves == 0;
        const uint64_t from_us = max_u64(record->tat_us, all ? report->from_us : report->now_us);
        const uint64_t most_us = all ? UINT64_MAX : max_u64(record->tat_us, report->most_us);
        record->tat_us = min_u64(saturating_add(from_us, units_time_us(units, report->unit_ps)), most_us);
    }
    record->tat_us = saturating_sub(record->tat_us, units_time_us(of->refunded, report->unit_ps));
    record->tat_us = min_u64(record->tat_us, now_us + TAT_AHEAD_MOST_US);
}

/* Refunds everything that the record counts, in the author's name. */
static void reset_record(struct record *record, struct author *author, const struct report *report, uint64_t now_us)
{
    uint64_t units = saturating_sub((uint64_t) (record->net > 0 ? record->net : 0), report->reset_kept);
    if (report->kind == REPORT_BUCKET) {
        const uint64_t owed = muldiv_ceil(saturating_sub(record->tat_us, now_us), 1000000, report->unit_ps);
        units = min_u64(units, saturating_sub(owed, report->reset_kept));
        record->tat_us = report->reset_kept == 0 ? 0 : now_us + units_time_us(report->reset_kept, report->unit_ps);
    }
    author->refunds = count_add(author->refunds, units);
    author->reset_us = report->reset_us;
    record->sum_refunds = count_add(record->sum_refunds, units);
    record->net -= (int64_t) units;
}

/* The net sum is below 0 for a while if one author has refunded units that were charged to another. */
static int64_t net_add(int64_t net, uint64_t more)
{
    return net < 0 ? net + (int64_t) more : (int64_t) count_add((uint64_t) net, more);
}

void records_apply(struct records *records, struct report *report, uint64_t now_ns)
{
    /* A report of zeros creates no record of a window. */
    const bool makes = report->kind != REPORT_WINDOW || report->count != 0 || report->demand != 0 ||
                       report->refunds != 0 || report->reset_us != 0;
    struct record *record = find_record(records, report->record, makes, now_ns);
    if (record == NULL && !makes) {
        report->status = 0;
        return; /* the answers are 0 */
    }
    if (record != NULL && report->kind == REPORT_HISTORY) {
        loopback_history_apply(record, report, now_ns);
        return;
    }
    struct author *author = record != NULL ? loopback_record_author(record, report->author) : NULL;
    if (author == NULL) {
        report->status = -ENOMEM;
        return;
    }
    const uint64_t acked = count_wire(report->acked);
    const uint64_t acked_refunds = count_wire(report->acked_refunds);
    const uint64_t more = count_growth(author->count, count_wire(report->count));
    const uint64_t more_demand = count_growth(author->demand, count_wire(report->demand));
    const uint64_t more_refunds = count_growth(author->refunds, count_wire(report->refunds));
    const uint64_t count = more != 0 ? count_wire(report->count) : author->count;
    const uint64_t refunds = more_refunds != 0 ? count_wire(report->refunds) : author->refunds;
    const uint64_t unseen_refunds = count_growth(count_wire(report->known_refunds), record->sum_refunds);
    record->net = net_add(record->net, more) - (int64_t) more_refunds;
    record->sum_demand = count_add(record->sum_demand, more_demand);
    record->sum_refunds = count_add(record->sum_refunds, more_refunds);
    if (record->net + (int64_t) record->sum_refunds < 0) {
        record->net += (int64_t) COUNT_RESTART; /* one of the two sums has wrapped */
    }
    if (report->kind == REPORT_BUCKET) {
        const bool lost = count_growth(author->count, acked) != 0;
        const bool lost_refunds = count_growth(author->refunds, acked_refunds) != 0;
        const uint64_t unacked = more != 0 ? count_growth(acked, author->count) : 0; /* 0 if lost */
        const struct bucket_report of = {.lost = lost,
                                         .seen_us = seen_tat_us(report, unacked, unseen_refunds),
                                         .units = lost ? count_growth(acked, count) : more,
                                         .refunded =
                                             lost_refunds ? count_growth(acked_refunds, refunds) : more_refunds};
        move_record(record, report, &of);
        const uint64_t full_ms = saturating_sub(record->tat_us, now_ns / NS_PER_US) / 1000 + 1;
        record->expires_ns = now_ns + (full_ms + report->expire_ms) * NS_PER_MS;
    } else if (record->expires_ns == 0) {
        record->expires_ns = now_ns + report->expire_ms * NS_PER_MS;
    }
    author->count = count;
    author->demand = more_demand != 0 ? count_wire(report->demand) : author->demand;
    author->refunds = refunds;
    if (report->reset_us > author->reset_us) {
        reset_record(record, author, report, report->now_us);
    }
    report->status = 0;
    report->author_count = count;
    report->author_refunds = author->refunds;
    report->sum = (uint64_t) net_add(record->net, record->sum_refunds);
    report->sum_demand = record->sum_demand;
    report->sum_refunds = record->sum_refunds;
    report->tat_answer_us = record->tat_us;
}

void records_each(const struct records *records, uint64_t now_ns, loopback_record_fn call, void *arg)
{
    for (size_t i = 0; i < records->chain_count; i++) {
        for (const struct record *record = records->chains[i]; record != NULL; record = record->next) {
            if (record->expires_ns <= now_ns) {
                continue;
            }
            for (const struct author *author = record->units == NULL ? record->authors : NULL; author != NULL;
                 author = author->next) {
                call(arg, record->name, author->name, author->count, author->refunds);
            }
            for (const struct unit *unit = record->units; unit != NULL; unit = unit->next) {
                call(arg, record->name, unit->author, 1, 0);
            }
        }
    }
}

uint64_t records_total(const struct records *records, uint64_t now_ns, const char *part, bool count)
{
    uint64_t total = 0;
    for (size_t i = 0; i < records->chain_count; i++) {
        for (const struct record *record = records->chains[i]; record != NULL; record = record->next) {
            if (record->expires_ns > now_ns && strstr(record->name, part) != NULL) {
                total += count ? 1 : (uint64_t) record->net;
            }
        }
    }
    return total;
}
