/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fleet within one process. It keeps the rules of transport.h as plainly as possible, so that it is also what the
 * scripts of the Redis transport are held against: the same tests run over both.
 */
#include "fleet/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/numbers.h"

#define BUCKETS 4096

/* Some nine years: a node counts no further. */
#define TAT_AHEAD_MOST_US UINT64_C(280000000000000)

/* What one author says of one record. */
struct author {
    struct author *next;
    char name[REPORT_AUTHOR_SIZE];
    uint64_t count, asked, back;
    uint64_t reset_us; /* the last one asked for by this author */
};

/* One unit of a log. */
struct unit {
    struct unit *next; /* the next later one */
    char author[REPORT_AUTHOR_SIZE];
    uint64_t number, time_us;
};

struct record {
    struct record *next;
    char name[REPORT_RECORD_SIZE];
    struct author *authors;
    uint64_t sum, sum_asked, sum_back;
    uint64_t tat_us, unit_ps; /* by the rate of the last report */
    struct unit *units;       /* earliest first */
    uint64_t reset_us;
    uint64_t expires_ns; /* by the fleet's clock */
};

struct member {
    struct member *next;
    char node[REPORT_AUTHOR_SIZE];
    uint64_t beat_ns;
};

struct memory_fleet {
    pthread_mutex_t lock;
    uint64_t (*wall_ns)(void *arg);
    void *arg;
    struct record *records[BUCKETS];
    struct member *members;
    uint64_t run; /* changes when everything is forgotten */
    struct override_text *overrides;
    size_t override_count;
    uint64_t override_version;
    bool down, hung, loses_answers;
};

struct memory_transport {
    struct transport base;
    struct memory_fleet *fleet;
    struct round *round;
    uint64_t timeout_ns, deadline_ns;
    uint64_t run; /* of the last good round */
    const char *problem;
};

struct memory_fleet *memory_fleet_new(uint64_t (*wall_ns)(void *arg), void *arg)
{
    struct memory_fleet *fleet = calloc(1, sizeof(*fleet));
    if (fleet != NULL) {
        (void) pthread_mutex_init(&fleet->lock, NULL);
        fleet->wall_ns = wall_ns;
        fleet->arg = arg;
        fleet->run = 1;
    }
    return fleet;
}

static void record_free(struct record *record)
{
    for (struct author *author = record->authors; author != NULL;) {
        struct author *next = author->next;
        free(author);
        author = next;
    }
    while (record->units != NULL) {
        struct unit *next = record->units->next;
        free(record->units);
        record->units = next;
    }
    free(record);
}

static void forget_all(struct memory_fleet *fleet)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        while (fleet->records[i] != NULL) {
            struct record *next = fleet->records[i]->next;
            record_free(fleet->records[i]);
            fleet->records[i] = next;
        }
    }
    while (fleet->members != NULL) {
        struct member *next = fleet->members->next;
        free(fleet->members);
        fleet->members = next;
    }
}

void memory_fleet_free(struct memory_fleet *fleet)
{
    forget_all(fleet);
    for (size_t i = 0; i < fleet->override_count; i++) {
        free(fleet->overrides[i].field);
        free(fleet->overrides[i].value);
    }
    free(fleet->overrides);
    (void) pthread_mutex_destroy(&fleet->lock);
    free(fleet);
}

static void set_flag(struct memory_fleet *fleet, bool *flag, bool value)
{
    (void) pthread_mutex_lock(&fleet->lock);
    *flag = value;
    (void) pthread_mutex_unlock(&fleet->lock);
}

void memory_fleet_set_down(struct memory_fleet *fleet, bool down)
{
    set_flag(fleet, &fleet->down, down);
}

void memory_fleet_set_hung(struct memory_fleet *fleet, bool hung)
{
    set_flag(fleet, &fleet->hung, hung);
}

void memory_fleet_lose_answers(struct memory_fleet *fleet, bool lose)
{
    set_flag(fleet, &fleet->loses_answers, lose);
}

void memory_fleet_forget(struct memory_fleet *fleet)
{
    (void) pthread_mutex_lock(&fleet->lock);
    forget_all(fleet);
    fleet->run++;
    (void) pthread_mutex_unlock(&fleet->lock);
}

/* The record of a name; with `make`, a new one where there is none or it has expired. */
static struct record *find_record(struct memory_fleet *fleet, const char *name, bool make, uint64_t now_ns)
{
    uint64_t hash[2];
    hash_shared(name, strlen(name), hash);
    struct record **at = &fleet->records[hash[0] % BUCKETS];
    while (*at != NULL) {
        struct record *record = *at;
        if (record->expires_ns <= now_ns) {
            *at = record->next;
            record_free(record);
        } else if (strcmp(record->name, name) == 0) {
            return record;
        } else {
            at = &record->next;
        }
    }
    if (make && (*at = calloc(1, sizeof(**at))) != NULL) {
        (void) snprintf((*at)->name, sizeof((*at)->name), "%s", name);
    }
    return *at;
}

static struct author *find_author(struct record *record, const char *name)
{
    for (struct author *author = record->authors; author != NULL; author = author->next) {
        if (strcmp(author->name, name) == 0) {
            return author;
        }
    }
    struct author *author = calloc(1, sizeof(*author));
    if (author != NULL) {
        (void) snprintf(author->name, sizeof(author->name), "%s", name);
        author->next = record->authors;
        record->authors = author;
    }
    return author;
}

/* Takes away a log's units of one author (NULL: all) with numbers from .. to - 1, or (from > to) up to a time. */
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

/* Adds a unit to what is answered: of more groups than there may be, the last ones become one. */
static void answer_unit(struct log_news *log, uint64_t time_us)
{
    struct log_group *last = log->group_count != 0 ? &log->groups[log->group_count - 1] : NULL;
    if (last == NULL || (last->time_ns != time_us && log->group_count < LOG_GROUPS)) {
        log->groups[log->group_count++] = (struct log_group){.time_ns = time_us, .units = 1};
    } else {
        last->time_ns = time_us;
        last->units++;
    }
}

static void apply_log(struct record *record, struct report *report, uint64_t now_ns)
{
    struct log_news *log = report->log;
    const uint64_t over_us = saturating_sub(log->now_us, log->period_us);
    record->reset_us = max_u64(record->reset_us, report->reset_us);
    remove_units(record, report->author, log->gone_from, log->gone_to, 0);
    for (uint32_t i = 0; i < log->time_count; i++) {
        add_unit(record, report->author, log->first + i, log->times_us[i]);
    }
    remove_units(record, NULL, 0, 0, max_u64(over_us, record->reset_us));
    uint64_t units = 0;
    for (const struct unit *unit = record->units; unit != NULL; unit = unit->next) {
        units++;
    }
    while (units > log->limit) {
        struct unit *next = record->units->next;
        free(record->units);
        record->units = next;
        units--;
    }
    record->expires_ns = now_ns + report->expire_ms * NS_PER_MS;
    record->sum = units;
    report->status = 0;
    report->mine = 0;
    report->sum = units;
    log->reset_us = record->reset_us;
    log->group_count = 0;
    for (const struct unit *unit = record->units; unit != NULL; unit = unit->next) {
        if (strcmp(unit->author, report->author) == 0) {
            report->mine++;
        } else {
            answer_unit(log, unit->time_us);
        }
    }
}

static uint64_t units_time_us(uint64_t units, uint64_t unit_ps)
{
    return muldiv_ceil(units, unit_ps, 1000000);
}

/* Moves a bucket by what is new: `news` units more, `returned` given back. */
static void move_bucket(struct record *record, const struct report *report, uint64_t news, uint64_t returned)
{
    if (record->unit_ps != 0 && record->unit_ps != report->unit_ps && record->tat_us > report->from_us) {
        /* The rate has changed: the units owed stay. */
        record->tat_us =
            report->from_us + muldiv_ceil(record->tat_us - report->from_us, report->unit_ps, record->unit_ps);
    }
    record->unit_ps = report->unit_ps;
    if (news != 0) {
        record->tat_us = saturating_add(max_u64(record->tat_us, report->from_us), units_time_us(news, report->unit_ps));
    }
    record->tat_us = saturating_sub(record->tat_us, units_time_us(returned, report->unit_ps));
    /* What the author has seen of the bucket, less what was given back since. */
    const uint64_t unseen = saturating_sub(record->sum_back, report->known_back);
    record->tat_us = max_u64(record->tat_us, saturating_sub(report->tat_us, units_time_us(unseen, report->unit_ps)));
    record->tat_us = min_u64(record->tat_us, report->from_us + TAT_AHEAD_MOST_US);
}

/* Gives back everything the record counts, in the author's name. */
static void reset_record(struct record *record, struct author *author, const struct report *report)
{
    uint64_t units = saturating_sub(record->sum, record->sum_back + report->reset_kept);
    if (report->kind == REPORT_BUCKET) {
        const uint64_t owed = muldiv_ceil(saturating_sub(record->tat_us, report->from_us), 1000000, report->unit_ps);
        units = min_u64(units, saturating_sub(owed, report->reset_kept));
        record->tat_us =
            report->reset_kept == 0 ? 0 : report->from_us + units_time_us(report->reset_kept, report->unit_ps);
    }
    author->back += units;
    author->reset_us = report->reset_us;
    record->sum_back += units;
}

static void apply_report(struct memory_fleet *fleet, struct report *report, uint64_t now_ns)
{
    struct record *record = find_record(fleet, report->record, true, now_ns);
    if (record != NULL && report->kind == REPORT_LOG) {
        apply_log(record, report, now_ns);
        return;
    }
    struct author *author = record != NULL ? find_author(record, report->author) : NULL;
    if (author == NULL) {
        report->status = -ENOMEM;
        return;
    }
    const uint64_t count = max_u64(report->count, author->count);
    const uint64_t asked = max_u64(report->asked, author->asked);
    const uint64_t back = max_u64(report->back, author->back);
    record->sum += count - author->count;
    record->sum_asked += asked - author->asked;
    record->sum_back += back - author->back;
    if (report->kind == REPORT_BUCKET) {
        move_bucket(record, report, saturating_sub(count, max_u64(author->count, report->acked)),
                    saturating_sub(back, max_u64(author->back, report->acked_back)));
        const uint64_t full_ms = saturating_sub(record->tat_us, report->from_us) / 1000 + 1;
        record->expires_ns = now_ns + (full_ms + report->expire_ms) * NS_PER_MS;
    } else if (record->expires_ns == 0) {
        record->expires_ns = now_ns + report->expire_ms * NS_PER_MS;
    }
    author->count = count;
    author->asked = asked;
    author->back = back;
    if (report->reset_us > author->reset_us) {
        reset_record(record, author, report);
    }
    report->status = 0;
    report->mine = count;
    report->mine_back = author->back;
    report->sum = record->sum;
    report->sum_asked = record->sum_asked;
    report->sum_back = record->sum_back;
    report->tat_answer_us = record->tat_us;
}

void memory_fleet_set_override(struct memory_fleet *fleet, const char *field, const char *value)
{
    (void) pthread_mutex_lock(&fleet->lock);
    size_t at = 0;
    while (at < fleet->override_count && strcmp(fleet->overrides[at].field, field) != 0) {
        at++;
    }
    if (at < fleet->override_count) {
        free(fleet->overrides[at].field);
        free(fleet->overrides[at].value);
        fleet->overrides[at] = fleet->overrides[--fleet->override_count];
    }
    if (value != NULL) {
        struct override_text *grown =
            realloc(fleet->overrides, (fleet->override_count + 1) * sizeof(*fleet->overrides));
        if (grown != NULL) {
            fleet->overrides = grown;
            grown[fleet->override_count++] = (struct override_text){.field = strdup(field), .value = strdup(value)};
        }
    }
    fleet->override_version++;
    (void) pthread_mutex_unlock(&fleet->lock);
}

static void answer_overrides(const struct memory_fleet *fleet, struct round *round)
{
    char version[sizeof(round->overrides_version)];
    (void) snprintf(version, sizeof(version), "%llu", (unsigned long long) fleet->override_version);
    round->overrides_new = false;
    if (strcmp(version, round->overrides_version) == 0 ||
        (fleet->override_version == 0 && round->overrides_version[0] == '\0')) {
        return;
    }
    round->overrides = calloc(fleet->override_count + 1, sizeof(*round->overrides));
    if (round->overrides == NULL) {
        return;
    }
    for (size_t i = 0; i < fleet->override_count; i++) {
        round->overrides[i].field = strdup(fleet->overrides[i].field);
        round->overrides[i].value = strdup(fleet->overrides[i].value);
    }
    round->override_count = fleet->override_count;
    round->overrides_new = true;
    memcpy(round->overrides_version, version, sizeof(version));
}

/* True: the node's last heartbeat was still there. */
static bool beat(struct memory_fleet *fleet, const struct round *round, uint64_t now_ns, uint32_t *live)
{
    bool was_here = false;
    struct member **at = &fleet->members;
    *live = 1;
    while (*at != NULL) {
        struct member *member = *at;
        const bool mine = strcmp(member->node, round->node) == 0;
        was_here = was_here || mine;
        if (mine || member->beat_ns + round->node_lifetime_ms * NS_PER_MS < now_ns) {
            *at = member->next;
            free(member);
        } else {
            ++*live;
            at = &member->next;
        }
    }
    struct member *member = calloc(1, sizeof(*member));
    if (member != NULL) {
        (void) snprintf(member->node, sizeof(member->node), "%s", round->node);
        member->beat_ns = now_ns;
        member->next = fleet->members;
        fleet->members = member;
    }
    return was_here;
}

static void apply_round(struct memory_transport *t, uint64_t monotonic_ns)
{
    struct memory_fleet *fleet = t->fleet;
    struct round *round = t->round;
    const uint64_t now_ns = fleet->wall_ns(fleet->arg);
    const bool was_here = beat(fleet, round, now_ns, &round->live_nodes);
    for (size_t i = 0; i < round->report_count; i++) {
        apply_report(fleet, &round->reports[i], now_ns);
    }
    answer_overrides(fleet, round);
    round->received_ns = monotonic_ns;
    round->fleet_wall_ns = now_ns;
    round->forgot = !round->first && (!was_here || t->run != fleet->run);
}

static struct memory_transport *of(struct transport *t)
{
    return (struct memory_transport *) (void *) t;
}

static int memory_begin(struct transport *transport, struct round *round, uint64_t now_ns)
{
    struct memory_transport *t = of(transport);
    if (t->round != NULL) {
        return -EBUSY;
    }
    (void) pthread_mutex_lock(&t->fleet->lock);
    const bool down = t->fleet->down;
    (void) pthread_mutex_unlock(&t->fleet->lock);
    if (down) {
        return -ENOTCONN;
    }
    t->round = round;
    round->sent_ns = now_ns;
    t->deadline_ns = now_ns + t->timeout_ns;
    return 0;
}

static enum transport_event fail(struct memory_transport *t, const char *problem)
{
    t->round = NULL;
    t->problem = problem;
    return TRANSPORT_ROUND_FAILED;
}

static enum transport_event memory_step(struct transport *transport, uint64_t now_ns)
{
    struct memory_transport *t = of(transport);
    struct memory_fleet *fleet = t->fleet;
    enum transport_event event = TRANSPORT_NOTHING;
    (void) pthread_mutex_lock(&fleet->lock);
    if (fleet->down) {
        t->problem = "the fleet is down";
    }
    if (t->round != NULL && fleet->down) {
        event = fail(t, "the fleet went down");
    } else if (t->round != NULL && fleet->hung) {
        event = now_ns >= t->deadline_ns ? fail(t, "no answer") : TRANSPORT_NOTHING;
    } else if (t->round != NULL) {
        apply_round(t, now_ns);
        if (fleet->loses_answers) {
            event = fail(t, "the answer was lost");
        } else {
            event = TRANSPORT_ROUND_DONE;
            t->run = fleet->run;
            t->round = NULL;
            t->problem = NULL;
        }
    }
    (void) pthread_mutex_unlock(&fleet->lock);
    return event;
}

static enum transport_state memory_state(const struct transport *transport)
{
    const struct memory_transport *t = (const struct memory_transport *) (const void *) transport;
    (void) pthread_mutex_lock(&t->fleet->lock);
    const bool down = t->fleet->down;
    (void) pthread_mutex_unlock(&t->fleet->lock);
    return t->round != NULL ? TRANSPORT_BUSY : down ? TRANSPORT_DOWN : TRANSPORT_READY;
}

static size_t memory_wait_for(const struct transport *transport, struct pollfd *fds, uint64_t *deadline_ns)
{
    const struct memory_transport *t = (const struct memory_transport *) (const void *) transport;
    (void) fds;
    if (t->round != NULL) {
        *deadline_ns = 0; /* answered in the next step */
    }
    return 0;
}

static const char *memory_problem(const struct transport *transport)
{
    return ((const struct memory_transport *) (const void *) transport)->problem;
}

static uint64_t memory_connect_count(const struct transport *transport)
{
    (void) transport;
    return 1;
}

static void memory_close(struct transport *transport)
{
    free(of(transport));
}

static const struct transport_ops memory_ops = {
    .begin = memory_begin,
    .step = memory_step,
    .state = memory_state,
    .wait_for = memory_wait_for,
    .problem = memory_problem,
    .connect_count = memory_connect_count,
    .close = memory_close,
};

int memory_transport_open(struct memory_fleet *fleet, const struct transport_config *config, struct transport **out,
                          weir_error *error)
{
    struct memory_transport *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    t->base.ops = &memory_ops;
    t->fleet = fleet;
    t->timeout_ns = config->timeout_ms * NS_PER_MS;
    *out = &t->base;
    return error_clear(error);
}

/* Calls for each record that is alive. */
static uint64_t over_records(const struct memory_fleet *fleet, const char *part, bool count)
{
    struct memory_fleet *unlocked = (struct memory_fleet *) (uintptr_t) fleet;
    uint64_t total = 0;
    (void) pthread_mutex_lock(&unlocked->lock);
    const uint64_t now_ns = fleet->wall_ns(fleet->arg);
    for (size_t i = 0; i < BUCKETS; i++) {
        for (const struct record *record = fleet->records[i]; record != NULL; record = record->next) {
            if (record->expires_ns > now_ns && strstr(record->name, part) != NULL) {
                total += count ? 1 : record->sum - record->sum_back;
            }
        }
    }
    (void) pthread_mutex_unlock(&unlocked->lock);
    return total;
}

uint64_t memory_fleet_sum(const struct memory_fleet *fleet, const char *part)
{
    return over_records(fleet, part, false);
}

uint64_t memory_fleet_record_count(const struct memory_fleet *fleet)
{
    return over_records(fleet, "", true);
}
