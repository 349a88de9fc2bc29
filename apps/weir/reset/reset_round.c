/* SPDX-License-Identifier: Apache-2.0 */
/* See reset_round.h. The reports are those of an author that has used nothing: report.h has the fields. */
#include "reset_round.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "algorithm/window.h"
#include "base/error.h"
#include "base/numbers.h"
#include "fleet/keys/record_text.h"
#include "fleet/tuning.h"
#include "policy/override_set.h"
#include "transport/author.h"
#include "transport/redis/redis.h"
#include "transport/transport.h"

/* How long Redis may take for all. */
#define TIMEOUT_MS 5000

/* What the round is made of. */
struct resetting {
    char node[16], author[REPORT_AUTHOR_SIZE];
    struct round round;
    struct report reports[2 * RESET_LIMITS_MOST];
    struct history_report histories[RESET_LIMITS_MOST];
    size_t history_count;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    (void) clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t) now.tv_sec * NS_PER_S + (uint64_t) now.tv_nsec;
}

/* Adds the report of a record, if it exists. NULL: it does not. */
static struct report *add(struct resetting *r, const struct key_record *record, enum report_kind kind,
                          uint64_t fleet_us)
{
    if (!record->exists) {
        return NULL;
    }
    struct report *report = &r->reports[r->round.report_count++];
    report->kind = kind;
    memcpy(report->record, record->name, sizeof(report->record));
    memcpy(report->author, r->author, sizeof(report->author));
    report->reset_us = report->now_us = report->from_us = fleet_us;
    return report;
}

static void add_window(struct resetting *r, const struct standing *s, bool before, uint64_t fleet_us)
{
    struct report *report = add(r, before ? &s->before : &s->now, REPORT_WINDOW, fleet_us);
    if (report != NULL) {
        const uint64_t end_ns = window_span_of(&s->rule, s->window_number - before + 1).end_ns;
        report->expire_ms = saturating_sub(end_ns, fleet_us * NS_PER_US) / NS_PER_MS + WINDOW_SLACK_MS;
    }
}

static void add_bucket(struct resetting *r, const struct standing *s, uint64_t fleet_us)
{
    struct report *report = add(r, &s->now, REPORT_BUCKET, fleet_us);
    if (report != NULL) {
        const uint64_t own_ps = max_u64(s->rule.unit * 1000 >> BUCKET_FRACTION_BITS, 1);
        report->unit_ps = s->now.unit_ps != 0 ? s->now.unit_ps : own_ps; /* the rate stays the last report's */
        report->expire_ms = BUCKET_SLACK_MS;
    }
}

static void add_log(struct resetting *r, const struct fleet_key *key, const struct standing *s, uint64_t fleet_us)
{
    struct report *report = add(r, &s->now, REPORT_HISTORY, fleet_us);
    if (report != NULL) {
        report->history = &r->histories[r->history_count++];
        record_text_write_demand(report->history->demand_record, key->prefix, s->limit, report->record);
        report->history->now_us = fleet_us;
        report->history->period_us = (s->rule.period_ns + NS_PER_US - 1) / NS_PER_US;
        report->history->limit = max_u64(s->rule.history_max, s->rule.limit);
        report->expire_ms = s->rule.period_ns / NS_PER_MS + HISTORY_SLACK_MS;
    }
}

/* Steps until the round has ended. 0, or a negative errno with a sentence. */
static int run_round(struct transport *t, struct round *round, weir_error *error)
{
    const uint64_t end_ns = now_ns() + TIMEOUT_MS * NS_PER_MS;
    bool begun = false;
    for (uint64_t now = now_ns(); now < end_ns; now = now_ns()) {
        struct pollfd fds[TRANSPORT_MAX_POLLFDS];
        const enum transport_event event = t->ops->step(t, now);
        if (event == TRANSPORT_ROUND_DONE) {
            return 0;
        }
        if (event == TRANSPORT_ROUND_FAILED) {
            break;
        }
        begun = begun || t->ops->begin(t, round, now) == 0;
        uint64_t deadline_ns = end_ns;
        const size_t count = t->ops->wait_for(t, fds, &deadline_ns);
        const uint64_t wait_ns = saturating_sub(deadline_ns, now_ns());
        (void) poll(fds, count, (int) min_u64(wait_ns / NS_PER_MS + 1, 50));
    }
    const char *problem = t->ops->problem(t);
    return error_set(error, -EIO, "%.60s: %.150s", t->ops->server(t), problem != NULL ? problem : "no answer");
}

/* Whether each record has taken its reset. */
static int judge(const struct resetting *r, weir_error *error)
{
    for (size_t i = 0; i < r->round.report_count; i++) {
        if (r->reports[i].status != 0) {
            return error_set(error, r->reports[i].status, "%.180s: %s", r->reports[i].record,
                             r->reports[i].status == -EPROTO ? "is no record of weir's" : "its server does not answer");
        }
    }
    return 0;
}

static void fill(struct resetting *r, const struct fleet_key *key, const struct standing *limits, size_t count,
                 uint64_t fleet_us)
{
    unsigned char id[6] = {0};
    (void) getrandom(id, sizeof(id), 0);
    for (size_t i = 0; i < sizeof(id); i++) {
        (void) snprintf(r->node + 2 * i, 3, "%02x", id[i]);
    }
    author_write(r->author, r->node, 1);
    r->round = (struct round){.reports = r->reports,
                              .node = r->node,
                              .suspect_ms = NODE_SUSPECT_INTERVALS,
                              .node_lifetime_ms = NODE_SUSPECT_INTERVALS + 1,
                              .asks = true,
                              .first = true};
    for (size_t i = 0; i < count; i++) {
        switch (rule_kind(&limits[i].rule)) {
        case RULE_WINDOW:
            add_window(r, &limits[i], true, fleet_us);
            add_window(r, &limits[i], false, fleet_us);
            break;
        case RULE_BUCKET:
            add_bucket(r, &limits[i], fleet_us);
            break;
        case RULE_HISTORY:
            add_log(r, key, &limits[i], fleet_us);
            break;
        }
    }
}

int reset_round(const char *url, const struct fleet_key *key, const struct standing *limits, size_t count,
                uint64_t fleet_us, weir_error *error)
{
    struct resetting *r = calloc(1, sizeof(*r));
    struct transport *transport = NULL;
    int result = -ENOMEM;
    if (r == NULL) {
        return error_set(error, -ENOMEM, "out of memory");
    }
    fill(r, key, limits, count, fleet_us);
    const struct transport_config config = {
        .url = url, .prefix = key->prefix, .timeout_ms = TIMEOUT_MS, .jitter_seed = fleet_us, .now_ns = now_ns()};
    if (r->round.report_count == 0) {
        result = 0;
    } else {
        result = redis_transport_open(&config, &transport, error);
        result = result == 0 ? run_round(transport, &r->round, error) : result;
        result = result == 0 ? judge(r, error) : result;
    }
    if (transport != NULL) {
        transport->ops->close(transport);
    }
    if (r->round.overrides_new) {
        overrides_drop(r->round.overrides, r->round.override_count);
    }
    free(r);
    return result;
}
