/* SPDX-License-Identifier: Apache-2.0 */
/* See validate.h. Each sentence names the policy, the limit (counted from 1), the field, its value and the way out. */
#include "policy/validate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "algorithm/algorithm.h"
#include "base/error.h"
#include "base/numbers.h"
#include "policy/policy_words.h"
#include "policy/words.h"

/* A bucket refills from empty in less than this: two years. */
#define FILL_MAX_S UINT64_C(63072000)

/* Units a second: at this rate a unit takes 100 steps of a bucket's time, 1/64 ns, so rounding one costs at most 1%. */
#define RATE_MAX UINT64_C(640000000)

/* The policy or limit that is validated, and its name in an error. */
struct subject {
    const weir_policy *policy;
    size_t policy_index, limit_index; /* limit_index SIZE_MAX: the policy itself */
    struct policy_fault *fault;       /* NULL: the caller needs no place */
    weir_error *error;
    char subject[WEIR_MAX_NAME + 48];
};

static void name_policy(struct subject *s)
{
    s->limit_index = SIZE_MAX;
    (void) snprintf(s->subject, sizeof(s->subject), "policy \"%s\"", s->policy->name);
}

static void name_limit(struct subject *s, size_t limit_index)
{
    s->limit_index = limit_index;
    (void) snprintf(s->subject, sizeof(s->subject), "policy \"%s\": limit %zu", s->policy->name, limit_index + 1);
}

/* Sets the place of a fault to a field; the caller sets the sentence. */
static void at_field(const struct subject *s, const char *field)
{
    if (s->fault != NULL) {
        *s->fault = (struct policy_fault){s->policy_index, s->limit_index, field};
    }
}

/* What a name may have. */
#define NAME_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/"

bool validate_name(const char *name)
{
    const size_t length = strnlen(name, WEIR_MAX_NAME + 1);
    return length != 0 && length <= WEIR_MAX_NAME && strspn(name, NAME_BYTES) == length;
}

static int check_name(struct subject *s)
{
    const char *name = s->policy->name;
    s->limit_index = SIZE_MAX;
    at_field(s, "name");
    if (name == NULL) {
        return error_set(s->error, -EINVAL,
                         "policy %zu has no name; give 1 to %d letters, digits, '.', '_', '-' or '/'",
                         s->policy_index + 1, WEIR_MAX_NAME);
    }
    const size_t length = strnlen(name, WEIR_MAX_NAME + 1);
    if (length == 0 || length > WEIR_MAX_NAME) {
        return error_set(s->error, -EINVAL,
                         "policy %zu has a name that is %s; give 1 to %d letters, digits, '.', '_', '-' or '/'",
                         s->policy_index + 1, length == 0 ? "empty" : "too long", WEIR_MAX_NAME);
    }
    const size_t good = strspn(name, NAME_BYTES);
    if (good != length) {
        return error_set(s->error, -EINVAL,
                         "policy %zu has byte 0x%02x at %zu of its name; use letters, digits, '.', '_', '-' and '/'",
                         s->policy_index + 1, (unsigned) (unsigned char) name[good], good);
    }
    return 0;
}

static int check_enum(struct subject *s, const char *field, int value, int most)
{
    if (value >= 0 && value <= most) {
        return 0;
    }
    at_field(s, field);
    return error_set(s->error, -EINVAL, "%s has %s %d, which there is not; use the names in weir.h", s->subject, field,
                     value);
}

static int check_fields(struct subject *s)
{
    const weir_policy *p = s->policy;
    int result = check_enum(s, "mode", (int) p->mode, WEIR_SHADOW);
    result = result != 0 ? result : check_enum(s, "scope", (int) p->scope, WEIR_SCOPE_PROCESS);
    result = result != 0 ? result : check_enum(s, "on_outage", (int) p->on_outage, WEIR_OUTAGE_CLOSED);
    result = result != 0 ? result : check_enum(s, "on_long_outage", (int) p->on_long_outage, WEIR_OUTAGE_CLOSED);
    if (result == 0 && p->outage_grace_ms > POLICY_GRACE_MAX_MS) {
        at_field(s, "outage_grace_ms");
        result = error_set(s->error, -EINVAL, "%s has outage_grace_ms %" PRIu32 "; give at most %" PRIu32 " (a day)",
                           s->subject, p->outage_grace_ms, POLICY_GRACE_MAX_MS);
    }
    if (result == 0 && p->long_outage_ms > POLICY_LONG_MAX_MS) {
        at_field(s, "long_outage_ms");
        result = error_set(s->error, -EINVAL,
                           "%s has long_outage_ms %" PRIu32 "; give at most %" PRIu32 " (30 days), or 0 for never",
                           s->subject, p->long_outage_ms, POLICY_LONG_MAX_MS);
    }
    if (result == 0 && (p->limits == NULL || p->limit_count == 0 || p->limit_count > WEIR_MAX_LIMITS)) {
        at_field(s, "limits");
        result = error_set(s->error, -EINVAL, "%s has %zu limits; give 1 to %d", s->subject,
                           p->limits == NULL ? 0 : p->limit_count, WEIR_MAX_LIMITS);
    }
    return result;
}

/* Checks a bucket's rate and time to refill; limit, period and burst are each in range. */
static int check_bucket(struct subject *s, const weir_limit *l)
{
    if ((wide_uint) l->limit * NS_PER_S > (wide_uint) RATE_MAX * l->period_ns) {
        at_field(s, "limit");
        return error_set(s->error, -EINVAL,
                         "%s lets more than %" PRIu64 " units a second through its bucket; count in larger units",
                         s->subject, RATE_MAX);
    }
    const uint64_t burst = l->burst != 0 ? l->burst : l->limit;
    if ((wide_uint) burst * l->period_ns >= (wide_uint) FILL_MAX_S * NS_PER_S * l->limit) {
        at_field(s, "burst");
        return error_set(s->error, -EINVAL,
                         "%s has burst %" PRIu64 ", which takes two years or more to refill; give less", s->subject,
                         burst);
    }
    return 0;
}

static bool is_bucket(const weir_limit *l)
{
    return algorithm_kind(l->algorithm) == RULE_BUCKET;
}

/* Checks the period, or the calendar in its place. */
static int check_period(struct subject *s, const weir_limit *l)
{
    if ((int) l->calendar < WEIR_CALENDAR_NONE || l->calendar > WEIR_CALENDAR_MONTH) {
        at_field(s, "calendar");
        return error_set(s->error, -EINVAL, "%s has calendar %d, which there is not; use day or month", s->subject,
                         (int) l->calendar);
    }
    if (l->calendar != WEIR_CALENDAR_NONE) {
        if (algorithm_has_calendar(l->algorithm)) {
            return 0; /* the calendar takes the period's place */
        }
        at_field(s, "calendar");
        return error_set(s->error, -EINVAL,
                         "%s has a calendar, which only fixed_window has; use that, or give a period", s->subject);
    }
    if (l->period_ns < POLICY_PERIOD_MIN_NS || l->period_ns > POLICY_PERIOD_MAX_NS) {
        at_field(s, "period_ns");
        return error_set(s->error, -EINVAL,
                         "%s has period %" PRIu64 "%s; give a period such as \"10s\", from 1ms to 366d", s->subject,
                         l->period_ns, l->period_ns != 0 ? " ns" : "");
    }
    return 0;
}

static int check_limit_name(struct subject *s, const weir_limit *l)
{
    if (l->name == NULL) {
        return 0;
    }
    const size_t length = strnlen(l->name, WEIR_MAX_NAME + 1);
    bool good = length != 0 && length <= WEIR_MAX_NAME;
    for (size_t i = 0; i < length && good; i++) {
        good = (unsigned char) l->name[i] >= ' ' && (unsigned char) l->name[i] < 0x7f;
    }
    if (good) {
        return 0;
    }
    at_field(s, "name");
    return error_set(s->error, -EINVAL, "%s has name \"%.70s\"; give 1 to %d bytes of printable ASCII, or none",
                     s->subject, l->name, WEIR_MAX_NAME);
}

/* Checks the delay, which algorithms with a queue have: at most the burst. */
static int check_delay(struct subject *s, const weir_limit *l)
{
    const uint64_t burst = l->burst != 0 ? l->burst : l->limit;
    if (l->delay == 0 || (algorithm_is_queue(l->algorithm) && l->delay <= burst)) {
        return 0;
    }
    at_field(s, "delay");
    if (!algorithm_is_queue(l->algorithm)) {
        return error_set(s->error, -EINVAL,
                         "%s has delay %" PRIu64 ", which only leaky_bucket has; leave it out, or use leaky_bucket",
                         s->subject, l->delay);
    }
    return error_set(s->error, -EINVAL, "%s has delay %" PRIu64 "; give 0 to its burst, %" PRIu64, s->subject, l->delay,
                     burst);
}

static int check_limit(struct subject *s, const weir_limit *l)
{
    if (algorithm_name(l->algorithm) == NULL) {
        char list[120];
        at_field(s, "algorithm");
        return error_set(s->error, -EINVAL, "%s has algorithm %d, which there is not; use one of %s", s->subject,
                         (int) l->algorithm, words_list(&algorithm_words, list, sizeof(list)));
    }
    if (l->limit == 0 || l->limit > WEIR_MAX_UNITS) {
        at_field(s, "limit");
        return error_set(s->error, -EINVAL, "%s has limit %" PRIu64 "; give 1 to %" PRIu64 " units", s->subject,
                         l->limit, WEIR_MAX_UNITS);
    }
    if (algorithm_kind(l->algorithm) == RULE_HISTORY && l->limit > WEIR_MAX_LOG_UNITS) {
        at_field(s, "limit");
        return error_set(s->error, -EINVAL,
                         "%s has limit %" PRIu64 ", but a sliding log remembers every unit: give 1 to %d, or use "
                         "sliding_window",
                         s->subject, l->limit, WEIR_MAX_LOG_UNITS);
    }
    int result = check_period(s, l);
    result = result != 0 ? result : check_limit_name(s, l);
    if (result != 0) {
        return result;
    }
    if (l->burst > WEIR_MAX_UNITS) {
        at_field(s, "burst");
        return error_set(s->error, -EINVAL, "%s has burst %" PRIu64 "; give 1 to %" PRIu64 " units, or 0 for the limit",
                         s->subject, l->burst, WEIR_MAX_UNITS);
    }
    result = check_delay(s, l);
    if (result != 0 || is_bucket(l)) {
        return result != 0 ? result : check_bucket(s, l);
    }
    if (l->burst != 0 && l->burst != l->limit) {
        at_field(s, "burst");
        return error_set(s->error, -EINVAL,
                         "%s has burst %" PRIu64 ", but only buckets have one; leave it out, or use token_bucket",
                         s->subject, l->burst);
    }
    return 0;
}

/* A number for the period or calendar of a limit: equal numbers are equal periods. */
static uint64_t period_of(const weir_limit *l)
{
    /* A calendar day is the period of a day. The number 1 is the month: no period is as short as 1 ns. */
    if (l->calendar == WEIR_CALENDAR_NONE) {
        return l->period_ns;
    }
    return l->calendar == WEIR_CALENDAR_DAY ? 86400 * NS_PER_S : 1;
}

static int check_limits(struct subject *s)
{
    for (size_t i = 0; i < s->policy->limit_count; i++) {
        const weir_limit *limit = &s->policy->limits[i];
        name_limit(s, i);
        const int result = check_limit(s, limit);
        if (result != 0) {
            return result;
        }
        for (size_t j = 0; j < i; j++) {
            if (s->policy->limits[j].algorithm == limit->algorithm &&
                period_of(&s->policy->limits[j]) == period_of(limit)) {
                at_field(s, "period_ns");
                return error_set(s->error, -EINVAL,
                                 "%s has the algorithm and the period of limit %zu; keep the stricter of the two",
                                 s->subject, j + 1);
            }
        }
    }
    return 0;
}

int validate_policies(const weir_policy *policies, size_t count, struct policy_fault *fault, weir_error *error)
{
    if (policies == NULL && count != 0) {
        return error_set(error, -EINVAL, "policies is NULL with a count of %zu; give that many policies", count);
    }
    struct subject s = {.fault = fault, .error = error};
    for (size_t i = 0; i < count; i++) {
        s.policy = &policies[i];
        s.policy_index = i;
        int result = check_name(&s);
        if (result != 0) {
            return result;
        }
        name_policy(&s);
        for (size_t j = 0; j < i; j++) {
            if (strcmp(policies[j].name, policies[i].name) == 0) {
                at_field(&s, "name");
                return error_set(error, -EINVAL, "%s is there twice, as number %zu and number %zu; rename one",
                                 s.subject, j + 1, i + 1);
            }
        }
        result = check_fields(&s);
        result = result != 0 ? result : check_limits(&s);
        if (result != 0) {
            return result;
        }
    }
    return error_clear(error);
}
