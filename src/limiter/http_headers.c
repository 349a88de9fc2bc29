/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP header fields that tell a client how it stands.
 *
 * Sources: draft-ietf-httpapi-ratelimit-headers-11 (RateLimit-Policy and RateLimit: lists of strings with integer
 * parameters), the same draft up to -07 (the three fields), RFC 9651 (structured fields: how strings are escaped, and
 * that integers have at most 15 digits), RFC 9110 section 10.2.3 (Retry-After).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "algorithm/calendar.h"
#include "base/text.h"
#include "limiter/weir_private.h"
#include "thread/rcu_lane.h"

/* The greatest integer of a structured field. */
#define INTEGER_MAX UINT64_C(999999999999999)

#define DAY_S UINT64_C(86400)

static uint64_t capped(uint64_t value)
{
    return min_u64(value, INTEGER_MAX);
}

/* Whole seconds, rounded up, so that a client that waits so long is admitted. */
static uint64_t seconds_up(uint64_t ns)
{
    return ns / NS_PER_S + (ns % NS_PER_S != 0);
}

/* What writes the fields of one verdict. now_ns: fleet time of the call. */
struct fields {
    struct text text;
    uint64_t now_ns;
    const struct policy *policy;
    const weir_verdict *verdict;
};

/* Seconds since 1970 at which so long after the decision has passed. */
static uint64_t second_after(const struct fields *fields, uint64_t after_ns)
{
    const uint64_t decided_ns = fields->verdict->decided_ns;
    return seconds_up(saturating_add(decided_ns != 0 ? decided_ns : fields->now_ns, after_ns));
}

/* Seconds from now until then. A decision that lies ahead, as the clock was set back meanwhile, was now. */
static uint64_t seconds_until(const struct fields *fields, uint64_t after_ns)
{
    const uint64_t decided_ns = fields->verdict->decided_ns;
    const uint64_t passed_ns = decided_ns != 0 ? saturating_sub(fields->now_ns, decided_ns) : 0;
    return seconds_up(saturating_sub(after_ns, passed_ns));
}

static void add_policy_item(struct text *text, const struct policy_limit *limit)
{
    const struct rule *rule = &limit->rule;
    text_add_quoted(text, limit->name);
    text_add(text, ";q=%" PRIu64, capped(limit->per_period));
    /* A window that is no whole number of seconds, or whose length changes, is left unsaid. */
    if (rule->period_ns % NS_PER_S == 0 && rule->calendar != WEIR_CALENDAR_MONTH) {
        text_add(text, ";w=%" PRIu64, rule->period_ns / NS_PER_S);
    }
}

static void add_draft_11(struct fields *fields)
{
    struct text *text = &fields->text;
    const struct policy *policy = fields->policy;
    const weir_verdict *verdict = fields->verdict;
    text_add(text, "RateLimit-Policy: ");
    for (size_t i = 0; i < policy->limit_count; i++) {
        text_add(text, i != 0 ? "," : "");
        add_policy_item(text, &policy->limits[i]);
    }
    text_add(text, "\r\nRateLimit: ");
    text_add_quoted(text, policy->limits[verdict->limit_index].name);
    text_add(text, ";r=%" PRIu64, capped(verdict->remaining));
    if (verdict->reset_after_ns != UINT64_MAX) {
        text_add(text, ";t=%" PRIu64, capped(seconds_until(fields, verdict->reset_after_ns)));
    }
    text_add(text, "\r\n");
}

static void add_trio(struct fields *fields)
{
    const weir_verdict *verdict = fields->verdict;
    text_add(&fields->text, "RateLimit-Limit: %" PRIu64 "\r\nRateLimit-Remaining: %" PRIu64 "\r\n",
             capped(verdict->limit), capped(verdict->remaining));
    if (verdict->reset_after_ns != UINT64_MAX) {
        text_add(&fields->text, "RateLimit-Reset: %" PRIu64 "\r\n",
                 capped(seconds_until(fields, verdict->reset_after_ns)));
    }
}

/* Seconds since 1970, rounded up: a window that ends with a second ends then, and not with the next one. */
static void add_x(struct fields *fields, bool iso)
{
    struct text *text = &fields->text;
    const weir_verdict *verdict = fields->verdict;
    const uint64_t at = second_after(fields, verdict->reset_after_ns);
    text_add(text, "X-RateLimit-Limit: %" PRIu64 "\r\nX-RateLimit-Remaining: %" PRIu64 "\r\n", capped(verdict->limit),
             capped(verdict->remaining));
    if (verdict->reset_after_ns == UINT64_MAX) {
        return;
    }
    if (iso) {
        const struct date date = calendar_date(at / DAY_S);
        const unsigned second = (unsigned) (at % DAY_S);
        text_add(text, "X-RateLimit-Reset: %04" PRIu32 "-%02" PRIu32 "-%02" PRIu32 "T%02u:%02u:%02uZ\r\n", date.year,
                 date.month, date.day, second / 3600, second / 60 % 60, second % 60);
    } else {
        text_add(text, "X-RateLimit-Reset: %" PRIu64 "\r\n", capped(at));
    }
}

static void add_style(struct fields *fields, weir_header_style style)
{
    const weir_verdict *verdict = fields->verdict;
    switch (style) {
    case WEIR_HEADERS_DRAFT_11:
        add_draft_11(fields);
        break;
    case WEIR_HEADERS_TRIO:
        add_trio(fields);
        break;
    case WEIR_HEADERS_X_UNIX:
    case WEIR_HEADERS_X_ISO8601:
        add_x(fields, style == WEIR_HEADERS_X_ISO8601);
        break;
    case WEIR_HEADERS_RETRY_AFTER:
    default:
        break;
    }
    if (!verdict->allowed && verdict->retry_after_ns != UINT64_MAX) {
        text_add(&fields->text, "Retry-After: %" PRIu64 "\r\n",
                 max_u64(seconds_until(fields, verdict->retry_after_ns), 1));
    }
}

int weir_write_headers(weir_header_style style, const weir *w, weir_policy_id policy, const weir_verdict *verdict,
                       char *buffer, size_t size)
{
    if (style < WEIR_HEADERS_DRAFT_11 || style > WEIR_HEADERS_RETRY_AFTER || verdict == NULL) {
        return -EINVAL;
    }
    struct fields fields = {
        .text = {.buffer = buffer, .size = size}, .now_ns = tick_time(&w->limiter), .verdict = verdict};
    text_add(&fields.text, "%s", "");                         /* terminated, whatever follows */
    struct limiter *limiter = (struct limiter *) &w->limiter; /* only its readers are counted */
    const unsigned lane = rcu_enter_lane(limiter);
    /* Acquire: pairs with the publication in weir_set_policies. */
    const struct policy_set *set = process_policies(&w->limiter.process);
    fields.policy = policy_set_by_id(set, policy);
    if (fields.policy != NULL && verdict->limit_index < fields.policy->limit_count) {
        add_style(&fields, style);
    }
    rcu_leave_lane(limiter, lane);
    return (int) fields.text.length;
}
