/* SPDX-License-Identifier: Apache-2.0 */
/* See tell_policies.h. */
#include "tell_policies.h"

#include <string.h>

#include "describe.h"

static const char *const algorithm_names[] = {[WEIR_FIXED_WINDOW] = "fixed_window",
                                              [WEIR_SLIDING_WINDOW] = "sliding_window",
                                              [WEIR_SLIDING_LOG] = "sliding_log",
                                              [WEIR_TOKEN_BUCKET] = "token_bucket",
                                              [WEIR_LEAKY_BUCKET] = "leaky_bucket"};
static const char *const outage_names[] = {[WEIR_OUTAGE_SHARE] = "share",
                                           [WEIR_OUTAGE_LOCAL] = "local",
                                           [WEIR_OUTAGE_OPEN] = "open",
                                           [WEIR_OUTAGE_CLOSED] = "closed"};

static void tell_limit_data(struct output *out, const weir_limit *limit)
{
    output_open(out, NULL, '{');
    output_string(out, "name", limit->name);
    output_string(out, "algorithm", algorithm_names[limit->algorithm]);
    output_number(out, "limit", limit->limit);
    if (limit->calendar != WEIR_CALENDAR_NONE) {
        output_string(out, "calendar", limit->calendar == WEIR_CALENDAR_DAY ? "day" : "month");
    } else {
        output_number(out, "period_ns", limit->period_ns);
    }
    if (limit->algorithm == WEIR_TOKEN_BUCKET || limit->algorithm == WEIR_LEAKY_BUCKET) {
        output_number(out, "burst", limit->burst);
    }
    if (limit->algorithm == WEIR_LEAKY_BUCKET) {
        output_number(out, "delay", limit->delay);
    }
    output_close(out, '}');
}

static void tell_policy_data(struct output *out, const weir_policy *policy, const char *words)
{
    output_open(out, NULL, '{');
    output_string(out, "name", policy->name);
    output_string(out, "words", words);
    output_string(out, "mode", policy->mode == WEIR_SHADOW ? "shadow" : "enforce");
    output_string(out, "scope", policy->scope == WEIR_SCOPE_PROCESS ? "process" : "fleet");
    output_flag(out, "hash_keys", policy->hash_keys);
    output_string(out, "on_outage", outage_names[policy->on_outage]);
    output_string(out, "on_long_outage", outage_names[policy->on_long_outage]);
    output_number(out, "outage_grace_ms", policy->outage_grace_ms);
    output_number(out, "long_outage_ms", policy->long_outage_ms);
    output_open(out, "limits", '[');
    for (size_t i = 0; i < policy->limit_count; i++) {
        tell_limit_data(out, &policy->limits[i]);
    }
    output_close(out, ']');
    output_close(out, '}');
}

static void tell_policy(struct output *out, const weir_policy *policy, const char *as)
{
    struct sentence words = {.length = 0};
    describe_limits(&words, policy->limits, policy->limit_count);
    describe_settings(&words, policy, as);
    output_text(out, "  ");
    output_styled(out, STYLE_NAME, policy->name);
    output_text(out, ": %s\n", words.text);
    tell_policy_data(out, policy, words.text);
}

void tell_policies(struct output *out, const struct listed_policies *list)
{
    for (size_t i = 0; i < list->count; i++) {
        const weir_policy *policy = &list->all[i].policy;
        const size_t length = strcspn(policy->name, "/");
        const weir_policy *base = policy->name[length] == '/' ? listed_policies_find(list, policy->name, length) : NULL;
        tell_policy(out, policy, base != NULL && describe_is_alike(policy, base) ? base->name : NULL);
    }
}

void tell_override(struct output *out, const weir_policy *policy, const char *name, const char *value)
{
    struct sentence words = {.length = 0};
    describe_override(&words, policy, value);
    output_text(out, "  ");
    output_styled(out, STYLE_NAME, name);
    output_text(out, " %s", words.text);
    output_open(out, NULL, '{');
    output_string(out, "name", name);
    output_string(out, "value", value);
    output_string(out, "words", words.text);
}

void tell_override_words(struct output *out, const weir_policy *policy, const char *value)
{
    struct sentence words = {.length = 0};
    describe_override(&words, policy, value);
    output_text(out, " %s", words.text);
}
