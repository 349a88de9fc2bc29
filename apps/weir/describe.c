/* SPDX-License-Identifier: Apache-2.0 */
/* See describe.h. */
#include "describe.h"

#include <stdlib.h>
#include <string.h>

static void add_rate(struct sentence *s, const weir_limit *limit)
{
    quantity_number(s, limit->limit);
    sentence_add(s, " ");
    quantity_rate(s, limit->period_ns);
}

static void add_burst(struct sentence *s, uint64_t burst)
{
    if (burst == 1) {
        sentence_add(s, " without bursts");
        return;
    }
    sentence_add(s, " with bursts of ");
    quantity_number(s, burst);
}

/*
 * The queue of a leaky bucket. The unit that is served, and `delay` units behind it, pass at once. Each further one
 * waits a turn longer, up to `burst` units in all.
 */
static void add_queue(struct sentence *s, const weir_limit *limit)
{
    const double turn_ns = (double) limit->period_ns / (double) limit->limit;
    if (limit->limit != 1) {
        sentence_add(s, " (one ");
        quantity_about(s, "every ", turn_ns);
        sentence_add(s, ")");
    }
    if (limit->burst == 1) {
        sentence_add(s, " without a queue");
        return;
    }
    sentence_add(s, " with a queue of ");
    quantity_number(s, limit->burst);
    if (limit->delay != 0) {
        sentence_add(s, " of which ");
        quantity_number(s, limit->delay + 1);
        sentence_add(s, " pass at once and the rest waits up to ");
    } else {
        sentence_add(s, " that waits up to ");
    }
    quantity_about(s, "", turn_ns * (double) (limit->burst - 1 - limit->delay));
}

static void add_limit(struct sentence *s, const weir_limit *limit)
{
    switch (limit->algorithm) {
    case WEIR_SLIDING_LOG:
        sentence_add(s, "at most ");
        quantity_number(s, limit->limit);
        quantity_each(s, " in any", " in any", limit->period_ns);
        return;
    case WEIR_TOKEN_BUCKET:
        add_rate(s, limit);
        add_burst(s, limit->burst);
        return;
    case WEIR_LEAKY_BUCKET:
        add_rate(s, limit);
        if (limit->burst != 1 && limit->delay + 1 >= limit->burst) {
            add_burst(s, limit->burst); /* nothing waits */
            return;
        }
        sentence_add(s, " evenly");
        add_queue(s, limit);
        return;
    case WEIR_SLIDING_WINDOW:
        add_rate(s, limit);
        return;
    case WEIR_FIXED_WINDOW:
    default:
        break;
    }
    if (limit->calendar != WEIR_CALENDAR_NONE) {
        quantity_number(s, limit->limit);
        sentence_add(s, " each calendar %s (UTC)", limit->calendar == WEIR_CALENDAR_DAY ? "day" : "month");
        return;
    }
    add_rate(s, limit);
    quantity_each(s, " (counted anew each", " (counted anew every", limit->period_ns);
    sentence_add(s, ")");
}

void describe_limits(struct sentence *s, const weir_limit *limits, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i != 0) {
            sentence_add(s, i + 1 == count ? ", and " : ", ");
        }
        add_limit(s, &limits[i]);
    }
}

static const char *outage_words(weir_outage outage)
{
    switch (outage) {
    case WEIR_OUTAGE_LOCAL:
        return "admits the whole limit";
    case WEIR_OUTAGE_OPEN:
        return "lets everything pass";
    case WEIR_OUTAGE_CLOSED:
        return "lets nothing pass";
    case WEIR_OUTAGE_SHARE:
    default:
        return "admits its share";
    }
}

static void add_ms(struct sentence *s, uint32_t ms)
{
    quantity_duration(s, UINT64_C(1000000) * ms);
}

static void add_outage(struct sentence *s, const weir_policy *policy)
{
    if (policy->outage_grace_ms != 0) {
        sentence_add(s, "; when Redis has been away for ");
        add_ms(s, policy->outage_grace_ms);
        sentence_add(s, " a node %s", outage_words(policy->on_outage));
    } else {
        sentence_add(s, "; while Redis is away a node %s", outage_words(policy->on_outage));
    }
    if (policy->long_outage_ms != 0 && policy->on_long_outage != policy->on_outage) {
        sentence_add(s, ", and after ");
        add_ms(s, policy->long_outage_ms);
        sentence_add(s, " more %s", outage_words(policy->on_long_outage));
    }
}

void describe_settings(struct sentence *s, const weir_policy *policy, const char *as)
{
    if (as != NULL) {
        sentence_add(s, "; otherwise as %s", as);
        return;
    }
    if (policy->mode == WEIR_SHADOW) {
        sentence_add(s, "; shadow mode: everything passes");
    }
    if (policy->scope == WEIR_SCOPE_PROCESS) {
        sentence_add(s, "; each process by itself");
        return;
    }
    add_outage(s, policy);
    if (policy->hash_keys) {
        sentence_add(s, "; Redis sees hashes of the keys");
    }
}

bool describe_is_alike(const weir_policy *one, const weir_policy *other)
{
    return one->mode == other->mode && one->scope == other->scope && one->hash_keys == other->hash_keys &&
           one->on_outage == other->on_outage && one->on_long_outage == other->on_long_outage &&
           one->outage_grace_ms == other->outage_grace_ms && one->long_outage_ms == other->long_outage_ms;
}

/* The numbers of an override, which the library has taken: one for each limit, and a burst behind a '/'. */
static void add_numbers(struct sentence *s, const weir_limit *limits, size_t count, const char *value)
{
    weir_limit own[WEIR_MAX_LIMITS];
    const char *at = value;
    for (size_t i = 0; i < count; i++) {
        char *end;
        own[i] = limits[i]; /* the delay stays the policy's */
        at += strspn(at, " ,");
        own[i].burst = own[i].limit = strtoull(at, &end, 10);
        if (*end == '/') {
            own[i].burst = strtoull(end + 1, &end, 10);
        }
        at = end;
    }
    describe_limits(s, own, count);
}

bool describe_is_of_all(const char *name)
{
    return strncmp(name, "*:", 2) == 0;
}

void describe_override(struct sentence *s, const weir_policy *policy, const char *value)
{
    const char *until = strstr(value, " until ");
    const size_t length = until != NULL ? (size_t) (until - value) : strlen(value);
    if (strncmp(value, "allow", length) == 0) {
        sentence_add(s, "is never limited%s", until != NULL ? until : "");
        return;
    }
    if (strncmp(value, "deny", length) == 0) {
        sentence_add(s, "is never served");
    } else {
        sentence_add(s, "has ");
        add_numbers(s, policy->limits, policy->limit_count, value);
    }
    sentence_add(s, "%s", until != NULL ? until : "");
    if (policy != NULL && policy->mode == WEIR_SHADOW) {
        sentence_add(s, "; shadow mode: everything passes all the same");
    }
}
