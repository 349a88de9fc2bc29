/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One switch by kind for each question, over window.h, history.h and bucket.h. None has a default: the compiler names
 * each of them for a new kind.
 */
#include "algorithm/rule.h"

#include "algorithm/bucket.h"
#include "algorithm/history.h"
#include "algorithm/window.h"
#include "base/numbers.h"

#define DAY_NS (UINT64_C(86400) * NS_PER_S)

struct rule rule_make(const weir_limit *limit, uint64_t origin_ns)
{
    struct rule rule = {
        .algorithm = limit->algorithm,
        .limit = limit->limit,
        .period_ns = limit->period_ns,
        .origin_ns = origin_ns,
    };
    rule.calendar = limit->calendar;
    if (limit->calendar == WEIR_CALENDAR_DAY) {
        rule.period_ns = DAY_NS; /* Unix time has days of one length, and begins with one */
    } else if (limit->calendar == WEIR_CALENDAR_MONTH) {
        rule.period_ns = 31 * DAY_NS;
    }
    switch (rule_kind(&rule)) {
    case RULE_WINDOW:
    case RULE_HISTORY:
        break;
    case RULE_BUCKET:
        rule.limit = limit->burst != 0 ? limit->burst : limit->limit;
        /* Rounded up, so that the rate is never above the configured one. */
        rule.unit = muldiv_ceil(limit->period_ns, UINT64_C(1) << BUCKET_FRACTION_BITS, limit->limit);
        rule.tolerance = saturating_mul(rule.limit, rule.unit);
        rule.ahead = limit->delay;
        break;
    }
    return rule;
}

struct state rule_fresh(const struct rule *rule, uint64_t now_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return window_fresh(rule, now_ns);
    case RULE_HISTORY:
        return history_fresh();
    case RULE_BUCKET:
        return bucket_fresh();
    }
    return (struct state){0, 0};
}

uint64_t rule_headroom(const struct rule *rule, struct state state, uint64_t now_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return window_headroom(rule, state, now_ns);
    case RULE_HISTORY:
        return history_headroom(rule, state, now_ns);
    case RULE_BUCKET:
        return bucket_headroom(rule, state, now_ns);
    }
    return 0;
}

struct state rule_charge(const struct rule *rule, struct state state, uint64_t now_ns, uint64_t units)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return window_charge(rule, state, now_ns, units);
    case RULE_HISTORY:
        return state;
    case RULE_BUCKET:
        return bucket_charge(rule, state, now_ns, units);
    }
    return state;
}

struct state rule_charge_late(const struct rule *rule, struct state state, uint64_t then_ns, uint64_t units)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return window_charge_seq(state, window_seq_at(rule, then_ns), units);
    case RULE_HISTORY:
        return state;
    case RULE_BUCKET:
        return bucket_charge_late(rule, state, then_ns, units);
    }
    return state;
}

struct state rule_refund(const struct rule *rule, struct state state, uint64_t now_ns, struct refund *refund)
{
    refund->refunded = refund->refunded_previous = 0;
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return window_refund(rule, state, now_ns, refund);
    case RULE_HISTORY:
        return state;
    case RULE_BUCKET:
        return bucket_refund(rule, state, now_ns, refund->units, &refund->refunded);
    }
    return state;
}

/* Without a queue: a request passes now, or not at all. */
static bool pass_now(const struct rule *rule, struct state state, uint64_t now_ns, const struct queue_request *request,
                     uint64_t *wait_ns)
{
    const bool room = saturating_sub(rule_headroom(rule, state, now_ns), request->ahead) >= request->cost;
    *wait_ns = room ? 0 : rule_retry_after(rule, state, now_ns, request->cost);
    return room;
}

bool rule_queue(const struct rule *rule, struct state state, uint64_t now_ns, const struct queue_request *request,
                uint64_t *wait_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
    case RULE_HISTORY:
        return pass_now(rule, state, now_ns, request, wait_ns);
    case RULE_BUCKET:
        return bucket_queue(rule, state, now_ns, request, wait_ns);
    }
    return false;
}

uint64_t rule_retry_after(const struct rule *rule, struct state state, uint64_t now_ns, uint64_t cost)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return window_retry_after(rule, state, now_ns, cost);
    case RULE_HISTORY:
        return history_state_retry_after(rule, state, now_ns, cost);
    case RULE_BUCKET:
        return bucket_retry_after(rule, state, now_ns, cost);
    }
    return 0;
}

uint64_t rule_reset_after(const struct rule *rule, struct state state, uint64_t now_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return window_reset_after(rule, state, now_ns);
    case RULE_HISTORY:
        return history_reset_after(state, now_ns);
    case RULE_BUCKET:
        return bucket_reset_after(rule, state, now_ns);
    }
    return 0;
}

uint64_t rule_used_reset_after(const struct rule *rule, struct state state, uint64_t now_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return window_reset_after(rule, window_charge(rule, state, now_ns, 1), now_ns);
    case RULE_HISTORY:
        return rule->period_ns;
    case RULE_BUCKET:
        return bucket_reset_after(rule, state, now_ns);
    }
    return 0;
}

struct usage rule_usage(const struct rule *rule, struct state state, uint64_t now_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return window_usage(rule, state, now_ns);
    case RULE_HISTORY:
        return history_usage(state, now_ns);
    case RULE_BUCKET:
        return bucket_usage(rule, state, now_ns);
    }
    return (struct usage){0, 0};
}

struct state rule_resume(const struct rule *rule, struct usage usage, uint64_t now_ns)
{
    switch (rule_kind(rule)) {
    case RULE_WINDOW:
        return window_resume(rule, usage, now_ns);
    case RULE_HISTORY:
        return history_resume(usage, now_ns);
    case RULE_BUCKET:
        return bucket_resume(rule, usage, now_ns);
    }
    return (struct state){0, 0};
}
