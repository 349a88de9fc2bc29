/* SPDX-License-Identifier: Apache-2.0 */
/* See standing.h. The arithmetic is all of src/algorithm. */
#include "standing.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/error.h"
#include "base/numbers.h"
#include "fleet/keys/record_text.h"
#include "limiter/weir_private.h"
#include "policy/rate_list.h"

/* A bucket's times are kept from here: so long before now. Debts are shorter (WEIR_MAX_UNITS, weir.h). */
#define ORIGIN_BEFORE_NS (UINT64_C(366) * 86400 * NS_PER_S)

static void name_window(struct key_record *record, const char *name, uint64_t number)
{
    (void) snprintf(record->name, sizeof(record->name), "%.*s:%" PRIu64, REPORT_RECORD_SIZE - 22, name, number);
}

static bool read_records(struct standing *s, struct redis_link *link, const struct fleet_key *key,
                         const struct fleet_nodes *nodes, weir_error *error)
{
    char name[REPORT_RECORD_SIZE];
    char demand[REPORT_RECORD_SIZE];
    (void) record_text_write(name, key->prefix, key->policy, s->limit, key->text);
    switch (rule_kind(&s->rule)) {
    case RULE_WINDOW:
        name_window(&s->now, name, s->window_number);
        name_window(&s->before, name, s->window_number - 1);
        return key_record_read_counts(link, &s->now, nodes, error) &&
               key_record_read_counts(link, &s->before, nodes, error);
    case RULE_HISTORY:
        memcpy(s->now.name, name, sizeof(name));
        record_text_write_demand(demand, key->prefix, s->limit, name);
        return key_record_read_log(link, &s->now, nodes, demand, s->rule.history_max, error);
    case RULE_BUCKET:
        memcpy(s->now.name, name, sizeof(name));
        return key_record_read_counts(link, &s->now, nodes, error);
    }
    return false;
}

static struct state window_standing(struct standing *s, uint64_t now_ns)
{
    const uint32_t seq = window_seq_at(&s->rule, now_ns);
    const struct state before = window_charge_seq(window_fresh(&s->rule, now_ns), seq - 1, s->before.net);
    s->carried = rule_slides(&s->rule) ? s->rule.limit - rule_headroom(&s->rule, before, now_ns) : 0;
    s->count = saturating_add(s->now.net, s->carried);
    return window_charge_seq(before, seq, s->now.net);
}

/* The bucket's time, by the rate of its last report; then at the rate in force, as a node converts it. */
static struct state bucket_standing(struct standing *s, const struct fleet_key *key, uint64_t now_ns)
{
    struct rule reported = s->rule;
    const uint64_t unit = s->now.unit_ps * (1U << BUCKET_FRACTION_BITS);
    if (s->now.tat_us == 0 || s->now.unit_ps == 0) {
        return rule_fresh(&s->rule, now_ns);
    }
    reported.unit = unit / 1000 + (unit % 1000 != 0);
    rate_list_find(key->weir->names.rates, key->policy->group, s->limit->limit_hash, &reported);
    const struct state fresh = bucket_with_tat(rule_fresh(&reported, now_ns), bucket_time(&reported, now_ns));
    const struct state charged = rule_charge(&reported, fresh, now_ns, 1); /* has the number of the rate */
    const uint64_t tat = bucket_time(&reported, saturating_mul(s->now.tat_us, NS_PER_US));
    const struct state state = bucket_convert_rate(&s->rule, bucket_with_tat(charged, tat), now_ns);
    s->count = bucket_owed_up(&s->rule, state, now_ns);
    return state;
}

/* NULL: out of memory. The caller frees it. */
static struct history *history_standing(struct standing *s, uint64_t now_ns)
{
    uint32_t capacity = 1;
    while (capacity < s->now.time_count) {
        capacity *= 2;
    }
    struct history *history = calloc(1, history_size(capacity, 0));
    if (history == NULL) {
        return NULL;
    }
    history_init(history, capacity, 0);
    for (size_t i = 0; i < s->now.time_count; i++) {
        history_push(history, s->now.times_us[i] * NS_PER_US, 1);
    }
    history_clear(history, s->now.reset_us * NS_PER_US);
    history_expire(history, &s->rule, now_ns);
    return history;
}

static bool judge(struct standing *s, const struct fleet_key *key, uint64_t now_ns, uint64_t cost, weir_error *error)
{
    struct state state = {.a = 0};
    struct history *history = NULL;
    switch (rule_kind(&s->rule)) {
    case RULE_WINDOW:
        state = window_standing(s, now_ns);
        break;
    case RULE_BUCKET:
        state = bucket_standing(s, key, now_ns);
        break;
    case RULE_HISTORY:
        history = history_standing(s, now_ns);
        if (history == NULL) {
            return error_set(error, -ENOMEM, "out of memory") == 0;
        }
        state = history_summary(history, &s->rule);
        s->count = history_units(history);
        break;
    }
    const struct queue_request request = {.cost = cost};
    s->remaining = rule_headroom(&s->rule, state, now_ns);
    s->fits = rule_queue(&s->rule, state, now_ns, &request, &s->retry_after_ns);
    s->retry_after_ns = s->fits           ? 0
                        : history != NULL ? history_retry_after(history, &s->rule, now_ns, cost)
                                          : rule_retry_after(&s->rule, state, now_ns, cost);
    s->reset_after_ns = rule_reset_after(&s->rule, state, now_ns);
    free(history);
    return true;
}

bool standing_read(struct standing *out, struct redis_link *link, const struct fleet_key *key,
                   const struct policy_limit *limit, const struct fleet_nodes *nodes, uint64_t cost, weir_error *error)
{
    const uint64_t now_ns = nodes->fleet_us * NS_PER_US;
    *out = (struct standing){.limit = limit};
    out->rule = policy_rule(out->limit);
    out->rule.origin_ns = saturating_sub(now_ns, ORIGIN_BEFORE_NS);
    out->at_once = out->rule.limit;
    if (rule_kind(&out->rule) == RULE_WINDOW) {
        const struct window_span span = window_span_at(&out->rule, now_ns);
        out->window_number = span.number;
        out->start_ns = span.start_ns;
        out->end_ns = span.end_ns;
        out->ends_after_ns = span.end_ns - now_ns;
    }
    return read_records(out, link, key, nodes, error) && judge(out, key, now_ns, cost, error);
}

void standing_free(struct standing *standing)
{
    key_record_free(&standing->now);
    key_record_free(&standing->before);
}
