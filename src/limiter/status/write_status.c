/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weir_write_status: the state of a weir as one line of JSON. docs/operations.md has the fields; new ones come at the
 * end of their object, and none changes.
 *
 * No text needs more than quotes and backslashes escaped: names, and keys as weir_top_offenders writes them, are
 * printable ASCII.
 */
#include <inttypes.h>

#include "base/text.h"
#include "limiter/policy_lock.h"
#include "limiter/status/readings.h"

static void add_number(struct text *text, const char *name, uint64_t value)
{
    text_add(text, ",\"%s\":%" PRIu64, name, value);
}

static void add_word(struct text *text, const char *name, const char *value)
{
    text_add(text, ",\"%s\":", name);
    text_add_quoted(text, value);
}

static void tell_fleet(struct text *text, const weir *w, const weir_stats *stats)
{
    static const char *const links[] = {[WEIR_LINK_NONE] = "none", [WEIR_LINK_DOWN] = "down", [WEIR_LINK_UP] = "up"};
    add_word(text, "link", links[stats->link]);
    add_number(text, "live_nodes", stats->live_nodes);
    if (stats->fleet_age_ns != UINT64_MAX) {
        add_number(text, "fleet_age_ms", stats->fleet_age_ns / NS_PER_MS);
    } else {
        text_add(text, ",\"fleet_age_ms\":null");
    }
    add_number(text, "syncs", stats->sync_count);
    add_number(text, "sync_errors", stats->sync_error_count);
    add_number(text, "suspect_nodes", load_relaxed(&w->fleet->stats.suspect_nodes));
    text_add(text, ",\"awaiting_peers\":%s", load_relaxed(&w->fleet->stats.awaiting_peers) != 0 ? "true" : "false");
    add_number(text, "round_trip_us", stats->round_trip_ns / NS_PER_US);
    add_number(text, "connections", stats->connection_count);
    add_number(text, "connection_attempts", stats->connection_attempt_count);
    add_number(text, "reports", stats->report_count);
    add_number(text, "rejected_reports", stats->rejected_report_count);
    add_number(text, "redis_lost_state", stats->redis_lost_state_count);
    add_number(text, "overrides", stats->override_count);
}

static void tell_errors(struct text *text, const struct fleet_stats *stats)
{
    text_add(text, ",\"errors\":{");
    for (size_t i = 0; i < LINK_ERROR_KINDS; i++) {
        text_add(text, "%s\"%s\":%" PRIu64, i != 0 ? "," : "", link_error_name(i),
                 load_relaxed(&stats->link_error_counts[i]));
    }
    text_add(text, "}");
}

/* The histogram as the metrics have it, but each count by itself. Bounds and sum are millionths of the limit. */
static void tell_estimate(struct text *text, const struct fleet_stats *stats)
{
    text_add(text, ",\"estimate_error\":{\"sum_ppm\":%" PRId64 ",\"bounds_ppm\":[", load_relaxed(&stats->estimate_sum));
    for (size_t i = 0; i < ESTIMATE_BUCKETS - 1; i++) {
        text_add(text, "%s%" PRId32, i != 0 ? "," : "", estimate_bounds[i]);
    }
    text_add(text, "],\"counts\":[");
    for (size_t i = 0; i < ESTIMATE_BUCKETS; i++) {
        text_add(text, "%s%" PRIu64, i != 0 ? "," : "", load_relaxed(&stats->estimate_counts[i]));
    }
    text_add(text, "]}");
}

static void tell_limits(struct text *text, const struct policy *policy)
{
    text_add(text, ",\"limits\":[");
    for (size_t i = 0; i < policy->limit_count; i++) {
        const struct policy_limit *limit = &policy->limits[i];
        text_add(text, "%s{\"name\":", i != 0 ? "," : "");
        text_add_quoted(text, limit->name);
        add_word(text, "algorithm", algorithm_name(limit->rule.algorithm));
        add_number(text, "limit", limit->per_period);
        add_number(text, "period_ns", limit->rule.period_ns);
        add_number(text, "burst", limit->rule.limit);
        text_add(text, "}");
    }
    text_add(text, "]");
}

static void tell_offenders(struct text *text, const struct top_k *list, const weir_key_form *form)
{
    weir_offender offenders[WEIR_TOP_OFFENDERS];
    const size_t count = top_denied_list(list, form, offenders, WEIR_TOP_OFFENDERS);
    text_add(text, ",\"offenders\":[");
    for (size_t i = 0; i < count; i++) {
        text_add(text, "%s{\"key\":", i != 0 ? "," : "");
        text_add_quoted(text, offenders[i].key);
        add_number(text, "denied_units", offenders[i].denied_units);
        add_number(text, "error_units", offenders[i].error_units);
        text_add(text, "}");
    }
    text_add(text, "]");
}

/* What the verdicts of a policy rest on: see weir_basis. */
static const char *basis_name(const weir *w, const struct policy *policy, const weir_stats *stats)
{
    const bool shared = process_shares(&w->limiter.process, policy);
    if (shared && load_relaxed(&policy->outage_mode) != OUTAGE_MODE_NONE) {
        return "outage";
    }
    return shared && stats->fleet_age_ns != UINT64_MAX ? "fleet" : "process";
}

static void tell_policy(struct text *text, weir *w, const struct policy *policy, const weir_stats *stats)
{
    const struct policy_sums sums = policy_sums_read(&w->limiter, policy->id);
    struct top_k list;
    top_denied_read(&w->limiter.process, policy->group, &list);
    text_add(text, "{\"name\":");
    text_add_quoted(text, policy->name);
    add_word(text, "mode", policy->mode == WEIR_SHADOW ? "shadow" : "enforce");
    add_word(text, "scope", policy->scope == WEIR_SCOPE_PROCESS ? "process" : "fleet");
    tell_offenders(text, &list, policy_names_form(&w->names, w->names.names[policy->group]));
    add_word(text, "group", policy->base);
    add_word(text, "outage_mode", outage_mode_name(load_relaxed(&policy->outage_mode)));
    add_word(text, "basis", basis_name(w, policy, stats));
    add_word(text, "on_outage", outage_mode_name((unsigned) policy->on_outage + OUTAGE_MODE_SHARE));
    add_word(text, "on_long_outage", outage_mode_name((unsigned) policy->on_long_outage + OUTAGE_MODE_SHARE));
    add_number(text, "allowed", sums.allowed);
    add_number(text, "denied", sums.denied);
    add_number(text, "would_deny", sums.would_deny);
    add_number(text, "recent_denied_units", list.total);
    tell_limits(text, policy);
    text_add(text, "}");
}

static void tell_policies(struct text *text, weir *w, const weir_stats *stats)
{
    const struct policy_set *set = process_policies(&w->limiter.process); /* under the policy lock */
    text_add(text, ",\"policies\":[");
    for (size_t i = 0; i < set->count; i++) {
        text_add(text, "%s", i != 0 ? "," : "");
        tell_policy(text, w, &set->policies[i], stats);
    }
    text_add(text, "]");
}

int weir_write_status(const weir *w, char *buffer, size_t size)
{
    struct text text = {.buffer = buffer, .size = size, .length = 0};
    weir *unlocked = (weir *) (uintptr_t) w; /* the lock is no part of what const promises */
    weir_stats stats;
    weir_get_stats(w, &stats);
    text_add(&text, "{\"version\":\"%s\"", weir_version());
    add_number(&text, "processes", stats.process_count);
    tell_fleet(&text, w, &stats);
    add_number(&text, "keys", stats.key_count);
    add_number(&text, "key_capacity", stats.key_capacity);
    add_number(&text, "allowed", stats.allowed_count);
    add_number(&text, "denied", stats.denied_count);
    add_number(&text, "would_deny", stats.would_deny_count);
    add_number(&text, "untracked", stats.untracked_count);
    policy_lock_take(unlocked);
    tell_policies(&text, unlocked, &stats);
    policy_lock_release(unlocked);
    add_word(&text, "node", w->fleet->node);
    add_word(&text, "name", w->fleet->name);
    add_number(&text, "time_ms", tick_time(&w->limiter) / NS_PER_MS);
    add_number(&text, "uptime_ms", since_open_ns(w) / NS_PER_MS);
    add_number(&text, "threads", stats.thread_count);
    add_number(&text, "unknown_policy", stats.unknown_policy_count);
    add_number(&text, "evicted_used", stats.evicted_used_count);
    add_number(&text, "late_units", stats.late_units);
    add_number(&text, "memory_bytes", stats.memory_size);
    tell_errors(&text, &w->fleet->stats);
    tell_estimate(&text, &w->fleet->stats);
    add_number(&text, "unlimited", stats.unlimited_count);
    add_number(&text, "attach_errors", stats.attach_error_count);
    add_number(&text, "dropped_policies", stats.dropped_policy_count);
    text_add(&text, "}\n");
    return (int) text.length;
}
